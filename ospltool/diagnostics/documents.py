"""The data of the JSON documents about configurations, as types (see `ospltool.output.documents`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict


class Position(TypedDict):
    """A position in a file: line and column from 1, byte from 0."""

    line: int
    column: int
    byte: NotRequired[int]


class Range(TypedDict):
    """A range in a file."""

    start: Position
    end: Position


class FilePlace(TypedDict):
    """A range of a file."""

    file: str
    range: Range


class RelatedPlace(FilePlace):
    """Another place that a finding is about."""

    label: str


class FileEdit(TypedDict):
    """A change of a file."""

    file: str
    byte_start: int
    byte_end: int
    replacement: str


class SuggestedFix(TypedDict):
    """The fix of a finding."""

    title: str
    applicability: Literal["safe", "unsafe"]
    edits: Sequence[FileEdit]


class Diagnostic(FilePlace):
    """A finding of `check`."""

    code: str
    name: str
    severity: str
    message: str
    nodes: Sequence[str]
    subject: str
    related: Sequence[RelatedPlace]
    help: str
    refused_by: Sequence[str]
    targets: Sequence[str]
    fingerprint: str
    fix: SuggestedFix | None


class DiagnosticSummary(TypedDict):
    """The findings of `check`, counted."""

    errors: int
    warnings: int
    infos: int
    files: int
    suppressed: int
    not_shown: int
    skipped_files: Sequence[str]


class Diagnostics(TypedDict):
    """The findings of `check`."""

    valid: bool
    summary: DiagnosticSummary
    refused_by: dict[str, Sequence[str]]
    files: Sequence[str]
    diagnostics: Sequence[Diagnostic]


class RuleCount(TypedDict):
    """How many findings a rule has."""

    code: str
    name: str
    count: int


class MergePolicy(TypedDict):
    """A merge policy."""

    type: str
    scope: str


class MatrixRow(TypedDict):
    """A name-space on a node of a deployment."""

    name_space: str
    role: str
    node: str
    learned: bool
    content: str
    aligner: bool | None
    alignee: str | None
    master_priority: int | None
    durability: str | None
    delayed_alignment: bool | None
    equality_check: bool | None
    stores: bool
    merges: Sequence[MergePolicy]
    expected: str


class MasterForecast(TypedDict):
    """Which nodes may become master of a name-space in a role."""

    name_space: str
    role: str
    candidates: Sequence[str]
    rule: str


class Matrix(TypedDict):
    """The name-spaces of a deployment, and their masters."""

    rows: Sequence[MatrixRow]
    masters: Sequence[MasterForecast]


class SettingPlace(TypedDict):
    """Where a setting stands."""

    file: str
    line: int
    column: int


class EffectiveSetting(TypedDict):
    """A setting, with its value as written and as used."""

    path: str
    value: bool | int | float | str | None
    raw: str | None
    ignored: str | None
    origin: SettingPlace | None
    """Null for a default."""


class EffectiveNode(TypedDict):
    """The effective settings of a node."""

    node: str
    file: str
    starts: bool
    settings: Sequence[EffectiveSetting]


class RuleData(TypedDict):
    """A rule of `check`."""

    code: str
    name: str
    severity: str
    since: str
    scope: str
    targets: Sequence[str]
    refused_by: Sequence[str]
    summary: str
    why: str
    example: str
    use_instead: str
    opensplice: str
    reference: str


class CycloneSetting(TypedDict):
    """A setting of Cyclone DDS."""

    path: str
    facts: dict[str, str]
    contains: Sequence[str]


class SettingData(TypedDict):
    """A setting of OpenSplice."""

    path: str
    meaning: str
    opensplice: str
    facts: dict[str, str]
    contains: Sequence[str]
    rules: Sequence[str]


class CodeData(TypedDict):
    """A health code."""

    id: str
    title: str
    severity: str
    cause: str
    observed: str
    causes: Sequence[str]
    effect: str
    next: str
    unprovoked: str
    page: str
