"""Topics of types that are known by description, or by name only, whether or not they have writers now."""

from __future__ import annotations

import base64
import functools
import hashlib
import pathlib
from typing import Final

import msgspec
from cyclonedds.idl import make_idl_struct
from cyclonedds.idl.types import uint8

from engine.dataset.groups import UNTYPED_MEMBER, TypeDescription
from engine.dds import abi, native_topics
from engine.dds.participant import NodeParticipant
from engine.dds.typeinfo import check_description

# Types are few; the bound is for a stranger that announces types without end.
_REMEMBERED_TYPES: Final = 4096
DESCRIPTIONS: Final = pathlib.Path(__file__).with_name("own_types.tsv")
"""The types of our own topics, made by `docs.own_types`; to make the first of its class takes 0.1 s."""


class Topic:
    """A local topic entity; readers and writers are created on it.

    Attributes:
        entity: the handle.
        name: topic name.
        type: the type's description.
    """

    __slots__ = ("__weakref__", "_participant", "entity", "name", "type")

    def __init__(self, participant: NodeParticipant, entity: int, name: str, type_: TypeDescription) -> None:
        self._participant = participant
        self.entity = entity
        self.name = name
        self.type = type_
        participant.adopt(entity, self)

    @classmethod
    def of_class(cls, participant: NodeParticipant, topic_name: str, class_: type) -> Topic:
        """Open the topic `topic_name`, whose type is a class that was made from IDL."""
        name = class_.__idl__.idl_transformed_typename  # type: ignore[attr-defined]  # every IDL class has it
        ours = our_descriptions().get(name) if class_.__module__.startswith("engine.") else None
        return open_topic(participant, topic_name, ours or description_of(class_))

    def close(self) -> None:
        """Delete the topic; close its readers and writers first. Idempotent."""
        abi.delete(self.entity)
        self._participant.disown(self.entity)


@functools.cache
def our_descriptions() -> dict[str, TypeDescription]:
    """Return the types of our own topics by their names in DDS."""
    found = {}
    for line in DESCRIPTIONS.read_text(encoding="ascii").splitlines():
        name, keyed, information, mapping = line.split("\t")
        parts = base64.b85decode(information), base64.b85decode(mapping)
        found[name] = TypeDescription(name, *parts, keyed == "1")
    return found


def description_of(class_: type) -> TypeDescription:
    """Return the type of an IDL class."""
    class_.__idl__.populate()  # type: ignore[attr-defined]  # every IDL class has it
    class_.__idl__.fill_type_data()  # type: ignore[attr-defined]  # put there by IdlStruct
    idl = class_.__idl__  # type: ignore[attr-defined]  # put there by IdlStruct
    information, mapping = idl._xt_bytedata
    keyed = bool(idl.data_type_props & abi.KEYED)
    return TypeDescription(idl.idl_transformed_typename, information, mapping, keyed)


@functools.lru_cache(maxsize=_REMEMBERED_TYPES)
def untyped(name: str) -> TypeDescription:
    """Return the stand-in for a type without key of which only this name is known."""
    unique = f"untyped_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    class_ = make_idl_struct(unique, unique, {UNTYPED_MEMBER: uint8})
    return msgspec.structs.replace(description_of(class_), name=name)


def announced(description: TypeDescription) -> TypeDescription:
    """Return what a service announces of an application's type: of one without key, its name.

    Endpoints then match by that name. Fast DDS compares what both sides announce, by rules of its own, and
    refuses types that are the same.
    """
    return description if description.keyed else untyped(description.name)


def open_topic(participant: NodeParticipant, topic_name: str, description: TypeDescription) -> Topic:
    """Open a topic with exactly this type; the type id on the wire is the original's.

    Two types under one topic name give two topics that do not match each other's readers and writers.

    Raises:
        BrokenType: the description is damaged.
        DdsError: Cyclone DDS refuses the type, for example a recursive one.
    """
    check_description(description)
    entity = native_topics.create(participant.entity, topic_name, description)
    return Topic(participant, entity, topic_name, description)
