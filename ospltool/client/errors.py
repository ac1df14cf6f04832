"""Errors between an application and the durability services, one class for each meaning."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final

from engine.dds.client_protocol.messages import ErrorCode

if TYPE_CHECKING:
    from engine.dds.client_protocol.naming import SampleName


class DurabilityError(Exception):
    """A failure of a request to the durability services.

    Attributes:
        code: the service's error code, `ErrorCode.OK` if this side found the fault.
    """

    def __init__(self, text: str, code: ErrorCode = ErrorCode.OK) -> None:
        super().__init__(text)
        self.code = code


class DurabilityTimeout(DurabilityError, TimeoutError):
    """A request that was not fulfilled in time; `code` is the last reason of a service. Ask again."""


class NoService(DurabilityTimeout):
    """No durability service that serves clients was found in the given time.

    A node serves clients when its configuration has //OpenSplice/DurabilityService/ClientDurability.
    """


class SecretMismatch(NoService):
    """All durability services that were found refuse this client; the text says which, and why.

    Either side lacks the secret of the domain, or has another one (`docs/security.md`).
    """


class Reason(enum.StrEnum):
    """Reason for which samples are not stored."""

    NEVER_ARRIVED = "never arrived"
    """The node does not have them, neither captured nor aligned."""
    NOT_ON_DISK = "in memory, not on disk yet"
    """They are in the node's set and wait for its disk, or the disk failed; the text tells which."""
    NOT_COMPLETE = "the node's set is not complete"
    """The node is starting, aligning or merging."""
    MEMORY_ONLY = "kept in memory only"
    """They are PERSISTENT, and the node's policy keeps them as transient data; such nodes do not count."""
    DELETED = "at or before the time up to which its group was deleted"
    """`delete_historical_data` deleted them: no node keeps or accepts such a sample."""
    NOT_SHARED = "kept by a node that does not share its set"
    """The node is not an aligner of the name-space, or a merge policy left its set different from the others.
    No other node gets the samples from it, so it does not count. The text tells which."""
    REFUSED = "refused"
    """A sample is too large for a node to keep, or limits of DURABILITY_SERVICE leave no room for it."""
    NO_ANSWER = "no answer"
    """The node serves clients and has not answered in time: it is busy, stopped or cut off."""
    TOO_FEW_NODES = "too few nodes"
    """Fewer nodes than wanted keep the topic and partition at all."""
    CANNOT_TELL = "the node cannot tell"
    """The node knows too little about the samples. They may all be stored. There are two cases.

    Samples without names, of a plain DataWriter: a node counts what it captures of the last 65,536 writers,
    from the start of its run or, later, from the last time that one of its sets was replaced as a whole. The
    node counted less than was written, and its samples of the writer cannot be shown to equal those of a node
    that counted all: there is none, or one of the two has more than 200,000 samples of the topic in these
    partitions. A DurableWriter gets an answer.

    Samples with names: the node does not have them, but may have had and purged them, because the
    service_cleanup_delay of the topic is finite. They are not newer than the start of its run, or than the
    latest sample of an instance that it purged in this run; what it purged before the run is unknown.
    """
    UNDECIDED = "undecided"
    """The writer wrote while the nodes answered, so that counts cannot be compared. A DurableWriter can."""


@dataclasses.dataclass(frozen=True, slots=True)
class MissingSamples:
    """Samples that a node has not stored, and why.

    Attributes:
        topic: name of the topic.
        node: name of the node; empty if it is not about one node.
        reason: kind of the reason.
        count: number of samples; 0 if unknown.
        samples: first of them by name, at most 10; empty if they were only counted.
        detail: reason in words.
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


def printable(text: object) -> str:
    """Return a node's text without control characters, for messages."""
    return "".join(char if char.isprintable() else "?" for char in str(text))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class NotStored(DurabilityTimeout):
    """Samples that not every node that must store them has stored; `missing` names nodes and reasons."""

    def __init__(self, text: str, missing: tuple[MissingSamples, ...] = ()) -> None:
        super().__init__(text)
        self.missing = missing


class OutdatedService(DurabilityError):
    """A node of another version than this library, which does not answer for samples; the text names it."""


class UnsupportedService(DurabilityError):
    """A request that the services found, all of another product, do not support."""


class WriterFull(DurabilityTimeout):
    """A DurableWriter with its limit of pending samples; the sample was not written."""


class JournalError(DurabilityError):
    """A journal that cannot be read or written; the sample was not written."""


class JournalInUse(JournalError):
    """A journal that another DurableWriter has open."""


class JournalMismatch(JournalError):
    """A file that is not a journal, or belongs to another topic, type or partition."""


class NoPersistenceService(DurabilityTimeout):
    """No persistence service was found in the given time; durable subscriptions need one."""


class RequestRefused(DurabilityError):
    """A request that a service refuses (codes 1 to 10 and 0xFFFFFFFF); asking again is useless."""


class IncompatibleVersion(RequestRefused):
    """The service speaks another version of the protocol (1)."""


class InvalidTimeRange(RequestRefused):
    """A start or end that is not a time, or an end before the start (3, 4, 5)."""


class InvalidLimit(RequestRefused):
    """A limit is below -1 (8, 9, 10)."""


class InvalidFilter(RequestRefused):
    """A malformed content filter; the text names the position."""


class NotResponsible(DurabilityTimeout):
    """No service that was found may answer.

    It is not an aligner (0x80000000) or not the master (0x80000001), or there is no master (0x80000003).
    """


class OnlyParts(DurabilityTimeout):
    """The services that were found hold only parts, which may lack samples that were asked for.

    A Lazy node keeps only the groups that readers on its host wanted. The nodes with the whole set are down
    or cut off, or do not exist.
    """


class ReaderNotKnown(DurabilityTimeout):
    """The service did not discover the client's reader of historical data (0x80000002)."""


class GroupNotFound(DurabilityTimeout):
    """No name-space of any service contains the requested groups (0x80000004)."""


class TooManyClients(DurabilityTimeout):
    """The services have too many requests (0x80000005)."""


class PreconditionNotMet(DurabilityError):
    """A call that the reader, writer or its QoS does not allow."""


class InvalidSubscription(DurabilityError):
    """An invalid name, quorum or member of a durable subscription."""


class UnsupportedQos(DurabilityError):
    """A policy of the reader that the library does not support."""


class Closed(DurabilityError):
    """A reader, writer or client that was closed or whose thread ended; the cause tells why."""


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
    """Return the exception for a request that a service refuses."""
    return _REFUSALS.get(code, RequestRefused)(f"{what}: the service answers {code.name}", code)


def timed_out(code: ErrorCode, what: str) -> DurabilityTimeout:
    """Return the exception for a timeout, by the last reason that a service gave."""
    reason = f"; the service answers {code.name}" if code is not ErrorCode.OK else ""
    return _TIMEOUTS.get(code, DurabilityTimeout)(f"{what} did not happen in time{reason}", code)
