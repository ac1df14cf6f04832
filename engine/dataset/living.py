"""Instances with a living writer, derived from their kept samples.

An instance is *written* if it is not disposed and a living writer of one of its samples has not unregistered
it. Writers without a kept sample are unknown.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final, NamedTuple

from engine.dataset.blocks import Block
from engine.dataset.sample import DATA, DISPOSE, KEY_HEADER, UNREGISTER, Sample
from engine.dataset.sample_rows import MaskedBlock, Part, SampleRows

_KEY: Final = operator.attrgetter("key")


class DeliveryStep(NamedTuple):
    """A sample to write into a reader's process, and whether its instance has a living writer."""

    sample: Sample
    is_written: bool


class DeliveryRun(NamedTuple):
    """Plain writes in order, and whether all of their instances have a living writer."""

    payloads: Sequence[bytes]
    times_ns: Sequence[int]
    is_written: bool


class InstanceEnd(NamedTuple):
    """An instance that has lost its last writer, and its newest source time."""

    key: bytes
    source_time_ns: int


def instances(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Yield the history of each instance; its samples follow each other, oldest first."""
    for _, history in itertools.groupby(samples, _KEY):
        yield list(history)


def by_instance(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples with those of each instance together, in their order.

    One DDS writer must send all samples of an instance, because a dispose of another may overtake a sample.
    """
    return sorted(samples, key=_KEY)


def is_written(history: Sequence[Sample], living: Set[bytes]) -> bool:
    """Whether an instance with this history is written."""
    newest = {sample.writer: sample.status for sample in history}
    last = next((sample.status for sample in reversed(history) if sample.status != UNREGISTER), UNREGISTER)
    return not last & DISPOSE and any(
        writer in living and not status & UNREGISTER for writer, status in newest.items()
    )


def depends_on(history: Sequence[Sample], writer: bytes, living: Set[bytes]) -> bool:
    """Whether an instance is written with this writer and not without it.

    `living` are the GUIDs of all living writers.
    """
    others = living - {writer}
    return not is_written(history, others) and is_written(history, others | {writer})


def whole(
    samples: Iterable[Sample],
    living: Set[bytes],
    disposing: Set[bytes] = frozenset(),
    has_writer: Callable[[bytes], bool] | None = None,
) -> Iterator[DeliveryStep]:
    """Yield every sample, and the end of each instance for a reader that was present all the time.

    Unregisters are left out while another writer lives.

    Args:
        samples: the samples, those of each instance together.
        living: GUIDs of the living writers.
        disposing: GUIDs of lost writers with autodispose; instances that depended on them are disposed.
        has_writer: whether an instance is written, by key, if the samples are not all of it.
    """
    if not living and not disposing:
        yield from (DeliveryStep(sample, is_written=False) for sample in samples)
        return
    for history in instances(samples):
        written = has_writer(history[0].key) if has_writer else is_written(history, living)
        for sample in history:
            if not written:
                yield DeliveryStep(sample, is_written=False)
            elif sample.status & ~UNREGISTER:
                yield DeliveryStep(sample._replace(status=sample.status & ~UNREGISTER), is_written=True)
        if disposing and not written and is_written(history, disposing):
            payload = KEY_HEADER + history[-1].key
            yield DeliveryStep(history[-1]._replace(status=DISPOSE, payload=payload), is_written=False)


class WholeSet:
    """The steps of a whole set, as `whole` yields them, or many plain writes together.

    Args:
        rows: the samples, those of each instance together, and in one part if any of them is in a block.
        living, disposing: as for `whole`.
    """

    def __init__(self, rows: SampleRows, living: Set[bytes], disposing: Set[bytes] = frozenset()) -> None:
        self._rows = rows
        self._living = living
        self._disposing = disposing

    def __iter__(self) -> Iterator[DeliveryStep]:
        return whole(self._rows, self._living, self._disposing)

    def in_runs(self) -> tuple[Iterator[DeliveryRun], Iterator[DeliveryStep]]:
        """Return what can be told of whole parts, and the steps of all others."""
        found = [(part, self._is_written(part)) for part in self._rows.parts]
        others = [part for part, is_written in found if is_written is None]
        is_written = self._are_written(others)
        if is_written is not None:
            found, others = [(part, is_written if one is None else one) for part, one in found], []
        runs = (_run(part, one) for part, one in found if one is not None)
        return runs, whole(SampleRows(others), self._living, self._disposing)

    def _is_written(self, part: Part) -> bool | None:
        """Tell whether the instances of a packed part are written if all are alike, and plain writes."""
        block = part.block if isinstance(part, MaskedBlock) else part
        return self._alike(block.writers) if isinstance(block, Block) and block.is_plain else None

    def _are_written(self, parts: Sequence[Part]) -> bool | None:
        """Tell the same of parts that have the samples of an instance together."""
        writers = set[bytes]()
        for part in parts:
            samples = part.samples()
            if any(sample.status != DATA for sample in samples):
                return None
            writers.update(sample.writer for sample in samples)
        return self._alike(writers)

    def _alike(self, writers: Iterable[bytes]) -> bool | None:
        is_written = self._living >= {*writers}
        return is_written if is_written or (self._living | self._disposing).isdisjoint(writers) else None


def _run(part: Part, is_written: bool) -> DeliveryRun:
    if isinstance(part, Block | MaskedBlock):
        return DeliveryRun(part.payloads(), part.times_ns(), is_written)
    samples = part.samples()
    times_ns = [sample.source_time_ns for sample in samples]
    return DeliveryRun([sample.payload for sample in samples], times_ns, is_written)


def returning(samples: Iterable[Sample], writer: bytes, living: Set[bytes]) -> Iterator[DeliveryStep]:
    """Yield the newest write of each instance that depends on a writer that came back.

    `living` are the GUIDs of all living writers.
    """
    for history in instances(samples):
        if depends_on(history, writer, living):
            yield from _newest(history)


def written(samples: Iterable[Sample], living: Set[bytes]) -> Iterator[DeliveryStep]:
    """Yield the newest write of each written instance."""
    for history in instances(samples):
        if is_written(history, living):
            yield from _newest(history)


def _newest(history: Sequence[Sample]) -> Iterator[DeliveryStep]:
    newest = next((sample for sample in reversed(history) if sample.status & DATA), None)
    if newest is not None:
        yield DeliveryStep(newest._replace(status=DATA), is_written=True)


def unregistered(
    new: Iterable[Sample], samples: Iterable[Sample], living: Set[bytes]
) -> Iterator[InstanceEnd]:
    """Yield the instances of a set whose last living writer unregistered them by a new sample."""
    times = {sample.key: sample.source_time_ns for sample in new if sample.status & UNREGISTER}
    for history in instances(samples) if times else ():
        time_ns = times.get(history[0].key)
        if time_ns is not None and not is_written(history, living):
            yield InstanceEnd(history[0].key, time_ns)


def ends(samples: Iterable[Sample], writer: bytes, living: Set[bytes]) -> Iterator[InstanceEnd]:
    """Yield the instances that depended on a lost writer. `living` are the GUIDs of all living writers."""
    for history in instances(samples):
        if depends_on(history, writer, living):
            yield InstanceEnd(history[0].key, history[-1].source_time_ns)
