"""What the simulated network carries between very many nodes."""

from __future__ import annotations

import random
import types
from typing import Any

import pytest

from engine.simulator.network import Network, SimulatedParticipant
from engine.simulator.options import NetworkPlan
from engine.simulator.run_record import ShortLog
from engine.simulator.schedule import Schedule

NODES = 60


@pytest.mark.parametrize(("count", "width"), [(50, 50), (51, 1)])
def test_the_short_log_has_no_column_for_each_of_a_crowd(count: int, width: int) -> None:
    shown: list[str] = []
    nodes: Any = [types.SimpleNamespace(name=f"n{n}", runtime=None) for n in range(count)]
    log = ShortLog(Schedule(), nodes, shown.append)
    log.header()
    log.line("n0", "^", "starts")
    header, line = shown
    assert ("n49" in header) is (count == 50)
    assert len(line.split()[2]) == width


class Heard:
    """A node that remembers what it received."""

    def __init__(self) -> None:
        self.items: list[object] = []

    def receive(self, sender: SimulatedParticipant, topic: str, item: object) -> None:
        self.items.append(item)

    def appeared(self, peer: SimulatedParticipant) -> None:
        """Nothing."""

    vanished = attached = detached = appeared


def test_in_a_crowd_only_what_concerns_a_node_is_carried_to_it() -> None:
    """Of the 788,000 messages in the first second of 200 nodes, most said nothing to their receivers."""
    schedule = Schedule()
    network = Network(schedule, NetworkPlan(), random.Random(1), frozenset())
    everybody = [SimulatedParticipant(f"p{n}", f"n{n}", f"h{n}", Heard(), f"id{n}") for n in range(NODES)]
    for one in everybody:
        network.join(one)
    schedule.run_until(3.0)
    assert {len(one.attached) for one in everybody} == {NODES - 1}
    assert network.carried <= 2 * NODES * (NODES - 1), "each tells each other once, or once again"
    network.broadcast(everybody[0], "message", "for one", is_state=False, to=("id7",))
    network.broadcast(everybody[0], "message", "for all", is_state=False)
    schedule.run_until(4.0)
    heard = {one.node: one.handler.items for one in everybody if isinstance(one.handler, Heard)}
    assert heard.pop("id7") == ["for one", "for all"], "in order"
    assert heard.pop("id0") == []
    assert all(items == ["for all"] for items in heard.values())
    lost = everybody[3]
    network.kill(lost)
    schedule.run_until(8.0)
    assert not any(lost in one.attached for one in everybody if one is not lost)
    network.freeze(everybody[4])
    schedule.run_until(12.0)
    network.thaw(everybody[4])
    schedule.run_until(16.0)
    assert len(everybody[4].attached) == NODES - 2, "what was lost is told again"
    assert all(everybody[4] in one.attached for one in everybody if one not in (lost, everybody[4]))
