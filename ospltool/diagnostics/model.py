"""What the check reports: values that every diagnostics format renders.

Producers make them, renderers read them, and neither knows the other.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable

from engine.config import Source, Span


class Severity(enum.IntEnum):
    """How much a finding matters; a higher number matters more."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    @property
    def label(self) -> str:
        """The name as users write it."""
        return self.name.lower()

    @classmethod
    def named(cls, name: str) -> Severity:
        """The severity of a name in any case.

        Raises:
            ValueError: no severity has that name.
        """
        try:
            return cls[name.strip().upper()]
        except KeyError:
            labels = ", ".join(each.label for each in cls)
            raise ValueError(f"{name!r} is none of {labels}") from None


class Target(enum.StrEnum):
    """A service that may run the configuration."""

    OPENSPLICE = "opensplice"
    OSPLTOOL = "ospltool"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A range in a file, lines and columns from 1; the end column is that after the last character.

    `source` is None when there is no file content to show, as for a file that cannot be read.
    """

    path: str
    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    span: Span | None = None
    source: Source | None = None
    label: str = ""

    @classmethod
    def of(cls, source: Source, span: Span, label: str = "") -> Place:
        """The place of a range of bytes."""
        line, column = source.position(span.start)
        end_line, end_column = source.position(span.end)
        return cls(source.path, line, column, end_line, end_column, span, source, label)

    @property
    def order(self) -> tuple[str, int, int]:
        """Sorts places as people read: by file, then from top to bottom."""
        return (self.path, self.line, self.column)


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of bytes in a file."""

    path: str
    span: Span
    replacement: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Fix:
    """A repair that a program can carry out.

    A safe fix leaves the meaning of the configuration as it is; any other needs a person who wants it.
    """

    title: str
    is_safe: bool
    edits: tuple[Edit, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes:
        code: stable code, such as DUR201.
        name: stable kebab-case name of the rule.
        message: one sentence about this case.
        place: where to look first.
        related: further places, for what is wrong between two of them.
        nodes: names of the nodes of a deployment that it concerns; empty for a single file.
        subject: documentation path of the setting; empty where none is concerned.
        help: what to do about it.
        blocks: the services that refuse to start because of it.
        targets: the services that it matters for.
    """

    code: str
    name: str
    severity: Severity
    message: str
    place: Place
    related: tuple[Place, ...] = ()
    nodes: tuple[str, ...] = ()
    subject: str = ""
    help: str = ""
    blocks: frozenset[Target] = frozenset()
    targets: frozenset[Target] = frozenset()
    fix: Fix | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RuleText:
    """What formats with a rule catalogue need to know of a rule."""

    code: str
    name: str
    severity: Severity
    summary: str
    help: str


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run of the check has to say.

    `rules` has the texts of all rules that were found to be broken; `files` are all that were looked at, in
    order; `suppressed` and `not_selected` count findings that are not among the diagnostics; `skipped` are
    files of directories that are no configurations.
    """

    diagnostics: tuple[Diagnostic, ...]
    files: tuple[str, ...]
    rules: tuple[RuleText, ...]
    suppressed: int = 0
    not_selected: int = 0
    skipped: tuple[str, ...] = ()

    def count(self, severity: Severity) -> int:
        """How many findings have exactly that severity."""
        return sum(each.severity is severity for each in self.diagnostics)

    def blocked_files(self, target: Target) -> tuple[str, ...]:
        """The files on which a service refuses to start, in order."""
        blocked = {each.place.path for each in self.diagnostics if target in each.blocks}
        return tuple(path for path in self.files if path in blocked)


def fingerprints(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """A stable identity for each finding, in their order.

    It depends on rule, file, setting and message, not on the line, so that it survives edits elsewhere in the
    file; equal ones are told apart by their order.
    """
    import hashlib  # most formats do without

    seen: Counter[str] = Counter()
    prints = []
    for each in diagnostics:
        key = "\0".join((each.code, each.place.path, each.subject, each.message))
        seen[key] += 1
        prints.append(hashlib.sha256(f"{key}\0{seen[key]}".encode()).hexdigest()[:32])
    return prints
