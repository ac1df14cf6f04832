"""Symbols of a set: a description of which a part, as long as the difference, tells how two sets differ.

Each sample of a set has a 64-bit *identity* (`engine.dataset.reconciliation`). A set is described by
*symbols*, an endless stream: symbol `i` has count, sum and checksum of the identities that fall into it, and
each identity falls into symbol `i` with a probability of 1 / (1 + i / 2), decided by the identity alone
(rateless invertible Bloom look-up tables, Yang, Gilad and Alizadeh, SIGCOMM 2024). The symbols of two sets,
subtracted, are those of their difference; about 1.35 symbols for each of its samples are enough to decode it.
So one side sends symbols until the other side knows the difference, without any parameter.

Work that grows with the sets is a generator that yields after each `STEP` samples; `finished` carries one out
at once. The compiled library does the arithmetic (`engine/native/rateless.c`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Generator
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from engine import native

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from engine.dataset.numpy_later import np

Result = TypeVar("Result")
Stepwise = Generator[None, None, Result]
"""A computation in steps."""
Words: TypeAlias = "npt.NDArray[np.uint64]"
"""Identities, or sums of them modulo 2**64."""
Counts: TypeAlias = "npt.NDArray[np.int64]"

STEP: Final = 8192
"""Samples in one step: a few milliseconds."""
# A checksum of 32 bits lets one of 4 billion wrong symbols pass, and the digest of the whole set finds that
# one.
SYMBOL_BYTES: Final = 14
"""Bytes of a symbol on the wire: sum 8, checksum 4, count 2."""
WIDE_SYMBOL_BYTES: Final = 16
"""Bytes of a symbol with a count of 4, where 2 are not enough."""

# Of the paper on rateless invertible Bloom look-up tables (Yang, Gilad, Alizadeh 2024): with 0.5, 1.35
# symbols for each difference.
_ALPHA: Final = 0.5
_LOW: Final = 0xFFFFFFFF
# A signed number of 16 bits.
_SMALL: Final = 1 << 15
_MOST_SAMPLES: Final = 1 << 48
"""More than any set has; expected counts of that many samples fit into 64 bits."""


def finished(steps: Stepwise[Result]) -> Result:
    """Carry out all steps at once; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


class Symbols(msgspec.Struct, frozen=True):
    """Symbols `first`, `first` + 1, ... of a set or of a difference."""

    first: int
    counts: Counts
    sums: Words
    checks: Words

    def __len__(self) -> int:
        return len(self.counts)

    def __sub__(self, other: Symbols) -> Symbols:
        """Return the symbols of the difference; samples of the right set count negative.

        Raises:
            ValueError: they are not the same symbols.
        """
        if (self.first, len(self)) != (other.first, len(other)):
            raise ValueError(
                f"symbols {other.first}+{len(other)} cannot be held against {self.first}+{len(self)}"
            )
        checks = (self.checks - other.checks) & np.uint64(_LOW)
        return Symbols(self.first, self.counts - other.counts, self.sums - other.sums, checks)

    def __add__(self, other: Symbols) -> Symbols:
        """Append the symbols that follow.

        Raises:
            ValueError: there is a gap between them.
        """
        if other.first != self.first + len(self):
            raise ValueError(f"symbols {other.first} do not follow {self.first}+{len(self)}")
        counts = np.concatenate((self.counts, other.counts))
        sums = np.concatenate((self.sums, other.sums))
        return Symbols(self.first, counts, sums, np.concatenate((self.checks, other.checks)))

    def to_bytes(self, count: int) -> bytes:
        """Return the wire form; `count` is the number of samples in the set, which the receiver knows."""
        excess = self.counts - _expected(self.first, len(self), count)
        small = not len(self) or int(np.abs(excess).max()) < _SMALL
        counts = excess.astype("<i2" if small else "<i4")
        return self.sums.astype("<u8").tobytes() + self.checks.astype("<u4").tobytes() + counts.tobytes()

    @staticmethod
    def from_bytes(data: bytes, first: int, length: int, count: int) -> Symbols:
        """Return the symbols that `to_bytes` wrote. The data begins with the symbol numbered `first`.

        Raises:
            ValueError: the bytes are not `length` symbols, or `count` is more than any set has.
        """
        if (
            length < 0
            or first < 0
            or not 0 <= count < _MOST_SAMPLES
            or len(data)
            not in (
                SYMBOL_BYTES * length,
                WIDE_SYMBOL_BYTES * length,
            )
        ):
            raise ValueError(f"{len(data)} bytes are not {length} symbols")
        sums = np.frombuffer(data, "<u8", length).astype(np.uint64)
        checks = np.frombuffer(data, "<u4", length, 8 * length).astype(np.uint64)
        wide = len(data) == WIDE_SYMBOL_BYTES * length
        counts = np.frombuffer(data, "<i4" if wide else "<i2", length, 12 * length).astype(np.int64)
        return Symbols(first, counts + _expected(first, length, count), sums, checks)


def _density(first: int, length: int) -> npt.NDArray[np.float64]:
    """Return the probability that an identity falls into each symbol."""
    return 1.0 / (1.0 + _ALPHA * np.arange(first, first + length, dtype=np.float64))


def _expected(first: int, length: int, count: int) -> Counts:
    return np.rint(_density(first, length) * count).astype(np.int64)


class _CompiledSymbols(ctypes.Structure):
    """`struct symbols` of rateless.c."""

    _fields_ = [
        ("first", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("counts", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("checks", ctypes.c_void_p),
    ]


@functools.cache
def compiled() -> ctypes.PyDLL:
    """Return the compiled library."""
    library = native.library()
    pointer, count = ctypes.c_void_p, ctypes.c_size_t
    library.rateless_identities.restype = None
    library.rateless_identities.argtypes = [pointer, pointer, count, pointer]
    library.rateless_add.restype = None
    library.rateless_add.argtypes = [pointer, pointer, pointer, pointer, count]
    library.rateless_take_out.restype = count
    library.rateless_take_out.argtypes = [pointer, pointer, count, pointer, pointer]
    return library


def _as_compiled(symbols: Symbols) -> _CompiledSymbols:
    """Return the struct for arrays that stay alive as long as `symbols`."""
    arrays = (symbols.counts, symbols.sums, symbols.checks)
    places = (array.ctypes.data for array in arrays)
    return _CompiledSymbols(symbols.first, symbols.first + len(symbols), *places)


class Encoder:
    """The symbols of a set, computed piece by piece, with 24 bytes of memory per sample."""

    def __init__(self, identities: Words) -> None:
        self._identities = np.ascontiguousarray(identities)
        self._states = self._identities.copy()
        self._at = np.zeros(len(identities), dtype=np.int64)  # the next symbol that each falls into
        self._made = 0

    def until(self, end: int) -> Stepwise[Symbols]:
        """Compute the symbols from the last ones up to `end`, without it."""
        if end <= self._made:
            return _empty(self._made, 0)
        made = _empty(self._made, end - self._made)
        self._made = end
        for begin in range(0, len(self._identities), STEP):
            part = slice(begin, begin + STEP)
            _add(made, self._identities[part], self._states[part], self._at[part])
            yield
        return made


def _empty(first: int, length: int) -> Symbols:
    sums, checks = np.zeros(length, dtype=np.uint64), np.zeros(length, dtype=np.uint64)
    return Symbols(first, np.zeros(length, dtype=np.int64), sums, checks)


def _add(made: Symbols, identities: Words, states: Words, at: Counts) -> None:
    """Add identities to symbols; `states` and `at` are where each of them goes on next time."""
    arrays = (array.ctypes.data for array in (identities, states, at))
    compiled().rateless_add(ctypes.byref(_as_compiled(made)), *arrays, len(identities))


class Difference(msgspec.Struct, frozen=True):
    """The identities that only one of two sets has."""

    only_ours: Words
    only_theirs: Words


def solve(difference: Symbols) -> Stepwise[Difference | None]:
    """Decode a difference from its symbols, which begin at 0; None if they are too few or invalid."""
    counts, sums, checks = difference.counts.copy(), difference.sums.copy(), difference.checks.copy()
    left = Symbols(0, counts, sums, checks)
    words, signs = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    while True:
        some, of_them = yield from _take_out(left)
        if not len(some):
            break
        words, signs = np.concatenate((words, some)), np.concatenate((signs, of_them))
        if len(words) > len(counts):  # more than symbols can carry: they are invalid
            return None
    if counts.any() or sums.any() or checks.any() or len(np.unique(words)) < len(words):
        return None
    return Difference(words[signs > 0], words[signs < 0])


def _take_out(left: Symbols) -> Stepwise[tuple[Words, Counts]]:
    """Take identities that are alone in a symbol out of all symbols; return them and their signs.

    One way through the symbols takes out as much as they can carry at most.
    """
    words, signs = np.empty(len(left), dtype=np.uint64), np.empty(len(left), dtype=np.int64)
    here, at, found = _as_compiled(left), ctypes.c_int64(0), 0
    while at.value < here.end and found < len(left):
        places = (words[found:].ctypes.data, signs[found:].ctypes.data)
        most = min(STEP, len(left) - found)
        found += compiled().rateless_take_out(ctypes.byref(here), ctypes.byref(at), most, *places)
        yield
    return words[:found], signs[:found]


def without(difference: Difference, lacking: Words) -> Difference:
    """Correct a difference whose right set was described with the identities that it lacks."""
    missing = np.setdiff1d(lacking, difference.only_theirs)
    only_theirs = np.setdiff1d(difference.only_theirs, lacking)
    return Difference(np.union1d(difference.only_ours, missing), only_theirs)


def estimate(difference: Symbols) -> int:
    """Estimate how many identities differ, from symbols that begin at 0, even if too few to decode.

    Symbol 0 has the net difference. The variance of the other counts around their share of it grows with the
    number of differences. With n symbols the error is about 1.4 / sqrt(n) of the result.
    """
    if len(difference) < 2:
        return int(abs(difference.counts).max(initial=0))
    density = _density(0, len(difference))[1:]
    net = float(difference.counts[0])
    spread = (difference.counts[1:] - net * density) ** 2
    return max(int(abs(net)), int(spread.sum() / (density * (1.0 - density)).sum()))


def enough(expected: int, tried: int) -> int:
    """Return how many symbols to try for a difference of about `expected`, after `tried` were too few."""
    wanted = int(1.45 * expected) + 16
    return wanted if wanted > 1.05 * tried else tried + tried // 10 + 16
