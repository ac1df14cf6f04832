"""An instance as a reader sees it, under any sequence of facts, disconnects and looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.instance import LOSSES, Arrival, EntryKind, Instance, Origin
from engine.dataset.instance_states import InstanceState
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, retained
from tests.property.samples import WRITERS, samples

ALIVE = InstanceState.ALIVE
DISPOSED = InstanceState.NOT_ALIVE_DISPOSED
NO_WRITERS = InstanceState.NOT_ALIVE_NO_WRITERS
FACTS = st.lists(samples(keys=(b"",)), max_size=10)
depths = pytest.mark.parametrize("depth", [0, 1, 3])


def last_state(facts: list[Sample]) -> InstanceState:
    """The state that follows from what writers said, when all who are registered are connected."""
    said = [each for each in sorted(facts) if each.status & (DATA | DISPOSE)]
    last = {each.writer: each for each in sorted(facts)}
    if not said:
        return InstanceState.NONE
    if said[-1].status & DISPOSE:
        return DISPOSED
    return NO_WRITERS if all(each.status & UNREGISTER for each in last.values()) else ALIVE


@depths
@given(FACTS, st.randoms(use_true_random=False))
def test_facts_lead_to_one_state_in_whatever_order_they_come(
    depth: int, facts: list[Sample], choose: object
) -> None:
    shuffled = list(facts)
    choose.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    instance = Instance(depth)
    for each in shuffled:
        instance.apply(each)
    assert instance.state is last_state(facts)
    assert not instance.is_derived
    shown_samples = [entry.sample for entry in instance.timeline if entry.kind is EntryKind.SAMPLE]
    kept = [each for each in retained(sorted(set(facts)), depth) if each.status & DATA]
    assert shown_samples == kept


@depths
@given(FACTS, st.data())
def test_disconnects_leave_no_trace_once_all_have_come_back(
    depth: int, facts: list[Sample], data: st.DataObject
) -> None:
    instance, known = Instance(depth), list[Sample]()
    for each in facts:
        known.append(each)
        instance.apply(each)
        for action in data.draw(st.lists(st.sampled_from(("lose", "return", "read", "take")), max_size=2)):
            writer = data.draw(st.sampled_from(WRITERS))
            if action == "lose":
                time_ns, autodispose = data.draw(st.integers(1, 8)), data.draw(st.booleans())
                instance.writer_lost(writer, time_ns, autodispose=autodispose)
            elif action == "return":
                instance.writer_returned(writer, known)
            else:
                getattr(instance, action)()
            assert set(instance.facts) <= set(known), "something derived became a fact"
            assert instance.state is not ALIVE or instance.writers
            assert instance.state is not NO_WRITERS or not instance.writers
            assert all(e.sample is None or e.origin is not Origin.DERIVED for e in instance.timeline)
            assert not depth or sum(e.kind is EntryKind.SAMPLE for e in instance.timeline) <= depth
            assert len(instance.timeline) <= 3 * (len(known) + 1) * (len(known) + 2)
    for writer in WRITERS:
        instance.writer_returned(writer, known)
    assert instance.state is last_state(facts)
    assert not instance.is_derived or not instance.writers


@given(FACTS, st.data())
def test_every_fact_has_one_fate_and_is_shown_or_counted(facts: list[Sample], data: st.DataObject) -> None:
    instance = Instance(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    for each in facts:
        before = instance.timeline
        fate = instance.apply(each)
        if fate in (Arrival.INSERTED, Arrival.BACK_INSERTED):
            assert each in instance.facts
        if fate in (Arrival.DUPLICATE, Arrival.REJECTED, *LOSSES):
            assert [e for e in instance.timeline if e.kind is not EntryKind.NO_WRITERS] == [
                e for e in before if e.kind is not EntryKind.NO_WRITERS
            ]
        if data.draw(st.booleans()):
            instance.take()
    assert sum(instance.arrivals.values()) == len(facts)
