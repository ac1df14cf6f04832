"""The model of a store of any format: sets, groups, and their samples in one form."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample
from engine.store.interface import DamageLog
from ospltool.stores.types import Value

UNKNOWN_DEPTH: Final = -1


class StoreUnreadable(Exception):
    """There is no store, or it cannot be read; the text names it and says why."""


class StoreNotSupported(StoreUnreadable):
    """A sound store, maybe, of a kind that ospltool does not read."""


class StoreFormat(enum.StrEnum):
    """The format of a store."""

    OURS = "ospltool"
    KV = "opensplice-kv"
    KVMT = "opensplice-kvmt"
    XML = "opensplice-xml"
    SNAPSHOT = "snapshot"
    RECORDING = "recording"
    PERSISTENCE = "persistence-service"


class SetKind(enum.StrEnum):
    """The use of a set."""

    CURRENT = "current"
    """The set that a node would start with."""
    FILLING = "filling"
    """Not complete: its node was still aligning it."""
    BACKUP = "backup"
    """The former complete set."""


class GroupName(NamedTuple):
    """The identity of a group across stores; two types under one topic name are two groups."""

    partition: str
    topic: str
    type_name: str

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"


@dataclasses.dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group, its type and its QoS."""

    name: GroupName
    """Partition, topic and type name."""
    key_list: str = ""
    """Names of the key fields, separated by commas; empty if unknown."""
    history_depth: int = 1
    """Depth of the durability service; 0 keeps all, `UNKNOWN_DEPTH` if unknown."""
    cleanup_delay_ns: int = 0
    """`service_cleanup_delay`; -1 for infinite."""
    durability: str = "PERSISTENT"
    """`TRANSIENT` or `PERSISTENT`."""
    by_source_timestamp: bool = False
    """DESTINATION_ORDER is BY_SOURCE_TIMESTAMP."""
    type_format: str = ""
    """Form of the type: `metadata` (see `type_text`), `xtypes` (see `description`) or empty."""
    type_text: str = ""
    """The type in OpenSplice's XML."""
    description: GroupDescription | None = None
    """Type and QoS of ospltool stores, which can be stored again."""
    stored: int | None = None
    """Number of samples according to the store; None if it has no count."""
    problem: str = ""
    """Why its samples cannot be read; else empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetFacts:
    """A set of a name-space."""

    number: int
    """Number of the set in its store."""
    name_space: str
    """Empty if the store does not name it."""
    kind: SetKind
    """Use of the set."""
    complete: bool | None
    """Whether it is complete; None if unknown."""
    quality_ns: int | None
    """Quality according to the store; None if it has none."""
    groups: tuple[GroupFacts, ...]
    """Its groups."""
    mark: str = ""
    """Text that its node stored with it."""
    part: bool = False
    """It is a part that a Lazy node kept, or is made of such parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoreFacts:
    """The facts of a store.

    Attributes:
        path: its path as given.
        format: its format.
        detail: further facts, by name.
        findings: problems that its small parts show.
        file_bytes: size on disk.
    """

    path: str
    format: StoreFormat
    sets: tuple[SetFacts, ...]
    findings: tuple[str, ...] = ()
    detail: tuple[tuple[str, str], ...] = ()
    file_bytes: int = 0

    def current(self) -> tuple[SetFacts, ...]:
        """Return the sets that a node would start with; for a name-space without one, the unfinished set."""
        names = {one.name_space for one in self.sets if one.kind is SetKind.CURRENT}
        return tuple(
            one
            for one in self.sets
            if one.kind is SetKind.CURRENT or (one.kind is SetKind.FILLING and one.name_space not in names)
        )

    def set_of(self, number: int) -> SetFacts:
        """Return the set with a number.

        Raises:
            StoreUnreadable: there is none.
        """
        for one in self.sets:
            if one.number == number:
                return one
        raise StoreUnreadable(f"{self.path}: there is no set {number}")


def decoded(group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
    """Decode a sample with the type that an ospltool store keeps; None if it keeps none, or only its name.

    Raises:
        Undecodable: the sample is not a value of its type.
    """
    if group.description is None or group.description.type.is_untyped:
        return None
    from engine.dds.decoding import decode  # it loads Cyclone DDS, which reading does not need

    return decode(group.description.type, sample.status, sample.payload)


class StoreReader(Protocol):
    """An open store, for reading only."""

    @property
    def facts(self) -> StoreFacts:
        """The facts of the store."""
        ...

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the samples of a set, group by group; damaged records go to `damage`.

        The caller must consume the samples of a group before it takes the next group.
        """
        ...

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample (the key fields of a dispose); None if its type is unknown.

        Raises:
            Undecodable: the sample is not a value of its type.
        """
        ...

    def close(self) -> None:
        """Close the store."""
        ...


META_FILE: Final = "snapshot.json"
SAMPLES_FILE: Final = "samples.parquet"
RANGES_FILE: Final = "ranges.parquet"

KV_FILE: Final = "kv.sqlite"
KVMT_FILE: Final = "kvmt.sqlite"
LEVELDB_DIRECTORY: Final = "kv.leveldb"
STORE_FILES: Final = (KV_FILE, KVMT_FILE, "store.sqlite")
PERSISTENCE_FILE: Final = "persistence.sqlite"
COMPLETE_SUFFIX: Final = "_complete"
"""Ends the name of the file by which an XML store says that a name-space is complete."""


def shown(time_ns: int) -> str:
    """Format a source timestamp as ISO 8601 in UTC with nanoseconds; as a number if beyond the calendar."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{moment.isoformat()[:19]}.{nanoseconds:09}Z"


def status_text(status: int) -> str:
    """Describe the status of a sample, such as `write` or `dispose+unregister`."""
    parts = {DATA: "write", DISPOSE: "dispose", UNREGISTER: "unregister"}
    return "+".join(word for bit, word in parts.items() if status & bit) or f"status {status}"
