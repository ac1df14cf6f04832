"""Messages of made-up stores, and the stores of OpenSplice's layouts with them.

The bytes are put together here, with no help of what reads them.
"""

from __future__ import annotations

import dataclasses
import enum
import sqlite3
import struct
import zlib
from pathlib import Path
from xml.sax.saxutils import escape

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from tests.stores.item_types import Item

BASE_NS = 1_795_000_000_000_000_000
METADATA = (
    '<MetaData version="1.0.0"><Module name="depot"><Struct name="Item"><Member name="flag"><Octet/></Member>'
    '<Member name="id"><Long/></Member><Member name="value"><Double/></Member>'
    '<Member name="text"><String/></Member></Struct></Module></MetaData>'
)
STATES = {DATA: 0x1, DISPOSE: 0x4, DATA | DISPOSE: 0x5, UNREGISTER: 0x200}


@dataclasses.dataclass(frozen=True)
class Message:
    """A write of an Item, and what a node adds by itself: `allocated_ns` and the bytes between the fields."""

    id: int
    text: str = "a"
    flag: int = 1
    value: float = 1.5
    time_ns: int = BASE_NS
    writer: tuple[int, int, int] = (0x26B34DBE, 7, 1)
    sequence: int = 1
    status: int = DATA
    allocated_ns: int = 12_000_000_000
    padding: int = 0

    def sample(self) -> Sample:
        """What a capture of the same write gives."""
        item = Item(self.flag, self.id, self.value, self.text)
        key = self.id.to_bytes(4, "little", signed=True)
        payload = item.serialize() if self.status & DATA else b"\x00\x07\x00\x00" + key
        return make_sample(
            self.time_ns, struct.pack(">IIII", *self.writer, 0), self.status, key, payload, self.sequence
        )


@dataclasses.dataclass(frozen=True)
class Held:
    """What a store holds of a group."""

    messages: tuple[Message, ...]
    partition: str = "depot"
    topic: str = "Items"
    depth: int = 1
    cleanup_s: int = 0


class Big:
    """Big-endian CDR whose padding is whatever was in memory."""

    def __init__(self, padding: int = 0) -> None:
        self.data = bytearray()
        self._padding = padding

    def align(self, size: int) -> None:
        self.data += bytes([self._padding]) * (-len(self.data) % size)

    def words(self, *numbers: int) -> Big:
        for number in numbers:
            self.align(4)
            self.data += struct.pack(">I", number & 0xFFFFFFFF)
        return self

    def long(self, number: int) -> Big:
        self.align(8)
        self.data += struct.pack(">Q", number)
        return self

    def text(self, text: str) -> Big:
        raw = text.encode() + b"\0"
        self.words(len(raw)).data += raw
        return self


def binary_message(message: Message) -> bytes:
    """A message as `kv.sqlite` has it."""
    big = Big(message.padding)
    big.words(STATES[message.status]).long(message.allocated_ns).words(message.sequence, 0)
    big.long(message.time_ns).words(*message.writer, message.writer[0], 42, 1)
    big.words(6).data += bytes([0xF5, 3, 0, 0, 0, 0])
    big.data.append(message.flag if message.status & DATA else 0)
    big.words(message.id)
    big.align(8)
    big.data += struct.pack(">d", message.value if message.status & DATA else 0)
    big.text(message.text if message.status & DATA else "")
    return bytes(big.data)


def binary_topic(held: Held) -> bytes:
    """A topic as `kv.sqlite` has it."""
    forever = (0x7FFFFFFF, 0x7FFFFFFF)
    big = Big().words(0, 0, 0).text(held.topic).text("depot::Item")
    history = (0, held.depth) if held.depth else (1, -1)
    big.words(3, held.cleanup_s, 0, *history, -1, -1, -1, *forever, 0, 0, 0, *forever, 1, 100, 0)
    big.data.append(0)
    big.words(0, *forever, 1, *history, -1, -1, -1, 0, 0)
    return bytes(big.text(METADATA).text("id").data)


def xml_message(message: Message) -> str:
    """A message as the XML store and `kvmt.sqlite` have it."""

    def time(name: str, time_ns: int) -> str:
        seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
        return f"<{name}><seconds>{seconds}</seconds><nanoseconds>{nanoseconds}</nanoseconds></{name}>"

    def who(name: str, local: int) -> str:
        system, _, serial = message.writer
        return (
            f"<{name}><systemId>{system}</systemId><localId>{local}</localId>"
            f"<serial>{serial}</serial></{name}>"
        )

    if not message.status & DATA:
        message = dataclasses.replace(message, flag=0, value=0.0, text="<NULL>")
    return (
        f"<object><nodeState>{STATES[message.status]}</nodeState>{time('allocTime', message.allocated_ns)}"
        f"{time('writeTime', message.time_ns)}{who('writerGID', message.writer[1])}"
        f"{who('writerInstanceGID', 42)}<sequenceNumber>{message.sequence}</sequenceNumber>"
        "<transactionId>0</transactionId><qos><size>2</size><element>245</element><element>3</element></qos>"
        f"<userData><flag>{message.flag}</flag><id>{message.id}</id><value>{message.value!r}</value>"
        f"<text>{escape(message.text)}</text></userData></object>"
    )


def xml_qos(held: Held) -> str:
    """The part of a topic's QoS that shapes what is kept."""
    kind = "V_HISTORY_KEEPLAST" if held.depth else "V_HISTORY_KEEPALL"
    return (
        "<durability><kind>V_DURABILITY_PERSISTENT</kind></durability><durabilityService>"
        f"<service_cleanup_delay><seconds>{held.cleanup_s}</seconds><nanoseconds>0</nanoseconds>"
        f"</service_cleanup_delay><history_kind>{kind}</history_kind>"
        f"<history_depth>{held.depth or -1}</history_depth></durabilityService>"
        "<orderby><kind>V_ORDERBY_SOURCETIME</kind></orderby>"
    )


class Compression(enum.Enum):
    """The compressions of `kv.sqlite`."""

    NONE = 0
    LZF = 1
    SNAPPY = 2
    ZLIB = 3

    def apply(self, value: bytes) -> bytes:
        frame = b"\1" + struct.pack(">I", len(value))
        if self is Compression.ZLIB:
            return frame + zlib.compress(value)
        if self is Compression.LZF:
            return frame + _lzf(value)
        return _snappy(value) if self is Compression.SNAPPY else value


def _lzf(value: bytes) -> bytes:
    """Literals, and one repetition where a run of equal bytes begins."""
    out = bytearray()
    at = 0
    while at < len(value):
        run = len(value[at:]) - len(value[at:].lstrip(value[at : at + 1]))
        if run >= 12:
            length = min(run - 1, 200)  # one literal, then a copy of the byte before
            out += bytes([0, value[at], 7 << 5, length - 2 - 7, 0])
            at += 1 + length
        else:
            piece = value[at : at + 1]
            out += bytes([0]) + piece
            at += 1
    return bytes(out)


def _snappy(value: bytes) -> bytes:
    """The length, literals, and one repetition with a two-byte distance when the value repeats itself."""
    out = bytearray()
    size = len(value)
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    half = len(value) // 2
    if half and len(value) % 2 == 0 and value[:half] == value[half:] and half <= 64:
        return bytes(out + bytes([60 << 2, half - 1]) + value[:half] + bytes([half - 1 << 2 | 2, half, 0]))
    for at in range(0, len(value), 256):
        piece = value[at : at + 256]
        out += bytes([60 << 2, len(piece) - 1]) + piece
    return bytes(out)


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a name-space with its groups."""

    groups: tuple[Held, ...]
    name_space: str = "defaultNamespace"
    version: int = 0
    complete: bool = True
    quality_ns: int = BASE_NS


def write_kv(
    directory: Path, *versions: Version, compression: Compression = Compression.NONE, damaged: int = 0
) -> Path:
    """A `kv.sqlite`; of the first `damaged` messages the second half is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(directory / "kv.sqlite")
    connection.execute("CREATE TABLE data (k BLOB PRIMARY KEY, v BLOB)")

    def put(table: int, first: int, second: int, third: int, value: bytes) -> None:
        key = struct.pack(">IIQ", table << 24 | first, second, third)
        connection.execute("INSERT INTO data VALUES (?, ?)", (key, compression.apply(value)))

    version_entry = struct.pack(">II", 0, compression.value << 8 | 3)
    connection.execute("INSERT INTO data VALUES (?, ?)", (bytes(16), version_entry))
    group = 0
    for number, version in enumerate(versions):
        put(3, 0, version.version, 0, bytes(Big().text(version.name_space).data))
        put(4, 0, version.version, 0, struct.pack(">Q", version.quality_ns))
        put(5, 0, version.version, 0, bytes([version.complete]))
        for held in version.groups:
            topic = 100 + group
            put(1, topic, 0, 0, binary_topic(held))
            place = Big(0xD).words(topic, 0, version.version).text(held.partition).text(held.topic)
            put(6, group, 0, 0, bytes(place.data))
            for message, one in enumerate(held.messages):
                value = binary_message(one)
                is_damaged = not number and message < damaged
                put(7, group, message, 0, value[: len(value) // 2] if is_damaged else value)
            group += 1
    connection.commit()
    connection.close()
    return directory


_KVMT = """
CREATE TABLE version (tag INTEGER, value BLOB, PRIMARY KEY(tag));
CREATE TABLE topics (topic_id INTEGER, name TEXT, type_name TEXT, keylist TEXT, data TEXT);
CREATE TABLE topics_type (topic_id INTEGER, type TEXT);
CREATE TABLE namespaces (namespace_id INTEGER, namespace_version INTEGER, name TEXT);
CREATE TABLE namespaces_quality
  (namespace_id INTEGER, namespace_version INTEGER, quality_sec INTEGER, quality_nsec INTEGER);
CREATE TABLE namespaces_completeness (namespace_id INTEGER, namespace_version INTEGER, complete INTEGER);
CREATE TABLE groups (group_id INTEGER, topic_id INTEGER, namespace_id INTEGER, namespace_version INTEGER,
  partition TEXT, topic TEXT);
CREATE TABLE messages (group_id INTEGER, instance_id INTEGER, message_id INTEGER, data TEXT,
  PRIMARY KEY(group_id, instance_id, message_id));
CREATE TABLE messages_eot (xid INTEGER, data TEXT);
"""


def write_kvmt(directory: Path, *versions: Version) -> Path:
    """A `kvmt.sqlite`."""
    directory.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(directory / "kvmt.sqlite")
    connection.executescript(_KVMT)

    def put(table: str, *values: object) -> None:
        connection.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)

    group = 0
    for version in versions:
        high, low = struct.unpack(">ii", struct.pack(">Q", version.quality_ns))
        put("namespaces", 0, version.version, version.name_space)
        put("namespaces_quality", 0, version.version, high, low)
        put("namespaces_completeness", 0, version.version, int(version.complete))
        for held in version.groups:
            topic = 100 + group
            put(
                "topics",
                topic,
                held.topic,
                "depot::Item",
                "id",
                f"<object><qos>{xml_qos(held)}</qos></object>\0",
            )
            put("topics_type", topic, METADATA + "\0")
            put("groups", group, topic, 0, version.version, held.partition, held.topic)
            for number, one in enumerate(held.messages):
                put("messages", group, number, 0, xml_message(one) + "\0")
            group += 1
    connection.commit()
    connection.close()
    return directory


def write_xml(directory: Path, *versions: Version) -> Path:
    """An XML store: the last version is current, the one before it the back-up."""
    directory.mkdir(parents=True, exist_ok=True)
    for version, suffix in zip(reversed(versions), ("", ".bak"), strict=False):
        if version.complete:
            (directory / f"{version.name_space}_complete").touch()
        for held in version.groups:
            place = directory / held.partition
            place.mkdir(exist_ok=True)
            name = held.topic.replace(".", "%046")
            meta = (
                f"\n<METADATA>\n<name>{held.topic}</name>\n<keyList>id</keyList>\n"
                f"<qos><object>{xml_qos(held)}</object></qos>\n<type>{METADATA}</type>\n"
                "<typeName>depot::Item</typeName>\n</METADATA>"
            )
            records = "".join(f"<key>{one.id}</key>\n{xml_message(one)}\n" for one in held.messages)
            (place / f"{name}_meta.xml{suffix}").write_text(meta)
            (place / (f"{name}{suffix}" if suffix else f"{name}.xml")).write_text(
                f'<TOPIC><message version="6">Do_not_edit_this_file</message>\n{records}</TOPIC>'
            )
    return directory


LAYOUTS = {"kv": write_kv, "kvmt": write_kvmt, "xml": write_xml}
