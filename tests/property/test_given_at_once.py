"""A late joiner is given the same by packed parts at once as sample by sample."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.blocks import pack_samples
from engine.dataset.group_set import GroupSet
from engine.dataset.living import WholeSet, whole
from engine.dataset.sample import DATA, DISPOSE, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.dds import offering
from engine.dds.errors import DdsTimeout
from tests.property.samples import DEPTHS, STATUSES, WRITERS, pack_early

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.living import DeliveryStep
    from engine.dataset.sample import Sample

KEYS = tuple(bytes([letter]) for letter in b"abcdefghijk")
FOREVER = time.monotonic() + 1e9


class Recorder:
    """A writer that takes a few samples at a time, and now and then none; payloads are keys."""

    def __init__(self) -> None:
        self.written: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        self.calls = 0

    def write_many(self, payloads: Sequence[bytes], times_ns: Sequence[int]) -> int:
        self.calls += 1
        if not self.calls % 3:
            raise DdsTimeout(-1, "write")
        taken = list(zip(payloads, times_ns, strict=True))[: self.calls % 5 + 1]
        for key, time_ns in taken:
            self.written[key].append((DATA, time_ns))
        return len(taken)

    def put(self, status: int, key: bytes, _: bytes, time_ns: int) -> None:
        self.written[key].append((status, time_ns))

    def flush(self) -> None:
        pass


def samples() -> st.SearchStrategy[Sample]:
    return st.builds(
        lambda time_ns, writer, status, key: make_sample(time_ns, writer, status, key, key),
        st.integers(1, 9),
        st.sampled_from(WRITERS),
        st.sampled_from((DATA,) * 16 + STATUSES),
        st.sampled_from(KEYS),
    )


def written_by(steps: Iterable[DeliveryStep], *, frees: bool) -> tuple[int, list[dict[bytes, Any]]]:
    writers = (Recorder(), Recorder())
    sent, _, problem = offering.write_all(cast("Any", writers), steps, FOREVER, lambda: False, frees=frees)
    assert not problem
    return sent, [dict(writer.written) for writer in writers]


@given(
    st.lists(samples(), min_size=4, max_size=40),
    st.sampled_from(DEPTHS),
    st.sets(st.sampled_from(WRITERS)),
    st.sets(st.sampled_from(WRITERS)),
    st.booleans(),
)
def test_each_instance_arrives_alike(
    written: list[Sample], depth: int, living: set[bytes], lost: set[bytes], frees: bool
) -> None:
    disposing = lost - living
    with pytest.MonkeyPatch.context() as patch:
        pack_early(patch)
        packed = GroupSet(depth)
        for begin in range(0, len(written), 5):
            packed.extend(written[begin : begin + 5])
    loose = GroupSet(depth)
    loose.extend(written)
    one_by_one = written_by(whole(loose.samples(), living, disposing), frees=frees)
    assert written_by(WholeSet(packed.samples(), living, disposing), frees=frees) == one_by_one


def plain(key: bytes, writer: bytes = WRITERS[0]) -> Sample:
    return make_sample(1, writer, DATA, key, key)


@pytest.mark.parametrize(
    ("others", "living", "disposing", "together"),
    [
        ([], WRITERS, (), len(KEYS)),
        ([], (), (), len(KEYS)),
        ([], (), WRITERS, 0),
        ([plain(b"other")], WRITERS, (), len(KEYS) + 1),
        ([plain(b"other")], (), (), len(KEYS) + 1),
        ([plain(b"other", WRITERS[1])], WRITERS[:1], (), len(KEYS) + 1),
        ([plain(b"other"), plain(b"third", WRITERS[1])], WRITERS[:1], (), len(KEYS)),
        ([make_sample(2, WRITERS[0], DISPOSE, b"other", b"other")], WRITERS, (), len(KEYS)),
    ],
)
def test_plain_writes_of_one_kind_need_no_object_for_each(
    others: list[Sample], living: tuple[bytes, ...], disposing: tuple[bytes, ...], together: int
) -> None:
    rows = SampleRows((pack_samples([plain(key) for key in KEYS]), *SampleRows.coerce(others).parts))
    runs, steps = WholeSet(rows, frozenset(living), frozenset(disposing)).in_runs()
    assert sum(len(run.payloads) for run in runs) == together
    assert len({step.sample.key for step in steps}) == len(KEYS) + len(others) - together


def test_nothing_more_is_written_once_the_target_is_gone() -> None:
    rows = SampleRows.coerce([make_sample(number, b"w" * 16, DATA, b"k", b"") for number in range(1_000)])
    writers, gone = (Recorder(), Recorder()), iter([False, False, True])
    steps = WholeSet(rows, frozenset(), frozenset())
    sent, _, problem = offering.write_all(
        cast("Any", writers), steps, FOREVER, functools.partial(next, gone), frees=False
    )
    assert (sent, problem) == (5, "the target is gone after 5 samples")
    assert writers[0].calls == 2
