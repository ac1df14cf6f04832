"""Readers of durable subscriptions that come and go in a rehearsal, and what became of each subscription.

A durable subscription has as many members as its quorum asks for. Each comes, takes and acknowledges, and
goes. On each visit it reaches one replica only, the next one, so that the others must hear of it from that
one. It does not acknowledge what it takes in the last moments of a visit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.config.persistence import DurableSubscriptionSettings
from engine.simulator.rehearsal.subscribed import Id, RehearsedReader, SubscribedCluster

STEP_MS: Final = 100
"""Interval at which the knowledge of replicas is compared: the precision of the times."""
_LAST_MOMENTS_MS: Final = 500
_MARGIN_MS: Final = 1_000
_PATIENCE_PERIODS: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
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


@dataclasses.dataclass(slots=True)
class _Untold:
    """Acknowledgements of a member that some replica does not know yet."""

    ids: set[Id]
    since_ms: int


@dataclasses.dataclass(eq=False)
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


def pass_time(cluster: SubscribedCluster, visits: Sequence[Visits], milliseconds: int) -> None:
    """Run the cluster for `milliseconds` while readers come and go."""
    end_ms = cluster.now_ms + milliseconds
    while cluster.now_ms < end_ms:
        cluster.run(min(STEP_MS, end_ms - cluster.now_ms))
        for each in visits:
            each.step()


def finish(cluster: SubscribedCluster, visits: Sequence[Visits]) -> None:
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


def lines(results: Iterable[SubscriptionResult]) -> Iterator[str]:
    """Yield the outcomes as text."""
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
