"""The exchange of durable subscriptions between replicas: acknowledgements, and samples that one lacks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.persistence.core import held_samples as held_module
from engine.persistence.core.held_samples import HeldRoom, HeldSample, Id, batches, numbers_of
from engine.persistence.core.ledger import LedgerState
from engine.persistence.core.messages import OriginalSample
from engine.persistence.core.settings import SynchronizationSettings
from engine.persistence.core.subscription_messages import Books, Fetch, Handed, PeerMessage


@dataclasses.dataclass(slots=True)
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
            self._to_peers.append((peer, Books(tuple(ledgers), numbers_of(self._held))))

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
            if id_ not in self._held and len(offered) < held_module.MAX_HELD:  # nobody holds more
                offered[id_] = self._period

    def hand(self, peer: str, samples: Sequence[OriginalSample]) -> None:
        """Send samples to a replica that asked for them."""
        if samples:
            self._to_peers.extend((peer, Handed(part)) for part in batches(samples))

    def period(self) -> None:
        """Tell others news, and ask them for missing samples."""
        if self._settings.synchronize_durable_subscriptions:
            if self._settings.enable:
                self._fetch()
            for name, peer in sorted(self._peers.items()):
                offers = numbers_of(id_ for id_ in peer.offers if id_ in self._held)
                if peer.ledgers or offers:
                    self._to_peers.append((name, Books(tuple(peer.ledgers), offers)))
                peer.ledgers, peer.offers = [], []
        self._period += 1

    def _fetch(self) -> None:
        """Ask others for missing samples; those told in this period may be on their way from the writer."""
        asked: set[Id] = set()
        for name, peer in sorted(self._peers.items()):
            for id_ in [each for each in peer.offered if each in self._held or not self._is_wanted(each)]:
                del peer.offered[id_]
            due = (id_ for id_, since in peer.offered.items() if since < self._period and id_ not in asked)
            room = held_module.MAX_HELD - self._room.samples - len(asked)
            wanted = list(itertools.islice(due, max(0, room)))
            if wanted and self._room.has(0):
                asked.update(wanted)
                for id_ in wanted:
                    del peer.offered[id_]
                self._to_peers.append((name, Fetch(numbers_of(wanted))))
