"""The topics and messages of all OpenSplice stores, decoded to samples.

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
from ospltool.stores.metadata import parse_metadata
from ospltool.stores.model import GroupFacts, GroupName
from ospltool.stores.types import (
    Array,
    Enumeration,
    Primitive,
    Sequence,
    Structure,
    Text,
    Type,
    Undecodable,
    Union,
    Value,
    key_paths,
)

WRITE: Final = 0x1
DISPOSED: Final = 0x4
UNREGISTERED: Final = 0x200
YEAR_2038: Final = 0x100000
"""The times of an XML message are the halves of a 64-bit number of nanoseconds."""

_LONGEST_NUMBER: Final = 24
"""Characters of a number of 64 bits, with room for blanks."""

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


def decode_binary(data: bytes, topic: StoredTopic) -> tuple[Sample, int]:
    """Decode a message of encoding BIGECDR_V1, and its state.

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
    decoder.take(decoder.number())  # QoS
    value = decoder.value(structure_of(topic.metadata, topic.type_name))
    return to_sample(state, time_ns, writer, sequence, value, topic), state


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


def decode_xml(data: bytes, topic: StoredTopic) -> tuple[Sample, int]:
    """Decode a message in XML, and its state.

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
    return to_sample(state, time_ns, writer_of(*words), sequence, value, topic), state


def parse_object(data: bytes) -> Element:
    """Parse an XML object whose texts are bytes of an unknown encoding.

    Raises:
        Undecodable: it is not XML.
    """
    reader = etree.XMLParser(
        encoding="iso-8859-1", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        return etree.fromstring(data.rstrip(b"\0"), reader)
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
    decoder.take(decoder.number())  # topic data
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
