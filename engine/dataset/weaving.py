"""Samples of many blocks, in an order of their own, decoded many at once.

The compiled library makes objects of them, or copies them into one new block.
"""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine import native
from engine.dataset.blocks import MAX_SAMPLES, PLACE, PLACE_BITS, Block, BlockLayout, pack_samples, pieces
from engine.dataset.sample import DIGEST_BYTES, Sample, sum_of_digests

_MIN_COMPILED: Final = 4
"""Samples below which a call of the compiled library does not pay."""
_UNLIMITED: Final = 1 << 62
_FUNCTIONS: Final = (
    *("PyList_New", "PyList_GetItem", "PyList_SetItem", "PyType_GenericAlloc", "PyTuple_SetItem"),
    *("PyBytes_FromStringAndSize", "PyLong_FromLongLong", "PyLong_FromUnsignedLongLong"),
    *("Py_IncRef", "Py_DecRef"),
)
"""Those of Python that weave.c calls, in the order of its `struct python`."""
_Functions = ctypes.c_void_p * len(_FUNCTIONS)


class _Source(ctypes.Structure):
    """`struct source` of weave.c."""

    _fields_ = [
        *(("layout", BlockLayout), ("data", ctypes.c_char_p), ("digests", ctypes.c_char_p)),
        ("writers", ctypes.c_void_p),
    ]


class _Plan(ctypes.Structure):
    """`struct plan` of weave.c."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("count", "writers", "has_sequences")),
        *((name, ctypes.c_uint64) for name in ("key_bytes", "payload_bytes", "size")),
        *((name, ctypes.c_int64) for name in ("key_size", "payload_size", "oldest_ns", "newest_ns")),
    ]


@functools.cache
def _functions() -> ctypes.Array[ctypes.c_void_p]:
    found = [getattr(ctypes.pythonapi, name) for name in _FUNCTIONS]
    return _Functions(*[ctypes.cast(function, ctypes.c_void_p).value for function in found])


@functools.cache
def compiled() -> ctypes.PyDLL:
    """Return the compiled library."""
    library = native.library()
    several, limit = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64), ctypes.c_uint64
    library.weave_plan.restype = None
    library.weave_plan.argtypes = [*several, limit, ctypes.c_void_p, ctypes.c_void_p]
    library.weave.restype = None
    library.weave.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p),
    ]
    library.weave_samples.restype = ctypes.py_object
    library.weave_samples.argtypes = [
        *(ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.py_object),
        *several,
    ]
    library.weave_places.restype = None
    library.weave_places.argtypes = [
        *several,
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p),
    ]
    return library


class BlockSources:
    """Blocks of plain writes, by number; they never change."""

    def __init__(self, blocks: Mapping[int, Block]) -> None:
        self._blocks = blocks

    @functools.cached_property
    def _known(self) -> dict[bytes, int]:
        """The writers of all blocks, and their numbers."""
        writers = dict.fromkeys(writer for block in self._blocks.values() for writer in block.writers)
        return dict(zip(writers, itertools.count(), strict=False))

    @functools.cached_property
    def _writers(self) -> list[bytes]:
        return list(self._known)

    @functools.cached_property
    def _table(self) -> tuple[ctypes.Array[_Source], list[array.array[int]]]:
        """The blocks as the library reads them, and what must live as long."""
        table = (_Source * (max(self._blocks, default=0) + 1))()
        numbers: list[array.array[int]] = []
        for number, block in self._blocks.items():
            numbers.append(array.array("i", [self._known[writer] for writer in block.writers]))
            at = numbers[-1].buffer_info()[0]
            table[number] = _Source(block.layout(), block.data, block.digests, at)
        return table, numbers

    def sample(self, row: int) -> Sample:
        """Return a sample."""
        return self._blocks[row >> PLACE_BITS].sample(row & PLACE)

    def samples(self, rows: array.array[int], objects: list[Sample]) -> list[Sample]:
        """Return samples as objects; rows below zero name one of `objects`."""
        if len(rows) < _MIN_COMPILED:
            return [self.sample(row) if row >= 0 else objects[~row] for row in rows]
        made: list[Sample] = compiled().weave_samples(
            _functions(), Sample, self._writers, objects, self._table[0], *rows.buffer_info()
        )
        return made

    def payload_bytes(self, rows: array.array[int]) -> int:
        """Return the bytes of the payloads of samples."""
        at, count = rows.buffer_info()
        size: int = self._plan(at, count, _UNLIMITED)[0].payload_bytes
        return size

    def _plan(self, at: int, count: int, limit_bytes: int) -> tuple[_Plan, array.array[int]]:
        """Plan a block of the rows at an address; also return which writers it has."""
        plan, numbers = _Plan(), array.array("i", [-1]) * len(self._known)
        found = numbers.buffer_info()[0]
        compiled().weave_plan(self._table[0], at, count, limit_bytes, found, ctypes.byref(plan))
        return plan, numbers

    def woven(self, rows: array.array[int], limit_bytes: int) -> Iterator[Block]:
        """Yield samples in blocks of at most `limit_bytes`, unless one sample is larger."""
        known = b"".join(self._writers), len(self._writers)
        at, left = rows.buffer_info()
        while left:
            plan, numbers = self._plan(at, min(left, MAX_SAMPLES), limit_bytes)
            data, digests = bytes(plan.size), bytes(DIGEST_BYTES * plan.count)  # nobody else has them yet
            found = numbers.buffer_info()[0]
            compiled().weave(self._table[0], at, ctypes.byref(plan), found, *known, data, digests)
            yield Block(data, digests, (plan.oldest_ns, plan.newest_ns))
            at += plan.count * rows.itemsize
            left -= plan.count

    def places(self, rows: array.array[int], newer: Newer) -> tuple[array.array[int], bytes]:
        """Return source times and digests of samples; rows below zero name one of `newer`."""
        times, digests = array.array("q", bytes(8 * len(rows))), bytes(DIGEST_BYTES * len(rows))
        known, made = newer.times_ns.buffer_info()[0], times.buffer_info()[0]
        compiled().weave_places(self._table[0], *rows.buffer_info(), known, newer.digests, made, digests)
        return times, digests


def times_of(samples: Sequence[Sample]) -> array.array[int]:
    """Return the source times of samples."""
    return array.array("q", [sample.source_time_ns for sample in samples])


class Newer:
    """Objects among samples in blocks."""

    def __init__(self, objects: list[Sample]) -> None:
        self.objects = objects

    @functools.cached_property
    def times_ns(self) -> array.array[int]:
        """Their source times."""
        return times_of(self.objects)

    @functools.cached_property
    def digests(self) -> bytes:
        """Their digests, 16 bytes each."""
        return b"".join([sample.digest for sample in self.objects])


class Woven:
    """Samples of several blocks and objects, in an order of their own.

    Attributes:
        rows: where each sample is, in blocks (`engine.dataset.packed`), or below zero, among the objects.
    """

    __slots__ = ("_newer", "_sources", "count", "rows")

    def __init__(self, sources: BlockSources, rows: array.array[int], newer: Newer) -> None:
        self._sources = sources
        self._newer = newer
        self.rows = rows
        self.count = len(rows)

    def _cut(self) -> tuple[array.array[int], list[Sample]]:
        """Return the rows in blocks and the objects, both in order."""
        objects = self._newer.objects
        loose = [objects[~row] for row in self.rows if row < 0]
        return array.array("i", [row for row in self.rows if row >= 0]) if loose else self.rows, loose

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        rows, loose = self._cut()
        return self._sources.payload_bytes(rows) + sum([len(sample.payload) for sample in loose])

    @property
    def digests(self) -> bytes:
        """Digests, 16 bytes each."""
        return self._sources.places(self.rows, self._newer)[1]

    def sample(self, place: int) -> Sample:
        """Return a sample; places count from 0."""
        row = self.rows[place]
        return self._sources.sample(row) if row >= 0 else self._newer.objects[~row]

    def samples(self) -> list[Sample]:
        """Return all samples as objects."""
        return self._sources.samples(self.rows, self._newer.objects)

    def blocks(self, limit_bytes: int) -> Iterator[Block]:
        """Yield all samples, those of each instance in order, in blocks (`SampleRows.blocks`)."""
        rows, loose = self._cut()
        yield from self._sources.woven(rows, limit_bytes)
        for piece in pieces(loose, limit_bytes):
            yield pack_samples(piece)

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return self._sources.places(self.rows, self._newer)[0]

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, not reduced."""
        return sum_of_digests(self.digests)

    def newest_ns(self) -> int:
        """Return the newest source time."""
        return max(self.times_ns())

    def those(self, kept: Iterable[bool]) -> Woven:
        """Return the samples for which `kept` is true."""
        return Woven(self._sources, array.array("i", itertools.compress(self.rows, kept)), self._newer)
