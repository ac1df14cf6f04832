"""What a node says of samples by name is true of its set and its disk at that moment."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client_service.storage import Storage, StorageQuestion
from engine.dataset.groups import GroupLimits
from engine.dataset.sample import UNTIMED, Sample, captured_sample, make_sample, retained, with_digest
from engine.dds.client_protocol.naming import SampleName, SampleVerdict
from tests.property.samples import DEPTHS, GROUPS
from tests.property.test_capture_batches import ROUTES, WRITER_GONE, Run, batches

GROUP = GROUPS[0]


def numbered(batches: list[list[Sample]]) -> list[list[Sample]]:
    """The same, where no writer gives two samples without a source timestamp one number.

    Of two such samples the set keeps the first as the same one; nobody can ask for the second by name.
    """
    numbers = itertools.count(1)
    return [
        [one._replace(sequence=UNTIMED | next(numbers)) if one.sequence else one for one in batch]
        for batch in batches
    ]


as_written = batches.map(numbered)
WRITTEN_THERE = [writer for writer, groups in ROUTES.items() if GROUP in groups]


def ask(run: Run, samples: list[Sample]) -> list[SampleVerdict]:
    """The verdicts of a node that is asked and does not wait."""
    storage = Storage(run.runtime)
    states = run.runtime.core.name_spaces
    places = storage.places(states, GROUP.topic, [GROUP.partition])
    question = StorageQuestion(tuple(map(SampleName.from_sample, samples)))
    storage.is_answered(question, states, places, 0.0, 0.0)
    return storage.verdicts(question, states, places)


def test_a_set_that_a_policy_left_apart_is_not_shared() -> None:
    run = Run(0)
    run.runtime.capture([captured_sample(5, WRITTEN_THERE[0], 4, b"k", b"x")], ROUTES)
    run.runtime.turn()
    storage = Storage(run.runtime)
    states = run.runtime.core.name_spaces
    places = storage.places(states, GROUP.topic, [GROUP.partition])
    assert not storage.why_not_shared(places)
    for state in states:
        state.apart = True
    assert "a merge policy left its set of name-space" in storage.why_not_shared(places)


def samples_of(batch: list[Sample]) -> list[Sample]:
    return [
        with_digest(record)
        for record in batch
        if record.writer in WRITTEN_THERE and record.status < WRITER_GONE
    ]


@pytest.mark.parametrize("depth", DEPTHS)
@given(
    batches=as_written, steps=st.lists(st.integers(0, 3), min_size=4, max_size=4), floor=st.integers(-1, 8)
)
def test_stored_is_on_the_disk_and_missing_would_be_taken(
    depth: int, batches: list[list[Sample]], steps: list[int], floor: int
) -> None:
    run = Run(depth)
    never = [make_sample(time_ns, b"A" * 16, 4, b"k", b"never written") for time_ns in (0, 3, 9)]
    written: list[Sample] = list(never)
    for batch, step in zip(batches, steps, strict=False):
        run.runtime.capture([record for record in batch if record.writer in ROUTES], ROUTES)
        run.runtime.turn()
        for _ in range(step):
            run.store_queue.work()
        written += samples_of(batch)
        check(run, depth, written)
    if floor > 0:
        run.runtime.core.delete_data(GROUP.partition, GROUP.topic, floor)
        run.runtime.turn()
    run._flush()
    verdicts = check(run, depth, written)
    captured = {one.digest for one in written[len(never) :]}
    for sample, verdict in zip(written, verdicts, strict=True):
        assert verdict >= SampleVerdict.DELETED or sample.digest not in captured
        assert not (verdict.is_kept and 0 < floor >= sample.source_time_ns), "what was deleted is not stored"


LIMITS = [GroupLimits(max_instances=1), GroupLimits(2), GroupLimits(4, 2), GroupLimits(3, -1, 2)]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("depth", DEPTHS)
@given(batches=as_written)
def test_only_newer_samples_of_its_instance_supersede_a_sample_under_limits(
    depth: int, limits: GroupLimits, batches: list[list[Sample]]
) -> None:
    run = Run(depth, limits)
    written: list[Sample] = []
    for batch in batches:
        run.capture([record for record in batch if record.writer in ROUTES])
        written += samples_of(batch)
    on_disk = run.on_disk().get(GROUP, set())
    group_set = run.runtime.spaces["all"].working.groups[GROUP]
    for sample, verdict in zip(written, ask(run, written), strict=True):
        newer = [one for one in group_set.instance(sample.key) if one > sample]
        if sample in on_disk:
            assert verdict is SampleVerdict.STORED
        else:
            assert verdict in (SampleVerdict.SUPERSEDED, SampleVerdict.REFUSED)
            assert newer or verdict is SampleVerdict.REFUSED


def check(run: Run, depth: int, written: list[Sample]) -> list[SampleVerdict]:
    verdicts = ask(run, written)
    on_disk = run.on_disk().get(GROUP, set())
    group_set = run.runtime.spaces["all"].working.groups[GROUP]
    for sample, verdict in zip(written, verdicts, strict=True):
        history = list(group_set.instance(sample.key))
        together = sorted({*history, sample})
        if verdict is SampleVerdict.STORED:
            assert sample in on_disk
        elif verdict is SampleVerdict.SUPERSEDED:
            assert retained(together, depth) == history
            assert set(history) <= on_disk
        elif verdict is SampleVerdict.DELETED:
            assert sample.source_time_ns <= group_set.floor_ns
        elif verdict is SampleVerdict.MISSING:
            assert sample not in history
            assert sample in retained(together, depth)
        else:
            assert verdict is SampleVerdict.IN_MEMORY
            assert sample in history or retained(together, depth) == history
    return verdicts
