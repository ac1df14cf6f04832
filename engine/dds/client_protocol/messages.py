"""The four messages of the client-durability protocol as values.

Field for field as OpenSplice defines them (module DDS of its client_durability.idl).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.core.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.dataset.sample import Sample

UNLIMITED: Final = -1
"""No limit for samples, instances or samples per instance."""
MAJOR_VERSION: Final = 1
ID_BYTES: Final = 16
"""Size of the id of a client, server or writer, and of a key hash."""
_SECOND_NS: Final = 1_000_000_000
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


@lazy_dataclass(frozen=True, slots=True)
class StateRequest:
    """A client's question about the completeness of groups. Without `servers`, all servers answer."""

    request: RequestId
    topic: str
    partitions: tuple[str, ...]
    servers: tuple[bytes, ...] = ()
    timeout: Time = ZERO
    extensions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    version: int = MAJOR_VERSION


@lazy_dataclass(frozen=True, slots=True)
class GroupState:
    """Completeness of one group at a server."""

    partition: str
    topic: str
    completeness: int


@lazy_dataclass(frozen=True, slots=True)
class StateAnswer:
    """A server's answer to a state request or, without `requests`, its notice of a change."""

    server: bytes
    requests: tuple[RequestId, ...]
    groups: tuple[GroupState, ...]
    extensions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@lazy_dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A client's request for historical data."""

    request: RequestId
    """Its id."""
    topic: str
    """Topic name."""
    partitions: tuple[str, ...]
    """Partition expressions of the groups."""
    format: int = ByteOrder.ANY
    """Wanted byte order, a `ByteOrder`."""
    durability: int = 2
    """The reader's durability, as a number of the DURABILITY policy."""
    start: Time = ZERO
    """Lower bound of source times, included."""
    end: Time = INFINITE
    """Upper bound of source times, included."""
    sql_filter: str = ""
    """Condition on fields; empty for all samples."""
    sql_parameters: tuple[str, ...] = ()
    """Values for the parameters of `sql_filter`."""
    max_samples: int = UNLIMITED
    """Limit for the samples in all."""
    max_instances: int = UNLIMITED
    """Limit for the instances."""
    max_samples_per_instance: int = UNLIMITED
    """Limit for the samples of each instance."""
    alignment_partitions: tuple[str, ...] = ()
    """Partitions in which the client reads the answer."""
    servers: tuple[bytes, ...] = ()
    """Ids of the servers that shall answer; empty for the responsible ones."""
    timeout: Time = ZERO
    """Limit for holding the request until the server's set is complete."""
    extensions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """Additions by name."""
    version: int = MAJOR_VERSION
    """Major version of the protocol."""


@lazy_dataclass(frozen=True, slots=True)
class Bead:
    """One sample of an answer; `payload` is the body of the serialized sample, without its header."""

    writer: bytes
    source_time: Time
    sequence: int
    partitions: tuple[str, ...]
    kind: int
    format: int
    payload: bytes


@lazy_dataclass(frozen=True, slots=True)
class Link:
    """The end of an answer: its number of samples, `Completeness` and `ErrorCode`."""

    count: int
    completeness: int
    error: int


@lazy_dataclass(frozen=True, slots=True)
class HistoryPart:
    """A part of an answer."""

    server: bytes
    requests: tuple[RequestId, ...]
    content: Bead | Link
    extensions: Mapping[str, bytes]


_FIRST_NS: Final = -(1 << 63)
_LAST_NS: Final = (1 << 63) - 1


@lazy_dataclass(frozen=True, slots=True)
class HistoryLimits:
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
            newest = sorted(chosen, key=lambda history: history[-1], reverse=True)[: self.max_instances]
            kept = {history[-1].key for history in newest}
            chosen = [history for history in chosen if history[-1].key in kept]
        selected = [sample for history in chosen for sample in history]
        if self.max_samples != UNLIMITED and len(selected) > self.max_samples:
            newest_of_all = {id(s) for s in sorted(selected, reverse=True)[: self.max_samples]}
            selected = [sample for sample in selected if id(sample) in newest_of_all]
        return selected
