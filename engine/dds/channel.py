"""The protocol's transport: states and messages between nodes, and which nodes are attached.

A state describes its sender; later nodes receive the last one. A message goes once to all attached nodes.
Two nodes are *attached* when each has matched all readers and writers of the other and knows that the
other has, too: from then on nothing that one sends is lost (deployment guide 4.2.2, wait-for-attachment).
For this, each channel publishes the participants that it has matched.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dataset.sample import DATA
from engine.dds import abi, cdr
from engine.dds.capture_reader import CaptureReader
from engine.dds.errors import DdsTimeout
from engine.dds.own_types import Message, SenderState
from engine.dds.participant import NodeParticipant
from engine.dds.proofs import ProofFault
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter, stamp_ns
from engine.dds.writer_names import WRITER_GONE

PARTITION: Final = "durabilityPartition"
ATTACHMENT_TOPIC: Final = "d_attachment"
# The simulator's largest crowd and the largest fleet file have 1,000 nodes.
MAX_PEERS: Final = 1024
"""Participants that a message may name; a longer one is damaged or hostile."""

_BLOCK_NS: Final = 3_000_000_000  # longer than the lease, so that a dead peer is forgotten first
_GUID_BYTES: Final = 16


class ChannelTopic(NamedTuple):
    """One topic of a channel.

    Attributes:
        name: topic name.
        is_state: whether the last sample of each sender is kept for late joiners.
        reads: whether this process reads it.
        writes: whether this process writes it. Topics that it reads and writes count for attachment.
    """

    name: str
    is_state: bool
    reads: bool = True
    writes: bool = True


NODE_TOPICS: Final = (
    ChannelTopic("d_status", is_state=True),
    ChannelTopic("d_nameSpaces", is_state=True),
    ChannelTopic("d_message", is_state=False),
    ChannelTopic("d_monitor", is_state=True, reads=False),
    ChannelTopic("d_monitorEvents", is_state=False, reads=False),
    ChannelTopic("d_past", is_state=True, reads=False),
)
"""The topics of a node."""

CONSOLE_TOPICS: Final = (
    ChannelTopic("d_monitor", is_state=True, writes=False),
    ChannelTopic("d_monitorEvents", is_state=False, writes=False),
)
"""The topics of a console."""
PAST_TOPICS: Final = (ChannelTopic("d_past", is_state=True, writes=False),)
"""A console's further topic: events from before its start."""


class Announced(NamedTuple):
    """Names and priorities of the protocol's endpoints, which tools show.

    Attributes:
        writer: the entity name of every writer, empty for none.
        reader: the entity name of every reader, empty for none.
        priority: TRANSPORT_PRIORITY of the writers.
        priorities: TRANSPORT_PRIORITY of the writers of some topics, by topic name.
    """

    writer: str = ""
    reader: str = ""
    priority: int = 0
    priorities: Mapping[str, int] = MappingProxyType({})


class _Shown(NamedTuple):
    """The last state of a topic that was sent, and the id of the secret that proves it."""

    sender: bytes
    payload: bytes
    proved_with: bytes


class ReceivedMessage(NamedTuple):
    """A state or message of another sender. `participant` is the GUID of the participant it came from."""

    topic: str
    sender_id: str
    payload: bytes
    participant: bytes


class PeerAttached(msgspec.Struct, frozen=True):
    """Both sides have matched all endpoints of each other: from now on nothing that one sends is lost.

    The peer may notice first, so its first message may arrive before this.
    """

    participant: bytes


class PeerDetached(msgspec.Struct, frozen=True):
    """The peer left, was lost, or lost this participant. It may attach again with the same GUID."""

    participant: bytes


class Channel:
    """States and messages in one partition.

    Args:
        participant: our participant.
        partition: the partition of all topics.
        topics: the topics to open.
        signal: set when there is something to take.
        announced: names and priorities of the endpoints.
        limit: size of each topic's queue in samples; a full queue makes senders wait.

    Attributes:
        malformed: number of dropped samples that were not of the topic's type, by topic name.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        partition: str = PARTITION,
        *,
        topics: Sequence[ChannelTopic] = NODE_TOPICS,
        signal: Signal | None = None,
        announced: Announced = Announced(),  # noqa: B008  # a value that never changes
        limit: int = 10_000,
    ) -> None:
        self._participant = participant
        self._announced = announced
        self._owns_signal = signal is None
        self.signal = signal or Signal(participant)
        self._partition = partition
        self._limit = limit
        self.malformed: dict[str, int] = {}
        self._topics: list[Topic] = []
        self._readers: dict[str, CaptureReader] = {}
        self._writers: dict[str, RawWriter] = {}
        self._attaching: list[str] = []
        self._states: dict[str, _Shown | None] = {}
        self._in_order: dict[str, threading.Lock] = {}
        for topic in topics:
            self._open(topic)
            if topic.reads and topic.writes:
                self._attaching.append(topic.name)
        if self._attaching:
            self._open(ChannelTopic(ATTACHMENT_TOPIC, is_state=True))
            self._attaching.append(ATTACHMENT_TOPIC)
        # Only these have matches that `take` looks at. A status that nobody takes ends every wait at once.
        for name in self._attaching:
            self.signal.attach(self._writers[name].entity, abi.PUBLICATION_MATCHED)
            self.signal.attach(self._readers[name].entity, abi.SUBSCRIPTION_MATCHED)
        self._matched: frozenset[bytes] = frozenset()
        self._has_matched_us: dict[bytes, bytes] = {}
        self._attached: set[bytes] = set()
        self._changes: list[PeerAttached | PeerDetached] = []

    def _open(self, topic: ChannelTopic) -> None:
        entity = Topic.of_class(self._participant, topic.name, SenderState if topic.is_state else Message)
        self._topics.append(entity)
        # One for each topic: the newest state must be the last one written, although two threads write
        # states; messages of one topic must not wait for a slow reader of another.
        self._in_order[topic.name] = threading.Lock()
        if topic.is_state:
            self._states[topic.name] = None
        qos = EndpointQos(
            blocking_ns=_BLOCK_NS,
            durability=DurabilityKind.TRANSIENT_LOCAL if topic.is_state else DurabilityKind.VOLATILE,
            history_depth=1 if topic.is_state else KEEP_ALL,
            autodispose=topic.is_state,
            partitions=(self._partition,),
        )
        if topic.reads:
            named = msgspec.structs.replace(qos, name=self._announced.reader)
            reader = CaptureReader(
                self._participant, entity, limit=self._limit, qos=named, signal=self.signal
            )
            self._readers[topic.name] = reader
        if topic.writes:
            announced = self._announced
            priority = announced.priorities.get(topic.name, announced.priority)
            named = msgspec.structs.replace(qos, name=announced.writer, transport_priority=priority)
            writer = RawWriter(self._participant, entity, named)
            self._writers[topic.name] = writer

    def publish(self, topic: str, sender_id: str, payload: bytes) -> None:
        """Send a state or message. It blocks while a peer is behind; call it in a worker thread.

        Raises:
            KeyError: the channel does not write this topic.
            ValueError: the sender id is empty or too long.
            DdsTimeout: a peer was behind for three seconds; nothing was sent.
            DdsError: the channel is closed.
        """
        with self._in_order[topic]:  # serials of proofs grow in the order of writing
            self._write(topic, sender_id.encode(), payload)

    def _write(self, topic: str, sender: bytes, payload: bytes) -> None:
        """Send, with the lock of the topic."""
        writer, proofs = self._writers[topic], self._participant.proofs
        proved_with = proofs.proves_with()
        proof = proofs.prove(topic, writer.guid, sender, payload)
        writer.write(cdr.pack_named(sender, proof + payload), stamp_ns())
        if topic in self._states:
            self._states[topic] = _Shown(sender, payload, proved_with)

    def _prove_anew(self) -> None:
        """Send states again that an earlier secret proves: who starts later may not know that one."""
        proves_with = self._participant.proofs.proves_with()
        for topic, shown in self._states.items():
            if shown is None or shown.proved_with == proves_with:
                continue
            # If a peer is behind, or another thread waits for one, it is done at one of the next calls.
            if self._in_order[topic].acquire(blocking=False):
                try:
                    newest = self._states[topic] or shown
                    # A state is replaced by the next one, so a peer that is behind needs only that, not
                    # this.
                    with contextlib.suppress(DdsTimeout):
                        self._write(topic, newest.sender, newest.payload)
                finally:
                    self._in_order[topic].release()

    def take(self) -> list[ReceivedMessage]:
        """Take the samples of other participants, in order for each sender and topic.

        Those without the proof that is needed are left out, and counted by the participant's `proofs`.
        """
        self._look_at_matches()
        self._prove_anew()
        taken: list[ReceivedMessage] = []
        own = self._participant.guid
        proofs = self._participant.proofs
        for name, reader in self._readers.items():
            for _, writer, _, _, status, _, payload in [*reader.drain(self._limit), *proofs.verifiable(name)]:
                participant = abi.participant_of(writer)
                if participant == own:
                    continue
                if status & WRITER_GONE:
                    proofs.ended(name, writer)
                    if name == ATTACHMENT_TOPIC:
                        self._has_matched_us.pop(participant, None)
                        self._update(participant)
                if not status & DATA:
                    continue
                try:
                    sender, content = cdr.unpack_named(payload)
                    text = sender.decode()
                except (cdr.Malformed, UnicodeDecodeError):
                    self.malformed[name] = self.malformed.get(name, 0) + 1
                    if self._attaching:  # a console has no business with who sends it
                        proofs.refuse(writer, ProofFault.NONSENSE)
                    continue
                proved = proofs.verify(name, writer, sender, content, is_state=name in self._states)
                if proved is None:
                    continue
                if name == ATTACHMENT_TOPIC:
                    self._learn(participant, proved)
                else:
                    taken.append(ReceivedMessage(name, text, proved, participant))
        return taken

    def take_changes(self) -> list[PeerAttached | PeerDetached]:
        """Take the attachments and detachments since the last call; call `take` first."""
        changes, self._changes = self._changes, []
        return changes

    def peers(self) -> frozenset[bytes]:
        """Return the participants that are attached now."""
        return frozenset(self._attached)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there may be something to take; return False if not in time."""
        return self.signal.wait(timeout_s)

    def _look_at_matches(self) -> None:
        """Find the participants that match all our readers and writers, and publish them if they changed."""
        changed = False
        taken = ctypes.c_uint32()
        for name in self._attaching:
            for entity, status in (
                (self._writers[name].entity, abi.PUBLICATION_MATCHED),
                (self._readers[name].entity, abi.SUBSCRIPTION_MATCHED),
            ):
                abi.take_status(entity, ctypes.byref(taken), status)
                changed = changed or bool(taken.value)
        if not changed:
            return
        sides = [self._writers[name].matched_readers().values() for name in self._attaching]
        sides += [self._readers[name].matched_writers().values() for name in self._attaching]
        matched = frozenset(set.intersection(*map(set, sides)) - {self._participant.guid})
        if matched == self._matched:
            return
        affected = self._matched ^ matched
        self._matched = matched
        self.publish(ATTACHMENT_TOPIC, self._participant.guid.hex(), b"".join(sorted(matched)))
        for participant in affected:
            self._update(participant)

    def _learn(self, participant: bytes, content: bytes) -> None:
        """Remember the participants that a peer has matched."""
        if len(content) % _GUID_BYTES or len(content) > MAX_PEERS * _GUID_BYTES:
            self.malformed[ATTACHMENT_TOPIC] = self.malformed.get(ATTACHMENT_TOPIC, 0) + 1
            return
        self._has_matched_us[participant] = content
        self._update(participant)

    def _update(self, participant: bytes) -> None:
        told = self._has_matched_us.get(participant, b"")
        ours = self._participant.guid
        knows_us = any(
            told[start : start + _GUID_BYTES] == ours for start in range(0, len(told), _GUID_BYTES)
        )
        attached = knows_us and participant in self._matched
        if attached and participant not in self._attached:
            self._attached.add(participant)
            self._changes.append(PeerAttached(participant))
        elif not attached and participant in self._attached:
            self._attached.discard(participant)
            self._changes.append(PeerDetached(participant))

    def close(self) -> None:
        """Delete all entities. Idempotent."""
        for writer in self._writers.values():
            self.signal.detach(writer.entity)
            writer.close()
        for reader in self._readers.values():
            self.signal.detach(reader.entity)
            reader.close()
        for topic in self._topics:
            topic.close()
        if self._owns_signal:
            self.signal.close()
