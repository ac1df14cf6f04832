"""A reader with a durable subscription: which replica it asks, what is new to it, what it has acknowledged.

It asks every replica that is there, one after the other, and tells each what it has: so a replica sends
only what no other has given. When all have answered, what was pending is complete. Later it asks again from
time to time: its writers may reach a replica and not the reader.

No clock and no DDS here. Samples are known by (original writer, number).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable
from typing import Final

from engine.persistence.core.ledger import Numbers
from engine.persistence.core.subscription_messages import SubscriberAnswer, SubscriberState

MAX_TOLD: Final = 20_000
"""Samples in a state, each of those that the reader has and those that it acknowledges. While it has more
that are not acknowledged it does not ask for others."""

MAX_SEEN: Final = 1_000_000
"""Samples that are remembered, so that none comes twice; the oldest are forgotten."""

PERIOD_S: Final = 5.0
"""How often a reader asks for what its writers have not sent it."""

PATIENCE_S: Final = 20.0
"""How long a replica that is there may be silent before another one is asked; it may have much to do."""

_Id = tuple[str, int]


@dataclasses.dataclass(slots=True)
class _Acknowledged:
    """Since which state it has been told; 0 for not yet."""

    since: int = 0


class Subscriber:
    """The decisions of one reader.

    Args:
        topic, partitions: what it reads.
        name, quorum: of the durable subscription.
        member: the reader's name in it.
        period_s: how often it asks again.
        asks: whether it wants samples at all.
        deletes: the durable subscription is to be deleted.

    Attributes:
        is_complete: every replica that was there, one at least, has given what was pending.
        repeated: samples that came again.
        missed: what replicas could not keep for durable subscriptions, at most.
    """

    def __init__(
        self,
        topic: str,
        partitions: tuple[str, ...],
        name: str,
        quorum: int,
        member: str,
        period_s: float = PERIOD_S,
        *,
        asks: bool = True,
        deletes: bool = False,
    ) -> None:
        self._asks, self._deletes = asks, deletes
        self.topic, self.partitions = topic, partitions
        self.name, self.quorum, self.member = name, quorum, member
        self.is_complete = False
        self.repeated = 0
        self.missed = 0
        self._period_s = period_s
        self._replicas: dict[str, int] = {}
        self._answered: set[str] = set()
        self._silences: collections.Counter[str] = collections.Counter()
        self._asked = ""
        self._request = 0
        self._number = 0
        self._is_changed = True
        self._until_s = 0.0
        self._again_s = 0.0
        self._seen: dict[_Id, None] = {}
        self._open: dict[_Id, None] = {}
        self._acknowledged: dict[_Id, _Acknowledged] = {}

    # What happens.

    def present(self, replicas: Iterable[str], now: float) -> None:
        """Which replicas are connected now."""
        there = set(replicas)
        for name in self._replicas.keys() - there:
            del self._replicas[name]
            self._answered.discard(name)
            del self._silences[name]
            if self._asked == name:
                self._asked = ""
        for name in sorted(there - self._replicas.keys()):
            self._replicas[name] = 0
            self._is_changed = True
        self._conclude(now)

    def arrived(self, writer: str, number: int) -> bool:
        """A sample is there, from wherever; whether it is new."""
        id_ = (writer, number)
        if id_ in self._seen:
            self.repeated += 1
            if id_ not in self._open and id_ not in self._acknowledged:
                self._acknowledged[id_] = _Acknowledged()  # who gave it has not heard
                self._is_changed = True
            return False
        self._seen[id_] = None
        self._open[id_] = None
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return True

    def acknowledge(self, ids: Iterable[_Id]) -> None:
        """The application has done with these samples."""
        for id_ in ids:
            if id_ in self._open:
                del self._open[id_]
                self._acknowledged[id_] = _Acknowledged()
                self._is_changed = True

    def answer(self, replica: str, answer: SubscriberAnswer, now: float) -> None:
        """A replica says something; its samples are given to `arrived` before."""
        if replica not in self._replicas:
            return
        self._replicas[replica] = max(self._replicas[replica], min(answer.stored, self._number))
        self._confirm()
        if answer.request == self._request and replica == self._asked:
            self._until_s = now + PATIENCE_S
            if answer.is_last:
                self.missed = max(self.missed, answer.missed)
                self._answered.add(replica)
                self._asked = ""
        self._conclude(now)

    def _conclude(self, now: float) -> None:
        if self._replicas and not self._asked and self._answered >= self._replicas.keys():
            if not self.is_complete or self._again_s == 0.0:
                self._again_s = now + self._period_s
            self.is_complete = True

    def _confirm(self) -> None:
        """What all replicas that are there have stored need not be told any more."""
        stored = min(self._replicas.values(), default=0)
        for id_ in list(itertools.takewhile(lambda id_: self._is_stored(id_, stored), self._acknowledged)):
            del self._acknowledged[id_]
        if self._acknowledged and not next(iter(self._acknowledged.values())).since:
            self._is_changed = True  # there was no room for them in the last state

    def _is_stored(self, id_: _Id, stored: int) -> bool:
        return 0 < self._acknowledged[id_].since <= stored

    # What it says.

    @property
    def is_heard(self) -> bool:
        """Every replica that is there, one at least, has its latest state on disk."""
        stored = self._replicas.values()
        return bool(stored) and not self._is_changed and min(stored) == self._number

    @property
    def is_alone(self) -> bool:
        """No replica is there."""
        return not self._replicas

    @property
    def due_s(self) -> float | None:
        """When `turn` has something to do at the latest; None for not before something happens."""
        if self._is_changed:
            return 0.0
        if not self._replicas or not self._asks:
            return None
        if self._asked:
            return self._until_s
        if self._answered >= self._replicas.keys():
            return None if self._is_busy else self._again_s
        return 0.0

    @property
    def _is_busy(self) -> bool:
        return len(self._open) > MAX_TOLD

    def turn(self, now: float) -> SubscriberState | None:
        """What to tell all replicas now, if anything."""
        if self._asked and now >= self._until_s:
            self._silences[self._asked] += 1  # the others first, then it again
            self._asked = ""
        if self._replicas and not self._asked and self._asks:
            self._ask(now)
        if not self._is_changed:
            return None
        self._is_changed = False
        self._number += 1
        told = dict(itertools.islice(self._acknowledged.items(), MAX_TOLD))
        for each in told.values():
            each.since = each.since or self._number
        return SubscriberState(
            self.topic,
            self.partitions,
            self.name,
            self.quorum,
            self.member,
            self._number,
            self._asked,
            self._request,
            self.is_complete,
            _numbers(itertools.islice(self._open, MAX_TOLD)) if self._asked else (),
            _numbers(told),
            self._deletes,
        )

    def _ask(self, now: float) -> None:
        if self._answered >= self._replicas.keys():
            if now < self._again_s or self._is_busy:
                return
            self._answered.clear()
            self._again_s = now + self._period_s
        unanswered = self._replicas.keys() - self._answered
        self._asked = min(unanswered, key=lambda name: (self._silences[name], name))
        self._request += 1
        self._until_s = now + PATIENCE_S
        self._is_changed = True


def _numbers(ids: Iterable[_Id]) -> Numbers:
    found: dict[str, list[int]] = {}
    for writer, number in ids:
        found.setdefault(writer, []).append(number)
    return tuple((writer, tuple(sorted(numbers))) for writer, numbers in sorted(found.items()))
