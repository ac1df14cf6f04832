"""Problems of a configuration, with their places.

A `Problem` is a value: the loader raises all of them in one `ConfigError`, and the check turns the same
values into findings.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

# A line of a terminal.
MAX_SHOWN = 80
"""Limit for the characters of a file that a message quotes; an ellipsis marks the cut."""


class Position(NamedTuple):
    """A place in a file, counted from 1; the column counts characters, not bytes."""

    line: int
    column: int


class ByteRange(NamedTuple):
    """A half-open range of byte offsets in a file."""

    start: int
    end: int


class ProblemKind(enum.StrEnum):
    """Kind of a problem that the loader finds."""

    UNREADABLE = "unreadable"
    NOTHING_FOUND = "nothing-found"
    TOO_LARGE = "too-large"
    ENCODING = "encoding"
    SYNTAX = "syntax"
    DTD = "dtd"
    EXPANSION = "expansion"
    ROOT = "root"
    SERVICE = "service"
    UNKNOWN_ELEMENT = "unknown-element"
    UNKNOWN_ATTRIBUTE = "unknown-attribute"
    MISSING_ELEMENT = "missing-element"
    MISSING_ATTRIBUTE = "missing-attribute"
    REPEATED_ELEMENT = "repeated-element"
    STRAY_TEXT = "stray-text"
    EMPTY_VALUE = "empty-value"
    BAD_VALUE = "bad-value"
    OUT_OF_RANGE = "out-of-range"
    TOO_LONG = "too-long"
    NO_POLICY = "no-policy"
    BLANK_TOPIC = "blank-topic"
    FILTER = "filter"
    EMPTY_NAME_SPACE = "empty-name-space"
    OVERLAP = "overlap"
    DUPLICATE_NAME = "duplicate-name"
    REFUSED_SETTING = "refused-setting"


class Problem(msgspec.Struct, frozen=True):
    """One problem with its place."""

    kind: ProblemKind
    """Its kind."""
    message: str
    """Description, without the place."""
    path: str
    """The file, as given."""
    line: int
    """Line, from 1."""
    column: int
    """Column, from 1."""
    span: ByteRange | None = None
    """Range of bytes to underline."""
    subject: str = ""
    """Documentation path, such as `//OpenSplice/Domain/Lease`; empty without a setting."""
    hint: str = ""
    """Advice; may be empty."""
    other: Position | None = None
    """Second place of a problem that has two."""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}:{self.line}:{self.column}: {self.message}{hint}"


class ConfigError(Exception):
    """A configuration with which a node must not start.

    `problems` has all problems, in the order of the file; `path`, `line`, `column` and `message` are those of
    the first.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "an error without a problem"
        super().__init__("\n".join(map(str, self.problems)))

    @property
    def path(self) -> str:
        """The file of the first problem, as given."""
        return self.problems[0].path

    @property
    def line(self) -> int:
        """The line of the first problem, from 1."""
        return self.problems[0].line

    @property
    def column(self) -> int:
        """The column of the first problem, from 1."""
        return self.problems[0].column

    @property
    def message(self) -> str:
        """The description of the first problem, without its place."""
        return self.problems[0].message


def printable(text: str) -> str:
    """Return `text` with every control character escaped, so that a terminal stays safe."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quoted(text: str) -> str:
    """Quote a piece of a file for a message: safe for a terminal, and cut after `MAX_SHOWN` characters."""
    if len(text) > MAX_SHOWN:
        return f"'{printable(text[:MAX_SHOWN])}…'"
    return f"'{printable(text)}'"
