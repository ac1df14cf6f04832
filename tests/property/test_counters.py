"""Counters are bounded where they enter: no node is made to count beyond what others take."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.messages import (
    COUNTER_STEP,
    INCARNATION_STEP,
    MAX_COUNTER,
    MAX_INCARNATION,
    MAX_SERIAL,
    Deliveries,
    Epoch,
    NameSpaces,
    Outdated,
    Outgoing,
    Status,
    Vote,
)
from engine.core.node import DurabilityNode
from engine.core.settings import RunSeen, StoredSet
from engine.core.states import ServiceState
from engine.runtime import codec
from engine.runtime.startup import read_store
from engine.store.interface import StoreRefused
from engine.store.memory import Medium, MemoryStore
from engine.store.sqlite import SqliteStore
from tests.property.test_core_survives import NS, node, report

NUMBERS = st.one_of(
    st.integers(-2, 5),
    st.builds(
        lambda border, off: border + off,
        st.sampled_from(
            (COUNTER_STEP, INCARNATION_STEP, MAX_INCARNATION, MAX_SERIAL, MAX_COUNTER, 1 << 64, 1 << 128)
        ),
        st.integers(-2, 2),
    ),
)
EPOCHS = st.builds(Epoch, NUMBERS, st.sampled_from(("a", "m")), NUMBERS)
REPORTS = st.builds(
    lambda lineage, following, vote, line, purges: report(
        lineage, following, vote=vote, line=line, purges=purges
    ),
    EPOCHS,
    st.none() | EPOCHS,
    st.none() | st.builds(Vote, NUMBERS, st.sampled_from(("a", "m", ""))),
    st.lists(EPOCHS, max_size=1).map(tuple),
    NUMBERS,
)
STATUS = Status(1, 1, "a", "r", "h", ServiceState.COMPLETE, 0.5, 2.0, 0, heard=("m",), life=7, began_at=1)
STATUSES = st.builds(
    lambda incarnation, serial, life, began_at, commits: msgspec.structs.replace(
        STATUS, incarnation=incarnation, serial=serial, life=life, began_at=began_at, commits=commits
    ),
    *[NUMBERS] * 5,
)
NAME_SPACES = st.builds(
    lambda incarnation, serial, one, life: NameSpaces(incarnation, serial, (one,), life),
    st.just(1) | NUMBERS,
    st.integers(1, 5),
    REPORTS,
    st.just(7) | NUMBERS,
)
OUTDATED = st.builds(Outdated, NUMBERS, NUMBERS, NUMBERS)


def check_messages(core: DurabilityNode, now: float) -> None:
    """What the node sends can be read, and is in the range that a node without history takes."""
    while core.next_event() is not None:
        pass
    for one in core.messages_to_send(now):
        message = codec.decode(codec.encode(Outgoing(one.message))).message
        if isinstance(message, NameSpaces):
            for space in message.reports:
                votes = [space.vote.counter] if space.vote else []
                counters = [*votes, space.purges, *(epoch.counter for epoch in space.epochs())]
                assert 0 <= min(counters) <= max(counters) <= MAX_COUNTER
        if isinstance(message, Outdated):
            assert 0 <= message.incarnation <= MAX_INCARNATION


@given(
    stored=st.sampled_from(({}, {NS: StoredSet(1, Epoch(1, "m"))})),
    messages=st.lists(st.one_of(STATUSES, NAME_SPACES, OUTDATED), min_size=1, max_size=12),
)
@example(
    stored={},
    messages=[
        STATUS,
        NameSpaces(1, 2, (report(Epoch(1, "a"), None, vote=Vote((1 << 128) - 2, "a")),), 7),
    ],
)
def test_no_message_makes_a_node_count_beyond_what_others_take(
    stored: dict[str, StoredSet], messages: list[Any]
) -> None:
    core, now = node(stored=stored), 0.0
    core.receive(STATUS, "a", now)
    core.receive(Deliveries(1, 1, (), 7), "a", now)
    for message in messages:
        now += 0.4
        core.receive(message, "a", now)
        core.handle_timer(now)
        check_messages(core, now)
    core.fellow_detached("a", now)
    for _ in range(20):  # it is master alone, and begins epochs of its own
        now += 0.5
        core.handle_timer(now)
        check_messages(core, now)


@pytest.mark.parametrize(
    ("message", "is_heard"),
    [
        (msgspec.structs.replace(STATUS, incarnation=9 + INCARNATION_STEP), True),
        (msgspec.structs.replace(STATUS, incarnation=10 + INCARNATION_STEP), False),
        (msgspec.structs.replace(STATUS, incarnation=-1), False),
        (msgspec.structs.replace(STATUS, incarnation=10, serial=MAX_SERIAL + 1), False),
        (msgspec.structs.replace(STATUS, incarnation=10, life=1 << 32), False),
    ],
)
def test_a_fellow_is_not_heard_while_its_counters_are_impossible(message: Status, *, is_heard: bool) -> None:
    core = node(runs={"a": RunSeen(9, 3, 0)})
    core.receive(message, "a", 0.0)
    assert (core.fellow("a") is not None) == is_heard
    noted = [event.event for event in iter(core.next_event, None) if hasattr(event, "event")]
    assert ("fellow.out-of-range" in noted) == (not is_heard)
    if not is_heard:
        core.receive(msgspec.structs.replace(STATUS, incarnation=10), "a", 1.0)
        assert core.fellow("a") is not None, "it is heard once it has possible ones"


@pytest.mark.parametrize(
    "message", [msgspec.structs.replace(STATUS, incarnation=-1), Outdated(1 << 100, 9, 1)]
)
def test_once_a_node_with_impossible_counters_is_gone_that_is_noted(message: Status | Outdated) -> None:
    core = node()
    core.receive(STATUS, "a", 0.0)
    core.receive(message, "a", 0.1)
    core.receive(message, "a", 0.2)
    core.fellow_detached("a", 1.0)
    noted = [event.event for event in iter(core.next_event, None) if hasattr(event, "event")]
    assert [each for each in noted if "range" in each] == ["fellow.out-of-range", "fellow.in-range"]


@pytest.mark.parametrize("lineage", [f"{(1 << 128) - 2}/a/1", f"3/a/{1 << 64}", f"{'9' * 30}/a/1"])
def test_a_lineage_on_a_disk_that_no_node_can_have_is_given_up_and_named(lineage: str) -> None:
    medium = Medium("0" * 32)
    store = MemoryStore(medium)
    store.commit_complete(store.begin_set(NS), marks={"lineage": lineage, "line": "0//0", "purges": "9" * 40})
    store.mark(NS, {"run a": f"{1 << 100} 5 6"})
    found = read_store(MemoryStore(medium), 0)
    assert found.stored[NS].lineage == Epoch(0, "")
    assert found.stored[NS].purges == 0
    assert found.runs["a"].incarnation == 0
    (odd,) = found.odd
    assert lineage[:80] in odd


def test_a_store_with_an_impossible_run_is_refused_with_a_way_back(tmp_path: Any) -> None:
    store = SqliteStore(tmp_path / "store", "n1", lambda: "0" * 32)
    store.outlive(MAX_INCARNATION, 5)
    store.close()
    with pytest.raises(StoreRefused, match="Move the directory away"):
        SqliteStore(tmp_path / "store", "n1", lambda: "0" * 32)
