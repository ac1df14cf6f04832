"""Time since which a node has known that an instance is disposed (DDS 1.4, 2.2.3.5 DURABILITY_SERVICE)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.core.name_spaces import Group
    from engine.dataset.group_set import GroupSet


@dataclasses.dataclass(slots=True)
class _Found:
    """The disposed instances of one set, each with the monotonic time of its last change."""

    group_set: GroupSet
    since_s: dict[bytes, float] = dataclasses.field(default_factory=dict)


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
            known = found.since_s if found is not None else {}
            found = _Found(group_set, {key: known.get(key, now) for key in group_set.disposed})
        else:
            found.since_s.update(dict.fromkeys(group_set.touched, now))
            if len(found.since_s) > len(group_set.disposed):
                for key in found.since_s.keys() - group_set.disposed:
                    del found.since_s[key]
        group_set.touched.clear()
        return found

    def until(self, group: Group, until_s: float) -> Iterator[bytes]:
        """Return the instances of a group that were found by `until_s`, in the order of their keys."""
        found = self._found.get(group)
        since_s = found.since_s if found is not None else {}
        return iter(sorted(key for key, since in since_s.items() if since <= until_s))
