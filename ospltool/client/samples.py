"""The samples that a reader gives to the application, and the selection of history."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from engine.core.untrusted import words_of
from engine.dataset.content import Expression, ExpressionFault
from engine.dataset.instance import EntryKind, Origin
from engine.dataset.instance_states import InstanceState, ViewState
from engine.dataset.sample import DATA, DISPOSE, NO_WRITER, UNREGISTER, make_sample
from engine.dds.client_protocol.messages import UNLIMITED, ErrorCode, HistoryLimits
from ospltool.client.errors import InvalidFilter, InvalidLimit, InvalidTimeRange

if TYPE_CHECKING:
    from engine.dataset.groups import TypeDescription
    from engine.dataset.sample import Sample
    from ospltool.client.cache import CacheEntry


class ContentFilter:
    """A condition on the fields of a sample.

    Args:
        expression: see `engine.dataset.content`.
        parameters: values of %0, %1, …; each is a literal as in the expression (`'text'`, a number), or else
            plain text.

    Raises:
        InvalidFilter: the expression or a parameter is malformed; the text has column and reason.
    """

    def __init__(self, expression: str, parameters: Sequence[str] = ()) -> None:
        try:
            self._expression = Expression(expression, parameters)
        except ExpressionFault as error:
            raise InvalidFilter(f"filter, {error}") from error
        self.expression = expression
        self.parameters = tuple(parameters)

    def accepts(self, sample: object) -> bool:
        """Return whether the condition holds; a comparison of a field that the sample lacks is false."""
        return self._expression.accepts(sample)


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


_STATUS_OF: Final = {EntryKind.DISPOSED: DISPOSE, EntryKind.NO_WRITERS: UNREGISTER, EntryKind.SAMPLE: DATA}


class SampleDecoder(Generic[Data]):
    """A decoder of the samples of one reader.

    Args:
        type_: the application's type, a class of `cyclonedds.idl`.
        description: description of that type.
    """

    def __init__(self, type_: type[Data], description: TypeDescription) -> None:
        self._type = type_
        self._description = description

    def received(self, look: CacheEntry) -> ReceivedSample[Data]:
        """Return an entry for the application; `problem` explains an entry of another type."""
        entry = look.entry
        sample, data, problem = entry.sample, None, ""
        if sample is not None and entry.kind is EntryKind.SAMPLE:
            try:
                data = self._decode(sample.payload)
            except Exception as error:  # cyclonedds may raise anything for bytes of another type
                problem = f"not a sample of '{self._description.name}': {words_of(error)}"
        status = _STATUS_OF[entry.kind] if sample is None else sample.status
        return ReceivedSample(
            data=data,
            key=look.key,
            source_time_ns=entry.time_ns,
            writer=NO_WRITER if sample is None else sample.writer,
            is_dispose=bool(status & DISPOSE),
            is_unregister=bool(status & UNREGISTER),
            is_derived=entry.origin is Origin.DERIVED,
            is_again=entry.origin is Origin.AGAIN,
            instance_state=look.state,
            view_state=look.view,
            is_read=entry.is_read,
            disposed_generation_count=entry.disposed_generations,
            no_writers_generation_count=entry.no_writers_generations,
            sample_rank=look.sample_rank,
            generation_rank=look.generation_rank,
            absolute_generation_rank=look.absolute_generation_rank,
            is_historical=entry.origin in (Origin.STORED, Origin.AGAIN),
            cdr=b"" if sample is None else sample.payload,
            problem=problem,
        )

    def is_accepted(self, sample: Sample, condition: ContentFilter | None) -> bool:
        """Return whether a sample meets the application's condition."""
        if condition is None or not sample.status & DATA:
            return True
        try:
            return condition.accepts(self._decode(sample.payload))
        except Exception:  # cyclonedds may raise anything; `received` reports the sample
            return True

    def with_key(self, sample: Sample) -> Sample:
        """Return a sample of another product, which comes without its key, with the key from its data."""
        if not self._description.keyed or not sample.payload[4:]:
            return sample
        decoded: Any = self._decode(sample.payload)
        key = decoded.serialize_key(use_version_2=True)[4:]
        return make_sample(
            sample.source_time_ns, sample.writer, sample.status, key, sample.payload, sample.sequence
        )

    def _decode(self, payload: bytes) -> Data:
        decoded: Data = self._type.deserialize(payload)  # type: ignore[attr-defined]  # every IDL class has it
        return decoded
