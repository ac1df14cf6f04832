"""The master keeps tombstones for as long as a durable writer of a client may hand over older samples."""

from __future__ import annotations

import pytest

from engine.core.settings import PendingWriter
from engine.dataset.sample import DISPOSE
from tests.simulation.scenarios import Scenario, node
from tests.simulation.test_merge_scenarios import started

WAIT_S = 200.0
FORGETS_S = 60.0
"""Longer than a system needs to forget an instance."""


def pending(scenario: Scenario, name: str, wait_s: float = WAIT_S) -> None:
    """A node hears from the durable writer "7f" that it may hand over samples from now on."""
    runtime = scenario.node(name).runtime
    assert runtime is not None
    group = next(iter(runtime.descriptions))
    since_ns = runtime.shared.clock.wall_ns()
    runtime.pending.heard(PendingWriter("7f", group.topic, (group.partition,), since_ns, wait_s))


def ended(scenario: Scenario, name: str) -> None:
    """A node hears that the durable writer has nothing to hand over any more."""
    runtime = scenario.node(name).runtime
    assert runtime is not None
    runtime.pending.ended("7f")


def disposed(hears: str, wait_s: float = WAIT_S) -> Scenario:
    """1 is disposed before the durable writer is heard, 2 after that; 3 stays, and its writer ends."""
    scenario = started(Scenario(node("a", priority=200), node("b"), node("c")))
    scenario.write("a", 1, 2, 3)
    scenario.settle()
    scenario.dispose("a", 1)
    scenario.run(1.0)
    pending(scenario, hears, wait_s)
    scenario.run(1.0)
    scenario.dispose("a", 2)
    scenario.end_writer("a")
    scenario.run(FORGETS_S)
    return scenario


def check_known(scenario: Scenario, *numbers: int) -> None:
    """Each node knows exactly these instances, of which only 3 is alive."""
    for name in "abc":
        found = scenario.instances(name)
        assert {number: bool(status & DISPOSE) for number, status in found.items()} == {
            number: number != 3 for number in numbers
        }


@pytest.mark.parametrize("hears", "abc")
def test_what_was_disposed_since_stays_until_the_writer_has_nothing_to_hand_over(hears: str) -> None:
    scenario = disposed(hears)
    check_known(scenario, 2, 3)
    ended(scenario, hears)
    scenario.run(FORGETS_S)
    check_known(scenario, 3)


def test_a_later_time_lets_it_go() -> None:
    scenario = disposed("b")
    pending(scenario, "b")
    scenario.run(FORGETS_S)
    check_known(scenario, 3)


def test_all_nodes_start_again_and_still_wait() -> None:
    scenario = disposed("b")
    scenario.kill("a", "b", "c")
    scenario.start()
    scenario.settle()
    scenario.run(FORGETS_S)
    check_known(scenario, 2, 3)
    scenario.run(WAIT_S)
    check_known(scenario, 3)
    assert [each["writer"] for each in scenario.traced("pending.given-up")] == ["7f"]


def test_a_silent_writer_is_waited_for_as_long_as_it_said() -> None:
    scenario = disposed("b")
    check_known(scenario, 2, 3)
    scenario.run(WAIT_S)
    check_known(scenario, 3)
    for event in ("pending.silent", "pending.given-up"):
        assert [each["writer"] for each in scenario.traced(event, "b")] == ["7f"]


def test_who_is_away_when_the_writer_ends_hears_of_it_later() -> None:
    scenario = disposed("b")
    pending(scenario, "c")
    scenario.stop("c")
    ended(scenario, "b")
    scenario.start("c")
    scenario.settle()
    scenario.dispose("a", 2)
    scenario.end_writer("a")
    scenario.run(FORGETS_S)
    check_known(scenario, 3)


def test_who_cannot_hear_the_writer_learns_its_time_from_others() -> None:
    scenario = disposed("b")
    pending(scenario, "c")
    scenario.run(1.0)
    scenario.dispose("a", 3)
    scenario.end_writer("a")
    pending(scenario, "b")
    scenario.run(FORGETS_S)
    assert [scenario.instances(name) for name in "abc"] == [{}] * 3


def test_the_time_of_silence_is_remembered_over_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.pending_writers.STORED_SILENT_S", 150.0)
    scenario = disposed("b", wait_s=500.0)
    for _ in range(2):
        scenario.run(180.0)
        scenario.kill("a", "b", "c")
        scenario.start()
        scenario.settle()
    check_known(scenario, 2, 3)
    scenario.run(200.0)
    check_known(scenario, 3)
