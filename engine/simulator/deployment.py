"""Options for the nodes of a real deployment: their configurations, and a load and faults from a seed."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from engine.core.expressions import intersection
from engine.runtime.startup import configured_settings
from engine.simulator.draw import draw_workload, some_faults, with_applications
from engine.simulator.options import CLASSIC, Fault, NetworkPlan, NodePlan, SimulationOptions, TopicPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.config import Configuration

MINUTES = 2.0
"""Default duration of the phase with faults."""


def deployed(
    configurations: Mapping[str, Configuration],
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    minutes: float | None = None,
    is_classic: bool = False,
) -> SimulationOptions:
    """Make the options for configured nodes.

    Args:
        configurations: of each node, by its name; each node is on a host of its own.
        seed: decides load, network and faults.
        faults: kinds of faults; None draws some.
        minutes: of the phase with faults.
        is_classic: draw faults of the classic kinds only.

    Raises:
        ValueError: no name-space has a group in which something could be written, or there are no nodes.
    """
    rng = random.Random(f"{seed} deployment")
    plans = tuple(
        NodePlan(configured_settings(configuration, name, ""), has_disk=configuration.persistent is not None)
        for name, configuration in configurations.items()
    )
    places = sorted({place for plan in plans for place in _places(plan)})
    if not places:
        raise ValueError("no name-space of the deployment has a group to write in")
    load = draw_workload(rng, [""])
    topics = tuple(
        dataclasses.replace(plan, partition=partition, topic=topic)
        for plan, (partition, topic) in zip(_repeat(load.topics, len(places)), places, strict=True)
    )
    longest_s = max(plan.settings.heartbeat_expiry_s for plan in plans)
    options = SimulationOptions(
        seed=seed,
        nodes=plans,
        workload=dataclasses.replace(load, topics=topics),
        network=NetworkPlan(delay_mean_s=rng.choice((0.0005, 0.005, 0.03))),
        faults=tuple(faults) if faults is not None else some_faults(rng, list(CLASSIC)),
        fault_s=60.0 * (minutes or MINUTES),
        fault_pause_s=rng.choice((3.0, 6.0, 15.0)),
        heal_within_s=90.0 + 6 * longest_s,
        quiet_s=20.0 + longest_s,
        start_spread_s=rng.choice((0.1, 3.0, 10.0)),
        skew_s=rng.choice((0.05, 5.0, 3600.0)),
        disk_delay_s=rng.choice((0.001, 0.01, 0.1)),
    )
    return options if is_classic else with_applications(options, is_drawn=faults is None)


def _places(plan: NodePlan) -> list[tuple[str, str]]:
    """Return a partition and a topic in each element of the name-spaces, each once."""
    found: list[tuple[str, str]] = []
    for space in plan.settings.name_spaces:
        for element in space.elements:
            partition = intersection(element.partition, "*")
            topic = intersection(element.topic, "?*")
            if partition is not None and topic:
                found.append((partition, topic))
    return found


def _repeat(plans: tuple[TopicPlan, ...], count: int) -> list[TopicPlan]:
    return [plans[number % len(plans)] for number in range(count)]
