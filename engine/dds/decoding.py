"""Decoding of samples, and the fields of a type, from a type description alone."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from typing import TYPE_CHECKING, Any, Final

from cyclonedds.idl import IdlUnion

from engine.core.untrusted import words_of
from engine.dataset.content import Undecodable, ValueKind
from engine.dataset.sample import DATA
from engine.dds.errors import DdsError
from engine.dds.typeinfo import check_description

if TYPE_CHECKING:
    from engine.dataset.content import Kinds, Path
    from engine.dataset.groups import TypeDescription

# Types of applications nest a few levels; a recursive type would never end.
MAX_FIELDS_DEPTH: Final = 16
"""Nesting depth of structures to which `kinds_of` descends."""


@functools.lru_cache(maxsize=1024)
def class_of(description: TypeDescription) -> Any:
    """Return the Python class of a type.

    Raises:
        Undecodable: the description is damaged, Python has no class for such a type, or no more than its name
            is known.
    """
    if description.is_untyped:
        raise Undecodable(f"the writers of type {description.name} announced no type information")
    # These take 35 ms and 3 MB, and few nodes decode anything.
    from cyclonedds.idl._typesupport.DDS.XTypes import TypeInformation, TypeMapping
    from cyclonedds.idl._xt_builder import XTInterpreter

    try:
        check_description(description)
        information = TypeInformation.deserialize(
            description.information, has_header=False, use_version_2=True
        )
        mapping = TypeMapping.deserialize(description.mapping, has_header=False, use_version_2=True)
        objects = {pair.type_identifier: pair.type_object for pair in mapping.identifier_object_pair_complete}
        wanted = information.complete.typeid_with_size.type_id
        class_, _ = XTInterpreter.xt_to_class(wanted, objects)
        class_.__idl__.populate()
    except DdsError as error:
        raise Undecodable(str(error)) from error
    except Exception as error:  # the wheel raises errors of many classes for a type that it does not know
        raise Undecodable(f"cannot interpret type {description.name}: {words_of(error)}") from error
    return class_


def decode(description: TypeDescription, status: int, payload: bytes) -> dict[str, Any]:
    """Return the fields of a sample; for a dispose or unregister, the key fields.

    Raises:
        Undecodable: the payload is not a value of the type.
    """
    class_ = class_of(description)
    try:
        is_whole = bool(status & DATA)
        value = _plain(class_.deserialize(payload) if is_whole else class_.__idl__.deserialize_key(payload))
    except Exception as error:  # likewise
        raise Undecodable(f"not a value of type {description.name}: {words_of(error)}") from error
    assert isinstance(value, dict)
    if is_whole:
        return value
    names = key_names(description)
    return {name: item for name, item in value.items() if name in names}


def key_names(description: TypeDescription) -> tuple[str, ...]:
    """Return the members of a type that are key fields, or contain one.

    Raises:
        Undecodable: see `class_of`.
    """
    noted = getattr(class_of(description), "__idl_field_annotations__", {})
    return tuple(name for name, notes in noted.items() if notes.get("key"))


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, IdlUnion):
        return {"switch": _plain(value.discriminator), "value": _plain(value.value)}
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name, None)) for field in fields}
    if isinstance(value, bytes | bytearray):
        return list(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def kinds_of(description: TypeDescription) -> Kinds:
    """Return the fields of a type by their paths, and the kind of each in comparisons.

    Raises:
        Undecodable: see `class_of`.
    """
    found: dict[Path, ValueKind] = {}
    _add_kinds(found, class_of(description), (), 0)
    return found


def _add_kinds(found: dict[Path, ValueKind], class_: Any, above: Path, depth: int) -> None:
    for name, hint in typing.get_type_hints(class_).items():
        if name.startswith("__"):
            continue
        path, type_ = (*above, name), _required(hint)
        found[path] = _kind(type_)
        if dataclasses.is_dataclass(type_) and depth < MAX_FIELDS_DEPTH:
            _add_kinds(found, type_, path, depth + 1)


def _required(hint: Any) -> Any:
    """Return the type of an optional member's value."""
    inner = [each for each in typing.get_args(hint) if each is not type(None)]
    return inner[0] if typing.get_origin(hint) is typing.Union and len(inner) == 1 else hint


def _kind(type_: Any) -> ValueKind:
    if not isinstance(type_, type):
        return ValueKind.OTHER
    if issubclass(type_, bool):
        return ValueKind.TRUTH
    if issubclass(type_, str | enum.Enum):
        return ValueKind.TEXT
    return ValueKind.NUMBER if issubclass(type_, int | float) else ValueKind.OTHER
