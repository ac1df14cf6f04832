"""The replicas of persistence services that show themselves, and the history of their providers."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from engine.persistence.service.view import ReplicaView, SubscriptionView, WriterView
from ospltool.live import providers
from ospltool.live.feed import HeardReplica
from ospltool.live.names import natural

MAX_REPLICAS: Final = 1_000
MIN_SILENT_NS: Final = 4_000_000_000
"""A replica shows itself every second, and less often where there is much to show."""

SILENT_TURNS: Final = 3
MAX_TURN_NS: Final = 10_000_000_000


class ReplicaState(enum.StrEnum):
    """The state of a replica, worst first."""

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
        """The key of what a replica shows of a writer."""
        return cls(view.topic, view.partition, view.writer, view.late)


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """One writer at one replica, followed from view to view; moments are ns since 1970, 0 for never."""

    view: WriterView
    """The newest view."""
    changed_ns: int = 0
    """When another provider was put into use."""
    unprovided_ns: int = 0
    """Since when samples are missing and no replica gives them."""
    is_unprovided: bool = False
    """Whether that lasts longer than a choice of providers may take."""
    rising_ns: int = 0
    """Since when the lag never fell."""
    rose_ns: int = 0
    """When the lag last rose."""
    grows: bool = False
    """Whether the lag rose for a period or longer."""
    is_behind: bool = False
    """Whether the lag grows, or is so large that others avoid this replica as a provider."""


@dataclasses.dataclass(frozen=True, slots=True)
class WatchedReplica:
    """One replica: its newest view, and the conclusions from it and those before.

    Attributes:
        view: the newest view.
        heard_ns: when it was heard.
        turn_ns: the time between the last two views.
        streams: its writers.
        used: the writers whose samples come or are missing.
        condition: its state while it is heard.
        gone_ns: since when it is gone; 0 while it runs.
    """

    view: ReplicaView
    heard_ns: int
    turn_ns: int
    streams: Mapping[StreamKey, Stream]
    used: tuple[Stream, ...]
    condition: ReplicaState
    gone_ns: int = 0

    @property
    def id(self) -> str:
        """The id of its store."""
        return self.view.id

    def age_ns(self, now_ns: int) -> int:
        """Return the time since it was heard."""
        return max(0, now_ns - self.heard_ns)

    def is_stale(self, now_ns: int) -> bool:
        """Whether its view may be out of date."""
        silent_ns = max(MIN_SILENT_NS, SILENT_TURNS * self.turn_ns)
        return self.gone_ns > 0 or self.age_ns(now_ns) > silent_ns

    def state(self, now_ns: int) -> ReplicaState:
        """Return its state."""
        if self.gone_ns:
            return ReplicaState.STOPPED if self.view.ending else ReplicaState.GONE
        return ReplicaState.SILENT if self.is_stale(now_ns) else self.condition


class PersistenceServices:
    """All replicas that were heard. `left_out` counts views of replicas beyond the bound."""

    def __init__(self) -> None:
        self._replicas: dict[str, WatchedReplica] = {}
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, replica: str) -> WatchedReplica | None:
        """The replica with this id."""
        return self._replicas.get(replica)

    def ordered(self) -> list[WatchedReplica]:
        """All by service and name: an order that does not jump."""
        return sorted(
            self._replicas.values(),
            key=lambda one: (natural(one.view.service), natural(one.view.name), one.id),
        )

    def apply(self, heard: HeardReplica) -> None:
        """Take in what a replica shows. One that is gone makes room for another one of its name."""
        view = heard.view
        before = self._replicas.get(view.id)
        if before is None:
            self._forget_former(view)
            if len(self._replicas) >= MAX_REPLICAS:
                self.left_out += 1
                return
        old = before.streams if before else {}
        turn_ns = heard.heard_ns - before.heard_ns if before and not before.gone_ns else 0
        streams = {
            key: _followed(old.get(key), writer, heard)
            for key, writer in ((StreamKey.of(writer), writer) for writer in view.writers)
        }
        used = tuple(stream for stream in streams.values() if providers.is_of_interest(stream.view))
        self._replicas[view.id] = WatchedReplica(
            view,
            heard.heard_ns,
            min(max(turn_ns, 0), MAX_TURN_NS),
            streams,
            used,
            _condition(view, used),
        )

    def _forget_former(self, view: ReplicaView) -> None:
        former = [
            one.id
            for one in self._replicas.values()
            if one.gone_ns and (one.view.service, one.view.name) == (view.service, view.name)
        ]
        for id_ in former:
            del self._replicas[id_]

    def lose(self, replica: str, lost_ns: int) -> None:
        """Note that the participant of a replica is gone, unless the replica was heard since."""
        known = self._replicas.get(replica)
        if known is not None and lost_ns >= known.heard_ns:
            self._replicas[replica] = dataclasses.replace(known, gone_ns=lost_ns)

    def present(self, service: str, subscription: SubscriptionView) -> set[str]:
        """The readers of a durable subscription that any replica of the service is connected with."""
        wanted = (subscription.name, subscription.topic, subscription.partition)
        return {
            member
            for one in self._replicas.values()
            if one.view.service == service and not one.gone_ns
            for each in one.view.subscriptions
            if (each.name, each.topic, each.partition) == wanted
            for member in each.members
        }

    def lacks_quorum(self, service: str, subscription: SubscriptionView) -> bool:
        """Whether samples wait and fewer readers than the quorum are connected."""
        return subscription.pending > 0 and len(self.present(service, subscription)) < subscription.quorum


def _followed(before: Stream | None, view: WriterView, heard: HeardReplica) -> Stream:
    """Return the stream after its next view."""
    now_ns = heard.heard_ns
    period_ns = heard.view.period_ms * 1_000_000
    unprovided_ns = 0
    if heard.view.synchronizes and providers.lacks_provider(view):
        unprovided_ns = before.unprovided_ns if before and before.unprovided_ns else now_ns
    changed_ns = rising_ns = rose_ns = 0
    if before is not None:
        is_other = (view.provider, view.filling) != (before.view.provider, before.view.filling)
        changed_ns = now_ns if is_other else before.changed_ns
        rose = view.lag_ns > before.view.lag_ns
        rose_ns = now_ns if rose else before.rose_ns
        if view.lag_ns >= before.view.lag_ns:
            rising_ns = before.rising_ns or (now_ns if rose else 0)
    is_rising = bool(rising_ns) and now_ns - rose_ns <= providers.MAX_LAG_PERIODS * period_ns
    grows = is_rising and rose_ns - rising_ns >= period_ns
    return Stream(
        view,
        changed_ns=changed_ns,
        unprovided_ns=unprovided_ns,
        is_unprovided=bool(unprovided_ns) and now_ns - unprovided_ns > period_ns * (view.unsettled_of + 1),
        rising_ns=rising_ns,
        rose_ns=rose_ns,
        grows=grows,
        is_behind=grows or providers.lags(view, heard.view.period_ms),
    )


def _condition(view: ReplicaView, used: Sequence[Stream]) -> ReplicaState:
    if view.problems:
        return ReplicaState.PROBLEM
    if any(stream.is_unprovided for stream in used):
        return ReplicaState.NO_PROVIDER
    if any(stream.is_behind for stream in used):
        return ReplicaState.LAGS
    if not view.synchronizes or not view.peers:
        return ReplicaState.ALONE
    return ReplicaState.IN_STEP if providers.connected(view) else ReplicaState.CONNECTING
