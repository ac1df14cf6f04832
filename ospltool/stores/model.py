"""What is known of a store, whoever wrote it: sets, groups, and their samples in one form."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.store.interface import DamageLog
    from ospltool.stores.types import Value


UNKNOWN_DEPTH: Final = -1


class StoreUnreadable(Exception):
    """There is no store, or none that can be read; the text names it and says why."""


class Format(enum.StrEnum):
    """Who wrote a store, and how."""

    OURS = "ospltool"
    KV = "opensplice-kv"
    KVMT = "opensplice-kvmt"
    XML = "opensplice-xml"
    SNAPSHOT = "snapshot"
    RECORDING = "recording"
    PERSISTENCE = "persistence-service"


class SetKind(enum.StrEnum):
    """What a set is good for."""

    CURRENT = "current"
    """What a node would start with."""
    FILLING = "filling"
    """Not complete: its node was still aligning it."""
    BACKUP = "backup"
    """The complete set of before."""


class GroupName(NamedTuple):
    """What identifies a group across stores. Two types under one topic name are two groups."""

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
    """A store in short.

    Attributes:
        path: as given.
        format: who wrote it.
        detail: what else there is to say, by name.
        findings: what is wrong with it as far as its small parts tell.
        file_bytes: size on disk.
    """

    path: str
    format: Format
    sets: tuple[SetFacts, ...]
    findings: tuple[str, ...] = ()
    detail: tuple[tuple[str, str], ...] = ()
    file_bytes: int = 0

    def current(self) -> tuple[SetFacts, ...]:
        """The sets that a node would start with; of a name-space without one, what it was filling."""
        names = {one.name_space for one in self.sets if one.kind is SetKind.CURRENT}
        return tuple(
            one
            for one in self.sets
            if one.kind is SetKind.CURRENT or (one.kind is SetKind.FILLING and one.name_space not in names)
        )

    def set_of(self, number: int) -> SetFacts:
        """The set with a number.

        Raises:
            StoreUnreadable: there is none.
        """
        for one in self.sets:
            if one.number == number:
                return one
        raise StoreUnreadable(f"{self.path}: there is no set {number}")


def decoded(group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
    """The fields of a sample by the type that our own stores keep; None where they keep none.

    Raises:
        Undecodable: the sample is no value of its type.
    """
    if group.description is None:
        return None
    from engine.dds.decoding import decode  # it loads Cyclone DDS, which reading does not need

    return decode(group.description.type, sample.status, sample.payload)


class StoreReader(Protocol):
    """An open store. Nothing is ever written."""

    @property
    def facts(self) -> StoreFacts:
        """What it holds."""
        ...

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """The samples of one set, group by group; what is damaged goes to `damage` instead.

        A group's samples must be used up before the next group is asked for.
        """
        ...

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """The fields of a sample (the key fields of a dispose); None when its type is not known.

        Raises:
            Undecodable: the sample is no value of its type.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
