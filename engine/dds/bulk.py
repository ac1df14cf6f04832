"""Alignment streams: large batches from one node to several others, at the pace of the slowest receiver.

Each receiver listens in its own partition. A sender writes in the partitions of all its receivers at once,
so one answer serves many alignees. The sender keeps nothing for later receivers: it waits for all of them
first. A receiver with a full queue refuses samples; the sender's cache fills, and the sender waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.dataset.groups import KEEP_ALL
from engine.dataset.sample import DATA
from engine.dds import abi, cdr
from engine.dds.capture_reader import CaptureReader
from engine.dds.errors import DdsTimeout
from engine.dds.own_types import Batch
from engine.dds.participant import NodeParticipant
from engine.dds.proofs import ProofFault
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter, stamp_ns
from engine.dds.writer_names import WRITER_GONE

TOPIC: Final = "d_sampleChain"
# Just above `MAX_SAMPLE_BYTES` (127 MiB), which travels in one batch with its head. It bounds what one
# forged batch makes the receiver allocate.
MAX_BATCH_BYTES: Final = 128 << 20
"""Larger batches are refused. Batches of 256 KiB to 1 MiB are fastest; a large sample needs a larger one."""

# The call cannot be broken off, so the end of a node waits this long for it. Shorter wakes up more often
# while a fellow is slow.
_BLOCK_NS: Final = 200_000_000
"""Longest wait inside Cyclone DDS, where no deadline and no abandonment is seen."""


class ReceivedBatch(NamedTuple):
    """One batch, or the end of a stream.

    Attributes:
        participant: GUID of the sending participant.
        stream: GUID of the sending writer; each `BulkSender` has one writer.
        payload: the batch; None if the sender was closed or lost.
    """

    participant: bytes
    stream: bytes
    payload: bytes | None


class BulkSender:
    """Sends batches to a fixed set of receivers, in order and without loss.

    Its calls block; use it in a worker thread.

    Args:
        participant: our participant.
        partitions: the partitions of the receivers.
        targets: GUIDs of the receivers' participants.
        topic: topic name.
        name: the writer's entity name, which tools show.
        priority: TRANSPORT_PRIORITY.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        partitions: Iterable[str],
        targets: Iterable[bytes],
        topic: str = TOPIC,
        *,
        name: str = "",
        priority: int = 0,
    ) -> None:
        self.targets = frozenset(targets)
        self._topic = Topic.of_class(participant, topic, Batch)
        qos = EndpointQos(
            history_depth=KEEP_ALL,
            blocking_ns=_BLOCK_NS,
            autodispose=False,
            partitions=tuple(partitions),
            name=name,
            transport_priority=priority,
        )
        self._writer = RawWriter(participant, self._topic, qos)
        self.stream = self._writer.guid
        self._proofs = participant.proofs

    def missing(self) -> frozenset[bytes]:
        """Return the targets whose receiver does not match now: not there yet, or lost."""
        return self.targets - set(self._writer.matched_readers().values())

    def wait_targets(self, timeout_s: float) -> frozenset[bytes]:
        """Wait until every target's receiver matches; return the targets still missing after `timeout_s`."""
        self._writer.wait_until(lambda: not self.missing(), timeout_s)
        return self.missing()

    def send(self, payload: bytes, timeout_s: float) -> None:
        """Send one batch; wait while a receiver is behind.

        Raises:
            ValueError: the batch is larger than `MAX_BATCH_BYTES`.
            DdsTimeout: a receiver stayed behind; the batch was not sent and may be sent again.
            DdsError: the sender is closed.
        """
        if len(payload) > MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {len(payload)} bytes; the limit is {MAX_BATCH_BYTES}")
        proof = self._proofs.prove(self._topic.name, self.stream, b"", payload)
        sample = cdr.pack_bytes(proof, payload)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._writer.write(sample, stamp_ns())
            except DdsTimeout:
                if time.monotonic() >= deadline:
                    raise
            else:
                return

    def finish(self, timeout_s: float) -> bool:
        """Wait until every receiver has queued everything; return False if that takes longer."""
        return self._writer.wait_for_acks(timeout_s)

    def close(self) -> None:
        """Delete the writer; receivers see the end of the stream. Call `finish` first. Idempotent."""
        self._writer.close()
        self._topic.close()


class BulkReceiver:
    """Receives the batches of one partition.

    Args:
        participant: our participant.
        partition: our own partition.
        limit: size of the queue in batches; a full queue makes senders wait.
        signal: set when there is something to take.
        topic: topic name.
        name: the reader's entity name, which tools show.

    Attributes:
        malformed: number of dropped samples that were not batches.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        partition: str,
        *,
        limit: int = 16,
        signal: Signal | None = None,
        topic: str = TOPIC,
        name: str = "",
    ) -> None:
        self.malformed = 0
        self._topic = Topic.of_class(participant, topic, Batch)
        qos = EndpointQos(history_depth=KEEP_ALL, partitions=(partition,), name=name)
        self._reader = CaptureReader(participant, self._topic, limit=limit, qos=qos, signal=signal)
        self._proofs = participant.proofs

    @property
    def rejected(self) -> int:
        """Number of times that the full queue refused a batch."""
        return self._reader.rejected

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there may be something to take; return False if not in time."""
        return self._reader.wait(timeout_s)

    def wake(self) -> None:
        """Make a waiting thread return."""
        self._reader.wake()

    def take(self, limit: int = 16) -> list[ReceivedBatch]:
        """Take up to `limit` batches and ends, in order for each stream."""
        taken = []
        for _, writer, _, _, status, _, payload in self._reader.drain(limit):
            content: bytes | None = None
            if status & DATA:
                try:
                    batch = cdr.unpack_bytes(payload)
                except cdr.Malformed:
                    self.malformed += 1
                    self._proofs.refuse(writer, ProofFault.NONSENSE)
                    continue
                content = self._proofs.verify(self._topic.name, writer, b"", batch)
                if content is None:
                    continue
            elif not status & WRITER_GONE:
                continue
            taken.append(ReceivedBatch(abi.participant_of(writer), writer, content))
        return taken

    def close(self) -> None:
        """Delete the reader and drop its queue. Idempotent."""
        self._reader.close()
        self._topic.close()
