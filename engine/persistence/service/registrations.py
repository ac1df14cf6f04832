"""Durable subscriptions by topic and partitions, whether or not anybody has written there yet.

They are kept, synchronized and deleted as durable subscriptions of a group of their own, in which there are
no samples.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Final

from engine.core import expressions
from engine.dataset.groups import GroupDescription
from engine.persistence.core.subscription_messages import SubscriberState
from engine.persistence.core.subscriptions import Subscriptions
from engine.persistence.service.groups import ID_BYTES

GROUP: Final = bytes(ID_BYTES)
"""The group that they have for themselves; no other has this id."""


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """A durable subscription of every group of a topic whose partition one of the expressions matches."""

    topic: str
    name: str
    partitions: tuple[str, ...]

    @classmethod
    def of(cls, state: SubscriberState) -> Registration:
        """The one that a reader needs."""
        return cls(state.topic, state.name, state.partitions or ("",))

    @property
    def key(self) -> str:
        """As the name of a durable subscription."""
        return json.dumps([self.topic, self.name, *self.partitions])

    @classmethod
    def read(cls, key: str) -> Registration | None:
        """None for what is no key."""
        try:
            parts = json.loads(key)
        except (ValueError, RecursionError):
            return None
        if not isinstance(parts, list) or len(parts) < 3 or not all(isinstance(one, str) for one in parts):
            return None
        return cls(parts[0], parts[1], tuple(parts[2:]))

    def concerns(self, description: GroupDescription) -> bool:
        """Whether it is one of this group."""
        group = description.group
        return self.topic == group.topic and any(
            expressions.matches(pattern, group.partition) for pattern in self.partitions
        )


def active(stock: Subscriptions) -> Iterator[tuple[Registration, int]]:
    """Those that there are, with their quorums."""
    for each in stock.status():
        registration = Registration.read(each.name)
        if registration is not None:
            yield registration, each.quorum


def delete(stock: Subscriptions, given: Registration) -> None:
    """Delete those of this topic and name in partitions that the given expressions match."""
    for each, _ in list(active(stock)):
        overlaps = any(
            one == pattern or expressions.matches(pattern, one)
            for one in each.partitions
            for pattern in given.partitions
        )
        if (each.topic, each.name) == (given.topic, given.name) and overlaps:
            stock.delete(each.key)
