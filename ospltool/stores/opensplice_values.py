"""The topics, types and messages of all OpenSplice stores, decoded to samples.

A store describes the type of a topic in XML (`<MetaData version="1.0.0">`); its values are in XML or CDR.

A message has its time, its writer and its fields. Parts that differ between two nodes with the same message
stay out of the sample: the allocation time, the writer's local instance, and the padding (old memory).
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Iterator
from typing import Final

from lxml import etree
from lxml.etree import _Element as Element

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.store.interface import DamageLog
from ospltool.stores import types
from ospltool.stores.cdr import HEADER_XCDR2_LITTLE, ValueReader, encode_key, encode_payload
from ospltool.stores.model import GroupFacts, GroupName
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
    Value,
    key_paths,
)

WRITE: Final = 0x1
# Bits of OpenSplice's v_state.
DISPOSED: Final = 0x4
UNREGISTERED: Final = 0x200
YEAR_2038: Final = 0x100000
"""The times of an XML message are the halves of a 64-bit number of nanoseconds."""

_LONGEST_NUMBER: Final = 24
"""Characters of a number of 64 bits, with room for blanks."""

# OS_DURATION_INFINITE of OpenSplice.
INFINITE_S: Final = 0x7FFFFFFF
DURABILITIES: Final = ("VOLATILE", "TRANSIENT_LOCAL", "TRANSIENT", "PERSISTENT")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as a store describes it."""

    name: str
    """Name of the topic."""
    type_name: str
    """Name of the type."""
    key_list: str
    """Names of the key fields, separated by commas."""
    metadata: str
    """The type in OpenSplice's XML."""
    durability: str = "PERSISTENT"
    """`TRANSIENT` or `PERSISTENT`."""
    history_depth: int = 1
    """Depth of the durability service; 0 keeps all."""
    cleanup_delay_ns: int = 0
    """`service_cleanup_delay`; -1 for infinite."""
    by_source_timestamp: bool = False
    """DESTINATION_ORDER is BY_SOURCE_TIMESTAMP."""

    def facts(self, partition: str, problem: str = "") -> GroupFacts:
        """Return the facts of a group of this topic."""
        return GroupFacts(
            GroupName(partition, self.name, self.type_name),
            self.key_list,
            self.history_depth,
            self.cleanup_delay_ns,
            self.durability,
            self.by_source_timestamp,
            "metadata",
            self.metadata,
            problem=problem,
        )


# As `engine.dds.typeinfo.MAX_DESCRIPTION_BYTES`.
MAX_DESCRIPTION_BYTES: Final = 4 << 20
# Before Python runs out of frames; IDL of applications nests a few levels.
MAX_TYPE_DEPTH: Final = 64

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


def _parser(encoding: str | None = None) -> etree.XMLParser:
    """Make a parser for XML from stores, without entities, network and document types."""
    return etree.XMLParser(
        encoding=encoding, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )


def parse_metadata(text: str, type_name: str) -> Structure:
    """Find the structure with a name such as `Peer::Sample` in a description.

    Raises:
        Undecodable: the description is damaged, has an unsupported type, or lacks this structure.
    """
    if len(text) > MAX_DESCRIPTION_BYTES:
        raise Undecodable(f"the description of type {type_name} has {len(text)} characters")
    try:
        root = etree.fromstring(text.encode("utf-8", "backslashreplace"), _parser())
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
        if depth > MAX_TYPE_DEPTH:
            raise Undecodable(f"modules are nested deeper than {MAX_TYPE_DEPTH}")
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
        if depth > MAX_TYPE_DEPTH:
            raise Undecodable(f"types are nested deeper than {MAX_TYPE_DEPTH}")
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


@functools.lru_cache(maxsize=1024)
def structure_of(metadata: str, type_name: str) -> Structure:
    """Parse the type of a topic.

    Raises:
        Undecodable: it is not supported.
    """
    return parse_metadata(metadata, type_name)


def problem_of(topic: StoredTopic) -> str:
    """Return why the messages of a topic cannot be read; empty if they can."""
    try:
        structure_of(topic.metadata, topic.type_name)
    except Undecodable as error:
        return str(error)
    return ""


def unread(facts: GroupFacts, damage: DamageLog) -> Iterator[Sample]:
    """Yield nothing, and note that the topic of a group cannot be read, and so none of its messages."""
    damage.add(f"group {facts.name}", facts.problem)
    yield from ()


def writer_of(system: int, local: int, serial: int) -> bytes:
    """Convert an OpenSplice global id (system, local and serial number) to the 16 bytes of a writer."""
    return struct.pack(">IIII", system, local, serial, 0)


def to_sample(
    state: int, time_ns: int, writer: bytes, sequence: int, value: Value, topic: StoredTopic
) -> Sample:
    """Convert a message to the sample that a node would capture.

    `state` has the bits of OpenSplice's message state.

    Raises:
        Undecodable: the message is not a write, dispose or unregister.
    """
    if abs(time_ns) >= 1 << 63:
        raise Undecodable(f"its write time of {time_ns} ns is none")
    structure = structure_of(topic.metadata, topic.type_name)
    status = DATA if state & WRITE else 0
    status |= DISPOSE if state & DISPOSED else 0
    status |= UNREGISTER if state & UNREGISTERED else 0
    if not status:
        raise Undecodable(f"state {state:#x} is no write, dispose or unregister")
    key = encode_key(structure, value, key_paths(topic.key_list))
    payload = encode_payload(structure, value) if status & DATA else HEADER_XCDR2_LITTLE + key
    return make_sample(time_ns, writer, status, key, payload, sequence)


def decode_binary(data: bytes, topic: StoredTopic) -> Sample:
    """Decode a message of encoding BIGECDR_V1.

    Raises:
        Undecodable: it is cut off, or not a message of this topic.
    """
    decoder = ValueReader(data, order=">")
    state = decoder.number()
    decoder.primitive(types.ULONGLONG)  # allocation time
    sequence = decoder.number()
    decoder.number()  # transaction
    time_ns = _time_of(int(decoder.primitive(types.ULONGLONG)), state)
    writer = writer_of(decoder.number(), decoder.number(), decoder.number())
    for _ in range(3):
        decoder.number()  # the writer's local instance
    decoder.next_bytes(decoder.number())  # QoS
    value = decoder.value(structure_of(topic.metadata, topic.type_name))
    return to_sample(state, time_ns, writer, sequence, value, topic)


def _time_of(raw: int, state: int) -> int:
    """Return the write time of a binary message, in nanoseconds.

    A message marked for times after January 2038 may hold seconds and nanoseconds as its two halves; read as
    nanoseconds, such a time would be later than the year 2262.
    """
    if raw < 1 << 63:
        return raw
    seconds, nanoseconds = raw >> 32, raw & 0xFFFFFFFF
    if state & YEAR_2038 and nanoseconds < 1_000_000_000:
        return seconds * 1_000_000_000 + nanoseconds
    raise Undecodable(f"its write time {raw:#x} is none")


def decode_xml(data: bytes, topic: StoredTopic) -> Sample:
    """Decode a message in XML.

    Raises:
        Undecodable: it is damaged, or not a message of this topic.
    """
    root = parse_object(data)
    state = _integer(root, "nodeState") & 0xFFFFFFFF
    seconds, nanoseconds = _integer(root, "writeTime/seconds"), _integer(root, "writeTime/nanoseconds")
    if state & YEAR_2038:
        time_ns = (seconds & 0xFFFFFFFF) << 32 | (nanoseconds & 0xFFFFFFFF)
    else:
        time_ns = seconds * 1_000_000_000 + nanoseconds
    words = [_integer(root, f"writerGID/{part}") & 0xFFFFFFFF for part in ("systemId", "localId", "serial")]
    data_element = root.find("userData")
    if data_element is None:
        raise Undecodable("the message has no userData")
    value = xml_value(structure_of(topic.metadata, topic.type_name), data_element)
    sequence = _integer(root, "sequenceNumber") & 0xFFFFFFFF
    return to_sample(state, time_ns, writer_of(*words), sequence, value, topic)


def parse_object(data: bytes) -> Element:
    """Parse an XML object whose texts are bytes of an unknown encoding.

    Raises:
        Undecodable: it is not XML.
    """
    try:
        return etree.fromstring(data.rstrip(b"\0"), _parser("iso-8859-1"))
    except etree.XMLSyntaxError as error:
        raise Undecodable(f"damaged: {error}") from error


def text_of(element: Element) -> str:
    """Return the text of an element of `parse_object`; bytes that are not UTF-8 become single characters."""
    return (element.text or "").encode("iso-8859-1", "replace").decode("utf-8", "surrogateescape")


def _integer(root: Element, path: str) -> int:
    return whole_number(root.findtext(path), path)


def whole_number(text: str | None, what: str) -> int:
    """Parse an integer of at most 64 bits.

    Raises:
        Undecodable: it is not one.
    """
    try:
        number = int((text or "")[:_LONGEST_NUMBER])
    except ValueError:
        raise Undecodable(f"{what} is {str(text)[:80]!r}, which is no number") from None
    if len(text or "") > _LONGEST_NUMBER or abs(number) >= 1 << 64:
        raise Undecodable(f"{what} is {str(text)[:80]!r}, which is too large")
    return number


def xml_value(type_: Type, element: Element) -> Value:
    """Decode a value from its XML.

    Raises:
        Undecodable: it is not a value of the type.
    """
    if isinstance(type_, Primitive):
        return _primitive(type_, text_of(element))
    if isinstance(type_, Text):
        text = text_of(element)
        return "" if text == "<NULL>" else text
    if isinstance(type_, Enumeration):
        return text_of(element)
    if isinstance(type_, Structure):
        return {member.name: xml_value(member.type, _child(element, member.name)) for member in type_.members}
    if isinstance(type_, Union):
        return _union(type_, element)
    assert isinstance(type_, Sequence | Array)
    return [xml_value(type_.element, child) for child in element if child.tag == "element"]


def _child(element: Element, name: str) -> Element:
    for found in element:  # not `find`: the name comes from the store, and may be no name at all
        if found.tag == name:
            return found
    raise Undecodable(f"<{element.tag}> has no <{name}>")


def _union(type_: Union, element: Element) -> Value:
    switch = xml_value(type_.switch, _child(element, "switch"))
    value: dict[str, Value] = {"switch": switch}
    for case in type_.cases:
        found = next((child for child in element if child.tag == case.name), None)
        if found is not None:
            value[case.name] = xml_value(case.type, found)
    return value


def _primitive(type_: Primitive, text: str) -> Value:
    if type_ is types.BOOLEAN:
        return text.upper() == "TRUE"
    if type_ is types.CHAR:
        return text[:1] or "\0"
    try:
        return float(text) if type_ in (types.FLOAT, types.DOUBLE) else int(text)
    except ValueError:
        raise Undecodable(f"{text!r} is no {type_.name}") from None


def topic_from_binary(data: bytes) -> StoredTopic:
    """Decode a topic of encoding BIGECDR_V1 (`v_topicInfo`).

    Raises:
        Undecodable: it is damaged.
    """
    decoder = ValueReader(data, order=">")
    for _ in range(3):
        decoder.number()  # key
    name, type_name = decoder.text(), decoder.text()
    durability = decoder.number()
    cleanup_s, cleanup_ns, history, depth = (decoder.number() for _ in range(4))
    for _ in range(3 + 2 + 2 + 3 + 3):  # limits, deadline, latency, liveliness, reliability
        decoder.number()
    decoder.primitive(types.BOOLEAN)  # reliability, synchronous
    for _ in range(3):
        decoder.number()  # transport priority, lifespan
    order = decoder.number()
    for _ in range(2 + 3 + 1):
        decoder.number()  # history, resource limits, ownership
    decoder.next_bytes(decoder.number())  # topic data
    metadata, key_list = decoder.text(), decoder.text()
    if durability >= len(DURABILITIES):
        raise Undecodable(f"durability kind {durability} is not known")
    return StoredTopic(
        name,
        type_name,
        key_list,
        metadata,
        DURABILITIES[durability],
        0 if history else depth,
        _duration_ns(cleanup_s, cleanup_ns),
        bool(order),
    )


def _duration_ns(seconds: int, nanoseconds: int) -> int:
    return -1 if seconds == INFINITE_S else seconds * 1_000_000_000 + nanoseconds


def topic_from_xml(
    name: str, type_name: str, key_list: str, qos: Element | None, metadata: str
) -> StoredTopic:
    """Decode a topic from the XML of its QoS.

    Args:
        name: name of the topic.
        type_name: name of its type, with scopes.
        key_list: its key fields, separated by commas.
        qos: element of its QoS; None gives the defaults.
        metadata: XML description of its type.

    Raises:
        Undecodable: a number in it is malformed.
    """
    if qos is None:
        return StoredTopic(name, type_name, key_list, metadata)
    service = "durabilityService"
    kind = (qos.findtext("durability/kind") or "V_DURABILITY_PERSISTENT").removeprefix("V_DURABILITY_")
    keeps_all = qos.findtext(f"{service}/history_kind") == "V_HISTORY_KEEPALL"
    delay = f"{service}/service_cleanup_delay"
    return StoredTopic(
        name,
        type_name,
        key_list,
        metadata,
        kind,
        0 if keeps_all else _integer(qos, f"{service}/history_depth"),
        _duration_ns(_integer(qos, f"{delay}/seconds"), _integer(qos, f"{delay}/nanoseconds")),
        qos.findtext("orderby/kind") == "V_ORDERBY_SOURCETIME",
    )


def decode_fields(group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
    """Decode a sample whose group has OpenSplice's description of its type.

    Raises:
        Undecodable: it is not a value of its type.
    """
    if group.type_format != "metadata" or group.problem:
        return None
    structure = structure_of(group.type_text, group.name.type_name)
    if not sample.status & DATA:
        structure = _key_structure(structure, key_paths(group.key_list))
    largest = 4 if sample.payload[:2] >= b"\x00\x06" else 8
    order = "<" if sample.payload[1] & 1 else ">"
    decoder = ValueReader(sample.payload, at=4, order=order, largest=largest, origin=4)
    value = decoder.value(structure)
    assert isinstance(value, dict)
    return value


def _key_structure(structure: Structure, paths: tuple[types.KeyPath, ...]) -> Structure:
    members = []
    for member in structure.members:
        inner = tuple(path[1:] for path in paths if path[0] == member.name)
        if () in inner:
            members.append(member)
        elif inner and isinstance(member.type, Structure):
            members.append(types.StructMember(member.name, _key_structure(member.type, inner)))
    return Structure(structure.name, tuple(members))


def as_text(element: Element) -> str:
    """Render an element of `parse_object` as XML text."""
    return etree.tostring(element, encoding="unicode", with_tail=False)
