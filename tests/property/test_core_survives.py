"""Whatever fellows say in whatever order, the core goes on; what nodes learn from each other converges."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.core.events import LoadStored
from engine.core.messages import (
    Deliveries,
    Delivery,
    Epoch,
    Message,
    NameSpaceReport,
    NameSpaces,
    ReaderKey,
    Refusal,
    RollUp,
    SampleRequest,
    Status,
    Vote,
)
from engine.core.name_spaces import Durability, MergeRule, MergeType, NameSpace, Policy
from engine.core.node import DurabilityNode
from engine.core.readers import ReaderTable
from engine.core.settings import CoreSettings, StoredSet
from engine.core.states import Phase, ServiceState
from tests.property.values import values

KINDS: tuple[type[Message], ...] = typing.get_args(Message)
FELLOWS = ("a", "z")
NS = "all"


def node(**known: Any) -> DurabilityNode:
    """A node with one name-space, and both fellows in hearing; `known` are other settings."""
    settings = CoreSettings(
        node="m",
        incarnation=1,
        name="m",
        role="r",
        host="h",
        name_spaces=(NameSpace.parse(NS, "*.*"),),
        policies=(Policy("*", merges=(MergeRule(MergeType.MERGE, "*"),)),),
        initial_discovery_s=1.0,
        **({"stored": {NS: StoredSet(1, Epoch(1, "m"))}} | known),
    )
    core = DurabilityNode(settings, 0.0, wall_ns=0)
    for fellow in FELLOWS:
        core.fellow_attached(fellow, 0.0)
    return core


def report(lineage: Epoch, following: Epoch | None, **changes: Any) -> NameSpaceReport:
    """A fellow's report on the name-space that all have."""
    whole = NameSpaceReport(
        name=NS,
        elements=NameSpace.parse(NS, "*.*").elements,
        aligner=True,
        master_priority=100,
        durability=Durability.DURABLE,
        quality_ns=1,
        phase=Phase.COMPLETE,
        complete=True,
        holder=True,
        vote=None,
        following=following,
        lineage=lineage,
    )
    return msgspec.structs.replace(whole, **changes)


EPOCHS = st.builds(Epoch, st.integers(1, 4), st.sampled_from(("a", "m", "z", "?")))
FREE = ("aligner", "phase", "complete", "holder", "has_writers", "delayed", "quality_ns", "merges")
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        name: values(typing.get_type_hints(NameSpaceReport)[name])
        for name in (
            "aligner",
            "phase",
            "complete",
            "holder",
            "has_writers",
            "delayed",
            "quality_ns",
            "merges",
        )
    }
    | {
        "master_priority": st.integers(0, 255),
        "parents": st.lists(EPOCHS, max_size=2).map(tuple),
        "merged": st.lists(EPOCHS, max_size=2).map(tuple),
        "vote": st.none() | st.builds(Vote, st.integers(0, 5), st.sampled_from(("", "a", "m", "z"))),
        "because_of": st.sampled_from(("", "r", "s")),
    },
)
REPORTS = st.builds(
    lambda lineage, following, changes: report(lineage, following, **changes),
    EPOCHS,
    st.none() | EPOCHS,
    CHANGES,
)
STATUSES = st.builds(
    Status,
    incarnation=st.sampled_from((1, 1, 1, 1, 2)),
    serial=st.just(0),
    name=st.text(max_size=3),
    role=st.sampled_from(("r", "r", "s")),
    host=st.just("h"),
    state=st.sampled_from((*ServiceState, *[ServiceState.COMPLETE] * 20)),
    period_s=st.just(0.5),
    expiry_s=st.sampled_from((2.0, 0.0, -1.0, 1e300)),
    wall_ns=st.integers(),
    heard=st.sampled_from((("m",), ("m", "a", "z"), ("m", "?"), ())),
    roll_ups=st.builds(RollUp, st.just(NS), st.booleans(), st.integers(0, 2), st.integers(0, 2)).map(
        lambda roll_up: (roll_up,)
    ),
)
PURPOSES = ("initial", "collect", "delayed", "merge", "replace", "catchup", "nonsense")
SAID = st.one_of(
    STATUSES,
    st.builds(NameSpaces, st.just(1), st.just(0), REPORTS.map(lambda one: (one,))),
    st.builds(SampleRequest, st.integers(0, 3), st.just(NS), st.sampled_from(PURPOSES)),
    st.builds(Refusal, st.integers(0, 5), st.just(NS), st.just("no")),
    st.sampled_from(KINDS).flatmap(lambda kind: values(kind)),
)
"""Half of what is said is nonsense, half might be true."""


def work_off(core: DurabilityNode, now: float) -> None:
    """What a runtime does after each call, answering some of what the core asks for."""
    for _ in range(1000):
        event = core.next_event()
        if event is None:
            break
        if isinstance(event, LoadStored):
            core.injected(event.name_space, now)
    else:
        raise AssertionError("the core never stops asking")
    core.messages_to_send(now)
    assert core.next_timer() == core.next_timer()


def introduce(core: DurabilityNode) -> None:
    """Both fellows are known and talked to."""
    for fellow in FELLOWS:
        core.receive(NameSpaces(1, 0, (report(Epoch(1, fellow), None, holder=False),)), fellow, 0.0)
        core.receive(Deliveries(1, 0, ()), fellow, 0.0)
        core.receive(
            Status(1, 0, fellow, "r", "h", ServiceState.COMPLETE, 0.5, 2.0, 0, heard=("m",)), fellow, 0.0
        )
        work_off(core, 0.0)


@given(
    st.lists(
        st.tuples(st.sampled_from(FELLOWS), SAID, st.sampled_from((0.0, 0.1, 3.0)), st.booleans()),
        max_size=20,
    )
)
def test_the_core_survives_whatever_its_fellows_say(said: list[tuple[str, Message, float, bool]]) -> None:
    core, now = node(), 0.0
    introduce(core)
    for serial, (sender, message, pause, answered) in enumerate(said, start=1):
        if isinstance(message, Status | NameSpaces | Deliveries):
            message = msgspec.structs.replace(message, serial=serial)
        core.receive(message, sender, now)
        work_off(core, now)
        for number in [number for state in core.name_spaces for number in state.outstanding] * answered:
            core.set_received(NS, number, Epoch(2, sender), now)
            work_off(core, now)
        now += pause
        core.handle_timer(now)
        work_off(core, now)
    for state in core.name_spaces:
        assert len(state.parents) + len(state.merged) + len(state.foreign_seen) < 1000


READERS = [ReaderKey(f"p{number}", "T", ("*",), NS) for number in range(2)]
CLAIMS = st.builds(Delivery, st.sampled_from(READERS), st.sampled_from(FELLOWS), st.booleans())


@given(
    st.dictionaries(st.sampled_from(FELLOWS), st.lists(CLAIMS, max_size=3)), st.randoms(use_true_random=False)
)
def test_claims_on_late_joiners_are_the_same_in_whatever_order_they_are_heard(
    heard: dict[str, list[Delivery]], choose: Any
) -> None:
    shuffled = [*heard.items(), *list(heard.items())[:1]]
    choose.shuffle(shuffled)
    known = []
    for order in (list(heard.items()), shuffled):
        table = ReaderTable("m")
        for sender, claims in order:
            table.take_claims(Deliveries(1, 0, tuple(claims)), sender)
        known.append(table.message(1, 0.0).deliveries)
        assert not any(table.take_claims(Deliveries(1, 0, tuple(claims)), sender) for sender, claims in order)
    assert known[0] == known[1]


def test_who_gave_up_serving_is_not_held_to_it_by_what_others_remember() -> None:
    reader, server, other = READERS[0], FELLOWS[0], FELLOWS[1]
    running = Deliveries(1, 1, (Delivery(reader, server, done=False),))
    table = ReaderTable("m")
    table.take_claims(running, server)
    table.seen(reader, frozenset(("host",)), None)
    assert table.open(lambda *_: "m", 0.0) == []
    table.take_claims(Deliveries(1, 2, ()), server)
    table.take_claims(running, other)
    assert table.open(lambda *_: "m", 0.0) == [reader]
