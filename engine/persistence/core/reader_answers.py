"""The side of a replica to which readers with durable subscriptions talk: it takes states, and answers."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.persistence.core.replica_messages import SubscriberAnswer, SubscriberState
from engine.persistence.core.subscription_exchange import batches
from engine.persistence.core.subscriptions import Subscriptions

MAX_READERS: Final = 10_000
"""Readers at one time; more get no answer, and are counted."""


@lazy_dataclass(slots=True)
class _Reader:
    """A present reader: its last state, and the number of its last request."""

    state: SubscriberState
    request: int = 0


class ReaderAnswers:
    """The readers of one replica.

    Args:
        own: the name by which readers ask this replica.
        groups: returns the groups that a state is about.

    Attributes:
        counters: `given` (samples), `readers_refused`.
    """

    def __init__(self, own: str, groups: Callable[[SubscriberState], Iterable[Subscriptions]]) -> None:
        self._own = own
        self._groups = groups
        self._readers: dict[str, _Reader] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    def knows(self, reader: str) -> bool:
        """Whether this reader has sent a state."""
        return reader in self._readers

    def heard(self, reader: str, state: SubscriberState) -> list[SubscriberAnswer]:
        """Take a state of a reader: what it has, acknowledges and asks.

        Args:
            reader: its id; each new reader has a new one, whatever its member name.
            state: its latest state; one that is not newer than the last is ignored.

        Returns:
            Answers to send once all changes of this call are on disk.
        """
        known = self._readers.get(reader)
        if known is None:
            if len(self._readers) >= MAX_READERS:
                self.counters["readers_refused"] += 1
                return []
            known = self._readers[reader] = _Reader(state)
        elif state.number <= known.state.number:
            return []
        known.state = state
        groups = list(self._groups(state))
        for group in groups:
            if state.deletes:
                group.delete(state.name)
            else:
                group.reader_came(reader, state.name, state.quorum, state.member)
        if not state.deletes:
            _acknowledge(state, groups)
        if state.asked != self._own or state.request <= known.request:
            return [SubscriberAnswer(state.number)]
        known.request = state.request
        return self._pending(state, groups)

    def _pending(self, state: SubscriberState, groups: list[Subscriptions]) -> list[SubscriberAnswer]:
        samples = [
            sample
            for group in groups
            for sample in group.pending(state.name, state.member, state.had, only_settled=state.only_settled)
        ]
        if len(groups) > 1:
            samples.sort(key=lambda sample: sample.order)
        self.counters["given"] += len(samples)
        *parts, last = batches(samples)
        missed = sum(group.missed for group in groups)
        return [
            *(SubscriberAnswer(state.number, state.request, part) for part in parts),
            SubscriberAnswer(state.number, state.request, last, is_last=True, missed=missed),
        ]

    def group_came(self, group: Subscriptions) -> None:
        """Add a new group: register the readers that read it."""
        for reader, known in self._readers.items():
            state = known.state
            if not state.deletes and group in self._groups(state):
                group.reader_came(reader, state.name, state.quorum, state.member)

    def left(self, reader: str) -> None:
        """Forget a reader that is gone."""
        known = self._readers.pop(reader, None)
        if known is not None:
            for group in self._groups(known.state):
                group.reader_left(reader)


def _acknowledge(state: SubscriberState, groups: list[Subscriptions]) -> None:
    """Give each acknowledgement to the groups that know its writer, or to all if none knows it.

    A reader acknowledges a repeated sample again, so a group that learns of a writer later hears of it.
    """
    for writer, numbers in state.acknowledged:
        knowing = [group for group in groups if group.knows(writer)]
        for group in knowing or groups:
            group.acknowledge(state.name, state.member, ((writer, numbers),))
