"""What the core must be told before it starts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.core.messages import NO_EPOCH, Epoch

if TYPE_CHECKING:
    from engine.core.namespaces import Element, NameSpace, Policy


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSet:
    """What the store says of a name-space's last complete set: quality 0 for none, `DAMAGED` for damage.

    `line` are the earlier lineages of the set (see `NameSpaceReport.line`); with `apart`, a merge policy left
    it different from the master's set of the same lineage. `role` is the role in which it was stored.
    A `part` is what a Lazy node kept, or comes from such; `whole` is what of it came from a whole set.
    """

    quality_ns: int
    lineage: Epoch
    line: tuple[Epoch, ...] = (NO_EPOCH,)
    apart: bool = False
    role: str = ""
    part: bool = False
    whole: tuple[Element, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CoreSettings:
    """One node's identity, configuration and memory.

    Attributes:
        node: 128-bit id, 32 hexadecimal digits, the "system id" of the specification.
        incarnation: grows by one at each start.
        host: the address under which processes and fellows reach this node.
        further_hosts: those of its other network interfaces.
        heartbeat_expiry_s, heartbeat_period_s: Network/Heartbeat/ExpiryTime and its update_factor.
        initial_discovery_s: Network/InitialDiscoveryPeriod.
        election_wait_s: MasterElection/WaitTime: for so long after discovery a name-space whose policy has a
            masterPriority other than 255 waits for better candidates.
        combine_initial_s, combine_operational_s: RequestCombinePeriod before and after COMPLETE.
        request_patience_s: silence of an aligner after which a request is made again.
        waits_for_aligner: with false, a node ends when nobody may be master (TimeToWaitForAligner 0).
        absence_bound_s: a fellow that was away for longer, while nodes ran, is not waited for with tombstones
            and takes the master's set when it comes back instead of merging its own.
        remembered: ids of the fellows of the last run; discovery ends early when all have answered.
        away: fellows that were away when the last run ended, and for how long nodes ran without them
            (nanoseconds). Clocks may be wrong, and a system that is off forgets nothing, so neither counts.
        stored: what the store holds, by name-space.
        wanted: what readers on this host wanted of Lazy name-spaces in former runs.
        filtered: what content filters of this node apply to (//OpenSplice/Domain/Filters), and where each of
            them stands in the file.
        learned: name-spaces that were learned from fellows in former runs (5.2.3.6).
    """

    node: str
    incarnation: int
    name: str
    role: str
    host: str
    name_spaces: tuple[NameSpace, ...]
    policies: tuple[Policy, ...]
    heartbeat_expiry_s: float = 4.0
    heartbeat_period_s: float = 1.0
    initial_discovery_s: float = 3.0
    election_wait_s: float = 0.0
    combine_initial_s: float = 0.5
    combine_operational_s: float = 0.01
    request_patience_s: float = 10.0
    waits_for_aligner: bool = True
    absence_bound_s: float = 86_400.0
    remembered: frozenset[str] = frozenset()
    away: dict[str, int] = dataclasses.field(default_factory=dict)
    stored: dict[str, StoredSet] = dataclasses.field(default_factory=dict)
    wanted: dict[str, tuple[Element, ...]] = dataclasses.field(default_factory=dict)
    further_hosts: tuple[str, ...] = ()
    filtered: tuple[tuple[Element, str], ...] = ()
    learned: tuple[NameSpace, ...] = ()

    @property
    def hosts(self) -> frozenset[str]:
        """All its addresses."""
        return frozenset((self.host, *self.further_hosts))
