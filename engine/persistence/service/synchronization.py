"""The part that synchronizes last values: `engine.persistence.core.replica` with groups, wire and store."""

from __future__ import annotations

import collections
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from engine.dataset.groups import GroupDescription
from engine.persistence.core.messages import (
    Announcement,
    GroupDescriptions,
    Inventory,
    Message,
    MessageFault,
    OriginalSample,
    ReplicaMessage,
    SampleBatch,
    Subscription,
    merged,
)
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import BATCH_SAMPLES, Replica
from engine.persistence.service import kept_groups as groups_module
from engine.persistence.service import replica_rows as rows
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups
from engine.persistence.service.service_part import ServicePart, Write

MAX_WAITING: Final = 100_000
"""Messages that may wait for a slow replica; beyond, its link is restarted."""


class Synchronization(ServicePart):
    """The last values of the service. With `enable` false it sends no messages.

    Args:
        name: of this replica.
        settings: of data synchronization.
        groups: the known groups.

    Attributes:
        replica: the decisions.
        damaged: rows of the store that were damaged at the start.
        counters: `received` (samples from other replicas).
    """

    tables = rows.TABLES + groups_module.TABLES
    kinds = (GroupDescriptions, Announcement, Subscription, SampleBatch, Inventory)

    def __init__(self, name: str, settings: SynchronizationSettings, groups: KnownGroups) -> None:
        super().__init__()
        self._name = name
        self._settings = settings
        self._groups = groups
        self._waiting: dict[str, collections.deque[GroupDescriptions | Message]] = {}
        self._due_s = 0.0
        self.replica = Replica(name, settings, room=groups.room)
        self.damaged = 0
        self.counters: collections.Counter[str] = collections.Counter()
        self._from_others: list[OriginalSample] = []

    def restore(self, store: sqlite3.Connection) -> None:
        """Load groups and last values."""
        self._groups.restore(store)
        saved, self.damaged = rows.read(store)
        self.replica = Replica(self._name, self._settings, saved, self._groups.room)

    def changes(self) -> Write | None:
        """Take the changes of groups, last values and numbers, all of this moment."""
        saved, described = self.replica.changes(), self._groups.changes()
        if not (saved.kept or saved.had or saved.gone or described):
            return None
        write_rows = rows.writing(saved)

        def write(store: sqlite3.Connection) -> None:
            store.executemany("INSERT OR REPLACE INTO sample_group VALUES (?, ?)", described)
            write_rows(store)

        return write

    def connected(self, peer: str) -> None:
        """Tell a replica all groups, and begin to synchronize."""
        if self._settings.enable:
            super().connected(peer)
            self._waiting[peer] = collections.deque()
            self._tell_groups([peer], [description for _, description in self._groups.items()])
            self.replica.connected(peer)

    def disconnected(self, peer: str) -> None:
        """Forget a replica, and its waiting messages."""
        if peer in self.peers:
            super().disconnected(peer)
            del self._waiting[peer]
            self.replica.disconnected(peer)

    def group_seen(self, description: GroupDescription) -> None:
        """Note a group that has a writer, and tell others if it is new."""
        if self._groups.learn(description):
            known = self._groups.get(groups_module.group_id(description.group))
            self._tell_groups(sorted(self.peers), [known or description])

    def _tell_groups(self, peers: Sequence[str], groups: Sequence[GroupDescription]) -> None:
        for peer in peers if groups else ():
            self._waiting[peer].append(GroupDescriptions(tuple(groups)))

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Keep samples from original writers."""
        self.replica.samples_arrived(samples)

    def receive(self, peer: str, message: GroupDescriptions | Message) -> None:
        """Take a message of another replica."""
        if peer not in self.peers:
            return
        if isinstance(message, GroupDescriptions):
            self._groups.learn_all(message.groups)
            return
        if isinstance(message, SampleBatch):
            for kept in message.samples:
                self._groups.check(kept.sample)
            self.counters["received"] += len(message.samples)
            self._from_others += [kept.sample for kept in message.samples]
        elif isinstance(message, Inventory) and any(len(key) < ID_BYTES for key, _ in message.entries):
            raise MessageFault("an instance without a group")
        self.replica.receive(peer, message)

    def take_from_others(self) -> tuple[list[OriginalSample], list[OriginalSample]]:
        """Take the samples that came from other replicas, and those of them that are last values now."""
        taken, self._from_others = self._from_others, []
        return taken, [each for each in taken if self.replica.value(each.key) is each]

    def messages(self) -> Iterator[tuple[str, ReplicaMessage]]:
        """Take the messages to replicas whose queues have room; groups go before their samples."""
        for peer, message in merged(self.replica.messages(), BATCH_SAMPLES):
            if peer in self._waiting:
                self._waiting[peer].append(message)
        for peer, waiting in list(self._waiting.items()):
            while waiting and self.has_room(peer):
                yield peer, waiting.popleft()

    def overrun(self) -> list[str]:
        """Return the replicas for which too many messages wait: their links must be restarted."""
        return [peer for peer, waiting in self._waiting.items() if len(waiting) > MAX_WAITING]

    def turn(self, now_s: float) -> float:
        """Evaluate the providers once in each remote_provider_selection_period."""
        period_s = self._settings.period_ms / 1000
        if not self._due_s:
            self._due_s = now_s + period_s
        elif now_s >= self._due_s:
            self.replica.period()
            self._due_s = max(self._due_s + period_s, now_s)
        return self._due_s
