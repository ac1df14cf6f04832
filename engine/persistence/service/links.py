"""Links to the other replicas of the service: who they are, and the messages of the parts to them.

Each replica listens in a partition of its own. To each process of another replica there is one link
(`engine.persistence.core.replica_link`) and one thread, which sends its frames: a slow replica holds up no
other. When a link is up, the other side has said who it is; a replica of the same service is then connected
with all parts of this one, unless its name is taken.
"""

from __future__ import annotations

import collections
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from engine.dds.activity import BEAT_S, ThreadActivities
from engine.dds.bulk import BulkReceiver, BulkSender, ReceivedBatch
from engine.dds.errors import DdsTimeout
from engine.dds.participant import NodeParticipant
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.waiting import Signal
from engine.persistence.core.messages import MAX_MESSAGE_BYTES, Hello, MessageFault, decode, encode
from engine.persistence.core.replica_link import Arrived, Event, ReplicaLink, Up
from engine.persistence.service.replica_view import PeerView
from engine.persistence.service.service_part import ServicePart

TOPIC: Final = "p_exchange"
HELLO_S: Final = 1.0
"""Interval at which a link that is not up is begun again: the other side may not have discovered this one."""
MATCH_S: Final = 2.0
"""Longest wait for the other side's reader before a frame; without it the link would begin again at once."""
SEND_S: Final = 30.0
"""Longest time for which a frame is offered at the end of the service."""
FULL_BYTES: Final = 32 << 20
"""Waiting bytes at which the queue to a replica is full."""
LOW_BYTES: Final = 8 << 20
"""Waiting bytes at which a full queue is reported to have room again; well below, so that this is seldom."""
MAX_PEERS: Final = 256
"""Processes that links are kept to: each has a thread and a writer."""


def _partition(replica_id: str) -> str:
    """Return the partition in which a replica listens."""
    return f"{PARTITION}.{replica_id}"


class _Peer:
    """One other process: its link, the frames that wait for it, and the thread that sends them.

    Attributes:
        hello: who it is; None while it is not connected with our parts.
        refusal: its name, and why it is refused; None if it is not.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        guid: bytes,
        replica_id: str,
        hello: bytes,
        on_room: Callable[[], None],
        activities: ThreadActivities,
    ) -> None:
        self.guid = guid
        self.link = ReplicaLink(hello, lambda: secrets.randbelow((1 << 64) - 1) + 1)
        self.hello: Hello | None = None
        self.refusal: tuple[str, str] | None = None
        self.hello_due_s = 0.0
        self.fault: Exception | None = None
        self._activities = activities
        self._work = activities.work(f"exchange (with {replica_id[:8]})", MATCH_S)
        self._on_room = on_room
        self._participant = participant
        self._partition = _partition(replica_id)
        self._frames: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._lock = threading.Condition()
        self._is_closed = False
        self.thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self.thread.start()

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        with self._lock:
            self._frames.append(frame)
            self._bytes += len(frame)
            self._lock.notify()

    def restart(self) -> list[Event]:
        """Restart the link, without the frames that wait, at the next turn."""
        with self._lock:
            self._frames.clear()
            self._bytes = 0
        self.hello_due_s = 0.0
        return self.link.restart()

    @property
    def has_room(self) -> bool:
        """Whether its queue is not full."""
        return self._bytes < FULL_BYTES

    def close(self) -> None:
        """Send waiting frames if they go at once, and end the thread."""
        with self._lock:
            self._is_closed = True
            self._lock.notify()

    def _run(self) -> None:
        try:
            sender = BulkSender(self._participant, [self._partition], [self.guid], TOPIC)
            try:
                self._send_all(sender)
            finally:
                sender.close()
        except Exception as error:  # the service must not go on without its links
            if not self._participant.closed:
                self.fault = error
                self._on_room()
        finally:
            self._activities.end(self._work)

    def _send_all(self, sender: BulkSender) -> None:
        while True:
            with self._lock:
                while not self._frames and not self._is_closed:
                    self._work.beat()
                    self._lock.wait(BEAT_S)
                if not self._frames:
                    return
                frame = self._frames.popleft()
                before, self._bytes = self._bytes, self._bytes - len(frame)
            if before > LOW_BYTES >= before - len(frame):
                self._on_room()
            with self._work:
                self._send_one(sender, frame)

    def _send_one(self, sender: BulkSender, frame: bytes) -> None:
        if sender.missing() and not self._is_closed:
            sender.wait_targets(MATCH_S)  # a lost frame is noticed by its number, a lost hello is repeated
        deadline = time.monotonic() + SEND_S
        while not self._is_closed or time.monotonic() < deadline:
            self._work.moved()  # a slow process is not a deadlock
            with contextlib.suppress(DdsTimeout):
                sender.send(frame, 1.0)
                return


class Links:
    """Connects the parts of this replica to those of the other replicas of its service.

    Args:
        participant: of this replica.
        hello: the introduction of this replica.
        parts: the senders and receivers of messages.
        signal: set when frames have arrived.
        on_room: called on another thread when a full queue has room again.
        activities: the deadlock watch's register of threads.
        say: takes sentences for operators.

    Attributes:
        receiver: of frames.
        counters: `malformed` (invalid frames and messages), `oversized` (messages that were too large to
            send), `overruns` (links restarted because too much waited), `refused_peers` (beyond the bound).
    """

    def __init__(
        self,
        participant: NodeParticipant,
        hello: Hello,
        parts: Sequence[ServicePart],
        signal: Signal,
        on_room: Callable[[], None],
        activities: ThreadActivities,
        say: Callable[[str], None],
    ) -> None:
        self._participant = participant
        self._hello = hello
        self._parts = parts
        self._part_of = {kind: part for part in parts for kind in part.kinds}
        self._on_room = on_room
        self._activities = activities
        self._say = say
        self._peers: dict[bytes, _Peer] = {}
        self._broken = 0
        self.receiver = BulkReceiver(participant, _partition(hello.id), signal=signal, topic=TOPIC)
        self.counters: collections.Counter[str] = collections.Counter()
        for part in parts:
            part.has_room = self.has_room

    # Connections.

    def seen(self, guid: bytes, replica_id: str) -> None:
        """Add a process of a replica, and begin a link to it."""
        if guid in self._peers:
            return
        if len(self._peers) >= MAX_PEERS:
            self.counters["refused_peers"] += 1
            return
        hello = encode(self._hello)
        self._peers[guid] = _Peer(self._participant, guid, replica_id, hello, self._on_room, self._activities)

    def gone(self, guid: bytes) -> None:
        """Disconnect a process that is gone."""
        peer = self._peers.pop(guid, None)
        if peer is not None:
            self._happened(peer, peer.restart())
            peer.close()
            self._broken += peer.link.breaks

    @property
    def broken(self) -> int:
        """How often a link ended because a message was missing."""
        return self._broken + sum(peer.link.breaks for peer in self._peers.values())

    @property
    def beginning(self) -> list[bytes]:
        """The processes whose links are not up yet."""
        return sorted(guid for guid, peer in self._peers.items() if not peer.link.is_up)

    def views(self) -> tuple[PeerView, ...]:
        """Return the other replicas, by name; one whose link is not up yet has its GUID for a name."""
        up = [PeerView(name, "up") for name, _ in self._connected()]
        refused = [PeerView(name, "refused", why) for name, why in self._refused()]
        others = [PeerView(guid.hex(), "beginning") for guid in self.beginning]
        return tuple(sorted((*up, *refused, *others), key=lambda peer: peer.name))

    def _refused(self) -> list[tuple[str, str]]:
        return [peer.refusal for peer in self._peers.values() if peer.refusal]

    def _connected(self) -> Iterator[tuple[str, _Peer]]:
        return ((peer.hello.name, peer) for peer in self._peers.values() if peer.hello)

    # Output.

    def send(self) -> None:
        """Send the messages of all parts."""
        peers = dict(self._connected())
        for part in self._parts:
            for name, message in part.messages():
                if name in peers:
                    self.send_to(peers[name].guid, encode(message))

    def send_to(self, guid: bytes, body: bytes) -> None:
        """Send the bytes of a message to a process if its link is up; too large ones are counted."""
        peer = self._peers[guid]
        if len(body) > MAX_MESSAGE_BYTES:
            self.counters["oversized"] += 1
        elif peer.link.is_up:
            peer.send(peer.link.frame(body))

    def restart(self, names: Iterable[str]) -> None:
        """Restart the links with replicas for which too much waits."""
        peers = dict(self._connected())
        for name in names:
            self.counters["overruns"] += 1
            self._happened(peers[name], peers[name].restart())

    def has_room(self, name: str) -> bool:
        """Whether the queue to a replica has room for more messages."""
        return all(peer.has_room for known, peer in self._connected() if known == name)

    def turn(self, now_s: float) -> float:
        """Begin links that are not up; return when the next turn is due at the latest.

        Raises:
            Exception: the fault that ended the thread of a link.
        """
        due_s = now_s + HELLO_S
        for peer in self._peers.values():
            if peer.fault is not None:
                raise peer.fault
            if peer.link.is_up:
                continue
            if now_s >= peer.hello_due_s:
                peer.send(peer.link.hello())
                peer.hello_due_s = now_s + HELLO_S
            due_s = min(due_s, peer.hello_due_s)
        return due_s

    def close(self, timeout_s: float) -> None:
        """Send waiting frames that go at once, and end all threads."""
        for peer in self._peers.values():
            peer.close()
        deadline = time.monotonic() + timeout_s
        for peer in self._peers.values():
            peer.thread.join(max(0.0, deadline - time.monotonic()))
        self.receiver.close()

    # Input.

    def exchanged(self, batch: Sequence[ReceivedBatch]) -> None:
        """Take frames that came over links."""
        for received in batch:
            peer = self._peers.get(received.participant)
            if peer is None:
                continue
            if received.payload is None:  # its writer is gone, with frames that it had not sent
                self._happened(peer, peer.restart())
                continue
            try:
                events, answers = peer.link.take(received.payload)
            except MessageFault:
                self.counters["malformed"] += 1
                continue
            for frame in answers:  # before what the parts send now: the link is not up there without them
                peer.send(frame)
            self._happened(peer, events)

    def _happened(self, peer: _Peer, events: Iterable[Event]) -> None:
        """Take events of a link."""
        for event in events:
            if isinstance(event, Up):
                self._link_up(peer, event.hello)
            elif isinstance(event, Arrived):
                self._arrived(peer, event.body)
            else:
                self._link_down(peer)

    def _link_up(self, peer: _Peer, body: bytes) -> None:
        try:
            hello: Hello = decode(body, Hello)
        except MessageFault as fault:
            self.counters["malformed"] += 1
            peer.refusal = peer.guid.hex(), str(fault)
            return
        if hello.service != self._hello.service:
            return  # a replica of another service
        problem = self._conflict(peer, hello)
        peer.refusal = (hello.name, problem) if problem else None
        if problem:
            self._say(f"replica {hello.name!r} is refused: {problem}")
            return
        peer.hello = hello
        for part in self._parts:
            part.connected(hello.name)

    def _conflict(self, peer: _Peer, hello: Hello) -> str:
        """Return why a replica must be refused, if so; disconnect an earlier process of the same one."""
        if hello.name == self._hello.name:
            return "it uses this replica's name; give each replica its own with --name"
        for name, other in list(self._connected()):
            if name == hello.name and other is not peer:
                if other.hello is not None and other.hello.id != hello.id:
                    return "two replicas use this name; give each its own with --name"
                self._link_down(other)
        return ""

    def _link_down(self, peer: _Peer) -> None:
        hello, peer.hello = peer.hello, None
        if hello is not None:
            for part in self._parts:
                part.disconnected(hello.name)

    def _arrived(self, peer: _Peer, body: bytes) -> None:
        if peer.hello is None:
            return
        try:
            message = decode(body)
            self._part_of[type(message)].receive(peer.hello.name, message)
        except MessageFault as fault:
            self.counters["malformed"] += 1
            self._say(f"replica {peer.hello.name!r} sent an invalid message: {fault}")
            self._happened(peer, peer.restart())  # the link is not whole without that message
