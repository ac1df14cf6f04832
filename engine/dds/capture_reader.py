"""Capture: a reader that sees every write, dispose and unregister, each with its own timestamp and writer.

An ordinary reader keeps, of a dispose, only the state it leads to. The tap therefore replaces the reader's
history cache (struct dds_rhc) by a queue that takes everything: a byte ring between Cyclone's receive threads
and Python, which is filled without Python. `ring.c` of the compiled library (`engine.native`) puts a copy of
each sample into it. It needs no interpreter lock, so capture goes on at full speed while Python works on
earlier samples; with a Python function in its place every sample would wait for the lock. Samples above
32 KiB are not copied: the ring holds a reference to Cyclone's own.

Nothing is ordered, filtered or dropped here: history depth, ownership, destination order and lifespan are
the business of the code that drains the queue.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import threading
from typing import Final

from engine import native
from engine.dataset.captured import CapturedRun, singly
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, UNTIMED, Sample
from engine.dds import abi
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, endpoint_qos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal, Waker
from engine.dds.writer_names import WRITER_GONE, WriterNames

ANY_PARTITION: Final = ("*", "")
"""Partitions that match those of every writer; in Fast DDS `*` does not match the default one."""

# 32 KiB for the call. Writers beyond it would be taken for lost, so it is far above what a topic has.
_MAX_MATCHES: Final = 4096
"""Writers that are asked for at once; the array for their handles is made before their number is known."""
MIN_BYTES: Final = 1 << 18
"""Least size of a queue: several records of the largest size that is copied, 32 KiB."""

_LARGE: Final = 16
_UNTIMED: Final = 32
"""The sample came without a source timestamp; its sequence number follows its key."""
_NUMBER_BYTES: Final = 8
_RECORD: Final = struct.Struct("<IIq16sII")
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER
# Not measured closely: smaller pieces cost a call each, larger ones are read from memory twice.
_PIECE_BYTES: Final = 1 << 18
"""Bytes that are copied out of the ring at a time; they fit into the cache of a processor."""
# Chosen: below it the comparison saves less than it costs. Too small only costs time for data in which
# nothing repeats.
_MIN_RUN: Final = 64
"""Records that are alike, below which each of them is looked at."""
_ALIKE: Final = (0, 2, 3, 4)
"""The words of a record's head that are the same in a run; the other one is the time."""
_pointer = ctypes.c_void_p
_count = ctypes.c_uint64


class _Ring(ctypes.Structure):
    """The first part of struct ring of ring.c."""

    _fields_ = [
        ("ops", _pointer),
        ("capacity", _count),
        ("limit", _count),
        ("head", _count),
        ("put", _count),
        ("rejected", _count),
        ("unreported", _count),
        ("large_put", _count),
        ("large_bytes_put", _count),
        ("tail", _count),
        ("taken", _count),
        ("large_taken", _count),
        ("large_bytes_taken", _count),
    ]


@functools.cache
def _library() -> ctypes.PyDLL:
    library = native.library()
    library.ring_bytes.restype = _count
    library.ring_begin.restype = _count
    library.ring_begin.argtypes = [_pointer]
    library.ring_release.restype = None
    library.ring_release.argtypes = [_pointer, _count, _count]
    library.ring_open.restype = None
    library.ring_open.argtypes = [
        *(_pointer, _pointer, _pointer, _count, _count),
        *(_pointer, ctypes.c_int32, ctypes.c_int32, _pointer),
    ]
    return library


def _at(name: str) -> int:
    return abi.address_of(getattr(_library(), name))


@functools.cache
def _cache_ops() -> abi.ReaderCacheOps:
    return abi.ReaderCacheOps(
        store=_at("ring_store"),
        unregister_writer=_at("ring_unregister_writer"),
        relinquish=_at("ring_none"),
        free=_at("ring_none"),
        peek=_at("ring_none"),
        read=_at("ring_none"),
        take=_at("ring_none"),
        add_condition=_at("ring_yes"),
        remove_condition=_at("ring_none"),
        associate=_at("ring_none"),
    )


@functools.cache
def _deaf_ops() -> abi.ReaderCacheOps:
    """Functions that accept everything and keep nothing."""
    ops = abi.ReaderCacheOps.from_buffer_copy(_cache_ops())
    ops.store = _at("ring_yes")
    ops.unregister_writer = _at("ring_none")
    return ops


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
        self._lock = threading.Lock()  # `end` and `close` may be called by two threads
        self._closed = self._has_ended = False
        self._open_ring(limit, max(MIN_BYTES, 1 << (capacity_bytes - 1).bit_length()), hears=hears)
        self._subscriber = participant.create_subscriber(self.qos)
        with endpoint_qos(self.qos) as c_qos:
            code = abi.create_reader_with_cache(self._subscriber, topic.entity, c_qos, None, self._address)
        if code < 0:
            abi.delete(self._subscriber)
        self.entity: int = check(code, f"create a reader of topic '{topic.name}'")
        self.guid = abi.guid_of(self.entity)
        participant.adopt(self.entity, self)

    def _open_ring(self, limit: int, capacity: int, *, hears: bool) -> None:
        """Make the queue, which has the form of a history cache, so that its address can stand for one."""
        library = _library()
        self._buffer = mmap.mmap(-1, capacity)
        self._memory = ctypes.create_string_buffer(library.ring_bytes())
        self._ring = _Ring.from_buffer(self._memory)
        self._address = ctypes.addressof(self._ring)
        self._buffer_at = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        library.ring_open(
            self._address,
            ctypes.addressof(_cache_ops()),
            self._buffer_at,
            capacity,
            limit,
            abi.address_of(abi.set_guard),
            self._signal.guard,
            self._signal.urgent_guard,
            abi.address_of(abi.serdata_ref),
        )
        self._begin, self._release = library.ring_begin, library.ring_release
        self._names = WriterNames()
        self._hear(hears=hears)

    def _hear(self, *, hears: bool) -> None:
        """Keep what comes from now on, or accept and forget it."""
        self._ring.ops = ctypes.addressof(_cache_ops() if hears else _deaf_ops())

    def __len__(self) -> int:
        return int(self._ring.put - self._ring.taken)

    @property
    def fill(self) -> float:
        """Filled part of the queue, 0 to 1: of its records, its bytes, or the bytes of large samples."""
        ring = self._ring
        size = int(max(ring.head - ring.tail, ring.large_bytes_put - ring.large_bytes_taken))
        return min(1.0, max(len(self) / int(ring.limit), size / int(ring.capacity)))

    @property
    def rejected(self) -> int:
        """Number of times that the full queue refused a sample, which Cyclone DDS then offered again."""
        return int(self._ring.rejected)

    @property
    def unreported(self) -> int:
        """Number of ends of writers that did not fit into the queue; discovery still reports them."""
        return int(self._ring.unreported)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the signal; return True if there may be something in the queue."""
        return bool(len(self) or self._signal.wait(timeout_s) or len(self))

    def wake(self) -> None:
        """Make a waiting thread return."""
        self._signal.set()

    def drain(self, limit: int = 10_000) -> list[Sample]:
        """Take up to `limit` captured samples, oldest first. One thread drains."""
        return singly(self.drain_runs(limit)[1])

    def drain_runs(self, limit: int = 10_000) -> tuple[int, list[Sample | CapturedRun]]:
        """Drain like `drain`, but with consecutive writes of equal size as one `CapturedRun`.

        Returns:
            The number of samples, and the samples and runs.
        """
        taken: list[Sample | CapturedRun] = []
        ring, left = self._ring, limit
        capacity, mask = ring.capacity, ring.capacity - 1
        head, tail = self._begin(self._address), ring.tail
        while tail < head and left:
            to_end = capacity - (tail & mask)
            before, used = left, 0
            if to_end >= _RECORD.size:
                # A copy of a piece at a time: it stays in the processor's cache, and its place in the ring
                # is free again before the next piece is looked at.
                size = min(head - tail, to_end, _PIECE_BYTES)
                piece = ctypes.string_at(self._buffer_at + (tail & mask), size)
                count = 1
                while count and left:
                    count, some = self._run(piece, used, left, taken) or self._parse(
                        piece, used, min(left, _MIN_RUN), taken
                    )
                    used += some
                    left -= count
                assert used <= size, "a record is taken whole, or stays"
            tail += used or to_end  # nothing used: the rest of the buffer was too small for a record
            self._release(self._address, tail, before - left)
        if tail < head:
            self._signal.set()
        return limit - left, taken

    def _run(
        self, piece: bytes, at: int, limit: int, taken: list[Sample | CapturedRun]
    ) -> tuple[int, int] | None:
        """Append the writes from there on that are alike but for time, key and payload, if there are many.

        Returns:
            How many they are, and how many bytes; None for few.
        """
        if len(piece) - at < _MIN_RUN * _RECORD.size:
            return None
        total, status, _, host_order, size, key_bytes = _RECORD.unpack_from(piece, at)
        if status != DATA or not total:
            return None
        most = min(limit, (len(piece) - at) // total)
        words = memoryview(piece)[at : at + most * total].cast("q")
        count = _alike(words, total // 8, most)
        if not count:
            return None
        writer = self._names.get(host_order) or self._names.learn(host_order)
        times_ns = words[1 : count * total // 8 : total // 8].tolist()
        taken.append(CapturedRun(writer, times_ns, piece, at + _RECORD.size, total, size, key_bytes))
        return count, count * total

    def _parse(self, piece: bytes, at: int, limit: int, taken: list[Sample | CapturedRun]) -> tuple[int, int]:
        """Append up to `limit` whole records from `at` on; return how many, and how many bytes they are."""
        unpack, make, add = _RECORD.unpack_from, tuple.__new__, taken.append
        known, learn = self._names.get, self._names.learn
        header = _RECORD.size
        last = len(piece) - header
        begin, left = at, limit
        while left and at <= last:
            total, status, time_ns, host_order, size, key_size = unpack(piece, at)
            if not total or at + total > len(piece):
                break
            body = at + header
            at += total
            left -= 1
            writer = known(host_order) or learn(host_order)
            key_at = body + size
            payload, key = piece[body:key_at], piece[key_at : key_at + key_size]
            sequence = 0
            if status > _SAMPLE:
                number_at = key_at + key_size
                number = piece[number_at : number_at + _NUMBER_BYTES] if status & _UNTIMED else b""
                sequence = UNTIMED | int.from_bytes(number, "little") if number else 0
                if status & _LARGE:  # the record has the address of Cyclone's own copy, and a reference to it
                    serdata = int.from_bytes(payload, "little")
                    key, payload = abi.content_of(serdata)
                    self._ring.large_bytes_taken += len(payload)
                    self._ring.large_taken += 1
                    abi.serdata_unref(serdata)
                if number or status & _LARGE:
                    status &= _SAMPLE
                else:
                    time_ns, status, key = 0, WRITER_GONE, b""
            add(make(Sample, (time_ns, writer, sequence, b"", status, key, payload)))
        return limit - left, at - begin

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
        self._hear(hears=True)

    def end(self) -> None:
        """Delete the reader and keep nothing more; queued records can still be drained. Idempotent.

        When this returns, all other readers of this process have received the samples in the queue, too.
        """
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self._hear(hears=False)
        abi.delete(self._subscriber)

    def close(self) -> None:
        """Delete the reader and drop its queue. Do not call it while another thread drains. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.end()
        while len(self):  # large samples must be given back; nothing uses the ring any more
            self.drain_runs()
        if self._owns_signal:
            self._signal.close()
        self._participant.disown(self.entity)


def _alike(words: memoryview, stride: int, most: int) -> int:
    """Of `most` records of `stride` words each, how many are surely like the first; 0 when they are few.

    Where not all are, half of them are looked at, and so on.
    """
    if most < _MIN_RUN or not _are_alike(words, stride, _MIN_RUN):
        return 0
    count = most
    while not _are_alike(words, stride, count):
        count //= 2
    return max(count, _MIN_RUN)


def _are_alike(words: memoryview, stride: int, count: int) -> bool:
    end = stride * count
    return all(words[at:end:stride].tobytes() == words[at : at + 1].tobytes() * count for at in _ALIKE)
