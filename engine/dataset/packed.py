"""The instances of a group: as objects, and packed if they are many.

A group may have a million instances, and an object for each sample would take several times the memory of
its bytes. So the samples of a group are in one of three places, and `Instances` is the only one that knows
which:

- As objects: the instances that were touched last. A sample that arrives, and one that a lookup changes, is
  always an object first. Beyond `MAX_OBJECTS` samples those that have rested longest are packed.
- `Packed`: instances with a single write, which is what most instances have. Blocks have the samples; an open
  hash table in arrays finds each instance. A touched instance is taken out and becomes an object; a block
  with less than half of its samples left is dissolved.
- `Histories`: the older writes of instances that have several. Blocks have the samples, in any order; for
  each instance a row of numbers says where its samples are, oldest first. So a newer sample leaves the older
  ones packed, and one that it pushes out is taken from the front. A block with less than half of its samples
  left is *sparse*. What is left of sparse blocks moves to another one once the samples gone from them are a
  fourth of those left in all; most blocks are empty before that.

Both are `_Segments`: blocks of samples some of which are gone; a number, the *row*, stands for each sample.
What is packed, and when, depends on counts alone, never on time or memory, so that a run can be repeated.
"""

from __future__ import annotations

import array
import bisect
import collections
import ctypes
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from engine import native
from engine.dataset.blocks import MAX_SAMPLES, PLACE, PLACE_BITS, Block, pack_samples, pieces
from engine.dataset.living import by_instance
from engine.dataset.sample import DATA, Sample
from engine.dataset.sample_rows import (
    BlockSources,
    GatheredRows,
    MaskedBlock,
    ObjectRows,
    OverlayRows,
    Part,
    SampleRows,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from engine.dataset.numpy_later import np

MAX_OBJECTS: Final = 16_384
"""Samples of a group kept as objects; of more, the longest untouched instances are packed."""
PACKED_FROM: Final = MAX_SAMPLES
"""Instances below which a group is not packed on arrival."""
MIN_PACKED: Final = 256
"""Samples below which a block does not pay."""
MAX_PACKED_BYTES: Final = 4_096
"""Payload above which a sample stays an object, whose overhead is then small."""
_STEP: Final = MAX_SAMPLES
"""Objects examined for packing in one go: a few milliseconds."""
MAX_BLOCKS: Final = 1 << (31 - PLACE_BITS)
"""Blocks at most, because rows have 31 bits."""
BLOCK_BYTES: Final = 512 << 10
"""Bytes of a block that is made here, about."""


class Instances:
    """The samples of a group by instance.

    Packing saves memory and changes nothing else. Of an instance that lies in `_histories`, all samples in
    `_instances` are newer.

    Attributes:
        count: number of samples.
    """

    __slots__ = ("_histories", "_instances", "_pack_at", "_packed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._instances: dict[bytes, list[Sample]] = {}
        """What is not packed, the longest untouched instances first."""
        self._packed: Packed | None = None
        """Instances with a single write."""
        self._histories: Histories | None = None
        """Older writes of the others."""
        self._pack_at = MAX_OBJECTS
        """Number of samples, packed or not, at which some are packed."""

    # Packing.

    def _pack_block(self, block: Block) -> bool:
        """Keep a block as it is; False unless its samples are the first of as many instances, and many."""
        if not block.is_plain or block.count < MIN_PACKED:
            return False
        if not self._packed and len(self._instances) + block.count < PACKED_FROM:
            return False
        known = [rows.keys() for rows in (self._instances, self._histories and self._histories.rows) if rows]
        if known and not all(map(frozenset(block.keys()).isdisjoint, known)):
            return False
        if not self._open_packed().add(block):
            return False
        self._pack_at += block.count
        return True

    def _pack_histories(self, block: Block, depth: int) -> bool:
        """Keep a block as it is; False unless it continues histories, with many samples."""
        if not block.is_plain or block.count < MIN_PACKED or self.count + block.count < PACKED_FROM:
            return False
        if block.has_sequences:  # one of them may be here with the time of another node
            return False
        histories = self._histories or Histories()
        places = histories.places_of(block, self._instances, depth)
        older = [sample for key in places for sample in self._instances.get(key, ())]
        if not places or not all(map(_is_packable, older)):
            return False
        if self._packed and any(self._packed.find(key) >= 0 for key in places):
            return False
        if histories.room < block.count + len(older):  # however few samples each block gets
            return False
        if 0 < len(older) < MIN_PACKED:
            histories.add(by_instance([*older, *block.samples()]))
        else:
            histories.add(older)
            histories.extend(block, places)
        for key in places if older else ():
            self._instances.pop(key, None)
        self._histories = histories
        self._pack_at += block.count + len(older)
        return True

    def _open_packed(self) -> Packed:
        if self._packed is None:
            self._packed = Packed()
        return self._packed

    def _pack_surplus(self) -> None:
        while self.count >= self._pack_at:
            self._pack_oldest()

    def _pack_oldest(self) -> None:
        """Pack the longest untouched objects; what cannot be packed goes to the end of the queue."""
        oldest: list[tuple[bytes, list[Sample]]] = []
        single: list[Sample] = []
        several: list[Sample] = []
        known = self._histories.rows if self._histories else {}
        for key, history in itertools.islice(self._instances.items(), _STEP):
            room = _STEP - len(single) - len(several)
            if not room:
                break
            oldest.append((key, history))
            if len(history) > 1 or key in known:
                several += itertools.takewhile(_is_packable, history[:room])
            elif _is_packable(history[0]):
                single.append(history[0])
        packed: dict[bytes, int] = {}
        for piece in pieces(single, BLOCK_BYTES) if len(single) >= MIN_PACKED else ():
            if self._open_packed().add(pack_samples(piece)):
                packed |= dict.fromkeys([sample.key for sample in piece], 1)
        if len(several) >= MIN_PACKED:
            self._histories = self._histories or Histories()
            if self._histories.add(several):
                packed |= collections.Counter([sample.key for sample in several])
        for key, history in oldest:
            del self._instances[key]
            count = packed.get(key, 0)
            if count < len(history):
                self._instances[key] = history[count:]
        held = sum([part.count for part in (self._packed, self._histories) if part])
        self._pack_at = held + max(MAX_OBJECTS, self.count - held + _STEP // 4 + 1)

    def _unpack(self, slot: int, known: Sample) -> list[Sample]:
        """Make a packed instance an object; return its history."""
        assert self._packed is not None
        others = self._packed.remove(slot)
        for sample in others:
            self._instances[sample.key] = [sample]
        self._pack_at -= 1 + len(others)
        if not self._packed.count:
            self._packed = None
        history = self._instances[known.key] = [known]
        return history

    def _unpack_key(self, key: bytes) -> None:
        slot = self._packed.find(key) if self._packed else -1
        if self._packed and slot >= 0:
            self._unpack(slot, self._packed.sample(slot))

    def _take(self, key: bytes, places: slice) -> list[Sample]:
        """Take packed samples of an instance out."""
        taken = self._histories.take(key, places) if self._histories else []
        self._took(len(taken))
        return taken

    def _took(self, count: int) -> None:
        self._pack_at -= count
        if self._histories and not self._histories.count:
            self._histories = None

    # Looks.

    def instance(self, key: bytes) -> tuple[Sample, ...]:
        """Return the samples of one instance, oldest first."""
        history = self._instances.get(key, ())
        if self._histories and key in self._histories:
            return (*self._histories.samples(key), *history)
        if not history and self._packed and (slot := self._packed.find(key)) >= 0:
            return (self._packed.sample(slot),)
        return tuple(history)

    def writers(self, key: bytes) -> dict[bytes, int]:
        """Return the writers of the samples of an instance, each with the status of its newest one."""
        if self._histories and key in self._histories:
            older = self._histories.writers(key)
            return older | {sample.writer: sample.status for sample in self._instances.get(key, ())}
        return {sample.writer: sample.status for sample in self.instance(key)}

    def holds(self, key: bytes, time_ns: int, digest: bytes) -> bool:
        """Whether an instance has a sample with this source time and digest."""
        history: Sequence[Sample] = self._instances.get(key, ())
        if self._histories and key in self._histories:
            packed = self._histories.samples(key, self._histories.places(key, time_ns))
            history = (*packed, *history)
        elif not history:
            history = self.instance(key)
        return any(sample.digest == digest for sample in history)

    def __contains__(self, key: bytes) -> bool:
        return (
            key in self._instances
            or (self._packed is not None and self._packed.find(key) >= 0)
            or (self._histories is not None and key in self._histories)
        )

    def keys(self) -> list[bytes]:
        """Return the keys of the instances, in order."""
        several = self._histories.rows if self._histories else {}
        return sorted([*(self._instances.keys() | several), *(self._packed.keys() if self._packed else ())])

    @property
    def instance_count(self) -> int:
        """Number of instances with at least one sample."""
        several = self._histories.rows if self._histories else {}
        in_part = sum([key in several for key in self._instances]) if several else 0
        return len(self._instances) + len(several) - in_part + (self._packed.count if self._packed else 0)

    def samples(self) -> SampleRows:
        """Return the present samples, those of each instance oldest first; instances in any order."""
        several = self._histories
        gathered = several.parts(self._instances) if several else ()
        objects = [
            sample
            for key, history in self._instances.items()
            if several is None or key not in several
            for sample in history
        ]
        return SampleRows((*(self._packed.parts() if self._packed else ()), *gathered, ObjectRows(objects)))


def _is_packable(sample: Sample) -> bool:
    return sample.status == DATA and len(sample.payload) <= MAX_PACKED_BYTES


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
_FIRST_SIZE: Final = 1 << 10
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


@functools.cache
def compiled() -> ctypes.PyDLL:
    """Return the compiled library."""
    library = native.library()
    library.packed_enter.restype = ctypes.c_int64
    library.packed_enter.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int),
        *(ctypes.c_void_p, ctypes.c_int64),
    ]
    library.packed_move.restype = None
    library.packed_move.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    return library


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

    def take(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Take samples of an instance out, or all of it; none if it is not here."""
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
