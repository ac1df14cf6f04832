"""Large samples that wait for newer ones before they get a digest: who looks at a set sees no difference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset import captured
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, UNTIMED, Sample, captured_sample
from engine.dataset.settling import STEP_NS, WIDTH_NS
from engine.runtime import capture
from tests.property.samples import GROUPS, KEYS, STATUSES
from tests.property.test_capture_batches import ROUTES, Run, in_runs

SIZE = capture.WAITS_FROM
NOW_NS = 100 * WIDTH_NS
FIRST_NS = NOW_NS - 3 * WIDTH_NS
WRITER = b"A" * 16

written = st.builds(
    captured_sample,
    st.integers(0, 5).map(lambda place: FIRST_NS + place * WIDTH_NS // 2),
    st.sampled_from([WRITER] * 5 + [b"B" * 16, b"C" * 16, b"D" * 16]),
    st.sampled_from([DATA] * 10 + [*STATUSES]),
    st.sampled_from(KEYS),
    st.sampled_from([b"x" * SIZE] * 6 + [b"y" * SIZE, b"small"]),
    st.sampled_from([0] * 5 + [UNTIMED | 1, UNTIMED | 2]),
)
looks = st.sampled_from(["settle", "look", "store", "purge"])
borders = st.sampled_from(range(FIRST_NS, NOW_NS + WIDTH_NS, WIDTH_NS)).map(
    lambda until_ns: ("as of", until_ns)
)
floors = st.integers(0, 6).map(lambda place: ("delete", FIRST_NS + place * WIDTH_NS // 4))
steps = st.lists(
    st.tuples(st.lists(written, min_size=1, max_size=4), borders | looks | floors),
    min_size=1,
    max_size=10,
)
"""Captures, and after some of them what somebody does."""


def dated(one: Sample) -> Sample:
    """The same as if its writer's clock were wrong."""
    return one._replace(source_time_ns=one.source_time_ns - STEP_NS)


class LateRun(Run):
    """A node whose busy tap lets samples wait, if it is told to."""

    def __init__(self, *, waits: bool) -> None:
        super().__init__(1, wall_ns=NOW_NS)
        self._waits = waits
        self.space = self.runtime.spaces["all"]
        self.space.present.advance(NOW_NS)
        self.space.working.settle_with(self.space.present)

    def do(self, step: object) -> object:
        """Take a step; what it returns must not depend on whether samples wait."""
        match step:
            case Sample():
                assert self.runtime.capture([step], ROUTES, waits=self._waits) == []
            case ("delete", int() as until_ns):
                for group in GROUPS[:2]:
                    changes = self.space.delete(self.runtime.descriptions[group], until_ns)
                    self.store_queue.append("all", changes)
            case ("as of", int() as until_ns):
                return self.space.settled(until_ns)
            case "settle":
                self.runtime.settle_captured()
            case "look":
                return self.space.working.summary()
            case "store":
                self._flush()
            case "purge":
                return self._purge()
        return None

    def _purge(self) -> int:
        group_set = self.space.working.groups[GROUPS[0]]
        ends = [(key, group_set.instance(key)[-1].digest) for key in sorted(group_set.disposed)]
        for key, last in ends:
            changes = self.space.purge(self.runtime.descriptions[GROUPS[0]], key, last)
            self.store_queue.append("all", changes)
        return len(ends)

    def end(self) -> tuple[object, ...]:
        self.runtime.settle_captured()
        self._flush()
        return self.result(), self.content(), self.on_disk()


@given(steps=steps, wrong=st.sampled_from([b"", b"", b"B" * 16]))
def test_nobody_sees_whether_samples_waited(steps: list[tuple[list[Sample], object]], wrong: bytes) -> None:
    """Set, counts, roots as of the borders of intervals, and disk are those of digests computed at once."""
    late, at_once = LateRun(waits=True), LateRun(waits=False)
    for records, then in steps:
        for step in (*[dated(one) if one.writer == wrong else one for one in records], then):
            assert late.do(step) == at_once.do(step), step
    assert late.end() == at_once.end()
    assert late.content() == late.on_disk()


def sample(time_ns: int, key: bytes = b"k", size: int = SIZE) -> Sample:
    return captured_sample(time_ns, WRITER, DATA, key, b"x" * size)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The source times of the samples that got a digest, in the order in which they did."""
    times_ns: list[int] = []
    make = captured.with_digests

    def noting(records: list[Sample]) -> list[object]:
        samples = make(records)
        times_ns.extend(one.source_time_ns for one in samples)
        return [*samples]

    monkeypatch.setattr(capture, "with_digests", noting)
    return times_ns


def test_a_sample_that_is_replaced_before_anybody_asks_gets_no_digest(made: list[int]) -> None:
    run = LateRun(waits=True)
    for time_ns in range(FIRST_NS, FIRST_NS + 10):
        run.do(sample(time_ns))
    run.space.settled(FIRST_NS)
    run.runtime.turn()
    assert (made, run.runtime.has_waiting) == ([], True)
    assert run.runtime.counters["captured"] == 9, "the last one counts when it is in the set"
    run.do("look")
    assert (made, run.runtime.has_waiting, run.runtime.counters["captured"]) == ([FIRST_NS + 9], False, 10)


def test_a_sample_of_an_earlier_interval_is_not_replaced_without_its_digest(made: list[int]) -> None:
    run = LateRun(waits=True)
    run.do(sample(FIRST_NS))
    run.do(sample(FIRST_NS, b"other"))
    run.do(sample(FIRST_NS + WIDTH_NS))
    assert (made, run.runtime.has_waiting) == ([FIRST_NS, FIRST_NS], True)


@pytest.mark.parametrize("size", [SIZE - 1, capture.WAITS_TO + 1])
def test_samples_of_other_sizes_do_not_wait(size: int) -> None:
    run = LateRun(waits=True)
    run.do(sample(FIRST_NS, size=size))
    run.runtime.capture(
        in_runs([sample(time_ns, size=1) for time_ns in range(FIRST_NS, FIRST_NS + 3)], 2), ROUTES, waits=True
    )
    assert not run.runtime.has_waiting


def test_what_waits_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_WAITING_BYTES", 3 * SIZE)
    run = LateRun(waits=True)
    for number in range(3):
        run.do(sample(FIRST_NS, b"%d" % number))
        assert run.runtime.has_waiting
    run.do(sample(FIRST_NS, b"3"))
    assert not run.runtime.has_waiting


def test_what_a_client_waits_for_is_in_the_queue_of_the_store_before_that_is_hurried() -> None:
    run = LateRun(waits=True)
    before = run.store_queue.handed_over
    run.do(sample(FIRST_NS))
    assert run.runtime.hurry() == before + 1


def test_samples_of_a_wrong_clock_do_not_wait() -> None:
    run = LateRun(waits=True)
    run.do(sample(FIRST_NS - STEP_NS))
    assert not run.runtime.has_waiting


def test_samples_whose_clock_turns_out_to_be_wrong_are_dated_by_what_is_known_now() -> None:
    run = LateRun(waits=True)
    run.do(sample(FIRST_NS))
    assert run.runtime.has_waiting
    run.space.present.skews[WRITER] = -STEP_NS
    assert run.space.settled(FIRST_NS)[0] == 1


def test_the_end_of_an_instance_is_applied_after_the_write_that_waits() -> None:
    run = LateRun(waits=True)
    run.do(sample(FIRST_NS))
    run.do(captured_sample(FIRST_NS + 1, WRITER, DISPOSE | UNREGISTER, b"k", b""))
    assert [one.status for one in run.space.working.groups[GROUPS[0]].instance(b"k")] == [
        DATA,
        DISPOSE | UNREGISTER,
    ]
