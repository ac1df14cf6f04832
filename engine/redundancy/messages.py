"""What instances send to each other, and what they keep."""

from __future__ import annotations

import dataclasses

from engine.redundancy.sequences import Sequences


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A sample of an original writer. Of two of one DDS instance the one with the higher `order` counts.

    Attributes:
        writer: the original writer.
        sequence: its number there, from 1.
        key: the DDS instance.
        source_time_ns: source timestamp.
        payload: its bytes; empty for a dispose.
        disposed: it is a dispose.
    """

    writer: str
    sequence: int
    key: bytes
    source_time_ns: int
    payload: bytes = b""
    disposed: bool = False

    @property
    def order(self) -> tuple[int, str, int]:
        """By source timestamp; equal ones by writer, then by sequence number."""
        return self.source_time_ns, self.writer, self.sequence


@dataclasses.dataclass(frozen=True, slots=True)
class WriterState:
    """What an instance has of one original writer.

    Attributes:
        writer: the original writer.
        had: samples that are accounted for: kept, or superseded by what is kept.
        path: the instances through which it gets what the writer writes now, itself last; None when it gets
            nothing now. Its length is the length of the replication path.
    """

    writer: str
    had: Sequences
    path: tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Announcement:
    """What an instance has, of all writers; sent to every other instance each period and on connection."""

    states: tuple[WriterState, ...]


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
class Kept:
    """A sample on its way, with every writer that ever wrote its DDS instance."""

    sample: Sample
    writers: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """Samples, and then what they supersede.

    Attributes:
        samples: what the receiver lacks.
        written: writers of DDS instances of which the receiver has the latest sample already.
        superseded: (writer, numbers) that are accounted for once everything above is.
    """

    samples: tuple[Kept, ...] = ()
    written: tuple[tuple[bytes, frozenset[str]], ...] = ()
    superseded: tuple[tuple[str, Sequences], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """What an instance must find on its disk when it starts again: all of it from one moment."""

    kept: tuple[Kept, ...] = ()
    had: tuple[tuple[str, Sequences], ...] = ()


Message = Announcement | Subscription | Delivery
