"""The numbers of samples that a replica accounts for, and those that it knows other replicas to have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.persistence.core.last_values import Comparison
from engine.persistence.core.provider_selection import Stability
from engine.persistence.core.replica_messages import OriginalSample, WriterState
from engine.persistence.core.sequences import Sequences

NOTHING: Final = Sequences()


def numbers_of(samples: Iterable[OriginalSample]) -> Sequences:
    """Return the numbers for which samples of one stream account."""
    return Sequences.joined((sample.first or sample.sequence, sample.sequence) for sample in samples)


@lazy_dataclass(slots=True)
class KnownWriter:
    """One original writer, as a replica knows it.

    Attributes:
        stability: the choice of its providers.
        had: its samples that are accounted for.
        is_direct: whether it is connected to this replica.
        highest_before: its highest number at the last period; -1 to wait one period before others are asked.
        keys: the instances that it ever wrote.
    """

    stability: Stability
    had: Sequences = dataclasses.field(default_factory=Sequences)
    is_direct: bool = False
    highest_before: int = 0
    keys: set[bytes] = dataclasses.field(default_factory=set)


@lazy_dataclass(slots=True)
class KnownPeer:
    """Another replica while it is connected."""

    known: dict[str, Sequences] = dataclasses.field(default_factory=dict)
    """Numbers that it has or was sent, by writer."""
    states: dict[str, WriterState] = dataclasses.field(default_factory=dict)
    """Its last announcement, by writer."""
    highest_before: dict[str, int] = dataclasses.field(default_factory=dict)
    """Its highest numbers at the last period, by writer."""
    wants: dict[str, Sequences | None] = dataclasses.field(default_factory=dict)
    """Its subscription to this replica, by writer; None for all numbers."""
    number: int = 0
    """How often this replica has replaced its subscription to it."""
    asked: dict[str, Sequences | None] = dataclasses.field(default_factory=dict)
    """The subscription of this replica to it, by writer; None for all numbers."""
    digests: tuple[int, ...] = ()
    """Digests of its last values, by part."""
    comparison: Comparison = dataclasses.field(default_factory=Comparison)
    """How long its digests have differed from those of this replica."""

    def knows(self, sample: OriginalSample) -> bool:
        """Whether it has a sample, or was sent it."""
        return sample.sequence in self.known.get(sample.stream, NOTHING)

    def learn(self, writer: str, numbers: Sequences) -> None:
        """Note numbers that it has, or was sent."""
        self.known[writer] = self.known.get(writer, NOTHING) | numbers

    def learn_samples(self, samples: Iterable[OriginalSample]) -> None:
        """Note samples that it has, or was sent."""
        streams: dict[str, list[OriginalSample]] = {}
        for sample in samples:
            streams.setdefault(sample.stream, []).append(sample)
        for stream, some in streams.items():
            self.learn(stream, numbers_of(some))
