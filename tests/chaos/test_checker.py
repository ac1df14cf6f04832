from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest

from chaos import checker
from chaos.checker import Confirmed, Held, Write
from chaos.rounds import late_set
from chaos.scene import Disturbance
from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.store.sqlite import SqliteStore
from tests.unit.store.making import description

WRITER = "0b" * 16


def write(time_ns: int, station: int = 1, topic: str = "Last", *, disposes: bool = False) -> Write:
    return Write(topic, station, time_ns, WRITER, disposes, time_ns, 40)


def hold(one: Write) -> Held:
    text, value = ("", 0) if one.disposes else (checker.expected_text(one), one.value)
    return Held(one.topic, one.station, one.time_ns, one.writer, one.disposes, value, text)


def record(path: Path, *writes: Write, confirmed: tuple[int, int] | None = None, nodes: str = "n0") -> Path:
    lines = [
        f"a {w.topic} {w.writer} {'d' if w.disposes else 'w'} {w.time_ns} {w.station} {w.value} {w.size}\n"
        for w in writes
    ]
    if confirmed:
        lines.append(f"c {writes[0].topic} {WRITER} {confirmed[0]} {confirmed[1]} 900 999 {nodes}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_what_is_lost(tmp_path: Path) -> None:
    old, new, other = write(1), write(2), write(1, 2)
    assert checker.lost(map(hold, [old, other]), [old, new, other]) == [new]
    assert checker.lost(map(hold, [new, other]), [old, new, other]) == [], "the newer one has replaced it"
    kept = [one._replace(topic="KeepsAll") for one in (old, new)]
    assert checker.lost([hold(kept[1])], kept) == [kept[0]], "with KEEP_ALL nothing is replaced"


def test_a_dispose_does_not_stand_for_the_write_that_it_disposes() -> None:
    old, gone = write(1), write(2, disposes=True)
    assert checker.lost([hold(gone)], [old, gone]) == [old]
    assert checker.lost([hold(old)], [old, gone]) == [gone]
    assert checker.lost(map(hold, [old, write(3)]), [gone]) == [], "a newer write has replaced it"


def test_what_is_back_from_the_dead() -> None:
    old, gone, again = write(1), write(2, disposes=True), write(3)
    assert checker.resurrected([hold(old)], [old, gone]) == [gone]
    assert checker.resurrected(map(hold, [old, gone]), [old, gone]) == []
    assert checker.resurrected(map(hold, [again]), [old, gone]) == [], "it was written again"
    assert checker.resurrected([hold(old)], [old, gone, again]) == [], "that is lost, but not resurrected"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"writer": "0c" * 16}, "invented"),
        ({"time_ns": 7}, "invented"),
        ({"value": 2}, "altered"),
        ({"text": "Last 1 1 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxy"}, "altered"),
        ({"station": 2}, "altered"),
        ({"disposes": True}, "altered"),
    ],
)
def test_what_is_not_what_was_written(tmp_path: Path, change: dict[str, object], word: str) -> None:
    records = checker.read_records([record(tmp_path / "record", write(1))])
    assert checker.untrue([hold(write(1))], records) == []
    (found,) = checker.untrue([hold(write(1))._replace(**change)], records)  # type: ignore[arg-type]  # a table
    assert found.startswith(word)


def test_what_is_there_twice(tmp_path: Path) -> None:
    records = checker.read_records([record(tmp_path / "record", write(1))])
    (found,) = checker.untrue([hold(write(1))] * 2, records)
    assert found.startswith("twice")


def test_a_record_confirms_only_what_it_names_and_may_end_in_the_middle(tmp_path: Path) -> None:
    path = record(tmp_path / "record", write(1), write(2), write(3), confirmed=(2, 3), nodes="n0,n2")
    with path.open("a", encoding="utf-8") as file:
        file.write(f"a Last {WRITER} w 4 1 4")
    records = checker.read_records([path])
    assert [(one.write.time_ns, one.nodes) for one in records.confirmed] == [
        (2, ("n0", "n2")),
        (3, ("n0", "n2")),
    ]
    assert len(records.attempted) == 3


def test_unequal_sets_are_told_with_an_example() -> None:
    both, one = hold(write(1)), hold(write(2))
    assert checker.unequal({"n0": [both], "n1": [both]}) == ""
    text = checker.unequal({"n0": [both, one], "n1": [both]})
    assert text.startswith("n1 lacks 1 of 2")
    assert "time_ns=2" in text


def test_what_a_late_joiner_must_have() -> None:
    held = [hold(one) for one in (write(1), write(2, disposes=True), write(1, 2), write(3, 9, disposes=True))]
    assert late_set(held) == ([(1, 1, 1), (2, 1, 1)], {1})


def payload(one: Write) -> bytes:
    text = checker.expected_text(one).encode() + b"\0"
    body = struct.pack("<i", one.station)
    if not one.disposes:
        body += struct.pack("<iI", one.value, len(text)) + text
    return b"\0\1\0\0" + body


def sample(one: Write) -> Sample:
    status = DISPOSE if one.disposes else DATA
    key = struct.pack(">i", one.station)
    return make_sample(one.time_ns, bytes.fromhex(one.writer), status, key, payload(one))


@pytest.mark.parametrize("living", [True, False])
def test_the_checker_reads_what_the_store_wrote(tmp_path: Path, *, living: bool) -> None:
    writes = [write(number, number % 7, disposes=number % 5 == 0) for number in range(1, 200)]
    of_topic = description(0)
    topic = of_topic.group.topic
    with contextlib.closing(SqliteStore(tmp_path, "n0", lambda: "0" * 32)) as store:
        begun = store.begin_set("space")
        begun.add(of_topic, [sample(one) for one in writes])
        assert checker.read_store(tmp_path) == [], "a set that is not complete does not count"
        store.commit_complete(begun)
        held = checker.read_store(tmp_path, living=living)
    assert sorted(held) == sorted(
        hold(one._replace(topic=topic))._replace(text=hold(one).text) for one in writes
    )


@pytest.mark.parametrize("cut", [3, 9, 20])
def test_a_payload_that_is_no_entry_is_told(cut: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        checker.decode(DATA, payload(write(1))[:cut])


SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("since_s", "wall_s", "is_doubtful"),
    [
        (1, 4, False),
        (90, 94, False),
        (94, 96, True),
        (99, 99.9, True),
        (99, 102, True),
        (100.5, 101, False),
    ],
    ids=["long before", "just long enough", "not long enough", "right before", "noted after it", "after it"],
)
def test_what_a_killed_node_may_not_have_stored(since_s: float, wall_s: float, is_doubtful: bool) -> None:
    killed = Disturbance("n0", 100 * SECOND_NS, 100 * SECOND_NS)
    confirmed = Confirmed(write(1), ("n0",), int(since_s * SECOND_NS), int(wall_s * SECOND_NS))
    assert killed.may_have_prevented("n0", confirmed) is is_doubtful
    assert not killed.may_have_prevented("n1", confirmed)
