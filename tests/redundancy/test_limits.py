"""Limits of DURABILITY_SERVICE in persistence services: which values are kept depends on no order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.sample import DATA
from engine.persistence.core.messages import KeptSample, OriginalSample, SampleBatch, Saved
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import LastValues, Replica
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas

MOST = 3


def room(key: bytes) -> tuple[bytes, int]:
    """Two groups, of which one is limited."""
    return key[:1], MOST if key[:1] == b"l" else 0


writes = st.lists(
    st.builds(
        lambda group, number, time_ns, writer: OriginalSample(
            writer, time_ns + 1, group + bytes([number]), time_ns, b"data", DATA
        ),
        st.sampled_from((b"l", b"u")),
        st.integers(0, 7),
        st.integers(1, 9),
        st.sampled_from("vw"),
    ),
    max_size=25,
)


def expected(arrived: list[OriginalSample]) -> dict[bytes, OriginalSample]:
    newest: dict[bytes, OriginalSample] = {}
    for sample in sorted(arrived, key=lambda each: each.order):
        newest[sample.key] = sample
    limited = sorted(key for key in newest if room(key)[1])
    return {key: sample for key, sample in newest.items() if key not in limited[MOST:]}


def orders(values: dict[bytes, OriginalSample]) -> dict[bytes, object]:
    return {key: sample.order for key, sample in values.items()}


@given(writes, st.randoms(use_true_random=False), st.integers(0, 25))
def test_the_instances_that_come_first_are_kept_whatever_the_order(
    arrived: list[OriginalSample], order: object, cut: int
) -> None:
    settings = SynchronizationSettings(enable=True)
    first, second = Replica("a", settings, None, room), Replica("b", settings, None, room)
    first.samples_arrived(arrived)
    order.shuffle(arrived)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    second.samples_arrived(arrived[:cut])
    again = Replica("b", settings, second.saved(), room)
    again.connected("a")
    again.receive(
        "a", SampleBatch(tuple(KeptSample(each, frozenset((each.writer,))) for each in arrived[cut:]))
    )
    again.samples_arrived(arrived)
    wanted = orders(expected(arrived))
    assert orders(first.values()) == orders(again.values()) == wanted
    assert first._kept.digests() == again._kept.digests()


@given(writes)
def test_what_is_written_to_the_store_step_by_step_is_what_is_kept(arrived: list[OriginalSample]) -> None:
    subject = Replica("a", SynchronizationSettings(enable=True), None, room)
    stored: dict[bytes, OriginalSample] = {}
    for sample in arrived:
        subject.samples_arrived([sample])
        changes = subject.changes()
        for key in changes.gone:
            stored.pop(key, None)
        stored |= {kept.sample.key: kept.sample for kept in changes.kept}
        assert orders(stored) == orders(subject.values())
    assert len({each.key for each in arrived}) - len(stored) <= subject.counters["limited"]


def test_a_store_from_before_the_limit_is_cut_at_the_start() -> None:
    kept = LastValues()
    for number in range(6):
        kept.put(OriginalSample("w", number + 1, b"l" + bytes([number]), number + 1, b"", DATA))
    saved = Saved(tuple(KeptSample(each.sample, frozenset("w")) for each in kept.entries.values()))
    subject = Replica("a", SynchronizationSettings(enable=True), saved, room)
    assert len(subject.values()) == MOST
    assert subject.counters["limited"] == MOST


@pytest.mark.dds
def test_three_services_keep_what_limits_allow_and_the_same_after_a_restart(
    lab: Lab, replicas: Replicas
) -> None:
    names = ("a", "b", "c")
    replicas.start(*names)
    replicas.wait_connected(*names)
    programs = [lab.program("writer", depth=1, limits=(20, 5, 3), readers=3) for _ in range(3)]
    for program in programs:
        program.answer("done")
    for number, program in enumerate(programs):
        program.tell(steps=[{"count": 10, "time": 1_000 * each + 100 * number} for each in range(1, 6)])
    for program in programs:
        program.answer("done")
    last = {5_200 + n for n in range(5)}
    replicas.wait_equal(*names, count=5, where=lambda values: {time_ns for time_ns, *_ in values} == last)
    replicas.wait_for(
        "what is rejected is counted", lambda: all(replicas.counter(name, "limited") for name in names)
    )
    replicas.kill(*names)
    replicas.start(*names)
    replicas.wait_connected(*names)
    replicas.wait_equal(*names, count=5)
    reader = lab.reader()
    reader.wait(5)
    assert reader.tally()["instances"] == 5
