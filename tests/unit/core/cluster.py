"""Cores over a perfect network with a little delay, with sets of numbers as data."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import heapq
import math
from collections.abc import Callable

from engine.core import events
from engine.core.messages import NO_EPOCH, Deliveries, Epoch, Message, NameSpaces, ReaderKey, Status
from engine.core.name_spaces import Alignee, Element, MergeRule, MergeType, NameSpace, Policy
from engine.core.node import DurabilityNode
from engine.core.settings import CoreSettings, StoredSet
from engine.core.states import Phase

DELAY_S = 0.001
NS = "all"
WALL_NS = 1_800_000_000_000_000_000
"""What time it is when a cluster's clock starts."""


def digest_of(values: set[int]) -> int:
    """A sum of which no two sets have the same in practice."""
    each = (hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in values)
    return sum(map(int.from_bytes, each))


@dataclasses.dataclass
class Member:
    """One node with its data, as a runtime would hold it."""

    core: DurabilityNode
    working: set[int]
    stored: set[int]
    loading: set[int]
    served: list[ReaderKey]
    given_up: list[str]
    notes: list[tuple[str, dict[str, object]]]
    latest: dict[type, Message] = dataclasses.field(default_factory=dict)


class Cluster:
    """Cores under virtual time.

    Attributes:
        cut: pairs that have lost each other.
        silent: pairs that stay attached but do not get each other's messages.
        stalled: nodes that stand still, with the messages that wait for them.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.members: dict[str, Member] = {}
        self.cut: set[frozenset[str]] = set()
        self.silent: set[frozenset[str]] = set()
        self.stalled: dict[str, list[tuple[Message, str]]] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def start(
        self,
        node: str,
        *,
        priority: int = 255,
        merge: MergeType = MergeType.MERGE,
        stored: set[int] | None = None,
        quality: int = 0,
        lineage: Epoch = NO_EPOCH,
        line: tuple[Epoch, ...] = (NO_EPOCH,),
        apart: bool = False,
        away: dict[str, int] | None = None,
        incarnation: int = 1,
        remembered: frozenset[str] = frozenset(),
        name_spaces: tuple[NameSpace, ...] = (NameSpace.parse(NS, "*.*"),),
        aligner: bool = True,
        discovery_s: float = 0.5,
        election_wait_s: float = 0.0,
        role: str = "r",
        merges: tuple[MergeRule, ...] | None = None,
        delayed: bool | None = None,
        alignee: Alignee = Alignee.INITIAL,
        waits: bool = True,
        filtered: tuple[tuple[Element, str], ...] = (),
        host: str = "h",
    ) -> Member:
        settings = CoreSettings(
            node=node,
            incarnation=incarnation,
            name=node,
            role=role,
            host=host,
            name_spaces=name_spaces,
            policies=(
                Policy(
                    "*",
                    aligner=aligner,
                    alignee=alignee,
                    delayed_alignment=delayed,
                    master_priority=priority,
                    merges=(MergeRule(merge, "*"),) if merges is None else merges,
                ),
            ),
            heartbeat_expiry_s=2.0,
            heartbeat_period_s=0.5,
            initial_discovery_s=discovery_s,
            election_wait_s=election_wait_s,
            combine_initial_s=0.05,
            waits_for_aligner=waits,
            remembered=remembered,
            away=away or {},
            filtered=filtered,
            stored={NS: StoredSet(quality, lineage, line, apart)},
        )
        core = DurabilityNode(settings, self.now, wall_ns=WALL_NS + int(self.now * 1e9))
        member = Member(core, set(), set(stored or ()), set(), [], [], [])
        self.members[node] = member
        for other in self.members:
            if other != node and not self.is_cut(node, other):
                self.after(0.02, functools.partial(self._attach, node, other))
        self._turn(node)
        return member

    def kill(self, node: str) -> None:
        del self.members[node]
        for other in sorted(self.members):
            self.members[other].core.fellow_detached(node, self.now)
            self._turn(other)

    def is_cut(self, a: str, b: str) -> bool:
        return frozenset((a, b)) in self.cut

    def split(self, left: str, right: str) -> None:
        for a in left.split():
            for b in right.split():
                self.cut.add(frozenset((a, b)))
                for x, y in ((a, b), (b, a)):
                    self.members[x].core.fellow_detached(y, self.now)
                    self._turn(x)

    def heal(self) -> None:
        cut, self.cut = self.cut, set()
        for pair in sorted(cut, key=sorted):
            a, b = sorted(pair)
            self._attach(a, b)

    def _attach(self, a: str, b: str) -> None:
        if a in self.members and b in self.members and not self.is_cut(a, b):
            self.members[a].core.fellow_attached(b, self.now)
            self.members[b].core.fellow_attached(a, self.now)
            self._turn(a)
            self._turn(b)
            for sender, to in ((a, b), (b, a)):  # state topics are TRANSIENT_LOCAL
                for message in self.members[sender].latest.values():
                    self._send(sender, to, message)

    def _send(self, sender: str, to: str, message: Message) -> None:
        self.after(DELAY_S, lambda: self._deliver(sender, to, message))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay, self._count, action))

    def write(self, value: int, *nodes: str) -> None:
        for node in nodes or tuple(self.members):
            self.members[node].working.add(value)
            self._turn(node)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            timers = [
                (m.core.next_timer(), node) for node, m in self.members.items() if node not in self.stalled
            ]
            when, node = min(timers, default=(math.inf, ""))
            if self._queue and self._queue[0][0] <= when:
                due, _, action = heapq.heappop(self._queue)
                if due > end:
                    heapq.heappush(self._queue, (due, 0, action))
                    break
                self.now = max(self.now, due)
                action()
            elif when <= end:
                self.now = max(self.now, when)
                self.members[node].core.handle_timer(self.now)
                self._turn(node)
            else:
                break
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds: float = 30.0, step_s: float = 0.01) -> float:
        start = self.now
        while not condition():
            assert self.now - start < seconds, self.describe()
            self.run(step_s)
        return self.now - start

    def describe(self) -> str:
        return "; ".join(f"{n}: {self.phase(n)} follows {self.master(n)}" for n in sorted(self.members))

    def phase(self, node: str) -> Phase:
        return self.members[node].core.name_spaces[0].phase

    def master(self, node: str) -> str:
        following = self.members[node].core.name_spaces[0].following
        return following.node if following else ""

    def settled(self) -> bool:
        """All complete, in one lineage, with one master, and nothing differs."""
        states = [member.core.name_spaces[0] for member in self.members.values()]
        return (
            all(state.phase is Phase.COMPLETE for state in states)
            and None not in (following := {state.following for state in states})
            and len(following) == 1
            and len({state.lineage for state in states}) == 1
        )

    def _turn(self, node: str) -> None:
        member = self.members[node]
        core = member.core
        for state in core.name_spaces:
            if state.name == NS:
                core.roll_up(NS, len(member.working), digest_of(member.working))
        while (event := core.next_event()) is not None:
            self._carry_out(node, member, event)
        for outgoing in core.messages_to_send(self.now):
            if isinstance(outgoing.message, Status | NameSpaces | Deliveries):
                member.latest[type(outgoing.message)] = outgoing.message
            for other in sorted(self.members):
                if other != node and (not outgoing.to or other in outgoing.to):
                    self._send(node, other, outgoing.message)

    def stall(self, node: str) -> None:
        """A node stands still; what is sent to it waits."""
        self.stalled[node] = []

    def go_on(self, node: str) -> None:
        """It takes in what has waited, and goes on."""
        core = self.members[node].core
        for message, sender in self.stalled.pop(node):
            core.receive(message, sender, self.now)
        core.handle_timer(self.now)
        self._turn(node)

    def _deliver(self, sender: str, to: str, message: Message) -> None:
        if frozenset((sender, to)) in self.silent:
            return
        if to in self.stalled:
            self.stalled[to].append((message, sender))
            return
        if to in self.members and sender in self.members and not self.is_cut(sender, to):
            core = self.members[to].core
            core.receive(message, sender, self.now)
            known = {state.name for state in core.name_spaces}
            for theirs in message.roll_ups if isinstance(message, Status) else ():
                if theirs.name_space == NS and theirs.complete and NS in known:
                    is_equal = theirs.digest == digest_of(self.members[to].working)
                    core.compared(NS, sender, int(self.now * 1e9), self.now, is_equal=is_equal)
            self._turn(to)

    def _give(self, node: str, surplus: set[int]) -> None:
        """What an alignment found to be here only goes to the fellows."""
        core = self.members[node].core
        if not surplus:
            return
        lineage = core.name_spaces[0].lineage
        for fellow in core.surplus_found(NS):
            self.after(0.01, functools.partial(self._gift, node, fellow, surplus, lineage))

    def _gift(self, giver: str, to: str, surplus: set[int], lineage: Epoch) -> None:
        member = self.members.get(to)
        if member and not self.is_cut(giver, to) and member.core.takes_gift(NS, giver, lineage):
            member.working |= surplus
            self._turn(to)

    def _carry_out(self, node: str, member: Member, event: events.Event) -> None:
        if isinstance(event, events.LoadStored):
            member.loading = set(member.stored)
            self.after(0.01, lambda: self._injected(node, member, event.name_space))
        elif isinstance(event, events.AbandonSet):
            member.loading = set()
        elif isinstance(event, events.SendSet):
            delayed = any(target.purpose == "delayed" for target in event.targets)
            data = set(member.stored) if delayed else member.working | member.loading
            for target in event.targets:
                self.after(0.01, functools.partial(self._stream, node, target, data, event.lineage))
        elif isinstance(event, events.Completed):
            member.working |= member.loading
            member.loading = set()
            member.stored = member.working
        elif isinstance(event, events.DeleteSet):
            member.working.clear()
        elif isinstance(event, events.NoAligner):
            member.given_up.append(event.name_space)
        elif isinstance(event, events.Deliver):
            member.served.append(event.reader)
            self.after(0.01, functools.partial(self._delivered, node, member, event.reader))
        elif isinstance(event, events.Note):
            member.notes.append((event.event, event.fields))

    def _injected(self, node: str, member: Member, name_space: str) -> None:
        if self.members.get(node) is member:
            member.core.injected(name_space, self.now)
            self._turn(node)

    def _delivered(self, node: str, member: Member, reader: ReaderKey) -> None:
        if self.members.get(node) is member:
            member.core.delivered(reader, self.now, done=True)
            self._turn(node)

    def _stream(self, sender: str, target: events.AligneeRequest, data: set[int], lineage: Epoch) -> None:
        member = self.members.get(target.node)
        if member is None or self.is_cut(sender, target.node):
            return
        if not member.core.expects(NS, target.request):
            return
        surplus: set[int] = set()
        if target.purpose == "initial":
            joins = not member.core.why_not_joined(NS, sender) and not target.forgotten
            surplus = member.stored - data if joins else set()
            member.loading = data | surplus
        elif target.purpose in ("replace", "catchup"):
            member.working = set(data)
        elif target.purpose in ("merge", "repair"):
            surplus = member.working - data
            member.working |= data
        else:
            member.working |= data
        member.core.roll_up(NS, len(member.working), digest_of(member.working))
        member.core.set_received(NS, target.request, lineage, self.now)
        self._turn(target.node)
        self._give(target.node, surplus)

    def notes(self, node: str, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.members[node].notes if name == event]


def three(cluster: Cluster, **extra: object) -> None:
    for node, priority in (("a", 200), ("b", 100), ("c", 50)):
        cluster.start(node, priority=priority, **extra)  # type: ignore[arg-type]  # forwarded options


def check_settles(cluster: Cluster, master: str, data: set[int], within_s: float = 30.0) -> None:
    """The cluster becomes quiet with one master and one set."""
    cluster.run_until(
        lambda: cluster.settled() and all(m.working == data for m in cluster.members.values()), within_s
    )
    assert {cluster.master(node) for node in cluster.members} == {master}
