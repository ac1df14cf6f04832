"""Events that nodes and persistence services remember from before a feed was opened, passed on once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final, TypeVar

from engine.runtime.monitor import NodeEvent, NodePast
from engine.tracing.levels import Level

MAX_KNOWN: Final = 1_000
"""Events of INFO and above remembered for one sender, more than its past can hold."""
MAX_SENDERS: Final = 2_000

_REMEMBERED: Final = frozenset(level.name for level in Level if level >= Level.INFO)
T = TypeVar("T")


class SeenEvents:
    """The events that have already come. A past repeats events, before or after they come by themselves."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[tuple[int, int], None]] = {}

    def new(self, item: T) -> Iterator[T | NodeEvent | NodePast]:
        """Yield the new parts of an item; a past becomes its new events and the past without events."""
        if isinstance(item, NodePast):
            yield from filter(self._is_new, item.events)
            yield dataclasses.replace(item, events=())
        elif not isinstance(item, NodeEvent) or item.level not in _REMEMBERED or self._is_new(item):
            yield item

    def _is_new(self, event: NodeEvent) -> bool:
        keys = self._keys.get(event.node)
        if keys is None:
            if len(self._keys) >= MAX_SENDERS:
                del self._keys[next(iter(self._keys))]
            keys = self._keys[event.node] = {}
        key = event.time_ns, event.number
        if key in keys:
            return False
        keys[key] = None
        if len(keys) > MAX_KNOWN:
            del keys[next(iter(keys))]
        return True
