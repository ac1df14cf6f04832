"""OpenSplice's stores: `kv.sqlite` and the readable `kvmt.sqlite`, and the store of XML files.

The first two have the same tables, as one table of binary keys and values and as SQL tables. A name-space has
versions: the latest is current, the one before it is the back-up. The XML store is a directory of files, one
for each group, with its topic beside it::

    <name-space>_complete              the name-space is complete
    <partition>/<topic>.xml            the samples; `.bak` is the back-up
    <partition>/<topic>_meta.xml       the topic; `.bak` likewise

It does not say to which name-space a group belongs, unless there is only one name-space.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import re
import shutil
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from engine.core.untrusted import words_of
from engine.dataset.sample import Sample
from engine.store.interface import DamageLog
from ospltool.stores import opensplice_values as values
from ospltool.stores.cdr import ValueReader
from ospltool.stores.model import (
    COMPLETE_SUFFIX,
    KVMT_FILE,
    GroupFacts,
    SetFacts,
    SetKind,
    StoreFacts,
    StoreFormat,
    StoreUnreadable,
)
from ospltool.stores.opensplice_values import StoredTopic
from ospltool.stores.sqlite_file import SqliteFile
from ospltool.stores.types import Undecodable, Value

_TOPIC, _TOPIC_TYPE, _NAME_SPACE, _QUALITY, _COMPLETENESS, _GROUP, _MESSAGE, _EOT = range(1, 9)
_KEY: Final = struct.Struct(">IIQ")
_XML_XML, _BIGE_XML, _BIGECDR_XML, _BIGECDR_V1 = range(4)
_ENCODINGS: Final = ("XML_XML", "BIGE_XML", "BIGECDR_XML", "BIGECDR_V1")
_NOWHERE: Final = (-1, -1)
"""Instance and message of an entry whose key is damaged."""

_BROKEN: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises; its messages may themselves be no text."""

Row = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    number: int
    topic: int
    name_space: int
    version: int
    partition: str
    topic_name: str


@dataclasses.dataclass(slots=True)
class _Tables:
    """The small tables, decoded."""

    topics: dict[int, StoredTopic] = dataclasses.field(default_factory=dict)
    name_spaces: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    quality_ns: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    complete: dict[tuple[int, int], bool] = dataclasses.field(default_factory=dict)
    groups: list[_Group] = dataclasses.field(default_factory=list)
    findings: list[str] = dataclasses.field(default_factory=list)
    detail: dict[str, str] = dataclasses.field(default_factory=dict)


class KvStore:
    """`kv.sqlite` or `kvmt.sqlite`; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, path: Path) -> None:
        """Open the store.

        Raises:
            StoreUnreadable: it is too damaged, or of an unknown encoding.
        """
        self._file = SqliteFile(path)
        try:
            is_kv = path.name != KVMT_FILE
            self._source: _Binary | _Readable = (_Binary if is_kv else _Readable)(self._file.connection)
            self._tables = self._source.tables()
            self._groups: dict[int, list[tuple[_Group, GroupFacts]]] = {}
            self.facts = self._describe(path, StoreFormat.KV if is_kv else StoreFormat.KVMT)
        except (sqlite3.Error, ValueError) as error:
            self._file.close()
            raise StoreUnreadable(f"{path}: {words_of(error)}") from error

    def _describe(self, path: Path, format_: StoreFormat) -> StoreFacts:
        tables = self._tables
        latest: dict[int, int] = {}
        for number, version in tables.name_spaces:
            latest[number] = max(latest.get(number, -1), version)
        sets = []
        for (number, version), name in sorted(tables.name_spaces.items()):
            place = (number, version)
            complete = tables.complete.get(place, False)
            if version < latest[number]:
                kind = SetKind.BACKUP
            else:
                kind = SetKind.CURRENT if complete else SetKind.FILLING
            members = [
                (group, self._group_facts(group))
                for group in tables.groups
                if (group.name_space, group.version) == place
            ]
            set_number = number << 16 | version
            self._groups[set_number] = members
            facts = tuple(facts for _, facts in members)
            sets.append(
                SetFacts(set_number, name, kind, complete, tables.quality_ns.get(place), facts, f"v{version}")
            )
        detail = {**tables.detail, "copied": "yes"} if self._file.is_copy else tables.detail
        size = path.stat().st_size
        return StoreFacts(
            str(path), format_, tuple(sets), tuple(tables.findings), tuple(detail.items()), size
        )

    def _group_facts(self, group: _Group) -> GroupFacts:
        topic = self._tables.topics.get(group.topic)
        if topic is None:
            missing = StoredTopic(group.topic_name, "", "", "")
            return missing.facts(group.partition, f"topic {group.topic} is not described")
        return topic.facts(group.partition, values.problem_of(topic))

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the samples of a set."""
        self.facts.set_of(number)
        for group, facts in self._groups[number]:
            if facts.problem:
                yield facts, values.unread(facts, damage)
            else:
                yield facts, self._messages(group, facts, damage)

    def _messages(self, group: _Group, facts: GroupFacts, damage: DamageLog) -> Iterator[Sample]:
        topic = self._tables.topics[group.topic]
        for instance, message, data in self._rows(group, facts, damage):
            try:
                sample = self._source.decode(data, topic)
            except Undecodable as error:
                damage.add(f"group {facts.name}, message {group.number}:{instance}:{message}", str(error))
            else:
                yield sample

    def _rows(
        self, group: _Group, facts: GroupFacts, damage: DamageLog
    ) -> Iterator[tuple[int, int, bytes | Undecodable]]:
        """Yield the messages of a group; after unreadable ones, read on from the other end."""
        last = (-1, -1)
        try:
            for row in self._source.messages(group.number, "ASC"):
                yield row
                last = max(last, row[:2])
            return
        except _BROKEN as error:
            damage.add(f"group {facts.name}", f"part of it cannot be read: {error}")
        with contextlib.suppress(*_BROKEN):  # it is noted
            for row in self._source.messages(group.number, "DESC"):
                if row[:2] != _NOWHERE and row[:2] <= last:
                    return
                yield row

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample."""
        return values.decode_fields(group, sample)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Binary:
    """Table `data` of binary keys and values."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.unread: list[str] = []
        row = connection.execute("SELECT v FROM data WHERE k = ?", (bytes(16),)).fetchone()
        if row is None or not isinstance(row[0], bytes) or len(row[0]) != 8:
            raise Undecodable("the store has no version entry; it is empty or no store of OpenSplice")
        version, flags = struct.unpack(">II", row[0])
        self._encoding, self._compression = flags & 0xFF, flags >> 8
        if version or self._encoding >= len(_ENCODINGS):
            raise Undecodable(f"version {version}, encoding {self._encoding} is not known")
        if self._encoding in (_BIGE_XML, _BIGECDR_XML):
            raise Undecodable(
                f"encoding {_ENCODINGS[self._encoding]} is not supported; BIGECDR_V1 and XML_XML are"
            )

    def _rows(self, table: int) -> Iterator[tuple[int, int, int, bytes | Undecodable]]:
        low, high = _KEY.pack(table << 24, 0, 0), _KEY.pack(table + 1 << 24, 0, 0)
        found = self._connection.execute(
            "SELECT k, v FROM data WHERE k >= ? AND k < ? ORDER BY k", (low, high)
        )
        for key, value in _tolerant(found, self.unread):
            place = _place(key)
            if place is None:
                self.unread.append(f"an entry of table {table} has a damaged key")
            else:
                yield place[0] & 0xFFFFFF, place[1], place[2], self._value(value)

    def _value(self, value: object) -> bytes | Undecodable:
        if not isinstance(value, bytes):
            return Undecodable("the value is no bytes")
        try:
            return decompress(self._compression, value)
        except Undecodable as error:
            return error

    def tables(self) -> _Tables:
        tables = _Tables()
        compression = (
            _COMPRESSIONS[self._compression] if self._compression < len(_COMPRESSIONS) else "unknown"
        )
        tables.detail = {"encoding": _ENCODINGS[self._encoding], "compression": compression}
        low, high = _KEY.pack(_TOPIC_TYPE << 24, 0, 0), _KEY.pack(_TOPIC_TYPE + 1 << 24, 0, 0)
        found = self._connection.execute("SELECT k, v FROM data WHERE k >= ? AND k < ?", (low, high))
        types_ = {  # never compressed
            place[0] & 0xFFFFFF: value
            for key, value in _tolerant(found, self.unread)
            if (place := _place(key)) is not None and isinstance(value, bytes)
        }
        read = _XmlValues(types_) if self._encoding == _XML_XML else _CdrValues()
        for table in (_TOPIC, _NAME_SPACE, _QUALITY, _COMPLETENESS, _GROUP):
            for number, version, _, value in self._rows(table):
                try:
                    if isinstance(value, Undecodable):
                        raise value
                    read.add_entry(tables, table, (number, version), value)
                except Undecodable as error:
                    tables.findings.append(f"entry {table}:{number}:{version}:0 is damaged: {error}")
        tables.complete = {
            place: done for place, done in tables.complete.items() if place in tables.name_spaces
        }
        _note_transactions(tables, [message for _, _, message, _ in self._rows(_EOT)])
        tables.findings += self.unread
        return tables

    def messages(self, group: int, order: str) -> Iterator[tuple[int, int, bytes | Undecodable]]:
        low, high = _KEY.pack(_MESSAGE << 24 | group, 0, 0), _KEY.pack((_MESSAGE << 24 | group) + 1, 0, 0)
        found = self._connection.execute(
            f"SELECT k, v FROM data WHERE k >= ? AND k < ? ORDER BY k {order}",  # noqa: S608  # ASC or DESC
            (low, high),
        )
        for key, value in found:
            place = _place(key)
            if place is None:
                yield *_NOWHERE, Undecodable("its key is damaged")
            else:
                yield place[1], place[2], self._value(value)

    def decode(self, data: bytes | Undecodable, topic: StoredTopic) -> Sample:
        if isinstance(data, Undecodable):
            raise data
        if self._encoding == _XML_XML:
            return values.decode_xml(data, topic)
        return values.decode_binary(data, topic)


def _place(key: object) -> tuple[int, int, int] | None:
    """Return table with group or topic, instance and message of a key; None if it is damaged."""
    if not isinstance(key, bytes) or len(key) != _KEY.size:
        return None
    table, instance, message = _KEY.unpack(key)
    return table, instance, message


def _tolerant(rows: Iterator[Row], unread: list[str]) -> Iterator[Row]:
    """Return the readable rows of a small table; errors go to `unread`."""
    try:
        yield from rows
    except _BROKEN as error:
        unread.append(f"a part of the tables cannot be read: {error}")


class _CdrValues:
    """Values of encoding BIGECDR_V1."""

    def add_entry(self, tables: _Tables, table: int, place: tuple[int, int], value: bytes) -> None:
        decoder = ValueReader(value, order=">")
        if table == _TOPIC:
            tables.topics[place[0]] = values.topic_from_binary(value)
        elif table == _NAME_SPACE:
            tables.name_spaces[place] = decoder.text()
        elif table == _QUALITY:
            tables.quality_ns[place] = decoder.number() << 32 | decoder.number()
        elif table == _COMPLETENESS:
            tables.complete[place] = decoder.next_bytes(1) != b"\0"
        else:
            topic, name_space, version = decoder.number(), decoder.number(), decoder.number()
            group = _Group(place[0], topic, name_space, version, decoder.text(), decoder.text())
            tables.groups.append(group)


class _XmlValues:
    """Values of encoding XML_XML: objects whose elements are the columns of `kvmt.sqlite`."""

    def __init__(self, types_: dict[int, bytes]) -> None:
        self._types = types_

    def add_entry(self, tables: _Tables, table: int, place: tuple[int, int], value: bytes) -> None:
        root = values.parse_object(value)

        def text(name: str) -> str:
            return root.findtext(name) or ""

        def number(name: str) -> int:
            found = text(name)
            return values.whole_number(found, name)

        if table == _TOPIC:
            metadata = self._types.get(place[0], b"").rstrip(b"\0").decode("utf-8", "replace")
            tables.topics[place[0]] = values.topic_from_xml(
                text("name"), text("type_name"), text("keylist"), root.find("qos"), metadata
            )
        elif table == _NAME_SPACE:
            tables.name_spaces[place] = text("name")
        elif table == _QUALITY:
            tables.quality_ns[place] = _joined(number("quality/seconds"), number("quality/nanoseconds"))
        elif table == _COMPLETENESS:
            tables.complete[place] = text("complete").upper() in ("TRUE", "1")
        else:
            tables.groups.append(
                _Group(
                    place[0],
                    number("topic_id"),
                    number("namespace_id"),
                    number("namespace_version"),
                    text("partition"),
                    text("topic"),
                )
            )


class _Readable:
    """The tables of `kvmt.sqlite`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.unread: list[str] = []
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")

    def tables(self) -> _Tables:
        tables = _Tables(detail={"encoding": "XML_XML", "compression": "none"})
        query = self._query
        types_: dict[int, str] = dict(query("SELECT topic_id, type FROM topics_type", int, str))
        for number, name, type_name, key_list, data in query(
            "SELECT topic_id, name, type_name, coalesce(keylist, ''), coalesce(data, '') FROM topics",
            *(int, str, str, str, (str, bytes)),
        ):
            try:
                qos = values.parse_object(_bytes(data)).find("qos")
                metadata = str(types_.get(number, "")).rstrip("\0")
                tables.topics[number] = values.topic_from_xml(name, type_name, key_list, qos, metadata)
            except Undecodable as error:
                tables.findings.append(f"topic {number} ({name}) is damaged: {error}")
        for number, version, name in query(
            "SELECT namespace_id, namespace_version, name FROM namespaces", int, int, str
        ):
            tables.name_spaces[number, version] = name
        for number, version, high, low in query(
            "SELECT namespace_id, namespace_version, quality_sec, quality_nsec FROM namespaces_quality",
            *(int, int, int, int),
        ):
            tables.quality_ns[number, version] = _joined(high, low)
        for number, version, complete in query(
            "SELECT namespace_id, namespace_version, complete FROM namespaces_completeness",
            *(int, int, int),
        ):
            tables.complete[number, version] = bool(complete)
        tables.groups = [
            _Group(*row)
            for row in query(
                "SELECT group_id, topic_id, namespace_id, namespace_version, partition, topic FROM groups",
                *(int, int, int, int, str, str),
            )
        ]
        _note_transactions(tables, [row[0] for row in query("SELECT xid FROM messages_eot", int)])
        tables.findings += self.unread
        return tables

    def _query(self, text: str, *kinds: type | tuple[type, ...]) -> Iterator[Row]:
        """Return the rows of a small table whose cells have the right types."""
        for row in _tolerant(self._connection.execute(text), self.unread):
            if all(isinstance(cell, kind) for cell, kind in zip(row, kinds, strict=True)):
                yield row
            else:
                self.unread.append(f"a row is damaged: {str(row)[:200]}")

    def messages(self, group: int, order: str) -> Iterator[tuple[int, int, bytes | Undecodable]]:
        for instance, message, data in self._connection.execute(
            "SELECT instance_id, message_id, data FROM messages WHERE group_id = ?"  # noqa: S608  # ASC or DESC
            f" ORDER BY instance_id {order}, message_id {order}",
            (group,),
        ):
            if isinstance(instance, int) and isinstance(message, int) and isinstance(data, str | bytes):
                yield instance, message, _bytes(data)
            else:
                yield *_NOWHERE, Undecodable("its row is damaged")

    def decode(self, data: bytes | Undecodable, topic: StoredTopic) -> Sample:
        if isinstance(data, Undecodable):
            raise data
        return values.decode_xml(data, topic)


def _bytes(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")


def _joined(high: int, low: int) -> int:
    """Join the halves of a 64-bit time, which are stored as signed seconds and nanoseconds."""
    return (high & 0xFFFFFFFF) << 32 | (low & 0xFFFFFFFF)


def _note_transactions(tables: _Tables, ids: list[int]) -> None:
    still_open = sum(1 for number in ids if not number & 1)
    if still_open:
        tables.findings.append(f"{still_open} transactions were never finished; their samples are included")


# Chosen far above samples of applications; a damaged length would otherwise ask for gigabytes.
MAX_VALUE_BYTES: Final = 256 << 20
"""A value that claims to be larger is taken for damaged."""

_COMPRESSIONS: Final = ("none", "lzf", "snappy", "zlib", "custom")
# One byte, and four of the size.
_FRAME_BYTES: Final = 5


def decompress(kind: int, data: bytes) -> bytes:
    """Decompress a value.

    Raises:
        Undecodable: it is damaged, or of a compression that is not known.
    """
    name = dict(enumerate(_COMPRESSIONS)).get(kind, str(kind))
    if name == "none":
        return data
    if name == "snappy":
        return _snappy(data)
    if name not in ("zlib", "lzf"):
        raise Undecodable(f"compression {name} is not known")
    if len(data) < _FRAME_BYTES:
        raise Undecodable("the compressed value is cut off")
    size = int.from_bytes(data[1:_FRAME_BYTES])
    if size > MAX_VALUE_BYTES:
        raise Undecodable(f"the compressed value claims {size} bytes")
    body = data[_FRAME_BYTES:]
    value = _inflated(body, size) if name == "zlib" else _lzf(body, size)
    if len(value) != size:
        raise Undecodable(f"the compressed value gives {len(value)} bytes instead of {size}")
    return value


def _inflated(data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise Undecodable(f"the compressed value is damaged: {error}") from error


def _lzf(data: bytes, size: int) -> bytes:
    """Decompress LZF: a control byte N below 32 precedes N + 1 literal bytes; others repeat earlier bytes."""
    out = bytearray()
    at = 0
    try:
        while at < len(data) and len(out) <= size:
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            _repeat(out, ((control & 31) << 8 | data[at]) + 1, length + 2)
            at += 1
    except IndexError:
        raise Undecodable("the compressed value is cut off") from None
    return bytes(out)


def _snappy(data: bytes) -> bytes:
    """Decompress Snappy, which begins with the size: seven bits in a byte, the lowest first."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > MAX_VALUE_BYTES:
        raise Undecodable(f"the compressed value claims {size} bytes")
    try:
        value: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise Undecodable(f"the compressed value is damaged: {error}") from error
    return value


def _repeat(out: bytearray, distance: int, length: int) -> None:
    if not 0 < distance <= len(out):
        raise Undecodable("the compressed value refers to what is not there")
    for _ in range(length):  # it may overlap itself
        out.append(out[-distance])


_META_SUFFIX: Final = "_meta.xml"
# Descriptions of topics and QoS; thousands of types take less.
_MAX_META_BYTES: Final = 8 << 20
# A file for each partition and topic; more is another directory.
_MAX_FILES: Final = 1_000_000
# Larger files are read in pieces, which costs a seek for each sample.
MOST_IN_MEMORY: Final = 16 << 20
"""Bytes of a file of samples up to which all of it is read at once."""
_NEWEST_VERSION: Final = b"6"
_FIRST_LINE: Final = re.compile(rb'<TOPIC><message version="(\d+)">')
_RECORD: Final = re.compile(rb"<key>(?:(?!\n<key>).)*?</key>\s*(<object>.*?</object>)", re.DOTALL)
_START: Final = b"<key>"
_END: Final = b"</TOPIC>"
BACKUP, CURRENT = 1, 2


def unescape(name: str) -> str:
    """Return the partition or topic from the name of its file: `%046` is a dot, `%020` a blank."""
    if name == "%020":
        return " "
    return re.sub(r"%(\d{3})", lambda found: " " if found[1] == "020" else chr(int(found[1])), name)


class XmlStore:
    """A directory; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, path: Path) -> None:
        """Open the store.

        Raises:
            StoreUnreadable: it is not such a directory.
        """
        self._path = path
        self._findings: list[str] = []
        self._files: dict[int, list[tuple[GroupFacts, StoredTopic | None, Path]]] = {}
        try:
            self.facts = self._describe()
        except OSError as error:
            raise StoreUnreadable(f"{error.filename}: {error.strerror}") from error

    def _describe(self) -> StoreFacts:
        complete = sorted(
            unescape(flag.name.removesuffix(COMPLETE_SUFFIX))
            for flag in self._path.iterdir()
            if flag.name.endswith(COMPLETE_SUFFIX)
        )
        name_space = complete[0] if len(complete) == 1 else ""
        if len(complete) > 1:
            self._findings.append(
                f"the store does not say which groups belong to which of {', '.join(complete)}"
            )
        sets, size = [], 0
        for number, kind, suffix in ((BACKUP, SetKind.BACKUP, ".bak"), (CURRENT, SetKind.CURRENT, "")):
            members, newest_ns = [], None
            for data in self._data_files(suffix):
                facts, topic = self._group(data, suffix)
                members.append((facts, topic, data))
                stat = data.stat()
                size += stat.st_size
                newest_ns = max(newest_ns or 0, stat.st_mtime_ns // 1_000_000_000 * 1_000_000_000)
            if not members and number == BACKUP:
                continue
            self._files[number] = members
            is_complete = bool(complete)
            chosen = kind if is_complete or number == BACKUP else SetKind.FILLING
            groups = tuple(facts for facts, _, _ in members)
            sets.append(SetFacts(number, name_space, chosen, is_complete, newest_ns, groups))
        detail = (("quality", "the newest time of a data file, in whole seconds"),)
        return StoreFacts(str(self._path), StoreFormat.XML, tuple(sets), tuple(self._findings), detail, size)

    def _data_files(self, suffix: str) -> list[Path]:
        """Return the data files with a description beside them; an empty partition lies at the top."""
        wanted = ".bak" if suffix else ".xml"
        found = [path for pattern in (f"*{wanted}", f"*/*{wanted}") for path in self._path.glob(pattern)]
        if len(found) > _MAX_FILES:
            raise StoreUnreadable(f"{self._path}: more than {_MAX_FILES} files")
        return sorted(path for path in found if not path.name.endswith((_META_SUFFIX, f"{_META_SUFFIX}.bak")))

    def _group(self, data: Path, suffix: str) -> tuple[GroupFacts, StoredTopic | None]:
        partition = "" if data.parent == self._path else unescape(data.parent.name)
        stem = data.name.removesuffix(".bak").removesuffix(".xml")
        meta = data.with_name(f"{stem}{_META_SUFFIX}{suffix}")
        if suffix and not meta.exists():
            meta = data.with_name(f"{stem}{_META_SUFFIX}")
        try:
            topic = _read_topic(meta)
        except (Undecodable, OSError) as error:
            problem = f"{meta}: {error}"
            self._findings.append(f"the topic of {data} cannot be read: {problem}")
            return StoredTopic(unescape(stem), "", "", "").facts(partition, problem), None
        return topic.facts(partition, values.problem_of(topic)), topic

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the samples of a set."""
        self.facts.set_of(number)
        for facts, topic, data in self._files[number]:
            if facts.problem or topic is None:
                yield facts, values.unread(facts, damage)
            else:
                yield facts, _samples(data, facts, topic, damage)

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample."""
        return values.decode_fields(group, sample)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _read_topic(path: Path) -> StoredTopic:
    if path.stat().st_size > _MAX_META_BYTES:
        raise Undecodable("the description is too large")
    root = values.parse_object(path.read_bytes())
    type_ = root.find("type")
    metadata = ""
    if type_ is not None:
        inner = list(type_)
        metadata = values.text_of(type_) if not inner else values.as_text(inner[0])
    names = [
        values.text_of(found)
        for found in map(root.find, ("name", "typeName", "keyList"))
        if found is not None
    ]
    if len(names) != 3 or not metadata:
        raise Undecodable("it has no name, typeName, keyList or type")
    return values.topic_from_xml(names[0], names[1], names[2], root.find("qos/object"), metadata)


def _samples(path: Path, facts: GroupFacts, topic: StoredTopic, damage: DamageLog) -> Iterator[Sample]:
    """Yield the records of a file; a repeated record is yielded once and counted."""
    place = f"group {facts.name}, file {path.name}"
    try:
        with contextlib.ExitStack() as stack:
            yield from _records(_content(path, stack), place, topic, damage)
    except (OSError, ValueError) as error:  # ValueError: it became empty, and nothing can be mapped
        damage.add(place, f"cannot be read: {error}")


def _content(path: Path, stack: contextlib.ExitStack) -> bytes | mmap.mmap:
    """Return what a file has now.

    Its service may write the file again meanwhile; to read a mapped file beyond its end kills the process.
    So of a large one a copy without a name is mapped, which goes with `stack`.
    """
    file = stack.enter_context(path.open("rb"))
    if os.fstat(file.fileno()).st_size <= MOST_IN_MEMORY:
        return file.read()
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        return stack.enter_context(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))


def _records(data: bytes | mmap.mmap, place: str, topic: StoredTopic, damage: DamageLog) -> Iterator[Sample]:
    first = _FIRST_LINE.match(data)
    if first is None or first[1] != _NEWEST_VERSION:
        version = first[1].decode() if first else "none"
        damage.add(place, f"message version {version}; only {_NEWEST_VERSION.decode()} is understood")
        return
    seen: set[bytes] = set()
    at = data.find(_START, first.end())
    number = 0
    while at >= 0:
        number += 1
        record = _RECORD.match(data, at)
        following = data.find(b"\n" + _START, at + 1)
        if record is None or (0 <= following < record.end()):
            damage.add(f"{place}, record {number} at byte {at}", "cut off or overwritten")
            at = following + 1 if following >= 0 else -1
            continue
        try:
            sample = values.decode_xml(record[1], topic)
        except Undecodable as error:
            damage.add(f"{place}, record {number} at byte {at}", str(error))
        else:
            if sample.digest in seen:
                damage.add(f"{place}, record {number} at byte {at}", "stored a second time")
            else:
                seen.add(sample.digest)
                yield sample
        at = data.find(_START, record.end())
    if data.rfind(_END) < len(data) - len(_END) - 8:
        damage.add(place, "the end of the file is missing")
