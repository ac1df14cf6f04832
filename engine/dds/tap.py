"""Capture: a reader that sees every write, dispose and unregister, each with its own timestamp and writer.

An ordinary reader keeps, of a dispose, only the state it leads to. The tap therefore replaces the reader's
history cache (struct dds_rhc) by functions of its own, which put everything in a queue.

Nothing is ordered, filtered or dropped here: history depth, ownership, destination order and lifespan are
the business of whoever drains the queue.
"""

from __future__ import annotations

import _thread
import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from engine.dataset.groups import KEEP_ALL
from engine.dds import abi
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, endpoint_qos
from engine.dds.topics import Topic
from engine.dds.waiting import Signal

WRITER_GONE: Final = 8
"""Status bit of a record that is no sample: the writer was deleted or lost. `payload` is `AUTODISPOSE` when
its instances count as disposed."""

AUTODISPOSE: Final = b"\x01"

ANY_PARTITION: Final = ("*",)


class Captured(NamedTuple):
    """One thing that a writer did; the fields in the order that `make_sample` takes.

    Attributes:
        source_time_ns: the writer's source timestamp; 0 with `WRITER_GONE`.
        writer: the writer's GUID, 16 bytes, network order.
        status: `DATA`, `DISPOSE`, `UNREGISTER` of `engine.dataset.sample`, or `WRITER_GONE`.
        key: XCDR2 key bytes; empty for a topic without keys.
        payload: CDR with its header; the key only when `status` lacks `DATA`.
    """

    source_time_ns: int
    writer: bytes
    status: int
    key: bytes
    payload: bytes


_WORDS_HOST: Final = struct.Struct("<4I")
_WORDS_NETWORK: Final = struct.Struct(">4I")
_REMEMBERED_WRITERS: Final = 8192
_MAX_MATCHES: Final = 4096

_keep_thread_state: Callable[[], int] = ctypes.pythonapi.PyGILState_Ensure
_string_at = ctypes.string_at


class CaptureReader:
    """A reliable KEEP_ALL reader that keeps what arrives in a bounded queue.

    A full queue refuses the next sample, and Cyclone DDS offers it again until it is taken: the writer's
    own cache fills, and the writer slows down. Nothing is lost and the order stays. The reader
    acknowledges what is in the queue; that is memory, not disk.

    Args:
        participant: where the reader lives.
        topic: from `open_topic`.
        partitions: `*` is every partition, the default one included. The partition of a sample is that
            of its writer, which discovery tells.
        limit: samples that the queue holds.
        exclusive: ownership of the topic; it must be the writers'.
        reliable: False also matches best-effort writers, and may lose samples of reliable ones.
        qos: all policies at once, instead of the three above; for readers other than captures.
        signal: set when the queue is no longer empty.

    Attributes:
        rejected: how often a sample was refused because the queue was full.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        topic: Topic,
        *,
        partitions: tuple[str, ...] = ANY_PARTITION,
        limit: int = 100_000,
        exclusive: bool = False,
        reliable: bool = True,
        qos: EndpointQos | None = None,
        signal: Signal | None = None,
    ) -> None:
        self._participant = participant
        self.topic = topic
        self.limit = limit
        self.rejected = 0
        self.qos = qos or EndpointQos(
            reliable=reliable,
            history_depth=KEEP_ALL,
            exclusive=exclusive,
            partitions=partitions,
            representations=BOTH_REPRESENTATIONS,
        )
        self._owns_signal = signal is None
        self._signal = signal or Signal(participant)
        self._queue: list[tuple[int, bytes]] = []
        self._signalled = False
        self._writers: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._functions = self._make_functions()
        self._cache_ops = abi.ReaderCacheOps(
            *(ctypes.cast(function, ctypes.c_void_p).value for function in self._functions)
        )
        self._cache = abi.ReaderCache(ctypes.pointer(self._cache_ops))
        self._subscriber = participant.create_subscriber(self.qos)
        with endpoint_qos(self.qos) as c_qos:
            code = abi.create_reader_with_cache(
                self._subscriber, topic.entity, c_qos, None, ctypes.byref(self._cache)
            )
        if code < 0:
            abi.delete(self._subscriber)
        self.entity: int = check(code, f"create a reader of topic '{topic.name}'")
        self.guid = abi.guid_of(self.entity)
        participant.adopt(self.entity, self)

    def _make_functions(self) -> list[Any]:
        """The functions of the cache. They run on Cyclone's receive threads and do as little as possible."""
        queue = self._queue
        append = queue.append
        limit = self.limit
        reference = abi.serdata_ref
        get_ident = _thread.get_ident
        pinned: set[int] = set()

        def wake() -> None:
            self._signalled = True
            self._signal.set()

        def store(_cache: int, writer: int, serdata: int, _instance: int) -> bool:
            if len(queue) >= limit:
                self.rejected += 1
                return False
            thread = get_ident()
            if thread not in pinned:
                # Otherwise Python makes and destroys a thread state for each call on a foreign thread.
                pinned.add(thread)
                _keep_thread_state()
            reference(serdata)
            append((serdata, _string_at(writer, 17)))
            if not self._signalled:
                wake()
            return True

        def unregister_writer(_cache: int, writer: int) -> None:
            append((0, _string_at(writer, 17)))
            if not self._signalled:
                wake()

        def nothing_to_read(*_: Any) -> int:
            return 0

        return [
            abi.StoreFunction(store),
            abi.UnregisterWriterFunction(unregister_writer),
            abi.RelinquishFunction(lambda _cache, _writer: None),
            abi.FreeFunction(lambda _cache: None),
            *(abi.ReadFunction(nothing_to_read) for _ in ("peek", "read", "take")),
            abi.AddConditionFunction(lambda _cache, _condition: True),
            abi.RemoveConditionFunction(lambda _cache, _condition: None),
            abi.AssociateFunction(lambda _cache, _reader: 0),
        ]

    def __len__(self) -> int:
        return len(self._queue)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the signal; True when something may be in the queue."""
        return bool(self._queue) or self._signal.wait(timeout_s) or bool(self._queue)

    def drain(self, limit: int = 10_000) -> list[Captured]:
        """Take up to `limit` entries, oldest first. One thread drains."""
        self._signalled = False
        queue = self._queue
        entries = queue[:limit]
        del queue[:limit]
        if queue:
            self._signalled = True
            self._signal.set()
        taken: list[Captured] = []
        add = taken.append
        make = tuple.__new__
        unpack, size = abi.SERDATA.unpack, abi.SERDATA_BYTES
        writers = self._writers
        string_at, release = _string_at, abi.serdata_unref
        for serdata, info in entries:
            writer = writers.get(info[:16]) or self._network_order(info)
            if not serdata:
                add(Captured(0, writer, WRITER_GONE, b"", AUTODISPOSE if info[16] else b""))
                continue
            kind, time_ns, status, data, data_bytes, key, key_bytes = unpack(string_at(serdata, size))
            add(
                make(
                    Captured,
                    (
                        time_ns,
                        writer,
                        status & 3 | (kind & 2) << 1,
                        string_at(key, key_bytes) if key_bytes else b"",
                        string_at(data, data_bytes),
                    ),
                )
            )
            release(serdata)
        return taken

    def matched_writers(self) -> dict[bytes, bytes]:
        """Writer GUID to participant GUID of the writers that match now, at most 4096; network order."""
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

    def _network_order(self, writer_info: bytes) -> bytes:
        """The GUID of a writer as the built-in topics give it: each 32-bit word turned round."""
        if len(self._writers) >= _REMEMBERED_WRITERS:
            self._writers.clear()
        host = writer_info[:16]
        network = _WORDS_NETWORK.pack(*_WORDS_HOST.unpack(host))
        self._writers[host] = network
        return network

    def close(self) -> None:
        """Delete the reader; what is still queued is dropped. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        abi.delete(self._subscriber)
        for serdata, _ in self._queue:
            if serdata:
                abi.serdata_unref(serdata)
        self._queue.clear()
        if self._owns_signal:
            self._signal.close()
        self._participant.disown(self.entity)
