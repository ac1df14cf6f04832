"""The persistence services that show themselves, and what became of their providers since we watch."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from engine.persistence_service.view import InstanceView, SubscriptionView, WriterView
from ospltool.live import providers
from ospltool.live.complaints import Concern, Severity
from ospltool.live.feed import HeardInstance
from ospltool.live.names import natural

MAX_INSTANCES: Final = 1_000
MIN_SILENT_NS: Final = 4_000_000_000
"""An instance shows itself every second, and less often where there is much to show."""

SILENT_TURNS: Final = 3
MAX_TURN_NS: Final = 10_000_000_000


class State(enum.StrEnum):
    """How an instance is, worst first."""

    GONE = "gone"
    SILENT = "silent"
    PROBLEM = "problem"
    NO_PROVIDER = "no provider"
    LAGS = "lags"
    STOPPED = "stopped"
    CONNECTING = "connecting"
    ALONE = "alone"
    IN_STEP = "in step"


class StreamKey(NamedTuple):
    """One writer in one group, or its stream of late samples."""

    topic: str
    partition: str
    writer: str
    late: bool

    @classmethod
    def of(cls, view: WriterView) -> StreamKey:
        """The key of what an instance shows of a writer."""
        return cls(view.topic, view.partition, view.writer, view.late)


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """What the views of one writer at one instance were, one after the other; moments are 0 for never.

    `changed_ns` is when another provider was put into use, `unprovided_ns` since when samples are missing
    that nobody gives, `rising_ns` since when the lag never fell, `rose_ns` when it last rose.
    """

    view: WriterView
    changed_ns: int = 0
    unprovided_ns: int = 0
    rising_ns: int = 0
    rose_ns: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """The newest view of one instance, when it was heard, and since when it is gone (0: it is there).

    `turn_ns` is the time between its last two views.
    """

    view: InstanceView
    heard_ns: int
    turn_ns: int
    streams: Mapping[StreamKey, Stream]
    gone_ns: int = 0

    @property
    def id(self) -> str:
        """The id of its store."""
        return self.view.id

    @property
    def period_ns(self) -> int:
        """How often it chooses providers."""
        return self.view.period_ms * 1_000_000

    def age_ns(self, now_ns: int) -> int:
        """Time since it was heard."""
        return max(0, now_ns - self.heard_ns)

    def is_stale(self, now_ns: int) -> bool:
        """What is shown of it may be out of date."""
        silent_ns = max(MIN_SILENT_NS, SILENT_TURNS * self.turn_ns)
        return self.gone_ns > 0 or self.age_ns(now_ns) > silent_ns

    def used(self) -> list[Stream]:
        """The writers from which something comes or of which something is missing."""
        return [stream for stream in self.streams.values() if providers.is_of_interest(stream.view)]

    def grows(self, stream: Stream) -> bool:
        """The lag rose for a period or longer and did not fall meanwhile."""
        is_rising = self.heard_ns - stream.rose_ns <= providers.MAX_LAG_PERIODS * self.period_ns
        return bool(stream.rising_ns) and is_rising and stream.rose_ns - stream.rising_ns >= self.period_ns

    def is_behind(self, stream: Stream) -> bool:
        """The lag grows, or is so large that others avoid this instance as a provider."""
        return providers.lags(stream.view, self.view.period_ms) or self.grows(stream)

    def is_unprovided(self, stream: Stream) -> bool:
        """Nobody gives what is missing for longer than a choice may take."""
        if not self.view.synchronizes or not stream.unprovided_ns:
            return False
        return self.heard_ns - stream.unprovided_ns > self.period_ns * (stream.view.unsettled_of + 1)

    def state(self, now_ns: int) -> State:
        """How it is, in one word."""
        if self.gone_ns:
            return State.STOPPED if self.view.ending else State.GONE
        if self.is_stale(now_ns):
            return State.SILENT
        if self.view.problems:
            return State.PROBLEM
        return self._synchronized()

    def _synchronized(self) -> State:
        if any(map(self.is_unprovided, self.streams.values())):
            return State.NO_PROVIDER
        if any(map(self.is_behind, self.streams.values())):
            return State.LAGS
        if not self.view.synchronizes or not self.view.peers:
            return State.ALONE
        return State.IN_STEP if providers.connected(self.view) else State.CONNECTING


class PersistenceServices:
    """All instances that were heard. `left_out` counts views of instances beyond the bound."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, instance: str) -> Instance | None:
        """The instance with this id."""
        return self._instances.get(instance)

    def ordered(self) -> list[Instance]:
        """All by service and name: an order that does not jump."""
        return sorted(
            self._instances.values(),
            key=lambda one: (natural(one.view.service), natural(one.view.name), one.id),
        )

    def apply(self, heard: HeardInstance) -> None:
        """Take in what an instance shows. One that is gone makes room for another one of its name."""
        view = heard.view
        before = self._instances.get(view.id)
        if before is None:
            self._forget_former(view)
            if len(self._instances) >= MAX_INSTANCES:
                self.left_out += 1
                return
        old = before.streams if before else {}
        turn_ns = heard.heard_ns - before.heard_ns if before and not before.gone_ns else 0
        streams = {
            key: _followed(old.get(key), writer, heard.heard_ns)
            for key, writer in ((StreamKey.of(writer), writer) for writer in view.writers)
        }
        self._instances[view.id] = Instance(view, heard.heard_ns, min(max(turn_ns, 0), MAX_TURN_NS), streams)

    def _forget_former(self, view: InstanceView) -> None:
        former = [
            one.id
            for one in self._instances.values()
            if one.gone_ns and (one.view.service, one.view.name) == (view.service, view.name)
        ]
        for id_ in former:
            del self._instances[id_]

    def lose(self, instance: str, lost_ns: int) -> None:
        """Its participant is gone, unless it was heard since."""
        known = self._instances.get(instance)
        if known is not None and lost_ns >= known.heard_ns:
            self._instances[instance] = dataclasses.replace(known, gone_ns=lost_ns)

    def present(self, service: str, subscription: SubscriptionView) -> set[str]:
        """The readers of a durable subscription that any instance of the service is connected with."""
        wanted = (subscription.name, subscription.topic, subscription.partition)
        return {
            member
            for one in self._instances.values()
            if one.view.service == service and not one.gone_ns
            for each in one.view.subscriptions
            if (each.name, each.topic, each.partition) == wanted
            for member in each.members
        }

    def lacks_quorum(self, service: str, subscription: SubscriptionView) -> bool:
        """Samples wait, and there are fewer readers than have to acknowledge them."""
        return subscription.pending > 0 and len(self.present(service, subscription)) < subscription.quorum


def _followed(before: Stream | None, view: WriterView, heard_ns: int) -> Stream:
    """What becomes of a stream with its next view."""
    unprovided_ns = (before.unprovided_ns if before else 0) or heard_ns
    if not providers.lacks_provider(view):
        unprovided_ns = 0
    if before is None:
        return Stream(view, unprovided_ns=unprovided_ns)
    is_other = (view.provider, view.filling) != (before.view.provider, before.view.filling)
    rose = view.lag_ns > before.view.lag_ns
    fell = view.lag_ns < before.view.lag_ns
    return Stream(
        view,
        changed_ns=heard_ns if is_other else before.changed_ns,
        unprovided_ns=unprovided_ns,
        rising_ns=0 if fell else before.rising_ns or (heard_ns if rose else 0),
        rose_ns=heard_ns if rose else before.rose_ns,
    )


def concerns_of(instance: Instance, now_ns: int) -> Iterator[Concern]:
    """What a person should look at."""
    name = f"persistence service {instance.view.name}"
    state = instance.state(now_ns)
    if state is State.STOPPED:
        yield Concern(Severity.WARNING, f"{name} has ended in order", instance.gone_ns)
    elif state is State.GONE:
        yield Concern(Severity.FAULT, f"{name} is gone", instance.gone_ns)
    elif state is State.SILENT:
        yield Concern(Severity.WARNING, f"{name} is silent", instance.heard_ns)
    else:
        for problem in instance.view.problems:
            yield Concern(Severity.FAULT, f"{name}: {problem}")
        yield from _of_streams(name, instance)


def _of_streams(name: str, instance: Instance) -> Iterator[Concern]:
    unprovided = [stream for stream in instance.streams.values() if instance.is_unprovided(stream)]
    if unprovided:
        text = f"{name} has no provider of {_some(unprovided)}"
        yield Concern(Severity.WARNING, text, min(stream.unprovided_ns for stream in unprovided))
    behind = [
        stream
        for stream in instance.streams.values()
        if instance.is_behind(stream) and not instance.is_unprovided(stream)
    ]
    if behind:
        most = max(behind, key=lambda stream: stream.view.lag_ns)
        grows = " and falls further behind" if instance.grows(most) else ""
        text = f"{name} lags {providers.lag(most.view.lag_ns)}{grows}, in {_some(behind)}"
        yield Concern(Severity.WARNING, text, most.rising_ns)


def _some(streams: list[Stream]) -> str:
    """One group by its name, more with their number."""
    groups = sorted({f"{stream.view.partition}.{stream.view.topic}" for stream in streams})
    return groups[0] if len(groups) == 1 else f"{groups[0]} and {len(groups) - 1:,} more"
