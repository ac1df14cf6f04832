"""Counts of records by span of time and by template."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable
from typing import Final

from ospltool.trace.meaning.catalogue import pattern_text
from ospltool.trace.reading.record import RecordKind, TraceRecord, one_line

# A mistyped width such as 1ms would fill the terminal and the memory.
MOST_SPANS: Final = 100_000
"""Most spans of a histogram."""

# Chosen; messages without a template are few kinds, or each is its own.
MOST_KINDS: Final = 10_000
"""Most different messages without template that are counted one by one; the others count together."""

OTHERS: Final = "(others)"
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class TooManySpansError(ValueError):
    """Spans of a histogram that are too short for the time of the records."""


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time.

    Attributes:
        start_ns: its beginning.
        counts: number of records by level.
    """

    start_ns: int
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Number of records of all levels."""
        return sum(self.counts.values())


def histogram(records: Iterable[TraceRecord], span_ns: int) -> list[TimeSpan]:
    """Count the records in each span of time; spans without records are included.

    Raises:
        TooManySpansError: there would be more than `MOST_SPANS`.
    """
    counts: dict[int, collections.Counter[str]] = {}
    for record in records:
        if record.time_ns is not None:
            counts.setdefault(record.time_ns // span_ns, collections.Counter())[record.level] += 1
            if len(counts) > MOST_SPANS:
                break
    if not counts:
        return []
    first, last = min(counts), max(counts)
    if last - first >= MOST_SPANS or len(counts) > MOST_SPANS:
        raise TooManySpansError(f"more than {MOST_SPANS} spans; take longer ones, or narrow the time")
    return [TimeSpan(number * span_ns, dict(counts.get(number, {}))) for number in range(first, last + 1)]


@dataclasses.dataclass(frozen=True, slots=True)
class MessageCount:
    """One kind of message, and the number of its records.

    Attributes:
        count: number of records.
        level: level, `?` if it is not certain.
        template: id of the template; empty if none matches.
        pattern: message with its fields in braces; numbers as `#` if no template matches.
        example: place of the first record.
    """

    count: int
    level: str
    template: str
    pattern: str
    example: str


def by_template(records: Iterable[TraceRecord], *, unknown_only: bool = False) -> list[MessageCount]:
    """Count records by kind of message, most frequent first."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    first: dict[tuple[str, str], TraceRecord] = {}
    for record in records:
        if unknown_only and (record.template is not None or record.kind is RecordKind.REPORT):
            continue
        key = (record.template_id, "" if record.template else normalised(record.text))
        if key not in first and len(first) >= MOST_KINDS:
            key = ("", OTHERS)
        counts[key] += 1
        first.setdefault(key, record)
    return [
        MessageCount(
            count,
            first[key].level,
            key[0],
            pattern_text(template.pattern) if (template := first[key].template) else key[1],
            f"{first[key].file}, byte {first[key].offset}",
        )
        for key, count in counts.most_common()
    ]


def normalised(text: str) -> str:
    """Return the first line of a message with its numbers as `#`."""
    return one_line(_NUMBER.sub("#", text.partition("\n")[0]))


def bar(span: TimeSpan, most: int, width: int) -> str:
    """Draw a span as a bar: `#` for records, `W` and `S` in front for warnings and severe ones.

    A span with `most` records fills the width.
    """
    length = -(-span.total * width // most) if most else 0
    severe = min(length, span.counts.get("SEVERE", 0))
    warning = min(length - severe, span.counts.get("WARNING", 0))
    return "S" * severe + "W" * warning + "#" * (length - severe - warning)
