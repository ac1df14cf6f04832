"""Durable subscriptions by topic and partitions, also of groups that have no writer yet.

They are kept, synchronized and deleted as durable subscriptions of a group of their own, without samples.
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
"""The id of that group; no other group has it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """A durable subscription of all groups of a topic in partitions that an expression matches."""

    topic: str
    name: str
    partitions: tuple[str, ...]

    @classmethod
    def of(cls, state: SubscriberState) -> Registration:
        """Return the registration that a reader needs."""
        return cls(state.topic, state.name, state.partitions or ("",))

    @property
    def key(self) -> str:
        """Its name as a durable subscription."""
        return json.dumps([self.topic, self.name, *self.partitions])

    @classmethod
    def read(cls, key: str) -> Registration | None:
        """Return the registration of a key; None if it is not a key."""
        try:
            parts = json.loads(key)
        except (ValueError, RecursionError):
            return None
        if not isinstance(parts, list) or len(parts) < 3 or not all(isinstance(one, str) for one in parts):
            return None
        return cls(parts[0], parts[1], tuple(parts[2:]))

    def concerns(self, description: GroupDescription) -> bool:
        """Whether it includes this group."""
        group = description.group
        return self.topic == group.topic and any(
            expressions.matches(pattern, group.partition) for pattern in self.partitions
        )


def active(stock: Subscriptions) -> Iterator[tuple[Registration, int]]:
    """Yield all registrations, with their quorums."""
    for each in stock.status():
        registration = Registration.read(each.name)
        if registration is not None:
            yield registration, each.quorum


def delete(stock: Subscriptions, given: Registration) -> None:
    """Delete registrations of the same topic and name whose partitions overlap with those given."""
    for each, _ in list(active(stock)):
        overlaps = any(
            one == pattern or expressions.matches(pattern, one)
            for one in each.partitions
            for pattern in given.partitions
        )
        if (each.topic, each.name) == (given.topic, given.name) and overlaps:
            stock.delete(each.key)
