"""What can be wrong with a configuration, and where.

A `Problem` is a value: the loader raises them all together in one `ConfigError`, the check turns the very
same values into findings and goes on.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import NamedTuple

MAX_SHOWN = 80
"""Longest piece of a file that a message repeats; what is cut off is marked with an ellipsis."""


class Position(NamedTuple):
    """A place in a file, both counted from 1; the column counts characters, not bytes."""

    line: int
    column: int


class Span(NamedTuple):
    """A half-open range of byte offsets in a file."""

    start: int
    end: int


class Kind(enum.StrEnum):
    """The kinds of problems that the loader finds."""

    UNREADABLE = "unreadable"
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


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    `subject` is the documentation path of the setting, such as `Policy[@aligner]` below
    `//OpenSplice/DurabilityService/NameSpaces`; it is empty where no element is concerned. `span` is the
    range of bytes to underline. `other` is the second place of a problem that has two.
    """

    kind: Kind
    message: str
    path: str
    line: int
    column: int
    span: Span | None = None
    subject: str = ""
    hint: str = ""
    other: Position | None = None

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}:{self.line}:{self.column}: {self.message}{hint}"


class ConfigError(Exception):
    """A configuration that a node must not start on.

    `problems` has everything that was found, in the order of the file; `path`, `line`, `column` and
    `message` are those of the first.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "an error without a problem"
        super().__init__("\n".join(map(str, self.problems)))

    @property
    def path(self) -> str:
        """The file of the first problem, as it was given."""
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
        """What the first problem is, without its place."""
        return self.problems[0].message


def printable(text: str) -> str:
    """`text` with every control character written as an escape, so that a terminal stays safe."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quoted(text: str) -> str:
    """A piece of a file for a message: safe for a terminal, in single quotes, cut at a stated length."""
    if len(text) > MAX_SHOWN:
        return f"'{printable(text[:MAX_SHOWN])}…'"
    return f"'{printable(text)}'"
