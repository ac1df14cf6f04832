"""Where readers with durable subscriptions talk to a replica: it hears their states, and answers."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

from engine.persistence.core.held_samples import batches
from engine.persistence.core.subscription_messages import SubscriberAnswer, SubscriberState
from engine.persistence.core.subscriptions import Subscriptions

MAX_READERS: Final = 10_000
"""Readers that are there at one time; more get no answer, and are counted."""


@dataclasses.dataclass(slots=True)
class _Reader:
    """A reader that is there: its last state, and its last question."""

    state: SubscriberState
    request: int = 0


class ReaderDesk:
    """The readers of one replica.

    Args:
        own: how readers call this replica.
        groups: the groups that a state is about.

    Attributes:
        counters: `given` (samples), `readers_refused`.
    """

    def __init__(self, own: str, groups: Callable[[SubscriberState], Iterable[Subscriptions]]) -> None:
        self._own = own
        self._groups = groups
        self._readers: dict[str, _Reader] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    def knows(self, reader: str) -> bool:
        """Whether this reader has said something."""
        return reader in self._readers

    def heard(self, reader: str, state: SubscriberState) -> list[SubscriberAnswer]:
        """A reader says what it has, acknowledges, and asks.

        Args:
            reader: another one for each that is made, whatever its member name.
            state: its latest state; one that is not newer than the last is left out.

        Returns:
            What to answer once everything that this changes is on disk.
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
        """A group is new: readers that it concerns are its readers."""
        for reader, known in self._readers.items():
            state = known.state
            if not state.deletes and group in self._groups(state):
                group.reader_came(reader, state.name, state.quorum, state.member)

    def left(self, reader: str) -> None:
        """A reader is gone."""
        known = self._readers.pop(reader, None)
        if known is not None:
            for group in self._groups(known.state):
                group.reader_left(reader)


def _acknowledge(state: SubscriberState, groups: list[Subscriptions]) -> None:
    """Tell each group of the writers that it has heard of; of a writer that none has, all.

    A reader acknowledges again what it is given again: so a group is told that hears of a writer later.
    """
    for writer, numbers in state.acknowledged:
        knowing = [group for group in groups if group.knows(writer)]
        for group in knowing or groups:
            group.acknowledge(state.name, state.member, ((writer, numbers),))
