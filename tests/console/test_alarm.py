from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tui.alarm import AGAIN_NS, GATHER_NS, GRACE_NS, MAX_RUNNING, MISSING_NS, Alarm, AlarmError

START_NS = 1_000_000_000_000
WRITE = "import json,sys; open(sys.argv[1],'a').write(json.dumps(sys.argv[2:])+chr(10))"


class Heard:
    """An alarm, how often it rang, and what it said."""

    def __init__(self, command: str = "") -> None:
        self.rings = 0
        self.said: list[str] = []
        self.alarm = Alarm(self.ring, command, self.said.append)
        self.alarm.update({}, START_NS)

    def ring(self) -> None:
        self.rings += 1

    def look(self, after_s: float, *keys: str) -> None:
        """What is so for as long as incidents are gathered."""
        self.look_once(after_s, *keys)
        self.look_once(after_s + GATHER_NS / 1e9, *keys)

    def look_once(self, after_s: float, *keys: str) -> None:
        told = {key: (f"{key} is gone", key, "") for key in keys}
        self.alarm.update(told, START_NS + GRACE_NS + round(after_s * 1e9))


def test_what_begins_rings_once() -> None:
    heard = Heard()
    heard.look(0)
    heard.look(1, "n1")
    heard.look(2, "n1")
    assert heard.rings == 1
    heard.look(3, "n1", "n2", "n3")
    assert heard.rings == 2


def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that start from now on; they end at once."""
    started: list[list[str]] = []

    class Ended:
        def __init__(self, arguments: list[str], **_: object) -> None:
            started.append(arguments)

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Ended)
    return started


def test_what_begins_within_a_second_rings_once_and_no_later(monkeypatch: pytest.MonkeyPatch) -> None:
    started = commands(monkeypatch)
    heard = Heard("notify")
    gone = {f"n{n}": ("DUL-NODE-GONE", f"n{n}", f"n{n} is gone") for n in (1, 2, 3)}
    begin_ns = START_NS + GRACE_NS
    heard.alarm.update({"n1": gone["n1"]}, begin_ns)
    heard.alarm.update({"n1": gone["n1"], "n2": gone["n2"]}, begin_ns + GATHER_NS - 1)
    assert heard.rings == 0
    full = {"disk": ("DUL-STORE-FULL", "n4", "n4 has no space")}
    heard.alarm.update({**gone, **full}, begin_ns + GATHER_NS)
    assert heard.rings == 1
    assert started == [
        ["notify", "DUL-NODE-GONE", "n1, n2 and n3", "n1 is gone, n2 is gone and n3 is gone"],
        ["notify", "DUL-STORE-FULL", "n4", "n4 has no space"],
    ]
    heard.alarm.update({**gone, **full}, begin_ns + 3 * GATHER_NS)
    assert heard.rings == 1


def test_no_name_is_an_option_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started = commands(monkeypatch)
    heard = Heard("notify --urgent")
    heard.alarm.update({"a": ("DUL-NODE-GONE", "--exec=x\n", "-f is gone")}, START_NS + GRACE_NS)
    heard.alarm.update({}, START_NS + GRACE_NS + GATHER_NS)
    assert started == [["notify", "--urgent", "DUL-NODE-GONE", "\\x2d-exec=x\\x0a", "\\x2df is gone"]]


def test_the_loss_of_the_domain_takes_the_nodes_that_have_not_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    started = commands(monkeypatch)
    heard = Heard("notify")
    lost = ("DUL-DOMAIN-LOST", "domain", "no node is heard")
    heard.alarm.update({"n1": ("DUL-NODE-GONE", "n1", "n1 is gone")}, START_NS + GRACE_NS)
    heard.alarm.update({"domain": lost}, START_NS + GRACE_NS + 1)
    heard.alarm.update({"domain": lost}, START_NS + GRACE_NS + 2 * GATHER_NS)
    assert heard.rings == 1
    assert started == [["notify", *lost]]


def test_what_is_over_within_a_second_rings_all_the_same() -> None:
    heard = Heard()
    heard.look_once(1, "n1")
    heard.look(1.5)
    assert heard.rings == 1


def test_what_was_wrong_before_the_console_came_does_not_ring() -> None:
    heard = Heard()
    heard.look(-3, "n1")
    heard.look(1, "n1")
    assert heard.rings == 0


def test_nodes_that_are_missing_from_the_beginning_ring_when_they_had_time_to_come() -> None:
    heard = Heard()
    missing = {"n1": ("DUL-NODE-ABSENT", "n1", ""), "n2": ("DUL-NODE-ABSENT", "n2", "")}
    heard.alarm.update(missing, START_NS + GRACE_NS - 1)
    heard.alarm.update(missing, START_NS + MISSING_NS - 1)
    assert heard.rings == 0
    del missing["n2"]
    heard.alarm.update(missing, START_NS + MISSING_NS)
    heard.alarm.update(missing, START_NS + MISSING_NS + GATHER_NS)
    assert heard.rings == 1
    missing = {"n2": ("DUL-NODE-ABSENT", "n2", "")}
    heard.alarm.update(missing, START_NS + MISSING_NS + 2 * GATHER_NS)
    heard.alarm.update(missing, START_NS + MISSING_NS + 3 * GATHER_NS)
    assert heard.rings == 2


def test_the_loss_of_the_domain_soon_after_the_start_rings_at_once() -> None:
    heard = Heard()
    heard.alarm.update({"domain": ("DUL-DOMAIN-LOST", "domain", "")}, START_NS + GRACE_NS)
    assert heard.rings == 1


def test_what_comes_back_soon_does_not_ring_again() -> None:
    heard = Heard()
    heard.look(1, "n1")
    heard.look(2)
    heard.look(3, "n1")
    assert heard.rings == 1
    heard.look(4)
    heard.look(5 + AGAIN_NS / 1e9, "n1")
    assert heard.rings == 2


def test_it_can_be_turned_off() -> None:
    heard = Heard()
    heard.alarm.is_on = False
    heard.look(1, "n1")
    assert heard.rings == 0


def test_the_command_gets_harmless_arguments_and_no_shell(tmp_path: Path) -> None:
    out = tmp_path / "out with blank"
    heard = Heard(f"{sys.executable} -c \"{WRITE}\" '{out}'")
    nasty = "\x1b[2Jn1; touch /tmp/x $(id) `id`"
    heard.look(1, nasty)
    for process in heard.alarm._running:
        assert process.wait(30) == 0
    shown = nasty.replace("\x1b", "\\x1b")
    assert json.loads(out.read_text()) == [f"{shown} is gone", shown, ""]


def test_only_so_many_commands_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Running:
        def __init__(self, arguments: list[str], **_: object) -> None:
            started.append(arguments)

        def poll(self) -> None:
            return None

    monkeypatch.setattr(subprocess, "Popen", Running)
    heard = Heard("notify")
    heard.look(1, *(f"n{number}" for number in range(20)))
    assert len(started) == MAX_RUNNING
    assert heard.rings == 1


def test_a_command_that_is_not_there_is_said() -> None:
    heard = Heard("/no/such/program")
    heard.look(1, "n1")
    assert heard.said == ["--notify /no/such/program: No such file or directory"]


def test_an_open_quotation_is_refused() -> None:
    with pytest.raises(AlarmError, match="No closing quotation"):
        Heard("say 'x")
