"""Since when a node knows that an instance is disposed (DDS 1.4, 2.2.3.5 DURABILITY_SERVICE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.core.namespaces import Group
    from engine.dataset.dataset import GroupSet

    _Found = dict[bytes, tuple[int, float]]
    """By instance: the sum of its samples' digests, and since when it has been as it is."""


class DisposedInstances:
    """The disposed instances of some groups, each with the moment at which this node found it as it is.

    One entry for each disposed instance of those groups. The clocks of writers play no part. Every change of
    an instance, such as an unregister, counts anew. Nothing of it outlives the process.
    """

    def __init__(self) -> None:
        self._found: dict[Group, _Found] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def look(self, groups: Mapping[Group, GroupSet], now: float) -> None:
        """Find out what has changed in these groups, and forget all others; `now` is monotonic, seconds."""
        found: dict[Group, _Found] = {}
        for group, group_set in groups.items():
            if not group_set.disposed:
                continue
            before, after = self._found.get(group, {}), found.setdefault(group, {})
            for key in group_set.disposed:
                content = sum(int.from_bytes(sample.digest) for sample in group_set.instance(key))
                known = before.get(key)
                after[key] = known if known is not None and known[0] == content else (content, now)
        self._found = found

    def until(self, group: Group, until_s: float) -> Iterator[bytes]:
        """The instances of a group that were found by then, in the order of their keys."""
        found = self._found.get(group, {})
        return iter(sorted(key for key, (_, since_s) in found.items() if since_s <= until_s))
