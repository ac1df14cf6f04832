"""Compact storage of instances with a single write.

Blocks have the samples; an open hash table in arrays finds each instance. A touched instance is taken out
and becomes an object; a block with less than half of its samples left is dissolved. Packing depends on counts
alone, so that a run can be repeated.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from engine import native
from engine.dataset.blocks import PLACE, PLACE_BITS, Block
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import Part, Partial
from engine.dataset.segments import MAX_BLOCKS, Segments

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from engine.dataset.numpy_later import np

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


class Packed(Segments):
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
        return [block if alive is None else Partial(block, bytes(alive)) for _, block, alive in self._parts()]

    def keys(self) -> Iterator[bytes]:
        """Yield the keys."""
        for _, block, alive in self._parts():
            keys = block.keys()
            yield from keys if alive is None else itertools.compress(keys, alive)
