"""What passes between a replica and other processes: links to other replicas, and answers to readers.

Each replica listens in a partition of its own. To each process of another replica there is one link
(`engine.persistence.core.replica_link`) and one thread, which sends its frames: a slow replica holds up no
other. When a link is up, the other side has said who it is; a replica of the same service is then connected
with all parts of this one (`ServicePart`), unless its name is taken.

The parts of a service share its thread, its links and its store. The service calls a part with each input,
sends its messages, and writes the changes of all parts in one transaction. No part waits for anything.

Readers with durable subscriptions send their states to all replicas; a worker sends the answers to one.
"""

from __future__ import annotations

import collections
import contextlib
import math
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from engine.dataset.sample import DATA
from engine.dds import abi
from engine.dds.activity import BEAT_S, ThreadActivities
from engine.dds.bulk import BulkReceiver, BulkSender, ReceivedBatch
from engine.dds.capture_reader import CaptureReader
from engine.dds.cdr import Malformed
from engine.dds.errors import DdsError, DdsTimeout
from engine.dds.participant import NodeParticipant
from engine.dds.subscription_endpoints import PARTITION, STATES, answers_to, open_states, unpack_state
from engine.dds.waiting import Signal
from engine.dds.writer_names import WRITER_GONE
from engine.persistence.core.messages import (
    MAX_MESSAGE_BYTES,
    Hello,
    MessageFault,
    OriginalSample,
    ReplicaMessage,
    SubscriberAnswer,
    SubscriberState,
    decode,
    encode,
)
from engine.persistence.core.replica_link import Arrived, Event, ReplicaLink, Up
from engine.persistence.service.replica_view import PeerView

Write = Callable[[sqlite3.Connection], None]
"""Writes to the store, on the store's thread and inside a transaction; it holds its data itself."""

NEVER_S: Final = math.inf


class ServicePart:
    """One part; each method does no more than it says unless a subclass overrides it.

    Attributes:
        has_room: whether the queue to a replica has room; messages that can wait should wait for that.
        tables: statements that create its tables where they do not exist, ended by semicolons.
        kinds: classes of the messages for this part; no two parts share one.
        peers: names of the replicas whose links are up.
    """

    has_room: Callable[[str], bool] = staticmethod(lambda _: True)
    tables: str = ""
    kinds: tuple[type, ...] = ()

    def __init__(self) -> None:
        self.peers: set[str] = set()
        self._outbox: list[tuple[str, ReplicaMessage]] = []

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the data of the store; called first, on the store's thread, while nothing else runs.

        Raises:
            sqlite3.Error: the store cannot be read.
        """

    def changes(self) -> Write | None:
        """Take the changes since the last call, to be written; None for none."""
        return None

    def connected(self, peer: str) -> None:
        """Begin with a replica whose link is up."""
        self.peers.add(peer)

    def disconnected(self, peer: str) -> None:
        """End with a replica whose link is down; messages that had not arrived are lost."""
        self.peers.discard(peer)

    def receive(self, peer: str, message: Any) -> None:
        """Take a message, of one of `kinds`, of another replica.

        Raises:
            MessageFault: not a valid message.
        """

    def send(self, peers: Iterable[str], message: ReplicaMessage) -> None:
        """Send a message to replicas."""
        self._outbox += [(peer, message) for peer in sorted(peers)]

    def messages(self) -> Iterable[tuple[str, ReplicaMessage]]:
        """Take the messages to send, in order: (replica, message)."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Take samples from original writers, in order."""

    def turn(self, now_s: float) -> float:
        """Do the work that is due at this monotonic time; return when the next turn is due at the latest."""
        return NEVER_S


TOPIC: Final = "p_exchange"
HELLO_S: Final = 1.0
"""Interval at which a link that is not up is begun again: the other side may not have discovered this one."""
# A process that said hello has been discovered, so matching takes milliseconds.
MATCH_S: Final = 2.0
"""Longest wait for the other side's reader before a frame; without it the link would begin again at once."""
# A replica that writes a large set to its disk reads nothing meanwhile.
SEND_S: Final = 30.0
"""Longest time for which a frame is offered at the end of the service."""
# Some tens of messages of `BATCH_BYTES`: the other side never waits for us, and memory stays bounded.
FULL_BYTES: Final = 32 << 20
"""Waiting bytes at which the queue to a replica is full."""
LOW_BYTES: Final = 8 << 20
"""Waiting bytes at which a full queue is reported to have room again; well below, so that this is seldom."""
# Chosen: more replicas than any system; strangers may pretend to be some.
MAX_PEERS: Final = 256
"""Processes that links are kept to: each has a thread and a writer."""


def _partition(replica_id: str) -> str:
    """Return the partition in which a replica listens."""
    return f"{PARTITION}.{replica_id}"


class _Peer:
    """One other process: its link, the frames that wait for it, and the thread that sends them.

    Attributes:
        hello: who it is; None while it is not connected with our parts.
        refusal: its name, "refused", and why; None if it is not.
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
        # 0 stands for a number that is not known (`engine.persistence.core.replica_link`).
        self.link = ReplicaLink(hello, lambda: secrets.randbelow((1 << 64) - 1) + 1)
        self.hello: Hello | None = None
        self.refusal: tuple[str, str, str] | None = None
        self.hello_due_s = 0.0
        self.fault: Exception | None = None
        self._activities = activities
        self._work = activities.work(f"exchange (with {replica_id[:8]})", MATCH_S)
        self._on_room = on_room
        self._participant = participant
        self._partition = _partition(replica_id)
        self._frames: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._lock = threading.Condition()  # notified of new frames, and of the end
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
            with contextlib.closing(sender):
                while (frame := self._next_frame()) is not None:
                    with self._work:
                        self._deliver(sender, frame)
        except Exception as error:  # of any class: the service must not go on without its links
            if not self._participant.closed:
                self.fault = error
                self._on_room()
        finally:
            self._activities.end(self._work)

    def _next_frame(self) -> bytes | None:
        """Wait for a frame; return None at the end."""
        with self._lock:
            while not self._frames and not self._is_closed:
                self._work.beat()
                self._lock.wait(BEAT_S)
            if not self._frames:
                return None
            frame = self._frames.popleft()
            before, self._bytes = self._bytes, self._bytes - len(frame)
            assert self._bytes >= 0, "a frame leaves the queue once"
        if before > LOW_BYTES >= before - len(frame):
            self._on_room()  # without the lock: the service's thread may be about to send
        return frame

    def _deliver(self, sender: BulkSender, frame: bytes) -> None:
        if sender.missing() and not self._is_closed:
            sender.wait_targets(MATCH_S)  # a lost frame is noticed by its number, a lost hello is repeated
        deadline = time.monotonic() + SEND_S
        while not self._is_closed or time.monotonic() < deadline:
            self._work.moved()  # a slow process is not a deadlock
            # Tried again until the deadline: the service may end in between, which one long wait would not
            # notice.
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
        report: takes sentences for operators.

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
        report: Callable[[str], None],
    ) -> None:
        self._participant = participant
        self._hello = hello
        self._parts = parts
        self._part_of = {kind: part for part in parts for kind in part.kinds}
        self._on_room = on_room
        self._activities = activities
        self._report = report
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
        refused = [PeerView(*peer.refusal) for peer in self._peers.values() if peer.refusal]
        others = [PeerView(guid.hex(), "beginning") for guid in self.beginning]
        # By name, so that rows of a screen do not jump.
        return tuple(sorted((*up, *refused, *others), key=lambda peer: peer.name))

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
                events, answers = peer.link.receive(received.payload)
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
            peer.refusal = peer.guid.hex(), "refused", str(fault)
            return
        if hello.service != self._hello.service:
            return  # a replica of another service
        problem = self._conflict(peer, hello)
        peer.refusal = (hello.name, "refused", problem) if problem else None
        if problem:
            self._report(f"replica {hello.name!r} is refused: {problem}")
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
            self._report(f"replica {peer.hello.name!r} sent an invalid message: {fault}")
            self._happened(peer, peer.restart())  # the link is not whole without that message


# As `MATCH_S`.
ANSWER_MATCH_S: Final = 2.0
"""Longest wait for the reader of the answers, which was made before its state was sent."""
# Chosen: a reader that takes nothing holds a worker this long.
ANSWER_S: Final = 10.0
"""Longest time to send one answer; then the reader gets no more of the batch, and asks again."""
MAX_READERS: Final = 10_000


class _Line(Struct):
    """The answers to one reader; one thread at a time sends them."""

    participant: bytes
    waiting: list[SubscriberAnswer] = []
    sender: BulkSender | None = None
    is_busy: bool = False
    is_gone: bool = False


Submit = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class ConnectedReaders:
    """The connected readers.

    Args:
        participant: of this replica.
        signal: set when states have arrived.
        submit: runs a function on a worker thread, and then one on the service's thread.
        heard: takes readers with their new states, in order; None for one that is gone.

    Attributes:
        counters: `malformed`, `refused` (beyond the bound), `unanswered` (a reader was gone or too slow).
    """

    def __init__(
        self,
        participant: NodeParticipant,
        signal: Signal,
        submit: Submit,
        heard: Callable[[str, SubscriberState | None], None],
    ) -> None:
        self._participant = participant
        self._submit = submit
        self._heard = heard
        self._states: CaptureReader = open_states(participant, signal)
        self._lines: dict[str, _Line] = {}
        self._reader_of: dict[bytes, str] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    def drain(self) -> list[Any]:
        """Take the records that have arrived; for the pump."""
        return [*self._states.drain(), *self._participant.proofs.verifiable(STATES)]

    def receive(self, records: Sequence[Any]) -> None:
        """Take in what `drain` took, on the service's thread."""
        for record in records:
            if record.status & WRITER_GONE:
                self._participant.proofs.ended(STATES, record.writer)
                reader = self._reader_of.pop(record.writer, None)
                if reader is not None:
                    self._end(self._lines.pop(reader))
                    self._heard(reader, None)
            elif record.status & DATA:
                try:
                    reader, body = unpack_state(record.payload, record.writer, self._participant.proofs)
                    state = decode(body, SubscriberState)
                except (Malformed, MessageFault):
                    self.counters["malformed"] += 1
                    continue
                if self._is_known(record.writer, reader):
                    self._heard(reader, state)

    def _is_known(self, writer: bytes, reader: str) -> bool:
        """Whether this writer is the first that speaks for this reader, and speaks for no other."""
        known = self._reader_of.get(writer)
        if known is None and reader not in self._lines and len(self._lines) < MAX_READERS:
            self._lines[reader] = _Line(abi.participant_of(writer))
            self._reader_of[writer] = reader
            return True
        if known != reader:
            self.counters["refused"] += 1
        return known == reader

    def send(self, answers: Sequence[tuple[str, SubscriberAnswer]]) -> None:
        """Send answers, in order for each reader."""
        for reader, answer in answers:
            line = self._lines.get(reader)
            if line is None:
                continue
            if line.waiting and not line.waiting[-1].request and not answer.request:
                line.waiting.pop()  # the later one includes it
            line.waiting.append(answer)
        for reader in dict.fromkeys(reader for reader, _ in answers):
            line = self._lines.get(reader)
            if line is not None and not line.is_busy:
                self._begin(reader, line)

    def _begin(self, reader: str, line: _Line) -> None:
        answers, line.waiting = line.waiting, []
        line.is_busy = True

        def done(is_sent: bool) -> None:
            line.is_busy = False
            if line.is_gone:
                self._end(line)
            elif not is_sent:
                self.counters["unanswered"] += 1
            if line.waiting and not line.is_gone:
                self._begin(reader, line)

        self._submit(lambda: self._send_all(reader, line, answers), done)

    def _send_all(self, reader: str, line: _Line, answers: Sequence[SubscriberAnswer]) -> bool:
        """Send answers on a worker thread; return whether all were sent."""
        try:
            if line.sender is None:
                line.sender = answers_to(self._participant, reader, line.participant)
            if line.sender.missing() and line.sender.wait_targets(ANSWER_MATCH_S):
                return False
            for answer in answers:
                line.sender.send(encode(answer), ANSWER_S)
        except DdsError:
            return False
        return True

    def _end(self, line: _Line) -> None:
        line.is_gone = True
        if not line.is_busy and line.sender is not None:
            line.sender.close()
            line.sender = None

    def close(self) -> None:
        """Close the reader of states."""
        self._states.close()
