"""The messages of the client-durability protocol, from values to bytes and back."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Final

from engine.dds.cdr import HEADER, Malformed
from engine.dds.client_protocol.messages import (
    ID_BYTES,
    INFINITE,
    MAJOR_VERSION,
    ZERO,
    Bead,
    GroupState,
    HistoryPart,
    HistoryRequest,
    Link,
    RequestId,
    StateAnswer,
    StateRequest,
    Time,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_ELEMENTS: Final = 10_000
"""Limit for the elements of a sequence of strings or structures; a longer one is refused."""
_ORDERS: Final = {b"\x00\x00": ">", b"\x00\x01": "<"}


@functools.lru_cache(maxsize=256)
def _packed(order: str, layout: str) -> struct.Struct:
    return struct.Struct(order + layout)


class CdrReader:
    """Reads one message, from `at` bytes behind its header; it raises `Malformed` for every fault."""

    __slots__ = ("_at", "_data", "_order")

    def __init__(self, payload: bytes, at: int = 0) -> None:
        order = _ORDERS.get(payload[:2])
        if order is None:
            raise Malformed(f"encapsulation {payload[:4].hex() or 'missing'}")
        self._order = order
        self._data = memoryview(payload)[4:]
        self._at = at

    def take(self, layout: str, alignment: int) -> tuple[int, ...]:
        """Read primitives without padding between them; `layout` as for `struct`, without byte order."""
        self._at += -self._at % alignment
        packed = _packed(self._order, layout)
        try:
            values = packed.unpack_from(self._data, self._at)
        except struct.error:
            raise Malformed("truncated") from None
        self._at += packed.size
        return values

    def u16(self) -> int:
        """Read an unsigned 16-bit number."""
        return self.take("H", 2)[0]

    def u32(self) -> int:
        """Read an unsigned 32-bit number."""
        return self.take("I", 4)[0]

    def count(self) -> int:
        """Read the number of elements of a sequence."""
        count = self.u32()
        if count > min(MAX_ELEMENTS, len(self._data) - self._at):
            raise Malformed(f"{count} elements announced in {len(self._data) - self._at} bytes")
        return count

    def raw(self, size: int) -> bytes:
        """Read `size` bytes."""
        if self._at + size > len(self._data):
            raise Malformed(f"{size} bytes announced, {len(self._data) - self._at} there")
        found = bytes(self._data[self._at : self._at + size])
        self._at += size
        return found

    def byte_sequence(self) -> bytes:
        """Read a sequence of bytes."""
        return self.raw(self.u32())

    def text(self) -> str:
        """Read a string; OpenSplice's NULL becomes an empty one."""
        found = self.byte_sequence()
        try:
            return found.removesuffix(b"\0").decode()
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8") from None


class CdrWriter:
    """Writes one message, little-endian."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def put(self, layout: str, alignment: int, *values: int) -> None:
        """Write primitives without padding between them; `layout` as for `struct`, without byte order.

        The first of the values begins at a multiple of `alignment` bytes.
        """
        self._data += bytes(-len(self._data) % alignment)
        self._data += struct.pack("<" + layout, *values)

    def u16(self, value: int) -> None:
        """Write an unsigned 16-bit number."""
        self.put("H", 2, value)

    def u32(self, value: int) -> None:
        """Write an unsigned 32-bit number."""
        self.put("I", 4, value)

    def raw(self, data: bytes) -> None:
        """Write bytes without their length."""
        self._data += data

    def byte_sequence(self, data: bytes) -> None:
        """Write a sequence of bytes."""
        self.u32(len(data))
        self._data += data

    def text(self, text: str) -> None:
        """Write a string with its terminating zero."""
        self.byte_sequence(text.encode() + b"\0")

    def __len__(self) -> int:
        return len(self._data)

    def body(self) -> bytes:
        """Return the bytes without a header."""
        return bytes(self._data)

    def message(self) -> bytes:
        """Return the bytes with an encapsulation header, padded to four bytes."""
        return b"".join((HEADER, self._data, bytes(-len(self._data) % 4)))


_VENDOR: Final = (1, 16)


def encode_state_request(message: StateRequest) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    _put_version(writer, message.version)
    _put_request(writer, message.request)
    writer.text(message.topic)
    _put_texts(writer, message.partitions)
    _put_ids(writer, message.servers)
    writer.put("iI", 4, *message.timeout)
    _put_extensions(writer, message.extensions)
    return writer.message()


def encode_state(message: StateAnswer) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    put_answer_head(writer, message.server, message.requests)
    writer.u32(len(message.groups))
    for group in message.groups:
        writer.text(group.partition)
        writer.text(group.topic)
        writer.u16(group.completeness)
        _put_extensions(writer, {})
    _put_extensions(writer, message.extensions)
    return writer.message()


def encode_history_request(message: HistoryRequest) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    _put_version(writer, message.version)
    _put_request(writer, message.request)
    writer.text(message.topic)
    _put_texts(writer, message.partitions)
    writer.u16(message.format)
    _put_reader_qos(writer, message.durability)
    writer.put("iI", 4, *message.start)
    writer.put("iI", 4, *message.end)
    writer.text(message.sql_filter)
    _put_texts(writer, message.sql_parameters)
    writer.put("3i", 4, message.max_samples, message.max_instances, message.max_samples_per_instance)
    _put_texts(writer, message.alignment_partitions)
    _put_ids(writer, message.servers)
    writer.put("iI", 4, *message.timeout)
    _put_extensions(writer, message.extensions)
    return writer.message()


def encode_link(server: bytes, request: RequestId, link: Link, extensions: Mapping[str, bytes]) -> bytes:
    """Encode the end of an answer as a sample of its topic.

    `server` is the id of the server that answers; `extensions` go behind the defined content, by name.
    """
    writer = CdrWriter()
    put_answer_head(writer, server, (request,))
    writer.u16(1)
    writer.u32(link.count)
    writer.u16(link.completeness)
    writer.u32(link.error)
    _put_extensions(writer, extensions)
    return writer.message()


def put_answer_head(writer: CdrWriter, server: bytes, requests: tuple[RequestId, ...]) -> None:
    """Write version, server and requests."""
    _put_version(writer, MAJOR_VERSION)
    _put_id(writer, server)
    writer.u32(len(requests))
    for request in requests:
        _put_request(writer, request)


def _put_extensions(writer: CdrWriter, extensions: Mapping[str, bytes]) -> None:
    """Write names and values."""
    writer.u32(len(extensions))
    for name, value in extensions.items():
        writer.text(name)
        writer.byte_sequence(value)


def _put_version(writer: CdrWriter, major: int) -> None:
    writer.put("HHBB", 2, major, 0, *_VENDOR)


def _put_id(writer: CdrWriter, id_: bytes) -> None:
    prefix = int.from_bytes(id_[:8], signed=True)
    writer.put("qq", 8, prefix, int.from_bytes(id_[8:ID_BYTES], signed=True))


def _put_request(writer: CdrWriter, request: RequestId) -> None:
    _put_id(writer, request.client)
    writer.u32(request.number)


def _put_ids(writer: CdrWriter, ids: tuple[bytes, ...]) -> None:
    writer.u32(len(ids))
    for id_ in ids:
        _put_id(writer, id_)


def _put_texts(writer: CdrWriter, texts: tuple[str, ...]) -> None:
    writer.u32(len(texts))
    for text in texts:
        writer.text(text)


def _put_reader_qos(writer: CdrWriter, durability: int) -> None:
    """Write the policies that all our readers have; servers use only the durability."""
    writer.put("i", 4, durability)
    writer.put("iIiI", 4, *INFINITE, *ZERO)  # deadline, latency budget
    writer.put("iiI", 4, 0, *INFINITE)  # liveliness
    writer.put("iiIB", 4, 1, 0, 100_000_000, 0)  # reliable
    writer.put("6i", 4, 1, 1, 1, -1, -1, -1)  # by source timestamp, KEEP_ALL, no limits
    writer.byte_sequence(b"")
    writer.put("iiI", 4, 0, *ZERO)  # shared ownership, no separation
    writer.put("iIiIBB", 4, *INFINITE, *INFINITE, 0, 1)  # life cycle
    writer.put("iB", 4, 1, 0)  # minimum invalid samples, no keys of its own
    writer.u32(0)
    writer.put("B", 1, 0)
    writer.put("iI", 4, *INFINITE)  # lifespan
    writer.text("")
    writer.put("B", 1, 0)


_QUICK: Final = struct.Struct("<4x8x8s8sI4x8s8sIH16s2xiII68x")
"""A message with one sample for one request, from its header to the policies."""


def decode_state_request(payload: bytes) -> StateRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    version = _version(reader)
    return StateRequest(
        version=version,
        request=_request(reader),
        topic=reader.text(),
        partitions=_texts(reader),
        servers=_ids(reader),
        timeout=_time(reader),
        extensions=_extensions(reader),
    )


def decode_state(payload: bytes) -> StateAnswer:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    _version(reader)
    server, requests = _id(reader), _requests(reader)
    groups = []
    for _ in range(reader.count()):
        groups.append(GroupState(reader.text(), reader.text(), reader.u16()))
        _extensions(reader)
    return StateAnswer(server, requests, tuple(groups), _extensions(reader))


def decode_history_request(payload: bytes) -> HistoryRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    version, request, topic = _version(reader), _request(reader), reader.text()
    partitions, wanted, durability = _texts(reader), reader.u16(), _reader_durability(reader)
    start, end = _time(reader), _time(reader)
    sql_filter, sql_parameters = reader.text(), _texts(reader)
    samples, instances, each = reader.take("3i", 4)
    return HistoryRequest(
        version=version,
        request=request,
        topic=topic,
        partitions=partitions,
        format=wanted,
        durability=durability,
        start=start,
        end=end,
        sql_filter=sql_filter,
        sql_parameters=sql_parameters,
        max_samples=samples,
        max_instances=instances,
        max_samples_per_instance=each,
        alignment_partitions=_texts(reader),
        servers=_ids(reader),
        timeout=_time(reader),
        extensions=_extensions(reader),
    )


def decode_history(payload: bytes) -> HistoryPart:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    quick = _quick_bead(payload)
    if quick is not None:
        return quick
    reader = CdrReader(payload)
    _version(reader)
    server, requests, kind = _id(reader), _requests(reader), reader.u16()
    content: Bead | Link
    if kind == 0:
        content = _bead(reader)
    elif kind == 1:
        content = Link(reader.u32(), reader.u16(), reader.u32())
    else:
        raise Malformed(f"content of kind {kind}")
    return HistoryPart(server, requests, content, _extensions(reader))


def _quick_bead(payload: bytes) -> HistoryPart | None:
    """Decode the usual message fast: one sample for one request, little-endian. None for any other."""
    if payload[:2] != HEADER[:2] or len(payload) < _QUICK.size:
        return None
    prefix, suffix, count, client, more, number, kind, writer, seconds, nanoseconds, sequence = (
        _QUICK.unpack_from(payload)
    )
    if count != 1 or kind != 0:
        return None
    reader = CdrReader(payload, _QUICK.size - len(HEADER))
    partitions, what = _texts(reader), reader.u16()
    reader.raw(ID_BYTES)
    bead = Bead(
        writer, Time(seconds, nanoseconds), sequence, partitions, what, reader.u16(), reader.byte_sequence()
    )
    request = RequestId(client[::-1] + more[::-1], number)
    return HistoryPart(prefix[::-1] + suffix[::-1], (request,), bead, _extensions(reader))


def _bead(reader: CdrReader) -> Bead:
    writer, source_time, sequence = reader.raw(ID_BYTES), _time(reader), reader.u32()
    reader.take("3iB3x2iBB2x4I3I2Ii", 4)  # the policies of its writer
    partitions, kind = _texts(reader), reader.u16()
    reader.raw(ID_BYTES)  # key hash
    return Bead(writer, source_time, sequence, partitions, kind, reader.u16(), reader.byte_sequence())


def _version(reader: CdrReader) -> int:
    return reader.take("HHBB", 2)[0]


def _id(reader: CdrReader) -> bytes:
    return b"".join(value.to_bytes(8, signed=True) for value in reader.take("qq", 8))


def _request(reader: CdrReader) -> RequestId:
    return RequestId(_id(reader), reader.u32())


def _requests(reader: CdrReader) -> tuple[RequestId, ...]:
    return tuple(_request(reader) for _ in range(reader.count()))


def _ids(reader: CdrReader) -> tuple[bytes, ...]:
    return tuple(_id(reader) for _ in range(reader.count()))


def _texts(reader: CdrReader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.count()))


def _time(reader: CdrReader) -> Time:
    return Time(*reader.take("iI", 4))


def _extensions(reader: CdrReader) -> dict[str, bytes]:
    return {reader.text(): reader.byte_sequence() for _ in range(reader.count())}


def _reader_durability(reader: CdrReader) -> int:
    """Read the reader's policies and return its durability."""
    durability = reader.take("i", 4)[0]
    reader.take("4I3I", 4)
    reader.take("iiIB", 4)
    reader.take("6i", 4)
    reader.byte_sequence()
    reader.take("3I", 4)
    reader.take("4IBB", 4)
    reader.take("iB", 4)
    _texts(reader)
    reader.take("B", 1)
    reader.take("2I", 4)
    reader.text()
    reader.take("B", 1)
    return durability
