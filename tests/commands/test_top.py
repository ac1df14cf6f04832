"""top: which feed the console gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ospltool.live.expectation import NOTHING, Expectation, ExpectedSpace
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder
from ospltool.live.recording import Caption
from tests import fake
from tests.commands.shell import Shell
from tests.forensics.recordings import write_lines
from tui.console import ShellSource


def test_the_console_needs_a_terminal(shell: Shell) -> None:
    code, out, err = shell.run("top")
    assert (code, out) == (2, "")
    assert "needs a terminal" in err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.cli.top.has_terminal", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_the_console_plays_recordings_and_refuses_other_files(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []

    def show(feed: Any, **options: Any) -> int:
        shown.append((feed.title, feed.mode, options))
        feed.close()
        return 0

    monkeypatch.setattr("tui.app.run_console", show)
    write_lines(shell.root / "night.jsonl", [(1, Caption("began"))])
    assert shell.run("top", "--replay", "night.jsonl", "--ascii", "--theme", "ops-mono")[0] == 0
    options = {
        "title": "ospltool",
        "theme": "ops-mono",
        "ascii_only": True,
        "trace_files": None,
        "operator": None,
        "notify": "",
        "others": (),
        "recordings": (),
        "kiosk": False,
        "simulate": None,
        "source": ShellSource("", ("--replay=night.jsonl",)),
    }
    watch_health = shown[0][2]["watch_health"]
    assert watch_health(SystemModel()).expected == NOTHING
    assert shown == [("recording night.jsonl", "recorded", {**options, "watch_health": watch_health})]

    (shell.root / "other.txt").write_text("no recording")
    for name in ("other.txt", "missing.jsonl"):
        code, _, err = shell.run("top", "--replay", name)
        assert code == 2
        assert name in err
        assert "Traceback" not in err


@pytest.mark.dds
@pytest.mark.usefixtures("terminal")
def test_the_console_watches_the_domain_of_a_configuration_or_the_one_given(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    sources: list[ShellSource] = []

    def show(feed: Any, source: ShellSource, **_: Any) -> int:
        titles.append(feed.title)
        sources.append(source)
        feed.close()
        return 0

    monkeypatch.setattr("tui.app.run_console", show)
    monkeypatch.setenv("DOMAIN_ID", "212")
    path = shell.write()
    assert shell.run("top", path)[0] == 0
    assert shell.run("top", path, "--domain", "213")[0] == 0
    assert titles == ["domain 212", "domain 213"]
    assert sources == [ShellSource(str(path)), ShellSource(str(path), ("--domain=213",))]
    monkeypatch.setenv("CYCLONEDDS_URI", "<CycloneDDS><General><Wrong/></General></CycloneDDS>")
    code, _, err = shell.run("top", "--domain", "214")
    assert code == 3
    assert "domain 214 cannot be opened" in err


@pytest.mark.parametrize("other", [("--replay", "x.jsonl"), ("--simulate", "none"), ("--json",)])
def test_a_recording_to_go_back_in_needs_a_live_domain(shell: Shell, other: tuple[str, ...]) -> None:
    code, _, err = shell.run("top", "--recording", "r.jsonl", *other)
    assert code == 2
    assert "needs a live domain" in err


FLEET = """domain = 7
[[node]]
name = "n1"
[[node]]
name = "n9"
"""


def test_a_recording_is_judged_by_its_own_expectation_or_by_the_given_fleet_file(shell: Shell) -> None:
    expected = Expectation(("n1", "n2"), (ExpectedSpace("A", copies=2),))
    recorder = Recorder(shell.root / "r.jsonl", source="domain 7", made_by="test", expected=expected)
    for second in range(40):
        now_ns = fake.START_NS + second * fake.SECOND_NS
        one = fake.snapshot(1, fake.name_space("A", 1), time_ns=now_ns)
        recorder.write(Update((ReceivedSnapshot(one, now_ns),)), now_ns)
    recorder.close()
    (shell.root / "fleet.toml").write_text(FLEET)

    def told(*words: str) -> set[tuple[str, str]]:
        code, out, err = shell.run("top", *words, "--replay", "r.jsonl", "--json")
        assert code == 0, err
        return {(one["code"], one["who"]) for one in json.loads(out)["data"]["health"]["incidents"]}

    assert ("DUL-NODE-ABSENT", "n2") in told()
    given = told("fleet.toml")
    assert ("DUL-NODE-ABSENT", "n9") in given
    assert not any(who == "n2" for _, who in given)
    (shell.root / "fleet.toml").write_text(FLEET.replace("domain = 7", "domain = 8"))
    code, _, err = shell.run("top", "fleet.toml", "--replay", "r.jsonl", "--json")
    assert code == 2
    assert "domain 7" in err
    assert told("fleet.toml", "--domain", "8") == given
