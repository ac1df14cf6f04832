"""The groups of samples that a service keeps: a topic of one type in one partition.

An instance and a writer are named with their group, so that all replicas of the service mean the same.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from engine.config.persistence import GroupSettings
from engine.core import expressions
from engine.core.name_spaces import Group
from engine.dataset.groups import GroupDescription
from engine.dds.typeinfo import BrokenType, check_description
from engine.persistence.core.messages import LATE, MessageFault, OriginalSample

ID_BYTES: Final = 8
"""Short, as it is in each key and each name of a writer; 10,000 groups do not collide in it by chance."""
MAX_GROUPS: Final = 10_000
"""Anybody in the domain can make a group, and each takes memory and a tap; more are refused and counted."""

TABLES: Final = """
CREATE TABLE IF NOT EXISTS sample_group (id BLOB PRIMARY KEY, description TEXT NOT NULL) WITHOUT ROWID;
"""

_WRITER: Final = re.compile(rf"(?P<guid>[0-9a-f]{{32}})\.(?P<group>[0-9a-f]{{{2 * ID_BYTES}}})(?:{LATE})?")


def group_id(group: Group) -> bytes:
    """Return the short name of a group in keys and names of writers."""
    text = "\0".join((group.partition, group.topic, group.type_id))
    return hashlib.blake2b(text.encode(), digest_size=ID_BYTES).digest()


def writer_name(guid: bytes, group: bytes) -> str:
    """Return the name of a writer in one group."""
    return f"{guid.hex()}.{group.hex()}"


class WriterName(NamedTuple):
    """The parts of a writer's name; `late` means its stream of late samples."""

    guid: bytes
    group: bytes
    late: bool

    @classmethod
    def parse(cls, name: str) -> WriterName | None:
        """Return the parts of a name; None if it is not the name of a writer."""
        found = _WRITER.fullmatch(name)
        if found is None:
            return None
        return cls(bytes.fromhex(found["guid"]), bytes.fromhex(found["group"]), name.endswith(LATE))


class KnownGroups:
    """The known groups by id, and the topics that the service keeps.

    Args:
        settings: the persistence_group elements.

    Attributes:
        refused: groups beyond the bound.
    """

    def __init__(self, settings: tuple[GroupSettings, ...]) -> None:
        self._filters = [one.strip() for each in settings for one in each.filter.split(",") if one.strip()]
        self._known: dict[bytes, GroupDescription] = {}
        self._unsaved: set[bytes] = set()
        self._raised: list[GroupDescription] = []
        self.refused = 0

    def __len__(self) -> int:
        return len(self._known)

    def covers(self, topic: str) -> bool:
        """Whether a persistence_group has this topic."""
        return any(expressions.matches(one, topic) for one in self._filters)

    def room(self, key: bytes) -> tuple[bytes, int]:
        """Return the group of an instance, and how many instances of it are kept; 0 for all.

        One value of each is kept, so max_samples and max_instances of DURABILITY_SERVICE mean the same here.
        """
        id_ = key[:ID_BYTES]
        known = self._known.get(id_)
        limits = known.qos.limits[:2] if known is not None else ()
        return id_, min((limit for limit in limits if limit > 0), default=0)

    def get(self, id_: bytes) -> GroupDescription | None:
        """Return a known group."""
        return self._known.get(id_)

    def items(self) -> Iterator[tuple[bytes, GroupDescription]]:
        """Yield all groups, by id."""
        yield from sorted(self._known.items())

    def learn(self, description: GroupDescription) -> bool:
        """Note a group; return whether it is new, or its type or durability is known better now.

        A group beyond the bound is refused and counted.
        """
        id_ = group_id(description.group)
        known = self._known.get(id_)
        if known is not None:
            description = known.improved_by(description)
            if description == known:
                return False
            self._raised.append(description)
        elif len(self._known) >= MAX_GROUPS:
            self.refused += 1
            return False
        self._known[id_] = description
        self._unsaved.add(id_)
        return True

    def take_raised(self) -> list[GroupDescription]:
        """Take the groups whose topics ask for more durability since the last call."""
        raised, self._raised = self._raised, []
        return raised

    def check(self, sample: OriginalSample) -> None:
        """Check that a sample of another replica belongs to a known group.

        Raises:
            MessageFault: it does not.
        """
        writer = WriterName.parse(sample.writer)
        if writer is None or writer.late or sample.key[:ID_BYTES] != writer.group:
            raise MessageFault("a sample without a valid writer")
        if writer.group not in self._known:
            raise MessageFault(f"a sample of an unknown group {writer.group.hex()}")

    # From others, and for the store.

    def learn_all(self, descriptions: Sequence[GroupDescription]) -> None:
        """Note the groups of another replica.

        Raises:
            MessageFault: the type of one is damaged, or another.
        """
        for each in descriptions:
            try:
                check_description(each.type)
            except BrokenType as error:
                raise MessageFault(f"a group of a damaged type: {error}"[:200]) from error
            if each.group.type_id != each.type.type_id:
                raise MessageFault("a group whose type is another")
        for each in descriptions:
            self.learn(each)

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the groups of the store; a damaged one is left out, with its samples."""
        for id_, text in store.execute("SELECT id, description FROM sample_group"):
            try:
                description = msgspec.json.decode(text, type=GroupDescription)
                check_description(description.type)
            except (msgspec.MsgspecError, BrokenType, ValueError, TypeError, RecursionError):  # a flipped bit
                continue
            self._known[id_] = description

    def changes(self) -> list[tuple[bytes, str]]:
        """Take the rows to write."""
        rows = [(id_, msgspec.json.encode(self._known[id_]).decode()) for id_ in sorted(self._unsaved)]
        self._unsaved.clear()
        return rows
