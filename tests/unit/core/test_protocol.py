"""The protocol of several cores, over a perfect network with a little delay, with sets of numbers as data."""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Callable

import pytest

from engine.core import events
from engine.core.messages import NO_EPOCH, STATE_MESSAGES, Epoch, Message, ReaderKey
from engine.core.namespaces import Alignee, MergeRule, MergeType, NameSpace, Policy
from engine.core.node import DurabilityNode
from engine.core.settings import CoreSettings, StoredSet
from engine.core.states import Phase, ServiceState

DELAY_S = 0.001
NS = "all"


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
    """Cores under virtual time; `links` holds the pairs that hear each other."""

    def __init__(self) -> None:
        self.now = 0.0
        self.members: dict[str, Member] = {}
        self.cut: set[frozenset[str]] = set()
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
        incarnation: int = 1,
        remembered: frozenset[str] = frozenset(),
        name_spaces: tuple[NameSpace, ...] = (NameSpace.of(NS, "*.*"),),
        aligner: bool = True,
        discovery_s: float = 0.5,
        role: str = "r",
        merges: tuple[MergeRule, ...] | None = None,
        delayed: bool = False,
        alignee: Alignee = Alignee.INITIAL,
        waits: bool = True,
    ) -> Member:
        settings = CoreSettings(
            node=node,
            incarnation=incarnation,
            name=node,
            role=role,
            host="h",
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
            combine_initial_s=0.05,
            waits_for_aligner=waits,
            remembered=remembered,
            stored={NS: StoredSet(quality, lineage)},
        )
        core = DurabilityNode(settings, self.now, wall_ns=0)
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
            timers = [(m.core.next_timer(), node) for node, m in self.members.items()]
            when, node = min(timers, default=(end, ""))
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

    def run_until(self, condition: Callable[[], bool], seconds: float = 30.0) -> float:
        start = self.now
        while not condition():
            assert self.now - start < seconds, self.describe()
            self.run(0.01)
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
                core.roll_up(NS, len(member.working), sum(member.working))
        while (event := core.next_event()) is not None:
            self._carry_out(node, member, event)
        for outgoing in core.messages_to_send(self.now):
            if isinstance(outgoing.message, STATE_MESSAGES):
                member.latest[type(outgoing.message)] = outgoing.message
            for other in sorted(self.members):
                if other != node and (not outgoing.to or other in outgoing.to):
                    self._send(node, other, outgoing.message)

    def _deliver(self, sender: str, to: str, message: Message) -> None:
        if to in self.members and sender in self.members and not self.is_cut(sender, to):
            self.members[to].core.receive(message, sender, self.now)
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

    def _stream(self, sender: str, target: events.Target, data: set[int], lineage: Epoch) -> None:
        member = self.members.get(target.node)
        if member is None or self.is_cut(sender, target.node):
            return
        if member.core.expects(NS, target.request):
            (member.loading if target.purpose == "initial" else member.working).update(data)
            if target.purpose in ("replace", "catchup"):
                member.working.intersection_update(data)
            member.core.roll_up(NS, len(member.working), sum(member.working))
            member.core.set_received(NS, target.request, lineage, self.now)
            self._turn(target.node)

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


def test_highest_priority_becomes_master_and_says_why() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    basis = cluster.notes("b", "election.basis")[-1]
    assert "a" in str(basis["candidates"])
    assert all(member.core.state is ServiceState.COMPLETE for member in cluster.members.values())


@pytest.mark.parametrize("priorities", [(100, 200, 50), (50, 100, 200), (50, 200, 100)])
@pytest.mark.parametrize("merge", [MergeType.REPLACE, MergeType.CATCHUP, MergeType.MERGE])
def test_three_distinct_priorities_never_live_lock(priorities: tuple[int, ...], merge: MergeType) -> None:
    # The real service compares fellows with its own priority and merges without end (reference run).
    cluster = Cluster()
    for node, priority in zip("abc", priorities, strict=True):
        cluster.start(node, priority=priority, merge=merge)
    expected = "abc"[priorities.index(200)]
    check_settles(cluster, expected, set())
    lineage = cluster.members["a"].core.name_spaces[0].lineage
    cluster.run(60)
    assert cluster.members["a"].core.name_spaces[0].lineage == lineage


def test_best_quality_injects_when_priorities_are_equal_and_only_it() -> None:
    cluster = Cluster()
    cluster.start("a", stored={1}, quality=10)
    cluster.start("b", stored={1, 2}, quality=20)
    cluster.start("c", stored={3}, quality=5)
    check_settles(cluster, "b", {1, 2})


def test_highest_id_decides_between_equals() -> None:
    cluster = Cluster()
    for node in "abc":
        cluster.start(node)
    check_settles(cluster, "c", set())


def test_discovery_ends_when_all_remembered_fellows_answered() -> None:
    cluster = Cluster()
    for node in "abc":
        cluster.start(node, remembered=frozenset("abc") - {node}, discovery_s=10.0)
    assert cluster.run_until(cluster.settled) < 1.0


def test_newcomer_aligns_from_the_master_and_sets_its_own_set_aside() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1, 2}, quality=1)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=5, stored={9}, quality=99)
    check_settles(cluster, "a", {1, 2})


def test_captured_before_there_was_a_master_is_collected() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.write(7, "b")
    cluster.write(8, "c")
    check_settles(cluster, "a", {7, 8})


def test_higher_priority_newcomer_takes_over_once_complete_and_injects_nothing() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1}, quality=1)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=20, stored={9}, quality=99)
    check_settles(cluster, "b", {1})


def test_equal_newcomer_does_not_disturb() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10)
    cluster.run_until(cluster.settled)
    cluster.start("z", priority=10)
    check_settles(cluster, "a", set())


@pytest.mark.parametrize("priority", [0, 10])
def test_nobody_above_zero_or_no_aligner_means_no_master_said_loudly(priority: int) -> None:
    cluster = Cluster()
    for node in "ab":
        cluster.start(node, priority=priority, aligner=priority == 0)
    cluster.run(30)
    assert cluster.master("a") == cluster.master("b") == ""
    assert len(cluster.notes("a", "election.no-master")) == 1


def test_lost_master_is_replaced_and_data_stays() -> None:
    cluster = Cluster()
    three(cluster, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    cluster.kill("a")
    check_settles(cluster, "b", {1})
    cluster.start("a", priority=200, incarnation=2, stored={5}, quality=99)
    check_settles(cluster, "a", {1})


def test_aligner_lost_in_the_middle_is_replaced() -> None:
    cluster = Cluster()
    three(cluster, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    cluster.start("d", priority=1)
    cluster.run_until(lambda: cluster.phase("d") is Phase.ALIGN)
    cluster.kill("a")
    check_settles(cluster, "b", {1})


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        (MergeType.MERGE, {1, 2, 3}),
        (MergeType.REPLACE, {1, 2}),
        (MergeType.CATCHUP, {1, 2}),
    ],
)
def test_split_brain_is_merged_by_policy(merge: MergeType, expected: set[int]) -> None:
    cluster = Cluster()
    for node, priority in (("a", 200), ("b", 100), ("c", 50), ("d", 40)):
        cluster.start(node, priority=priority, merge=merge, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    cluster.split("a b", "c d")
    cluster.run(5)
    assert cluster.master("d") == "c"
    cluster.write(2, "a", "b")
    cluster.write(3, "c", "d")
    cluster.heal()
    check_settles(cluster, "a", expected)


def test_split_brain_with_ignore_moves_nothing_and_becomes_quiet() -> None:
    cluster = Cluster()
    for node, priority in (("a", 200), ("b", 100)):
        cluster.start(node, priority=priority, merge=MergeType.IGNORE)
    cluster.run_until(cluster.settled)
    cluster.split("a", "b")
    cluster.run(5)
    cluster.write(2, "a")
    cluster.write(3, "b")
    cluster.heal()
    cluster.run_until(cluster.settled)
    assert (cluster.members["a"].working, cluster.members["b"].working) == ({2}, {3})


def test_reconnection_is_merged_however_short_the_gap() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    cluster.split("a b", "c")
    cluster.write(2, "a", "b")
    cluster.write(3, "c")
    cluster.heal()
    check_settles(cluster, "a", {2, 3})


def test_missed_sample_is_repaired_when_the_writers_are_quiet() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    cluster.write(4, "b", "c")
    cluster.write(5, "a", "c")
    check_settles(cluster, "a", {4, 5})


def test_partly_connected_node_follows_the_master_through_a_fellow() -> None:
    cluster = Cluster()
    cluster.cut.add(frozenset("ac"))
    three(cluster, stored={1}, quality=1)
    check_settles(cluster, "a", {1})


def test_overlapping_name_spaces_are_not_talked_to_and_both_are_named() -> None:
    cluster = Cluster()
    cluster.start("a", name_spaces=(NameSpace.of(NS, "s.*", "t.*"),))
    cluster.start("b", name_spaces=(NameSpace.of("other", "s.*", "u.*"),))
    cluster.run(5)
    assert (cluster.master("a"), cluster.master("b")) == ("a", "b")
    conflict = cluster.notes("a", "compatibility.conflict")
    assert len(conflict) == 1
    assert conflict[0]["other_namespace"] == "other"


def test_disjoint_name_space_is_learned_when_a_policy_matches() -> None:
    cluster = Cluster()
    cluster.start("a", name_spaces=(NameSpace.of(NS, "s.*"),))
    cluster.start("b", name_spaces=(NameSpace.of(NS, "s.*"), NameSpace.of("more", "u.*")))
    cluster.run(5)
    assert [state.name for state in cluster.members["a"].core.name_spaces] == [NS, "more"]


READER = ReaderKey("p1", "T", ("*",), NS)


def test_late_joiner_is_served_by_exactly_one_node_even_when_others_join_later() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.run_until(cluster.settled)
    for member in cluster.members.values():
        member.core.reader_seen(READER, "h", cluster.now)
    cluster.run(1)
    assert [len(cluster.members[node].served) for node in "abc"] == [1, 0, 0]
    newcomer = cluster.start("z", priority=250)
    newcomer.core.reader_seen(READER, "h", cluster.now)
    cluster.run_until(cluster.settled)
    cluster.run(2)
    assert newcomer.served == []


def test_delivery_is_taken_over_when_the_server_is_lost_before_it_was_done() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.run_until(cluster.settled)
    for member in cluster.members.values():
        member.core.reader_seen(READER, "h", cluster.now)
    cluster.members["a"].core.handle_timer(cluster.now)
    cluster.kill("a")
    cluster.run(5)
    assert [len(cluster.members[node].served) for node in "bc"] == [1, 0]


def test_reader_waits_until_the_name_space_is_complete() -> None:
    cluster = Cluster()
    member = cluster.start("a")
    member.core.reader_seen(READER, "h", cluster.now)
    assert member.served == []
    cluster.run_until(cluster.settled)
    cluster.run(1)
    assert member.served == [READER]


def test_lineage_of_the_last_run_never_comes_again() -> None:
    # A node that was cut off before the restart still holds the old lineage and must be merged.
    cluster = Cluster()
    cluster.start("a", lineage=Epoch(7, "a"))
    cluster.run_until(cluster.settled)
    assert cluster.members["a"].core.name_spaces[0].lineage == Epoch(8, "a")


def two_roles(cluster: Cluster, left: MergeType, right: MergeType) -> None:
    for node, role, policy, other in (("a", "L", left, "R"), ("b", "L", left, "R"), ("c", "R", right, "L")):
        merges = (MergeRule(policy, other), MergeRule(MergeType.MERGE, "*"))
        cluster.start(node, role=role, merges=merges, stored={ord(node)}, quality=ord(node))


def quiet(cluster: Cluster) -> bool:
    return all(member.core.name_spaces[0].phase is Phase.COMPLETE for member in cluster.members.values())


def test_one_node_injects_in_the_whole_system_whatever_the_roles_policies_say() -> None:
    cluster = Cluster()
    two_roles(cluster, MergeType.IGNORE, MergeType.IGNORE)
    cluster.run_until(lambda: quiet(cluster))
    assert {cluster.master(node) for node in "ab"} == {"b"}
    assert cluster.master("c") == "c"
    assert all(member.working == {ord("c")} for member in cluster.members.values())


@pytest.mark.parametrize(
    ("left", "right", "expected_left", "expected_right"),
    [
        (MergeType.MERGE, MergeType.MERGE, {99, 1, 2}, {99, 1, 2}),
        (MergeType.MERGE, MergeType.IGNORE, {99, 1, 2}, {99, 2}),
        (MergeType.CATCHUP, MergeType.IGNORE, {99, 2}, {99, 2}),
        (MergeType.IGNORE, MergeType.REPLACE, {99, 1}, {99, 1}),
        (MergeType.DELETE, MergeType.IGNORE, set(), {99, 2}),
        (MergeType.REPLACE, MergeType.REPLACE, {99, 1}, {99, 2}),
        (MergeType.REPLACE, MergeType.MERGE, {99, 1}, {99, 2}),
        (MergeType.DELETE, MergeType.MERGE, {99, 1}, {99, 2}),
    ],
)
def test_roles_that_meet_again_apply_their_policies_once_and_come_to_rest(
    left: MergeType, right: MergeType, expected_left: set[int], expected_right: set[int]
) -> None:
    cluster = Cluster()
    two_roles(cluster, left, right)
    cluster.run_until(lambda: quiet(cluster))
    cluster.split("a b", "c")
    cluster.run(5)
    cluster.write(1, "a", "b")
    cluster.write(2, "c")
    cluster.heal()
    cluster.run(10)
    assert quiet(cluster), cluster.describe()
    assert [cluster.members[node].working for node in "abc"] == [expected_left] * 2 + [expected_right]
    lineages = [member.core.name_spaces[0].lineage for member in cluster.members.values()]
    cluster.run(30)
    assert lineages == [member.core.name_spaces[0].lineage for member in cluster.members.values()]


def test_delayed_alignment_opens_an_empty_complete_set_again() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, delayed=True)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=5, delayed=True, stored={9}, quality=9)
    check_settles(cluster, "a", {9})


def test_delayed_alignment_stays_closed_once_there_is_a_writer() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, delayed=True).core.writers_known(NS, present=True, now=0.0)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=5, delayed=True, stored={9}, quality=9)
    check_settles(cluster, "a", set())


def test_lazy_node_keeps_nothing_until_a_reader_on_its_host_wants_it() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1}, quality=1)
    lazy = cluster.start("b", priority=200, alignee=Alignee.LAZY)
    cluster.run(5)
    assert (cluster.phase("b"), cluster.master("a"), lazy.working) == (Phase.PASSIVE, "a", set())
    lazy.core.wanted(NS, cluster.now)
    check_settles(cluster, "b", {1})


def test_on_request_node_never_keeps_anything() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1}, quality=1)
    passive = cluster.start("b", alignee=Alignee.ON_REQUEST)
    passive.core.wanted(NS, cluster.now)
    cluster.run(5)
    assert (cluster.phase("b"), passive.core.state) == (Phase.PASSIVE, ServiceState.COMPLETE)


@pytest.mark.parametrize(("waits", "given_up"), [(True, []), (False, [NS])])
def test_node_that_is_told_not_to_wait_for_an_aligner_gives_up(waits: bool, given_up: list[str]) -> None:
    cluster = Cluster()
    member = cluster.start("a", aligner=False, waits=waits)
    cluster.run(5)
    assert member.given_up == given_up
