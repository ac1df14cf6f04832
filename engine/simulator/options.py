"""Everything that makes one run: with the same options the same run happens, to the byte.

`draw` makes the options of a seed; `deployed` makes them for the nodes of a real deployment. The order in
which they draw is part of what a seed means: a draw added in the middle changes every run behind it.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from engine.config import Configuration
from engine.core.expressions import intersection
from engine.core.name_spaces import Alignee, Durability, MergeRule, MergeType, NameSpace, Policy
from engine.core.settings import CoreSettings
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.runtime.startup import configured_settings

MAX_NODES: Final = 1_000
"""More than any deployment has."""


class Fault(enum.StrEnum):
    """Kinds of faults; a run has any of them together."""

    CRASH = "crash"
    """A node is killed, also in the middle of an alignment or of a transaction, and started again."""
    STOP = "stop"
    """A node ends in order and is started again."""
    PARTITION = "partition"
    """The hosts fall into parts that do not reach each other, for an instant or for long."""
    LINK = "link"
    """Single links are cut, in one direction or both: partial meshes and one-sided views."""
    CLOG = "clog"
    """Links are cut one by one and come back in another order."""
    PAUSE = "pause"
    """A process stands still, or only its main thread does."""
    SLOW = "slow"
    """A node needs long for everything that it takes in."""
    NETWORK = "network"
    """Datagrams are lost, repeated, and delayed for long."""
    SKEW = "skew"
    """Wall clocks differ, and jump."""
    DISK = "disk"
    """Disks are full, failing or slow for a while."""
    ROT = "rot"
    """A bit of a stored sample flips."""
    TAP = "tap"
    """Taps open late, each node's at its own time: what was written before is not captured there."""
    WRITER = "writer"
    """Writers are on hosts of their own, reach only some nodes, and lose single nodes for a while."""
    BUSY = "busy"
    """Applications write often, and go on while everything must come to be equal."""
    ROLL = "roll"
    """The nodes are restarted one after the other, in order or by force, and nothing waits for quiet."""
    STALE = "stale"
    """A node is off for long; then all are, and it starts first."""
    LOSS = "loss"
    """A node dies and its disk is lost; it comes back as a new node."""
    RESTORE = "restore"
    """A node dies, and an older copy of its disk is put back; sometimes of two, or while it is cut off."""


CLASSIC: Final = tuple(Fault)[: list(Fault).index(Fault.TAP)]
"""Those of nodes, hosts and disks: writers reach all nodes at once, and everything is repaired in quiet."""


class NodePlan(msgspec.Struct, frozen=True):
    """One node: `settings` without what its store adds (id, incarnation, remembered fellows, stored sets)."""

    settings: CoreSettings
    has_disk: bool = True

    @property
    def name(self) -> str:
        """The node's name, and that of its host."""
        return self.settings.name


class TopicPlan(msgspec.Struct, frozen=True):
    """A topic that applications write in one partition; `depth` 0 keeps all samples.

    `cleanup_delay_s` is the service_cleanup_delay, -1 for infinite; `lifespan_s` is the LIFESPAN of its
    writers, 0 for infinite.
    """

    partition: str
    topic: str
    durability: DurabilityKind = DurabilityKind.PERSISTENT
    depth: int = 1
    cleanup_delay_s: int = 0
    lifespan_s: float = 0.0


class Workload(msgspec.Struct, frozen=True):
    """What applications do.

    Attributes:
        topics: what is written.
        writers: processes that write, spread over the hosts.
        write_pause_s: mean pause between two writes of one writer.
        keys: instances of each topic.
        readers: late-joining readers that come at any time.
        payload_bytes: size of most samples; a few are hundred times as large.
        remote: the share of writers that are on hosts without a node.
        walled: the chance that such a host never reaches a certain node; it always reaches one.
        history: the depth of the writers' own history, 0 keeps everything that a node has not acknowledged.
        narrow: the share of writers that write one of the topics only, so that nodes which are down then do
            not hear of it.
        autodispose: the share of writers whose end disposes their instances.
        mortal: the share of writers that end for good, at any time, in order or not.
    """

    topics: tuple[TopicPlan, ...]
    # Small numbers throughout: more of the same finds the same faults, in fewer runs an hour.
    writers: int = 3
    write_pause_s: float = 2.0
    keys: int = 20
    readers: int = 3
    payload_bytes: int = 60
    remote: float = 0.0
    walled: float = 0.0
    history: int = 0
    narrow: float = 0.0
    autodispose: float = 0.5
    mortal: float = 0.4


class NetworkPlan(msgspec.Struct, frozen=True):
    """The network while no fault changes it. All times are in seconds.

    Attributes:
        delay_min_s: least delay of a message in one direction.
        delay_mean_s: mean of the exponentially distributed delay that is added to `delay_min_s`.
        loss: probability, 0 to 1, that a datagram is lost and has to be sent again.
        duplication: probability, 0 to 1, that a message arrives twice.
        lease_s: silence after which a participant counts as gone.
        announce_s: time between two announcements of a participant.
        discovery_s: longest time until two participants that reach each other have discovered each other.
        bytes_per_s: throughput of one alignment stream.
    """

    delay_min_s: float = 0.0002
    delay_mean_s: float = 0.001
    loss: float = 0.0
    duplication: float = 0.0
    # Shorter than the 10 s of Cyclone DDS: a run has more losses in less virtual time.
    lease_s: float = 2.0
    announce_s: float = 0.5
    discovery_s: float = 0.6
    bytes_per_s: float = 20e6


class SimulationOptions(msgspec.Struct, frozen=True):
    """The input of one run. All times are in seconds of virtual time.

    A run has two phases. For `fault_s` seconds applications write and faults happen. Then all faults end;
    within `heal_within_s` all work must be done and the sets of all nodes be equal, and stay so
    for `quiet_s`.

    Attributes:
        seed: seed of all random decisions.
        nodes: the nodes, 1 to `MAX_NODES`, with different names.
        workload: what applications write and read.
        network: delays and losses while no fault changes them.
        faults: kinds of faults that happen; none for a run without faults.
        fault_s: length of the first phase.
        fault_pause_s: mean time between two faults.
        heal_within_s: time that the system has to repair everything.
        quiet_s: time for which it must then stay equal.
        start_spread_s: nodes start at random times in this interval.
        skew_s: most that a wall clock may be off in either direction, if `faults` has SKEW.
        disk_delay_s: mean time of one transaction of a store.
        tap_delay_s: longest time from opening a tap, or from discovering a writer, to the first sample that
            the node captures. The time is drawn for each node, topic and writer.
        step_s: time that each step of a comparison takes; with 0 a comparison takes no time.
    """

    seed: int
    nodes: tuple[NodePlan, ...]
    workload: Workload
    network: NetworkPlan = NetworkPlan()
    faults: tuple[Fault, ...] = ()
    fault_s: float = 60.0
    fault_pause_s: float = 6.0
    heal_within_s: float = 90.0
    quiet_s: float = 20.0
    start_spread_s: float = 3.0
    skew_s: float = 0.0
    disk_delay_s: float = 0.005
    tap_delay_s: float = 0.02
    step_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated."""
        if not 1 <= len(self.nodes) <= MAX_NODES:
            raise ValueError(f"1 to {MAX_NODES:,} nodes can be simulated, not {len(self.nodes)}")
        if len({plan.name for plan in self.nodes}) != len(self.nodes):
            raise ValueError("two nodes have the same name")


ROLES: Final = ("Harbour", "Bridge")
# The chances here are chosen: each feature must occur in many seeds, and most seeds must not have all.
TWO_ROLES: Final = 0.25
"""Chance that a system has two roles."""
PLAIN_MERGE: Final = 0.5
"""Chance that all nodes merge, within their role and with the other."""
UNUSUAL: Final = 0.35
"""Chance that one node's policy differs from the others'."""


def _draw_roles(rng: random.Random, count: int) -> list[str]:
    """Draw the role of each node; every role has a node."""
    if count < 2 or rng.random() >= TWO_ROLES:
        return [ROLES[0]] * count
    border = rng.randint(1, count - 1)
    return [ROLES[number >= border] for number in range(count)]


def _draw_policies(
    rng: random.Random, roles: Sequence[str], names: Sequence[str]
) -> list[tuple[Policy, ...]]:
    """Draw the policies of each node, one for each name-space.

    Within a role all nodes have the same merge policies, and one may be master, as it must be.
    """
    plain = rng.random() < PLAIN_MERGE
    rules = {
        (role, name): _rules(rng, role, set(roles), plain=plain)
        for role in sorted(set(roles))
        for name in names
    }
    priorities = [  # the last node of a role may be master: some node of it must be
        priority or 1 if roles[number] not in roles[number + 1 :] else priority
        for number, priority in enumerate(_priorities(rng, len(roles)))
    ]
    found = [
        tuple(
            Policy(
                name,
                durability=Durability.PERSISTENT,
                master_priority=priority,
                merges=rules[role, name],
            )
            for name in names
        )
        for role, priority in zip(roles, priorities, strict=True)
    ]
    if len(roles) > 1 and rng.random() < UNUSUAL:
        _make_unusual(rng, roles, found)
    return found


def _rules(rng: random.Random, role: str, roles: set[str], *, plain: bool) -> tuple[MergeRule, ...]:
    if plain:
        return (MergeRule(MergeType.MERGE, "*"),)
    own = MergeRule(rng.choice(list(MergeType)), role)
    others = (MergeRule(rng.choice(list(MergeType)), other) for other in sorted(roles - {role}))
    return (own, *others)


def _make_unusual(rng: random.Random, roles: Sequence[str], found: list[tuple[Policy, ...]]) -> None:
    """Change the policies of one node whose role has another that may be master."""
    candidates = [
        number
        for number, role in enumerate(roles)
        if any(
            other == role and policies[0].may_be_master and number != index
            for index, (other, policies) in enumerate(zip(roles, found, strict=True))
        )
    ]
    if not candidates:
        return
    number = rng.choice(candidates)
    change = rng.choice(
        (
            {"aligner": False},
            {"master_priority": 0},
            {"alignee": Alignee.LAZY, "master_priority": 0},
            {"alignee": Alignee.ON_REQUEST, "aligner": False},
            {"durability": Durability.TRANSIENT},
            {"delayed_alignment": True},
        )
    )
    found[number] = tuple(msgspec.structs.replace(policy, **change) for policy in found[number])


def _priorities(rng: random.Random, count: int) -> list[int]:
    kind = rng.choice(("legacy", "equal", "different", "any"))
    if kind == "legacy":
        return [255] * count
    if kind == "equal":
        return [100] * count
    if kind == "different":
        return rng.sample(range(1, 255), count)
    return [rng.choice((0, 50, 100)) for _ in range(count - 1)] + [100]


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
RESTORE: Final = 0.2
"""Chance of older copies of disks that are put back."""
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
    chosen = tuple(faults) if faults is not None else _some_faults(rng, list(CLASSIC))
    expiry_s = rng.choice((2.0, 4.0, 10.0))
    fault_s = 60.0 * minutes if minutes else rng.choice((30.0, 60.0, 120.0))
    names = ["ns1"] if rng.random() < 0.7 else ["ns1", "ns2"]
    spaces = tuple(NameSpace.parse(name, f"{name}.*") for name in names)
    roles = _draw_roles(rng, count)
    discovery_s = rng.choice((0.5, 3.0))
    policies, disks = _draw_policies(rng, roles, names), _disks(rng, count)
    nodes_settings = [
        CoreSettings(
            node="",
            incarnation=0,
            name=f"n{number + 1}",
            role=role,
            host="",
            name_spaces=spaces,
            policies=policies[number],
            heartbeat_expiry_s=expiry_s,
            heartbeat_period_s=expiry_s * 0.2,
            initial_discovery_s=discovery_s,
        )
        for number, role in enumerate(roles)
    ]
    options = SimulationOptions(
        seed=seed,
        nodes=tuple(map(NodePlan, nodes_settings, disks)),
        workload=_draw_workload(rng, names),
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
    options = _with_applications(options, is_drawn=faults is None)
    return _with_narrow_writers(_with_lazy_nodes(options)) if faults is None else options


def _with_applications(options: SimulationOptions, *, is_drawn: bool) -> SimulationOptions:
    """Add faults between applications and nodes, and around restarts.

    It has a generator of its own, so that a seed's system is the same with and without it. With `is_drawn`
    kinds of such faults are drawn; otherwise those among the options' faults happen.
    """
    rng = random.Random(f"{options.seed} applications")
    drawn = [fault for fault in CHANCES if rng.random() < CHANCES[fault]]
    if random.Random(f"{options.seed} restored").random() < RESTORE:  # older seeds stay as they were
        drawn.append(Fault.RESTORE)
    faults = (*options.faults, *drawn) if is_drawn else options.faults
    load = options.workload
    tap_delay_s = rng.choice((0.05, 0.5, 3.0))
    if Fault.WRITER in faults:
        load = msgspec.structs.replace(
            load,
            remote=rng.choice((0.5, 1.0)),
            walled=rng.choice((0.0, 0.0, 0.3, 0.7)),
            history=rng.choice((0, 0, 1)),
        )
    if Fault.BUSY in faults:
        load = msgspec.structs.replace(load, write_pause_s=rng.choice((0.1, 0.2)) * load.writers)
    if Fault.TAP not in faults:
        tap_delay_s = options.tap_delay_s
    return msgspec.structs.replace(options, faults=faults, workload=load, tap_delay_s=tap_delay_s)


def _with_lazy_nodes(options: SimulationOptions) -> SimulationOptions:
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
                msgspec.structs.replace(policy, alignee=Alignee.LAZY, aligner=policy.aligner and gives)
                for policy in plan.settings.policies
            )
            plans[number] = msgspec.structs.replace(
                plan, settings=msgspec.structs.replace(plan.settings, policies=policies)
            )
    names = sorted({topic.partition for topic in load.topics})
    topics = load.topics + tuple(
        TopicPlan(rng.choice(names), f"More{number}", DurabilityKind.PERSISTENT, rng.choice((1, 3)))
        for number in range(rng.choice((1, 3)))
    )
    load = msgspec.structs.replace(load, topics=topics, readers=max(load.readers, rng.choice((2, 4))))
    return msgspec.structs.replace(options, nodes=tuple(plans), workload=load)


def _with_narrow_writers(options: SimulationOptions) -> SimulationOptions:
    """Give each writer only one topic in some systems; it has a separate generator, too."""
    rng = random.Random(f"{options.seed} narrow {OTHERWISE}")
    load = msgspec.structs.replace(options.workload, narrow=rng.choice((0.0, 0.0, 0.0, 0.5, 1.0)))
    return msgspec.structs.replace(options, workload=load)


def _leads(settings: CoreSettings, role: str) -> bool:
    return settings.role == role and all(policy.may_lead_others for policy in settings.policies)


def _disks(rng: random.Random, count: int) -> list[bool]:
    """Draw which nodes have a store; at least one does."""
    if rng.random() < 0.9:
        return [True] * count
    return [True, *(rng.random() < 0.5 for _ in range(count - 1))]


def _some_faults(rng: random.Random, among: list[Fault]) -> tuple[Fault, ...]:
    """Draw some of the kinds of faults."""
    return tuple(fault for fault in among if rng.random() < 0.4)


def _draw_workload(rng: random.Random, partitions: list[str]) -> Workload:
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
    load = _draw_workload(rng, [""])
    topics = tuple(
        msgspec.structs.replace(plan, partition=partition, topic=topic)
        for plan, (partition, topic) in zip(itertools.cycle(load.topics), places, strict=False)
    )
    longest_s = max(plan.settings.heartbeat_expiry_s for plan in plans)
    options = SimulationOptions(
        seed=seed,
        nodes=plans,
        workload=msgspec.structs.replace(load, topics=topics),
        network=NetworkPlan(delay_mean_s=rng.choice((0.0005, 0.005, 0.03))),
        faults=tuple(faults) if faults is not None else _some_faults(rng, list(CLASSIC)),
        fault_s=60.0 * (minutes or MINUTES),
        fault_pause_s=rng.choice((3.0, 6.0, 15.0)),
        heal_within_s=90.0 + 6 * longest_s,
        quiet_s=20.0 + longest_s,
        start_spread_s=rng.choice((0.1, 3.0, 10.0)),
        skew_s=rng.choice((0.05, 5.0, 3600.0)),
        disk_delay_s=rng.choice((0.001, 0.01, 0.1)),
    )
    return options if is_classic else _with_applications(options, is_drawn=faults is None)


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
