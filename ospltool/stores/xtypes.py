"""The conversion of OpenSplice's types to those of Cyclone DDS; it needs cyclonedds."""

from __future__ import annotations

import keyword
from typing import Any, Final

from cyclonedds.idl import annotations as annotate
from cyclonedds.idl import make_idl_enum, make_idl_struct, make_idl_union
from cyclonedds.idl import types as idl

from engine.core.untrusted import words_of
from engine.dataset.groups import TypeDescription
from ospltool.stores import types
from ospltool.stores.types import (
    Array,
    Enumeration,
    KeyPath,
    Primitive,
    Sequence,
    Structure,
    Text,
    Type,
    Undecodable,
    Union,
)

_PRIMITIVES: Final = {
    types.BOOLEAN: bool,
    types.CHAR: idl.char,
    types.OCTET: idl.uint8,
    types.INT8: idl.int8,
    types.SHORT: idl.int16,
    types.USHORT: idl.uint16,
    types.LONG: idl.int32,
    types.ULONG: idl.uint32,
    types.LONGLONG: idl.int64,
    types.ULONGLONG: idl.uint64,
    types.FLOAT: idl.float32,
    types.DOUBLE: idl.float64,
}


def describe(structure: Structure, keys: tuple[KeyPath, ...]) -> TypeDescription:
    """Describe a type as a writer of Cyclone DDS with the same IDL would.

    Raises:
        Undecodable: Cyclone DDS cannot describe the type.
    """
    try:
        class_ = _structure(structure, keys)
        class_.__idl__.populate()
        class_.__idl__.fill_type_data()
    except Undecodable:
        raise
    except Exception as error:  # likewise
        raise Undecodable(f"type {structure.name} cannot be described: {words_of(error)}") from error
    information, mapping = class_.__idl__._xt_bytedata
    return TypeDescription(structure.name, information, mapping, bool(keys))


def _class(type_: Type) -> Any:
    if isinstance(type_, Primitive):
        return _PRIMITIVES[type_]
    if isinstance(type_, Text):
        return idl.bounded_str[type_.bound] if type_.bound else str
    if isinstance(type_, Sequence):
        element = _class(type_.element)
        return idl.sequence[element, type_.bound] if type_.bound else idl.sequence[element]
    if isinstance(type_, Array):
        return idl.array[_class(type_.element), type_.size]
    if isinstance(type_, Enumeration):
        return make_idl_enum(_last(type_.name), _dotted(type_.name), dict(type_.labels))
    if isinstance(type_, Union):
        return _union(type_)
    return _structure(type_, ())


def _structure(type_: Structure, keys: tuple[KeyPath, ...]) -> Any:
    fields: dict[str, Any] = {}
    notes: dict[str, dict[str, Any]] = {}
    for member in type_.members:
        name = _attribute(member.name)
        inner = tuple(path[1:] for path in keys if path[0] == member.name)
        is_key = bool(inner)
        deeper = tuple(path for path in inner if path)
        if deeper and isinstance(member.type, Structure):
            fields[name] = _structure(member.type, deeper)
        else:
            fields[name] = _class(member.type)
        notes[name] = {"key": True} if is_key else {}
        if name != member.name:
            notes[name]["name"] = member.name
    noted = {name: note for name, note in notes.items() if note}
    made = make_idl_struct(_last(type_.name), _dotted(type_.name), fields, field_annotations=noted)
    return annotate.final(made)


def _union(type_: Union) -> Any:
    switch = _class(type_.switch)
    cases: dict[str, Any] = {}
    for case in type_.cases:
        inner = _class(case.type)
        if None in case.labels:
            cases[_attribute(case.name)] = idl.default[inner]
        else:
            labels = [_label(type_, switch, label) for label in case.labels if label is not None]
            cases[_attribute(case.name)] = idl.case[labels, inner]
    return annotate.final(make_idl_union(_last(type_.name), _dotted(type_.name), cases, switch))


def _label(type_: Union, switch: Any, label: int) -> Any:
    if isinstance(type_.switch, Enumeration):
        return switch(label)
    if type_.switch is types.CHAR:
        return chr(label)
    return bool(label) if type_.switch is types.BOOLEAN else label


def _attribute(name: str) -> str:
    return f"_{name}" if keyword.iskeyword(name) else name


def _last(name: str) -> str:
    return name.rpartition("::")[2]


def _dotted(name: str) -> str:
    return name.replace("::", ".")
