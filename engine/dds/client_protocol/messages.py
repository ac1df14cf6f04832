"""The four messages of the client-durability protocol as values, and as bytes.

Field for field as OpenSplice defines them (module DDS of its client_durability.idl).
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dds.cdr import HEADER, Malformed
from engine.dds.client_protocol.cdrstream import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

UNLIMITED: Final = -1
"""No limit for samples, instances or samples per instance."""
MAJOR_VERSION: Final = 1
_VENDOR: Final = (1, 16)
_ID_BYTES: Final = 16
_SECOND_NS: Final = 1_000_000_000
_MAX_SECONDS: Final = 0x7FFFFFFF
_QUICK: Final = struct.Struct("<4x8x8s8sI4x8s8sIH16s2xiII68x")
"""Header to policies of a message with one sample for one request."""


class Completeness(enum.IntEnum):
    """How much of a set a server has."""

    UNKNOWN = 0
    INCOMPLETE = 1
    COMPLETE = 2


class Format(enum.IntEnum):
    """How payloads are wanted or are."""

    ANY = 0
    BIG_ENDIAN = 1
    LITTLE_ENDIAN = 2


class Kind(enum.IntEnum):
    """What a sample does."""

    WRITE = 0
    DISPOSE = 1
    UNREGISTER = 2
    WRITE_DISPOSE = 3
    REGISTER = 4


class ErrorCode(enum.IntEnum):
    """Why an answer carries no data; the numbers of the real service."""

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
        """Whether the request itself is at fault, so that asking again or asking another is no use."""
        return ErrorCode.OK < self <= ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE or self is ErrorCode.INVALID


class Time(NamedTuple):
    """A time or a duration as it travels. It ends in January 2038."""

    seconds: int
    nanoseconds: int

    @classmethod
    def of_ns(cls, value_ns: int) -> Time:
        """From nanoseconds; what is out of range becomes the nearest that is in it."""
        seconds, nanoseconds = divmod(value_ns, _SECOND_NS)
        if seconds >= _MAX_SECONDS:
            return INFINITE
        return cls(seconds, nanoseconds) if seconds >= 0 else cls(0, 0)

    @property
    def ns(self) -> int:
        """As nanoseconds."""
        return self.seconds * _SECOND_NS + self.nanoseconds

    @property
    def is_open(self) -> bool:
        """Whether it stands for no bound: infinite or invalid."""
        return self in (INFINITE, INVALID_TIME)

    @property
    def is_sound(self) -> bool:
        """Whether it is a time or an open bound."""
        return self.is_open or (self.seconds >= 0 and self.nanoseconds < _SECOND_NS)


INFINITE: Final = Time(_MAX_SECONDS, _MAX_SECONDS)
INVALID_TIME: Final = Time(-1, 0xFFFFFFFF)
ZERO: Final = Time(0, 0)


class RequestId(NamedTuple):
    """A request: the 16 octets of its client, and the client's own number for it."""

    client: bytes
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class StateRequest:
    """A client asks how complete groups are. No `servers`: everybody answers."""

    request: RequestId
    topic: str
    partitions: tuple[str, ...]
    servers: tuple[bytes, ...] = ()
    timeout: Time = ZERO
    extensions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    version: int = MAJOR_VERSION


@dataclasses.dataclass(frozen=True, slots=True)
class GroupState:
    """How complete one group is at a server."""

    partition: str
    topic: str
    completeness: int


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A server answers a state request or, without `requests`, tells what has changed."""

    server: bytes
    requests: tuple[RequestId, ...]
    groups: tuple[GroupState, ...]
    extensions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A client asks for historical data.

    Attributes:
        partitions: expressions.
        durability: of the reader, as a number of the DURABILITY policy.
        start, end: bounds of source times, both included.
        alignment_partitions: where the client listens for the answer.
        servers: who shall answer; empty: whoever is responsible.
        timeout: how long a server may hold the request until its set is complete.
    """

    request: RequestId
    topic: str
    partitions: tuple[str, ...]
    format: int = Format.ANY
    durability: int = 2
    start: Time = ZERO
    end: Time = INFINITE
    sql_filter: str = ""
    sql_parameters: tuple[str, ...] = ()
    max_samples: int = UNLIMITED
    max_instances: int = UNLIMITED
    max_samples_per_instance: int = UNLIMITED
    alignment_partitions: tuple[str, ...] = ()
    servers: tuple[bytes, ...] = ()
    timeout: Time = ZERO
    extensions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    version: int = MAJOR_VERSION


@dataclasses.dataclass(frozen=True, slots=True)
class Bead:
    """One sample of an answer; `payload` is the body of the serialized sample, without its header."""

    writer: bytes
    source_time: Time
    sequence: int
    partitions: tuple[str, ...]
    kind: int
    format: int
    payload: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """The end of an answer: how many samples it had, and what `ErrorCode` they stand for."""

    count: int
    completeness: int
    error: int


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """A part of an answer."""

    server: bytes
    requests: tuple[RequestId, ...]
    content: Bead | Link
    extensions: Mapping[str, bytes]


# Writing.


def encode_state_request(message: StateRequest) -> bytes:
    """The message as a sample of its topic."""
    writer = Writer()
    _put_version(writer, message.version)
    _put_request(writer, message.request)
    writer.text(message.topic)
    _put_texts(writer, message.partitions)
    _put_ids(writer, message.servers)
    writer.put("iI", 4, *message.timeout)
    put_extensions(writer, message.extensions)
    return writer.message()


def encode_state(message: State) -> bytes:
    """The message as a sample of its topic."""
    writer = Writer()
    put_answer_head(writer, message.server, message.requests)
    writer.u32(len(message.groups))
    for group in message.groups:
        writer.text(group.partition)
        writer.text(group.topic)
        writer.u16(group.completeness)
        put_extensions(writer, {})
    put_extensions(writer, message.extensions)
    return writer.message()


def encode_history_request(message: HistoryRequest) -> bytes:
    """The message as a sample of its topic."""
    writer = Writer()
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
    put_extensions(writer, message.extensions)
    return writer.message()


def encode_link(server: bytes, request: RequestId, link: Link, extensions: Mapping[str, bytes]) -> bytes:
    """The end of an answer as a sample of its topic."""
    writer = Writer()
    put_answer_head(writer, server, (request,))
    writer.u16(1)
    writer.u32(link.count)
    writer.u16(link.completeness)
    writer.u32(link.error)
    put_extensions(writer, extensions)
    return writer.message()


def put_answer_head(writer: Writer, server: bytes, requests: tuple[RequestId, ...]) -> None:
    """Version, server and requests."""
    _put_version(writer, MAJOR_VERSION)
    _put_id(writer, server)
    writer.u32(len(requests))
    for request in requests:
        _put_request(writer, request)


def put_extensions(writer: Writer, extensions: Mapping[str, bytes]) -> None:
    """Names and values."""
    writer.u32(len(extensions))
    for name, value in extensions.items():
        writer.text(name)
        writer.octets(value)


def _put_version(writer: Writer, major: int) -> None:
    writer.put("HHBB", 2, major, 0, *_VENDOR)


def _put_id(writer: Writer, id_: bytes) -> None:
    prefix = int.from_bytes(id_[:8], signed=True)
    writer.put("qq", 8, prefix, int.from_bytes(id_[8:_ID_BYTES], signed=True))


def _put_request(writer: Writer, request: RequestId) -> None:
    _put_id(writer, request.client)
    writer.u32(request.number)


def _put_ids(writer: Writer, ids: tuple[bytes, ...]) -> None:
    writer.u32(len(ids))
    for id_ in ids:
        _put_id(writer, id_)


def _put_texts(writer: Writer, texts: tuple[str, ...]) -> None:
    writer.u32(len(texts))
    for text in texts:
        writer.text(text)


def _put_reader_qos(writer: Writer, durability: int) -> None:
    """The policies that every reader of ours has; servers look at the durability alone."""
    writer.put("i", 4, durability)
    writer.put("iIiI", 4, *INFINITE, *ZERO)  # deadline, latency budget
    writer.put("iiI", 4, 0, *INFINITE)  # liveliness
    writer.put("iiIB", 4, 1, 0, 100_000_000, 0)  # reliable
    writer.put("6i", 4, 1, 1, 1, -1, -1, -1)  # by source timestamp, KEEP_ALL, no limits
    writer.octets(b"")
    writer.put("iiI", 4, 0, *ZERO)  # shared ownership, no separation
    writer.put("iIiIBB", 4, *INFINITE, *INFINITE, 0, 1)  # life cycle
    writer.put("iB", 4, 1, 0)  # minimum invalid samples, no keys of its own
    writer.u32(0)
    writer.put("B", 1, 0)
    writer.put("iI", 4, *INFINITE)  # lifespan
    writer.text("")
    writer.put("B", 1, 0)


# Reading.


def decode_state_request(payload: bytes) -> StateRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = Reader(payload)
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


def decode_state(payload: bytes) -> State:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = Reader(payload)
    _version(reader)
    server, requests = _id(reader), _requests(reader)
    groups = []
    for _ in range(reader.count()):
        groups.append(GroupState(reader.text(), reader.text(), reader.u16()))
        _extensions(reader)
    return State(server, requests, tuple(groups), _extensions(reader))


def decode_history_request(payload: bytes) -> HistoryRequest:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    reader = Reader(payload)
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


def decode_history(payload: bytes) -> History:
    """The message in a sample.

    Raises:
        Malformed: the bytes are not one.
    """
    quick = _quick_bead(payload)
    if quick is not None:
        return quick
    reader = Reader(payload)
    _version(reader)
    server, requests, kind = _id(reader), _requests(reader), reader.u16()
    content: Bead | Link
    if kind == 0:
        content = _bead(reader)
    elif kind == 1:
        content = Link(reader.u32(), reader.u16(), reader.u32())
    else:
        raise Malformed(f"content of kind {kind}")
    return History(server, requests, content, _extensions(reader))


def _quick_bead(payload: bytes) -> History | None:
    """What nearly every message is: one sample, for one request, little-endian. None for any other."""
    if payload[:2] != HEADER[:2] or len(payload) < _QUICK.size:
        return None
    prefix, suffix, count, client, more, number, kind, writer, seconds, nanoseconds, sequence = (
        _QUICK.unpack_from(payload)
    )
    if count != 1 or kind != 0:
        return None
    reader = Reader(payload, _QUICK.size - len(HEADER))
    partitions, what = _texts(reader), reader.u16()
    reader.raw(_ID_BYTES)
    bead = Bead(writer, Time(seconds, nanoseconds), sequence, partitions, what, reader.u16(), reader.octets())
    request = RequestId(client[::-1] + more[::-1], number)
    return History(prefix[::-1] + suffix[::-1], (request,), bead, _extensions(reader))


def _bead(reader: Reader) -> Bead:
    writer, source_time, sequence = reader.raw(_ID_BYTES), _time(reader), reader.u32()
    reader.take("3iB3x2iBB2x4I3I2Ii", 4)  # the policies of its writer
    partitions, kind = _texts(reader), reader.u16()
    reader.raw(_ID_BYTES)  # key hash
    return Bead(writer, source_time, sequence, partitions, kind, reader.u16(), reader.octets())


def _version(reader: Reader) -> int:
    return reader.take("HHBB", 2)[0]


def _id(reader: Reader) -> bytes:
    return b"".join(value.to_bytes(8, signed=True) for value in reader.take("qq", 8))


def _request(reader: Reader) -> RequestId:
    return RequestId(_id(reader), reader.u32())


def _requests(reader: Reader) -> tuple[RequestId, ...]:
    return tuple(_request(reader) for _ in range(reader.count()))


def _ids(reader: Reader) -> tuple[bytes, ...]:
    return tuple(_id(reader) for _ in range(reader.count()))


def _texts(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.count()))


def _time(reader: Reader) -> Time:
    return Time(*reader.take("iI", 4))


def _extensions(reader: Reader) -> dict[str, bytes]:
    return {reader.text(): reader.octets() for _ in range(reader.count())}


def _reader_durability(reader: Reader) -> int:
    """Read the reader's policies and keep one."""
    durability = reader.take("i", 4)[0]
    reader.take("4I3I", 4)
    reader.take("iiIB", 4)
    reader.take("6i", 4)
    reader.octets()
    reader.take("3I", 4)
    reader.take("4IBB", 4)
    reader.take("iB", 4)
    _texts(reader)
    reader.take("B", 1)
    reader.take("2I", 4)
    reader.text()
    reader.take("B", 1)
    return durability
