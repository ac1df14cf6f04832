"""A journal that others remove, replace or shorten while it is open: nothing is lost untold."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.client.applications import ClientProgram, done
from tests.client.places import ClientLab
from tests.client.test_durable_writer import written

pytestmark = pytest.mark.dds


def taken_away(path: Path, kind: str) -> None:
    """Do to a file what others do: `rm`, `logrotate`, or `logrotate` with copytruncate."""
    if kind == "removed":
        path.unlink()
    elif kind == "renamed":
        path.rename(path.with_name("rotated"))
    else:
        os.truncate(path, 0)


def put_there(path: Path) -> None:
    """Replace a file with another one, at once."""
    diary = path.with_name("diary")
    diary.write_text("dear diary", encoding="utf-8")
    diary.replace(path)


def alone(lab: ClientLab, journal: Path) -> ClientProgram:
    """An application with a journal, where no node is."""
    return lab.client_program("keeper", journal=str(journal))


def recovered(lab: ClientLab, journal: Path) -> int:
    """How many samples the next run finds in a journal."""
    again = alone(lab, journal)
    count: int = done(again, counters=1)["counters"]["recovered"]
    assert again.end() == 0
    return count


@pytest.mark.parametrize("then", ["write", "flush", "end"])
@pytest.mark.parametrize("kind", ["removed", "renamed", "truncated"])
def test_a_journal_that_is_taken_away_is_written_again(
    lab: ClientLab, tmp_path: Path, kind: str, then: str
) -> None:
    journal = tmp_path / "journal"
    program = alone(lab, journal)
    wrote = written(program, write=[0, 10])
    taken_away(journal, kind)
    if then == "write":
        wrote += written(program, write=[10, 10])
    elif then == "flush":
        assert done(program, flush=0.1)["error"] == "NotStored"
    else:
        assert done(program, close=1) == {"pending": 10}
    program.kill()
    assert recovered(lab, journal) == len(wrote)


def test_a_file_in_the_place_of_a_journal_is_left_alone_and_told(lab: ClientLab, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    program = alone(lab, journal)
    wrote = written(program, write=[0, 10])
    put_there(journal)
    for command in ({"write": [10, 1]}, {"flush": 5}):
        said = done(program, **command)
        assert said["error"] == "JournalError"
        assert (
            f"journal {journal}: another file is in its place, and pending samples are in memory only"
            in said["text"]
        )
    assert done(program, counters=1)["counters"]["pending"] == len(wrote)
    assert journal.read_text(encoding="utf-8") == "dear diary"
    journal.unlink()
    wrote += written(program, write=[11, 1])
    os.link(journal, tmp_path / "again")
    put_there(journal)
    assert done(program, close=1)["error"] == "JournalError"
    assert journal.read_text(encoding="utf-8") == "dear diary"
    program.kill()
    (tmp_path / "again").replace(journal)
    assert recovered(lab, journal) == len(wrote)


def test_a_removed_journal_that_another_writer_makes_again_is_that_one_s(
    lab: ClientLab, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    first = alone(lab, journal)
    written(first, write=[0, 10])
    os.kill(first._process.pid, signal.SIGSTOP)  # else it would make the journal again
    try:
        journal.unlink()
        second = alone(lab, journal)
        wrote = written(second, write=[20, 10])
    finally:
        os.kill(first._process.pid, signal.SIGCONT)
    said = done(first, write=[30, 1])
    assert said["error"] == "JournalError"
    assert "another file is in its place" in said["text"]
    wrote += written(second, write=[40, 10])
    first.kill()
    second.kill()
    assert recovered(lab, journal) == len(wrote)
