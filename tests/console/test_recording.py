"""What a recording file holds, and what is made of one that is damaged, killed or somebody else's."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind
from ospltool.live.recorder import Recorder
from ospltool.live.recording import (
    MAX_LINE_BYTES,
    Caption,
    Item,
    Key,
    Recording,
    RecordingFault,
    RecordingHeader,
    decoded,
    encoded,
    header_of,
)
from ospltool.live.supervision import LocalView, SupervisorReport
from tests import fake
from tests.fake import START_NS
from tests.forensics.recordings import write_lines

SNAPSHOT = fake.snapshot(1, fake.name_space("A", 1), fellows=(fake.fellow(2),))
REPLICA = fake.replica("a", fake.provided(1), fake.provided(2))

ITEMS: dict[str, Item] = {
    "header": RecordingHeader("domain 7", "ospltool 0.1.0", Expectation(("n1", "n2"))),
    "key": Key(is_resumed=True),
    "node": SNAPSHOT,
    "replica": REPLICA,
    "event": fake.event(1, 1, START_NS, "tab\t, ünïcode and \x1b escape"),
    "notice": FeedNotice(NoticeKind.NODE_LOST, START_NS, "gone", fake.node_id(1)),
    "local": LocalView({"n1": SupervisorReport("killed", stopped=(7,))}, ("10.0.0.1",)),
    "caption": Caption("Act 1"),
}


def read_all(path: Path) -> tuple[list[Item], list[str]]:
    """The items of a recording, and what cannot be read."""
    with contextlib.closing(Recording(path)) as recording:
        found = list(recording.lines())
    faults = [fault for read in found for fault in read.faults]
    return [read.line.item for read in found if read.line is not None], faults


def test_every_item_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "night.rec"
    write_lines(path, ((START_NS, item) for item in ITEMS.values()))
    assert read_all(path) == (list(ITEMS.values()), [])
    assert header_of(path) == ITEMS["header"]
    with contextlib.closing(Recording(path)) as recording:
        assert recording.begin_ns == recording.end_ns == START_NS


@given(st.text(), st.integers())
def test_any_event_text_survives(text: str, time_ns: int) -> None:
    event = fake.event(1, 1, time_ns, text.encode("utf-8", "replace").decode())
    assert decoded(encoded(event)[1]) == event


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not json",
        b"[]",
        b"7",
        b'{"kind":"node"}',
        b'{"format_version":1,"kind":"node","data":{}}',
        b'{"format_version":1,"kind":"node","data":[]}',
        b'{"format_version":1,"kind":"replica","data":{"name":"a"}}',
        b'{"format_version":99,"kind":"caption","data":{"text":"a"}}',
        b'{"format_version":1,"kind":"notice","data":{"kind":"nonsense"}}',
        b'{"format_version":1,"kind":"other","data":{}}',
        b'{"format_version":1,"kind":[],"data":{}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_document_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(RecordingFault, match=r"^not a line of a recording: "):
        decoded(zlib.compress(text))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_or_refused(data: bytes) -> None:
    for each in (data, zlib.compress(data)):
        with contextlib.suppress(RecordingFault):
            decoded(each)


RECORDS = """
import sys
from pathlib import Path
from ospltool.live.recorder import Recorder
from tests.console.test_replay import updates
recorder = Recorder(Path(sys.argv[1]), source="domain 7", made_by="test")
for now_ns, update in updates(10_000):
    recorder.write(update, now_ns)
    print(now_ns, flush=True)
"""


def test_a_recorder_that_is_killed_leaves_all_that_it_has_written(tmp_path: Path) -> None:
    path = tmp_path / "night.rec"
    with subprocess.Popen(
        [sys.executable, "-c", RECORDS, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as process:
        assert process.stdout is not None
        for _ in range(300):
            written_ns = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    (moved := tmp_path / "elsewhere").mkdir()
    for one in tmp_path.glob("night.rec*"):  # a log belongs to it
        one.rename(moved / one.name)
    with contextlib.closing(Recording(moved / path.name)) as recording:
        assert recording.end_ns >= written_ns
    items, faults = read_all(moved / path.name)
    assert (len(items) > 600, faults) == (True, [])
    recorder = Recorder(moved / path.name, source="domain 7", made_by="test")  # and it can be continued
    recorder.close()
    assert [one.name for one in moved.iterdir()] == ["night.rec"]
    assert len(read_all(moved / path.name)[0]) == len(items)


def test_of_two_recorders_the_second_is_refused(tmp_path: Path) -> None:
    first = Recorder(tmp_path / "night.rec", source="a", made_by="test")
    with pytest.raises(RecordingFault, match=r"night\.rec: another recorder writes it"):
        Recorder(tmp_path / "night.rec", source="b", made_by="test")
    first.close()
    (tmp_path / "letter.txt").write_text("dear reader")
    for name in ("letter.txt", "store.sqlite"):
        with contextlib.closing(sqlite3.connect(tmp_path / "store.sqlite")) as other:
            other.execute("CREATE TABLE IF NOT EXISTS t (x)")
        before = (tmp_path / name).read_bytes()
        with pytest.raises(RecordingFault, match=name):
            Recorder(tmp_path / name, source="b", made_by="test")
        assert (tmp_path / name).read_bytes() == before


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A recording of 400 events of 1,000 bytes that cannot be compressed, on more than a hundred pages."""
    path = tmp_path / "whole.rec"
    events = [fake.event(n, 1, START_NS + n, os.urandom(500).hex()) for n in range(400)]
    write_lines(path, [(START_NS, RecordingHeader("a", "b")), *((one.time_ns, one) for one in events)])
    return path


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_file_that_was_cut_is_read_as_far_as_it_goes(whole: Path, kept: float) -> None:
    size = whole.stat().st_size
    os.truncate(whole, int(size * kept) // 4096 * 4096)
    items, faults = read_all(whole)
    assert len(items) >= 400 * (kept - 0.2)
    assert len(faults) == 1
    assert "malformed" in faults[0]


def test_a_damaged_page_costs_what_was_on_it_and_what_comes_before_the_next_key(tmp_path: Path) -> None:
    path = tmp_path / "night.rec"
    events = [fake.event(n, 1, START_NS + n, os.urandom(500).hex()) for n in range(400)]
    lines: list[tuple[int, Item]] = []
    for one in events:
        lines += [(one.time_ns, Key())] * (one.number % 50 == 0) + [(one.time_ns, one)]
    write_lines(path, lines)
    content = bytearray(path.read_bytes())
    leaves = [at for at in range(4096, len(content), 4096) if content[at] == 13]  # pages of a table
    content[leaves[len(leaves) // 2] : leaves[len(leaves) // 2] + 4096] = bytes(4096)
    path.write_bytes(content)
    items, faults = read_all(path)
    assert 1 <= len(faults) <= 3
    assert 300 < len(items) < 408
    assert events[-1] in items


HOSTILE: dict[str, str] = {
    "view": "DROP TABLE line; CREATE VIEW line AS SELECT 1 AS id, 1 AS heard_ns, 'key' AS kind, x'' AS data",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON mark BEGIN DELETE FROM line; END",
    "further table": "CREATE TABLE more (x)",
    "index on an expression": "CREATE INDEX i ON line (load_extension('x'))",
    "generated column": "DROP TABLE mark; CREATE TABLE mark (time_ns, text AS (randomblob(1000000000)))",
    "virtual table": "CREATE VIRTUAL TABLE v USING fts5(x)",
    "other version": "PRAGMA user_version = 2",
    "other application": "PRAGMA application_id = 7",
    "no tables": "DROP TABLE mark",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_file_with_another_schema_is_refused(whole: Path, how: str) -> None:
    with contextlib.closing(sqlite3.connect(whole)) as file, contextlib.suppress(sqlite3.OperationalError):
        file.executescript("PRAGMA writable_schema = ON")
        file.executescript(HOSTILE[how])
        with pytest.raises(RecordingFault, match=r"whole\.rec: "):
            Recording(whole)


def test_a_hostile_line_costs_bounded_memory_and_is_told(whole: Path) -> None:
    bomb = zlib.compress(bytes(20 * MAX_LINE_BYTES), 9)
    with contextlib.closing(sqlite3.connect(whole, isolation_level=None)) as file:
        insert = "INSERT INTO line (heard_ns, kind, data) VALUES (?, ?, ?)"
        file.execute(insert, (1, "node", bomb))
        file.execute(insert, (2, "n" * 10_000_000, b"x"))
        file.execute(
            "INSERT INTO line (heard_ns, kind, data) VALUES (3, 'a', zeroblob(?))", (2 * MAX_LINE_BYTES,)
        )
        file.execute("INSERT INTO mark VALUES (?, ?)", (5, "long " * 1_000_000))
        file.execute(insert, (4, *encoded(Caption("the end"))))
    before = whole.read_bytes()
    tracemalloc.start()
    items, faults = read_all(whole)
    with contextlib.closing(Recording(whole)) as recording:
        ((_, note),) = recording.marks()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (items[-1], len(faults), len(note)) == (Caption("the end"), 3, 1000)
    assert "a line that is too long is skipped" in faults[2]
    assert peak < 5 * MAX_LINE_BYTES
    assert whole.read_bytes() == before
    assert [one.name for one in whole.parent.iterdir()] == ["whole.rec"]


def test_marks_are_in_the_file_while_it_is_recorded_and_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "night.rec"
    recorder = Recorder(path, source="a", made_by="test")

    def mark(moment_ns: int, text: str) -> tuple[tuple[int, str], ...]:
        with contextlib.closing(Recording(path, follow=True)) as recording:
            recording.mark(moment_ns, text)
            return recording.marks()

    assert mark(7, "here \x1b[31m") == ((7, "here \x1b[31m"),)
    recorder.close()
    assert mark(5, "") == ((5, ""), (7, "here \x1b[31m"))


def test_the_schema_is_what_a_reader_of_the_documents_expects(whole: Path) -> None:
    """`sqlite3 night.rec` counts what there is of each kind."""
    with contextlib.closing(sqlite3.connect(whole)) as file:
        counts: Any = dict(file.execute("SELECT kind, count(*) FROM line GROUP BY kind"))
    assert counts == {"recording": 1, "event": 400}
