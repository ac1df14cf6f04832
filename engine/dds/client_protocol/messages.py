"""The four messages of the client-durability protocol, as values and as bytes.

Field for field as OpenSplice defines them (module DDS of its client_durability.idl). Each message is
described once, by its class: its fields are sent in the order of their declaration, behind the version, and
the type of each determines how it is written and read. Samples of an answer are many, so one `struct` reads
them where it can.
"""

from __future__ import annotations

import enum
import functools
import struct
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from engine.dds.cdr import HEADER, Malformed
from engine.dds.client_protocol.encoding import CdrReader, CdrWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.dataset.sample import Sample

T = TypeVar("T")
Message = TypeVar("Message", bound=Struct)

UNLIMITED: Final = -1
"""No limit for samples, instances or samples per instance."""
MAJOR_VERSION: Final = 1
ID_BYTES: Final = 16
"""Size of the id of a client, server or writer, and of a key hash."""
_SECOND_NS: Final = 1_000_000_000
# Seconds of the DDS API are 32 bits with a sign, and this one means infinite.
_MAX_SECONDS: Final = 0x7FFFFFFF


class Completeness(enum.IntEnum):
    """Completeness of a server's set."""

    UNKNOWN = 0
    INCOMPLETE = 1
    COMPLETE = 2


class ByteOrder(enum.IntEnum):
    """Byte order of payloads, as requested or sent."""

    ANY = 0
    BIG_ENDIAN = 1
    LITTLE_ENDIAN = 2


class SampleKind(enum.IntEnum):
    """Kind of a sample."""

    WRITE = 0
    DISPOSE = 1
    UNREGISTER = 2
    WRITE_DISPOSE = 3
    REGISTER = 4


class ErrorCode(enum.IntEnum):
    """Reason for an answer without data; the numbers are OpenSplice's."""

    OK = 0
    INCOMPATIBLE_VERSION = 1
    NO_TOPIC = 2
    INVALID_START_TIME = 3
    INVALID_END_TIME = 4
    INVALID_TIME_RANGE = 5
    INVALID_SERIALIZATION = 6
    NO_PARTITIONS = 7
    INVALID_MAX_SAMPLES = 8
    INVALID_MAX_INSTANCES = 9
    INVALID_MAX_SAMPLES_PER_INSTANCE = 10
    SERVER_IS_NOT_ALIGNER = 0x8000_0000
    NOT_RESPONSIBLE = 0x8000_0001
    READER_NOT_KNOWN = 0x8000_0002
    NO_MASTER_SELECTED = 0x8000_0003
    GROUP_NOT_FOUND = 0x8000_0004
    NO_CLIENTS = 0x8000_0005
    INVALID = 0xFFFF_FFFF

    @property
    def is_refusal(self) -> bool:
        """Whether the request itself is invalid, so that repeating it is useless."""
        return ErrorCode.OK < self <= ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE or self is ErrorCode.INVALID


class Time(NamedTuple):
    """A time or a duration as sent; times end in January 2038."""

    seconds: int
    nanoseconds: int

    @classmethod
    def of_ns(cls, value_ns: int) -> Time:
        """Convert nanoseconds; values out of range become the nearest bound."""
        seconds, nanoseconds = divmod(value_ns, _SECOND_NS)
        if seconds >= _MAX_SECONDS:
            return INFINITE
        return cls(seconds, nanoseconds) if seconds >= 0 else cls(0, 0)

    @property
    def ns(self) -> int:
        """Its value in nanoseconds."""
        return self.seconds * _SECOND_NS + self.nanoseconds

    @property
    def is_open(self) -> bool:
        """Whether it means "no bound": infinite or invalid."""
        return self in (INFINITE, INVALID_TIME)

    @property
    def is_sound(self) -> bool:
        """Whether it is a valid time or an open bound."""
        return self.is_open or (self.seconds >= 0 and self.nanoseconds < _SECOND_NS)


INFINITE: Final = Time(_MAX_SECONDS, _MAX_SECONDS)
INVALID_TIME: Final = Time(-1, 0xFFFFFFFF)
ZERO: Final = Time(0, 0)


class RequestId(NamedTuple):
    """Id of a request: the 16 bytes of its client, and the client's number for the request."""

    client: bytes
    number: int


# Vendor 1.16 is Eclipse Cyclone DDS.
_VENDOR: Final = (1, 16)


class _Kind(NamedTuple, Generic[T]):
    """How a part of a message is written and read."""

    put: Callable[[CdrWriter, T], None]
    read: Callable[[CdrReader], T]


def _numbers(layout: str, alignment: int) -> _Kind[tuple[int, ...]]:
    """Several numbers without padding between them."""
    return _Kind(
        lambda writer, values: writer.put(layout, alignment, *values),
        lambda reader: reader.read(layout, alignment),
    )


def _number(layout: str, alignment: int) -> _Kind[int]:
    return _Kind(
        lambda writer, value: writer.put(layout, alignment, value),
        lambda reader: reader.read(layout, alignment)[0],
    )


def _several(kind: _Kind[T]) -> _Kind[tuple[T, ...]]:
    """A sequence: the number of elements, and they."""

    def put(writer: CdrWriter, values: tuple[T, ...]) -> None:
        writer.u32(len(values))
        for value in values:
            kind.put(writer, value)

    def read(reader: CdrReader) -> tuple[T, ...]:
        return tuple(kind.read(reader) for _ in range(reader.count()))

    return _Kind(put, read)


def _put_id(writer: CdrWriter, id_: bytes) -> None:
    prefix = int.from_bytes(id_[:8], signed=True)
    writer.put("qq", 8, prefix, int.from_bytes(id_[8:ID_BYTES], signed=True))


def _id(reader: CdrReader) -> bytes:
    return b"".join(value.to_bytes(8, signed=True) for value in reader.read("qq", 8))


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
    lambda writer, major: writer.put("HHBB", 2, major, 0, *_VENDOR), lambda reader: reader.read("HHBB", 2)[0]
)
_TIME: Final = _Kind[Time](
    lambda writer, time: writer.put("iI", 4, *time), lambda reader: Time(*reader.read("iI", 4))
)
_TEXT: Final = _Kind[str](CdrWriter.text, CdrReader.text)
_TEXTS: Final = _several(_TEXT)
_ID: Final = _Kind[bytes](_put_id, _id)
_REQUEST: Final = _Kind[RequestId](_put_request, lambda reader: RequestId(_id(reader), reader.u32()))
_REQUESTS: Final = _several(_REQUEST)

Text = Annotated[str, _TEXT]
Texts = Annotated[tuple[str, ...], _TEXTS]
Short = Annotated[int, _number("H", 2)]
Long = Annotated[int, _number("i", 4)]
Id = Annotated[bytes, _ID]
Ids = Annotated[tuple[bytes, ...], _several(_ID)]
SentTime = Annotated[Time, _TIME]
Request = Annotated[RequestId, _REQUEST]
Requests = Annotated[tuple[RequestId, ...], _REQUESTS]
Extensions = Annotated[Mapping[str, bytes], _Kind(_put_extensions, _extensions)]

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
    durability = reader.read("i", 4)[0]
    for kind, _ in _READER_QOS:
        kind.read(reader)
    return durability


Durability = Annotated[int, _Kind(_put_reader_qos, _reader_durability)]


class StateRequest(Struct, frozen=True):
    """A client's question about the completeness of groups. Without `servers`, all servers answer."""

    request: Request
    topic: Text
    partitions: Texts
    servers: Ids = ()
    timeout: SentTime = ZERO
    extensions: Extensions = {}
    version: int = MAJOR_VERSION


class GroupState(Struct, frozen=True):
    """Completeness of one group at a server."""

    partition: str
    topic: str
    completeness: int


def _put_group(writer: CdrWriter, group: GroupState) -> None:
    writer.text(group.partition)
    writer.text(group.topic)
    writer.u16(group.completeness)
    _put_extensions(writer, {})


def _group(reader: CdrReader) -> GroupState:
    group = GroupState(reader.text(), reader.text(), reader.u16())
    _extensions(reader)
    return group


Groups = Annotated[tuple[GroupState, ...], _several(_Kind(_put_group, _group))]


class StateAnswer(Struct, frozen=True):
    """A server's answer to a state request or, without `requests`, its notice of a change."""

    server: Id
    requests: Requests
    groups: Groups
    extensions: Extensions = {}


class HistoryRequest(Struct, frozen=True):
    """A client's request for historical data."""

    request: Request
    """Its id."""
    topic: Text
    """Topic name."""
    partitions: Texts
    """Partition expressions of the groups."""
    format: Short = ByteOrder.ANY
    """Wanted byte order, a `ByteOrder`."""
    durability: Durability = 2
    """The reader's durability, as a number of the DURABILITY policy."""
    start: SentTime = ZERO
    """Lower bound of source times, included."""
    end: SentTime = INFINITE
    """Upper bound of source times, included."""
    sql_filter: Text = ""
    """Condition on fields; empty for all samples."""
    sql_parameters: Texts = ()
    """Values for the parameters of `sql_filter`."""
    max_samples: Long = UNLIMITED
    """Limit for the samples in all."""
    max_instances: Long = UNLIMITED
    """Limit for the instances."""
    max_samples_per_instance: Long = UNLIMITED
    """Limit for the samples of each instance."""
    alignment_partitions: Texts = ()
    """Partitions in which the client reads the answer."""
    servers: Ids = ()
    """Ids of the servers that shall answer; empty for the responsible ones."""
    timeout: SentTime = ZERO
    """Limit for holding the request until the server's set is complete."""
    extensions: Extensions = {}
    """Additions by name."""
    version: int = MAJOR_VERSION
    """Major version of the protocol."""


class Bead(Struct, frozen=True):
    """One sample of an answer; `payload` is the body of the serialized sample, without its header."""

    writer: bytes
    source_time: Time
    sequence: int
    partitions: tuple[str, ...]
    kind: int
    format: int
    payload: bytes


class Link(Struct, frozen=True):
    """The end of an answer: its number of samples, `Completeness` and `ErrorCode`."""

    count: int
    completeness: int
    error: int


class HistoryPart(Struct, frozen=True):
    """A part of an answer."""

    server: bytes
    requests: tuple[RequestId, ...]
    content: Bead | Link
    extensions: Mapping[str, bytes]


# All of 64 bits with a sign: a time-based selection without bounds selects everything.
_FIRST_NS: Final = -(1 << 63)
_LAST_NS: Final = (1 << 63) - 1


class HistoryLimits(Struct, frozen=True):
    """Bounds of source times, both included, and maximum counts; -1 for no limit."""

    start_ns: int = _FIRST_NS
    end_ns: int = _LAST_NS
    max_samples: int = UNLIMITED
    max_instances: int = UNLIMITED
    max_samples_per_instance: int = UNLIMITED

    def select(self, samples: Iterable[Sample]) -> list[Sample]:
        """Return the selected samples, instance by instance, each oldest first.

        It applies the time range, then selects the newest samples of each instance, then the instances with
        the newest samples, then the newest samples of all. The order of `Sample` decides among equal times.
        """
        instances: dict[bytes, list[Sample]] = {}
        for sample in samples:
            if self.start_ns <= sample.source_time_ns <= self.end_ns:
                instances.setdefault(sample.key, []).append(sample)
        for history in instances.values():
            history.sort()
            if self.max_samples_per_instance != UNLIMITED:
                del history[: max(0, len(history) - self.max_samples_per_instance)]
        chosen = [history for history in instances.values() if history]
        if self.max_instances != UNLIMITED:
            # By each instance's newest sample: a reader with room for fewer instances keeps those that
            # changed last.
            newest = sorted(chosen, key=lambda history: history[-1], reverse=True)[: self.max_instances]
            kept = {history[-1].key for history in newest}
            chosen = [history for history in chosen if history[-1].key in kept]
        selected = [sample for history in chosen for sample in history]
        if self.max_samples != UNLIMITED and len(selected) > self.max_samples:
            newest_of_all = {id(s) for s in sorted(selected, reverse=True)[: self.max_samples]}
            selected = [sample for sample in selected if id(sample) in newest_of_all]
        return selected


@functools.cache
def _layout(kind: type) -> tuple[tuple[str, _Kind[Any]], ...]:
    """The fields of a message behind its version, in the order in which they are sent."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple((name, hint.__metadata__[0]) for name, hint in hints.items() if name != "version")


def encode(message: StateRequest | StateAnswer | HistoryRequest) -> bytes:
    """Return a message as a sample of its topic."""
    writer = CdrWriter()
    _VERSION.put(writer, getattr(message, "version", MAJOR_VERSION))
    for name, kind in _layout(type(message)):
        kind.put(writer, getattr(message, name))
    return writer.message()


def decode(kind: type[Message], payload: bytes) -> Message:
    """Return the message in a sample of its topic.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = CdrReader(payload)
    version = _VERSION.read(reader)
    fields = {name: each.read(reader) for name, each in _layout(kind)}
    if "version" in kind.__struct_fields__:
        fields["version"] = version
    return kind(**fields)


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
    _VERSION.read(reader)
    server, requests, kind = _id(reader), _REQUESTS.read(reader), reader.u16()
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
    partitions, what = _TEXTS.read(reader), reader.u16()
    reader.raw(ID_BYTES)
    bead = Bead(
        writer, Time(seconds, nanoseconds), sequence, partitions, what, reader.u16(), reader.byte_sequence()
    )
    request = RequestId(client[::-1] + more[::-1], number)
    return HistoryPart(prefix[::-1] + suffix[::-1], (request,), bead, _extensions(reader))


def _bead(reader: CdrReader) -> Bead:
    writer, source_time, sequence = reader.raw(ID_BYTES), _TIME.read(reader), reader.u32()
    reader.read("3iB3x2iBB2x4I3I2Ii", 4)  # the policies of its writer
    partitions, kind = _TEXTS.read(reader), reader.u16()
    reader.raw(ID_BYTES)  # key hash
    return Bead(writer, source_time, sequence, partitions, kind, reader.u16(), reader.byte_sequence())
