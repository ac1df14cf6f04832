"""What is written is for its owner only, and goes neither through a link nor over a file unasked."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Iterator

import pytest

from engine.tracing.sinks import open_sink
from ospltool.cli.app import main
from ospltool.live.recorder import Recorder
from ospltool.live.recording import RecordingFault
from tests.stores.making import Held, Message, Version, write_kv
from tests.stores.own_stores import described, write_ours

MESSAGES = tuple(Message(number) for number in range(3))


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(root: pathlib.Path) -> list[str]:
    """The files that another user of this machine could reach."""
    found = []
    for path in sorted(root.rglob("*")):
        above = [one for one in path.parents if one.is_relative_to(root) and one != root]
        hidden = any(not stat.S_IMODE(one.stat().st_mode) & 0o077 for one in above)
        if path.is_file() and not hidden and stat.S_IMODE(path.stat().st_mode) & 0o077:
            found.append(str(path.relative_to(root)))
    return found


def test_a_store_and_a_trace_are_for_their_owner(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    write_ours(made / "ours", {described("p"): []})
    assert stat.S_IMODE((made / "ours").stat().st_mode) == 0o700
    for path in (made / "ours").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    open_sink("durability.log", made).close()
    assert open_to_others(made) == []


def test_what_commands_write_is_for_its_owner(tmp_path: pathlib.Path) -> None:
    store = str(write_kv(tmp_path / "kv", Version((Held(MESSAGES),))))
    trace = tmp_path / "durability.log"
    trace.write_text(
        "2026-11-21T01:03:20+0000 1795223000.000000000 INIT (ospl_durability) -> Configuration:\n"
    )
    made = tmp_path / "made"
    made.mkdir()
    assert main(["store", "export", store, "-o", str(made / "snapshot")]) == 0
    for path in (made / "snapshot").iterdir():  # it may be moved out of its directory
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert main(["store", "export", store, "--format", "jsonl", "-o", str(made / "lines.jsonl")]) == 0
    for form in ("html", "parquet"):
        assert main(["store", "diff", store, store, "--format", form, "-o", str(made / form)]) == 0
    assert main(["trace", "load", str(trace), "-o", str(made / "case")]) == 0
    assert main(["trace", "load", str(trace), "-o", str(made / "case.duckdb")]) == 0
    assert open_to_others(made) == []


def test_recordings_go_through_no_link(tmp_path: pathlib.Path) -> None:
    recording, elsewhere = tmp_path / "night", tmp_path / "elsewhere"
    recording.symlink_to(elsewhere)
    with pytest.raises(RecordingFault, match="symbolic link"):
        Recorder(recording, source="s", made_by="test")
    assert not elsewhere.exists()
    recording.unlink()
    recorder = Recorder(recording, source="s", made_by="test")
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    recorder.close()
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


@pytest.mark.parametrize("form", ["html", "parquet"])
def test_a_report_is_written_neither_through_a_link_nor_over_a_file(
    tmp_path: pathlib.Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(write_kv(tmp_path / "kv", Version((Held(MESSAGES),))))
    victim, link, file = tmp_path / "victim", tmp_path / "link", tmp_path / "report"
    for path in (victim, file):
        path.write_text("precious")
    link.symlink_to(victim)
    arguments = ["store", "diff", store, store, "--format", form, "-o"]
    for path in (link, file):
        assert main([*arguments, str(path)]) == 2
    for kind in ("--format=jsonl", "--format=mcap"):
        export = ["store", "export", store, kind, "-o"]
        assert [main([*export, str(path)]) for path in (link, file)] == [2, 2]
        assert main([*export, str(link), "--force"]) == 2
        assert main([*export, str(tmp_path / "other")]) == 0
        assert main([*export, str(tmp_path / "other"), "--force"]) == 0
        (tmp_path / "other").unlink()
    assert main([*arguments, str(link), "--force"]) == 2
    assert "symbolic link" in capsys.readouterr().err
    assert (victim.read_text(), file.read_text()) == ("precious", "precious")
    assert main([*arguments, str(file), "--force"]) == 0
    assert b"precious" not in file.read_bytes()
