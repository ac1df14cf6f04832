"""The four messages of the client-durability protocol as values.

Field for field as OpenSplice defines them (module DDS of its client_durability.idl).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

UNLIMITED: Final = -1
"""No limit for samples, instances or samples per instance."""
MAJOR_VERSION: Final = 1
ID_BYTES: Final = 16
"""Of a client, a server, a writer or a key hash."""
_SECOND_NS: Final = 1_000_000_000
_MAX_SECONDS: Final = 0x7FFFFFFF


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
    """A request: the 16 bytes of its client, and the client's own number for it."""

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
