from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import own_domain

TMUX = shutil.which("tmux")
ROOT = Path(__file__).parents[2]
PROGRAM = (
    "import sys; from tui.app import run_console; from tests.fake import FakeFeed; import time; "
    "code = run_console(FakeFeed(3, 2, clock=time.time_ns), title='ospltool'); "
    "print('ended with', code); time.sleep(60)"
)

INVENTED = ("-c", PROGRAM)
RUN = ("--simulate", "none", "--seed", "7", "--faults", "crash", "--minutes", "2")
COMMAND = "import time; from ospltool.cli.app import main; print('ended with', main({!r})); time.sleep(60)"
SIMULATED = ("-c", COMMAND.format(["top", *RUN]))

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed: no real terminal to type into")


class Terminal:
    """The console in a real terminal of 80x24, in a tmux server of its own."""

    def __init__(self, directory: Path, environment: dict[str, str], program: Sequence[str]) -> None:
        self._socket = str(directory / "tmux.sock")
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **environment}
        self._settings = {k: v for k, v in settings.items() if k not in ("TMUX", "TMUX_PANE")}
        size = ("-x", "80", "-y", "24")
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, sys.executable, *program)

    def tmux(self, *arguments: str) -> str:
        command = [str(TMUX), "-S", self._socket, *arguments]
        done = subprocess.run(
            command, env=self._settings, capture_output=True, text=True, check=True, timeout=20
        )
        return done.stdout

    def wait_for(self, *wanted: str, without: str = "\0", timeout_s: float = 30) -> str:
        """The pane's text as soon as it has all that is wanted, and not what it should be without."""
        deadline = time.monotonic() + timeout_s
        text = ""
        while time.monotonic() < deadline:
            text = self.tmux("capture-pane", "-p", "-t", ":0")
            if all(one in text for one in wanted) and without not in text:
                return text
            time.sleep(0.1)
        raise AssertionError(f"{wanted} not on the screen:\n{text}")

    def check_never(self, unwanted: str, seconds: float) -> None:
        """A text is not on the screen in this time, however often one looks."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert unwanted not in self.tmux("capture-pane", "-p", "-t", ":0")
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", ":0", *keys)

    def close(self) -> None:
        self.tmux("kill-server")


@pytest.fixture
def terminal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    environment, program = getattr(request, "param", ({}, INVENTED))
    terminal = Terminal(tmp_path, environment, program)
    yield terminal
    terminal.close()


def test_a_person_at_a_terminal_reads_filters_and_leaves(terminal: Terminal) -> None:
    text = terminal.wait_for("space-01", "● n1", "● n2", "◐ n3", "★", "━━")
    title = terminal.tmux("display-message", "-p", "-t", ":0", "#{pane_title}")
    assert re.match(r"invented, 3 nodes: OK · \d of \d nodes complete · redundancy left", title)
    assert len(text.splitlines()) <= 24
    terminal.press("Tab", "Down", "Right")
    terminal.wait_for("space-02 on n")
    terminal.press("?")
    terminal.wait_for("keys of the overview screen", "acknowledge")
    terminal.press("Escape")
    terminal.wait_for("space-01")
    terminal.press("p")
    terminal.wait_for("PAUSED")
    terminal.press("p")
    terminal.press("/", "n", "2")
    terminal.wait_for("● n2", without="● n1")
    terminal.press("Escape")
    terminal.wait_for("● n1", "◐ n3", "q quit")
    terminal.press("q")
    after = terminal.wait_for("ended with 0")
    assert "━━" not in after


@pytest.mark.parametrize(
    "terminal",
    [({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "vt100"}, INVENTED)],
    indirect=True,
    ids=["C locale"],
)
def test_a_terminal_without_utf_8_gets_ascii(terminal: Terminal) -> None:
    text = terminal.wait_for("space-01", "M     ")
    assert text.isascii()
    terminal.press("q")
    terminal.wait_for("ended with 0")


@pytest.mark.parametrize("terminal", [({}, SIMULATED)], indirect=True, ids=["top --simulate"])
def test_the_command_shows_a_simulated_run_that_can_be_wound(terminal: Terminal) -> None:
    terminal.wait_for("simulation, seed 7", "● n1", "● n2", "● n3", "simulated")
    terminal.press("]", "]", "]")
    terminal.wait_for("end of simulation", "all checkers agree", timeout_s=60)
    terminal.press("[")
    terminal.wait_for("simulated  00:01:", without="end of simulation")
    terminal.press("7")
    terminal.wait_for("· trace, following")
    terminal.press("/", "killed")  # other events followed, more than the screen has lines for
    terminal.wait_for("is killed", without="q quit")
    terminal.press("Escape")
    terminal.wait_for("q quit")
    terminal.press("q")
    terminal.wait_for("ended with 0")


AWAY = "import os, sys; {}; os.execv(sys.executable, [sys.executable, '-c', {!r}])"
TO_A_FILE = "os.dup2(os.open('stderr.txt', os.O_WRONLY | os.O_CREAT), 2)"


@pytest.mark.parametrize("redirected", [TO_A_FILE, "os.close(2)"], ids=["to a file", "closed"])
def test_the_console_draws_although_standard_error_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redirected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(tmp_path, {}, ("-c", AWAY.format(redirected, PROGRAM)))
    try:
        terminal.wait_for("space-01", "● n1", "● n2", "◐ n3")
        terminal.press("q")
        terminal.wait_for("ended with 0")
        file = tmp_path / "stderr.txt"
        assert not file.exists() or file.read_bytes() == b""
    finally:
        terminal.close()


NOISE = "tev: write to udp/239.255.0.1:8150 failed"
NOISY = PROGRAM.replace(
    "code = ", f"import os, threading; noise = lambda: os.write(2, b'{NOISE}'); {{}}; code = "
)
NOISY = NOISY.format("threading.Timer(0.3, noise).start(); threading.Timer(1.5, noise).start()")


def test_what_a_library_prints_is_not_on_the_screen_but_told_at_the_end(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, {}, ("-c", NOISY))
    try:
        terminal.wait_for("space-01", "● n1", "● n2", "◐ n3")
        terminal.check_never("udp/239", 3.0)  # in which both are printed
        terminal.press("q")
        terminal.wait_for("ended with 0", "Printed by libraries meanwhile:", NOISE)
    finally:
        terminal.close()


def test_health_that_watches_tells_it_at_the_end_too(tmp_path: Path) -> None:
    domain, _ = own_domain()
    noise = f"import os, threading; threading.Timer(4.0, lambda: os.write(2, b'{NOISE}')).start(); "
    program = noise + COMMAND.format(["health", "--watch", "--domain", str(domain)])
    terminal = Terminal(tmp_path, {}, ("-c", program))
    try:
        terminal.wait_for("UNKNOWN")
        terminal.check_never("udp/239", 5.0)  # in which it is printed
        terminal.press("C-c")
        terminal.wait_for("ended with 3", "Printed by libraries meanwhile:", NOISE)
    finally:
        terminal.close()
