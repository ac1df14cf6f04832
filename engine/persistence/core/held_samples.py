"""Samples that are kept for durable subscriptions, how many there may be, and their parts on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from engine.persistence.core.ledger import Numbers
from engine.persistence.core.messages import OriginalSample

MAX_HELD: Final = 100_000
MAX_HELD_BYTES: Final = 256 << 20
"""Samples, and bytes of them, that a replica keeps for durable subscriptions. New ones beyond are not kept,
which is counted and reported; what is kept stays. They come from another replica when there is room again,
if one has kept them."""

BATCH_SAMPLES: Final = 256
BATCH_BYTES: Final = 512 << 10
"""Samples in one message; more bytes only when it is a single sample."""

Id = tuple[str, int]
"""A sample: its writer, and its number there."""


@dataclasses.dataclass(slots=True)
class HeldRoom:
    """What is kept of all groups that share a bound.

    Attributes:
        samples, size: how many samples, and bytes of them.
    """

    samples: int = 0
    size: int = 0

    def has(self, size: int) -> bool:
        """Whether there is room for one more sample of so many bytes."""
        return self.samples < MAX_HELD and self.size + size <= MAX_HELD_BYTES

    def take(self, size: int) -> None:
        """It is used."""
        self.samples += 1
        self.size += size

    def give_back(self, size: int) -> None:
        """It is used no longer."""
        self.samples -= 1
        self.size -= size


@dataclasses.dataclass(slots=True)
class HeldSample:
    """A sample, the subscriptions that have not acknowledged it, and the period in which it came."""

    sample: OriginalSample
    wanted_by: set[str]
    period: int


def numbers_of(ids: Iterable[Id] | Mapping[Id, object]) -> Numbers:
    """Numbers by writer, in order."""
    found: dict[str, list[int]] = {}
    for writer, number in ids:
        found.setdefault(writer, []).append(number)
    return tuple((writer, tuple(sorted(numbers))) for writer, numbers in sorted(found.items()))


def ids_of(numbers: Numbers) -> Iterable[Id]:
    """The same, one by one."""
    return ((writer, number) for writer, each in numbers for number in each)


def batches(samples: Iterable[OriginalSample]) -> list[tuple[OriginalSample, ...]]:
    """Parts of messages, at least one."""
    parts: list[list[OriginalSample]] = [[]]
    size = 0
    for sample in samples:
        if parts[-1] and (len(parts[-1]) == BATCH_SAMPLES or size + len(sample.payload) > BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(sample)
        size += len(sample.payload)
    return [tuple(part) for part in parts]
