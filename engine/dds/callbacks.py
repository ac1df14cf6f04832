"""The queue of `engine.dds.ring` in Python, for installations without the compiled library.

Each sample is a call from Cyclone's receive thread into Python and waits for the interpreter lock.
"""

from __future__ import annotations

import _thread
import ctypes
from collections.abc import Callable
from typing import Any, Final

from engine.dataset.captured import CapturedRun, CapturedSample
from engine.dds import abi
from engine.dds.waiting import Waker
from engine.dds.writer_names import AUTODISPOSE, WRITER_GONE, WriterNames

_GUID_BYTES: Final = 16
_WRITER_INFO_BYTES: Final = 17  # GUID and the autodispose flag of struct ddsi_writer_info

_pointer = ctypes.c_void_p
_code = ctypes.c_int32
_Store = ctypes.CFUNCTYPE(ctypes.c_bool, _pointer, _pointer, _pointer, _pointer)
_Unregister = ctypes.CFUNCTYPE(None, _pointer, _pointer)
_Relinquish = ctypes.CFUNCTYPE(None, _pointer, ctypes.c_uint64)
_Free = ctypes.CFUNCTYPE(None, _pointer)
_Read = ctypes.CFUNCTYPE(
    _code, _pointer, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, _pointer, _pointer, _pointer
)
_AddCondition = ctypes.CFUNCTYPE(ctypes.c_bool, _pointer, _pointer)
_RemoveCondition = ctypes.CFUNCTYPE(None, _pointer, _pointer)
_Associate = ctypes.CFUNCTYPE(_code, _pointer, _pointer)

_keep_thread_state: Callable[[], int] = ctypes.pythonapi.PyGILState_Ensure


class CallbackQueue:
    """A bounded queue of captured samples; the same face as `Ring`, which see.

    It is bounded by records and by bytes; of the bytes it looks at what was drained last, because asking each
    sample for its size would cost more than all the rest. Its limit is a number of records, its capacity a
    number of bytes.
    """

    def __init__(self, signal: Waker, limit: int, capacity_bytes: int) -> None:
        self.rejected = 0
        self.unreported = 0
        self._limit = limit
        self._capacity_bytes = capacity_bytes
        self._effective_limit = limit
        self._signal = signal
        self._signalled = False
        self._hears = True
        self._queue: list[tuple[int, bytes]] = []
        self._names = WriterNames()
        self._functions = self._make_functions()
        self._ops = abi.ReaderCacheOps(*(ctypes.cast(one, _pointer).value for one in self._functions))
        self._cache = abi.ReaderCache(ctypes.addressof(self._ops))

    @property
    def cache(self) -> int:
        """The address that a reader takes as its history cache."""
        return ctypes.addressof(self._cache)

    @property
    def fill(self) -> float:
        """How full it is, 0 to 1."""
        return min(1.0, len(self) / self._effective_limit)

    def __len__(self) -> int:
        return len(self._queue)

    def listen(self, *, hears: bool) -> None:
        """From now on keep what comes, or accept and forget it."""
        self._hears = hears

    def _wake(self) -> None:
        self._signalled = True
        self._signal.set()

    def _make_functions(self) -> list[Any]:
        """The functions of the cache. They run on Cyclone's receive threads and do as little as possible."""
        queue = self._queue
        append = queue.append
        reference, string_at, get_ident = abi.serdata_ref, ctypes.string_at, _thread.get_ident
        pinned: set[int] = set()

        def store(_cache: int, writer: int, serdata: int, _instance: int) -> bool:
            if not self._hears:
                return True
            if len(queue) >= self._effective_limit:
                self.rejected += 1
                return False
            thread = get_ident()
            if thread not in pinned:
                # Otherwise Python makes and destroys a thread state for each call on a foreign thread.
                pinned.add(thread)
                _keep_thread_state()
            reference(serdata)
            append((serdata, string_at(writer, _WRITER_INFO_BYTES)))
            if not self._signalled:
                self._wake()
            return True

        def unregister_writer(_cache: int, writer: int) -> None:
            if not self._hears:
                return
            append((0, string_at(writer, _WRITER_INFO_BYTES)))
            if not self._signalled:
                self._wake()

        return [
            _Store(store),
            _Unregister(unregister_writer),
            _Relinquish(lambda _cache, _writer: None),
            _Free(lambda _cache: None),
            *(_Read(lambda *_: 0) for _ in ("peek", "read", "take")),
            _AddCondition(lambda _cache, _condition: True),
            _RemoveCondition(lambda _cache, _condition: None),
            _Associate(lambda _cache, _reader: 0),
        ]

    def drain(self, limit: int) -> list[CapturedSample]:
        """Up to `limit` records, oldest first. One thread drains."""
        self._signalled = False
        queue = self._queue
        entries = queue[:limit]
        del queue[:limit]
        if queue:
            self._wake()
        taken = [self._captured(serdata, info) for serdata, info in entries]
        if taken:
            mean_bytes = sum(len(one.payload) for one in taken) // len(taken) + 1
            self._effective_limit = max(1, min(self._limit, self._capacity_bytes // mean_bytes))
        return taken

    def drain_runs(self, limit: int) -> tuple[int, list[CapturedSample | CapturedRun]]:
        """How many records, and they; here each is an object."""
        taken: list[CapturedSample | CapturedRun] = [*self.drain(limit)]
        return len(taken), taken

    def _captured(self, serdata: int, info: bytes) -> CapturedSample:
        host_order = info[:_GUID_BYTES]
        writer = self._names.get(host_order) or self._names.learn(host_order)
        if not serdata:
            return CapturedSample(0, writer, WRITER_GONE, b"", AUTODISPOSE if info[_GUID_BYTES] else b"")
        raw = ctypes.string_at(serdata, abi.SERDATA_BYTES)
        kind, time_ns, status, data, size, key, key_size = abi.SERDATA.unpack(raw)
        captured = CapturedSample(
            time_ns,
            writer,
            (status & 3) | (kind & 2) << 1,
            ctypes.string_at(key, key_size) if key_size else b"",
            ctypes.string_at(data, size),
        )
        abi.serdata_unref(serdata)
        return captured

    def close(self) -> None:
        """Drop what is queued. Only after the reader is deleted: nothing may use the queue any more."""
        while self.drain(1000):
            pass
