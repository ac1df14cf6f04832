"""What can go wrong between an application and the durability services, one class for each meaning."""

from __future__ import annotations

from typing import Final

from engine.dds.client_protocol.messages import ErrorCode


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


class NotStored(DurabilityTimeout):
    """What was written is not stored on every node that must store it yet; the text names them."""


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


class ReaderNotKnown(DurabilityTimeout):
    """The service did not discover our reader of historical data (0x80000002)."""


class GroupNotFound(DurabilityTimeout):
    """No name-space of any service contains the groups asked for (0x80000004)."""


class TooManyClients(DurabilityTimeout):
    """The services have more requests than they can hold (0x80000005)."""


class PreconditionNotMet(DurabilityError):
    """The call does not fit what the reader is."""


class InvalidSubscription(DurabilityError):
    """A durable subscription can not have this name, quorum or member."""


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
