"""Electing a master: `decide` alone, iterated over any graph of who hears whom (deployment guide, 5.4.3)."""

from __future__ import annotations

import itertools
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.core.election import Stand, decide, rank
from engine.core.messages import DAMAGED, Epoch, Vote

Link = frozenset[str]


@st.composite
def stands(draw: st.DrawFn, max_size: int = 5, *, fresh: bool = True) -> dict[str, Stand]:
    """Nodes of one role; fresh ones have neither voted nor followed anybody."""
    nodes = "abcdefg"[: draw(st.integers(1, max_size))]
    epochs = st.none() | st.builds(Epoch, st.integers(1, 3), st.sampled_from(nodes))
    votes = st.none() | st.builds(Vote, st.integers(1, 3), st.sampled_from(("", *nodes)))
    found = {}
    for node in nodes:
        priority = draw(st.sampled_from((0, 1, 2, 255)))
        found[node] = Stand(
            node=node,
            name=node,
            may_be_master=priority > 0 and draw(st.sampled_from((True, True, True, False))),
            priority=priority,
            quality_ns=draw(st.sampled_from((DAMAGED, 0, 1, 2))),
            holder=False if fresh else draw(st.booleans()),
            discovering=False,
            vote=None if fresh else draw(votes),
            following=None if fresh else draw(epochs),
        )
    return found


class World:
    """Nodes that publish how they stand, and decide on what they heard last."""

    def __init__(self, nodes: dict[str, Stand], links: set[Link]) -> None:
        self.nodes = dict(nodes)
        self.heard: dict[str, dict[str, Stand]] = {node: {} for node in nodes}
        self.gone: dict[str, frozenset[str]] = dict.fromkeys(nodes, frozenset())
        self.reigns: dict[str, list[Epoch]] = {node: [] for node in nodes}
        self.links = links

    def neighbours(self, node: str) -> list[str]:
        """Who hears whom is mutual: a fellow that does not hear us is not talked to."""
        return [
            other for other in sorted(self.nodes) if frozenset((node, other)) in self.links and node != other
        ]

    def connect(self, links: set[Link]) -> None:
        """The network changes; a node that is not heard any more is known to be gone for a while."""
        for node in self.nodes:
            before = set(self.heard[node])
            self.heard[node] = {
                other: stand for other, stand in self.heard[node].items() if frozenset((node, other)) in links
            }
            self.gone[node] = frozenset(before - self.heard[node].keys())
        self.links = links

    def publish(self, node: str) -> None:
        """Everybody in hearing learns how a node stands."""
        own = self.nodes[node]
        lineage = own.following.counter if own.holder and own.following else 0
        stand = msgspec.structs.replace(own, heard=frozenset(self.neighbours(node)), newest=lineage)
        for other in self.neighbours(node):
            self.heard[other][node] = stand

    def discover(self) -> None:
        """Everybody knows everybody in hearing before the first one decides."""
        for node in sorted(self.nodes):
            self.publish(node)

    def forget(self) -> None:
        """Those who were lost have been gone for long."""
        self.gone = dict.fromkeys(self.nodes, frozenset())

    def align(self) -> None:
        """Whoever follows somebody holds the set by now."""
        for node, stand in self.nodes.items():
            self.nodes[node] = msgspec.structs.replace(
                stand, holder=stand.holder or stand.following is not None
            )

    def decide(self, node: str) -> bool:
        """A node decides, as the core carries it out; True when that changed how it stands."""
        own, peers, gone = self.nodes[node], list(self.heard[node].values()), self.gone[node]
        decision = decide(own, peers, gone)
        if decision.following is None and own.following is not None:
            counter = max(own.following.counter + 1, own.vote.counter if own.vote else 0)
            own = msgspec.structs.replace(own, following=None, vote=Vote(counter, ""))
            decision = decide(own, peers, gone)
        newest = max(own.newest, decision.following.counter if decision.following else 0)
        now = msgspec.structs.replace(own, following=decision.following, vote=decision.vote, newest=newest)
        before, self.nodes[node] = self.nodes[node], now
        if now.is_master and now.following != before.following:
            assert now.following is not None
            assert now.may_be_master or before.is_master
            assert now.following not in self.reigns[node], "an epoch came again"
            self.reigns[node].append(now.following)
        return now != before

    def rounds_until_quiet(self, choose: random.Random, bound: int) -> int:
        """Let all publish and decide in any order, some of them late, until nothing changes any more."""
        for count in range(bound):
            changed = False
            order = sorted(self.nodes)
            choose.shuffle(order)
            for node in order:
                if choose.random() < 0.7:
                    self.publish(node)
            choose.shuffle(order)
            for node in order:
                changed |= self.decide(node)
            if not changed:
                for node in order:
                    self.publish(node)
                if not any(self.decide(node) for node in order):
                    return count
        raise AssertionError(f"not quiet after {bound} rounds: {self.nodes}")

    def masters(self) -> set[str]:
        """The nodes that are followed."""
        return {stand.following.node if stand.following else "" for stand in self.nodes.values()}


def mesh(nodes: dict[str, Stand]) -> set[Link]:
    """Everybody hears everybody."""
    return {frozenset(pair) for pair in itertools.combinations(nodes, 2)}


BOUND = 12
"""Rounds within which any network must be quiet; in a round, each node publishes or is late, and decides."""


@st.composite
def networks(draw: st.DrawFn, nodes: dict[str, Stand]) -> set[Link]:
    """Any links at all."""
    pairs = sorted(mesh(nodes), key=sorted)
    return set(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else set()


@st.composite
def close_networks(draw: st.DrawFn, nodes: dict[str, Stand]) -> set[Link]:
    """Links by which any two nodes hear each other or have a fellow that hears both."""
    links = draw(networks(nodes))
    hub = draw(st.sampled_from(sorted(nodes)))
    return links | {frozenset((hub, node)) for node in nodes if node != hub}


@given(stands(fresh=False), st.randoms(use_true_random=False))
def test_the_order_in_which_fellows_are_known_means_nothing(
    nodes: dict[str, Stand], choose: random.Random
) -> None:
    own, *peers = nodes.values()
    shuffled = list(peers)
    choose.shuffle(shuffled)
    assert decide(own, peers) == decide(own, shuffled) == decide(own, peers)


@given(stands(7), st.randoms(use_true_random=False))
def test_fresh_nodes_that_all_hear_each_other_agree_on_the_best(
    nodes: dict[str, Stand], choose: random.Random
) -> None:
    world = World(nodes, mesh(nodes))
    world.discover()
    world.rounds_until_quiet(choose, BOUND)
    candidates = [stand for stand in nodes.values() if stand.may_be_master]
    best = max(candidates, key=lambda stand: rank(stand, use_quality=True), default=None)
    assert world.masters() == {best.node if best else ""}


@given(stands(fresh=False), st.randoms(use_true_random=False))
def test_from_any_beginning_nodes_that_all_hear_each_other_come_to_one_master(
    nodes: dict[str, Stand], choose: random.Random
) -> None:
    world = World(nodes, mesh(nodes))
    world.rounds_until_quiet(choose, BOUND)
    masters = world.masters()
    assert len(masters) == 1
    if any(stand.may_be_master for stand in nodes.values()):
        assert masters != {""}


@given(stands(fresh=False), st.data(), st.randoms(use_true_random=False))
def test_any_network_becomes_quiet_however_it_changes(
    nodes: dict[str, Stand], data: st.DataObject, choose: random.Random
) -> None:
    world = World(nodes, set())
    for _ in range(3):
        world.connect(data.draw(networks(nodes)))
        world.rounds_until_quiet(choose, BOUND)
        world.forget()
        world.rounds_until_quiet(choose, BOUND)
        if data.draw(st.booleans()):
            world.align()
    world.connect(mesh(nodes))
    world.rounds_until_quiet(choose, BOUND)
    assert len(world.masters()) == 1


@given(stands(6), st.data(), st.randoms(use_true_random=False))
def test_fresh_nodes_with_a_common_fellow_come_to_one_master(
    nodes: dict[str, Stand], data: st.DataObject, choose: random.Random
) -> None:
    world = World(nodes, data.draw(close_networks(nodes)))
    world.discover()
    world.rounds_until_quiet(choose, BOUND)
    assert len(world.masters()) == 1
    assert (world.masters() == {""}) == (not any(stand.may_be_master for stand in nodes.values()))


@given(stands(6), st.randoms(use_true_random=False))
def test_once_all_hold_the_set_the_highest_priority_is_master_and_stays(
    nodes: dict[str, Stand], choose: random.Random
) -> None:
    world = World(nodes, mesh(nodes))
    world.rounds_until_quiet(choose, BOUND)
    world.align()
    world.rounds_until_quiet(choose, BOUND)
    candidates = [stand.priority for stand in nodes.values() if stand.may_be_master]
    (master,) = world.masters()
    assert (nodes[master].priority if master else 0) == max(candidates, default=0)
    before = dict(world.reigns)
    assert world.rounds_until_quiet(choose, BOUND) == 0
    assert world.reigns == before


@given(stands(6), st.data(), st.randoms(use_true_random=False))
def test_an_equal_or_lower_newcomer_does_not_disturb(
    nodes: dict[str, Stand], data: st.DataObject, choose: random.Random
) -> None:
    newcomer = data.draw(st.sampled_from(sorted(nodes)))
    world = World(nodes, {link for link in mesh(nodes) if newcomer not in link})
    own, world.nodes[newcomer] = (
        nodes[newcomer],
        msgspec.structs.replace(nodes[newcomer], may_be_master=False),
    )
    world.rounds_until_quiet(choose, BOUND)
    world.align()
    world.rounds_until_quiet(choose, BOUND)
    reigns = {node: list(epochs) for node, epochs in world.reigns.items()}
    masters = world.masters() - {""}
    world.nodes[newcomer] = own
    world.connect(mesh(nodes))
    world.discover()
    world.rounds_until_quiet(choose, BOUND)
    world.align()
    world.rounds_until_quiet(choose, BOUND)
    if masters and own.priority <= max(nodes[master].priority for master in masters):
        assert world.masters() == masters
        assert world.reigns == reigns


@given(stands(6), st.randoms(use_true_random=False))
def test_masters_that_meet_before_they_hold_a_set_leave_it_to_the_best_one(
    nodes: dict[str, Stand], choose: random.Random
) -> None:
    world = World(nodes, set())
    world.rounds_until_quiet(choose, BOUND)
    masters = [nodes[node] for node in nodes if world.nodes[node].is_master]
    world.connect(mesh(nodes))
    world.discover()
    world.rounds_until_quiet(choose, BOUND)
    best = max(masters, key=lambda stand: rank(stand, use_quality=True), default=None)
    assert world.masters() == {best.node if best else ""}
