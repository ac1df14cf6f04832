"""Find the identities that two sets do not share, range by range: costlier than symbols, but always final.

The identities (`engine.dataset.reconciliation`) are cut into ranges by their first bits. One side sends a
fingerprint of each range, the sum of its mixed identities. Ranges whose fingerprints differ are cut further,
or listed if few identities are left (range-based set reconciliation, Meyer 2023). Every round cuts the ranges
by `STEP` bits until `MAX_BITS`, so the number of rounds is bounded. Fingerprints that are equal by accident
give a wrong result, which the comparison of the roots detects.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

from engine.core.lazy_dataclass import lazy_dataclass
from engine.dataset.rateless import Difference, Words, mix

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    from engine.dataset.numpy_later import np

STEP: Final = 2
"""Bits by which a range is cut, here in four; more would save rounds and cost bytes."""
LEAF: Final = 8
"""Identities at most in a range that is listed instead of cut."""
MAX_BITS: Final = 32
FIRST_BITS: Final = 20
"""Bits of the first cut at most."""
MAX_ROUNDS: Final = MAX_BITS // STEP + 1
MAX_FINGERPRINTS: Final = 1 << 20
FINGERPRINT_BYTES: Final = 8
_KEY: Final = 0xA0761D6478BD642F
_ALL: Final = 2**64 - 1

Places: TypeAlias = "npt.NDArray[np.intp]"


@lazy_dataclass(frozen=True, slots=True)
class Ask:
    """A question about ranges, which are the identities with the same first `bits`.

    Attributes:
        split: ranges to cut by `deeper` bits, for the fingerprints of the pieces.
        listed: ranges whose identities are wanted.
    """

    bits: int
    deeper: int
    split: Words
    listed: Words

    def children(self) -> Words:
        """Return the ranges of the fingerprints, by their first `bits` + `deeper` bits."""
        inner = np.arange(1 << self.deeper, dtype=np.uint64)
        return ((self.split << np.uint64(self.deeper))[:, None] | inner).ravel()


class IdentityIndex:
    """The identities of a set, prepared for questions about ranges."""

    def __init__(self, identities: Words) -> None:
        self._words = np.sort(identities)
        sums = np.cumsum(mix(self._words ^ np.uint64(_KEY)), dtype=np.uint64)
        self._sums = np.concatenate((np.zeros(1, dtype=np.uint64), sums))

    def _bounds(self, ranges: Words, bits: int) -> tuple[Places, Places]:
        rest = np.uint64(64 - bits)
        low = ranges << rest if bits else np.zeros_like(ranges)
        high = low | (_ALL >> np.uint64(bits) if bits else _ALL)
        return np.searchsorted(self._words, low, "left"), np.searchsorted(self._words, high, "right")

    def fingerprints(self, ranges: Words, bits: int) -> Words:
        """Return the fingerprint of each range, 0 for an empty one."""
        left, right = self._bounds(ranges, bits)
        sums: Words = self._sums[right] - self._sums[left]
        return sums

    def has_few(self, ranges: Words, bits: int) -> npt.NDArray[np.bool_]:
        """Tell for each range whether to list its identities."""
        left, right = self._bounds(ranges, bits)
        few: npt.NDArray[np.bool_] = (right - left <= LEAF) | (bits >= MAX_BITS)
        return few

    def within(self, ranges: Words, bits: int) -> Words:
        """Return the identities in these ranges, which are in order."""
        left, right = self._bounds(ranges, bits)
        parts = [self._words[a:b] for a, b in zip(left.tolist(), right.tolist(), strict=True)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)

    def answer(self, ask: Ask) -> tuple[Words, Words]:
        """Return the fingerprints and the identities for a question.

        Raises:
            ValueError: the question has too many or invalid ranges.
        """
        if not (
            0 <= ask.bits < MAX_BITS + STEP and 0 <= ask.deeper <= FIRST_BITS and ask.bits + ask.deeper < 64
        ):
            raise ValueError(f"ranges of {ask.bits} and {ask.deeper} bits")
        if len(ask.split) << ask.deeper > MAX_FINGERPRINTS:
            raise ValueError(f"{len(ask.split)} ranges to be cut by {ask.deeper} bits")
        both = np.concatenate((ask.split, ask.listed))
        if len(both) and int(both.max()) >> ask.bits:
            raise ValueError(f"a range that does not have {ask.bits} bits")
        if len(ask.listed) > 1 and not (ask.listed[1:] > ask.listed[:-1]).all():
            raise ValueError("ranges that are not in order")
        fingerprints = self.fingerprints(ask.children(), ask.bits + ask.deeper)
        return fingerprints, self.within(ask.listed, ask.bits)


class Search:
    """The side that asks, and knows the difference at the end.

    Args:
        ours: its own identities.
        expected: estimate of the difference, which only decides the first cut.
    """

    def __init__(self, ours: Words, expected: int) -> None:
        self._held = IdentityIndex(ours)
        self._ours: list[Words] = []
        self._theirs: list[Words] = []
        none = np.empty(0, dtype=np.uint64)
        self.asked: Ask | None = Ask(0, first_bits(expected), np.zeros(1, dtype=np.uint64), none)

    def take(self, fingerprints: Words, identities: Words) -> Ask | None:
        """Take the answer to `asked`; return the next question, None once the difference is known.

        Raises:
            ValueError: it is not an answer to that question.
        """
        ask = self.asked
        if ask is None:
            raise ValueError("an answer without a question")
        children, bits = ask.children(), ask.bits + ask.deeper
        if len(children) != len(fingerprints):
            raise ValueError(f"{len(fingerprints)} fingerprints of {len(children)} ranges")
        self._compare(ask, identities)
        differing = children[self._held.fingerprints(children, bits) != fingerprints]
        empty = fingerprints[np.searchsorted(children, differing)] == 0
        self._ours.append(self._held.within(differing[empty], bits))
        differing = differing[~empty]
        few = self._held.has_few(differing, bits)
        if np.count_nonzero(~few) << STEP > MAX_FINGERPRINTS:
            few[:] = True
        self.asked = Ask(bits, STEP, differing[~few], differing[few]) if len(differing) else None
        return self.asked

    def _compare(self, ask: Ask, identities: Words) -> None:
        """Compare the identities of listed ranges with those here."""
        if len(identities):
            ranges = identities >> np.uint64(64 - ask.bits) if ask.bits else np.zeros_like(identities)
            if not np.isin(ranges, ask.listed).all():
                raise ValueError("identities of ranges that were not asked for")
        ours = self._held.within(ask.listed, ask.bits)
        self._ours.append(np.setdiff1d(ours, identities))
        self._theirs.append(np.setdiff1d(identities, ours))

    def difference(self) -> Difference:
        """Return the difference found."""
        return Difference(np.concatenate(self._ours), np.concatenate(self._theirs))


def first_bits(expected: int) -> int:
    """Return the bits of the first cut, which makes two ranges for each difference."""
    return min(FIRST_BITS, max(4, (2 * expected).bit_length()))


def cost(expected: int, count: int) -> int:
    """Estimate the bytes needed to find `expected` differences of a set of `count` samples."""
    bits = first_bits(expected)
    rounds = max(0.0, math.log2(max(1, count) / (1 << bits) / LEAF)) / STEP
    each = rounds * ((1 << STEP) * FINGERPRINT_BYTES + 4) + LEAF * 8
    return int((1 << bits) * FINGERPRINT_BYTES + min(expected * each, 16.0 * count))
