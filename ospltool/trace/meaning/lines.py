"""Lines of traces by number, so that a step of an alignment is one integer.

Rules compare times of millions of steps and show few of their lines. So a line has a number, an array holds
the times of all, and the rest is looked up where it is shown.
"""

from __future__ import annotations

import array
import bisect
from typing import Final, NamedTuple, Protocol

from ospltool.trace.reading.record import TraceRecord

# Some lines of a terminal; the record itself has everything.
_LONGEST_TEXT: Final = 300
NO_TIME: Final = -(1 << 63)
"""Stands for the time of a line without one."""
_new: Final = tuple.__new__
"""Makes a place in half of the time of its class, which counts for many records."""


class RecordPlace(NamedTuple):
    """Place of a record, and the beginning of its text."""

    node: str
    file: str
    offset: int
    time_ns: int | None
    text: str

    @property
    def at_ns(self) -> int:
        """Its time, or 0 without one."""
        return self.time_ns or 0


def place(record: TraceRecord) -> RecordPlace:
    """Return the place of a record."""
    _, node, file, offset, time_ns, _, _, _, text, *_ = record
    return _new(RecordPlace, (node, file, offset, time_ns, beginning(text)))


def beginning(text: str) -> str:
    """Return the beginning of a message: its first line, or less."""
    if len(text) > _LONGEST_TEXT or "\n" in text:
        return text.partition("\n")[0][:_LONGEST_TEXT]
    return text


class LinePart(Protocol):
    """Lines that were read together."""

    def node(self, at: int) -> str:
        """Return the node of the line at a position."""

    def place(self, at: int, time_ns: int | None) -> RecordPlace:
        """Return the place of the line at a position; its time is given."""


class NumberedLines:
    """Lines by number, from 0."""

    def __init__(self) -> None:
        self.times = array.array("q")
        """The time of each line, or NO_TIME; see `time`."""

        self._single: dict[int, RecordPlace] = {}
        self._firsts: list[int] = []
        self._parts: list[LinePart] = []

    def add(self, where: RecordPlace) -> int:
        """Take in a line; return its number."""
        number = len(self.times)
        self.times.append(NO_TIME if where.time_ns is None else where.time_ns)
        self._single[number] = where
        return number

    def extend(self, part: LinePart, times: bytes) -> int:
        """Take in lines that were read together; return the number of the first.

        `times` are those of the lines, as integers of 64 bits of this machine.
        """
        first = len(self.times)
        self.times.frombytes(times)
        self._firsts.append(first)
        self._parts.append(part)
        return first

    def time(self, number: int) -> int | None:
        """Return the time of a line; None without one."""
        time_ns = self.times[number]
        return None if time_ns == NO_TIME else time_ns

    def place(self, number: int) -> RecordPlace:
        """Return the place of a line."""
        found = self._single.get(number)
        if found is not None:
            return found
        part, first = self._part(number)
        return part.place(number - first, self.time(number))

    def node(self, number: int) -> str:
        """Return the node of a line."""
        found = self._single.get(number)
        if found is not None:
            return found.node
        part, first = self._part(number)
        return part.node(number - first)

    def _part(self, number: int) -> tuple[LinePart, int]:
        """Return the part with a line, and the number of its first line."""
        at = bisect.bisect_right(self._firsts, number) - 1
        return self._parts[at], self._firsts[at]
