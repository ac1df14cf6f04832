"""What can go wrong between an application and the durability services, one class for each meaning."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final

from engine.dds.client_protocol.messages import ErrorCode

if TYPE_CHECKING:
    from engine.dds.client_protocol.naming import SampleName


class DurabilityError(Exception):
    """Something that the durability services did not do.

    Attributes:
        code: the service's error code, `ErrorCode.OK` where the fault was found on this side.
    """

    def __init__(self, text: str, code: ErrorCode = ErrorCode.OK) -> None:
        super().__init__(text)
        self.code = code


class DurabilityTimeout(DurabilityError, TimeoutError):
    """It did not happen in the given time; `code` is the last reason that a service gave. Ask again."""


class NoService(DurabilityTimeout):
    """No durability service that serves clients was found in the given time.

    A node serves clients when its configuration has //OpenSplice/DurabilityService/ClientDurability.
    """


class Reason(enum.StrEnum):
    """Why samples are not stored."""

    NEVER_ARRIVED = "never arrived"
    """The node does not have them, neither captured nor aligned."""
    NOT_ON_DISK = "in memory, not on disk yet"
    """They are in the node's set and wait for its disk, or the disk refuses; the text says which."""
    NOT_COMPLETE = "the node's set is not complete"
    """The node is starting, aligning or merging."""
    MEMORY_ONLY = "kept in memory only"
    """They are PERSISTENT, and the node's policy keeps them as transient data; such nodes do not count."""
    DELETED = "at or before the time up to which its group was deleted"
    """By `delete_historical_data`: no node keeps such a sample, or will take it in."""
    NOT_SHARED = "kept by a node that gives nothing away"
    """The node is no aligner of the name-space, or a merge policy left its set different from the others.
    Nobody gets the samples from it, so it does not count. The text says which."""
    REFUSED = "refused"
    """A sample is too large for a node to keep."""
    NO_ANSWER = "no answer"
    """The node serves clients and has not answered in time: it is busy, stopped or cut off."""
    TOO_FEW_NODES = "too few nodes"
    """Fewer nodes than wanted keep the topic and partition at all."""
    CANNOT_TELL = "the node cannot tell"
    """The writer's samples have no names, and no node has captured all of them since its start, or the node
    has too many samples to compare. They may all be stored. A DurableWriter can tell."""
    UNDECIDED = "undecided"
    """The writer wrote while the nodes answered, so that counts cannot be compared. A DurableWriter can."""


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """Samples that are not stored, where, and why.

    Attributes:
        topic: the topic's name.
        node: the name of the node; empty where no node is meant.
        reason: why.
        count: how many samples; 0 where that is not known.
        samples: the first of them by name, at most 10; none where they were only counted.
        detail: in words.
    """

    topic: str
    node: str
    reason: Reason
    count: int
    samples: tuple[SampleName, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        what = f"{counted(self.count, 'sample')} " if self.count else ""
        first = f", the first of {self.samples[0]}" if self.samples else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{where}{what}{self.reason}{first}{detail}"


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class NotStored(DurabilityTimeout):
    """What was written is not stored on every node that must store it; `missing` says what, where and why."""

    def __init__(self, text: str, missing: tuple[Missing, ...] = ()) -> None:
        super().__init__(text)
        self.missing = missing


class OutdatedService(DurabilityError):
    """A node that must store it is of an earlier version and cannot answer for samples; the text names it."""


class UnsupportedService(DurabilityError):
    """Only durability services of another product are there, and those do not do what is asked for."""


class WriterFull(DurabilityTimeout):
    """A DurableWriter holds as much as it may that is not stored yet; the sample was not written."""


class JournalError(DurabilityError):
    """The journal of a DurableWriter cannot be read or written; the sample was not written."""


class JournalInUse(JournalError):
    """Another DurableWriter has the journal open."""


class JournalMismatch(JournalError):
    """The file is no journal, or belongs to another topic, type or partition."""


class NoPersistenceService(DurabilityTimeout):
    """No persistence service was found in the given time; durable subscriptions need one."""


class RequestRefused(DurabilityError):
    """A service refuses the request itself (codes 1 to 10 and 0xFFFFFFFF); asking again is no use."""


class IncompatibleVersion(RequestRefused):
    """The service speaks another version of the protocol (1)."""


class InvalidTimeRange(RequestRefused):
    """Start or end is no time, or the end is before the start (3, 4, 5)."""


class InvalidLimit(RequestRefused):
    """A limit is below -1 (8, 9, 10)."""


class InvalidFilter(RequestRefused):
    """The content filter is not understood; the text names the position."""


class NotResponsible(DurabilityTimeout):
    """No service that is there may answer.

    It is no aligner (0x80000000) or not the master (0x80000001), or there is no master (0x80000003).
    """


class OnlyParts(DurabilityTimeout):
    """The services that are there hold parts only, and nobody can tell that these are all that was asked for.

    A Lazy node keeps what readers on its host wanted. The nodes with the whole set are down or cut off, or
    there are none.
    """


class ReaderNotKnown(DurabilityTimeout):
    """The service did not discover our reader of historical data (0x80000002)."""


class GroupNotFound(DurabilityTimeout):
    """No name-space of any service contains the groups asked for (0x80000004)."""


class TooManyClients(DurabilityTimeout):
    """The services have more requests than they can hold (0x80000005)."""


class PreconditionNotMet(DurabilityError):
    """The call does not fit what the reader is."""


class InvalidSubscription(DurabilityError):
    """A durable subscription cannot have this name, quorum or member."""


class UnsupportedQos(DurabilityError):
    """The reader asks for a policy that the library does not carry out."""


class Closed(DurabilityError):
    """The reader or client has been closed, or its thread has ended; the cause says why."""


_REFUSALS: Final[dict[ErrorCode, type[RequestRefused]]] = {
    ErrorCode.INCOMPATIBLE_VERSION: IncompatibleVersion,
    ErrorCode.INVALID_START_TIME: InvalidTimeRange,
    ErrorCode.INVALID_END_TIME: InvalidTimeRange,
    ErrorCode.INVALID_TIME_RANGE: InvalidTimeRange,
    ErrorCode.INVALID_MAX_SAMPLES: InvalidLimit,
    ErrorCode.INVALID_MAX_INSTANCES: InvalidLimit,
    ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE: InvalidLimit,
}
_TIMEOUTS: Final[dict[ErrorCode, type[DurabilityTimeout]]] = {
    ErrorCode.SERVER_IS_NOT_ALIGNER: NotResponsible,
    ErrorCode.NOT_RESPONSIBLE: NotResponsible,
    ErrorCode.NO_MASTER_SELECTED: NotResponsible,
    ErrorCode.READER_NOT_KNOWN: ReaderNotKnown,
    ErrorCode.GROUP_NOT_FOUND: GroupNotFound,
    ErrorCode.NO_CLIENTS: TooManyClients,
}


def refused(code: ErrorCode, what: str) -> RequestRefused:
    """The exception for a request that a service refuses."""
    return _REFUSALS.get(code, RequestRefused)(f"{what}: the service answers {code.name}", code)


def timed_out(code: ErrorCode, what: str) -> DurabilityTimeout:
    """The exception for a time that ran out, by the last reason that a service gave."""
    reason = f"; the service answers {code.name}" if code is not ErrorCode.OK else ""
    return _TIMEOUTS.get(code, DurabilityTimeout)(f"{what} did not happen in time{reason}", code)
