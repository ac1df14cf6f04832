"""Findings and reports: the values between the producers of findings and the renderers of formats."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from engine.config import ByteRange, SourceFile


class Severity(enum.IntEnum):
    """The severity of what a tool found, most severe first, so that it sorts to the top.

    A NOTICE of health is good to know; INFO is what only some users want to hear. Neither affects exit codes
    unless an option says so.
    """

    ERROR = 0
    WARNING = 1
    NOTICE = 2
    INFO = 3

    @property
    def label(self) -> str:
        """The name of the severity for users."""
        return self.name.lower()

    @classmethod
    def named(cls, name: str) -> Severity:
        """Return the severity of a rule with a name, in upper or lower case; rules have no notices.

        Raises:
            ValueError: no severity has that name.
        """
        levels = {each.label: each for each in (cls.INFO, cls.WARNING, cls.ERROR)}
        try:
            return levels[name.strip().lower()]
        except KeyError:
            raise ValueError(f"{name!r} is none of {', '.join(levels)}") from None


class Target(enum.StrEnum):
    """A service that may run the configuration."""

    OPENSPLICE = "opensplice"
    OSPLTOOL = "ospltool"

    @property
    def label(self) -> str:
        """Its name for users."""
        return "OpenSplice" if self is Target.OPENSPLICE else "ospltool"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A range in a file; lines and columns count from 1."""

    path: str
    """Path as shown to users."""
    line: int = 1
    """First line."""
    column: int = 1
    """First column, in characters."""
    end_line: int = 1
    """Last line."""
    end_column: int = 1
    """Column after the last character."""
    span: ByteRange | None = None
    """The same range in bytes; None if the file could not be read."""
    source: SourceFile | None = None
    """The file's content for code frames; None if it could not be read."""
    label: str = ""
    """Text beside the mark; else empty."""

    @classmethod
    def from_span(cls, source: SourceFile, span: ByteRange, label: str = "") -> Place:
        """Make the place of a range of bytes. The label is shown beside it."""
        line, column = source.position(span.start)
        end_line, end_column = source.position(span.end)
        return cls(source.path, line, column, end_line, end_column, span, source, label)

    @property
    def order(self) -> tuple[str, int, int]:
        """Return a sort key: by file, then from top to bottom."""
        return (self.path, self.line, self.column)


NOWHERE: Final = Place("")


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of bytes in a file."""

    path: str
    span: ByteRange
    replacement: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Fix:
    """A repair that a program can carry out.

    A safe fix is proved to leave all effective settings as they are; any other needs a person who wants it.
    """

    title: str
    edits: tuple[Edit, ...]
    is_safe: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What a tool found: in a file, or in a running system.

    The rule says what and where; the runner of `check` adds what depends on rule and choice.
    """

    message: str
    """One sentence about this case."""
    place: Place = NOWHERE
    """The place in a file to look at first; NOWHERE for what is in a running system."""
    related: tuple[Place, ...] = ()
    """Further places."""
    advice: str = ""
    """Remedy; empty without one."""
    subject: str = ""
    """Documentation path of the setting; else empty."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes concerned; empty for a single file."""
    level: Severity | None = None
    """Replaces the severity of the rule; None keeps it."""
    refusing: frozenset[Target] | None = None
    """Replaces the services that refuse to start because of it; None keeps those of the rule."""
    fix: Fix | None = None
    """A repair; None if there is none."""
    code: str = ""
    """Stable code, such as DUR201."""
    name: str = ""
    """Stable name of the rule in kebab-case."""
    targets: frozenset[Target] = frozenset()
    """Services for which it matters."""
    topics: tuple[str, ...] = ()
    """Names of the topics concerned, where it is about some."""
    evidence: tuple[Any, ...] = ()
    """What it was found on, for the report of its tool: of the doctor, endpoints."""

    @property
    def severity(self) -> Severity:
        """Its severity, once the runner has set it."""
        assert self.level is not None, "the runner sets it"
        return self.level

    @property
    def blocks(self) -> frozenset[Target]:
        """Services that refuse to start because of it."""
        return self.refusing or frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class RuleText:
    """The texts of a rule, for formats with a rule catalogue."""

    code: str
    name: str
    severity: Severity
    summary: str
    help: str


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The result of a run of the check.

    `rules` has the texts of all rules that were found to be broken; `files` are all that were looked at, in
    order; `suppressed` and `not_selected` count findings that are not among the diagnostics; `skipped` are
    files of directories that are no configurations; `alone` counts configurations of nodes that were compared
    with no other one.
    """

    diagnostics: tuple[Finding, ...]
    files: tuple[str, ...]
    rules: tuple[RuleText, ...]
    suppressed: int = 0
    not_selected: int = 0
    skipped: tuple[str, ...] = ()
    alone: int = 0

    def count(self, severity: Severity) -> int:
        """Count the findings with exactly this severity."""
        return sum(each.severity is severity for each in self.diagnostics)

    def blocked_files(self, target: Target) -> tuple[str, ...]:
        """Return the files with which a service refuses to start, in order."""
        blocked = {each.place.path for each in self.diagnostics if target in each.blocks}
        return tuple(path for path in self.files if path in blocked)


def fingerprints(diagnostics: Iterable[Finding]) -> list[str]:
    """Make a stable identity for each finding, in order.

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
