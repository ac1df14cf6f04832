"""The samples of one name-space: groups of them, some with limits, with a roll-up of their digests.

As with the history depth, the samples that are kept under resource limits (DDS 1.4, 2.2.3.5
DURABILITY_SERVICE) are a function of the set of samples that ever arrived, not of their order, so keeping
under limits is a join, too:

- max_samples_per_instance: the newest writes of each instance, as with a history depth of that number;
- max_instances: the instances whose serialized keys come first in byte order;
- max_samples: the newest writes of the group, and no older sample. With max_instances, each instance keeps
  at most max_samples // max_instances writes instead, because samples given up for a later instance cannot
  be restored.

Limits count writes. A dispose or unregister needs no room, and goes with the writes that it came after.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import heapq
from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.core.name_spaces import Group
from engine.dataset.group_set import MODULUS_MASK, TIMELESS, ApplyOutcome, GroupSet, Summary
from engine.dataset.groups import NO_LIMITS, GroupDescription, GroupLimits, loosest
from engine.dataset.sample import DATA, Sample
from engine.dataset.sample_rows import SampleRows
from engine.dataset.settling import Content, SettlingClock

# At twice the number the list is made again, which then costs as much as what was added; the thousand spares
# small sets that.
_MAX_STALE: Final = 1_000
"""Removed samples, beyond the number of kept ones, that may stay in the order of ages."""


class _Room(NamedTuple):
    """The effect of the limits; 0 is no limit.

    Attributes:
        depth: writes per instance.
        cause: limit that makes `depth` smaller than the history depth; empty if none does.
        instances: instances of the group.
        instances_cause: limit from which `instances` comes.
        writes: writes of the group.
    """

    depth: int
    cause: str
    instances: int
    instances_cause: str
    writes: int

    @classmethod
    def from_limits(cls, depth: int, limits: GroupLimits) -> _Room:
        samples, instances, each = (max(0, limit) for limit in limits)
        cause, instances_cause = "", "max_instances"
        if each and (not depth or each < depth):
            depth, cause = each, "max_samples_per_instance"
        if samples and instances:
            if samples < instances:
                instances, instances_cause = samples, "max_samples"
            share = samples // instances
            if not depth or share < depth:
                depth, cause = share, "max_samples"
            samples = 0
        return cls(depth, cause, instances, instances_cause, samples)


class LimitedSet(GroupSet):
    """A group with at least one limit.

    `depth` is the number of samples to keep of each instance; 0 keeps all.
    """

    __slots__ = ("_by_age", "_history_depth", "_keys", "_room", "_writes")

    def __init__(self, depth: int, limits: GroupLimits, present: SettlingClock | None = None) -> None:
        self._history_depth = depth
        self._room = _Room.from_limits(depth, limits)
        super().__init__(self._room.depth, present)
        self.limits = limits
        self._keys: list[bytes] = []
        self._by_age: list[Sample] = []
        self._writes = 0
        if not self._is_plain:
            self._pack_at = 1 << 62  # limits push out objects only

    @property
    def _is_plain(self) -> bool:
        """Whether the limits amount to a history depth."""
        return not self._room.instances and not self._room.writes

    @property
    def is_renewable(self) -> bool:
        """False, because each sample must be applied to count those that a limit pushes out."""
        return False

    def loosen(self, depth: int, limits: GroupLimits) -> None:
        """Keep at least what this history depth and these limits leave; what is gone does not come back."""
        depth, limits = loosest(self._history_depth, depth), self.limits.loosened_by(limits)
        if (depth, limits) == (self._history_depth, self.limits):
            return
        room = _Room.from_limits(depth, limits)
        self._history_depth, self.limits = depth, limits
        self._room, self.depth = room, room.depth
        # Which of these a set keeps up depends on its limits, and another limit may decide now.
        self._keys = sorted(self.keys()) if room.instances else []
        self._by_age = sorted(self.samples()) if room.writes else []
        self._writes = _writes_in(self._by_age)

    def apply(self, sample: Sample) -> tuple[ApplyOutcome, list[Sample]]:
        """Put one sample into the set; return the outcome and the samples that it pushed out."""
        room = self._room
        if sample.source_time_ns > self.floor_ns and (cause := self._has_no_room(sample)):
            self.rejected[cause] += 1
            return ApplyOutcome.LIMITED, []
        is_new = bool(room.instances) and sample.key not in self
        outcome, evicted = super().apply(sample)
        if outcome is ApplyOutcome.OLDER and room.cause and sample.source_time_ns > self.floor_ns:
            self.rejected[room.cause] += 1
            return ApplyOutcome.LIMITED, []
        if outcome is not ApplyOutcome.STORED:
            return outcome, evicted
        if room.cause:
            self.rejected[room.cause] += _writes_in(evicted)
        if is_new:
            bisect.insort(self._keys, sample.key)
            if len(self._keys) > room.instances:
                gone = self._instances.pop(self._keys.pop())
                self._revive(gone[0].key)
                self._push_out(sample, gone, room.instances_cause)
                evicted = [*evicted, *gone]
        if room.writes:
            heapq.heappush(self._by_age, sample)
            if len(self._by_age) > 2 * self.count + _MAX_STALE:
                self._by_age = sorted(self.samples())
            self._writes += _writes_in((sample,)) - _writes_in(evicted)
            evicted = [*evicted, *self._shrink(sample)]
        return outcome, evicted

    def _has_no_room(self, sample: Sample) -> str:
        """Return the limit of the group that excludes a sample; empty if there is room."""
        room = self._room
        if room.instances and len(self._keys) >= room.instances and sample.key > self._keys[-1]:
            return room.instances_cause
        if room.writes and self._writes >= room.writes:
            oldest = self._oldest()
            if oldest is not None and sample < oldest:
                return "max_samples"
        return ""

    def _oldest(self) -> Sample | None:
        """Return the oldest sample of the group, which is the oldest of its instance."""
        while self._by_age:
            oldest = self._by_age[0]
            history = self._instances.get(oldest.key)
            if history and history[0] == oldest:
                return oldest
            heapq.heappop(self._by_age)
        return None

    def _shrink(self, sample: Sample) -> list[Sample]:
        """Push out the oldest writes above the limit, and samples older than all writes of a full group."""
        gone: list[Sample] = []
        while self._writes >= self._room.writes and (oldest := self._oldest()) is not None:
            is_write = bool(oldest.status & DATA)
            if is_write and self._writes == self._room.writes:
                break
            history = self._instances[oldest.key]
            del history[0]
            self._note_end(oldest.key, history)
            if not history:
                del self._instances[oldest.key]
            self._writes -= is_write
            gone.append(oldest)
        self._push_out(sample, gone, "max_samples")
        return gone

    def _push_out(self, sample: Sample, gone: Sequence[Sample], cause: str) -> None:
        """Count out samples that a limit pushed out when another one came.

        The change has the date of the newer of the two, because both together exceeded the limit.
        """
        if not gone:
            return
        self.rejected[cause] += _writes_in(gone)
        self._count(SampleRows(), SampleRows.coerce(gone))
        for item in gone:
            newer = max(sample, item)
            self._recent.add(newer.source_time_ns, newer.writer, -1, -int.from_bytes(item.digest))

    def renew(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        """Apply samples one by one."""
        return [self.apply(sample)[1] for sample in samples]

    def extend(self, samples: SampleRows | Sequence[Sample]) -> None:
        """Apply many samples."""
        for sample in samples:
            self.apply(sample)

    def raise_floor(self, until_ns: int) -> list[Sample]:
        """Delete the samples up to a source time permanently; return them (deployment guide 5.5.18)."""
        removed = super().raise_floor(until_ns)
        self._forget(removed)
        return removed

    def remove_instance(self, key: bytes) -> list[Sample]:
        """Forget an instance; return its samples."""
        removed = super().remove_instance(key)
        self._forget(removed)
        return removed

    def _forget(self, removed: list[Sample]) -> None:
        if removed and self._room.instances:
            self._keys = sorted(self._instances)
        if self._room.writes:
            self._writes -= _writes_in(removed)

    def has_no_place(self, sample: Sample) -> bool:
        """Whether the floor, the kept samples or the limits leave no place for this one."""
        return super().has_no_place(sample) or bool(self._has_no_room(sample))


def _writes_in(samples: Sequence[Sample]) -> int:
    return sum(1 for sample in samples if sample.status & DATA)


@functools.lru_cache(maxsize=65_536)
def weight_of(group: Group) -> int:
    """Return an odd number below 2**128 that is, in practice, unique to a group.

    It distinguishes sets with the same samples in different groups, as of a writer in several partitions.
    """
    lengths = ",".join(str(len(part)) for part in group)
    text = f"{lengths},{''.join(group)}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest()) | 1


def make_set(depth: int, limits: GroupLimits = NO_LIMITS, present: SettlingClock | None = None) -> GroupSet:
    """Make an empty set with this history depth and these limits."""
    if not limits.are_set:
        return GroupSet(depth, present)
    return LimitedSet(depth, limits, present)


class DataSet:
    """The samples of one name-space, by group."""

    __slots__ = ("_present", "groups")

    def __init__(self) -> None:
        self.groups: dict[Group, GroupSet] = {}
        self._present = TIMELESS

    def open_group(self, group: Group, depth: int, limits: GroupLimits = NO_LIMITS) -> GroupSet:
        """Return the set of a group; make an empty one if there is none.

        The history `depth` of a new set is the number of samples of each instance; 0 keeps all.
        """
        existing = self.groups.get(group)
        if existing is None:
            existing = self.groups[group] = make_set(depth, limits, self._present)
        return existing

    def open_described(self, description: GroupDescription) -> GroupSet:
        """Return the set of a group, with at least the depth and limits of the group's QoS."""
        qos = description.qos
        group_set = self.open_group(description.group, qos.history_depth, qos.limits)
        group_set.loosen(qos.history_depth, qos.limits)
        return group_set

    def open_like(self, group: Group, other: GroupSet) -> GroupSet:
        """Return the set of a group, with depth, limits and floor of another set."""
        existing = self.open_group(group, other.depth, other.limits)
        existing.raise_floor(other.floor_ns)
        return existing

    def summary(self) -> Summary:
        """Return the roll-up of all groups; an empty group counts like an absent one."""
        count = digest = newest = 0
        for group, group_set in self.groups.items():
            part_count, part_digest, part_newest = group_set.content()
            count += part_count
            digest += part_digest * weight_of(group)
            if part_newest > newest:
                newest = part_newest
        return Summary(count, digest & MODULUS_MASK, newest)

    def settle_with(self, present: SettlingClock) -> None:
        """Date changes in all groups by this present from now on."""
        self._present = present
        for group_set in self.groups.values():
            group_set.settle_with(present)

    def settled(self, until_ns: int) -> Content:
        """Return the roll-up of the settled content (see `GroupSet.settled`)."""
        count = digest = 0
        for group, group_set in self.groups.items():
            part_count, part_digest = group_set.settled(until_ns)
            count += part_count
            digest += part_digest * weight_of(group)
        return count, digest & MODULUS_MASK

    def join(self, other: DataSet) -> int:
        """Join with `other` (MERGE); return how many samples were new."""
        stored = 0
        for group, theirs in other.groups.items():
            ours = self.open_like(group, theirs)
            for sample in theirs.samples():
                stored += ours.apply(sample)[0] is ApplyOutcome.STORED
        return stored
