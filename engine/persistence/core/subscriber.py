"""A reader with a durable subscription: the replica it asks, its new samples, its acknowledgements.

It asks all connected replicas, one after the other, and tells each which samples it has, so that a replica
sends only samples that no other has given. When all have answered, the pending samples are complete. Later it
asks again from time to time: a writer may reach a replica and not the reader.

No clock and no DDS here. A sample is identified by (original writer, number).
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from typing import Final

from engine.persistence.core.messages import SubscriberAnswer, SubscriberState
from engine.persistence.core.subscription_ledger import Id, numbers_of

# At some 20 bytes each the state is below a megabyte, the size of the fastest messages.
MAX_TOLD: Final = 20_000
"""Samples in each of the two lists of a state: those that the reader has, and those that it acknowledges.
With more samples that are not acknowledged, it does not ask for others."""

# Chosen: some hundred megabytes at the worst, in the application's process.
MAX_SEEN: Final = 1_000_000
"""Samples that the reader remembers to detect repetitions; it forgets the oldest."""

# As the period in which replicas evaluate providers; a lost sample comes this much later.
PERIOD_S: Final = 5.0
"""Interval at which a reader asks for samples that its writers have not sent to it."""

# Four periods. Shorter would leave a replica that reads a large store.
PATIENCE_S: Final = 20.0
"""Time that a connected replica may be silent before the reader asks another one; it may be busy."""


class Subscriber:
    """The decisions of one reader.

    Args:
        topic: the topic that it reads.
        partitions: its partitions, as in `SubscriberState`.
        name: of the durable subscription.
        quorum: of the durable subscription.
        member: the reader's name in it.
        period_s: interval at which it asks again.
        asks: whether it wants samples at all.
        deletes: whether the durable subscription is to be deleted.

    Attributes:
        is_complete: whether all connected replicas, at least one, have given their pending samples.
        repeated: samples that came again.
        missed: the most samples that one replica had no room for.
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
        self._seen: dict[Id, None] = {}
        self._open: dict[Id, None] = {}
        self._acknowledged: dict[Id, int] = {}
        """Acknowledgements, each with the number of the first state that has it, 0 for none yet."""

    # Input.

    def present(self, replicas: Iterable[str], now: float) -> None:
        """Note which replicas are connected now."""
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
        """Note a sample from a writer or a replica; return whether it is new."""
        id_ = (writer, number)
        if id_ in self._seen:
            self.repeated += 1
            if id_ not in self._open and id_ not in self._acknowledged:
                self._acknowledged[id_] = 0  # its sender has not heard
                self._is_changed = True
            return False
        self._seen[id_] = None
        self._open[id_] = None
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return True

    def acknowledge(self, ids: Iterable[Id]) -> None:
        """Note that the application has acknowledged samples."""
        for id_ in ids:
            if id_ in self._open:
                del self._open[id_]
                self._acknowledged[id_] = 0
                self._is_changed = True

    def answer(self, replica: str, answer: SubscriberAnswer, now: float) -> None:
        """Take an answer of a replica; call `arrived` with its samples first.

        Args:
            replica: its name.
            answer: its answer.
            now: monotonic seconds.
        """
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
        """Forget acknowledgements that all connected replicas have stored."""
        stored = min(self._replicas.values(), default=0)
        while self._acknowledged:
            id_, since = next(iter(self._acknowledged.items()))
            if not 0 < since <= stored:
                self._is_changed |= not since  # there was no room for it in the last state
                return
            del self._acknowledged[id_]

    # Output.

    @property
    def is_heard(self) -> bool:
        """Whether all connected replicas, at least one, have its latest state on disk."""
        stored = self._replicas.values()
        return bool(stored) and not self._is_changed and min(stored) == self._number

    @property
    def is_alone(self) -> bool:
        """Whether no replica is connected."""
        return not self._replicas

    @property
    def due_s(self) -> float | None:
        """When `turn` must be called at the latest, monotonic seconds; None for not before an input."""
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
        """Return the state to send to all replicas now, if any."""
        if self._asked and now >= self._until_s:
            self._silences[self._asked] += 1  # the others first, then it again
            self._asked = ""
        if self._replicas and not self._asked and self._asks:
            self._ask(now)
        if not self._is_changed:
            return None
        self._is_changed = False
        self._number += 1
        acknowledged = dict(itertools.islice(self._acknowledged.items(), MAX_TOLD))
        self._acknowledged |= {id_: since or self._number for id_, since in acknowledged.items()}
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
            numbers_of(itertools.islice(self._open, MAX_TOLD)) if self._asked else (),
            numbers_of(acknowledged),
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
