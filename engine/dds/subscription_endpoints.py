"""Topics between persistence services and readers with durable subscriptions.

A reader publishes its state on one topic, whose last sample later services receive. Services answer with
batches in the reader's own partition.
"""

from __future__ import annotations

import ctypes
import re
from typing import Final

from engine.dataset.groups import DurabilityKind
from engine.dds import abi, cdr
from engine.dds.bulk import BulkReceiver, BulkSender
from engine.dds.capture_reader import CaptureReader
from engine.dds.own_types import SenderState
from engine.dds.participant import NodeParticipant
from engine.dds.proofs import Proofs
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter

PARTITION: Final = "persistencePartition"
"""Partition of all topics of persistence services."""
STATES: Final = "p_subscriber"
ANSWERS: Final = "p_pending"

# Chosen, as for the answers to other clients: an application waits for its own state at most this long.
_BLOCK_NS: Final = 3_000_000_000
# Chosen: answers are small and taken at once. At the limit Cyclone DDS holds the senders back.
_LIMIT: Final = 10_000
_READER_ID: Final = re.compile(r"[0-9a-f]{32}-\d{1,9}")

_QOS: Final = EndpointQos(
    blocking_ns=_BLOCK_NS,
    durability=DurabilityKind.TRANSIENT_LOCAL,
    history_depth=1,
    autodispose=True,
    partitions=(PARTITION,),
)


def reader_id(session: bytes, number: int) -> str:
    """Return the id of a reader, from the 16 bytes of its session."""
    return f"{session.hex()}-{number}"


class StateWriter:
    """Publishes the state of a reader.

    Args:
        participant: where the writer lives.
        signal: set when services come and go.
        reader: from `reader_id`.
    """

    def __init__(self, participant: NodeParticipant, signal: Signal, reader: str) -> None:
        self._reader = reader.encode()
        self._topic = Topic.of_class(participant, STATES, SenderState)
        self._signal = signal
        self._writer = RawWriter(participant, self._topic, _QOS)
        self._proofs = participant.proofs
        signal.attach(self._writer.entity, abi.PUBLICATION_MATCHED)
        self._services: frozenset[bytes] = frozenset()
        self._shown: tuple[bytes, int] | None = None
        self._proved_with = b""

    def write(self, state: bytes, time_ns: int) -> None:
        """Publish the state; errors as for `RawWriter.write`."""
        self._shown, self._proved_with = (state, time_ns), self._proofs.proves_with()
        proof = self._proofs.prove(STATES, self._writer.guid, self._reader, state)
        self._writer.write(cdr.pack_named(self._reader, proof + state), time_ns)

    def services(self) -> frozenset[bytes]:
        """Return the GUIDs of the participants that receive the state now.

        After a change of the secret the state is sent again: a service that starts later may not know the
        former one.
        """
        if self._shown is not None and self._proved_with != self._proofs.proves_with():
            self.write(*self._shown)
        status = ctypes.c_uint32()
        abi.take_status(self._writer.entity, ctypes.byref(status), abi.PUBLICATION_MATCHED)
        if status.value:
            self._services = frozenset(self._writer.matched_readers().values())
        return self._services

    def close(self) -> None:
        """Delete the writer; services see the end of the reader. Idempotent."""
        self._signal.detach(self._writer.entity)
        self._writer.close()
        self._topic.close()


def open_states(participant: NodeParticipant, signal: Signal) -> CaptureReader:
    """Open a service's reader of reader states; `unpack_state` reads the payloads."""
    topic = Topic.of_class(participant, STATES, SenderState)
    return CaptureReader(participant, topic, limit=_LIMIT, qos=_QOS, signal=signal)


def unpack_state(payload: bytes, writer: bytes, proofs: Proofs) -> tuple[str, bytes]:
    """Return the reader and its state.

    Args:
        payload: the bytes.
        writer: GUID of their writer.
        proofs: those of the participant that received them.

    Raises:
        Malformed: the bytes are not a state, the name is not a reader's id, or the proof is not there.
    """
    name, state = cdr.unpack_named(payload)
    reader = name.decode("ascii", "replace")
    if not _READER_ID.fullmatch(reader):
        raise cdr.Malformed("not an id of a reader")
    proved = proofs.verify(STATES, writer, name, state, is_state=True)
    if proved is None:
        raise cdr.Malformed("it does not prove its sender")
    return reader, proved


def answers_to(participant: NodeParticipant, reader: str, target: bytes) -> BulkSender:
    """Open a sender of answers to one reader; `target` is the GUID of its participant."""
    return BulkSender(participant, [f"{PARTITION}.{reader}"], [target], ANSWERS)


def open_answers(participant: NodeParticipant, signal: Signal, reader: str) -> BulkReceiver:
    """Open a reader's receiver of answers."""
    return BulkReceiver(participant, f"{PARTITION}.{reader}", signal=signal, topic=ANSWERS)
