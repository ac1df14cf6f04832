"""Many records at a glance: how many in each span of time, of each template, of no known template."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.catalogue import pattern_text
from ospltool.trace.reading.record import Kind, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospltool.trace.reading.record import Record

MOST_SPANS: Final = 100_000
"""A histogram with more spans than this is refused: the spans are too short."""

MOST_KINDS: Final = 10_000
"""Different messages without template that are counted one by one; the rest is counted as one."""

OTHERS: Final = "(others)"
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class TooManySpansError(ValueError):
    """The spans of a histogram are too short for the time that the records take."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A span of time.

    Attributes:
        start_ns: its beginning.
        counts: records by level.
    """

    start_ns: int
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Records of all levels."""
        return sum(self.counts.values())


def histogram(records: Iterable[Record], span_ns: int) -> list[Span]:
    """How many records each span of time has; spans without any are there too.

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
    return [Span(number * span_ns, dict(counts.get(number, {}))) for number in range(first, last + 1)]


@dataclasses.dataclass(frozen=True, slots=True)
class Kinds:
    """One kind of message, and how often it came.

    Attributes:
        count: records.
        level: the level, `?` where it is not certain.
        template: the id of the template; empty when none matches.
        pattern: the message, with its fields in braces; numbers as `#` when no template matches.
        example: where the first one is.
    """

    count: int
    level: str
    template: str
    pattern: str
    example: str


def by_template(records: Iterable[Record], *, unknown_only: bool = False) -> list[Kinds]:
    """The kinds of messages, most frequent first."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        if unknown_only and (record.template is not None or record.kind is Kind.REPORT):
            continue
        key = (record.template_id, "" if record.template else normalised(record.text))
        if key not in first and len(first) >= MOST_KINDS:
            key = ("", OTHERS)
        counts[key] += 1
        first.setdefault(key, record)
    return [
        Kinds(
            count,
            first[key].level,
            key[0],
            pattern_text(template.pattern) if (template := first[key].template) else key[1],
            f"{first[key].file}:{first[key].offset}",
        )
        for key, count in counts.most_common()
    ]


def normalised(text: str) -> str:
    """The first line of a message with its numbers as `#`."""
    return one_line(_NUMBER.sub("#", text.partition("\n")[0]))


def bar(span: Span, most: int, width: int) -> str:
    """A span as a bar: `#` for records, `W` and `S` in front for warnings and severe ones."""
    length = -(-span.total * width // most) if most else 0
    severe = min(length, span.counts.get("SEVERE", 0))
    warning = min(length - severe, span.counts.get("WARNING", 0))
    return "S" * severe + "W" * warning + "#" * (length - severe - warning)
