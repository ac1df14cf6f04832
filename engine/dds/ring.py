"""The queue between Cyclone's receive threads and Python: a byte ring that is filled without Python.

`ring.c` of the compiled library (`engine.native`) puts a copy of each sample into the ring. It needs no
interpreter lock, so capture goes on at full speed while Python works on earlier samples; with a Python
function in its place every sample would wait for the lock. Samples above 32 KiB are not copied: the ring
holds a reference to Cyclone's own.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
from typing import TYPE_CHECKING, Final

from engine import native
from engine.dataset.captured import CapturedRun, CapturedSample
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, UNTIMED
from engine.dds import abi
from engine.dds.waiting import Waker
from engine.dds.writer_names import WRITER_GONE, WriterNames

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_BYTES: Final = 1 << 18

_LARGE: Final = 16
_UNTIMED: Final = 32
"""The sample came without a source timestamp; its sequence number follows its key."""
_NUMBER_BYTES: Final = 8
_RECORD: Final = struct.Struct("<IIq16sII")
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER
_PIECE_BYTES: Final = 1 << 18
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


class Ring:
    """A bounded queue of captured samples that Cyclone's threads fill.

    Full means: `limit` records, or `capacity_bytes` of them. Large samples are counted apart, and may
    pin `capacity_bytes` more (two larger ones are always let in).

    Args:
        signal: set when a record comes into a ring that had been drained; its urgent one when it is half
            full of samples that are not small, with records above 1.5 KiB in the mean.
        limit: records.
        capacity_bytes: rounded up to a power of two, at least 256 KiB.

    Raises:
        NoLibrary: the compiled library cannot be used.
    """

    def __init__(self, signal: Waker, limit: int, capacity_bytes: int) -> None:
        capacity = max(MIN_BYTES, 1 << (capacity_bytes - 1).bit_length())
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
            signal.guard,
            signal.urgent_guard,
            abi.address_of(abi.serdata_ref),
        )
        self._signal = signal
        self._begin, self._release = library.ring_begin, library.ring_release
        self._names = WriterNames()

    @property
    def cache(self) -> int:
        """The address that a reader takes as its history cache."""
        return self._address

    @property
    def fill(self) -> float:
        """How full it is, 0 to 1, in records, in bytes, or in bytes of large samples."""
        ring = self._ring
        size = int(max(ring.head - ring.tail, ring.large_bytes_put - ring.large_bytes_taken))
        return min(1.0, max(len(self) / int(ring.limit), size / int(ring.capacity)))

    @property
    def rejected(self) -> int:
        """How often a full ring refused a sample."""
        return int(self._ring.rejected)

    @property
    def unreported(self) -> int:
        """Writers that went while there was not even room to say so."""
        return int(self._ring.unreported)

    def __len__(self) -> int:
        return int(self._ring.put - self._ring.taken)

    def listen(self, *, hears: bool) -> None:
        """From now on keep what comes, or accept and forget it."""
        self._ring.ops = ctypes.addressof(_cache_ops() if hears else _deaf_ops())

    def drain(self, limit: int) -> list[CapturedSample]:
        """Up to `limit` records, oldest first. One thread drains."""
        taken: list[CapturedSample] = []
        self._empty(limit, lambda piece, most: self._parse(piece, 0, most, taken))
        return taken

    def drain_runs(self, limit: int) -> tuple[int, list[CapturedSample | CapturedRun]]:
        """The same, without an object for each record where many are alike; how many records, and they."""
        taken: list[CapturedSample | CapturedRun] = []
        return self._empty(limit, lambda piece, most: self._parse_runs(piece, most, taken)), taken

    def _empty(self, limit: int, parse: Callable[[bytes, int], tuple[int, int]]) -> int:
        """Let `parse` have up to `limit` records, piece by piece; returns how many it took.

        It is told how many it may take, and returns how many it took and their bytes.
        """
        ring = self._ring
        capacity, mask = ring.capacity, ring.capacity - 1
        head = self._begin(self._address)
        tail = ring.tail
        left = limit
        while tail < head and left:
            to_end = capacity - (tail & mask)
            count = used = 0
            if to_end >= _RECORD.size:
                # A copy of a piece at a time: it stays in the processor's cache, and its place in the ring
                # is free again before the next piece is looked at.
                size = min(head - tail, to_end, _PIECE_BYTES)
                piece = ctypes.string_at(self._buffer_at + (tail & mask), size)
                count, used = parse(piece, left)
            tail += used or to_end  # nothing used: the rest of the buffer was too small for a record
            left -= count
            self._release(self._address, tail, count)
        if tail < head:
            self._signal.set()
        return limit - left

    def _parse_runs(
        self, piece: bytes, limit: int, taken: list[CapturedSample | CapturedRun]
    ) -> tuple[int, int]:
        """Append the whole records that a piece begins with, in runs where that pays."""
        at, left = 0, limit
        while left:
            run = self._run(piece, at, left)
            if run is not None:
                taken.append(run)
                count, used = run.count, run.size_bytes
            else:
                count, used = self._parse(piece, at, min(left, _MIN_RUN), taken)
            if not count:
                break
            at += used
            left -= count
        return limit - left, at

    def _run(self, piece: bytes, at: int, limit: int) -> CapturedRun | None:
        """The writes from there on that are alike but for time, key and payload, if there are many."""
        if len(piece) - at < _RECORD.size:
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
        return CapturedRun(writer, times_ns, piece, at + _RECORD.size, total, size, key_bytes)

    def _parse(
        self,
        piece: bytes,
        at: int,
        limit: int,
        taken: list[CapturedSample] | list[CapturedSample | CapturedRun],
    ) -> tuple[int, int]:
        """Append the whole records from `at` on; how many, and how many bytes they are."""
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
            payload = piece[body:key_at]
            if status <= _SAMPLE:
                key = piece[key_at : key_at + key_size]
                add(make(CapturedSample, (time_ns, writer, status, key, payload, 0)))
                continue
            number_at = key_at + key_size
            number = piece[number_at : number_at + _NUMBER_BYTES] if status & _UNTIMED else b""
            sequence = UNTIMED | int.from_bytes(number, "little") if number else 0
            if status & _LARGE:
                add(self._take_large(time_ns, writer, status, payload, sequence))
            elif status & _UNTIMED:
                key = piece[key_at:number_at]
                add(CapturedSample(time_ns, writer, status & _SAMPLE, key, payload, sequence))
            else:
                add(CapturedSample(0, writer, WRITER_GONE, b"", payload))
        return limit - left, at - begin

    def _take_large(
        self, time_ns: int, writer: bytes, status: int, address: bytes, sequence: int
    ) -> CapturedSample:
        serdata = int.from_bytes(address, "little")
        key, payload = abi.content_of(serdata)
        self._ring.large_bytes_taken += len(payload)
        self._ring.large_taken += 1
        abi.serdata_unref(serdata)
        return CapturedSample(time_ns, writer, status & _SAMPLE, key, payload, sequence)

    def close(self) -> None:
        """Drop what is queued. Only after the reader is deleted: nothing may use the ring any more."""
        while self.drain(1000):
            pass


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
