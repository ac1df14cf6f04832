"""The messages of the client-durability protocol, from values to bytes and back.

Each message is a table of its fields in the order in which they are sent, and each kind of field knows how it
is written and read. Samples of an answer are many, so they are read by one `struct` where they can be.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

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
    from collections.abc import Callable

T = TypeVar("T")

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


class _Kind(NamedTuple, Generic[T]):
    """How a part of a message is written and read."""

    put: Callable[[CdrWriter, T], None]
    take: Callable[[CdrReader], T]


def _numbers(layout: str, alignment: int) -> _Kind[tuple[int, ...]]:
    """Several numbers without padding between them."""
    return _Kind(
        lambda writer, values: writer.put(layout, alignment, *values),
        lambda reader: reader.take(layout, alignment),
    )


def _number(layout: str, alignment: int) -> _Kind[int]:
    return _Kind(
        lambda writer, value: writer.put(layout, alignment, value),
        lambda reader: reader.take(layout, alignment)[0],
    )


def _several(kind: _Kind[T]) -> _Kind[tuple[T, ...]]:
    """A sequence: the number of elements, and they."""

    def put(writer: CdrWriter, values: tuple[T, ...]) -> None:
        writer.u32(len(values))
        for value in values:
            kind.put(writer, value)

    def take(reader: CdrReader) -> tuple[T, ...]:
        return tuple(kind.take(reader) for _ in range(reader.count()))

    return _Kind(put, take)


def _put_id(writer: CdrWriter, id_: bytes) -> None:
    prefix = int.from_bytes(id_[:8], signed=True)
    writer.put("qq", 8, prefix, int.from_bytes(id_[8:ID_BYTES], signed=True))


def _id(reader: CdrReader) -> bytes:
    return b"".join(value.to_bytes(8, signed=True) for value in reader.take("qq", 8))


def _put_request(writer: CdrWriter, request: RequestId) -> None:
    _put_id(writer, request.client)
    writer.u32(request.number)


def _put_extensions(writer: CdrWriter, extensions: Mapping[str, bytes]) -> None:
    writer.u32(len(extensions))
    for name, value in extensions.items():
        writer.text(name)
        writer.byte_sequence(value)


def _extensions(reader: CdrReader) -> Mapping[str, bytes]:
    return {reader.text(): reader.byte_sequence() for _ in range(reader.count())}


_VERSION: Final = _Kind[int](
    lambda writer, major: writer.put("HHBB", 2, major, 0, *_VENDOR), lambda reader: reader.take("HHBB", 2)[0]
)
_I32: Final = _number("i", 4)
_U16: Final = _number("H", 2)
_TIME: Final = _Kind[Time](
    lambda writer, time: writer.put("iI", 4, *time), lambda reader: Time(*reader.take("iI", 4))
)
_TEXT: Final = _Kind[str](CdrWriter.text, CdrReader.text)
_TEXTS: Final = _several(_TEXT)
_ID: Final = _Kind[bytes](_put_id, _id)
_IDS: Final = _several(_ID)
_REQUEST: Final = _Kind[RequestId](_put_request, lambda reader: RequestId(_id(reader), reader.u32()))
_REQUESTS: Final = _several(_REQUEST)
_EXTENSIONS: Final = _Kind[Mapping[str, bytes]](_put_extensions, _extensions)

_READER_QOS: Final[tuple[tuple[_Kind[Any], Any], ...]] = (
    (_numbers("iIiI", 4), (*INFINITE, *ZERO)),  # deadline, latency budget
    (_numbers("iiI", 4), (0, *INFINITE)),  # liveliness
    (_numbers("iiIB", 4), (1, 0, 100_000_000, 0)),  # reliable
    (_numbers("6i", 4), (1, 1, 1, -1, -1, -1)),  # by source timestamp, KEEP_ALL, no limits
    (_Kind(CdrWriter.byte_sequence, CdrReader.byte_sequence), b""),  # user data
    (_numbers("iiI", 4), (0, *ZERO)),  # shared ownership, no separation
    (_numbers("iIiIBB", 4), (*INFINITE, *INFINITE, 0, 1)),  # life cycle
    (_numbers("iB", 4), (1, 0)),  # minimum invalid samples, no keys of its own
    (_TEXTS, ()),
    (_number("B", 1), 0),
    (_TIME, INFINITE),  # lifespan
    (_TEXT, ""),
    (_number("B", 1), 0),
)
"""The policies behind the durability, as all our readers have them; servers use only the durability."""


def _put_reader_qos(writer: CdrWriter, durability: int) -> None:
    writer.put("i", 4, durability)
    for kind, value in _READER_QOS:
        kind.put(writer, value)


def _reader_durability(reader: CdrReader) -> int:
    durability = reader.take("i", 4)[0]
    for kind, _ in _READER_QOS:
        kind.take(reader)
    return durability


def _put_group(writer: CdrWriter, group: GroupState) -> None:
    writer.text(group.partition)
    writer.text(group.topic)
    writer.u16(group.completeness)
    _put_extensions(writer, {})


def _group(reader: CdrReader) -> GroupState:
    group = GroupState(reader.text(), reader.text(), reader.u16())
    _extensions(reader)
    return group


_Layout = tuple[tuple[str, _Kind[Any]], ...]
"""The fields of a message, in the order in which they are sent."""
_STATE_REQUEST: Final[_Layout] = (
    ("version", _VERSION),
    ("request", _REQUEST),
    ("topic", _TEXT),
    ("partitions", _TEXTS),
    ("servers", _IDS),
    ("timeout", _TIME),
    ("extensions", _EXTENSIONS),
)
_STATE: Final[_Layout] = (
    ("server", _ID),
    ("requests", _REQUESTS),
    ("groups", _several(_Kind(_put_group, _group))),
    ("extensions", _EXTENSIONS),
)
"""Behind the version, which an answer does not keep."""
_HISTORY_REQUEST: Final[_Layout] = (
    ("version", _VERSION),
    ("request", _REQUEST),
    ("topic", _TEXT),
    ("partitions", _TEXTS),
    ("format", _U16),
    ("durability", _Kind(_put_reader_qos, _reader_durability)),
    ("start", _TIME),
    ("end", _TIME),
    ("sql_filter", _TEXT),
    ("sql_parameters", _TEXTS),
    ("max_samples", _I32),
    ("max_instances", _I32),
    ("max_samples_per_instance", _I32),
    ("alignment_partitions", _TEXTS),
    ("servers", _IDS),
    ("timeout", _TIME),
    ("extensions", _EXTENSIONS),
)


def _write_fields(writer: CdrWriter, layout: _Layout, message: object) -> bytes:
    for name, kind in layout:
        kind.put(writer, getattr(message, name))
    return writer.message()


def _read_fields(reader: CdrReader, layout: _Layout) -> dict[str, Any]:
    return {name: kind.take(reader) for name, kind in layout}


def encode_state_request(message: StateRequest) -> bytes:
    """The message as a sample of its topic."""
    return _write_fields(CdrWriter(), _STATE_REQUEST, message)


def encode_state(message: StateAnswer) -> bytes:
    """The message as a sample of its topic."""
    writer = CdrWriter()
    _VERSION.put(writer, MAJOR_VERSION)
    return _write_fields(writer, _STATE, message)


def encode_history_request(message: HistoryRequest) -> bytes:
    """The message as a sample of its topic."""
    return _write_fields(CdrWriter(), _HISTORY_REQUEST, message)


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
    _VERSION.put(writer, MAJOR_VERSION)
    _put_id(writer, server)
    _REQUESTS.put(writer, requests)


def decode_state_request(payload: bytes) -> StateRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    return StateRequest(**_read_fields(CdrReader(payload), _STATE_REQUEST))


def decode_state(payload: bytes) -> StateAnswer:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    _VERSION.take(reader)
    return StateAnswer(**_read_fields(reader, _STATE))


def decode_history_request(payload: bytes) -> HistoryRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    return HistoryRequest(**_read_fields(CdrReader(payload), _HISTORY_REQUEST))


_QUICK: Final = struct.Struct("<4x8x8s8sI4x8s8sIH16s2xiII68x")
"""A message with one sample for one request, from its header to the policies."""


def decode_history(payload: bytes) -> HistoryPart:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    quick = _quick_bead(payload)
    if quick is not None:
        return quick
    reader = CdrReader(payload)
    _VERSION.take(reader)
    server, requests, kind = _id(reader), _REQUESTS.take(reader), reader.u16()
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
    partitions, what = _TEXTS.take(reader), reader.u16()
    reader.raw(ID_BYTES)
    bead = Bead(
        writer, Time(seconds, nanoseconds), sequence, partitions, what, reader.u16(), reader.byte_sequence()
    )
    request = RequestId(client[::-1] + more[::-1], number)
    return HistoryPart(prefix[::-1] + suffix[::-1], (request,), bead, _extensions(reader))


def _bead(reader: CdrReader) -> Bead:
    writer, source_time, sequence = reader.raw(ID_BYTES), _TIME.take(reader), reader.u32()
    reader.take("3iB3x2iBB2x4I3I2Ii", 4)  # the policies of its writer
    partitions, kind = _TEXTS.take(reader), reader.u16()
    reader.raw(ID_BYTES)  # key hash
    return Bead(writer, source_time, sequence, partitions, kind, reader.u16(), reader.byte_sequence())
