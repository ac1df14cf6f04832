"""Capture: however samples are cut into batches, the sets, the counts and the store end alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client_service.storage import Storage
from engine.core.name_spaces import Element, Group, MergeRule, MergeType, NameSpace, Policy
from engine.core.settings import CoreSettings
from engine.dataset.captured import CapturedRun
from engine.dataset.groups import (
    NO_LIMITS,
    DurabilityKind,
    GroupDescription,
    GroupLimits,
    GroupQos,
    TypeDescription,
)
from engine.dataset.sample import DATA, UNTIMED, Sample, captured_sample
from engine.runtime.runtime import Runtime
from engine.runtime.store_queue import StoreQueue
from engine.store.interface import DamageLog
from engine.store.memory import Medium, MemoryStore
from engine.tracing.tracer import Tracer
from tests.property.samples import DEPTHS, GROUPS, KEYS, STATUSES, WRITERS, pack_early

ROUTES: dict[bytes, tuple[Group, ...]] = {
    b"A" * 16: (GROUPS[0],),
    b"B" * 16: (GROUPS[0],),
    b"C" * 16: (GROUPS[1],),
    b"D" * 16: (GROUPS[0], GROUPS[1]),
    b"E" * 16: (),
}
WRITER_GONE = 8
records = st.builds(
    captured_sample,
    st.integers(1, 8),
    st.sampled_from((*WRITERS, *ROUTES)),
    st.sampled_from((*STATUSES, *[STATUSES[0]] * 6, WRITER_GONE)),
    st.sampled_from(KEYS),
    st.sampled_from((b"x", b"y")),
    st.sampled_from((0, 0, 0, UNTIMED | 1, UNTIMED | 2)),
)


batches = st.lists(st.lists(records, max_size=12), max_size=4)


of_many = st.lists(
    st.lists(
        st.builds(
            captured_sample,
            st.integers(1, 8),
            st.sampled_from((b"A" * 16, *[b"B" * 16] * 5)),
            st.sampled_from((*STATUSES, *[DATA] * 20)),
            st.sampled_from([b"%x" % number for number in range(12)]),
            st.just(b"x"),
            st.just(0),
        ),
        max_size=30,
    ),
    max_size=4,
)
"""Writes of many instances, nearly all of one writer."""


def in_order(batches: list[list[Sample]]) -> list[list[Sample]]:
    """The same, each sample newer than the one before."""
    times_ns = itertools.count(1)
    return [[one._replace(source_time_ns=next(times_ns)) for one in batch] for batch in batches]


def run_of(alike: list[Sample]) -> CapturedRun:
    """Writes of one writer that are of one size, as a queue holds them."""
    first = alike[0]
    piece = b"".join(b"?" + one.payload + one.key for one in alike)
    stride = len(piece) // len(alike)
    times_ns = [one.source_time_ns for one in alike]
    lengths = stride, len(first.payload), len(first.key)
    run: Any = CapturedRun(first.writer, times_ns, piece, 1, *lengths)
    made: CapturedRun = run
    return made


def in_runs(batch: list[Sample], fewest: int) -> list[Sample | CapturedRun]:
    """The same, with a run wherever so many writes are alike."""
    result: list[Sample | CapturedRun] = []

    def likeness(one: Sample) -> tuple[object, ...]:
        return one.writer, one.status, len(one.key), len(one.payload), bool(one.sequence)

    for _, group in itertools.groupby(batch, likeness):
        alike = list(group)
        is_run = alike[0].status == DATA and not alike[0].sequence and len(alike) >= fewest
        result += [run_of(alike)] if is_run else alike
    return result


class Stub:
    """A wire and a clock that do nothing."""

    def __init__(self, wall_ns: int) -> None:
        self._wall_ns = wall_ns
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        return self._wall_ns

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Run:
    """A node that is complete, alone, and stores in memory."""

    def __init__(self, depth: int, limits: GroupLimits = NO_LIMITS, wall_ns: int = 100) -> None:
        self.clock = Stub(wall_ns)
        stub: Any = self.clock
        space = NameSpace("all", (Element("*", "*"),))
        policy = Policy("*", merges=(MergeRule(MergeType.MERGE, "*"),))
        settings = CoreSettings("1" * 32, 1, "n", "r", "h", (space,), (policy,), initial_discovery_s=0.0)
        self.store = MemoryStore(Medium("1" * 32))
        self.store_queue = StoreQueue(self.store)
        self.runtime = Runtime(
            settings, self.store_queue, lambda _: stub, stub, Tracer(stub.wall_ns, []), {}, {}
        )
        while self.runtime.state.value != "COMPLETE":
            self.runtime.turn()
        for group in GROUPS[:2]:
            type_ = TypeDescription("T", b"", b"", keyed=True)
            qos = GroupQos(DurabilityKind.PERSISTENT, history_depth=depth, **limits._asdict())
            self.runtime.group_seen(GroupDescription(group, type_, qos))
        self._flush()

    def _flush(self) -> None:
        self.runtime.turn()
        while self.store_queue.work():
            pass

    def capture(self, batch: Sequence[Sample | CapturedRun]) -> None:
        assert self.runtime.capture(batch, ROUTES) == []
        self._flush()

    def result(self) -> tuple[object, ...]:
        counts = {name: self.runtime.counters[name] for name in ("captured", "too_old")}
        return self.runtime.spaces["all"].working.summary(), counts

    def content(self) -> dict[Group, set[Sample]]:
        parts = self.runtime.spaces["all"].working.groups.items()
        return {group: set(part.samples()) for group, part in parts if part.count}

    def on_disk(self) -> dict[Group, set[Sample]]:
        loaded = self.store.load("all", DamageLog())
        read = {
            description.group: {sample for piece in pieces for sample in piece}
            for description, pieces in loaded
        }
        return {group: samples for group, samples in read.items() if samples}


@pytest.mark.parametrize("depth", DEPTHS)
@given(batches=batches)
def test_a_batch_ends_like_its_samples_one_by_one(depth: int, batches: list[list[Sample]]) -> None:
    at_once, singly = Run(depth), Run(depth)
    for batch in batches:
        at_once.capture(batch)
        for record in batch:
            singly.capture([record])
    assert at_once.result() == singly.result()
    assert all(sample.status in STATUSES for samples in singly.content().values() for sample in samples)
    assert at_once.content() == singly.content() == at_once.on_disk() == singly.on_disk()


@pytest.mark.parametrize("fewest", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
@given(batches=batches | batches.map(in_order) | of_many.map(in_order))
def test_a_run_ends_like_its_samples_one_by_one(depth: int, fewest: int, batches: list[list[Sample]]) -> None:
    """Also where most of the set is packed."""
    singly = Run(depth)
    with pytest.MonkeyPatch.context() as patch:
        pack_early(patch)
        in_one = Run(depth)
        for batch in batches:
            in_one.capture(in_runs(batch, fewest))
    for record in itertools.chain(*batches):
        singly.capture([record])
    assert in_one.result() == singly.result()
    assert in_one.content() == singly.content() == in_one.on_disk()


def test_a_run_of_an_unknown_writer_comes_back_sample_by_sample() -> None:
    run = Run(1)
    unknown = [captured_sample(time_ns, b"?" * 16, DATA, b"k", b"x") for time_ns in range(3)]
    assert run.runtime.capture([run_of(unknown)], ROUTES) == unknown
    assert run.runtime.counters["captured"] == 0


def test_samples_of_writers_that_discovery_has_not_told_of_come_back() -> None:
    run = Run(1)
    unknown = captured_sample(1, b"?" * 16, STATUSES[0], b"k", b"x")
    known = unknown._replace(writer=b"A" * 16)
    assert run.runtime.capture([unknown, known, unknown], ROUTES) == [unknown, unknown]
    assert run.runtime.counters["captured"] == 1


def test_each_sample_of_a_writer_is_counted_once_when_its_groups_are_known() -> None:
    run = Run(1)
    storage = Storage(run.runtime)
    writer = b"A" * 16
    written = [captured_sample(time_ns, writer, DATA, b"k", b"x") for time_ns in (5, 7, 6)]
    storage.captured(written, written, {})  # they come again once discovery has told of the writer
    assert storage.tally(writer) == (0, 0)
    storage.captured([run_of(written), written[0]], [], ROUTES)
    assert storage.tally(writer) == (4, 0)
    run.runtime.spaces[next(iter(run.runtime.spaces))].replaced += 1
    assert storage.tally(writer) == (0, 0), "what was captured may be gone with a set that was replaced"
