"""What replicas send to each other, and what they keep."""

from __future__ import annotations

import dataclasses
from typing import Final

from engine.dataset.sample import DATA, DISPOSE
from engine.persistence.core.sequences import Sequences

LATE: Final = "-late"
"""What is behind the name of a writer in the name of its stream of late samples."""


@dataclasses.dataclass(frozen=True, slots=True)
class OriginalSample:
    """A sample of an original writer. Of two of one instance the one with the higher `order` counts.

    Attributes:
        writer: the original writer.
        sequence: its number there, from 1; see `engine.persistence.core.positions`.
        key: the instance.
        source_time_ns: source timestamp.
        payload: its bytes.
        status: `DATA` and `DISPOSE` bits of `engine.dataset.sample`.
        first: it accounts for the numbers from here to its own; 0 stands for its own alone.
        late: it came after one with a higher number, and is numbered apart (see `stream`).
    """

    writer: str
    sequence: int
    key: bytes
    source_time_ns: int
    payload: bytes = b""
    status: int = DATA
    first: int = dataclasses.field(default=0, compare=False)
    late: bool = dataclasses.field(default=False, compare=False)

    @property
    def order(self) -> tuple[int, str, int]:
        """By source timestamp; equal ones by writer, then by sequence number."""
        return self.source_time_ns, self.writer, self.sequence

    @property
    def stream(self) -> str:
        """Where its number belongs: the writer, or its late samples."""
        return self.writer + LATE if self.late else self.writer

    @property
    def numbers(self) -> Sequences:
        """What it accounts for."""
        return Sequences(((self.first or self.sequence, self.sequence),))

    @property
    def disposed(self) -> bool:
        """It disposes its instance."""
        return bool(self.status & DISPOSE)

    @property
    def alone(self) -> OriginalSample:
        """The sample, accounting for itself only."""
        if not self.first:
            return self
        return OriginalSample(  # dataclasses.replace takes ten times as long
            self.writer, self.sequence, self.key, self.source_time_ns, self.payload, self.status, 0, self.late
        )


@dataclasses.dataclass(frozen=True, slots=True)
class WriterState:
    """What a replica has of one original writer.

    Attributes:
        writer: the original writer, or its stream of late samples.
        had: samples that are accounted for: kept, or superseded by what is kept.
        path: the replicas through which it gets what the writer writes now, itself last; None when it gets
            nothing now. Its length is the length of the replication path.
    """

    writer: str
    had: Sequences
    path: tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Announcement:
    """What a replica has, of all writers; sent to every other replica each period and on connection.

    Attributes:
        states: of the writers.
        digests: of what is kept, see `engine.persistence.core.audit`; empty from one that does not audit.
    """

    states: tuple[WriterState, ...]
    digests: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Want:
    """One writer in a subscription: everything that is not in `had`, or of that only what is in `only`."""

    writer: str
    had: Sequences
    only: Sequences | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """The reader with its content filter: from now on the receiver provides this and nothing else.

    `number` counts how often the sender has made this reader anew.
    """

    number: int
    wants: tuple[Want, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class KeptSample:
    """A sample on its way, with every writer that ever wrote its instance."""

    sample: OriginalSample
    writers: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples, and then what they supersede.

    Attributes:
        samples: what the receiver lacks.
        written: writers of instances of which the receiver has the latest sample already.
        superseded: (writer, numbers) that are accounted for once everything above is.
    """

    samples: tuple[KeptSample, ...] = ()
    written: tuple[tuple[bytes, frozenset[str]], ...] = ()
    superseded: tuple[tuple[str, Sequences], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Inventory:
    """What the sender keeps of one part of all instances; the receiver gives what is newer.

    Attributes:
        part: which, see `engine.persistence.core.audit`.
        entries: instance, and the `order` of its last value.
    """

    part: int
    entries: tuple[tuple[bytes, tuple[int, str, int]], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """What a replica must find on its disk when it starts again: all of it from one moment.

    `gone` are instances that it must not find there any more.
    """

    kept: tuple[KeptSample, ...] = ()
    had: tuple[tuple[str, Sequences], ...] = ()
    gone: tuple[bytes, ...] = ()


Message = Announcement | Subscription | SampleBatch | Inventory
