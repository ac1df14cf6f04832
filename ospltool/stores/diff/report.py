"""The report of a comparison, as values; every output renders this, and every engine gives the same."""

from __future__ import annotations

import dataclasses
import enum

from ospltool.stores.types import Value


class Verdict(enum.StrEnum):
    """What became of a group or of all."""

    EQUAL = "equal"
    DIFFER = "differ"
    MISSING = "missing"
    """At least one store does not know the group; the others may agree."""
    UNREADABLE = "unreadable"
    """What can be read agrees, but something cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class SideReport:
    """One store: `label` is A, B, C, ...; `damage` the first things that cannot be read, of `damaged`."""

    label: str
    path: str
    format: str
    sets: tuple[str, ...]
    samples: int
    groups: int
    damaged: int
    damage: tuple[str, ...]
    findings: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupReport:
    """One group.

    Attributes:
        samples: how many each store holds; None in a store that does not know the group.
        damaged: how many records of it each store cannot read.
        differing: instances that are not the same everywhere.
        equal: instances that are.
        only: of them, how many only one store has, for each store.
        absent: of them, how many each store has nothing of.
        causes: how often each cause was found.
        odd: the store that differs where all others agree; empty where there is none.
    """

    name_space: str
    partition: str
    topic: str
    type_name: str
    verdict: Verdict
    samples: tuple[int | None, ...]
    damaged: tuple[int, ...]
    differing: int
    equal: int
    only: tuple[int, ...]
    absent: tuple[int, ...]
    causes: dict[str, int]
    odd: str


@dataclasses.dataclass(frozen=True, slots=True)
class SampleReport:
    """One sample of an instance: `stores` are the labels of those that have it."""

    time_ns: int
    writer: str
    sequence: str
    status: str
    digest: str
    stores: str
    fields: dict[str, Value] | None = None
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldReport:
    """A field that is not the same in the newest data of each store; missing data is None."""

    path: str
    values: tuple[Value | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceReport:
    """One instance that differs.

    Attributes:
        key: the key's bytes, hexadecimal.
        key_fields: the key's fields where the type is known and contents were asked for.
        counts: how many samples each store has of it.
        odd: the store that differs where all others agree.
        cause: the likely cause.
        evidence: what speaks for it.
        samples: those that not every store has.
        fields: what differs in content, where contents were asked for.
    """

    partition: str
    topic: str
    key: str
    counts: tuple[int, ...]
    odd: str
    cause: str
    evidence: str
    samples: tuple[SampleReport, ...]
    key_fields: dict[str, Value] | None = None
    fields: tuple[FieldReport, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ReportData:
    """A comparison.

    Attributes:
        instances: the first that differ, of `differing`.
        causes: how often each cause was found.
        odd: the store that is the odd one out everywhere it matters; empty where there is none.
    """

    verdict: Verdict
    sides: tuple[SideReport, ...]
    groups: tuple[GroupReport, ...]
    instances: tuple[InstanceReport, ...]
    differing: int
    causes: dict[str, int]
    odd: str

    @property
    def left_out(self) -> int:
        """Instances that differ and are not in `instances`."""
        return self.differing - len(self.instances)
