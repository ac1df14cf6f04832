"""The samples of one name-space: groups of them, with a roll-up of their digests."""

from __future__ import annotations

import functools
import hashlib

from engine.core.name_spaces import Group
from engine.dataset.group_set import MODULUS_MASK, TIMELESS, ApplyOutcome, GroupSet, Summary
from engine.dataset.groups import NO_LIMITS, GroupDescription, GroupLimits
from engine.dataset.limited import LimitedSet
from engine.dataset.settling import Content, Present


@functools.lru_cache(maxsize=65_536)
def weight_of(group: Group) -> int:
    """Return an odd number below 2**128 that is, in practice, unique to a group.

    It distinguishes sets with the same samples in different groups, as of a writer in several partitions.
    """
    lengths = ",".join(str(len(part)) for part in group)
    text = f"{lengths},{''.join(group)}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest()) | 1


def make_set(depth: int, limits: GroupLimits = NO_LIMITS, present: Present | None = None) -> GroupSet:
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
        """Return the set of a group, with the depth and limits of the group's QoS."""
        return self.open_group(description.group, description.qos.history_depth, description.qos.limits)

    def open_like(self, group: Group, other: GroupSet) -> GroupSet:
        """Return the set of a group, with depth, limits and floor of another set."""
        existing = self.open_group(group, other.depth, other.limits)
        existing.raise_floor(other.floor_ns)
        return existing

    def summary(self) -> Summary:
        """Return the roll-up of all groups; an empty group counts like an absent one."""
        count = digest = newest = 0
        for group, group_set in self.groups.items():
            part = group_set.summary()
            count += part.count
            digest = (digest + part.digest * weight_of(group)) & MODULUS_MASK
            newest = max(newest, part.newest_ns)
        return Summary(count, digest, newest)

    def settle_with(self, present: Present) -> None:
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
