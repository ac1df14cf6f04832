"""The rehearsal of persistence services: replicas, writers, links and readers, all under virtual time.

Two writers write, a fault happens, readers of durable subscriptions come and go, and `rehearse` returns
the outcome. Everything is in one thread, and equal seeds give equal runs: who draws a random number in
another order changes what a seed means.

`engine.simulator.schedule` gives the time. `engine.simulator.network` does not fit: it holds messages back on
a cut link, while a link between replicas that goes down loses them.

A `ReplicaCluster` checks every step: no last value becomes older, and a replica forgets a sample only when
the quorum of each durable subscription has acknowledged it.
"""

from __future__ import annotations

import collections
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypedDict

import msgspec

from engine.config.persistence import DurableSubscriptionSettings, PersistenceService
from engine.dataset.sample import DATA
from engine.persistence.core.messages import (
    Message,
    OriginalSample,
    SampleBatch,
    Saved,
    SavedSubscriptions,
    SubscriberAnswer,
    SubscriberState,
)
from engine.persistence.core.positions import Positions, position_of
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import Replica
from engine.persistence.core.subscriber import Subscriber
from engine.persistence.core.subscriptions import ReaderAnswers, Subscriptions
from engine.simulator.schedule import Schedule

# Far below a period (5 s by default): the rehearsal is of decisions, not of slow networks.
LINK_DELAY_MS = 200
"""Longest time that a message between replicas is on its way."""
_WRITER_DELAY_MS = 50
CLIENT_DELAY_MS: Final = 50
"""Longest time that a message between an application and a writer or replica is on its way."""
_TURN_MS: Final = 100
"""Interval at which an application looks after its reader."""

Id = tuple[str, int]


class RehearsedLink(msgspec.Struct, eq=False, dict=True):
    """Both directions between two replicas; messages on the way are lost when it goes down.

    Attributes:
        up: whether messages arrive.
        generation: how often it came up or went down.
    """

    up: bool = False
    generation: int = 0


class RehearsedReader(msgspec.Struct, eq=False, dict=True):
    """An application with one reader of a durable subscription."""

    deciding: Subscriber
    """Its decisions."""
    replicas: set[str] = msgspec.field(default_factory=set)
    """Names of the replicas that it is connected to."""
    writers: set[str] = msgspec.field(default_factory=set)
    """Original writers that it is connected to."""
    waiting: list[OriginalSample] = msgspec.field(default_factory=list)
    """Samples that came before the pending ones were complete."""
    taken: list[OriginalSample] = msgspec.field(default_factory=list)
    """Samples that the application took, in order."""
    acknowledged: int = 0
    """How many of `taken` it has acknowledged."""
    sent: list[Id] = msgspec.field(default_factory=list)
    """Samples that replicas sent to it."""
    is_there: bool = True
    """Whether it runs; it never starts again under its name."""


class ReplicaCluster:
    """Replicas named i0, i1 and so on, all connected, and applications with durable subscriptions.

    Args:
        count: how many replicas.
        seed: of delays and phases.
        settings: of every replica.

    Attributes:
        replicas: the last values of each replica, by name.
        stocks: the durable subscriptions of each replica.
        reader_answers: the side of each replica to which readers talk.
        links: by the names of both replicas.
        direct: (writer, replica) pairs that are connected.
        written: samples written, by writer.
        arrivals: how often (replica, writer, sequence number) arrived since the replica started.
        payloads_between: samples that arrived from other replicas.
        applications: by a name that is never used again.
        issued: members that have acknowledged a sample, by (subscription, writer, number).
    """

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self._random = random.Random(seed)
        self._schedule = Schedule()
        self.settings = settings
        self.replicas: dict[str, Replica] = {}
        self.stocks: dict[str, Subscriptions] = {}
        self.reader_answers: dict[str, ReaderAnswers] = {}
        self.links: dict[frozenset[str], RehearsedLink] = {}
        self.direct: set[tuple[str, str]] = set()
        self.written: dict[str, int] = collections.defaultdict(int)
        self.arrivals: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self.payloads_between = 0
        self.applications: dict[str, RehearsedReader] = {}
        self.issued: dict[tuple[str, str, int], set[str]] = collections.defaultdict(set)
        self._order: dict[tuple[str, str], int] = {}
        self._matches: dict[tuple[str, str], Positions] = {}
        for number in range(count):
            self.start(f"i{number}")
        for pair in itertools.combinations(sorted(self.replicas), 2):
            self.links[frozenset(pair)] = RehearsedLink()
            self.join(*pair)

    @property
    def names(self) -> list[str]:
        """The replicas that run."""
        return sorted(self.replicas)

    # Time.

    @property
    def now_ms(self) -> int:
        """Virtual time since the beginning."""
        return round(self._schedule.now * 1000)

    def _after(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None:
        self._schedule.at((self.now_ms + delay_ms) / 1000, action, *arguments)

    def _in_order(self, line: tuple[str, str], delay_ms: int, arrive: Callable[[], None]) -> None:
        """Let something arrive within `delay_ms`, but not before earlier arrivals of the same line."""
        due_ms = max(self.now_ms + self._random.randrange(1, delay_ms), self._order.get(line, 0))
        self._order[line] = due_ms
        self._after(due_ms - self.now_ms, arrive)

    def run(self, milliseconds: int) -> None:
        """Carry out everything that is due in the next `milliseconds`."""
        self._schedule.run_until((self.now_ms + milliseconds) / 1000)

    # Replicas.

    def start(
        self, name: str, saved: Saved | None = None, subscriptions: SavedSubscriptions | None = None
    ) -> None:
        """Start a replica, empty or with what one of its name has saved; it is connected to no other."""
        replica = self.replicas[name] = Replica(name, self.settings, saved)
        stock = self.stocks[name] = Subscriptions(
            name, self.settings, lambda: replica.values().values(), subscriptions
        )
        self.reader_answers[name] = ReaderAnswers(name, lambda _: (stock,))
        period_ms, subscription_period_ms = self.settings.period_ms, self.settings.subscription_period_ms

        def end_period() -> None:
            if self.replicas.get(name) is replica:
                replica.period()
                self._flush(name)
                self._after(period_ms, end_period)

        def synchronize() -> None:
            if self.stocks.get(name) is stock:
                self._at_stock(name, stock.period)
                self._after(subscription_period_ms, synchronize)

        self._after(self._random.randrange(period_ms), end_period)
        self._after(self._random.randrange(subscription_period_ms), synchronize)

    def lose(self, name: str) -> None:
        """Take a replica and its disk away for ever."""
        for other in list(self.replicas):
            if other != name:
                self.cut(name, other)
        self.direct = {each for each in self.direct if each[1] != name}
        for arrival in [each for each in self.arrivals if each[0] == name]:
            del self.arrivals[arrival]
        del self.replicas[name], self.stocks[name], self.reader_answers[name]
        for application in self.applications.values():
            application.replicas.discard(name)

    # Links between replicas.

    def join(self, one: str, other: str) -> None:
        """Connect two replicas."""
        link = self.links[frozenset((one, other))]
        if link.up or not {one, other} <= self.replicas.keys():
            return
        link.up = True
        link.generation += 1
        for here, there in ((one, other), (other, one)):
            self.replicas[here].connected(there)
            self._flush(here)
        for here, there in ((one, other), (other, one)):
            self._at_stock(here, functools.partial(self.stocks[here].connected, there))

    def cut(self, one: str, other: str) -> None:
        """Disconnect two replicas; messages on the way are lost."""
        link = self.links[frozenset((one, other))]
        if not link.up:
            return
        link.up = False
        link.generation += 1
        for here, there in ((one, other), (other, one)):
            self.replicas[here].disconnected(there)
            self._flush(here)
            self.stocks[here].disconnected(there)

    def _over_link(self, kind: str, sender: str, receiver: str, arrive: Callable[[], None]) -> None:
        """Let a message arrive, in the order of its kind, unless the link goes down before."""
        link = self.links[frozenset((sender, receiver))]
        generation = link.generation

        def arrive_if_up() -> None:
            if link.generation == generation and receiver in self.replicas:
                arrive()

        if link.up:
            self._in_order((f"{kind}{sender}", receiver), LINK_DELAY_MS, arrive_if_up)

    def _flush(self, name: str) -> None:
        """Send the messages of a replica."""
        for receiver, message in self.replicas[name].messages():
            self._over_link("", name, receiver, functools.partial(self._receive, name, receiver, message))

    def _receive(self, sender: str, receiver: str, message: Message) -> None:
        if isinstance(message, SampleBatch):
            self.payloads_between += len(message.samples)
            self.arrivals.update((receiver, k.sample.writer, k.sample.sequence) for k in message.samples)
            for kept in message.samples:
                self._at_stock(receiver, functools.partial(self.stocks[receiver].sample_arrived, kept.sample))
        self._at_replica(receiver, lambda: self.replicas[receiver].receive(sender, message))

    def _at_replica(self, name: str, act: Callable[[], None]) -> None:
        """Let a replica do something, and check that no last value becomes older by it."""
        before = self.replicas[name].values()
        act()
        after = self.replicas[name].values()
        assert all(after[key].order >= sample.order for key, sample in before.items())
        self._flush(name)

    def _at_stock(self, name: str, act: Callable[[], object]) -> None:
        """Let a replica do something, and check that it forgets only what is acknowledged."""
        stock = self.stocks[name]
        before = stock.held()
        act()
        for writer, number in before - stock.held():
            for each in stock.status():
                acknowledged = len(self.issued[each.name, writer, number])
                assert acknowledged >= each.quorum, (name, each.name, writer, number)
        for receiver, message in stock.messages():
            receive = functools.partial(self.stocks[receiver].receive, name, message)
            self._over_link("stock ", name, receiver, functools.partial(self._at_stock, receiver, receive))

    # Original writers.

    def attach(self, writer: str, *names: str) -> None:
        """Connect an original writer to replicas."""
        for name in names:
            self.direct.add((writer, name))
            self._matches[writer, name] = Positions()
            self.replicas[name].writer_matched(writer)
            self._flush(name)

    def write(self, writer: str, key: bytes, time_ns: int | None = None) -> OriginalSample:
        """Let an original writer write to replicas and applications.

        `time_ns` is the source timestamp, by default the virtual time.
        """
        self.written[writer] += 1
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        payload = f"{writer}/{self.written[writer]}".encode()
        for source, name in sorted(self.direct):
            if source == writer and name in self.replicas:
                self._deliver(name, writer, key, stamp, payload)
        sample = OriginalSample(writer, position_of(key, stamp, DATA, payload), key, stamp, payload)
        for name, state in self.applications.items():
            if state.is_there and writer in state.writers:
                hear = functools.partial(self._hear_samples, name, [sample])
                self._in_order((writer, name), CLIENT_DELAY_MS, hear)
        return sample

    def _deliver(self, name: str, writer: str, key: bytes, stamp: int, payload: bytes) -> None:
        replica, match = self.replicas[name], self._matches[writer, name]

        def arrive() -> None:
            if self.replicas.get(name) is replica:
                sample = match.sample(writer, key, stamp, DATA, payload)
                self.arrivals[name, writer, sample.sequence] += 1
                self._at_stock(name, lambda: self.stocks[name].sample_arrived(sample))
                self._at_replica(name, lambda: replica.samples_arrived([sample]))

        self._in_order((writer, name), _WRITER_DELAY_MS, arrive)

    # Durable subscriptions, and applications that read with them.

    def register(self, name: str, subscription: str, quorum: int) -> None:
        """Create a durable subscription at the replica `name`, as its configuration does.

        A sample that `quorum` of its readers have acknowledged is done.
        """
        self._at_stock(name, lambda: self.stocks[name].register(subscription, quorum))

    def come(self, subscription: str, quorum: int, member: str, *replicas: str) -> str:
        """Start an application with a durable subscription, connected to `replicas`; return its name.

        Its `member` name is part of the subscription, in which `quorum` members must acknowledge a sample.
        """
        name = f"a{len(self.applications)}"
        period_s = self.settings.subscription_period_ms / 1000
        deciding = Subscriber("T", (), subscription, quorum, member, period_s)
        self.applications[name] = RehearsedReader(deciding, set(replicas))
        self._after(1, self._turn, name)
        return name

    def part(self, application: str, replica: str) -> None:
        """Disconnect an application from a replica."""
        self.applications[application].replicas.discard(replica)
        self.reader_answers[replica].left(application)

    def leave(self, application: str) -> None:
        """Kill an application; acknowledgements that no replica has heard are lost."""
        for replica in list(self.applications[application].replicas):
            self.part(application, replica)
        self.applications[application].is_there = False

    def listen(self, application: str, writer: str) -> None:
        """Connect an application to an original writer."""
        self.applications[application].writers.add(writer)

    def acknowledge(self, application: str, count: int) -> None:
        """Let an application acknowledge the next `count` samples that it has taken."""
        state = self.applications[application]
        samples = state.taken[state.acknowledged : state.acknowledged + count]
        state.acknowledged += len(samples)
        for sample in samples:
            subscription = state.deciding.name
            self.issued[subscription, sample.writer, sample.sequence].add(state.deciding.member)
        state.deciding.acknowledge((sample.writer, sample.sequence) for sample in samples)

    def _turn(self, name: str) -> None:
        state = self.applications[name]
        if not state.is_there:
            return
        now = self.now_ms / 1000
        state.deciding.present(state.replicas, now)
        news = state.deciding.turn(now)
        if news is not None:
            for replica in sorted(state.replicas):
                hear = functools.partial(self._hear_state, replica, name, news)
                self._between(name, replica, (name, replica), hear)
        self._after(_TURN_MS, self._turn, name)

    def _between(self, name: str, replica: str, line: tuple[str, str], arrive: Callable[[], None]) -> None:
        """Let a message between an application and a replica arrive, unless they part before."""
        state, reader_answers = self.applications[name], self.reader_answers[replica]

        def arrive_if_connected() -> None:
            if self.reader_answers.get(replica) is reader_answers and replica in state.replicas:
                arrive()

        self._in_order(line, CLIENT_DELAY_MS, arrive_if_connected)

    def _hear_state(self, replica: str, name: str, news: SubscriberState) -> None:
        answers: list[SubscriberAnswer] = []
        self._at_stock(replica, lambda: answers.extend(self.reader_answers[replica].heard(name, news)))
        for answer in answers:
            hear = functools.partial(self._hear_answer, replica, name, answer)
            self._between(name, replica, (replica, name), hear)

    def _hear_answer(self, replica: str, name: str, answer: SubscriberAnswer) -> None:
        state = self.applications[name]
        state.sent.extend((sample.writer, sample.sequence) for sample in answer.samples)
        self._hear_samples(name, answer.samples)
        state.deciding.answer(replica, answer, self.now_ms / 1000)
        self._hear_samples(name, ())  # the pending samples may be complete now

    def _hear_samples(self, name: str, samples: Iterable[OriginalSample]) -> None:
        state = self.applications[name]
        if not state.is_there:
            return
        state.waiting += [each for each in samples if state.deciding.arrived(each.writer, each.sequence)]
        if state.deciding.is_complete:
            # What waited came from several replicas; the reader gives it in order of source time.
            state.taken += sorted(state.waiting, key=lambda each: each.order)
            state.waiting.clear()

    # The end.

    def heal(self) -> None:
        """Connect all replicas."""
        for one, other in itertools.combinations(self.names, 2):
            self.join(one, other)

    def last_values(self) -> dict[bytes, OriginalSample]:
        """Return the latest sample of each instance that any replica has: all must end with these."""
        latest: dict[bytes, OriginalSample] = {}
        for replica in self.replicas.values():
            for key, sample in replica.values().items():
                if key not in latest or sample.order > latest[key].order:
                    latest[key] = sample
        return latest

    @property
    def has_converged(self) -> bool:
        """Whether all replicas keep the same, the latest of everything."""
        wanted = self.last_values()
        return all(each.values() == wanted for each in self.replicas.values())


STEP_MS: Final = 100
"""Interval at which the knowledge of replicas is compared: the precision of the times."""
_LAST_MOMENTS_MS: Final = 500
"""Before a reader goes: what it acknowledges then may not reach its replica, and is not done."""
_MARGIN_MS: Final = 1_000
"""Beyond periods of a setting, for messages that are on their way."""
_PATIENCE_PERIODS: Final = 10
"""Periods for the last acknowledgements to reach all replicas; each passes on in one."""


class ProviderChange(TypedDict):
    """From whom a replica begins to take a writer's samples."""

    time_ms: int
    replica: str
    writer: str
    providers: str
    lag_ns: int


class SubscriptionResult(msgspec.Struct, frozen=True):
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


class _Member(msgspec.Struct, eq=False, dict=True):
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
    had: set[Id] = msgspec.field(default_factory=set)
    """All samples that it took on earlier visits."""
    unknown: list[tuple[set[Id], int]] = msgspec.field(default_factory=list)
    """Its acknowledgements that some replica does not know yet, each lot with its time, milliseconds."""


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
        cluster: ReplicaCluster,
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
            self._drop_known(member)
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
        return not any(member.unknown for member in self._members)

    def _come(self, member: _Member) -> None:
        names = self._cluster.names
        replica = names[member.visits % len(names)]
        stocks = self._cluster.stocks.values()
        member.known = frozenset(
            id_ for id_ in member.had if any(stock.has(self._name, member.name, *id_) for stock in stocks)
        )
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
            member.unknown.append((ids, self._cluster.now_ms))

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

    def _drop_known(self, member: _Member) -> None:
        """Drop acknowledgements of a member that all replicas know, or that none knows any more."""
        stocks = self._cluster.stocks.values()
        for ids, since_ms in member.unknown:
            age_ms = self._cluster.now_ms - since_ms
            is_heard = member.until_ms is None or age_ms > _LAST_MOMENTS_MS
            for id_ in list(ids):
                knowing = sum(stock.has(self._name, member.name, *id_) for stock in stocks)
                if knowing == len(stocks) or (is_heard and not knowing):
                    ids.discard(id_)
                if knowing == len(stocks):
                    self._longest_ms = max(self._longest_ms, age_ms)
        member.unknown = [lot for lot in member.unknown if lot[0]]

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


def _pass_time(cluster: ReplicaCluster, visits: Sequence[Visits], milliseconds: int) -> None:
    """Run the cluster for `milliseconds` while readers come and go."""
    end_ms = cluster.now_ms + milliseconds
    while cluster.now_ms < end_ms:
        cluster.run(min(STEP_MS, end_ms - cluster.now_ms))
        for each in visits:
            each.step()


def _finish(cluster: ReplicaCluster, visits: Sequence[Visits]) -> None:
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
# Chosen: an answer of a command within seconds.
MAX_READERS = 50
"""Readers of durable subscriptions that can be rehearsed: the sum of all quorums."""
_WRITERS = ("w0", "w1")
_KEYS = 20


class Rehearsal(msgspec.Struct, frozen=True):
    """The outcome of a rehearsal.

    Attributes:
        changes: each change of providers, in order of time.
        cluster: the replicas at the end.
        subscriptions: the outcome for each durable subscription of the configuration.
    """

    changes: list[ProviderChange]
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
    cluster = ReplicaCluster(replicas, seed, settings)
    visiting = [
        Visits(cluster, subscription, number, _WRITERS)
        for number, subscription in enumerate(service.subscriptions)
    ]
    for number, writer in enumerate(_WRITERS):
        cluster.attach(writer, f"i{number}")
    changes: list[ProviderChange] = []
    shown: dict[tuple[str, str], str] = {}
    for number in range(periods):
        _fault(cluster, fault, number, periods)
        # Five writes in each period, one each fifth, so that every evaluation of providers sees progress.
        for _ in range(5):
            for writer in _WRITERS:
                cluster.write(writer, b"%d" % (sum(cluster.written.values()) * 7 % _KEYS))
            _pass_time(cluster, visiting, settings.period_ms // 5 or 1)
        changes += _changes(cluster, shown)
    cluster.heal()
    # Long enough for each change to settle, one after the other, and some for what it starts.
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


def _changes(cluster: ReplicaCluster, shown: dict[tuple[str, str], str]) -> Iterator[ProviderChange]:
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


class RehearsalData(TypedDict):
    """The outcome of a rehearsal, for JSON."""

    changes: list[ProviderChange]
    converged: bool
    written: int
    dds_instances: int
    between_replicas: int
    counters: dict[str, dict[str, int]]
    durable_subscriptions: tuple[SubscriptionResult, ...]


def summary(rehearsal: Rehearsal) -> RehearsalData:
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
            f"{each['time_ms'] / 1000:9.1f} s  {each['replica']}: {each['writer']} comes from "
            f"{each['providers']} (lag {each['lag_ns'] / 1e9:.1f} s)\n"
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
