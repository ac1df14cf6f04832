"""The samples that a reader gives to the application, the selection of history, and how it is fetched.

A reader fetches its history from the services: it asks, counts, joins, and asks again if necessary. The
master of each name-space answers. The history is complete when an answer has covered every name-space that a
service names for the request. If the master does not serve clients, another service with the set is
addressed. `HistoryFetch` has no clock and no DDS: callers pass in what happens, and it returns what to send.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from engine.core.untrusted import words_of
from engine.dataset.content import Expression, ExpressionFault
from engine.dataset.instance import EntryKind, Origin
from engine.dataset.instance_states import InstanceState, ViewState
from engine.dataset.sample import DATA, DISPOSE, NO_WRITER, UNREGISTER, is_end, make_sample
from engine.dds.client_protocol.extensions import LinkAddition
from engine.dds.client_protocol.messages import UNLIMITED, Completeness, ErrorCode, HistoryLimits
from ospltool.client.errors import InvalidFilter, InvalidLimit, InvalidTimeRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.dataset.groups import TypeDescription
    from engine.dataset.sample import Sample
    from engine.dds.client_protocol.messages import Link
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


# The service answers as soon as it is complete; asking again finds a better service meanwhile.
HOLD_S: Final = 0.5
"""Most seconds that a service holds a request; then it is asked again."""
# As `asking.GRACE_S`.
GRACE_S: Final = 1.5
"""Further seconds until an answer begins, and between its parts; doubled if they were too short."""
# A service that reads a large store begins within it; one that hangs costs this once.
MAX_GRACE_S: Final = 30.0
# As `asking.PAUSE_S`.
PAUSE_S: Final = 0.1
"""Seconds before the next request."""
WILDCARDS: Final = "*?"


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """A request to send, with its number, partition expression and addressees (empty for all)."""

    number: int
    partition: str
    servers: tuple[bytes, ...]


@dataclasses.dataclass(slots=True)
class _Answer:
    """The answer of one service in this round."""

    server: bytes
    code: ErrorCode
    name_spaces: dict[str, bool]
    parts: frozenset[str]


class _PartitionFetch:
    """The requests for one partition expression.

    A server of another product answers an expression for one group only, and calls that complete. Its answer
    only reveals such a server, and the partitions are then requested one by one.

    Args:
        partition: the expression.
        numbers: makes request numbers.
        is_resolved: the partition was discovered, so that "no such group" is a valid answer.
    """

    def __init__(self, partition: str, numbers: Iterator[int], *, is_resolved: bool = False) -> None:
        self.partition = partition
        self.is_expression = any(char in partition for char in WILDCARDS)
        self._is_resolved = is_resolved
        self.done = False
        self.numbers: set[int] = set()
        self.asked_s = 0.0
        self.followed: dict[bytes, bytes] = {}
        self._is_lost = self._lacks = False
        self.refusal = ErrorCode.OK
        self.last_code = ErrorCode.OK
        self.parts_only: frozenset[str] = frozenset()
        self._make_number = numbers
        self._answers: dict[bytes, _Answer] = {}
        self._covered: set[str] = set()
        self._foreign_done = False
        self._running = False
        self._until_s = 0.0
        self._next_s = 0.0
        self._is_alone = False
        self._addressed: tuple[bytes, ...] = ()
        self._patience_s = GRACE_S
        self._parts: dict[tuple[bytes, int], list[tuple[Sample, bool]]] = {}

    @property
    def due_s(self) -> float | None:
        """Latest time of the next `turn`."""
        if self._running:
            return self._until_s
        return None if self.done or self._is_alone else self._next_s

    def turn(self, now: float, servers: frozenset[bytes]) -> Send | None:
        """Evaluate the answers and the time; return a request to send, or None."""
        if not self.followed.keys() <= servers:
            self._is_lost = (
                True  # also if it is back before this round ends: its updates were missed meanwhile
            )
        if self._running:
            if self._is_covered(servers, is_over=now >= self._until_s):
                self._running, self.done = False, True
                newest = max(self.numbers)
                self._parts = {key: parts for key, parts in self._parts.items() if key[1] == newest}
            elif now >= self._until_s or (servers <= self._answers.keys() and not self.is_to_be_resolved):
                self._running = False
                self._next_s = now + PAUSE_S
                self._addressed = self._whom_to_address()
                if not servers <= self._answers.keys():
                    self._patience_s = min(2 * self._patience_s, MAX_GRACE_S)
            return None
        if self.done and (self._is_lost or self._lacks):
            # If the service that sent updates is gone, another one takes over; else the same ones are asked.
            self._addressed = () if self._is_lost else tuple(sorted(self.followed.values()))
            self.done = self._is_lost = self._lacks = False
            self.followed.clear()
            self._covered.clear()
            self._foreign_done = False
        self._is_alone = not servers
        if self.done or not servers or now < self._next_s:
            return None
        self._running = True
        self._until_s = now + HOLD_S + self._patience_s
        self._answers.clear()
        number = next(self._make_number)
        self.numbers.add(number)
        self.asked_s = now
        return Send(number, self.partition, self._addressed)

    def ask_again(self) -> None:
        """Ask the services that send updates for everything again, since updates may have been missed."""
        self._lacks = True

    @property
    def is_to_be_resolved(self) -> bool:
        """Whether a service of another product has answered an expression."""
        return self.is_expression and self._foreign_done

    def part(self, service: bytes, number: int, sample: Sample, now: float, *, exact: bool) -> None:
        """Take in a sample of an answer; `service` is the participant that sent it."""
        self._parts.setdefault((service, number), []).append((sample, exact))
        self._until_s = max(self._until_s, now + self._patience_s)

    def end(
        self, service: bytes, number: int, server: bytes, link: Link, added: LinkAddition | None
    ) -> list[tuple[Sample, bool]] | None:
        """Take in the end of an answer; return its samples, or None if some are missing."""
        parts = self._parts.pop((service, number), [])
        code = ErrorCode(link.error) if link.error in set(ErrorCode) else ErrorCode.INVALID
        whole = len(parts) == link.count
        if added is not None and added.update:
            if not whole:
                self.ask_again()
            return parts if whole else None
        if not whole and number != max(self.numbers):
            return None  # aborted by a newer request
        told = added or LinkAddition()
        self._answers[service] = _Answer(server, code, told.name_spaces, frozenset(told.parts))
        self.parts_only = frozenset().union(*(one.parts for one in self._answers.values())) - self._covered
        self.last_code = code if code is not ErrorCode.OK or self.last_code.is_refusal else self.last_code
        if code.is_refusal:
            self.refusal = code
        if code is not ErrorCode.OK or not whole:
            return parts if whole else None
        if added is None:
            self._foreign_done = self._foreign_done or link.completeness == Completeness.COMPLETE
        else:
            self._covered.update(added.covers)
            if added.covers:
                self.followed[service] = server
        return parts

    def _is_covered(self, servers: frozenset[bytes], *, is_over: bool) -> bool:
        if self._foreign_done:
            return is_over or not self.is_expression  # discovery has had time to tell of all groups
        everybody = servers <= self._answers.keys()
        codes = {answer.code for answer in self._answers.values()}
        if everybody and self._is_resolved and ErrorCode.GROUP_NOT_FOUND in codes:
            return True
        touched = {name for answer in self._answers.values() for name in answer.name_spaces}
        return (everybody or is_over) and bool(self._covered) and touched <= self._covered

    def _whom_to_address(self) -> tuple[bytes, ...]:
        """Return a service for each name-space that a master has not covered."""
        found: dict[str, bytes] = {}
        for answer in self._answers.values():
            if answer.code is ErrorCode.NOT_RESPONSIBLE:
                for name, complete in answer.name_spaces.items():
                    if complete and name not in self._covered:
                        found.setdefault(name, answer.server)
        return tuple(sorted(set(found.values())))


class HistoryFetch:
    """A fetch of the history of one reader, with an exchange for each of its partition expressions.

    Args:
        partitions: partition expressions of the reader.
        numbers: makes request numbers.
        selection: wanted part of the history.
        is_followed: the services send updates afterwards.
        on_history: receives the whole history once; each sample with whether its writer's GUID is exact.
        on_update: receives later updates.
        resolve: returns the discovered partitions that match an expression.

    Attributes:
        living: living writers according to the last answer.
        disposing: lost writers with autodispose according to it.
        asked_s: when that was requested.
    """

    def __init__(
        self,
        partitions: tuple[str, ...],
        numbers: Iterator[int],
        selection: HistorySelection,
        *,
        is_followed: bool,
        on_history: Callable[[list[tuple[Sample, bool]]], None],
        on_update: Callable[[list[tuple[Sample, bool]]], None],
        resolve: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> None:
        self.exchanges = [_PartitionFetch(partition, numbers) for partition in partitions]
        self._numbers = numbers
        self._resolve = resolve
        self.selection = selection
        self.is_followed = is_followed
        self.done = False
        self.living: frozenset[bytes] = frozenset()
        self.disposing: frozenset[bytes] = frozenset()
        self.asked_s = 0.0
        self._staged: list[tuple[Sample, bool]] = []
        self._on_history = on_history
        self._on_update = on_update

    @property
    def due_s(self) -> float | None:
        """Latest time of the next `turn`."""
        dues = [one.due_s for one in self.exchanges]
        return min((due for due in dues if due is not None), default=None)

    @property
    def refusal(self) -> ErrorCode:
        """Reason of a service to refuse the request; OK if none refuses."""
        return next((one.refusal for one in self.exchanges if one.refusal.is_refusal), ErrorCode.OK)

    @property
    def last_code(self) -> ErrorCode:
        """Last reason of a service not to answer an open exchange."""
        return next((one.last_code for one in self.exchanges if not one.done), ErrorCode.OK)

    @property
    def parts_only(self) -> frozenset[str]:
        """Name-spaces of open exchanges of which, by the last answers, only parts can be reached."""
        return frozenset().union(*(one.parts_only for one in self.exchanges if not one.done))

    def exchange(self, number: int) -> _PartitionFetch | None:
        """Return the exchange of a request number; None if it is unknown."""
        return next((one for one in self.exchanges if number in one.numbers), None)

    def ask_again(self) -> None:
        """Ask for everything again; the answers are updates."""
        for one in self.exchanges:
            one.ask_again()

    def turn(self, now: float, servers: frozenset[bytes]) -> list[Send]:
        """Evaluate answers and time; return the requests to send."""
        if self.refusal.is_refusal or (self.done and not self.is_followed):
            return []
        for one in [each for each in self.exchanges if each.is_to_be_resolved and not self.done]:
            asked = {each.partition for each in self.exchanges}
            new = sorted(set(self._resolve(one.partition)) - asked)
            self.exchanges += [
                _PartitionFetch(partition, self._numbers, is_resolved=True) for partition in new
            ]
        sends = [send for one in self.exchanges if (send := one.turn(now, servers))]
        if not self.done and all(one.done for one in self.exchanges):
            self.done = True
            staged, self._staged = self._staged, []
            self._on_history(staged)
        return sends

    def end(self, service: bytes, number: int, server: bytes, link: Link, added: LinkAddition | None) -> None:
        """Take in the end of an answer.

        `service` sent it as `server`, in answer to the request `number`; `added` are the extensions of
        ospltool.
        """
        exchange = self.exchange(number)
        if exchange and added is not None and added.living is not None:
            self.asked_s = exchange.asked_s
            self.living = added.living
            self.disposing = added.disposing
        parts = exchange.end(service, number, server, link, added) if exchange else None
        if not parts:
            return
        if self.done:
            self._on_update(parts)
            return
        ended = {sample.key for sample, _ in parts if is_end(sample)}
        if ended:  # a merge took back some of the staged samples
            self._staged = [part for part in self._staged if part[0].key not in ended]
        self._staged += [part for part in parts if not is_end(part[0])]
