"""Links to other replicas over Cyclone DDS: one partition to listen in, and one sending thread for each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.core.plain import words_of
from engine.dds.activity import BEAT_S, ThreadActivities
from engine.dds.bulk import BulkReceiver, BulkSender, ReceivedBatch
from engine.dds.errors import DdsTimeout
from engine.dds.participant import NodeParticipant
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.waiting import Signal
from engine.persistence.core.replica_codec import MAX_MESSAGE_BYTES, MessageFault
from engine.persistence.core.replica_link import Event, ReplicaLink

TOPIC: Final = "p_exchange"
HELLO_S: Final = 1.0
MATCH_S: Final = 2.0
SEND_S: Final = 30.0
FULL_BYTES: Final = 32 << 20
"""Waiting bytes at which the queue to a replica is full."""
LOW_BYTES: Final = 8 << 20
"""Waiting bytes at which a full queue is reported to have room again."""
MAX_PEERS: Final = 256
MAX_HELLO_BYTES: Final = 4096
_MAX_NAME_CHARS: Final = 80


@lazy_dataclass(frozen=True, slots=True)
class Hello:
    """The introduction of a replica on a link.

    Attributes:
        service: the name of its persistence_service element; replicas of one service synchronize.
        name: its own name.
        id: of its store.
    """

    service: str
    name: str
    id: str

    def encode(self) -> bytes:
        """Return its bytes."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """Return the hello in `body`.

        Raises:
            MessageFault: not a valid hello.
        """
        if len(body) > MAX_HELLO_BYTES:
            raise MessageFault("a hello that is too long")
        try:
            fields = json.loads(body)
            texts = [fields["service"], fields["name"], fields["id"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MessageFault(f"not a hello: {words_of(error)}"[:200]) from error
        for text in texts:
            if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= _MAX_NAME_CHARS:
                raise MessageFault("a name that is not valid")
        return cls(*texts)


def receiver_partition(replica_id: str) -> str:
    """Return the partition in which a replica listens."""
    return f"{PARTITION}.{replica_id}"


class _Peer:
    """One other process: its link, and the frames that wait for it."""

    def __init__(
        self,
        participant: NodeParticipant,
        guid: bytes,
        replica_id: str,
        link: ReplicaLink,
        on_room: Callable[[], None],
        activities: ThreadActivities,
    ) -> None:
        self.guid = guid
        self._activities = activities
        self._work = activities.work(f"exchange (with {replica_id[:8]})", MATCH_S)
        self.link = link
        self.hello_due_s = 0.0
        self.fault: Exception | None = None
        self._on_room = on_room
        self._participant = participant
        self._partition = receiver_partition(replica_id)
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._lock = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        with self._lock:
            self._frames.append(frame)
            self._bytes += len(frame)
            self._lock.notify()

    def drop_unsent(self) -> None:
        """Drop all waiting frames."""
        with self._lock:
            self._frames.clear()
            self._bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether its queue is not full."""
        return self._bytes < FULL_BYTES

    def close(self) -> None:
        """Send waiting frames if they go at once, and end the thread."""
        with self._lock:
            self._is_closed = True
            self._lock.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_s)

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


class ReplicaTransport:
    """All links of this replica.

    Args:
        participant: of this replica.
        hello: the introduction of this replica.
        signal: set when frames have arrived.
        on_room: called on another thread when a full queue has room again.
        activities: the deadlock watch's register of threads.

    Attributes:
        receiver: of frames.
        malformed: invalid frames.
        oversized: messages that were too large to send.
        refused: replicas beyond the bound.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        hello: Hello,
        signal: Signal,
        on_room: Callable[[], None],
        activities: ThreadActivities | None = None,
    ) -> None:
        self._participant = participant
        self._hello = hello
        self._peers: dict[bytes, _Peer] = {}
        self.receiver = BulkReceiver(participant, receiver_partition(hello.id), signal=signal, topic=TOPIC)
        self._on_room = on_room
        self._activities = activities or ThreadActivities()
        self.malformed = 0
        self.oversized = 0
        self.refused = 0

    def seen(self, guid: bytes, replica_id: str) -> None:
        """Add a process of a replica, and begin a link to it."""
        if guid in self._peers:
            return
        if len(self._peers) >= MAX_PEERS:
            self.refused += 1
            return
        link = ReplicaLink(self._hello.encode(), lambda: secrets.randbelow((1 << 64) - 1) + 1)
        self._peers[guid] = _Peer(self._participant, guid, replica_id, link, self._on_room, self._activities)

    def gone(self, guid: bytes) -> Sequence[Event]:
        """Remove a process that is gone; return what happened to its link."""
        peer = self._peers.pop(guid, None)
        if peer is None:
            return ()
        peer.drop_unsent()
        peer.close()
        return peer.link.restart()

    def take(self, batch: Sequence[ReceivedBatch]) -> Sequence[tuple[bytes, Event]]:
        """Take frames from links; return events in order: (process, event)."""
        found: list[tuple[bytes, Event]] = []
        for received in batch:
            peer = self._peers.get(received.participant)
            if peer is None:
                continue
            if received.payload is None:  # its writer is gone, with frames that it had not sent
                found += [(peer.guid, event) for event in self.restart(peer.guid)]
                continue
            try:
                events, answers = peer.link.take(received.payload)
            except MessageFault:
                self.malformed += 1
                continue
            found += [(peer.guid, event) for event in events]
            for frame in answers:
                peer.send(frame)
        return found

    def restart(self, guid: bytes) -> Sequence[Event]:
        """Restart a link at the next turn; return what happened to it."""
        peer = self._peers.get(guid)
        if peer is None:
            return ()
        peer.drop_unsent()
        peer.hello_due_s = 0.0
        return peer.link.restart()

    def send(self, guid: bytes, kind: str, body: bytes) -> None:
        """Send a message of a kind to the service `guid` if the link is up; a too large body is counted."""
        peer = self._peers.get(guid)
        if len(body) > MAX_MESSAGE_BYTES:
            self.oversized += 1
        elif peer is not None and peer.link.is_up:
            peer.send(peer.link.frame(kind, body))

    def has_room(self, guid: bytes) -> bool:
        """Whether the queue to a process is not full."""
        peer = self._peers.get(guid)
        return peer is None or peer.has_room

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

    @property
    def breaks(self) -> int:
        """How often a link ended because a message was missing."""
        return sum(peer.link.breaks for peer in self._peers.values())

    def is_up(self, guid: bytes) -> bool:
        """Whether the link to a process is up."""
        peer = self._peers.get(guid)
        return peer is not None and peer.link.is_up

    def guids(self) -> list[bytes]:
        """Return the known processes."""
        return sorted(self._peers)

    def close(self, timeout_s: float) -> None:
        """Send waiting frames that go at once, and end all threads."""
        for peer in self._peers.values():
            peer.close()
        deadline = time.monotonic() + timeout_s
        for peer in self._peers.values():
            peer.join(max(0.0, deadline - time.monotonic()))
        self.receiver.close()
