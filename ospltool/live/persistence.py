"""The replicas of persistence services that show themselves, and their providers, also in words."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from engine.persistence.service.replica_view import ReplicaView, SubscriptionView, WriterView
from ospltool.live.feed import HeardReplica
from ospltool.live.nodes import natural

# As replicas themselves judge (`engine.persistence.core.provider_selection.MAX_LAG_PERIODS`).
MAX_LAG_PERIODS: Final = 2
"""Periods of source time that a provider may be behind before others avoid it."""

NOTHING: Final = "-"


def why_none(mode: str) -> str:
    """Return a sentence for an empty screen, with the command to run; `mode` is the feed's."""
    if mode == "simulated":
        return (
            "simulated systems have no persistence services; `ospltool persistence rehearse` rehearses them"
        )
    if mode == "recorded":
        return "no persistence service was heard up to this moment of the recording"
    return "no persistence service heard; `ospltool persistence run FILE --name NAME` starts one"


def is_of_interest(writer: WriterView) -> bool:
    """Whether samples of a writer come or are missing."""
    return bool(
        writer.provider or writer.filling or writer.selected or writer.selected_filling or writer.lag_ns
    )


def lacks_provider(writer: WriterView) -> bool:
    """Whether samples are missing and no provider gives them."""
    return bool(writer.lag_ns and not writer.provider and not writer.filling)


def lags(writer: WriterView, period_ms: int) -> bool:
    """Whether the replica is so far behind that others avoid it as a provider."""
    return writer.lag_ns > MAX_LAG_PERIODS * period_ms * 1_000_000


def used(writer: WriterView) -> str:
    """Return the providers in use: `original` or a replica, and the filling replicas."""
    return _joined(writer.provider, writer.filling)


def selected(writer: WriterView) -> str:
    """Return the providers that the last period chose."""
    return _joined(writer.selected, writer.selected_filling)


def _joined(live: str, filling: tuple[str, ...]) -> str:
    return "+".join((live, *filling) if live else filling) or NOTHING


def lag(lag_ns: int) -> str:
    """Return source time in seconds, below a tenth in milliseconds; a dash for none."""
    if 0 < lag_ns < 100_000_000:
        return f"{max(1, lag_ns // 1_000_000)} ms"
    return f"{lag_ns / 1e9:,.1f} s" if lag_ns else NOTHING


def stability(writer: WriterView) -> str:
    """Return "stable", the periods with the same choice of those needed, or "forced at" the bound.

    A choice is forced if it was put into use after `unsettled_of` periods without a stable one.
    """
    if writer.stable >= writer.stable_of:
        return "stable"
    if writer.stable and not writer.unsettled:
        return f"forced at {writer.unsettled_of}"
    return f"{writer.stable} of {writer.stable_of}"


def path(writer: WriterView) -> str:
    """Return the replicas through which samples come; a dash if none come."""
    return " > ".join(writer.path) or NOTHING


def short_name(writer: WriterView, ellipsis: str = "…") -> str:
    """Return both ends of its GUID, with "late" for its stream of late samples."""
    return f"{writer.writer[:8]}{ellipsis}{writer.writer[-8:]}{' late' if writer.late else ''}"


def connected(view: ReplicaView) -> list[str]:
    """Return the names of the other replicas to which its link is up."""
    return [peer.name for peer in view.peers if peer.link == "up"]


def in_doubt(counts: dict[str, int]) -> str:
    """Return the samples that members have acknowledged and the quorum has not, by member."""
    return ",".join(f"{member} {count}" for member, count in counts.items()) or NOTHING


def members(names: Iterable[str]) -> str:
    """Return the connected readers of a durable subscription; a dash for none."""
    return ",".join(names) or NOTHING


def worst_stability(writers: Sequence[WriterView]) -> str:
    """Return "stable" for all, or the number of forced or unstable choices; a dash for no writer."""
    if not writers:
        return NOTHING
    told = [stability(writer) for writer in writers]
    forced = sum(1 for one in told if one.startswith("forced"))
    unstable = sum(1 for one in told if one != "stable")
    if forced:
        return f"{forced} forced"
    return f"{unstable} unstable" if unstable else "stable"


# As `model.MAX_NODES`.
MAX_REPLICAS: Final = 1_000
MIN_SILENT_NS: Final = 4_000_000_000
"""A replica shows itself every second, and less often where there is much to show."""

# One may be lost, one late.
SILENT_TURNS: Final = 3
# What a replica says of its own turns is not believed beyond: it would never count as silent.
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
    def from_view(cls, view: WriterView) -> StreamKey:
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
            for key, writer in ((StreamKey.from_view(writer), writer) for writer in view.writers)
        }
        used = tuple(stream for stream in streams.values() if is_of_interest(stream.view))
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
    if heard.view.synchronizes and lacks_provider(view):
        unprovided_ns = before.unprovided_ns if before and before.unprovided_ns else now_ns
    changed_ns = rising_ns = rose_ns = 0
    if before is not None:
        is_other = (view.provider, view.filling) != (before.view.provider, before.view.filling)
        changed_ns = now_ns if is_other else before.changed_ns
        rose = view.lag_ns > before.view.lag_ns
        rose_ns = now_ns if rose else before.rose_ns
        if view.lag_ns >= before.view.lag_ns:
            rising_ns = before.rising_ns or (now_ns if rose else 0)
    is_rising = bool(rising_ns) and now_ns - rose_ns <= MAX_LAG_PERIODS * period_ns
    grows = is_rising and rose_ns - rising_ns >= period_ns
    return Stream(
        view,
        changed_ns=changed_ns,
        unprovided_ns=unprovided_ns,
        is_unprovided=bool(unprovided_ns) and now_ns - unprovided_ns > period_ns * (view.unsettled_of + 1),
        rising_ns=rising_ns,
        rose_ns=rose_ns,
        grows=grows,
        is_behind=grows or lags(view, heard.view.period_ms),
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
    return ReplicaState.IN_STEP if connected(view) else ReplicaState.CONNECTING
