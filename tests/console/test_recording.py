from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.monitor import NodeEvent
from ospltool.live import fake
from ospltool.live.fake import SECOND_NS, START_NS
from ospltool.live.feed import Heard, Notice, NoticeKind
from ospltool.live.recording import Caption, FileFeed, RecordingFault, decode_line, encode_line

S = SECOND_NS
Item = Heard | NodeEvent | Notice | Caption

ITEMS: list[tuple[int, Item]] = [
    (START_NS, Heard(fake.snapshot(1, fake.name_space("A", 1), fellows=(fake.fellow(2),)), START_NS)),
    (START_NS + S, fake.event(1, 1, START_NS, "tab\t, ünïcode and \x1b escape")),
    (START_NS + 2 * S, Notice(NoticeKind.NODE_LOST, START_NS + 2 * S, "gone", fake.node_id(1))),
    (START_NS + 3 * S, Caption("Act 1")),
]


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def recording(tmp_path: Path) -> Path:
    return write(tmp_path / "r.jsonl", [encode_line(moment, item) for moment, item in ITEMS])


@pytest.mark.parametrize(("moment", "item"), ITEMS, ids=["node", "event", "notice", "caption"])
def test_a_line_comes_back_as_it_was(moment: int, item: Item) -> None:
    line = encode_line(moment, item)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    entry = decode_line(line, "x:1")
    assert (entry.heard_ns, entry.item) == (moment, item)


@given(st.text(), st.integers())
def test_any_event_text_survives(text: str, time_ns: int) -> None:
    event = fake.event(1, 1, time_ns, text.encode("utf-8", "replace").decode())
    assert decode_line(encode_line(0, event), "x:1").item == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'{"kind":"node"}',
        b'{"format_version":1,"kind":"node","heard_ns":"1","data":{}}',
        b'{"format_version":1,"kind":"node","heard_ns":1,"data":{}}',
        b'{"format_version":99,"kind":"event","heard_ns":1,"data":{}}',
        b'{"format_version":1,"kind":"notice","heard_ns":1,"data":{"kind":"nonsense"}}',
        b'{"format_version":1,"kind":"other","heard_ns":1,"data":{}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_none_is_refused_with_its_place(line: bytes) -> None:
    with pytest.raises(RecordingFault, match=r"^r\.jsonl:7: "):
        decode_line(line, "r.jsonl:7")


def test_a_recording_plays_at_its_own_speed(tmp_path: Path) -> None:
    time_ns = 0
    feed = FileFeed(recording(tmp_path), clock=lambda: time_ns)
    assert feed.now_ns() == START_NS
    assert len(feed.poll().snapshots) == 1
    assert not feed.poll()
    time_ns = S
    assert [event.number for event in feed.poll().events] == [1]
    time_ns = 5 * S
    update = feed.poll()
    assert [notice.kind for notice in update.notices] == [NoticeKind.NODE_LOST, NoticeKind.END]
    assert update.caption == "Act 1"
    assert feed.now_ns() == START_NS + 3 * S
    time_ns = 99 * S
    assert not feed.poll()
    assert feed.now_ns() == START_NS + 3 * S
    feed.close()


def test_a_faster_recording_is_over_sooner(tmp_path: Path) -> None:
    time_ns = 0
    feed = FileFeed(recording(tmp_path), speed=10, clock=lambda: time_ns)
    time_ns = S // 10
    assert feed.now_ns() == START_NS + S
    assert feed.poll().events
    feed.close()


def test_a_broken_line_is_left_out_counted_and_told(tmp_path: Path) -> None:
    lines = [encode_line(moment, item) for moment, item in ITEMS]
    path = write(tmp_path / "r.jsonl", [lines[0], b"{broken\n", lines[1]])
    time_ns = 0
    feed = FileFeed(path, clock=lambda: time_ns)
    time_ns = 9 * S
    update = feed.poll()
    assert len(update.events) == 1
    assert update.dropped == 1
    assert update.notices[0].kind is NoticeKind.FAULT
    assert f"{path}:2: " in update.notices[0].text
    feed.close()


@pytest.mark.parametrize("content", [b"<?xml version='1.0'?>\n", b"\x00\x01\x02"])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(RecordingFault, match=r"r\.jsonl:1: not a line of a recording"):
        FileFeed(write(tmp_path / "r.jsonl", [content]))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingFault, match="No such file"):
        FileFeed(tmp_path / "none.jsonl")


def test_an_empty_recording_ends_at_once(tmp_path: Path) -> None:
    feed = FileFeed(write(tmp_path / "r.jsonl", []))
    assert [notice.kind for notice in feed.poll().notices] == [NoticeKind.END]
    feed.close()
