"""What a reader of the library gives to the application, and what it asks of the history."""

from __future__ import annotations

import dataclasses
import enum
from typing import Generic, TypeVar

from engine.dds.client_protocol.limits import Limits
from engine.dds.client_protocol.messages import UNLIMITED, ErrorCode
from ospltool.client.content import ContentFilter
from ospltool.client.errors import InvalidLimit, InvalidTimeRange

Data = TypeVar("Data")


class InstanceState(enum.StrEnum):
    """What is known of an instance when a sample is taken."""

    ALIVE = "alive"
    NOT_ALIVE_DISPOSED = "disposed"
    NOT_ALIVE_NO_WRITERS = "no writers"


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedSample(Generic[Data]):
    """One write, dispose or unregister.

    Attributes:
        data: the sample; None for a dispose or unregister without data, and for bytes that are not of the
            reader's type (`problem` says why).
        key: the instance, as XCDR2 key bytes; empty for a topic without keys.
        source_time_ns: the writer's source timestamp, nanoseconds since 1970 UTC.
        writer: the GUID of the original writer, 16 bytes; zeros for a dispose that a merge policy made.
        is_dispose, is_unregister: what it does besides, or instead of, bringing data.
        instance_state: of its instance, when it was taken.
        is_historical: it came from a durability service and not from its writer.
        cdr: the serialized sample, or key where there is no data, with its encapsulation header.
        problem: why there is no data where there should be some.
    """

    data: Data | None
    key: bytes
    source_time_ns: int
    writer: bytes
    is_dispose: bool
    is_unregister: bool
    instance_state: InstanceState
    is_historical: bool
    cdr: bytes
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class HistorySelection:
    """Which part of the history is wanted; of what limits leave out, the newest is kept.

    Attributes:
        start_ns, end_ns: source times, both included; None for no bound.
        max_samples, max_instances, max_samples_per_instance: -1 for no limit.
        condition: samples that it does not accept are left out, before the limits count. A dispose or
            unregister without data has no content and is always accepted.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    max_samples: int = UNLIMITED
    max_instances: int = UNLIMITED
    max_samples_per_instance: int = UNLIMITED
    condition: ContentFilter | None = None

    def __post_init__(self) -> None:
        """Refuse what a service would refuse.

        Raises:
            InvalidTimeRange, InvalidLimit: with the service's code.
        """
        limits = self.limits
        if limits.start_ns > limits.end_ns:
            raise InvalidTimeRange("the end is before the start", ErrorCode.INVALID_TIME_RANGE)
        for name, value, code in (
            ("max_samples", self.max_samples, ErrorCode.INVALID_MAX_SAMPLES),
            ("max_instances", self.max_instances, ErrorCode.INVALID_MAX_INSTANCES),
            (
                "max_samples_per_instance",
                self.max_samples_per_instance,
                ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE,
            ),
        ):
            if value < UNLIMITED:
                raise InvalidLimit(f"{name} is {value}; the least is -1, which stands for no limit", code)

    @property
    def limits(self) -> Limits:
        """The same without the condition."""
        none = Limits()
        return Limits(
            none.start_ns if self.start_ns is None else self.start_ns,
            none.end_ns if self.end_ns is None else self.end_ns,
            self.max_samples,
            self.max_instances,
            self.max_samples_per_instance,
        )
