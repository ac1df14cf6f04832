"""Positions: numbers for the samples of a writer, which every replica derives equally from the sample.

Cyclone DDS does not show the sequence number of a sample. Its source timestamp replaces it, with a hash of
its content where timestamps are equal: a later sample of a writer has a higher position, unless the
application wrote with an older timestamp.
"""

from __future__ import annotations

import hashlib
from typing import Final

from engine.dataset.sample import UNREGISTER
from engine.persistence.core.messages import OriginalSample

_HASH_BITS: Final = 64
"""Enough that chance gives no two samples of a writer and a time the same hash."""
_EPOCH: Final = 1 << 63
"""Source timestamps may be negative; positions are not."""


def position_of(key: bytes, source_time_ns: int, status: int, payload: bytes) -> int:
    """Return the position of a sample in its writer, from 1; different samples have different positions."""
    header = status.to_bytes(1, "big") + len(key).to_bytes(4, "big")
    digest = hashlib.blake2b(b"".join((header, key, payload)), digest_size=_HASH_BITS // 8).digest()
    return ((source_time_ns + _EPOCH) << _HASH_BITS | int.from_bytes(digest, "big")) + 1


def time_of(position: int) -> int:
    """Return the source timestamp in a position, in nanoseconds."""
    return (position - 1 >> _HASH_BITS) - _EPOCH


def span(time_ns: int) -> int:
    """Return the difference of two positions that are `time_ns` apart."""
    return time_ns << _HASH_BITS


class Positions:
    """Turns samples from the matches of one reader into samples that tell the numbers they account for.

    A reliable reader gets the samples of its writer in order. So a sample accounts for all numbers after the
    one before it: later samples supersede those that the writer's KEEP_LAST cache dropped in between.
    The first sample of a match accounts only for itself. So does one that is not above the one before
    it, and it goes to the writer's stream of late samples (`OriginalSample.late`): others may have accounted
    for its position before it was written.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    def sample(
        self, writer: str, key: bytes, source_time_ns: int, status: int, payload: bytes
    ) -> OriginalSample:
        """Return the sample that arrived from `writer` next.

        Args:
            writer: its name.
            key: the instance.
            source_time_ns: source timestamp.
            status: bits of `engine.dataset.sample`; unregister is ignored.
            payload: its bytes.
        """
        status &= ~UNREGISTER
        position = position_of(key, source_time_ns, status, payload)
        highest = self._highest.get(writer)
        if highest is not None and position <= highest:
            return OriginalSample(writer, position, key, source_time_ns, payload, status, late=True)
        assert position > 0, "numbers begin at 1"
        self._highest[writer] = position
        first = position if highest is None else highest + 1
        return OriginalSample(writer, position, key, source_time_ns, payload, status, first=first)

    def unmatched(self, writer: str) -> None:
        """End the match with a writer; a call without need does no harm."""
        self._highest.pop(writer, None)
