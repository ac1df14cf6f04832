"""The live feed of nodes and persistence services; each event comes once. It subscribes and never writes."""

from __future__ import annotations

import collections
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from engine.core.untrusted import Newest, words_of
from engine.dds.channel import CONSOLE_TOPICS, PARTITION, PAST_TOPICS, Channel, ReceivedMessage
from engine.dds.discovery import Discovery, EndpointSeen, ParticipantGone, ParticipantSeen
from engine.dds.endpoints import DomainEndpoints
from engine.dds.errors import DdsError
from engine.dds.interfaces import (
    beyond_loopback,
    broken_links,
    interface_of,
    known_addresses,
    links_of,
    peers_of,
    without_route,
)
from engine.dds.participant import NODE_ID_BYTES, NodeParticipant, TagRole
from engine.dds.proofs import DomainSecret, ProofFault
from engine.dds.subscription_endpoints import PARTITION as PERSISTENCE_PARTITION
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal
from engine.persistence.service import replica_view as view
from engine.persistence.service.replica_watching import PAST_TOPICS as SERVICE_PAST_TOPICS
from engine.persistence.service.replica_watching import WATCH_TOPICS
from engine.runtime import monitor
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot
from engine.tracing.levels import Level
from ospltool.live.arrival_times import ArrivalTimes
from ospltool.live.feed import (
    FeedNotice,
    HeardReplica,
    Inbox,
    NoticeKind,
    ReceivedSnapshot,
    Update,
    no_route,
)
from ospltool.live.recording import SenderKind, Shown
from ospltool.live.topics import Application, ApplicationEndpoint

# Three times what a node keeps of its past (`engine.runtime.past`): a repetition is always recognised.
MAX_KNOWN: Final = 1_000
"""Events of INFO and above remembered for one sender, more than its past can hold."""
# Twice `model.MAX_NODES`: nodes that come back have new ids.
MAX_SENDERS: Final = 2_000
"""Senders that are remembered; a stranger may invent any number."""
# GUIDs of 16 bytes; a message comes within seconds after its sender has left.
MAX_LEFT: Final = 10_000
"""Participants that left whose announcement is remembered: what they have sent may come later."""
# As a node (`engine.node.intake`).
MAX_UNDISCOVERED: Final = 1_000
"""Messages that wait for the discovery of their participant; more are left out."""
MAX_NAMED: Final = 3
"""Participants that a sentence names."""
# A notice is a sentence, and a recording keeps it.
MAX_REFUSED: Final = 100
"""Participants that a notice names."""
MAX_FAULT: Final = 300
"""Characters of a fault that are told: it may quote what was received."""

_REMEMBERED: Final = frozenset(level.name for level in Level if level >= Level.INFO)
T = TypeVar("T")


class SeenEvents:
    """The events that have already come. A past repeats events, before or after they come by themselves."""

    def __init__(self) -> None:
        self._keys: Newest[str, Newest[tuple[int, int], None]] = Newest(MAX_SENDERS)

    def new(self, item: T) -> Iterator[T | NodeEvent | NodePast]:
        """Yield the new parts of an item; a past becomes its new events and the past without events."""
        if isinstance(item, NodePast):
            yield from filter(self._is_new, item.events)
            yield msgspec.structs.replace(item, events=())
        elif not isinstance(item, NodeEvent) or item.level not in _REMEMBERED or self._is_new(item):
            yield item

    def _is_new(self, event: NodeEvent) -> bool:
        keys = self._keys.get(event.node)
        if keys is None:
            keys = self._keys[event.node] = Newest(MAX_KNOWN)
        key = event.time_ns, event.number
        if key in keys:
            return False
        keys[key] = None
        return True


# How late an end or a changed network may be noticed. Shorter wakes an idle watch for nothing.
_LONGEST_WAIT_S: Final = 0.5
# An interface that comes up again takes a second or two.
_RETRY_S: Final = 2.0
# As often as a console looks: with thousands of endpoints each list of them takes milliseconds.
ENDPOINTS_S: Final = 0.25
"""Least time between two lists of all readers and writers."""
_ROUTES_S: Final = 1.0
"""Time between two looks at the routes, of which there may be hundreds."""


_Decoded = ReceivedSnapshot | HeardReplica | NodeEvent | NodePast | FeedNotice

_LOST: Final = {SenderKind.NODE: NoticeKind.NODE_LOST, SenderKind.REPLICA: NoticeKind.REPLICA_LOST}


class _Link:
    """A participant and its readers, opened and closed together.

    Readers for persistence services are opened with the first service, to save discovery traffic.
    """

    def __init__(self, domain_id: int, partition: str, uri: str, secret: DomainSecret | None) -> None:
        tag = os.urandom(NODE_ID_BYTES)
        self.participant = NodeParticipant(
            domain_id, uri, "ospltool console", tag, TagRole.CLIENT, secret=secret
        )
        try:
            self.signal = Signal(self.participant)
            topics = (*CONSOLE_TOPICS, *PAST_TOPICS)
            self.channel = Channel(self.participant, partition, topics=topics, signal=self.signal)
            self.discovery = Discovery(self.participant, self.signal)
        except DdsError:
            self.participant.close()
            raise
        self.endpoints = DomainEndpoints(_application_endpoint, partition)
        self.has_new_endpoints = True  # those of a former link are gone
        self._replicas: Channel | None = None
        self._seen: dict[bytes, ParticipantSeen] = {}
        self._left: Newest[bytes, ParticipantSeen] = Newest(MAX_LEFT)
        self._undiscovered: list[ReceivedMessage] = []

    def take(self) -> tuple[list[ReceivedMessage], list[ParticipantGone]]:
        """Take the received messages and the participants that left."""
        changes = self.discovery.take()
        self.has_new_endpoints |= self.endpoints.update(changes)
        for change in changes:
            if isinstance(change, ParticipantSeen):
                self._seen[change.guid] = change
            elif isinstance(change, ParticipantGone):
                self.participant.proofs.forget(change.guid)
                if (seen := self._seen.pop(change.guid, None)) is not None:
                    self._left[change.guid] = seen
        if self._replicas is None and any(map(_is_service, changes)):
            self._replicas = Channel(
                self.participant,
                PERSISTENCE_PARTITION,
                topics=(*WATCH_TOPICS, *SERVICE_PAST_TOPICS),
                signal=self.signal,
            )
        received = self._undiscovered + self.channel.take()
        if self._replicas is not None:
            received += self._replicas.take()
        # A message may overtake the discovery of its participant: until then nobody knows whose it is.
        known = self._seen.keys() | self._left.keys() if self._undiscovered or received else ()
        unknown = [one for one in received if one.participant not in known]
        received = [one for one in received if one.participant in known] if unknown else received
        self._undiscovered = unknown[-MAX_UNDISCOVERED:]
        return received, [change for change in changes if isinstance(change, ParticipantGone)]

    def may_speak_for(self, participant: bytes, role: TagRole, sender: str) -> bool:
        """Tell whether a participant announced itself as this node or persistence service."""
        seen = self._announced(participant)
        tag = seen.tag if seen else None
        return tag is not None and tag.role is role and tag.node_id.hex() == sender

    def name_of(self, participant: bytes) -> str:
        """Return the entity name of a participant, which is that of its node; its GUID without one."""
        seen = self._announced(participant)
        return (seen.name if seen else "") or participant.hex()

    def _announced(self, participant: bytes) -> ParticipantSeen | None:
        return self._seen.get(participant) or self._left.get(participant)

    def close(self) -> None:
        self.participant.close()


class LiveFeed:
    """Snapshots and events of all nodes in a domain, and views of its persistence services.

    A separate thread reads; `poll` only hands over. When a participant leaves or its lease ends, its node or
    replica is lost; with the last one the domain is lost. After a failure of DDS itself the feed reports it
    and reopens every two seconds. While nobody is heard, it also reopens when a link carries something again,
    or Cyclone DDS would choose another interface now: with unicast it may ask its peers half a minute later
    otherwise, or never, since it forgets those that did not answer.

    Nothing that is received ends the thread: what cannot be read is counted and reported. If the thread fails
    by a fault of its own, the feed says so (WATCH_FAILED), and reopens, too: what it does not hear meanwhile
    is no loss of nodes.

    Args:
        domain_id: DDS domain, 0 to 230.
        partition: the durability partition of the nodes (EntityNames/Partition of their configuration).
        uri: Cyclone DDS settings; by default CYCLONEDDS_URI, else loopback.
        secret: the secret of the domain; by default that of OSPLTOOL_DOMAIN_SECRET, if it is set.
        clock: wall clock in ns since 1970.

    Raises:
        SecretError: the secret of the environment cannot be used.
        DdsError: the domain cannot be opened with these settings.
    """

    def __init__(
        self,
        domain_id: int,
        partition: str = PARTITION,
        uri: str | None = None,
        secret: DomainSecret | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.title = f"domain {domain_id}"
        self.mode = "live"
        settings = uri or cyclone_uri()
        self._interface = interface_of(settings)
        self._place = f" on domain {domain_id}, interface {self._interface}"
        self.where = f"{self._place}: `ospltool start FILE` starts one"
        self._refused = 0
        self._where = (domain_id, partition, settings, secret or DomainSecret.of_environment(os.environ))
        self._links, self._peers = links_of(settings), peers_of(settings)
        self._broken, self._links_s, self._must_move = "", 0.0, False
        self._clock = clock
        # The thread of DDS fills the inbox, the owner of the feed empties it.
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._known = SeenEvents()
        self._arrivals = ArrivalTimes()
        self._shown_by: dict[bytes, set[Shown]] = {}
        self._addresses: dict[Shown, tuple[str, ...]] = {}
        self._refusing: tuple[str, ...] = ()
        self._routes_s = self._endpoints_due_s = 0.0
        self._present: set[Shown] = set()
        self._had_any = self._has_failed = False
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._link: _Link | None = _Link(*self._where)
        self._thread = threading.Thread(target=self._run, name="live-feed", daemon=True)
        self._thread.start()

    @property
    def place(self) -> tuple[int, str, str, DomainSecret | None]:
        """The domain, the nodes' durability partition, the settings of Cyclone DDS, and the secret."""
        return self._where

    def now_ns(self) -> int:
        """Return the wall clock in ns since 1970."""
        return self._clock()

    def poll(self) -> Update:
        """Return what arrived since the last call."""
        with self._lock:
            if not (self._thread.is_alive() or self._stopping.is_set() or self._has_failed):
                self._fail("its thread has ended")
            return self._inbox.drain()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has arrived since the last wait; return False at the timeout."""
        arrived = self._news.wait(timeout_s)
        self._news.clear()
        return arrived

    def set_caption(self, caption: str) -> None:
        """Show a sentence to the reader; from any thread."""
        with self._lock:
            self._inbox.set_caption(caption)

    def close(self) -> None:
        """Leave the domain. Idempotent."""
        self._stopping.set()
        link = self._link
        if link is not None:
            link.signal.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._link is None:
                    self._link = _Link(*self._where)
                self._read(self._link)
                self._drop_link()
                self._must_move = False
            except DdsError as error:
                self._lose_all(f"DDS failed: {error}; trying again every {_RETRY_S:g} s")
                self._drop_link()
                self._stopping.wait(_RETRY_S)
            except Exception as error:  # whatever it is, those who watch must hear of it
                with self._lock:
                    self._fail(f"{error!r}; trying again every {_RETRY_S:g} s")
                self._forget()
                self._drop_link()
                self._stopping.wait(_RETRY_S)
        self._drop_link()

    def _fail(self, reason: str) -> None:
        """Tell that this watch itself has failed; call it with the lock."""
        self._has_failed = True
        text = f"this watch has failed: {reason}"[:MAX_FAULT]
        self._inbox.put(FeedNotice(NoticeKind.WATCH_FAILED, self._clock(), text))

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _read(self, link: _Link) -> None:
        while not self._stopping.is_set() and not self._must_move:
            link.signal.wait(_LONGEST_WAIT_S)
            self._arrivals.note_reading(self._clock())
            received, gone = link.take()
            items = [item for one in received for item in self._items(link, one)]
            with self._lock:
                if link.has_new_endpoints and time.monotonic() >= self._endpoints_due_s:
                    link.has_new_endpoints = False
                    self._endpoints_due_s = time.monotonic() + ENDPOINTS_S
                    self._inbox.set_endpoints(tuple(link.endpoints.endpoints()))
                for item in items:
                    if isinstance(item, FeedNotice):
                        self._inbox.dropped += 1
                    self._inbox.put(item)
                for notice in (*self._unproved(link), *self._lost(gone), *self._link_changes()):
                    self._inbox.put(notice)
                if self._has_failed:
                    self._has_failed = False
                    text = "this watch listens again"
                    self._inbox.put(FeedNotice(NoticeKind.WATCH_BACK, self._clock(), text))
            self._news.set()

    def _items(self, link: _Link, received: ReceivedMessage) -> list[_Decoded]:
        """Return what a message says; whatever is wrong with it becomes a notice."""
        try:
            return list(self._known.new(self._decode(link, received)))
        except Exception as fault:  # of any class: who sends it may be anybody, and must not end the watch
            text = f"{received.topic}, sender {received.sender_id}: {words_of(fault)}"[:MAX_FAULT]
            return [FeedNotice(NoticeKind.FAULT, self._clock(), text)]

    def _decode(self, link: _Link, received: ReceivedMessage) -> _Decoded:
        now_ns = self._clock()
        if received.topic == view.TOPIC:
            return self._replica(link, received, now_ns)
        message = monitor.decode(received.payload)
        sender = message.node if isinstance(message, NodeEvent) else message.id
        is_service = received.topic == view.PAST_TOPIC and isinstance(message, NodePast)
        called = message.name if isinstance(message, NodePast) and is_service else sender
        role = TagRole.PERSISTENCE if is_service else TagRole.NODE
        if called != received.sender_id or not link.may_speak_for(received.participant, role, sender):
            return _impostor(received, sender, now_ns)
        for event in message.events if isinstance(message, NodePast) else ():
            if event.node != sender:  # nobody remembers what others told
                return _impostor(received, event.node, now_ns)
        if not isinstance(message, NodeSnapshot):
            return message
        self._is_there((SenderKind.NODE, message.id), message.name, received.participant, now_ns)
        key = SenderKind.NODE, message.id
        if key in self._addresses or len(self._addresses) < MAX_SENDERS:
            self._addresses[key] = message.addresses
        return ReceivedSnapshot(message, self._arrivals.heard_ns(message, now_ns))

    def _replica(self, link: _Link, received: ReceivedMessage, now_ns: int) -> HeardReplica | FeedNotice:
        shown = view.decode(received.payload)
        may_speak = link.may_speak_for(received.participant, TagRole.PERSISTENCE, shown.id)
        if shown.name != received.sender_id or not may_speak:
            return _impostor(received, shown.name, now_ns)
        self._is_there((SenderKind.REPLICA, shown.id), shown.name, received.participant, now_ns)
        return HeardReplica(shown, now_ns)

    def _is_there(self, who: Shown, name: str, participant: bytes, now_ns: int) -> None:
        if who not in self._present and len(self._present) >= MAX_SENDERS:
            return
        self._shown_by.setdefault(participant, set()).add(who)
        if not self._present and self._had_any:
            with self._lock:
                self._inbox.put(FeedNotice(NoticeKind.DOMAIN_FOUND, now_ns, f"{name} is in reach again"))
        self._present.add(who)
        self._had_any = True

    def _unproved(self, link: _Link) -> Iterator[FeedNotice]:
        """Count the messages that do not prove their sender; yield a notice if there are new ones."""
        refused = link.participant.proofs.refused_since(-math.inf)
        counts = collections.Counter[ProofFault]()
        for each in refused.values():
            counts.update(each)
        before, self._refused = self._refused, counts.total()
        if self._refused <= before:
            return
        names = tuple(sorted({*map(link.name_of, refused)}))
        shown = f"{', '.join(names[:MAX_NAMED])}{' and others' if len(names) > MAX_NAMED else ''}"
        what = ", ".join(f"{count:,} {why}" for why, count in counts.items())
        text = f"this watch refuses messages of {shown} ({what}): {link.participant.proofs.difference()}"
        self.where = f"{self._place}: {text}"
        yield FeedNotice(NoticeKind.UNPROVED, self._clock(), text, names=names[:MAX_REFUSED])

    def _lost(self, gone: Sequence[ParticipantGone]) -> list[FeedNotice]:
        """Return notices for the nodes and instances that only the departed participants showed."""
        now_ns = self._clock()
        notices = []
        for change in gone:
            for who in sorted(self._shown_by.pop(change.guid, ())):
                if not any(who in others for others in self._shown_by.values()):
                    self._present.discard(who)
                    notices.append(FeedNotice(_LOST[who[0]], now_ns, "its participant has left", who[1]))
        if notices and not self._present:
            notices.append(FeedNotice(NoticeKind.DOMAIN_LOST, now_ns, "no node is in reach"))
        return notices

    def _link_changes(self) -> Iterator[FeedNotice]:
        """Yield a notice if the interfaces do not carry anything any more, or do so again."""
        if time.monotonic() - self._links_s < _LONGEST_WAIT_S:
            return
        self._links_s = time.monotonic()
        used = interface_of(self._where[2])
        self._must_move = not self._present and used != self._interface
        if self._must_move:
            self._interface, self._links = used, links_of(self._where[2])
        known, refusing = self._hosts(), self._refusing
        if self._links_s - self._routes_s >= _ROUTES_S:
            self._routes_s, refusing = self._links_s, without_route(known)
        told = no_route(refusing) if len(refusing) == len(known) else ""
        before, self._broken = self._broken, broken_links(self._links) or told
        if self._broken != before:
            kind = NoticeKind.LINK_LOST if self._broken else NoticeKind.LINK_FOUND
            self._must_move |= not self._broken and not self._present
            yield FeedNotice(kind, self._clock(), self._broken)
        if refusing != self._refusing:
            self._refusing = refusing
            kind = NoticeKind.ROUTE_LOST if refusing else NoticeKind.ROUTE_FOUND
            yield FeedNotice(kind, self._clock(), " ".join(refusing))

    def _hosts(self) -> set[str]:
        """Return the addresses of the nodes on other hosts; until a node is heard, those of the peers."""
        known = {address for each in self._addresses.values() for address in each} or {*self._peers}
        return set(beyond_loopback(known)).difference(known_addresses(self._where[2])) if known else known

    def _lose_all(self, reason: str) -> None:
        now_ns = self._clock()
        self._forget()
        with self._lock:
            self._inbox.put(FeedNotice(NoticeKind.FAULT, now_ns, reason))
            self._inbox.put(FeedNotice(NoticeKind.DOMAIN_LOST, now_ns, reason))

    def _forget(self) -> None:
        """Forget who was heard: the next participant hears them again."""
        self._shown_by.clear()
        self._present.clear()


def _application_endpoint(one: EndpointSeen, owner: ParticipantSeen) -> ApplicationEndpoint:
    """Return what watches show of a reader or writer; they import no DDS."""
    participant = owner.guid.hex()
    application = Application.announced(owner.name, owner.pid, owner.hostname, participant)
    return ApplicationEndpoint(
        one.guid.hex(), participant, application, one.is_writer, one.topic, one.partitions, one.type_name,
        one.durability, one.reliable,
    )  # fmt: skip


def _is_service(change: object) -> bool:
    """Return whether a persistence service was discovered."""
    if not isinstance(change, ParticipantSeen) or change.tag is None:
        return False
    return change.tag.role is TagRole.PERSISTENCE


def _impostor(received: ReceivedMessage, sender: str, now_ns: int) -> FeedNotice:
    text = f"{received.topic}, sender {received.sender_id} speaks for {sender}"
    return FeedNotice(NoticeKind.FAULT, now_ns, text)
