"""Samples that are kept for durable subscriptions: their bounds, and their batches in messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from engine.persistence.core.ledger import Numbers
from engine.persistence.core.messages import OriginalSample

MAX_HELD: Final = 100_000
MAX_HELD_BYTES: Final = 256 << 20
"""Samples, and payload bytes, that a replica keeps for durable subscriptions. New ones beyond are not kept,
counted and reported. When there is room again they come from another replica that has kept them, if any."""

BATCH_SAMPLES: Final = 256
BATCH_BYTES: Final = 512 << 10
"""Samples and bytes in one message; a single sample may be larger."""

Id = tuple[str, int]
"""A sample: its writer, and its number there."""


@dataclasses.dataclass(slots=True)
class HeldRoom:
    """The samples, and payload bytes, that are kept of all groups that share a bound."""

    samples: int = 0
    size: int = 0

    def has(self, size: int) -> bool:
        """Whether there is room for one more sample of `size` bytes."""
        return self.samples < MAX_HELD and self.size + size <= MAX_HELD_BYTES

    def take(self, size: int) -> None:
        """Count a sample that is kept."""
        self.samples += 1
        self.size += size

    def give_back(self, size: int) -> None:
        """Discount a sample that is no longer kept."""
        self.samples -= 1
        self.size -= size


@dataclasses.dataclass(slots=True)
class HeldSample:
    """A sample, the subscriptions that have not acknowledged it, and the period in which it came."""

    sample: OriginalSample
    wanted_by: set[str]
    period: int


def numbers_of(ids: Iterable[Id] | Mapping[Id, object]) -> Numbers:
    """Return the numbers by writer, in order."""
    found: dict[str, list[int]] = {}
    for writer, number in ids:
        found.setdefault(writer, []).append(number)
    return tuple((writer, tuple(sorted(numbers))) for writer, numbers in sorted(found.items()))


def ids_of(numbers: Numbers) -> Iterable[Id]:
    """Yield (writer, number) for all numbers."""
    return ((writer, number) for writer, each in numbers for number in each)


def batches(samples: Iterable[OriginalSample]) -> list[tuple[OriginalSample, ...]]:
    """Split samples into batches for messages; at least one, which may be empty."""
    parts: list[list[OriginalSample]] = [[]]
    size = 0
    for sample in samples:
        if parts[-1] and (len(parts[-1]) == BATCH_SAMPLES or size + len(sample.payload) > BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(sample)
        size += len(sample.payload)
    return [tuple(part) for part in parts]
