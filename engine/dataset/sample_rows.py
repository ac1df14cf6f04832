"""Samples in blocks: packed in a set, and as rows of one moment, to walk through later or on another thread.

Blocks never change, so rows share them with the set. Objects for packed samples exist only while code looks
at them. Rows come in parts, each in one of four forms: a `Block`; a `MaskedBlock`, some samples of which are
gone; `ObjectRows`; and `GatheredRows`, samples of many blocks in an order of their own, with objects among
them. The compiled library makes objects of gathered rows, or copies them into a new block.

A set has two forms of packed samples (`engine.dataset.group_set`), both `_Segments`: blocks of samples some
of which are gone; a number, the *row*, stands for each sample.

- `Packed`: instances with a single write. An open hash table in arrays finds each instance. A touched
  instance is taken out and becomes an object; a block with less than half of its samples left is dissolved.
- `Histories`: the older writes of instances that have several, in any order; for each instance a list of rows
  says where its samples are, oldest first. One that a newer sample pushes out is taken from the front. A
  block with less than half of its samples left is *sparse*. What is left of sparse blocks moves to another
  one once the samples gone from them are a fourth of those left in all; most are empty before that.
"""

from __future__ import annotations

import array
import bisect
import ctypes
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
from engine.dataset.sample import DATA, DIGEST_BYTES, LARGE_BYTES, Sample, sum_of_digests

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from engine.dataset.numpy_later import np


_MIN_COMPILED: Final = 4
"""Samples below which a call of the compiled library does not pay."""
_UNLIMITED: Final = 1 << 62
"""More bytes than any block has: the library plans one block of all rows."""
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
    library.packed_enter.restype = ctypes.c_int64
    library.packed_enter.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int),
        *(ctypes.c_void_p, ctypes.c_int64),
    ]
    library.packed_move.restype = None
    library.packed_move.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
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


class MaskedBlock:
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


class ObjectRows:
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


class GatheredRows:
    """Samples of several blocks and objects, in an order of their own.

    Attributes:
        rows: where each sample is, in blocks (`_Segments`), or below zero, among the objects.
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


def _newest_ns(part: Part) -> int:
    return part.newest_ns() if isinstance(part, Block) else max(part.times_ns())


class SampleRows:
    """Samples in an order, in parts, none of which is empty."""

    __slots__ = ("_count", "parts")

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts: tuple[Part, ...] = tuple(part for part in parts if part.count)
        self._count = sum(part.count for part in self.parts)

    @staticmethod
    def coerce(samples: SampleRows | Iterable[Sample]) -> SampleRows:
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
        return sum(
            part.digest_sum() if isinstance(part, Block) else sum_of_digests(part.digests)
            for part in self.parts
        )

    def newest_ns(self) -> int:
        """Return the newest source time; 0 without samples."""
        return max(map(_newest_ns, self.parts), default=0)

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
            if _newest_ns(part) > time_ns:
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


MAX_BLOCKS: Final = 1 << (31 - PLACE_BITS)
"""Blocks at most, because rows have 31 bits."""
# As a batch of a stream (`engine.runtime.stream.BATCH_BYTES`): a block then travels as it is.
BLOCK_BYTES: Final = 512 << 10
"""Bytes of a block that is made here, about."""


class _Segment:
    """A block, and which of its samples are left; `alive` is None while all are."""

    __slots__ = ("alive", "block", "left")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.alive: bytearray | None = None
        self.left = block.count


class _Segments:
    """Samples in blocks.

    Attributes:
        count: number of samples that are left.
    """

    def __init__(self) -> None:
        self.count = 0
        self._segments: dict[int, _Segment] = {}
        self._unused: list[int] = []
        self._known: BlockSources | None = None

    def _next_row(self) -> int:
        """Return the row of the first sample of the next block; at most `MAX_BLOCKS` fit."""
        return (self._unused[-1] if self._unused else len(self._segments)) << PLACE_BITS

    def _append(self, block: Block) -> None:
        self._segments[self._next_row() >> PLACE_BITS] = _Segment(block)
        if self._unused:
            self._unused.pop()
        self._known = None
        self.count += block.count

    def _at(self, row: int) -> tuple[Block, int]:
        return self._segments[row >> PLACE_BITS].block, row & PLACE

    def _sample(self, row: int) -> Sample:
        return self._segments[row >> PLACE_BITS].block.sample(row & PLACE)

    def _drop(self, row: int) -> bool:
        """Remove a sample; return whether less than half of its block was left from now on."""
        segment = self._segments[row >> PLACE_BITS]
        if segment.alive is None:
            segment.alive = bytearray(b"\1") * segment.block.count
        assert segment.alive[row & PLACE], "a sample goes once"
        segment.alive[row & PLACE] = 0
        segment.left -= 1
        self.count -= 1
        return 2 * segment.left < segment.block.count

    def _left(self, number: int) -> list[Sample]:
        """Return the samples left in a block, in the order of their rows."""
        segment = self._segments[number]
        return list(itertools.compress(segment.block.samples(), segment.alive or itertools.repeat(1)))

    def _release(self, number: int) -> None:
        """Remove a block, with all that is left of it."""
        self.count -= self._segments.pop(number).left
        self._unused.append(number)
        self._known = None

    def until(self, time_ns: int) -> Iterable[bytes]:
        """Return the keys of samples that are not newer than a source time, each once."""
        found: dict[bytes, None] = {}
        for segment in self._segments.values():
            block = segment.block
            if block.span_ns()[0] <= time_ns:
                rows = zip(block.keys(), block.times_ns(), segment.alive or itertools.repeat(1), strict=False)
                found.update((key, None) for key, at_ns, is_there in rows if is_there and at_ns <= time_ns)
        return found

    @property
    def _sources(self) -> BlockSources:
        """The blocks as they are now."""
        if self._known is None:
            self._known = BlockSources({number: each.block for number, each in self._segments.items()})
        return self._known

    def _parts(self) -> Iterator[tuple[int, Block, bytearray | None]]:
        return ((number, each.block, each.alive) for number, each in self._segments.items())


_FREE: Final = 0
"""Tag of a slot that was never used."""
_GONE: Final = -1
"""Row in a slot whose instance was removed."""
_TAG: Final = (1 << 32) - 1
_FIRST_SIZE: Final = 1 << 10  # a power of two for the mask; small, as a node may have a thousand groups
# Chosen: below it a look-up needs less than two places on average (linear probing).
_FULL: Final = 0.6
"""Part of the table in use above which look-ups are slow."""

_SUSPECTS: Final = 4_096
"""Entries with equal tags for which there is room at first; of different keys there are hardly any."""


class _Table(ctypes.Structure):
    """`struct table` of packed.c."""

    _fields_ = [("tags", ctypes.c_void_p), ("rows", ctypes.c_void_p), ("mask", ctypes.c_uint64)]


class _Keys(ctypes.Structure):
    """`struct keys` of packed.c."""

    _fields_ = [
        *(("data", ctypes.c_char_p), ("count", ctypes.c_uint64), ("begin", ctypes.c_uint64)),
        *(("size", ctypes.c_int64), ("ends", ctypes.c_void_p)),
    ]


@functools.cache
def _hash_of_bytes() -> int | None:
    """Return the address of the function behind `hash` of bytes."""
    function = ctypes.pythonapi._Py_HashBytes
    function.restype = ctypes.c_ssize_t
    function.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]
    for text in (b"", b"a", b"0123456", b"a longer text", bytes(range(256))):
        assert function(text, len(text)) == hash(text), "this Python hashes bytes otherwise"
    return ctypes.cast(function, ctypes.c_void_p).value


_hash: Final = hash
"""The hash of a key; `_hash_of_bytes` is the same function."""
_Slots: TypeAlias = "npt.NDArray[np.int64]"


class Packed(_Segments):
    """Packed instances.

    Attributes:
        count: number of instances.
    """

    def __init__(self) -> None:
        super().__init__()
        self._used = 0
        self._make_table(_FIRST_SIZE)

    def _make_table(self, size: int) -> None:
        self._rows = np.zeros(size, dtype=np.int32)
        self._tags = np.zeros(size, dtype=np.uint32)  # all of them _FREE
        self._row_at, self._tag_at = self._rows.data, self._tags.data
        self._mask = size - 1

    # One instance.

    def find(self, key: bytes) -> int:
        """Return the slot of an instance, valid until a change; -1 if it is not here."""
        tag, mask, tags = _hash(key) & _TAG or 1, self._mask, self._tag_at
        slot = tag & mask
        while found := tags[slot]:
            if found == tag and (row := self._row_at[slot]) >= 0 and self._key(row) == key:
                return slot
            slot = (slot + 1) & mask
        return -1

    def _key(self, row: int) -> bytes:
        return self._segments[row >> PLACE_BITS].block.key(row & PLACE)

    def sample(self, slot: int) -> Sample:
        """Return the sample in a slot."""
        row = self._row_at[slot]
        return self._segments[row >> PLACE_BITS].block.sample(row & PLACE)

    def digest(self, slot: int) -> bytes:
        """Return the digest of the sample in a slot."""
        row = self._row_at[slot]
        return self._segments[row >> PLACE_BITS].block.digest(row & PLACE)

    def newest(self, key: bytes) -> tuple[int, bytes] | None:
        """Return source time and writer of an instance's sample; None if it is not here."""
        slot = self.find(key)
        if slot < 0:
            return None
        block, place = self._at(self._row_at[slot])
        return block.time_ns(place), block.writer(place)

    def remove(self, slot: int) -> list[Sample]:
        """Take an instance out of its slot; return the samples of others that come out with it."""
        row = self._row_at[slot]
        assert row >= 0, "an instance is removed once"
        self._row_at[slot] = _GONE
        if not self._drop(row):
            return []
        number = row >> PLACE_BITS
        left = self._left(number)
        for sample in left:
            self._row_at[self.find(sample.key)] = _GONE
        self._release(number)
        return left

    # Many.

    def add(self, block: Block) -> bool:
        """Add a block of plain samples; False, and no change, if an instance is here or in it twice."""
        if len(self._segments) >= MAX_BLOCKS:
            return False
        self._make_room(block.count)
        if not self._enter(block, self._next_row()):
            return False
        self._append(block)
        self._used += block.count
        return True

    def _enter(self, block: Block, first_row: int) -> bool:
        enter = compiled().packed_enter
        table = _Table(self._tags.ctypes.data, self._rows.ctypes.data, self._mask)
        texts = block.key_texts
        keys = _Keys(block.data, block.count, texts.begin, texts.size, texts.ends_at())
        call = ctypes.byref(table), ctypes.byref(keys), _hash_of_bytes(), first_row
        room = _SUSPECTS
        while True:
            suspects = np.empty((room, 2), dtype=np.int32)
            found: int = enter(*call, 0, suspects.ctypes.data, room)
            # The library compares keys within the block only: their rows are not addresses that it knows.
            if found < 0 or any(self._key(row) == block.key(at) for at, row in suspects[:found].tolist()):
                return False
            if found < room:
                return not found or not enter(*call, 1, None, 0)
            room *= 4  # nothing has been entered, and there may be more of them

    def _make_room(self, count: int) -> None:
        size = self._mask + 1
        if self._used + count <= _FULL * size:
            return
        while self.count + count > _FULL * size * 0.75:
            size *= 2
        old_rows, old_tags = self._rows, self._tags
        self._make_table(size)
        self._used = self.count
        table = _Table(self._tags.ctypes.data, self._rows.ctypes.data, self._mask)
        moved = old_tags.ctypes.data, old_rows.ctypes.data, len(old_rows)
        compiled().packed_move(ctypes.byref(table), *moved)

    def parts(self) -> list[Part]:
        """Return the present blocks."""
        return [
            block if alive is None else MaskedBlock(block, bytes(alive)) for _, block, alive in self._parts()
        ]

    def keys(self) -> Iterator[bytes]:
        """Yield the keys."""
        for _, block, alive in self._parts():
            keys = block.keys()
            yield from keys if alive is None else itertools.compress(keys, alive)


_ALL: Final = slice(None)
_NONE: Final = array.array("i")
# A quarter of the largest block, so that what is made is not sparse again at once. Chosen.
_MOVED: Final = 1_024
"""Samples left in sparse blocks that move to another block together, about."""
_LONG: Final = 64
"""Samples of an instance above which looking for one row costs more than writing all of them again."""


class Histories(_Segments):
    """The older samples of instances, which are plain writes.

    Attributes:
        count: number of samples.
        rows: where the samples of each instance are, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[bytes, array.array[int]] = {}
        self._sparse: dict[int, int] = {}
        """Sparse blocks, and how many of their samples are gone."""
        self._gone = 0
        """Sum of these numbers."""

    # Changes.

    def add(self, samples: Sequence[Sample]) -> bool:
        """Add samples, those of each instance together and oldest first; False, and no change, without room.

        They are newer than those of the same instance that are here.
        """
        made = self._enter(samples)
        for key, some in itertools.groupby(zip(samples, made, strict=False), lambda each: each[0].key):
            self._continue(key, array.array("i", [row for _, row in some]))
        return bool(made)

    @property
    def room(self) -> int:
        """Number of blocks that can be added."""
        return MAX_BLOCKS - len(self._segments)

    def places_of(
        self, block: Block, objects: Mapping[bytes, Sequence[Sample]], depth: int
    ) -> dict[bytes, list[int]]:
        """Return the places of each instance in a block of plain writes; none if it cannot be added as it is.

        It can if each write is newer than those of its instance before it, here, in `objects` and in the
        block, and no instance gets more than `depth`, if that is not 0. A block with hardly two samples of an
        instance takes less memory in `Packed`.
        """
        places: dict[bytes, list[int]] = {}
        for place, key in enumerate(block.keys()):
            places.setdefault(key, []).append(place)
        if 2 * len(places) > block.count:
            return {}
        times_ns = block.times_ns()
        for key, some in places.items():
            each, last = [times_ns[place] for place in some], objects.get(key, ())
            if last or key in self.rows:
                each.insert(0, last[-1].source_time_ns if last else self.newest(key)[0])
            if not all(map(operator.lt, each, each[1:])):
                return {}
            if 0 < depth < self.length(key) + len(last) + len(some):
                return {}
        return places

    def extend(self, block: Block, places: Mapping[bytes, Sequence[int]]) -> None:
        """Add a block, given the places of each instance in it; there is room."""
        first = self._next_row()
        self._append(block)
        for key, some in places.items():
            self._continue(key, array.array("i", [first + place for place in some]))

    def _continue(self, key: bytes, newer: array.array[int]) -> None:
        known = self.rows.get(key)
        if known is None:
            self.rows[key] = newer
        else:
            known += newer

    def _enter(self, samples: Sequence[Sample]) -> list[int]:
        """Put samples into blocks; return their rows, none if there is no room."""
        rows: list[int] = []
        cut = list(pieces(samples, BLOCK_BYTES))
        if len(cut) <= self.room:
            for piece in cut:
                first = self._next_row()
                self._append(pack_samples(piece))
                rows += range(first, first + len(piece))
        return rows

    def pop(self, key: bytes) -> Sample:
        """Take the oldest sample of an instance that is here out."""
        rows = self.rows[key]
        row = rows.pop(0)
        if not rows:
            del self.rows[key]
        sample = self._sample(row)
        self._remove(row)
        if 4 * self._gone > self.count:
            self._move()
        return sample

    def pop_writes(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Remove samples of an instance, by default all, and return them; none if it is not here."""
        rows = self.rows.get(key)
        if rows is None:
            return []
        taken = rows[places]
        del rows[places]
        if not rows:
            del self.rows[key]
        samples = self._sources.samples(taken, [])
        for row in taken:
            self._remove(row)
        while 4 * self._gone > self.count and self._move():
            pass
        return samples

    def _remove(self, row: int) -> None:
        if self._drop(row):
            number = row >> PLACE_BITS
            segment = self._segments[number]
            gone = segment.block.count - segment.left
            self._gone += gone - self._sparse.get(number, 0)
            self._sparse[number] = gone
            if not segment.left:
                self._forget(number)

    def _forget(self, number: int) -> None:
        """Release a sparse block."""
        self._gone -= self._sparse.pop(number)
        self._release(number)

    def _move(self) -> bool:
        """Move what is left of some sparse blocks to others; False without room."""
        samples: list[Sample] = []
        old: list[int] = []
        numbers: list[int] = []
        for number in self._sparse:
            segment = self._segments[number]
            assert segment.alive is not None
            first = number << PLACE_BITS
            samples += self._left(number)
            old += itertools.compress(range(first, first + segment.block.count), segment.alive)
            numbers.append(number)
            if len(samples) >= _MOVED:
                break
        made = self._enter(samples)
        if not made:
            return False
        moved, long = dict(zip(old, made, strict=True)), set()
        for sample, row in zip(samples, old, strict=True):
            rows = self.rows[sample.key]
            if len(rows) > _LONG:
                long.add(sample.key)
            else:
                rows[rows.index(row)] = moved[row]
        for key in long:
            self.rows[key] = array.array("i", [moved.get(row, row) for row in self.rows[key]])
        for number in numbers:
            self._forget(number)
        return True

    # Looks.

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def length(self, key: bytes) -> int:
        """Return the number of samples of an instance; 0 if it is not here."""
        return len(self.rows.get(key, ()))

    def samples(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Return samples of an instance, or all of it, oldest first; none if it is not here."""
        rows = self.rows.get(key)
        return self._sources.samples(rows[places], []) if rows else []

    def writers(self, key: bytes) -> dict[bytes, int]:
        """Return the writers of an instance, each with the status of its samples; none if it is not here."""
        found = map(self._at, self.rows.get(key, _NONE))
        return dict.fromkeys([block.writer(place) for block, place in found], DATA)

    def newest(self, key: bytes) -> tuple[int, bytes]:
        """Return source time and writer of the newest sample of an instance that is here."""
        block, place = self._at(self.rows[key][-1])
        return block.time_ns(place), block.writer(place)

    def place(self, sample: Sample) -> int:
        """Return how many samples of its instance are older than this one; its own place if it is here."""
        return bisect.bisect_left(self.rows.get(sample.key, _NONE), sample, key=self._sample)

    def places(self, key: bytes, time_ns: int) -> slice:
        """Return the places of the samples of an instance with this source time."""
        rows = self.rows.get(key, _NONE)
        return slice(
            bisect.bisect_left(rows, time_ns, key=self._time_ns),
            bisect.bisect_right(rows, time_ns, key=self._time_ns),
        )

    def _time_ns(self, row: int) -> int:
        block, place = self._at(row)
        return block.time_ns(place)

    def parts(self, newer: Mapping[bytes, list[Sample]]) -> list[GatheredRows]:
        """Return all samples, and after those of each instance the newer ones of the same instance."""
        known, sources = self.rows, self._sources
        runs = [older for key, older in known.items() if key not in newer]
        later = [(known[key], history) for key, history in newer.items() if key in known]
        objects = [sample for _, history in later for sample in history]
        places, begin = array.array("i", range(-1, ~len(objects), -1)), 0
        for older, history in later:
            runs += older, places[begin : begin + len(history)]
            begin += len(history)
        rows, overlay = array.array("i", b"".join(runs)), OverlayRows(objects)
        begins = range(0, len(rows), MAX_SAMPLES)
        return [GatheredRows(sources, rows[begin : begin + MAX_SAMPLES], overlay) for begin in begins]
