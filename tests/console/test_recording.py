from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core import plain
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime.monitor import NodeSnapshot
from ospltool.live.feed import FeedNotice, HeardReplica, NoticeKind
from ospltool.live.patches import PatchFault, difference, patched
from ospltool.live.record_file import (
    KEY_MARK,
    Caption,
    Delta,
    Item,
    Key,
    RecordedState,
    RecordingFault,
    RecordingHeader,
    SenderKind,
    Snapshots,
    decode_line,
    encode_line,
)
from tests import fake
from tests.fake import START_NS

SNAPSHOT = fake.snapshot(1, fake.name_space("A", 1), fellows=(fake.fellow(2),))
REPLICA = fake.replica("a", fake.provided(1), fake.provided(2))

ITEMS: dict[str, Item] = {
    "header": RecordingHeader("domain 7", "ospltool 0.1.0"),
    "key": Key(3),
    "node": RecordedState(plain.to_plain(SNAPSHOT)),
    "delta": Delta(fake.node_id(1), {"state": ["COMPLETE"]}),
    "replica": RecordedState(plain.to_plain(REPLICA), SenderKind.REPLICA),
    "replica delta": Delta(REPLICA.id, {"values": [3]}, SenderKind.REPLICA),
    "event": fake.event(1, 1, START_NS, "tab\t, ünïcode and \x1b escape"),
    "notice": FeedNotice(NoticeKind.NODE_LOST, START_NS, "gone", fake.node_id(1)),
    "replica notice": FeedNotice(NoticeKind.REPLICA_LOST, START_NS, "gone", REPLICA.id),
    "caption": Caption("Act 1"),
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def exact(value: Any) -> str:
    """Tells True from 1, but not the order in which an object has its members."""
    return json.dumps(value, sort_keys=True)


@example([False, False], [False, 0])
@example({"a": 1}, {"a": 1.0})
@given(json_values, json_values)
def test_a_patch_makes_the_new_value_of_the_old(old: Any, new: Any) -> None:
    assert exact(patched(old, difference(old, new))) == exact(new)


@given(json_values)
def test_there_is_no_patch_between_equal_values(value: Any) -> None:
    assert difference(value, value) is None


@given(json_values, json_values)
def test_a_patch_that_does_not_fit_is_refused_or_makes_something(old: Any, patch: Any) -> None:
    try:
        patched(old, patch)
    except PatchFault:
        return


def test_a_patch_has_only_what_changed() -> None:
    old = {"a": [1, {"b": 2, "c": 3}], "same": "x" * 1000, "gone": 1}
    new = {"a": [1, {"b": 2, "c": 4}], "same": "x" * 1000, "new": 2}
    assert difference(old, new) == {"a": {"1": {"c": [4]}}, "gone": [], "new": [2]}


@pytest.mark.parametrize("kind", ITEMS)
def test_a_line_comes_back_as_it_was(kind: str) -> None:
    line = encode_line(START_NS, ITEMS[kind])
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    entry = decode_line(line, "x:1")
    assert (entry.heard_ns, entry.item) == (START_NS, ITEMS[kind])


def test_a_line_with_a_key_is_found_by_its_beginning() -> None:
    assert encode_line(START_NS, Key(3)).startswith(KEY_MARK)
    assert not encode_line(START_NS, ITEMS["node"]).startswith(KEY_MARK)


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
        b"7",
        b'{"kind":"node"}',
        b'{"format_version":1,"kind":"node","heard_ns":"1","data":{"id":"x"}}',
        b'{"format_version":1,"kind":"node","heard_ns":true,"data":{"id":"x"}}',
        b'{"format_version":1,"kind":"node","heard_ns":1,"data":{}}',
        b'{"format_version":1,"kind":"node","heard_ns":1,"data":[]}',
        b'{"format_version":1,"kind":"replica","heard_ns":1,"data":{"name":"a"}}',
        b'{"format_version":1,"kind":"node-delta","heard_ns":1,"data":{"id":7,"patch":{}}}',
        b'{"format_version":1,"kind":"node-delta","heard_ns":1,"data":{"id":"x"}}',
        b'{"format_version":99,"kind":"event","heard_ns":1,"data":{}}',
        b'{"format_version":1,"kind":"notice","heard_ns":1,"data":{"kind":"nonsense"}}',
        b'{"format_version":1,"kind":"other","heard_ns":1,"data":{}}',
        b'{"format_version":1,"kind":[],"heard_ns":1,"data":{}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_none_is_refused_with_its_place(line: bytes) -> None:
    with pytest.raises(RecordingFault, match=r"^r\.jsonl:7: "):
        decode_line(line, "r.jsonl:7")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_or_refused(line: bytes) -> None:
    try:
        decode_line(line, "x")
    except RecordingFault:
        return


def roundtrip(*shown: NodeSnapshot | ReplicaView) -> list[NodeSnapshot | ReplicaView]:
    writer, reader = Snapshots(), Snapshots()
    found: list[NodeSnapshot | ReplicaView] = []
    for each in shown:
        entry = decode_line(encode_line(START_NS, writer.encode(each)), "x")
        assert isinstance(entry.item, RecordedState | Delta)
        heard = reader.decode(reader.take(entry.item), entry.heard_ns)
        assert heard.heard_ns == START_NS
        found.append(heard.view if isinstance(heard, HeardReplica) else heard.snapshot)
    return found


def test_snapshots_travel_as_deltas_and_come_back_whole() -> None:
    steps = (
        SNAPSHOT,
        SNAPSHOT,
        fake.snapshot(1, fake.name_space("A", 1, count=2), fake.name_space("B", 1), time_ns=START_NS + 1),
        fake.snapshot(2),
        fake.snapshot(1, state="TERMINATING", counters={"captured": 3}),
        REPLICA,
        dataclasses.replace(REPLICA, values=1001, subscriptions=(fake.subscription("logger"),)),
        fake.replica("b", fake.provided(1, path=("a", "b"))),
        dataclasses.replace(REPLICA, writers=(), ending=True),
    )
    assert roundtrip(*steps) == list(steps)


def test_a_delta_is_much_smaller_than_the_snapshot() -> None:
    writer = Snapshots()
    spaces = [fake.name_space(f"s{n}", 1) for n in range(50)]
    whole = encode_line(0, writer.encode(fake.snapshot(1, *spaces)))
    delta = encode_line(0, writer.encode(fake.snapshot(1, *spaces, time_ns=START_NS + 1)))
    assert len(delta) * 50 < len(whole)


@pytest.mark.parametrize(
    "item",
    [
        Delta(fake.node_id(9), {}),
        Delta(fake.node_id(1), ["x"]),
        Delta(fake.node_id(1), {"id": ["other"]}),
        Delta(fake.node_id(1), {"fellows": {"7": ["x"]}}),
        Delta(fake.node_id(1), {}, SenderKind.REPLICA),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(item: Delta) -> None:
    reader = Snapshots()
    reader.take(RecordedState(plain.to_plain(SNAPSHOT)))
    with pytest.raises(PatchFault):
        reader.take(item)
