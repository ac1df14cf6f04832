"""What a replica knows of original writers and of other replicas, to choose providers by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from engine.persistence.core import audit
from engine.persistence.core.messages import OriginalSample, WriterState
from engine.persistence.core.selection import Stability
from engine.persistence.core.sequences import Sequences


@dataclasses.dataclass(slots=True)
class KnownWriter:
    """What is known of one original writer.

    Attributes:
        highest_before: its highest number at the last period; -1 to have one period of patience.
        keys: the instances that it ever wrote.
    """

    stability: Stability
    had: Sequences = dataclasses.field(default_factory=Sequences)
    is_direct: bool = False
    highest_before: int = 0
    keys: set[bytes] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True)
class KnownPeer:
    """Another replica while it is connected.

    Attributes:
        known: what it surely has or has been sent, by writer.
        states: its last announcement.
        highest_before: its highest numbers at the last period.
        wants: its subscription to us, by writer.
        number, asked: our subscription to it.
        digests, comparison: of what it keeps, and how that differs from ours.
    """

    known: dict[str, Sequences] = dataclasses.field(default_factory=dict)
    states: dict[str, WriterState] = dataclasses.field(default_factory=dict)
    highest_before: dict[str, int] = dataclasses.field(default_factory=dict)
    wants: dict[str, Sequences | None] = dataclasses.field(default_factory=dict)
    number: int = 0
    asked: dict[str, Sequences | None] = dataclasses.field(default_factory=dict)
    digests: tuple[int, ...] = ()
    comparison: audit.Comparison = dataclasses.field(default_factory=audit.Comparison)

    def knows(self, sample: OriginalSample) -> bool:
        """Whether it surely has a sample."""
        return sample.sequence in self.known.get(sample.stream, NOTHING)

    def learn(self, writer: str, numbers: Sequences) -> None:
        """It has, or has been sent, these."""
        self.known[writer] = self.known.get(writer, NOTHING) | numbers

    def learn_samples(self, samples: Iterable[OriginalSample]) -> None:
        """Likewise."""
        streams: dict[str, list[OriginalSample]] = {}
        for sample in samples:
            streams.setdefault(sample.stream, []).append(sample)
        for stream, some in streams.items():
            self.learn(stream, numbers_of(some))


NOTHING: Final = Sequences()


def numbers_of(samples: Iterable[OriginalSample]) -> Sequences:
    """What samples of one stream account for."""
    return Sequences.joined((sample.first or sample.sequence, sample.sequence) for sample in samples)
