"""The report of a comparison as values; it is the same with every engine."""

from __future__ import annotations

import dataclasses
import enum

from ospltool.stores.types import Value


class Verdict(enum.StrEnum):
    """The result for a group or for the comparison."""

    EQUAL = "equal"
    DIFFER = "differ"
    MISSING = "missing"
    """At least one store does not know the group; the others may agree."""
    UNREADABLE = "unreadable"
    """What can be read agrees, but something cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class SideReport:
    """One store of a comparison."""

    label: str
    """A, B, C, ..."""
    path: str
    """The store as the user named it."""
    format: str
    """Value of `ospltool.stores.model.StoreFormat`."""
    sets: tuple[str, ...]
    """The compared sets as `NUMBER: NAME-SPACE KIND`."""
    samples: int
    """Samples in them that can be read."""
    groups: int
    """Number of groups in them."""
    damaged: int
    """Records that cannot be read."""
    damage: tuple[str, ...]
    """The first of these records."""
    findings: tuple[str, ...]
    """Problems of the store as a whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupReport:
    """One group of a comparison; tuples have one item per store."""

    name_space: str
    """Empty if no store names it."""
    partition: str
    """Name of the partition."""
    topic: str
    """Name of the topic."""
    type_name: str
    """Name of the type."""
    verdict: Verdict
    """Result for the group."""
    samples: tuple[int | None, ...]
    """Samples in each store; None in a store without the group."""
    damaged: tuple[int, ...]
    """Records of each store that cannot be read."""
    differing: int
    """Instances that are not the same in all stores."""
    equal: int
    """Instances that are the same in all stores."""
    only: tuple[int, ...]
    """Instances that only this store has."""
    absent: tuple[int, ...]
    """Differing instances that this store lacks."""
    causes: dict[str, int]
    """Number of differing instances by cause."""
    odd: str
    """Label of the store that differs where all others agree; else empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class SampleReport:
    """A sample that some of the stores have."""

    time_ns: int
    """Source timestamp."""
    writer: str
    """GUID of the writer, hexadecimal."""
    sequence: str
    """Sequence number, decimal."""
    status: str
    """`write`, `dispose` and so on, see `status_text`."""
    digest: str
    """Digest, hexadecimal."""
    stores: str
    """Labels of the stores that have it."""
    fields: dict[str, Value] | None = None
    """Decoded fields; None if unknown or not asked for."""
    problem: str = ""
    """Why it cannot be decoded; else empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldReport:
    """A field that differs in the newest data of the stores; missing data is None."""

    path: str
    values: tuple[Value | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceReport:
    """An instance that is not the same in all stores."""

    partition: str
    """Name of the partition."""
    topic: str
    """Name of the topic."""
    key: str
    """Bytes of the key, hexadecimal."""
    counts: tuple[int, ...]
    """Samples in each store."""
    odd: str
    """Label of the store that differs where all others agree; else empty."""
    cause: str
    """Likely cause, a value of `ospltool.stores.diff.causes.Cause`."""
    evidence: str
    """Facts that support the cause."""
    samples: tuple[SampleReport, ...]
    """Samples that not every store has."""
    key_fields: dict[str, Value] | None = None
    """Decoded key; None if unknown or not asked for."""
    fields: tuple[FieldReport, ...] = ()
    """Fields that differ in the newest data, if asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReportData:
    """A comparison.

    Attributes:
        instances: the first of the `differing` instances.
        causes: number of instances by cause.
        odd: the store that differs in every such instance where all others agree; else empty.
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
        """Number of differing instances that are not in `instances`."""
        return self.differing - len(self.instances)
