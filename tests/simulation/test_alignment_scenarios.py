"""Getting the whole set: from whom, how often, and what happens when that goes wrong in the middle."""

from __future__ import annotations

import pytest

from engine.core.name_spaces import Durability
from engine.core.states import Phase
from engine.dataset import rateless
from engine.dataset.groups import DurabilityKind
from engine.dataset.sample import DISPOSE, UNREGISTER
from engine.runtime.stream import BATCH_BYTES, SLOW_BYTES_PER_S
from engine.simulator.options import NetworkPlan, NodePlan, TopicPlan
from tests.simulation.scenarios import LOST_S, NS, SLOW, TOPIC, Scenario, node

LARGE = 1500


def loaded(*plans: NodePlan, network: NetworkPlan = SLOW, count: int = 4) -> Scenario:
    """All but the last node are complete, with a set that takes a while to send."""
    scenario = Scenario(*plans, network=network)
    present = scenario.names[:-1]
    scenario.start(*present)
    scenario.until(lambda: scenario.complete(*present))
    scenario.write(present[0], *range(count), size=LARGE)
    return scenario


def begin_alignment(scenario: Scenario) -> str:
    """The last node starts, and has asked for the set; who sends it."""
    alignee = scenario.names[-1]
    scenario.start(alignee)
    scenario.until(lambda: scenario.received(alignee) > 0)
    scenario.run(1.0)
    assert scenario.phase(alignee) is Phase.ALIGN
    return scenario.streams()[-1].sender


def test_an_aligner_that_is_lost_in_the_middle_is_replaced() -> None:
    scenario = loaded(node("a", priority=200), node("b", priority=150), node("c"))
    aligner = begin_alignment(scenario)
    scenario.kill(aligner)
    scenario.until(lambda: scenario.complete("c"), within_s=60.0)
    assert scenario.streams()[-1].sender == "b"
    assert scenario.alive("c") == {0, 1, 2, 3}
    scenario.start(aligner)
    scenario.settle()


def test_an_alignee_whose_only_aligner_is_lost_in_the_middle_waits_for_it_and_shows_no_part() -> None:
    scenario = loaded(node("a"), node("b", aligner=False))
    begin_alignment(scenario)
    scenario.kill("a")
    reader = scenario.reader("b")
    scenario.run(60.0)
    assert not scenario.is_operational("b")
    assert not reader.served
    scenario.start("a")
    scenario.settle()
    assert scenario.alive("b") == scenario.given(reader) == {0, 1, 2, 3}


@pytest.mark.parametrize("direction", ["c>a", "a>c", "both"])
@pytest.mark.parametrize("gap_s", [0.5, 1.9, 3.0, 8.0])
def test_a_request_that_a_cut_link_swallows_is_made_again(direction: str, gap_s: float) -> None:
    scenario = loaded(node("a", priority=200), node("b", priority=0), node("c", priority=0))
    begin_alignment(scenario)
    if direction == "both":
        scenario.cut("a", "c")
    else:
        scenario.cut(*direction.split(">"), both=False)
    scenario.run(gap_s)
    scenario.heal()
    scenario.settle()
    assert scenario.alive("c") == {0, 1, 2, 3}


@pytest.mark.parametrize("source", ["a", "b", "c"])
def test_one_sided_disconnects_one_after_the_other_leave_no_difference(source: str) -> None:
    scenario = Scenario(node("a", priority=200), node("b"), node("c"))
    scenario.start()
    scenario.until(scenario.complete)
    for name in "abc":
        scenario.writer(name)
    number = 0
    for gap_s in (2.2, 0.5, 4.0, 1.8, 6.0):
        for target in sorted({"a", "b", "c"} - {source}):
            scenario.cut(source, target, both=False)
        scenario.run(gap_s)
        for name in "abc":
            scenario.write(name, number, wait_s=0.2)
            number += 1
        scenario.heal()
        scenario.run(0.8)
    scenario.settle()
    assert [scenario.alive(name) for name in "abc"] == [set(range(number))] * 3


def test_in_a_chain_of_three_all_are_complete_and_have_everything_after_it_is_closed() -> None:
    scenario = Scenario(node("a", priority=200), node("b"), node("c"))
    scenario.cut("a", "c")
    scenario.start("a", "b")
    scenario.until(lambda: scenario.complete("a", "b"))
    scenario.start("c")
    scenario.until(scenario.complete)
    scenario.run(LOST_S)
    assert scenario.masters() == {"a"}
    assert scenario.state("c").via == scenario.node("b").id
    scenario.write("a", 1)
    scenario.write("b", 2)
    scenario.write("c", 3)
    scenario.heal()
    scenario.settle()
    assert [scenario.alive(name) for name in "abc"] == [{1, 2, 3}] * 3


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_chain_that_was_started_together_has_everything_after_it_is_closed(seed: int) -> None:
    scenario = Scenario(*(node(name) for name in "abc"), seed=seed)
    scenario.cut("a", "c")
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1, 2)
    scenario.write("b", 3)
    scenario.write("c", 4)
    scenario.heal()
    scenario.settle()
    assert len(scenario.masters()) == 1
    assert [scenario.alive(name) for name in "abc"] == [{1, 2, 3, 4}] * 3


def test_who_does_not_hear_a_fellow_is_not_talked_to_until_it_does() -> None:
    """One direction is cut: sooner or later than the lease, a heartbeat may say so first."""
    noticed = 0
    for seed in range(1, 16):
        scenario = Scenario(node("a"), node("b"), node("c"), seed=seed)
        scenario.start()
        scenario.until(scenario.complete)
        scenario.write("a", 1)
        scenario.cut("b", "a", both=False)
        end = scenario.now + LOST_S
        while scenario.now < end and not scenario.traced("fellow.asymmetric", "b"):
            scenario.run(0.05)
        if scenario.traced("fellow.asymmetric", "b"):
            noticed += 1
            assert scenario.fellows("b") == {"c"}
        scenario.run(LOST_S)
        assert scenario.fellows("a") == scenario.fellows("b") == {"c"}
        scenario.heal()
        scenario.settle()
        assert scenario.fellows("a") == {"b", "c"}
    assert noticed


def test_requests_of_many_are_answered_by_one_stream_and_nobody_is_sent_a_set_twice() -> None:
    late = [node(name, priority=10, initial_discovery_s=0.3) for name in "bcdef"]
    quick = NetworkPlan(delay_mean_s=0.0002, discovery_s=0.05)
    scenario = Scenario(node("a", priority=200, combine_operational_s=0.5), *late, network=quick)
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.write("a", *range(20))
    scenario.start(*"bcdef")
    scenario.settle()
    assert [sorted(stream.receivers) for stream in scenario.streams()] == [list("bcdef")]


@pytest.mark.parametrize("seed", range(1, 4))
def test_nodes_that_start_together_are_sent_each_set_once(seed: int) -> None:
    quick = NetworkPlan(delay_mean_s=0.0002, discovery_s=0.05)
    scenario = Scenario(*(node(name, spaces=("ns1", "ns2")) for name in "abcde"), seed=seed, network=quick)
    scenario.start()
    scenario.run(3.0)
    scenario.settle()
    for space in ("ns1", "ns2"):
        master = scenario.master("a", space)
        counts = {name: scenario.received(name, name_space=space) for name in "abcde"}
        assert counts == {name: int(name != master) for name in "abcde"}


ORDERS = {"aligner first": ("a", "b"), "non-aligner first": ("b", "a"), "together": ()}


@pytest.mark.parametrize("order", ORDERS)
def test_a_non_aligner_becomes_complete_whenever_the_aligner_appears(order: str) -> None:
    scenario = Scenario(
        node("a", spaces=("ns1", "ns2")),
        node("b", spaces=("ns1", "ns2"), aligner=False),
        topics=(TOPIC, TopicPlan("ns2", "Reading")),
    )
    names = ORDERS[order]
    scenario.start(*names, spread_s=5.0 if names else 0.0)
    scenario.settle()
    for space in ("ns1", "ns2"):
        assert scenario.complete(name_space=space)
        assert scenario.masters(space) == {"a"}


def test_an_aligner_with_persistent_data_that_comes_late_aligns_those_who_waited() -> None:
    scenario = Scenario(node("a"), node("b", aligner=False), node("c", aligner=False))
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.write("a", 1, 2)
    scenario.end_writer("a")
    scenario.stop("a")
    scenario.start("b", "c")
    scenario.write("c", 3)  # captured while nobody may be master
    scenario.run(15.0)
    scenario.start("a")
    scenario.settle()
    assert [scenario.alive(name) >= {1, 2} for name in "abc"] == [True] * 3
    assert 3 in scenario.alive("c")


def test_groups_outside_of_all_name_spaces_do_not_keep_a_node_from_complete() -> None:
    outside = TopicPlan("elsewhere", "Reading")
    scenario = Scenario(node("a"), node("b"), topics=(TOPIC, outside))
    scenario.writer("a")
    scenario.start()
    scenario.write("a", 1, topic=1)
    scenario.settle()
    scenario.write("a", 2, topic=0)
    assert scenario.alive("a") == scenario.alive("b") == {2}


def test_a_restart_of_all_injects_what_was_written_as_it_was_written() -> None:
    scenario = Scenario(node("a"), node("b"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1, 2, 3)
    scenario.unregister("a", 3)
    before = scenario.instances("a")
    scenario.stop("a", "b")
    scenario.end_writer("a")
    scenario.start()
    scenario.settle()
    assert scenario.instances("a") == scenario.instances("b") == before
    assert not before[1] & (DISPOSE | UNREGISTER), "its writer never left it"


def test_what_was_captured_before_an_orderly_end_is_stored() -> None:
    scenario = Scenario(node("a"), disk_delay_s=1.0)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", *range(30), wait_s=0.01)
    scenario.stop("a")
    assert scenario.stored("a") == 30


def test_transient_data_outlives_all_but_one_node_and_persistent_data_all() -> None:
    topics = (TOPIC, TopicPlan(NS, "Passing", DurabilityKind.TRANSIENT))
    scenario = Scenario(node("a"), node("b"), topics=topics)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1, topic=0)
    scenario.write("a", 2, topic=1)
    scenario.end_writer("a")
    scenario.stop("a")
    scenario.start("a")
    scenario.settle()
    assert scenario.alive("a") == {1, 2}
    scenario.stop("a", "b")
    scenario.start()
    scenario.settle()
    assert scenario.alive("a") == scenario.alive("b") == {1}


def test_an_unregister_of_one_writer_leaves_the_data_of_the_other_alive() -> None:
    scenario = Scenario(node("a"), node("b"), node("c"))
    scenario.start("a", "b")
    scenario.until(lambda: scenario.complete("a", "b"))
    scenario.write("a", 1)
    scenario.write("b", 1)
    scenario.unregister("b", 1)
    scenario.end_writer("b")
    scenario.start("c")
    scenario.settle()
    assert scenario.alive("c") == {1}
    assert scenario.instances("c") == scenario.instances("a")


def test_instances_that_were_only_unregistered_or_disposed_align_like_others() -> None:
    scenario = Scenario(node("a"), node("b"))
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.unregister("a", 1)
    scenario.dispose("a", 2)
    scenario.start("b")
    scenario.settle()
    assert scenario.instances("a") == scenario.instances("b")


@pytest.mark.parametrize("moment_s", [0.0, 0.3, 1.0, 3.0])
def test_what_is_written_while_a_node_aligns_is_neither_lost_nor_doubled(moment_s: float) -> None:
    scenario = loaded(node("a"), node("b"))
    scenario.writer("a")
    scenario.start("b")
    scenario.run(moment_s)
    scenario.write("a", 50, 51)
    scenario.dispose("a", 0)
    scenario.settle()
    assert scenario.alive("b") == {1, 2, 3, 50, 51}


def test_a_reader_on_a_node_that_is_still_starting_gets_the_whole_set_once_it_is_complete() -> None:
    scenario = loaded(node("a"), node("b"))
    scenario.start("b")
    reader = scenario.reader("b")
    scenario.settle()
    assert [(who.name, len(samples)) for _, who, samples in reader.served] == [("b", 4)] or (
        scenario.given(reader) == {0, 1, 2, 3}
    )


def test_a_weakened_node_gives_a_reader_everything_but_stores_nothing() -> None:
    scenario = Scenario(node("a", durability=Durability.TRANSIENT), node("b"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1)
    scenario.settle()
    assert (scenario.stored("a"), scenario.stored("b")) == (0, 1)
    assert scenario.alive("a") == {1}


def test_the_network_of_a_scenario_loses_what_is_sent_over_a_cut_link_for_longer_than_a_lease() -> None:
    scenario = Scenario(node("a"), node("b"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer("a")
    scenario.split("a", "b")
    scenario.write("a", 1)
    assert (scenario.alive("a"), scenario.alive("b")) == ({1}, set())
    assert (scenario.fellows("a"), scenario.fellows("b")) == (set(), set())


def interrupted(*plans: NodePlan) -> Scenario:
    """The last node has stored a part of a set of which the rest is still on its way."""
    network = NetworkPlan(bytes_per_s=1.2 * SLOW_BYTES_PER_S)  # just too fast for compressing
    scenario = loaded(*plans, network=network, count=0)
    last = scenario.names[-1]
    scenario.write(scenario.names[0], *range(COUNT), size=BATCHES * BATCH_BYTES // COUNT)
    scenario.start(last)
    wait_for_more(scenario, last, 0)
    assert scenario.parts(last) < COUNT // 2
    assert not scenario.complete(last)
    return scenario


COUNT, BATCHES = 240, 6


def wait_for_more(scenario: Scenario, name: str, had: int) -> int:
    scenario.until(lambda: scenario.parts(name) > had or scenario.complete(name), step_s=0.001)
    return scenario.parts(name)


def bytes_sent(scenario: Scenario) -> int:
    return sum(node.wire.bytes_sent for node in scenario.cluster.up())


def check_ends_with_the_rest(scenario: Scenario, before: int) -> None:
    """All have everything, in memory and on disk, for less than another set on the wire."""
    scenario.settle()
    assert len({len(scenario.alive(name)) for name in scenario.names}) == 1
    assert scenario.alive(scenario.names[-1]) == set(range(COUNT))
    assert {scenario.stored(node.name) for node in scenario.cluster.up()} == {COUNT}
    assert bytes_sent(scenario) - before < 0.9 * BATCHES * BATCH_BYTES
    assert not scenario.traced("align.mismatch")
    assert scenario.parts(scenario.names[-1]) == 0


def test_an_alignee_that_is_killed_in_the_middle_gets_the_rest_when_it_is_back() -> None:
    scenario = interrupted(node("a"), node("b"))
    scenario.kill("b")
    scenario.run(LOST_S)
    assert scenario.parts("b") > 0
    before = bytes_sent(scenario)
    scenario.start("b")
    check_ends_with_the_rest(scenario, before)


def test_an_alignee_gets_the_rest_from_another_when_its_aligner_is_killed() -> None:
    scenario = interrupted(node("a", priority=200), node("b"), node("c"))
    scenario.kill("a")
    before = bytes_sent(scenario)
    scenario.until(lambda: scenario.complete("b", "c"))
    assert bytes_sent(scenario) - before < 0.9 * BATCHES * BATCH_BYTES
    scenario.start("a")
    check_ends_with_the_rest(scenario, before)


def test_what_arrived_is_used_again_and_again() -> None:
    """Each time a part more is stored, whoever is killed, until all is there."""
    scenario = interrupted(node("a", priority=200), node("b"), node("c"))
    had = scenario.parts("c")
    for killed in ("c", "c", "a"):
        scenario.kill(killed)
        scenario.run(LOST_S if killed == "c" else 0.1)
        if killed == "c":
            scenario.start("c")
        had = wait_for_more(scenario, "c", had)
        assert not scenario.complete("c")
    before = bytes_sent(scenario)
    scenario.until(lambda: scenario.complete("b", "c"))
    scenario.start("a")
    check_ends_with_the_rest(scenario, before)


def test_a_part_is_no_set() -> None:
    """A node with half a set and nobody to ask injects what it had before, and gives nothing else away."""
    scenario = interrupted(node("a"), node("b"))
    scenario.kill("a", "b")
    scenario.start("b")
    scenario.until(lambda: scenario.complete("b"))
    reader = scenario.reader("b")
    scenario.run(3.0)
    assert scenario.alive("b") == scenario.given(reader) == set()
    assert scenario.parts("b") == 0


def unsolved(_: rateless.Symbols) -> rateless.Stepwise[None]:
    """Symbols come to no result."""
    yield


def test_where_symbols_fail_a_difference_is_still_all_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rateless, "solve", unsolved)
    scenario = Scenario(node("a"), node("b"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", *range(COUNT), size=LARGE)
    scenario.stop("b")
    scenario.write("a", 3, 5, size=LARGE)
    before = bytes_sent(scenario)
    scenario.start("b")
    scenario.settle()
    assert scenario.alive("b") == set(range(COUNT))
    (found,) = scenario.traced("align.difference", "a")
    assert (found["samples"], found["removed"]) == (2, 2)
    assert bytes_sent(scenario) - before < COUNT * LARGE / 4
    assert not scenario.traced("align.mismatch")
