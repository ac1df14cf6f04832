"""LIFESPAN (DDS 1.4, 2.2.3.16): a sample that is older than its lifespan is given to no reader.

It is a policy of writers. A service may have a sample of a writer that it never saw, so services tell each
other the lifespans, and their stores remember them. Of two values for one writer the smaller counts.

An expired sample stays in the set until it is overwritten: services whose clocks differ would otherwise have
different sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.dataset.sample import DATA

MAX_WRITERS: Final = 100_000
"""Writers with a lifespan that a service remembers; samples of more never expire, which is counted."""
# The description is a row of the store and a part of messages: 24 bytes each.
MAX_WRITERS_OF_GROUP: Final = 1_000
"""Writers with a lifespan that the description of a group remembers, the last ones."""
MAX_LIFESPAN_NS: Final = (1 << 63) - 1
GUID_BYTES: Final = 16


class WriterLifespan(NamedTuple):
    """The lifespan of the samples of a writer, in nanoseconds."""

    writer: bytes
    lifespan_ns: int

    @property
    def is_valid(self) -> bool:
        """Whether it is the lifespan of a writer."""
        return len(self.writer) == GUID_BYTES and 0 <= self.lifespan_ns <= MAX_LIFESPAN_NS


def joined(
    known: tuple[WriterLifespan, ...], others: tuple[WriterLifespan, ...]
) -> tuple[WriterLifespan, ...]:
    """Return the lifespans of two descriptions of one group; the same tuple if `others` has no news."""
    lifespans = dict(known)
    for writer, lifespan_ns in others:
        if lifespan_ns < lifespans.get(writer, MAX_LIFESPAN_NS + 1):
            lifespans[writer] = lifespan_ns
    if lifespans == dict(known):
        return known
    return tuple(map(WriterLifespan._make, lifespans.items()))[-MAX_WRITERS_OF_GROUP:]


class LifespanTable:
    """The writers whose samples expire.

    Attributes:
        known: lifespans in nanoseconds, by the GUID of the writer.
        refused: writers beyond the bound.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.refused = 0

    def learn(self, lifespans: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
        """Note lifespans; return those that are news."""
        news: dict[bytes, int] = {}
        for writer, lifespan_ns in lifespans:
            known = self.known.get(writer)
            if known is None and len(self.known) >= MAX_WRITERS:
                self.refused += 1
            elif known is None or lifespan_ns < known:
                self.known[writer] = news[writer] = lifespan_ns
        return news

    def is_expired(self, writer: bytes, status: int, source_time_ns: int, now_ns: int) -> bool:
        """Whether a sample has expired; one without data never does, so that a reader learns of disposes.

        `source_time_ns` is the time at which it was written.
        """
        lifespan_ns = self.known.get(writer)
        return lifespan_ns is not None and bool(status & DATA) and source_time_ns + lifespan_ns <= now_ns
