"""The exchange of durable subscriptions between replicas: acknowledgements, and samples that one lacks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica_messages import (
    Fetch,
    FetchedSamples,
    OriginalSample,
    PeerMessage,
    SubscriptionUpdate,
)
from engine.persistence.core.subscription_ledger import LedgerState, Numbers

MAX_HELD: Final = 100_000
MAX_HELD_BYTES: Final = 256 << 20
"""Samples, and payload bytes, that a replica keeps for durable subscriptions. New ones beyond are not kept,
counted and reported. When there is room again they come from another replica that has kept them, if any."""

BATCH_SAMPLES: Final = 256
BATCH_BYTES: Final = 512 << 10
"""Samples and bytes in one message; a single sample may be larger."""

Id = tuple[str, int]
"""A sample: its writer, and its number there."""


@lazy_dataclass(slots=True)
class HeldRoom:
    """The samples, and payload bytes, that are kept of all groups that share a bound."""

    samples: int = 0
    size: int = 0

    def has(self, size: int) -> bool:
        """Whether there is room for one more sample of `size` bytes."""
        return self.samples < MAX_HELD and self.size + size <= MAX_HELD_BYTES

    def take(self, size: int) -> None:
        """Count a sample that is kept."""
        self.samples += 1
        self.size += size

    def give_back(self, size: int) -> None:
        """Discount a sample that is no longer kept."""
        self.samples -= 1
        self.size -= size


@lazy_dataclass(slots=True)
class HeldSample:
    """A sample, the subscriptions that have not acknowledged it, and the period in which it came."""

    sample: OriginalSample
    wanted_by: set[str]
    period: int


def numbers_of(ids: Iterable[Id] | Mapping[Id, object]) -> Numbers:
    """Return the numbers by writer, in order."""
    found: dict[str, list[int]] = {}
    for writer, number in ids:
        found.setdefault(writer, []).append(number)
    return tuple((writer, tuple(sorted(numbers))) for writer, numbers in sorted(found.items()))


def ids_of(numbers: Numbers) -> Iterable[Id]:
    """Yield (writer, number) for all numbers."""
    return ((writer, number) for writer, each in numbers for number in each)


def batches(samples: Iterable[OriginalSample]) -> list[tuple[OriginalSample, ...]]:
    """Split samples into batches for messages; at least one, which may be empty."""
    parts: list[list[OriginalSample]] = [[]]
    size = 0
    for sample in samples:
        if parts[-1] and (len(parts[-1]) == BATCH_SAMPLES or size + len(sample.payload) > BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(sample)
        size += len(sample.payload)
    return [tuple(part) for part in parts]


@lazy_dataclass(slots=True)
class _Peer:
    """Another replica while it is connected.

    Attributes:
        ledgers: acknowledgements to tell it.
        offers: samples held here, to tell it.
        offered: samples that it holds and this replica lacks, with the period in which it told.
    """

    ledgers: list[LedgerState] = dataclasses.field(default_factory=list)
    offers: list[Id] = dataclasses.field(default_factory=list)
    offered: dict[Id, int] = dataclasses.field(default_factory=dict)


class GroupExchange:
    """The exchange of one group with all connected replicas.

    Args:
        settings: of data synchronization.
        held: the samples that are held here.
        room: of all groups.
        is_wanted: whether the quorum of a durable subscription has not acknowledged a sample.
    """

    def __init__(
        self,
        settings: SynchronizationSettings,
        held: Mapping[Id, HeldSample],
        room: HeldRoom,
        is_wanted: Callable[[Id], bool],
    ) -> None:
        self._settings = settings
        self._held = held
        self._room = room
        self._is_wanted = is_wanted
        self._peers: dict[str, _Peer] = {}
        self._to_peers: list[tuple[str, PeerMessage]] = []
        self._period = 0

    def messages(self) -> list[tuple[str, PeerMessage]]:
        """Take the messages to send, in order: (receiver, message)."""
        messages, self._to_peers = self._to_peers, []
        return messages

    # Connections.

    def connected(self, peer: str, ledgers: Sequence[LedgerState]) -> None:
        """Tell a replica whose link is up all ledgers, and which samples are held."""
        self._peers[peer] = _Peer()
        if self._settings.synchronize_durable_subscriptions:
            self._to_peers.append((peer, SubscriptionUpdate(tuple(ledgers), numbers_of(self._held))))

    def disconnected(self, peer: str) -> None:
        """Forget a replica, whose link is down."""
        self._peers.pop(peer, None)

    def hears(self, peer: str) -> bool:
        """Whether messages of this replica count."""
        return peer in self._peers and self._settings.synchronize_durable_subscriptions

    # Input.

    def learned(self, new: LedgerState, source: str) -> None:
        """Plan to tell others a new part of a ledger; `source` is the replica that told it, if any."""
        for name, peer in self._peers.items():
            if name != source:
                peer.ledgers.append(new)

    def held(self, id_: Id) -> None:
        """Plan to tell others that a sample is held here."""
        for peer in self._peers.values():
            if peer.offered.pop(id_, None) is None:
                peer.offers.append(id_)

    def offered(self, peer: str, ids: Iterable[Id]) -> None:
        """Note samples that another replica holds."""
        offered = self._peers[peer].offered
        for id_ in ids:
            if id_ not in self._held and len(offered) < MAX_HELD:  # nobody holds more
                offered[id_] = self._period

    def hand(self, peer: str, samples: Sequence[OriginalSample]) -> None:
        """Send samples to a replica that asked for them."""
        if samples:
            self._to_peers.extend((peer, FetchedSamples(part)) for part in batches(samples))

    def period(self) -> None:
        """Tell others news, and ask them for missing samples."""
        if self._settings.synchronize_durable_subscriptions:
            if self._settings.enable:
                self._fetch()
            for name, peer in sorted(self._peers.items()):
                offers = numbers_of(id_ for id_ in peer.offers if id_ in self._held)
                if peer.ledgers or offers:
                    self._to_peers.append((name, SubscriptionUpdate(tuple(peer.ledgers), offers)))
                peer.ledgers, peer.offers = [], []
        self._period += 1

    def _fetch(self) -> None:
        """Ask others for missing samples; those told in this period may be on their way from the writer."""
        asked: set[Id] = set()
        for name, peer in sorted(self._peers.items()):
            for id_ in [each for each in peer.offered if each in self._held or not self._is_wanted(each)]:
                del peer.offered[id_]
            due = (id_ for id_, since in peer.offered.items() if since < self._period and id_ not in asked)
            room = MAX_HELD - self._room.samples - len(asked)
            wanted = list(itertools.islice(due, max(0, room)))
            if wanted and self._room.has(0):
                asked.update(wanted)
                for id_ in wanted:
                    del peer.offered[id_]
                self._to_peers.append((name, Fetch(numbers_of(wanted))))
