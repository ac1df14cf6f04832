"""Topics on which readers with durable subscriptions and persistence services talk.

A reader says its state on one topic; what it wrote last is there for services that come later. Services
answer in a partition that is the reader's own, with batches.
"""

from __future__ import annotations

import ctypes
import re
from typing import Final

from engine.dataset.groups import DurabilityKind
from engine.dds import abi, cdr
from engine.dds.bulk import BulkReceiver, BulkSender
from engine.dds.participant import NodeParticipant
from engine.dds.qos import EndpointQos
from engine.dds.tap import CaptureReader
from engine.dds.topics import Topic
from engine.dds.waiting import Signal
from engine.dds.wiretypes import State
from engine.dds.writer import RawWriter

PARTITION: Final = "persistencePartition"
"""Of everything that persistence services say."""
STATES: Final = "p_subscriber"
ANSWERS: Final = "p_pending"

_BLOCK_NS: Final = 3_000_000_000
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
    """How a reader calls itself, from the 16 bytes of its session."""
    return f"{session.hex()}-{number}"


class StateWriter:
    """Where a reader says its state.

    Args:
        participant, signal: where it lives, and what is set when services come and go.
        reader: from `reader_id`.
    """

    def __init__(self, participant: NodeParticipant, signal: Signal, reader: str) -> None:
        self._reader = reader.encode()
        self._topic = Topic.of_class(participant, STATES, State)
        self._signal = signal
        self._writer = RawWriter(participant, self._topic, _QOS)
        signal.attach(self._writer.entity, abi.PUBLICATION_MATCHED)
        self._services: frozenset[bytes] = frozenset()

    def write(self, state: bytes, time_ns: int) -> None:
        """Say it; errors as for `RawWriter.write`."""
        self._writer.write(cdr.pack_named(self._reader, state), time_ns)

    def services(self) -> frozenset[bytes]:
        """GUIDs of the participants that hear it now."""
        status = ctypes.c_uint32()
        abi.take_status(self._writer.entity, ctypes.byref(status), abi.PUBLICATION_MATCHED)
        if status.value:
            self._services = frozenset(self._writer.matched_readers().values())
        return self._services

    def close(self) -> None:
        """Services see that the reader is gone. Idempotent."""
        self._signal.detach(self._writer.entity)
        self._writer.close()
        self._topic.close()


def open_states(participant: NodeParticipant, signal: Signal) -> CaptureReader:
    """Where a service hears the states of readers; `unpack_state` reads the payloads."""
    topic = Topic.of_class(participant, STATES, State)
    return CaptureReader(participant, topic, limit=_LIMIT, qos=_QOS, signal=signal)


def unpack_state(payload: bytes) -> tuple[str, bytes]:
    """The reader and its state.

    Raises:
        Malformed: the bytes are none, or the reader's name is none.
    """
    name, state = cdr.unpack_named(payload)
    reader = name.decode("ascii", "replace")
    if not _READER_ID.fullmatch(reader):
        raise cdr.Malformed("no id of a reader")
    return reader, state


def answers_to(participant: NodeParticipant, reader: str, target: bytes) -> BulkSender:
    """Sends answers to one reader; `target` is the GUID of its participant."""
    return BulkSender(participant, [f"{PARTITION}.{reader}"], [target], ANSWERS)


def open_answers(participant: NodeParticipant, signal: Signal, reader: str) -> BulkReceiver:
    """Where a reader gets answers."""
    return BulkReceiver(participant, f"{PARTITION}.{reader}", signal=signal, topic=ANSWERS)
