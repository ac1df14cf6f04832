"""Options drawn from a seed: every seed is another system, another load and other faults."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Final

from engine.core.name_spaces import Alignee, NameSpace
from engine.core.settings import CoreSettings
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.simulator.draw_policies import draw_policies, draw_roles
from engine.simulator.options import (
    CLASSIC,
    Fault,
    NetworkPlan,
    NodePlan,
    SimulationOptions,
    TopicPlan,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


CHANCES: Final = {
    Fault.TAP: 0.4,
    Fault.WRITER: 0.4,
    Fault.BUSY: 0.3,
    Fault.ROLL: 0.2,
    Fault.STALE: 0.2,
    Fault.LOSS: 0.1,
}
"""Chances of faults between applications and nodes, and around restarts."""


LAZY: Final = 0.3
"""Chance that a system has Lazy nodes."""
OTHERWISE: Final = 270
"""Number for which the seeds that once found faults in systems without Lazy nodes still have none."""


def draw(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    nodes: int | None = None,
    minutes: float | None = None,
    is_classic: bool = False,
) -> SimulationOptions:
    """Draw the options of a seed.

    Args:
        seed: decides everything that is not given.
        faults: kinds of faults; None draws some.
        is_classic: draw faults of the classic kinds only.
        nodes: how many; None draws 2 to 5.
        minutes: of the phase with faults; None draws half a minute to two.
    """
    rng = random.Random(f"{seed} options")
    count = nodes or rng.choice((2, 3, 3, 4, 5))
    chosen = tuple(faults) if faults is not None else some_faults(rng, list(CLASSIC))
    expiry_s = rng.choice((2.0, 4.0, 10.0))
    fault_s = 60.0 * minutes if minutes else rng.choice((30.0, 60.0, 120.0))
    names = ["ns1"] if rng.random() < 0.7 else ["ns1", "ns2"]
    spaces = tuple(NameSpace.of(name, f"{name}.*") for name in names)
    roles = draw_roles(rng, count)
    discovery_s = rng.choice((0.5, 3.0))
    plans = tuple(
        NodePlan(
            CoreSettings(
                node="",
                incarnation=0,
                name=f"n{number + 1}",
                role=role,
                host="",
                name_spaces=spaces,
                policies=policies,
                heartbeat_expiry_s=expiry_s,
                heartbeat_period_s=expiry_s * 0.2,
                initial_discovery_s=discovery_s,
            ),
            has_disk=has_disk,
        )
        for number, (role, policies, has_disk) in enumerate(
            zip(roles, draw_policies(rng, roles, names), _disks(rng, count), strict=True)
        )
    )
    options = SimulationOptions(
        seed=seed,
        nodes=plans,
        workload=draw_workload(rng, names),
        network=NetworkPlan(delay_mean_s=rng.choice((0.0005, 0.005, 0.03))),
        faults=chosen,
        fault_s=fault_s,
        fault_pause_s=rng.choice((3.0, 6.0, 15.0)),
        start_spread_s=rng.choice((0.1, 3.0, 10.0)),
        skew_s=rng.choice((0.05, 5.0, 3600.0)),
        disk_delay_s=rng.choice((0.001, 0.01, 0.1)),
    )
    if is_classic:
        return options
    options = with_applications(options, is_drawn=faults is None)
    return with_narrow_writers(with_lazy_nodes(options)) if faults is None else options


def with_applications(options: SimulationOptions, *, is_drawn: bool) -> SimulationOptions:
    """Add faults between applications and nodes, and around restarts.

    It has a generator of its own, so that a seed's system is the same with and without it. With `is_drawn`
    kinds of such faults are drawn; otherwise those among the options' faults happen.
    """
    rng = random.Random(f"{options.seed} applications")
    drawn = [fault for fault in Fault if fault not in CLASSIC and rng.random() < CHANCES[fault]]
    faults = (*options.faults, *drawn) if is_drawn else options.faults
    load = options.workload
    tap_delay_s = rng.choice((0.05, 0.5, 3.0))
    if Fault.WRITER in faults:
        load = dataclasses.replace(
            load,
            remote=rng.choice((0.5, 1.0)),
            walled=rng.choice((0.0, 0.0, 0.3, 0.7)),
            history=rng.choice((0, 0, 1)),
        )
    if Fault.BUSY in faults:
        load = dataclasses.replace(load, write_pause_s=rng.choice((0.1, 0.2)) * load.writers)
    if Fault.TAP not in faults:
        tap_delay_s = options.tap_delay_s
    return dataclasses.replace(options, faults=faults, workload=load, tap_delay_s=tap_delay_s)


def with_lazy_nodes(options: SimulationOptions) -> SimulationOptions:
    """Make some nodes Lazy in some systems, but not all that may be master of a role.

    It has a generator of its own, too. There are topics and readers enough for parts to differ.
    """
    rng = random.Random(f"{options.seed} lazy {OTHERWISE}")
    if rng.random() >= LAZY:
        return options
    plans, load = list(options.nodes), options.workload
    for number, plan in enumerate(plans):
        others = [other.settings for other in plans if other is not plan]
        if rng.random() < 0.6 and any(_leads(other, plan.settings.role) for other in others):
            gives = rng.random() < 0.7
            policies = tuple(
                dataclasses.replace(policy, alignee=Alignee.LAZY, aligner=policy.aligner and gives)
                for policy in plan.settings.policies
            )
            plans[number] = dataclasses.replace(
                plan, settings=dataclasses.replace(plan.settings, policies=policies)
            )
    names = sorted({topic.partition for topic in load.topics})
    topics = load.topics + tuple(
        TopicPlan(rng.choice(names), f"More{number}", DurabilityKind.PERSISTENT, rng.choice((1, 3)))
        for number in range(rng.choice((1, 3)))
    )
    load = dataclasses.replace(load, topics=topics, readers=max(load.readers, rng.choice((2, 4))))
    return dataclasses.replace(options, nodes=tuple(plans), workload=load)


def with_narrow_writers(options: SimulationOptions) -> SimulationOptions:
    """Give each writer only one topic in some systems; it has a separate generator, too."""
    rng = random.Random(f"{options.seed} narrow {OTHERWISE}")
    load = dataclasses.replace(options.workload, narrow=rng.choice((0.0, 0.0, 0.0, 0.5, 1.0)))
    return dataclasses.replace(options, workload=load)


def _leads(settings: CoreSettings, role: str) -> bool:
    return settings.role == role and all(policy.may_lead_others for policy in settings.policies)


def _disks(rng: random.Random, count: int) -> list[bool]:
    """Draw which nodes have a store; at least one does."""
    if rng.random() < 0.9:
        return [True] * count
    return [True, *(rng.random() < 0.5 for _ in range(count - 1))]


def some_faults(rng: random.Random, among: list[Fault]) -> tuple[Fault, ...]:
    """Draw some of the kinds of faults."""
    return tuple(fault for fault in among if rng.random() < 0.4)


def draw_workload(rng: random.Random, partitions: list[str]) -> Workload:
    """Draw the work of applications: topics of any kind in the given partitions."""
    topics = tuple(
        TopicPlan(
            rng.choice(partitions),
            f"Topic{number}",
            rng.choice((DurabilityKind.PERSISTENT, DurabilityKind.PERSISTENT, DurabilityKind.TRANSIENT)),
            rng.choice((1, 1, 3, KEEP_ALL)),
        )
        for number in range(1, rng.choice((1, 2, 3)) + 1)
    )
    return Workload(
        topics,
        writers=rng.choice((1, 2, 4)),
        write_pause_s=rng.choice((0.3, 1.0, 4.0)),
        keys=rng.choice((2, 10, 40)),
        readers=rng.choice((0, 2, 4)),
    )
