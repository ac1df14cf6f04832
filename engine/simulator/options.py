"""Everything that makes one run: with the same options the same run happens, to the byte."""

from __future__ import annotations

import enum
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.core.settings import CoreSettings
from engine.dataset.groups import DurabilityKind

MAX_NODES: Final = 1_000


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


@lazy_dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: `settings` without what its store adds (id, incarnation, remembered fellows, stored sets)."""

    settings: CoreSettings
    has_disk: bool = True

    @property
    def name(self) -> str:
        """The node's name, and that of its host."""
        return self.settings.name


@lazy_dataclass(frozen=True, slots=True)
class TopicPlan:
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


@lazy_dataclass(frozen=True, slots=True)
class Workload:
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


@lazy_dataclass(frozen=True, slots=True)
class NetworkPlan:
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
    lease_s: float = 2.0
    announce_s: float = 0.5
    discovery_s: float = 0.6
    bytes_per_s: float = 20e6


@lazy_dataclass(frozen=True, slots=True)
class SimulationOptions:
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
