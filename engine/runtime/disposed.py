"""Time since which a node has known that an instance is disposed (DDS 1.4, 2.2.3.5 DURABILITY_SERVICE)."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping

from engine.core.name_spaces import Group
from engine.dataset.group_set import GroupSet


@dataclasses.dataclass(slots=True)
class _Found:
    """The disposed instances of one set, each with the monotonic time of its last change."""

    group_set: GroupSet
    since_s: dict[bytes, float] = dataclasses.field(default_factory=dict)
    """Those that have not been looked at, in the order of their times."""
    looked_at: dict[bytes, float] = dataclasses.field(default_factory=dict)
    """Those that have been, the longest ago first."""

    def update(self, now: float) -> None:
        """Note the changes in the set."""
        for key in sorted(self.group_set.touched):
            self.since_s.pop(key, None)
            self.looked_at.pop(key, None)
            self.since_s[key] = now
        for times in (self.since_s, self.looked_at):
            if len(self.since_s) + len(self.looked_at) > len(self.group_set.disposed):
                for key in times.keys() - self.group_set.disposed:
                    del times[key]
        self.group_set.touched.clear()

    def take(self, until_s: float, most: int) -> list[bytes]:
        """Return some instances that were found by a time, and put them last."""
        again = list(itertools.islice(self.looked_at.items(), most))
        new = itertools.takewhile(lambda one: one[1] <= until_s, self.since_s.items())
        first = list(itertools.islice(new, most))
        for key, since in (*again, *first):
            self.looked_at.pop(key, None)
            self.since_s.pop(key, None)
            self.looked_at[key] = since
        return [key for key, since in (*again, *first) if since <= until_s]


class DisposedInstances:
    """The disposed instances of some groups, each with the moment at which this node found it in this state.

    The clocks of writers play no part. A change of an instance, such as an unregister, restarts its time; a
    set that replaces another one does not. Nothing of it outlives the process.
    """

    def __init__(self) -> None:
        self._found: dict[Group, _Found] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def look(self, groups: Mapping[Group, GroupSet], now: float) -> None:
        """Note the changes in these groups, and forget all others; `now` is monotonic, seconds."""
        self._found = {
            group: self._of(self._found.get(group), group_set, now)
            for group, group_set in groups.items()
            if group_set.disposed
        }

    @staticmethod
    def _of(found: _Found | None, group_set: GroupSet, now: float) -> _Found:
        if found is None or found.group_set is not group_set:
            known = found.since_s | found.looked_at if found is not None else {}
            times = {key: known.get(key, now) for key in sorted(group_set.disposed)}
            found = _Found(group_set, dict(sorted(times.items(), key=operator.itemgetter(1))))
            group_set.touched.clear()
        found.update(now)
        return found

    def until(self, group: Group, until_s: float, most: int) -> list[bytes]:
        """Return instances of a group that were found by `until_s`; in the end each of them has its turn.

        Args:
            group: the group.
            until_s: time on the monotonic clock, seconds.
            most: how many to look at of those that are new, and of those that were returned before.
        """
        found = self._found.get(group)
        return found.take(until_s, most) if found is not None else []
