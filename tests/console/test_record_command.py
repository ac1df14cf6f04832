from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.dds.uri import cyclone_uri
from ospltool.cli.app import main
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.recorder import Recorder
from ospltool.live.recording import is_recording
from tests import fake
from tests.fake import SECOND_NS, START_NS

S = SECOND_NS
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def empty_domain(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command in a domain of our own, on loopback, in which there is nobody."""
    monkeypatch.setenv("CYCLONEDDS_URI", cyclone_uri(tag=f"record-{os.getpid()}", environment={}))
    return lambda *arguments: main([*arguments, "--domain", "172"])


@pytest.mark.dds
def test_a_recording_with_all_defaults_is_written_and_can_be_read(
    empty_domain: Callable[..., int], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "night.rec"
    assert empty_domain("record", "--output", str(path), "--for", "300ms", "--json") == 0
    tally = json.loads(capsys.readouterr().out)
    assert (tally["kind"], tally["data"]["lost"]) == ("record", 0)
    assert is_recording(path)
    assert [one.name for one in tmp_path.iterdir()] == ["night.rec"], "no log is left beside it"
    assert main(["top", "--replay", str(path), "--json"]) == 3
    assert "no node and no persistence service heard" in capsys.readouterr().err


@pytest.mark.dds
def test_once_says_that_nobody_was_heard(empty_domain: Callable[..., int], capsys: Capture) -> None:
    assert empty_domain("record", "--once", "--for", "100ms") == 3
    assert json.loads(capsys.readouterr().out)["data"]["nodes"] == []


def test_top_says_a_recording_at_a_moment_as_json(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "night.rec"
    recorder = Recorder(path, source="domain 7", made_by="test")
    for second in range(100):
        now_ns = START_NS + second * S
        shown = fake.snapshot(1, fake.name_space("A", 1, count=second), time_ns=now_ns)
        recorder.write(Update((ReceivedSnapshot(shown, now_ns),)), now_ns)
    recorder.close()

    def count_at(*arguments: str) -> int:
        assert main(["top", "--replay", str(path), "--json", "--screen", "overview", *arguments]) == 0
        count: int = json.loads(capsys.readouterr().out)["data"]["nodes"][0]["name_spaces"][0]["count"]
        return count

    assert count_at() == 99
    assert count_at("--at=+40") == 40


@pytest.mark.parametrize("arguments", [(), ("--once", "--output", "x")])
def test_record_wants_a_file_or_once(arguments: tuple[str, ...], capsys: Capture) -> None:
    assert main(["record", *arguments]) == 2
    assert "give --output FILE or --once" in capsys.readouterr().err
