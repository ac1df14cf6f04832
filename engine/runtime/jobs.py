"""Jobs of the runtime for the store, and their results (see `engine.runtime.store_queue`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from engine.core.lazy_dataclass import lazy_dataclass
from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample_rows import SampleRows
from engine.store.interface import GroupChange, Marks, RememberedFellow, Replaced


@lazy_dataclass(slots=True)
class AppendJob:
    """Live changes to a complete set; more may join until the job starts.

    `marks` are stored with the first of the changes that are not carried out yet.
    """

    name_space: str
    changes: list[GroupChange]
    marks: dict[str, str] = dataclasses.field(default_factory=dict)


def payload_bytes(changes: list[GroupChange]) -> int:
    """Return the bytes of the payloads that changes add."""
    return sum([len(change.added.payload) for change in changes if change.added is not None])


@lazy_dataclass(slots=True)
class FillJob:
    """Samples of a set that is still arriving, in the stream of that number."""

    name_space: str
    stream: bytes
    description: GroupDescription
    samples: SampleRows
    resumes: bool


@lazy_dataclass(frozen=True, slots=True)
class Conversion:
    """Changes that turn the stored set into another one, instead of writing all of it.

    Attributes:
        changes: difference from what arrived in `stream` or, without a stream, from the set `before`.
        stream: number of the stream whose samples were handed over while they arrived.
        before: the stored set to which `changes` apply.
        rest: samples to add to those of the stream, because they were here before.
    """

    changes: list[GroupChange]
    stream: bytes = b""
    before: Summary | None = None
    rest: list[tuple[GroupDescription, SampleRows]] = dataclasses.field(default_factory=list)


@lazy_dataclass(frozen=True, slots=True)
class SetJob:
    """A whole set, which replaces the stored one."""

    name_space: str
    groups: list[tuple[GroupDescription, SampleRows]]
    wanted: Summary
    mark: str
    marks: Mapping[str, str]
    conversion: Conversion | None
    keeps: Replaced | None


@lazy_dataclass(frozen=True, slots=True)
class MarksJob:
    """Marks of a stored set, such as its lineage."""

    name_space: str
    marks: Marks


@lazy_dataclass(frozen=True, slots=True)
class FellowsJob:
    """The fellows that a node must know at its next start."""

    name_space: str
    fellows: tuple[RememberedFellow, ...]


Job = AppendJob | FillJob | SetJob | MarksJob | FellowsJob


@lazy_dataclass(frozen=True, slots=True)
class StoredGroups:
    """Content of groups that is on the disk; `changes` counts those that were just written."""

    name_space: str
    watermarks: dict[Group, Summary]
    changes: int = 0


@lazy_dataclass(frozen=True, slots=True)
class SetStored:
    """The complete set of a name-space is on the disk; `written` samples were needed for it."""

    name_space: str
    written: int


@lazy_dataclass(frozen=True, slots=True)
class Degraded:
    """The disk refuses jobs, so new data is in memory only."""

    name_space: str
    cause: str


@lazy_dataclass(frozen=True, slots=True)
class Recovered:
    """The disk takes jobs again; `rewrite` asks for the whole set, because changes were not queued.

    `waited` counts the changes that had to wait, of all name-spaces.
    """

    name_space: str
    rewrite: bool
    waited: int = 0


Result = StoredGroups | SetStored | Degraded | Recovered
