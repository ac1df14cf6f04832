"""What replicas tell each other of durable subscriptions: acknowledgements, and samples that one lacks."""

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
        ledgers: acknowledgements that it has not been told of.
        offers: samples that are held here and that it has not been told of.
        offered: what it holds and we lack, and since which period we know.
    """

    ledgers: list[LedgerState] = dataclasses.field(default_factory=list)
    offers: list[Id] = dataclasses.field(default_factory=list)
    offered: dict[Id, int] = dataclasses.field(default_factory=dict)


class Exchange:
    """The other replicas of one group, as long as they are connected.

    Args:
        settings: how this replica synchronizes.
        held: what is kept here.
        room: how much more can be.
        is_wanted: whether a durable subscription has not acknowledged a sample.
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
        """What is to be sent, in order: (receiver, message)."""
        messages, self._to_peers = self._to_peers, []
        return messages

    # Who is there.

    def connected(self, peer: str, ledgers: Sequence[LedgerState]) -> None:
        """A link is up: the other is told all ledgers, and what is kept."""
        self._peers[peer] = _Peer()
        if self._settings.synchronize_durable_subscriptions:
            self._to_peers.append((peer, Books(tuple(ledgers), numbers_of(self._held))))

    def disconnected(self, peer: str) -> None:
        """The link is down."""
        self._peers.pop(peer, None)

    def hears(self, peer: str) -> bool:
        """Whether what this one says counts."""
        return peer in self._peers and self._settings.synchronize_durable_subscriptions

    # What happens.

    def learned(self, new: LedgerState, source: str) -> None:
        """Something new of a ledger, from another replica or, with an empty name, from a reader."""
        for name, peer in self._peers.items():
            if name != source:
                peer.ledgers.append(new)

    def held(self, id_: Id) -> None:
        """One more sample is kept here."""
        for peer in self._peers.values():
            if peer.offered.pop(id_, None) is None:
                peer.offers.append(id_)

    def offered(self, peer: str, ids: Iterable[Id]) -> None:
        """Another replica keeps these."""
        offered = self._peers[peer].offered
        for id_ in ids:
            if id_ not in self._held and len(offered) < held_module.MAX_HELD:  # nobody holds more
                offered[id_] = self._period

    def hand(self, peer: str, samples: Sequence[OriginalSample]) -> None:
        """Give another replica what it has asked for."""
        if samples:
            self._to_peers.extend((peer, Handed(part)) for part in batches(samples))

    def period(self) -> None:
        """Tell others what is new, and ask them for what is missing here."""
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
        """Ask for what others hold and we lack; what they have told just now may be on its way."""
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
