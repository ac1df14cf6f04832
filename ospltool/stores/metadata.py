"""A parser of OpenSplice's XML description of types (`<MetaData version="1.0.0">`)."""

from __future__ import annotations

from typing import Final

from lxml import etree
from lxml.etree import _Element as Element

from ospltool.stores import types
from ospltool.stores.types import (
    Array,
    Enumeration,
    Primitive,
    Sequence,
    StructMember,
    Structure,
    Text,
    Type,
    Undecodable,
    Union,
    UnionCase,
)

MAX_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 64

_PRIMITIVES: Final = {
    "Boolean": types.BOOLEAN,
    "Char": types.CHAR,
    "Octet": types.OCTET,
    "Short": types.SHORT,
    "UShort": types.USHORT,
    "Long": types.LONG,
    "ULong": types.ULONG,
    "LongLong": types.LONGLONG,
    "ULongLong": types.ULONGLONG,
    "Float": types.FLOAT,
    "Double": types.DOUBLE,
}
_TIME: Final = Structure(
    "c_time", (StructMember("seconds", types.LONG), StructMember("nanoseconds", types.ULONG))
)


def parser() -> etree.XMLParser:
    """Make an XML parser for text from stores, without entities, network and document types."""
    return etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


def parse_metadata(text: str, type_name: str) -> Structure:
    """Find the structure with a name such as `Peer::Sample` in a description.

    Raises:
        Undecodable: the description is damaged, has an unsupported type, or lacks this structure.
    """
    if len(text) > MAX_BYTES:
        raise Undecodable(f"the description of type {type_name} has {len(text)} characters")
    try:
        root = etree.fromstring(text.encode("utf-8", "backslashreplace"), parser())
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Undecodable(f"the description of type {type_name}: {error}") from error
    scope = _Scope()
    scope.read(root, (), 0)
    found = scope.known.get(tuple(type_name.split("::")))
    if not isinstance(found, Structure):
        raise Undecodable(f"the description has no structure {type_name}")
    return found


class _Scope:
    """The named types read so far, by their scoped names."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], Type] = {}

    def read(self, parent: Element, scope: tuple[str, ...], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Undecodable(f"modules are nested deeper than {MAX_DEPTH}")
        for element in parent:
            name = (*scope, element.get("name", ""))
            if element.tag == "Module":
                self.read(element, name, depth + 1)
            elif element.tag in ("Struct", "Enum", "Union", "TypeDef"):
                self.known[name] = self._named(element, name, depth)

    def _named(self, element: Element, name: tuple[str, ...], depth: int) -> Type:
        scoped = "::".join(name)
        if element.tag == "Enum":
            return _enumeration(element, scoped)
        if element.tag == "TypeDef":
            return self._only_type(element, name[:-1], depth)
        if element.tag == "Union":
            return self._union(element, name, depth)
        self.read(element, name, depth + 1)  # types that are declared inside
        members = tuple(
            StructMember(member.get("name", ""), self._only_type(member, name, depth))
            for member in element
            if member.tag == "Member"
        )
        return Structure(scoped, members)

    def _only_type(self, element: Element, scope: tuple[str, ...], depth: int) -> Type:
        inner = [child for child in element if child.tag not in ("Label", "Default")]
        if len(inner) != 1:
            raise Undecodable(f"{element.tag} {element.get('name')} has {len(inner)} types")
        return self._type(inner[0], scope, depth + 1)

    def _type(self, element: Element, scope: tuple[str, ...], depth: int) -> Type:
        if depth > MAX_DEPTH:
            raise Undecodable(f"types are nested deeper than {MAX_DEPTH}")
        tag = str(element.tag)
        if tag in _PRIMITIVES:
            return _PRIMITIVES[tag]
        if tag == "String":
            return Text(_number(element, "length"))
        if tag == "Time":
            return _TIME
        if tag == "Type":
            return self._reference(element.get("name", ""), scope)
        if tag == "Sequence":
            return Sequence(self._only_type(element, scope, depth), _number(element, "size"))
        if tag == "Array":
            return Array(self._only_type(element, scope, depth), _number(element, "size"))
        if tag in ("Struct", "Enum", "Union"):
            return self._named(element, (*scope, element.get("name", "")), depth)
        raise Undecodable(f"a type <{tag}> is not understood")

    def _reference(self, name: str, scope: tuple[str, ...]) -> Type:
        path = tuple(part for part in name.split("::") if part)
        for length in range(len(scope), -1, -1):
            found = self.known.get((*scope[:length], *path))
            if found is not None:
                return found
        raise Undecodable(f"type {name} is used but not described before")

    def _union(self, element: Element, name: tuple[str, ...], depth: int) -> Union:
        switch: Type | None = None
        cases = []
        for child in element:
            if child.tag == "SwitchType":
                switch = self._only_type(child, name, depth)
            elif child.tag == "Case":
                if not isinstance(switch, Primitive | Enumeration):
                    raise Undecodable(f"union {'::'.join(name)} switches on something else than a number")
                labels = tuple(_label(label, switch) for label in child if label.tag in ("Label", "Default"))
                cases.append(UnionCase(child.get("name", ""), self._only_type(child, name, depth), labels))
        if not isinstance(switch, Primitive | Enumeration):
            raise Undecodable(f"union {'::'.join(name)} has no switch")
        return Union("::".join(name), switch, tuple(cases))


def _enumeration(element: Element, name: str) -> Enumeration:
    labels = []
    value = 0
    for child in element:
        if child.tag == "Element":
            value = _number(child, "value") if child.get("value") is not None else value
            labels.append((child.get("name", ""), value))
            value += 1
    return Enumeration(name, tuple(labels))


def _label(element: Element, switch: Primitive | Enumeration) -> int | None:
    if element.tag == "Default":
        return None
    text = element.get("value", "")
    if isinstance(switch, Enumeration):
        for label, number in switch.labels:
            if label == text:
                return number
        raise Undecodable(f"{text!r} is no label of {switch.name}")
    if switch is types.BOOLEAN:
        return int(text.lower() == "true")
    if switch is types.CHAR and len(text) == 1:
        return ord(text)
    try:
        return int(text)
    except ValueError:
        raise Undecodable(f"{text!r} is no value of {switch.name}") from None


def _number(element: Element, attribute: str) -> int:
    text = element.get(attribute, "0")
    try:
        return int(text)
    except ValueError:
        raise Undecodable(f"<{element.tag}> has {attribute} {text!r}, which is no number") from None
