"""Samples of one moment, to walk through later or on another thread.

They share packed blocks with the set, because blocks never change. Objects for packed samples exist only
while code looks at them. Rows come in parts, each in one of four forms: a `Block`; a `MaskedBlock`, some
samples of which are gone; `ObjectRows`; and `GatheredRows`, samples of many blocks in an order of their own,
with objects among them. The compiled library makes objects of gathered rows, or copies them into a new block.
"""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine import native
from engine.dataset.blocks import (
    MAX_SAMPLES,
    PLACE,
    PLACE_BITS,
    Block,
    BlockLayout,
    SampleColumns,
    pack,
    pack_samples,
    pieces,
)
from engine.dataset.sample import DIGEST_BYTES, LARGE_BYTES, Sample, sum_of_digests

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

    def gathered(self, rows: array.array[int], limit_bytes: int) -> Iterator[Block]:
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

    def places(self, rows: array.array[int], overlay: OverlayRows) -> tuple[array.array[int], bytes]:
        """Return source times and digests of samples; rows below zero name one of `overlay`."""
        times, digests = array.array("q", bytes(8 * len(rows))), bytes(DIGEST_BYTES * len(rows))
        known, made = overlay.times_ns.buffer_info()[0], times.buffer_info()[0]
        compiled().weave_places(self._table[0], *rows.buffer_info(), known, overlay.digests, made, digests)
        return times, digests


def times_of(samples: Sequence[Sample]) -> array.array[int]:
    """Return the source times of samples."""
    return array.array("q", [sample.source_time_ns for sample in samples])


class _Rows:
    """What all forms but a block tell in the same way of their digests and times."""

    __slots__ = ()

    @property
    def digests(self) -> bytes:
        """Digests, 16 bytes each."""
        raise NotImplementedError

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        raise NotImplementedError

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, not reduced."""
        return sum_of_digests(self.digests)

    def newest_ns(self) -> int:
        """Return the newest source time."""
        return max(self.times_ns())


class MaskedBlock(_Rows):
    """A block with removed samples; `alive` has 1 for each that is left, else 0."""

    __slots__ = ("alive", "block", "count")

    def __init__(self, block: Block, alive: bytes) -> None:
        self.block = block
        self.alive = alive
        self.count = sum(alive)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(map(len, self.payloads()))

    def payloads(self) -> list[bytes]:
        """Return the payloads."""
        return list(itertools.compress(self.block.payloads(), self.alive))

    @property
    def digests(self) -> bytes:
        """Digests, 16 bytes each."""
        return b"".join(self.columns().digests)

    def columns(self) -> SampleColumns:
        """Return the samples left, column by column."""
        columns: Any = self.block.columns()
        return SampleColumns(*(list(itertools.compress(column, self.alive)) for column in columns))

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return list(itertools.compress(self.block.times_ns(), self.alive))

    def samples(self) -> list[Sample]:
        """Return the samples left, as objects."""
        return list(itertools.compress(self.block.samples(), self.alive))


class ObjectRows(_Rows):
    """Samples that are objects."""

    __slots__ = ("_samples", "count")

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples
        self.count = len(samples)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum([len(sample.payload) for sample in self._samples])

    @property
    def digests(self) -> bytes:
        """Digests, 16 bytes each."""
        return b"".join([sample.digest for sample in self._samples])

    def samples(self) -> list[Sample]:
        """Return the objects."""
        return self._samples

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return [sample.source_time_ns for sample in self._samples]


class OverlayRows:
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


class GatheredRows(_Rows):
    """Samples of several blocks and objects, in an order of their own.

    Attributes:
        rows: where each sample is, in blocks (`engine.dataset.packed`), or below zero, among the objects.
    """

    __slots__ = ("_overlay", "_sources", "count", "rows")

    def __init__(self, sources: BlockSources, rows: array.array[int], overlay: OverlayRows) -> None:
        self._sources = sources
        self._overlay = overlay
        self.rows = rows
        self.count = len(rows)

    def _cut(self) -> tuple[array.array[int], list[Sample]]:
        """Return the rows in blocks and the objects, both in order."""
        objects = self._overlay.objects
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
        return self._sources.places(self.rows, self._overlay)[1]

    def sample(self, place: int) -> Sample:
        """Return a sample; places count from 0."""
        row = self.rows[place]
        return self._sources.sample(row) if row >= 0 else self._overlay.objects[~row]

    def samples(self) -> list[Sample]:
        """Return all samples as objects."""
        return self._sources.samples(self.rows, self._overlay.objects)

    def blocks(self, limit_bytes: int) -> Iterator[Block]:
        """Yield all samples, those of each instance in order, in blocks (`SampleRows.blocks`)."""
        rows, loose = self._cut()
        yield from self._sources.gathered(rows, limit_bytes)
        for piece in pieces(loose, limit_bytes):
            yield pack_samples(piece)

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return self._sources.places(self.rows, self._overlay)[0]

    def those(self, kept: Iterable[bool]) -> GatheredRows:
        """Return the samples for which `kept` is true."""
        return GatheredRows(
            self._sources, array.array("i", itertools.compress(self.rows, kept)), self._overlay
        )


Part = Block | MaskedBlock | ObjectRows | GatheredRows


def has_large(part: Part) -> bool:
    """Return whether samples of a part are large (`LARGE_BYTES`); in a block, whether they are on average."""
    if isinstance(part, ObjectRows):
        return max(len(sample.payload) for sample in part.samples()) >= LARGE_BYTES
    return part.payload_bytes >= LARGE_BYTES * part.count


class SampleRows:
    """Samples in an order, in parts, none of which is empty."""

    __slots__ = ("_count", "parts")

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts: tuple[Part, ...] = tuple(part for part in parts if part.count)
        self._count = sum(part.count for part in self.parts)

    @staticmethod
    def of(samples: SampleRows | Iterable[Sample]) -> SampleRows:
        """Return the samples as rows."""
        return samples if isinstance(samples, SampleRows) else SampleRows((ObjectRows(list(samples)),))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sample]:
        for part in self.parts:
            yield from part.samples()

    def __add__(self, other: SampleRows) -> SampleRows:
        return SampleRows((*self.parts, *other.parts))

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(part.payload_bytes for part in self.parts)

    def digests(self) -> bytes:
        """Return the digests in order, 16 bytes each."""
        return b"".join([part.digests for part in self.parts])

    def each_digest(self) -> Iterator[bytes]:
        """Yield the digests in order."""
        for part in self.parts:
            yield from _each(part.digests)

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, not reduced."""
        return sum(part.digest_sum() for part in self.parts)

    def newest_ns(self) -> int:
        """Return the newest source time; 0 without samples."""
        return max((part.newest_ns() for part in self.parts), default=0)

    def blocks(self, limit_bytes: int) -> Iterator[Block]:
        """Yield all samples, those of each instance in order, in blocks of at most about `limit_bytes`.

        A sample that is larger has a block of its own.
        """
        for part in self.parts:
            if isinstance(part, Block) and (part.payload_bytes <= limit_bytes or part.count == 1):
                yield part
            elif isinstance(part, MaskedBlock) and part.block.payload_bytes <= limit_bytes:
                yield pack(part.columns())
            elif isinstance(part, GatheredRows):
                yield from part.blocks(limit_bytes)
            else:
                for piece in pieces(part.samples(), limit_bytes):
                    yield pack_samples(piece)

    def places(self, size: int) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Yield source times and digests, of at most `size` samples at once."""
        for part in self.parts:
            places = list(zip(part.times_ns(), _each(part.digests), strict=True))
            for begin in range(0, part.count, size):
                yield places[begin : begin + size]

    def split(self, count: int) -> Iterator[SampleRows]:
        """Yield the samples in order, about `count` at once."""
        held: list[Part] = []
        for part in self.parts:
            if held and sum(each.count for each in held) + part.count > count:
                yield SampleRows(held)
                held = []
            if isinstance(part, ObjectRows) and part.count > count:
                samples = part.samples()
                for begin in range(0, part.count, count):
                    yield SampleRows((ObjectRows(samples[begin : begin + count]),))
            else:
                held.append(part)
        if held:
            yield SampleRows(held)

    def at(self, places: Sequence[int]) -> list[Sample]:
        """Return the samples at these places, which are in order."""
        found: list[Sample] = []
        begin, here = 0, iter(places)
        place = next(here, None)
        for part in self.parts:
            if place is None:
                break
            end = begin + part.count
            if place >= end:
                begin = end
                continue
            sample = part.sample if isinstance(part, Block | GatheredRows) else part.samples().__getitem__
            while place is not None and place < end:
                found.append(sample(place - begin))
                place = next(here, None)
            begin = end
        return found

    def after(self, time_ns: int) -> Iterator[Sample]:
        """Yield the samples newer than a source time."""
        for part in self.parts:
            if part.newest_ns() > time_ns:
                yield from (sample for sample in part.samples() if sample.source_time_ns > time_ns)

    def without(self, digests: set[bytes]) -> SampleRows:
        """Return all samples but those with these digests."""
        if not digests:
            return self
        kept: list[Part] = []
        for part in self.parts:
            each = _each(part.digests)
            if digests.isdisjoint(each):
                kept.append(part)
            elif isinstance(part, Block):
                kept.append(MaskedBlock(part, bytes([digest not in digests for digest in each])))
            elif isinstance(part, GatheredRows):
                kept.append(part.those([digest not in digests for digest in each]))
            else:
                kept.append(ObjectRows([sample for sample in part.samples() if sample.digest not in digests]))
        return SampleRows(kept)


def changes(before: SampleRows, after: SampleRows) -> tuple[SampleRows, SampleRows]:
    """Return the samples that came and went between two states of a set; shared blocks cost nothing."""
    old, new = ({_mark(part): part for part in rows.parts} for rows in (before, after))
    left = SampleRows(part for mark, part in old.items() if mark not in new)
    right = SampleRows(part for mark, part in new.items() if mark not in old)
    return (
        right.without(set(left.each_digest())),
        left.without(set(right.each_digest())),
    )


def _mark(part: Part) -> tuple[int, bytes]:
    """Return a mark that equal parts share while both exist."""
    return (id(part.block), part.alive) if isinstance(part, MaskedBlock) else (id(part), b"")


def _each(joined: bytes) -> list[bytes]:
    return [joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)]


Samples: TypeAlias = SampleRows | Sequence[Sample]
