"""Conditions on records."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from typing import Final

from ospltool.trace.reading.record import LEVELS, RecordKind, TraceRecord

REPORT_LEVELS: Final = {
    "DEBUG": "FINE",
    "INFO": "INFO",
    "API_INFO": "INFO",
    "REPAIRED": "INFO",
    "WARNING": "WARNING",
    "ERROR": "SEVERE",
    "CRITICAL": "SEVERE",
    "FATAL": "SEVERE",
}
"""Level of a trace that each type of report counts as."""

_RANKS: Final = {level: rank for rank, level in enumerate(LEVELS)}
_NODE_FIELDS: Final = frozenset(
    {
        "fellow",
        "fellows",
        "other_fellow",
        "master",
        "other_master",
        "node",
        "origin",
        "provider",
        "before",
        "after",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordFilter:
    """Conditions on a record. Several values of one attribute are alternatives; all attributes must hold."""

    level: str | None = None
    """Least level. A record of uncertain level passes if it may be of that level."""
    threads: tuple[str, ...] = ()
    """Patterns of threads (`d_*`)."""
    states: tuple[str, ...] = ()
    """Service states."""
    fellows: tuple[str, ...] = ()
    """Addresses of nodes; a field of the record must name one."""
    namespaces: tuple[str, ...] = ()
    """Patterns of name-spaces."""
    groups: tuple[str, ...] = ()
    """Patterns of partition.topic."""
    conflict: str | None = None
    """Number of a conflict."""
    run: int | None = None
    """Number of the run in the file."""
    grep: tuple[re.Pattern[str], ...] = ()
    """Expressions that must all match in the record, header included."""
    exclude: tuple[re.Pattern[str], ...] = ()
    """Expressions that must not match in the record."""
    since_ns: int | None = None
    """Earliest time. Records without a time pass."""
    until_ns: int | None = None
    """Latest time."""

    @property
    def is_empty(self) -> bool:
        """Whether every record passes."""
        return self == RecordFilter()

    @property
    def needle(self) -> bytes | None:
        """Bytes that every wanted record contains; None without such a condition."""
        for pattern in self.grep:
            if not pattern.flags & re.IGNORECASE and is_literal(pattern.pattern):
                return pattern.pattern.encode()
        return None

    @property
    def only_needle(self) -> bytes | None:
        """The needle, if it is the only condition; else None."""
        needle = self.needle
        return (
            needle
            if needle is not None and self == RecordFilter(grep=self.grep) and len(self.grep) == 1
            else None
        )

    def __call__(self, record: TraceRecord) -> bool:
        """Return whether a record is wanted."""
        time = record.time_ns
        if time is not None:
            if self.since_ns is not None and time < self.since_ns:
                return False
            if self.until_ns is not None and time > self.until_ns:
                return False
        if self.run is not None and record.run != self.run:
            return False
        if self.level is not None and not _reaches(record, self.level):
            return False
        if self.states and record.state not in self.states:
            return False
        if self.threads and not _any_glob(record.thread, self.threads):
            return False
        return self._fields_pass(record) and self._text_passes(record)

    def _fields_pass(self, record: TraceRecord) -> bool:
        fields = record.fields
        if self.fellows and not any(
            one.strip() in self.fellows
            for name in _NODE_FIELDS & fields.keys()
            for one in fields[name].split(",")
        ):
            return False
        if self.namespaces and not _any_glob(fields.get("namespace", ""), self.namespaces):
            return False
        if self.groups and not _any_glob(fields.get("group", ""), self.groups):
            return False
        return self.conflict is None or self.conflict in {
            value for name, value in fields.items() if name in {"conflict", "other_conflict", "discarded"}
        }

    def _text_passes(self, record: TraceRecord) -> bool:
        if not self.grep and not self.exclude:
            return True
        text = record.raw.decode("utf-8", "surrogateescape")
        if not all(pattern.search(text) for pattern in self.grep):
            return False
        return not any(pattern.search(text) for pattern in self.exclude)


def is_literal(pattern: str) -> bool:
    """Return whether a regular expression is plain text."""
    return (
        bool(pattern)
        and not any(character in r"\.^$*+?{}[]|()" for character in pattern)
        and "\n" not in pattern
    )


def _any_glob(value: str, patterns: tuple[str, ...]) -> bool:
    return bool(value) and any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def _reaches(record: TraceRecord, least: str) -> bool:
    """Return whether a record is of a level, or above."""
    rank = _RANKS[least]
    if record.kind in {RecordKind.UNPARSED, RecordKind.DAMAGED}:
        return False
    level = REPORT_LEVELS.get(record.level, "") if record.kind is RecordKind.REPORT else record.level
    if level in _RANKS:
        return _RANKS[level] >= rank
    if record.template is None:
        return True
    return any(_RANKS[one] >= rank for one in record.template.levels)
