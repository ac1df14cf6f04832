"""Capture: a reader that sees every write, dispose and unregister, each with its own timestamp and writer.

An ordinary reader keeps, of a dispose, only the state it leads to. The tap therefore replaces the reader's
history cache (struct dds_rhc) by a queue that takes everything.

Nothing is ordered, filtered or dropped here: history depth, ownership, destination order and lifespan are
the business of the code that drains the queue.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Final

from engine.dataset.captured import CapturedRun, CapturedSample
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dds import abi
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, endpoint_qos
from engine.dds.ring import Ring
from engine.dds.topics import Topic
from engine.dds.waiting import Signal, Waker

ANY_PARTITION: Final = ("*", "")
"""Partitions that match those of every writer; in Fast DDS `*` does not match the default one."""

_MAX_MATCHES: Final = 4096


class CaptureReader:
    """A reader that keeps what arrives in a bounded queue.

    A full queue refuses the next sample, and Cyclone DDS offers it again until it is accepted: the writer's
    own cache fills, and the writer slows down. Nothing is lost and the order stays. The reader acknowledges
    samples once they are in the queue, which is memory, not disk. While the queue is full, the writers'
    heartbeats are not read either: after their lease they count as lost, and match again later.

    Args:
        participant: where the reader lives.
        topic: from `open_topic`.
        partitions: `*` is every partition, the default one included. The partition of a sample is that
            of its writer, which discovery tells.
        limit: size of the queue in samples.
        capacity_bytes: size of the queue in bytes, rounded up to a power of two. Samples above 32 KiB are
            counted separately and may take the same amount again.
        exclusive: ownership of the topic; it must equal the writers'.
        durability: the least durability that writers must offer; the reader requests no history.
        reliable: False also matches best-effort writers, and may lose samples of reliable ones.
        needs_type: True refuses writers without type information.
        user_data: USER_DATA, by which writers recognise the reader; empty for none.
        qos: all policies, instead of the seven above; for readers other than captures.
        signal: set when the queue is no longer empty.
        hears: False drops samples until `listen`.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        topic: Topic,
        *,
        partitions: tuple[str, ...] = ANY_PARTITION,
        limit: int = 100_000,
        capacity_bytes: int = 4 << 20,
        exclusive: bool = False,
        durability: DurabilityKind = DurabilityKind.VOLATILE,
        reliable: bool = True,
        needs_type: bool = False,
        user_data: bytes = b"",
        qos: EndpointQos | None = None,
        signal: Waker | None = None,
        hears: bool = True,
    ) -> None:
        self._participant = participant
        self.topic = topic
        self.qos = qos or EndpointQos(
            reliable=reliable,
            durability=durability,
            history_depth=KEEP_ALL,
            exclusive=exclusive,
            latency_budget_ns=abi.INFINITE_NS,
            partitions=partitions,
            representations=BOTH_REPRESENTATIONS,
            needs_type=needs_type,
            user_data=user_data,
        )
        self._owns_signal = signal is None
        self._signal: Waker = signal or Signal(participant)
        self._lock = threading.Lock()
        self._closed = self._has_ended = False
        self._queue = Ring(self._signal, limit, capacity_bytes)
        self._queue.listen(hears=hears)
        self._subscriber = participant.create_subscriber(self.qos)
        with endpoint_qos(self.qos) as c_qos:
            code = abi.create_reader_with_cache(
                self._subscriber, topic.entity, c_qos, None, self._queue.cache
            )
        if code < 0:
            abi.delete(self._subscriber)
        self.entity: int = check(code, f"create a reader of topic '{topic.name}'")
        self.guid = abi.guid_of(self.entity)
        participant.adopt(self.entity, self)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def fill(self) -> float:
        """Filled part of the queue, 0 to 1: of its records, its bytes, or the bytes of large samples."""
        return self._queue.fill

    @property
    def rejected(self) -> int:
        """Number of times that the full queue refused a sample, which Cyclone DDS then offered again."""
        return self._queue.rejected

    @property
    def unreported(self) -> int:
        """Number of ends of writers that did not fit into the queue; discovery still reports them."""
        return self._queue.unreported

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the signal; return True if there may be something in the queue."""
        return bool(len(self) or self._signal.wait(timeout_s) or len(self))

    def wake(self) -> None:
        """Make a waiting thread return."""
        self._signal.set()

    def drain(self, limit: int = 10_000) -> list[CapturedSample]:
        """Take up to `limit` records, oldest first. One thread drains."""
        return [] if self._closed else self._queue.drain(limit)

    def drain_runs(self, limit: int = 10_000) -> tuple[int, list[CapturedSample | CapturedRun]]:
        """Drain like `drain`, but with consecutive writes of equal size as one `CapturedRun`.

        Returns:
            The number of records, and the records and runs.
        """
        return (0, []) if self._closed else self._queue.drain_runs(limit)

    def matched_writers(self) -> dict[bytes, bytes]:
        """Return writer GUID to participant GUID of the matched writers, at most 4096, in network order."""
        handles = (ctypes.c_uint64 * _MAX_MATCHES)()
        count = check(
            abi.matched_publications(self.entity, handles, _MAX_MATCHES),
            f"find the writers of topic '{self.topic.name}'",
        )
        found = {}
        for handle in handles[: min(count, _MAX_MATCHES)]:
            data = abi.matched_publication_data(self.entity, handle)
            if data:
                endpoint = abi.BuiltinEndpoint.from_address(data)
                found[bytes(endpoint.key)] = bytes(endpoint.participant_key)
                abi.free_endpoint(data)
        return found

    def is_matched(self, writer: int) -> bool:
        """Tell whether it matches the writer with this handle (`EndpointSeen.handle`)."""
        data = abi.matched_publication_data(self.entity, writer)
        if data:
            abi.free_endpoint(data)
        return bool(data)

    def listen(self) -> None:
        """Start to keep samples."""
        self._queue.listen(hears=True)

    def end(self) -> None:
        """Delete the reader and keep nothing more; queued records can still be drained. Idempotent.

        When this returns, all other readers of this process have received the samples in the queue, too.
        """
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self._queue.listen(hears=False)
        abi.delete(self._subscriber)

    def close(self) -> None:
        """Delete the reader and drop its queue. Do not call it while another thread drains. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.end()
        self._queue.close()
        if self._owns_signal:
            self._signal.close()
        self._participant.disown(self.entity)
