"""The samples that a reader gives to the application, and the selection of history."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from engine.dataset.instance_states import InstanceState, ViewState
from engine.dds.client_protocol.limits import HistoryLimits
from engine.dds.client_protocol.messages import UNLIMITED, ErrorCode
from ospltool.client.content import ContentFilter
from ospltool.client.errors import InvalidLimit, InvalidTimeRange

Data = TypeVar("Data")


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedSample(Generic[Data]):
    """One write, dispose or unregister, or the effect of lost writers (DDS 1.4, 2.2.2.5.1)."""

    data: Data | None
    """The sample; None for a dispose or unregister without data, and for bytes that are not of the reader's
    type (`problem` says why)."""
    key: bytes
    """The instance, as XCDR2 key bytes; empty for a topic without keys."""
    source_time_ns: int
    """The writer's source timestamp, nanoseconds since 1970 UTC; where no writer said it, when that was
    noticed."""
    writer: bytes
    """The GUID of the original writer, 16 bytes; zeros for a dispose that a merge policy made, and where no
    writer said it."""
    is_dispose: bool
    """Whether it disposes the instance, with or without data."""
    is_unregister: bool
    """Whether it unregisters the instance, with or without data."""
    is_derived: bool
    """No writer said it: the instance is disposed or has no writers, as writers are lost."""
    is_again: bool
    """It was there before, and is shown again behind that because its writer came back, or because a merge
    policy put it in the place of another set."""
    instance_state: InstanceState | None
    """Of its instance, when it was taken; None where nobody can tell (history of OpenSplice, of which no
    writer that could have written it is known by name)."""
    view_state: ViewState
    """NEW when the application looks at this generation of the instance for the first time."""
    is_read: bool
    """The sample was read before."""
    disposed_generation_count: int
    """How often the instance had become alive again after a dispose when the sample was added."""
    no_writers_generation_count: int
    """How often the instance had become alive again after it had no writers when the sample was added."""
    sample_rank: int
    """Samples of the instance that follow in what was taken together."""
    generation_rank: int
    """Generations of the instance between this sample and the last of these."""
    absolute_generation_rank: int
    """Generations between this sample and what the reader has got last of it."""
    is_historical: bool
    """It came from a durability service and not from its writer."""
    cdr: bytes
    """The serialized sample, or key where there is no data, with its encapsulation header; empty where no
    writer said it."""
    problem: str = ""
    """Why there is no data where there should be some."""


@dataclasses.dataclass(frozen=True, slots=True)
class HistorySelection:
    """The wanted part of the history; limits keep the newest samples.

    Attributes:
        start_ns, end_ns: source times, both included; None for no bound.
        max_samples, max_instances, max_samples_per_instance: -1 for no limit.
        condition: filter of the samples, applied before the limits. A dispose or unregister without data
            is always accepted.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    max_samples: int = UNLIMITED
    max_instances: int = UNLIMITED
    max_samples_per_instance: int = UNLIMITED
    condition: ContentFilter | None = None

    def __post_init__(self) -> None:
        """Refuse values that a service would refuse.

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
    def limits(self) -> HistoryLimits:
        """The selection without its condition."""
        none = HistoryLimits()
        return HistoryLimits(
            none.start_ns if self.start_ns is None else self.start_ns,
            none.end_ns if self.end_ns is None else self.end_ns,
            self.max_samples,
            self.max_instances,
            self.max_samples_per_instance,
        )
