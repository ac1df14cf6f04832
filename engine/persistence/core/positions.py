"""Positions: numbers for the samples of a writer that every replica derives alike, from the sample itself.

Cyclone DDS does not show the sequence number of a sample. Its source timestamp, and a hash of its content
where timestamps are equal, stand for it: of one writer a later sample has a higher position, unless the
application wrote with an older timestamp.
"""

from __future__ import annotations

import hashlib
from typing import Final

from engine.dataset.sample import UNREGISTER
from engine.persistence.core.messages import OriginalSample

_HASH_BITS: Final = 64
_EPOCH: Final = 1 << 63
"""Source timestamps may be negative; positions are not."""


def position_of(key: bytes, source_time_ns: int, status: int, payload: bytes) -> int:
    """The position of a sample in its writer, from 1; different samples have different ones."""
    header = status.to_bytes(1, "big") + len(key).to_bytes(4, "big")
    digest = hashlib.blake2b(b"".join((header, key, payload)), digest_size=_HASH_BITS // 8).digest()
    return ((source_time_ns + _EPOCH) << _HASH_BITS | int.from_bytes(digest, "big")) + 1


def time_of(position: int) -> int:
    """The source timestamp in a position, in nanoseconds."""
    return (position - 1 >> _HASH_BITS) - _EPOCH


def span(time_ns: int) -> int:
    """How far positions go in so much source time."""
    return time_ns << _HASH_BITS


class Positions:
    """What arrives from the matches of one reader, as samples that say what they account for.

    A reliable reader gets what its writer writes in order. So a sample accounts for everything from behind
    the one before it; what the writer's KEEP_LAST cache dropped in between is superseded by what still
    comes. The first sample of a match accounts only for itself. So does one that is not above the one before
    it, and it goes to the writer's stream of late samples (`OriginalSample.late`): others may have accounted
    for its position before it was written.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    def sample(
        self, writer: str, key: bytes, source_time_ns: int, status: int, payload: bytes
    ) -> OriginalSample:
        """What arrived from `writer`, after everything that was given here before."""
        status &= ~UNREGISTER
        position = position_of(key, source_time_ns, status, payload)
        highest = self._highest.get(writer)
        if highest is not None and position <= highest:
            return OriginalSample(writer, position, key, source_time_ns, payload, status, late=True)
        self._highest[writer] = position
        first = position if highest is None else highest + 1
        return OriginalSample(writer, position, key, source_time_ns, payload, status, first=first)

    def unmatched(self, writer: str) -> None:
        """The match ended, or may have; more often than needed does no harm."""
        self._highest.pop(writer, None)
