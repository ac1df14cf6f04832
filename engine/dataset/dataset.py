"""Groups of samples with an incremental digest, and the one place where a sample changes a set."""

from __future__ import annotations

import bisect
import dataclasses
import enum
import functools
import hashlib
from typing import TYPE_CHECKING, Final

from engine.dataset.history import retained
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, digest_sum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.core.namespaces import Group
    from engine.dataset.sample import Sample

_MODULUS_MASK: Final = (1 << 128) - 1

NO_FLOOR: Final = -(1 << 63)
"""No historical data has been deleted."""


class Outcome(enum.Enum):
    """What became of a sample that was applied."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    OLDER = "older than what the history depth keeps"


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """A set in one line: two sets are equal exactly when their summaries' count and digest are.

    Of a group, `digest` is the sum modulo 2**128 of the samples' digests; of a name-space, the sum of its
    groups' digests, each multiplied by the group's `weight_of`. `newest_ns` is the newest source timestamp
    that the set ever had, also of what has been deleted since; 0 when it never had any.
    """

    count: int
    digest: int
    newest_ns: int

    def same_content(self, other: Summary) -> bool:
        """Whether both sets hold the same samples."""
        return self.count == other.count and self.digest == other.digest


EMPTY: Final = Summary(0, 0, 0)


@functools.lru_cache(maxsize=65_536)
def weight_of(group: Group) -> int:
    """An odd number below 2**128 that belongs to a group and, in practice, to no other.

    It keeps apart sets that hold the same samples in different groups, which happens when one writer writes
    in several partitions.
    """
    lengths = ",".join(str(len(part)) for part in group)
    text = f"{lengths},{''.join(group)}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest()) | 1


class GroupSet:
    """The samples of one group, by instance.

    Attributes:
        depth: samples kept per instance (see `engine.dataset.history`).
        floor_ns: samples up to this source time have been deleted and are not taken in again.
        disposed: the instances that end with a dispose.
        lost: samples that arrived too old to be kept. Samples that newer ones pushed out are not counted:
            that is what a history depth is for.
    """

    __slots__ = (
        "_digest",
        "_instances",
        "_newest_ns",
        "count",
        "depth",
        "disposed",
        "floor_ns",
        "lost",
        "payload_bytes",
    )

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.floor_ns = NO_FLOOR
        self.disposed: set[bytes] = set()
        self.count = 0
        self.payload_bytes = 0
        self.lost = 0
        self._digest = 0
        self._newest_ns = 0
        self._instances: dict[bytes, list[Sample]] = {}

    def apply(self, sample: Sample) -> tuple[Outcome, list[Sample]]:
        """Put one sample into the set; returns the outcome and the samples it pushed out."""
        if sample.source_time_ns <= self.floor_ns:
            self.lost += 1
            return Outcome.OLDER, []
        history = self._instances.get(sample.key)
        if history is None:
            self._instances[sample.key] = [sample]
            self._count_in(sample)
            if sample.status & DISPOSE:
                self.disposed.add(sample.key)
            return Outcome.STORED, []
        if sample.status == DATA and sample > history[-1]:  # nearly every sample
            known = history[0]
            if self.depth == 1 and len(history) == 1 and known.status == DATA:
                history[0] = sample
                self._count_out(known)
                self._count_in(sample)
                return Outcome.STORED, [known]
            if not self.depth:
                history.append(sample)
                self._count_in(sample)
                self.disposed.discard(sample.key)
                return Outcome.STORED, []
        return self._insert(history, sample)

    def extend(self, samples: Sequence[Sample]) -> None:
        """Apply many samples; fast where each is the first of its instance, as in a set that arrives."""
        if not samples:
            return
        keys = {sample.key for sample in samples}
        if (
            len(keys) < len(samples)
            or not self._instances.keys().isdisjoint(keys)
            or min([sample.source_time_ns for sample in samples]) <= self.floor_ns
        ):
            for sample in samples:
                self.apply(sample)
            return
        self._instances.update([(sample.key, [sample]) for sample in samples])
        self.disposed.update([sample.key for sample in samples if sample.status & DISPOSE])
        self.count += len(samples)
        self.payload_bytes += sum([len(sample.payload) for sample in samples])
        self._digest = (self._digest + digest_sum(samples)) & _MODULUS_MASK
        self._newest_ns = max(self._newest_ns, *[sample.source_time_ns for sample in samples])

    def is_newest(self, key: bytes, source_time_ns: int, writer: bytes) -> bool:
        """Whether a plain write at that time is newer than all that is known of the instance.

        With depth 1 it would then be all that is kept of it.
        """
        if source_time_ns <= self.floor_ns:
            return False
        history = self._instances.get(key)
        if not history:
            return True
        last = history[-1]
        return source_time_ns > last[0] or (source_time_ns == last[0] and writer > last[1])

    def _insert(self, history: list[Sample], sample: Sample) -> tuple[Outcome, list[Sample]]:
        position = bisect.bisect_left(history, sample)
        if position < len(history) and history[position].digest == sample.digest:
            return Outcome.DUPLICATE, []
        candidate = [*history[:position], sample, *history[position:]]
        kept = retained(candidate, self.depth)
        kept_digests = {item.digest for item in kept}
        if sample.digest not in kept_digests:
            self.lost += 1
            return Outcome.OLDER, []
        evicted = [item for item in history if item.digest not in kept_digests]
        history[:] = kept
        for item in evicted:
            self._count_out(item)
        self._count_in(sample)
        self._note_end(sample.key, history)
        return Outcome.STORED, evicted

    def _note_end(self, key: bytes, history: list[Sample]) -> None:
        """Keep `disposed` right: unregisters at the end do not make an instance alive again."""
        last = next((item for item in reversed(history) if item.status != UNREGISTER), None)
        if last is not None and last.status & DISPOSE:
            self.disposed.add(key)
        else:
            self.disposed.discard(key)

    def raise_floor(self, until_ns: int) -> list[Sample]:
        """Delete the samples up to a source time, for good; returns them (deployment guide 5.5.18)."""
        if until_ns <= self.floor_ns:
            return []
        self.floor_ns = until_ns
        removed: list[Sample] = []
        for key, history in list(self._instances.items()):
            old = [sample for sample in history if sample.source_time_ns <= until_ns]
            if not old:
                continue
            removed += old
            history[:] = history[len(old) :]
            self._note_end(key, history)
            if not history:
                del self._instances[key]
        for sample in removed:
            self._count_out(sample)
        return removed

    def remove_instance(self, key: bytes) -> list[Sample]:
        """Forget an instance; returns what was kept of it."""
        removed = self._instances.pop(key, [])
        self.disposed.discard(key)
        for sample in removed:
            self._count_out(sample)
        return removed

    def _count_in(self, sample: Sample) -> None:
        self.count += 1
        self.payload_bytes += len(sample.payload)
        self._digest = (self._digest + int.from_bytes(sample.digest)) & _MODULUS_MASK
        self._newest_ns = max(self._newest_ns, sample.source_time_ns)

    def _count_out(self, sample: Sample) -> None:
        self.count -= 1
        self.payload_bytes -= len(sample.payload)
        self._digest = (self._digest - int.from_bytes(sample.digest)) & _MODULUS_MASK

    def summary(self) -> Summary:
        """Count, digest and newest source timestamp, without looking at the samples."""
        return Summary(self.count, self._digest, self._newest_ns)

    def instance(self, key: bytes) -> tuple[Sample, ...]:
        """The samples kept of one instance, oldest first."""
        return tuple(self._instances.get(key, ()))

    def keys(self) -> list[bytes]:
        """The instances, in key order."""
        return sorted(self._instances)

    @property
    def instance_count(self) -> int:
        """How many instances have at least one sample."""
        return len(self._instances)

    def samples(self) -> Iterator[Sample]:
        """All samples: instances in the order in which they were first seen, each oldest first."""
        for history in self._instances.values():
            yield from history


class DataSet:
    """The samples of one name-space, by group."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[Group, GroupSet] = {}

    def open_group(self, group: Group, depth: int) -> GroupSet:
        """The set of a group, made empty when it is not there."""
        existing = self.groups.get(group)
        if existing is None:
            existing = self.groups[group] = GroupSet(depth)
        return existing

    def summary(self) -> Summary:
        """The roll-up of all groups; an empty group and an absent one are the same."""
        count = digest = newest = 0
        for group, group_set in self.groups.items():
            part = group_set.summary()
            count += part.count
            digest = (digest + part.digest * weight_of(group)) & _MODULUS_MASK
            newest = max(newest, part.newest_ns)
        return Summary(count, digest, newest)

    def join(self, other: DataSet) -> int:
        """MERGE: take every sample of `other` too; returns how many were new."""
        stored = 0
        for group, theirs in other.groups.items():
            ours = self.open_group(group, theirs.depth)
            ours.raise_floor(theirs.floor_ns)
            for sample in theirs.samples():
                stored += ours.apply(sample)[0] is Outcome.STORED
        return stored
