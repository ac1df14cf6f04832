"""What the runtime hands over to be stored, and what it is told of it (see `engine.runtime.persistence`)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.core.namespaces import Group
    from engine.dataset.group_set import Summary
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.store.backups import Replaced
    from engine.store.interface import Change, Fellow


@dataclasses.dataclass(slots=True)
class AppendJob:
    """Live changes to a complete set; more may join them until they are at work."""

    name_space: str
    changes: list[Change]


@dataclasses.dataclass(slots=True)
class FillJob:
    """Samples of a set that is still arriving as the stream of that number."""

    name_space: str
    stream: bytes
    description: GroupDescription
    samples: Rows
    resumes: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """How the stored set becomes another one, other than by writing all of it.

    Attributes:
        changes: what differs; from what arrived in `stream` or, without one, from the set `before`.
        stream: number of the stream whose samples were handed over while they arrived.
        before: the stored set to which `changes` apply.
        rest: what must be added to what was handed over, because it was here before.
    """

    changes: list[Change]
    stream: bytes = b""
    before: Summary | None = None
    rest: list[tuple[GroupDescription, Rows]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class SetJob:
    """A whole set, which takes the place of the one that is stored."""

    name_space: str
    groups: list[tuple[GroupDescription, Rows]]
    wanted: Summary
    mark: str
    marks: Mapping[str, str]
    conversion: Conversion | None
    keeps: Replaced | None


@dataclasses.dataclass(frozen=True, slots=True)
class MarksJob:
    """Marks of a stored set, such as its lineage."""

    name_space: str
    marks: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class FellowsJob:
    """The fellows that a node must know of at its next start."""

    name_space: str
    fellows: tuple[Fellow, ...]


Job = AppendJob | FillJob | SetJob | MarksJob | FellowsJob


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """These groups have reached the disk up to here."""

    name_space: str
    watermarks: dict[Group, Summary]


@dataclasses.dataclass(frozen=True, slots=True)
class SetStored:
    """The complete set of a name-space is what was handed over; `written` samples were needed for it."""

    name_space: str
    written: int


@dataclasses.dataclass(frozen=True, slots=True)
class Degraded:
    """The disk refuses: data is in memory only from here on."""

    name_space: str
    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """The disk takes data again. `rewrite` asks for the whole set, because changes were not queued."""

    name_space: str
    rewrite: bool


Result = Stored | SetStored | Degraded | Recovered
