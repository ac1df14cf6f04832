"""A rehearsal in virtual time: two writers, replicas, a fault, readers of subscriptions, the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.config.persistence import DurableSubscriptionSettings, PersistenceService
from engine.core.lazy_dataclass import lazy_dataclass
from engine.simulator.rehearsal.rehearsed_replicas import (
    Id,
    RehearsedReader,
    ReplicaCluster,
    SubscribedCluster,
)

STEP_MS: Final = 100
"""Interval at which the knowledge of replicas is compared: the precision of the times."""
_LAST_MOMENTS_MS: Final = 500
_MARGIN_MS: Final = 1_000
_PATIENCE_PERIODS: Final = 10


@lazy_dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """The outcome of a rehearsal for one durable subscription."""

    name: str
    """Name of the subscription (role_name)."""
    topic: str
    """Its topic."""
    quorum: int
    """Its quorum, and the number of its members here."""
    visits: int
    """How often its readers came."""
    taken: int
    """Samples that readers took; one that was taken twice counts twice."""
    kept: dict[str, int]
    """Samples that each replica keeps for it at the end."""
    most_kept: int
    """The most samples that one replica kept for it at any time."""
    agreed: bool
    """Whether all replicas end with the same acknowledgements."""
    agreed_after_ms: int
    """The longest time from an acknowledgement until all replicas knew it."""
    again: int
    """Samples taken again that were not acknowledged, or only to a replica that was lost."""
    twice: int
    """Samples taken again although a replica that ran knew that they were acknowledged, or twice at once."""
    lost: int
    """Samples that reached a replica that runs at the end, and did not reach every member."""

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost or came twice, and all replicas agree."""
        return self.agreed and not self.twice and not self.lost


@lazy_dataclass(slots=True)
class _Untold:
    """Acknowledgements of a member that some replica does not know yet."""

    ids: set[Id]
    since_ms: int


@lazy_dataclass(eq=False)
class _Member:
    """One reader of a durable subscription, from visit to visit."""

    name: str
    """Its member name."""
    returns_ms: int
    """When it comes next."""
    application: str = ""
    """Its application in the cluster; empty before the first visit."""
    until_ms: int | None = None
    """When it goes; None while it is away."""
    visits: int = 0
    """How often it has come."""
    known: frozenset[Id] = frozenset()
    """The samples that replicas knew as acknowledged by it when it came."""
    had: set[Id] = dataclasses.field(default_factory=set)
    """All samples that it took on earlier visits."""
    untold: list[_Untold] = dataclasses.field(default_factory=list)
    """Its acknowledgements that some replica does not know yet."""


class Visits:
    """The readers of one durable subscription in a cluster.

    A durable subscription has as many members as its quorum asks for. Each comes, takes and acknowledges, and
    goes. On each visit it reaches one replica only, the next one, so that the others must hear of it from
    that one. It does not acknowledge what it takes in the last moments of a visit.

    Args:
        cluster: the replicas; the durable subscription is registered at all of them.
        settings: of the durable subscription.
        number: its place among the subscriptions; it shifts the time at which the first reader comes.
        writers: original writers to which readers connect on each visit.
    """

    def __init__(
        self,
        cluster: SubscribedCluster,
        settings: DurableSubscriptionSettings,
        number: int,
        writers: Iterable[str],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._writers = tuple(writers)
        self._name = f"{settings.name} of {settings.topic}"
        periods = cluster.settings.period_ms, cluster.settings.subscription_period_ms
        self._stay_ms = 2 * periods[0] + _MARGIN_MS
        self._away_ms = 2 * sum(periods) + _MARGIN_MS
        self._members = [
            _Member(f"m{each}", self._away_ms * (1 + each + number) // 2) for each in range(settings.quorum)
        ]
        self._taken = self._again = self._twice = 0
        self._most_kept = 0
        self._longest_ms = 0
        for name in cluster.names:
            cluster.register(name, self._name, settings.quorum)

    # Steps.

    def step(self, *, comes: bool = True) -> None:
        """Let readers come (with `comes`), acknowledge and go, as it is time for each."""
        now_ms = self._cluster.now_ms
        for member in self._members:
            if member.until_ms is None:
                if comes and now_ms >= member.returns_ms:
                    self._come(member)
            elif now_ms >= member.until_ms:
                self._go(member)
            elif now_ms < member.until_ms - _LAST_MOMENTS_MS:
                self._acknowledge(member)
            self._look_who_knows(member)
        self._most_kept = max(self._most_kept, *self._kept().values())

    def come_all(self) -> None:
        """Let all readers come now."""
        for member in self._members:
            self._come(member)

    def go_all(self) -> None:
        """Let all present readers go."""
        for member in self._members:
            if member.until_ms is not None:
                self._go(member)

    @property
    def is_somebody_there(self) -> bool:
        """Whether a reader is present."""
        return any(member.until_ms is not None for member in self._members)

    @property
    def is_settled(self) -> bool:
        """Whether every replica knows all acknowledgements."""
        return not any(member.untold for member in self._members)

    def _come(self, member: _Member) -> None:
        names = self._cluster.names
        replica = names[member.visits % len(names)]
        member.known = self._known_to_be_acknowledged(member)
        member.application = self._cluster.come(self._name, self._settings.quorum, member.name, replica)
        for writer in self._writers:
            self._cluster.listen(member.application, writer)
        member.until_ms = self._cluster.now_ms + self._stay_ms
        member.visits += 1

    def _acknowledge(self, member: _Member) -> None:
        reader = self._reader(member)
        ids = {(each.writer, each.sequence) for each in reader.taken[reader.acknowledged :]}
        if ids:
            self._cluster.acknowledge(member.application, len(ids))
            member.untold.append(_Untold(ids, self._cluster.now_ms))

    def _go(self, member: _Member) -> None:
        taken = [(each.writer, each.sequence) for each in self._reader(member).taken]
        self._taken += len(taken)
        self._again += sum(each in member.had and each not in member.known for each in taken)
        self._twice += len(member.known.intersection(taken)) + len(taken) - len(set(taken))
        member.had.update(taken)
        self._cluster.leave(member.application)
        member.until_ms = None
        member.returns_ms = self._cluster.now_ms + self._away_ms

    def _reader(self, member: _Member) -> RehearsedReader:
        return self._cluster.applications[member.application]

    # Knowledge of replicas.

    def _look_who_knows(self, member: _Member) -> None:
        """Drop acknowledgements of a member that all replicas know, or that none knows any more."""
        stocks = self._cluster.stocks.values()
        for untold in member.untold:
            is_heard = member.until_ms is None or self._cluster.now_ms - untold.since_ms > _LAST_MOMENTS_MS
            for id_ in list(untold.ids):
                knowing = sum(stock.has(self._name, member.name, *id_) for stock in stocks)
                if knowing == len(stocks) or (is_heard and not knowing):
                    untold.ids.discard(id_)
                if knowing == len(stocks):
                    self._longest_ms = max(self._longest_ms, self._cluster.now_ms - untold.since_ms)
        member.untold = [untold for untold in member.untold if untold.ids]

    def _known_to_be_acknowledged(self, member: _Member) -> frozenset[Id]:
        stocks = self._cluster.stocks.values()
        return frozenset(
            id_ for id_ in member.had if any(stock.has(self._name, member.name, *id_) for stock in stocks)
        )

    def _kept(self) -> dict[str, int]:
        return {
            name: status.pending
            for name, stock in sorted(self._cluster.stocks.items())
            for status in stock.status()
            if status.name == self._name
        }

    # The end.

    def result(self) -> SubscriptionResult:
        """Return the outcome."""
        states = [
            [state for state in stock.saved().ledgers if state.name == self._name]
            for stock in self._cluster.stocks.values()
        ]
        reached = {(writer, number) for _, writer, number in self._cluster.arrivals}
        return SubscriptionResult(
            name=self._settings.name,
            topic=self._settings.topic,
            quorum=self._settings.quorum,
            visits=sum(member.visits for member in self._members),
            taken=self._taken,
            kept=self._kept(),
            most_kept=self._most_kept,
            agreed=all(state == states[0] for state in states),
            agreed_after_ms=self._longest_ms,
            again=self._again,
            twice=self._twice,
            lost=sum(any(id_ not in member.had for member in self._members) for id_ in reached),
        )


def _pass_time(cluster: SubscribedCluster, visits: Sequence[Visits], milliseconds: int) -> None:
    """Run the cluster for `milliseconds` while readers come and go."""
    end_ms = cluster.now_ms + milliseconds
    while cluster.now_ms < end_ms:
        cluster.run(min(STEP_MS, end_ms - cluster.now_ms))
        for each in visits:
            each.step()


def _finish(cluster: SubscribedCluster, visits: Sequence[Visits]) -> None:
    """Let every reader visit every replica once more, then run until all replicas know all of it."""

    def step() -> None:
        cluster.run(STEP_MS)
        for each in visits:
            each.step(comes=False)

    for each in visits:
        each.go_all()
    for _ in cluster.names:
        for each in visits:
            each.come_all()
        while any(each.is_somebody_there for each in visits):
            step()
    until_ms = cluster.now_ms + _PATIENCE_PERIODS * cluster.settings.subscription_period_ms + _MARGIN_MS
    while cluster.now_ms < until_ms and not all(each.is_settled for each in visits):
        step()


def _subscription_lines(results: Iterable[SubscriptionResult]) -> Iterator[str]:
    for each in results:
        kept = ", ".join(f"{name} {count}" for name, count in each.kept.items())
        agreement = (
            f"all agree on what is acknowledged, after {each.agreed_after_ms / 1000:.1f} s at most"
            if each.agreed
            else "they do not agree on what is acknowledged"
        )
        yield (
            f"durable subscription {each.name} of {each.topic}, quorum {each.quorum}: {each.visits} visits, "
            f"{each.taken} samples taken, {each.again} of them again because not acknowledged, "
            f"{each.twice} delivered twice, {each.lost} lost\n"
            f"  kept at the end: {kept} (at most {each.most_kept}); {agreement}\n"
        )


FAULTS = ("none", "lose", "oscillate")
MAX_READERS = 50
"""Readers of durable subscriptions that can be rehearsed: the sum of all quorums."""
_WRITERS = ("w0", "w1")
_KEYS = 20


@lazy_dataclass(frozen=True, slots=True)
class Rehearsal:
    """The outcome of a rehearsal.

    Attributes:
        changes: each change of providers, in order of time.
        cluster: the replicas at the end.
        subscriptions: the outcome for each durable subscription of the configuration.
    """

    changes: list[dict[str, object]]
    cluster: ReplicaCluster
    subscriptions: tuple[SubscriptionResult, ...]

    @property
    def is_good(self) -> bool:
        """Whether all replicas keep the same, and readers of durable subscriptions got everything once."""
        return self.cluster.has_converged and all(each.is_good for each in self.subscriptions)


def rehearse(service: PersistenceService, replicas: int, fault: str, periods: int, seed: int) -> Rehearsal:
    """Let two writers write to one replica each in every period; then they stop, and all links heal.

    Readers of the durable subscriptions of the configuration come and go (`Visits`).

    Args:
        service: the configuration.
        replicas: how many, from 2.
        fault: one of `FAULTS`.
        periods: selection periods in which the writers write.
        seed: of delays and phases.

    Raises:
        ValueError: the quorums need more than `MAX_READERS` readers.
    """
    readers = sum(each.quorum for each in service.subscriptions)
    if readers > MAX_READERS:
        raise ValueError(
            f"the durable subscriptions need {readers} readers for their quorums; "
            f"at most {MAX_READERS} can be rehearsed"
        )
    settings = service.synchronization
    cluster = SubscribedCluster(replicas, seed, settings)
    visiting = [
        Visits(cluster, subscription, number, _WRITERS)
        for number, subscription in enumerate(service.subscriptions)
    ]
    for number, writer in enumerate(_WRITERS):
        cluster.attach(writer, f"i{number}")
    changes: list[dict[str, object]] = []
    shown: dict[tuple[str, str], str] = {}
    for number in range(periods):
        _fault(cluster, fault, number, periods)
        for _ in range(5):
            for writer in _WRITERS:
                cluster.publish(writer, b"%d" % (sum(cluster.written.values()) * 7 % _KEYS))
            _pass_time(cluster, visiting, settings.period_ms // 5 or 1)
        changes += _changes(cluster, shown)
    cluster.heal()
    for _ in range(10 + 4 * settings.max_change_periods):
        _pass_time(cluster, visiting, settings.period_ms)
        changes += _changes(cluster, shown)
    _finish(cluster, visiting)
    return Rehearsal(changes, cluster, tuple(each.result() for each in visiting))


def _fault(cluster: ReplicaCluster, fault: str, number: int, periods: int) -> None:
    """Lose i1 half-way and connect its writer to the last replica, or cut and join one link in turn."""
    if fault == "lose" and number == periods // 2 and len(cluster.replicas) > 1:
        cluster.lose("i1")
        cluster.attach("w1", cluster.names[-1])
    elif fault == "oscillate":
        (cluster.cut if number % 2 else cluster.join)("i0", cluster.names[-1])


def _changes(cluster: ReplicaCluster, shown: dict[tuple[str, str], str]) -> Iterator[dict[str, object]]:
    for name in cluster.names:
        for writer in _WRITERS:
            providers = cluster.replicas[name].providers(writer)
            text = "the writer" if providers.live == "*" else providers.live or "nobody"
            text += f", filled by {', '.join(sorted(providers.filling))}" if providers.filling else ""
            if shown.get((name, writer), "nobody") != text:
                shown[name, writer] = text
                lag_ns = cluster.replicas[name].lag_ns(writer)
                yield {
                    "time_ms": cluster.now_ms,
                    "replica": name,
                    "writer": writer,
                    "providers": text,
                    "lag_ns": lag_ns,
                }


def summary(rehearsal: Rehearsal) -> dict[str, object]:
    """Return the outcome for JSON."""
    cluster = rehearsal.cluster
    return {
        "changes": rehearsal.changes,
        "converged": cluster.has_converged,
        "written": sum(cluster.written.values()),
        "dds_instances": len(cluster.last_values()),
        "between_replicas": cluster.payloads_between,
        "counters": {name: dict(sorted(cluster.replicas[name].counters.items())) for name in cluster.names},
        "durable_subscriptions": rehearsal.subscriptions,
    }


def lines(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the outcome as text."""
    cluster = rehearsal.cluster
    for each in rehearsal.changes:
        yield (
            f"{int(str(each['time_ms'])) / 1000:9.1f} s  {each['replica']}: {each['writer']} comes from "
            f"{each['providers']} (lag {int(str(each['lag_ns'])) / 1e9:.1f} s)\n"
        )
    for name in cluster.names:
        counted = ", ".join(
            f"{key} {count}" for key, count in sorted(cluster.replicas[name].counters.items())
        )
        yield f"{name}: {counted}\n"
    yield from _subscription_lines(rehearsal.subscriptions)
    end = "all keep the same" if cluster.has_converged else "they do not keep the same"
    yield (
        f"{sum(cluster.written.values())} samples written, {cluster.payloads_between} sent between "
        f"{len(cluster.replicas)} replicas: {end}, {len(cluster.last_values())} values\n"
    )
