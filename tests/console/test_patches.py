"""What a reader of a recording makes of deltas is what it would make of whole states, and takes less work."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core import plain
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime.monitor import (
    AlignmentView,
    DeliveryView,
    DeviationView,
    FellowView,
    GroupView,
    NameSpaceView,
    NodeSnapshot,
    StoreStatus,
    UnkeptView,
)
from ospltool.live.feed import HeardReplica
from ospltool.live.late_fellows import FellowCopier, LateFellows
from ospltool.live.nodes import Fellows
from ospltool.live.patches import PatchFault, difference, patched
from ospltool.live.record_file import (
    Delta,
    RecordedState,
    RecordingFault,
    SenderKind,
    Snapshots,
    decode_line,
    encode_line,
)
from tests import fake
from tests.fake import SECOND_NS, START_NS
from tests.fuzzing import damaged_json
from tests.property.values import JSON, values

SPACES = tuple(fake.name_space(f"s{n}", 1) for n in range(3))
GROUP = GroupView("A", "p", "T", "depot::Item", "PERSISTENT", 0, 0, 0, "ab", 99, 0, 0)
OLD = fake.snapshot(
    1,
    *SPACES,
    fellows=tuple(fake.fellow(n) for n in range(2, 12)),
    groups=(GROUP, dataclasses.replace(GROUP, topic="U", rejected=(("max_samples", 3),))),
    counters={"stored": 3, "queued": 1},
)
KNOWN = {
    field.name for kind in (NodeSnapshot, NameSpaceView, GroupView, FellowView, StoreStatus,
    DeliveryView, DeviationView, UnkeptView, AlignmentView) for field in dataclasses.fields(kind)
}  # fmt: skip
ARRAYS = {"fellows", "name_spaces", "groups", "deliveries", "deviations", "unkept", "alignments"}
LATER = START_NS + SECOND_NS
ONE_HEARTBEAT = {"fellows": {"3": {"last_heartbeat_ns": [LATER]}}}
HEARTBEATS = {"fellows": {str(n): {"last_heartbeat_ns": [LATER + n]} for n in range(10)}}

PATCHES: list[Any] = [
    {},
    {"state": ["TERMINATING"], "time_ns": [LATER]},
    ONE_HEARTBEAT,
    HEARTBEATS,
    {"fellows": {"0": {"last_heartbeat_ns": [True]}, "1": {"last_heartbeat_ns": [1]}}},
    {"fellows": {"0": {"last_heartbeat_ns": [1 << 200]}, "1": {"last_heartbeat_ns": [1]}}},
    {"fellows": {"0": {"last_heartbeat_ns": []}, "1": {"last_heartbeat_ns": [1]}}},
    {"fellows": {"0": {"newer": [1]}, "1": {"newer": [1]}}},
    {"fellows": {"0": {"skew_ns": []}, "1": {"skew_ns": []}}},
    {"fellows": {"0": {"name": ["x"]}, "1": {"name": ["y"]}}},
    {"fellows": {"0": {"skew_ns": [5]}, "99": {"skew_ns": [5]}}},
    {"fellows": {"0": {"skew_ns": [5]}, "-1": {"skew_ns": [5]}}},
    {"fellows": {"0": [plain.to_plain(fake.fellow(77))]}},
    {"fellows": [[]]},
    {"fellows": []},
    {"name_spaces": {"1": {"count": [7], "alignments": [[{"direction": "from"}]]}}},
    {"groups": {"1": {"rejected": {"0": {"1": [4]}}}}},
    {"counters": {"stored": [4], "queued": [], "new": [1]}},
    {"counters": {"stored": ["4"]}},
    {"counters": {"lacks": {"x": [1]}}},
    {"store": {"problem": ["full"], "newer": [1]}},
    {"store": {"kind": []}},
    {"pid": {}},
    {"pid": [1, 2]},
    {"newer": ["field"]},
    {"state": None},
    {"id": ["other"]},
    {"id": [OLD.id], "pid": [9]},
    ["x"],
    None,
]


def by_whole_states(old: Any, patch: Any) -> Any:
    """What reading the whole state gives, or the kind of the fault."""
    try:
        new = patched(plain.to_plain(old), patch)
        if not isinstance(new, dict) or new.get("id") != old.id:
            return PatchFault
        return plain.from_plain(type(old), new)
    except (PatchFault, plain.PlainFault) as fault:
        return type(fault)


def by_deltas(old: NodeSnapshot | ReplicaView, patch: Any, reader: Snapshots) -> Any:
    of = SenderKind.NODE if isinstance(old, NodeSnapshot) else SenderKind.REPLICA
    try:
        heard = reader.decode(reader.take(Delta(old.id, patch, of)), START_NS)
    except (PatchFault, plain.PlainFault) as fault:
        return type(fault)
    return heard.view if isinstance(heard, HeardReplica) else heard.snapshot


def reader_of(old: NodeSnapshot | ReplicaView) -> Snapshots:
    reader = Snapshots()
    of = SenderKind.NODE if isinstance(old, NodeSnapshot) else SenderKind.REPLICA
    reader.decode(reader.take(RecordedState(plain.to_plain(old), of)), START_NS)
    return reader


@pytest.mark.parametrize("patch", PATCHES, ids=repr)
def test_a_delta_makes_what_the_whole_state_makes(patch: Any) -> None:
    expected = by_whole_states(OLD, patch)
    reader = reader_of(OLD)
    assert by_deltas(OLD, patch, reader) == expected
    before = expected if isinstance(expected, NodeSnapshot) else OLD
    if expected is not plain.PlainFault:
        assert by_deltas(before, ONE_HEARTBEAT, reader) == by_whole_states(before, ONE_HEARTBEAT)


def test_a_state_that_does_not_fit_is_mended_by_the_next_delta() -> None:
    reader = reader_of(OLD)
    assert by_deltas(OLD, {"pid": ["x"]}, reader) is plain.PlainFault
    assert by_deltas(OLD, {"state": ["TERMINATING"]}, reader) is plain.PlainFault
    assert by_deltas(OLD, {"pid": [5]}, reader) == dataclasses.replace(OLD, pid=5, state="TERMINATING")


@given(values(NodeSnapshot) | values(ReplicaView), st.data())
def test_any_two_states_are_told_apart_by_a_delta(old: Any, data: st.DataObject) -> None:
    new = dataclasses.replace(data.draw(values(type(old))), id=old.id)
    bounded = by_whole_states(old, {})
    if not isinstance(bounded, type):  # without numbers that nobody writes
        patch = difference(plain.to_plain(old), plain.to_plain(new)) or {}
        assert by_deltas(old, patch, reader_of(old)) == by_whole_states(old, patch)


@example({"store": {"": False}})
@example({"store": {"": [1, 2]}})
@given(st.dictionaries(st.sampled_from([field.name for field in dataclasses.fields(OLD)]), JSON))
def test_any_patch_makes_what_the_whole_state_makes_or_is_refused(patch: Any) -> None:
    known = without_newer(patch)
    found, expected = by_deltas(OLD, patch, reader_of(OLD)), by_whole_states(OLD, known)
    assert found == expected or (known != patch and found is PatchFault)


def without_newer(patch: Any) -> Any:
    """The patch without changes within fields that only a newer release has: what they hold is not kept."""
    if not isinstance(patch, dict):
        return patch
    kept = {name: part for name, part in patch.items() if not isinstance(part, dict) or name in KNOWN}
    for name, part in kept.items():
        if name == "store":
            kept[name] = without_newer(part)
        elif name in ARRAYS and isinstance(part, dict):
            kept[name] = {index: without_newer(member) for index, member in part.items()}
    return kept


def test_a_change_within_a_field_of_a_newer_release_is_passed_over() -> None:
    assert by_deltas(OLD, {"newer": {"x": {"y": [1]}}, "pid": [9]}, reader_of(OLD)) == dataclasses.replace(
        OLD, pid=9
    )


def test_what_a_delta_does_not_name_is_not_made_again() -> None:
    """A replay of a large system took ten times as long when it was."""
    reader = reader_of(OLD)
    first = by_deltas(OLD, {}, reader)
    second = by_deltas(OLD, HEARTBEATS, reader)
    assert [one.last_heartbeat_ns for one in second.fellows] == [LATER + n for n in range(10)]
    assert second.fellows == tuple(
        dataclasses.replace(one, last_heartbeat_ns=LATER + n) for n, one in enumerate(first.fellows)
    )
    assert [one.last_heartbeat_ns for one in first.fellows] == [one.last_heartbeat_ns for one in OLD.fellows]
    with pytest.raises(dataclasses.FrozenInstanceError):
        second.fellows[0].name = "another"
    assert second.name_spaces is first.name_spaces
    assert second.groups is first.groups
    third = by_deltas(second, {"name_spaces": {"1": {"count": [3]}}}, reader)
    assert third.fellows is second.fellows
    assert third.name_spaces[0] is first.name_spaces[0]
    assert third.name_spaces[1].count == 3


def test_heartbeats_make_no_fellow_before_somebody_looks_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of 200 nodes spent most of its time on fellows at which nobody looked."""
    reader, base, node = reader_of(OLD), Fellows(), OLD
    made: list[int] = []

    class Counted(LateFellows):
        def __init__(self, old: Any, heartbeats_ns: list[int], copied: FellowCopier) -> None:
            def counted(view: FellowView, heartbeat_ns: int) -> FellowView:
                made.append(heartbeat_ns)
                return copied(view, heartbeat_ns)

            super().__init__(old, heartbeats_ns, counted)

    monkeypatch.setattr("ospltool.live.patches.LateFellows", Counted)
    some = {"fellows": {"1": {"last_heartbeat_ns": [5]}, "7": {"last_heartbeat_ns": [6]}}}
    for patch in ({}, HEARTBEATS, some, HEARTBEATS, some):
        former, node = base, by_deltas(node, patch, reader)
        base = Fellows(node.fellows, former)
    assert made == []
    assert base.places is former.places
    assert base.communications is former.communications
    told = [base.heartbeat_ns(fake.node_id(n)) for n in (2, 3, 9, 77)]
    assert told == [LATER, 5, 6, 0]
    assert made == []
    assert len(node.fellows) == 10
    whole = tuple(node.fellows)
    assert [one.last_heartbeat_ns for one in whole] == [base.heartbeat_ns(one.id) for one in whole]
    assert node.fellows == whole
    assert whole == node.fellows
    assert node == dataclasses.replace(node, fellows=whole)
    assert hash(node.fellows) == hash(whole)
    assert node.fellows[3:] == whole[3:]
    assert node.fellows != OLD.fellows
    assert repr(node.fellows) == repr(whole)
    assert plain.to_plain(node) == plain.to_plain(dataclasses.replace(node, fellows=whole))
    later = by_deltas(node, {"fellows": {"2": {"state": ["TERMINATING"]}}}, reader)
    assert later.fellows[2] == dataclasses.replace(whole[2], state="TERMINATING")
    assert later.fellows[3] == whole[3]
    assert Fellows(later.fellows, base).heartbeat_ns(fake.node_id(3)) == 5


@example(b'{"format_version":1,"kind":"caption","heard_ns":1,"data":{"text":"\\ud800"}}', 0)
@example(b'{"format_version":1,"kind":"node-delta","heard_ns":1,"data":{"id":"x","patch":[NaN]}}', 0)
@given(st.sampled_from([encode_line(5, RecordedState(plain.to_plain(OLD)))]), st.integers(min_value=0))
def test_a_line_is_read_the_same_with_and_without_msgspec(line: bytes, seed: int) -> None:
    for more in range(5):
        damaged = damaged_json(line, seed + more) if seed else line
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ospltool.live.record_file._quick_decoder", lambda: None)
            slowly = read(damaged)
        assert read(damaged) == slowly


def read(line: bytes) -> str:
    try:
        return json.dumps(dataclasses.asdict(decode_line(line, "x")), default=str)
    except RecordingFault:
        return "fault"
