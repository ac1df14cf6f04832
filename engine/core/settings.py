"""Settings of the core, which do not change while it runs."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from engine.core.messages import NO_EPOCH, AutodisposeWriter, Epoch, run_of
from engine.core.name_spaces import Element, NameSpace, Policy
from engine.core.untrusted import Seconds


class StoredSet(msgspec.Struct, frozen=True):
    """The last complete set of a name-space in the store.

    Attributes:
        quality_ns: its newest source time without samples in the future, 0 for an empty set, `DAMAGED` for a
            damaged one.
        lineage: history to which it belongs.
        line: earlier lineages of the set.
        apart: a merge policy left it different from the master's set of the same lineage.
        role: role in which it was stored.
        part: it is what a Lazy node kept, or comes from such parts.
        whole: groups of a part that came from a whole set.
        restored: the store was put back from a copy, so the set may be older than what this node once had.
        purges: how often instances had been purged from sets of its history.
    """

    quality_ns: int
    lineage: Epoch
    line: tuple[Epoch, ...] = (NO_EPOCH,)
    apart: bool = False
    role: str = ""
    part: bool = False
    whole: tuple[Element, ...] = ()
    restored: bool = False
    purges: int = 0


class PendingWriter(msgspec.Struct, frozen=True):
    """A durable writer of a client that may still hand over samples.

    Attributes:
        id: identity that a journal keeps over runs of the application, hexadecimal digits.
        topic: name of its topic.
        partitions: names of its partitions.
        since_ns: source time of the earliest sample that it may hand over, nanoseconds since 1970 UTC.
        wait_s: seconds for which it is waited for after it was last heard.
        silent_s: seconds for which it had been silent when this was stored.
    """

    id: str
    topic: str
    partitions: tuple[str, ...]
    since_ns: int
    wait_s: Seconds
    silent_s: Seconds = 0.0


# With its head it fits into one batch (`stream.MAX_BATCH_BYTES`, 128 MiB), for fellows that cannot join
# pieces.
MAX_SAMPLE_BYTES: Final = 127 << 20
"""Largest payload that a node keeps if not configured."""
LARGEST_SAMPLE_BYTES: Final = 999_000_000
"""Most that can be configured: SQLite limits a row to 1,000,000,000 bytes."""


class RunSeen(NamedTuple):
    """The last run of a fellow that a node has heard."""

    incarnation: int
    """Number of the run."""
    life: int
    """Random number of the run."""
    commits: int
    """Transactions of the fellow's store."""


class CoreSettings(msgspec.Struct, frozen=True):
    """One node's identity, configuration and memory. Times that end in `_s` are seconds."""

    node: str
    """128-bit id, 32 hexadecimal digits, the "system id" of the specification."""
    incarnation: int
    """Number of the run; grows with each start."""
    name: str
    """Human name of the node."""
    role: str
    """Role of the node (5.2.1)."""
    host: str
    """Address under which processes and fellows reach this node."""
    name_spaces: tuple[NameSpace, ...]
    """Configured name-spaces."""
    policies: tuple[Policy, ...]
    """Name-space policies; the first one that matches a name applies."""
    # What OpenSplice has as a setting, a configuration sets; these defaults are for tests, and those of
    # OpenSplice are in engine/config/opensplice.tsv.
    heartbeat_expiry_s: float = 4.0
    """Network/Heartbeat/ExpiryTime."""
    heartbeat_period_s: float = 1.0
    """Expiry time multiplied by the heartbeat's update_factor."""
    initial_discovery_s: float = 3.0
    """Network/InitialDiscoveryPeriod."""
    election_wait_s: float = 0.0
    """MasterElection/WaitTime: how long after discovery to wait for better candidates, unless at 255."""
    combine_initial_s: float = 0.5
    """RequestCombinePeriod before COMPLETE."""
    combine_operational_s: float = 0.01
    """RequestCombinePeriod from COMPLETE on."""
    # Chosen: an aligner that works on a large set sends its first batch within it. A request that is made
    # again costs a comparison.
    request_patience_s: float = 10.0
    """Silence of an aligner after which the request is made again."""
    waits_for_aligner: bool = True
    """False (TimeToWaitForAligner 0) ends the node if no node may be master."""
    # A day: a machine that is down over night returns with its set; longer makes tombstones stay longer.
    absence_bound_s: float = 86_400.0
    """Absence of a fellow after which tombstones do not wait for it, and its set is not merged."""
    remembered: frozenset[str] = frozenset()
    """Ids of the fellows of the last run; discovery ends early when all have answered."""
    away: dict[str, int] = msgspec.field(default_factory=dict)
    """Fellows away at the end of the last run, with the nanoseconds that nodes ran without them."""
    stored: dict[str, StoredSet] = msgspec.field(default_factory=dict)
    """Sets in the store, by name-space."""
    wanted: dict[str, tuple[Element, ...]] = msgspec.field(default_factory=dict)
    """Groups of Lazy name-spaces that readers on this host wanted in former runs."""
    further_hosts: tuple[str, ...] = ()
    """Addresses of the other network interfaces."""
    filtered: tuple[tuple[Element, str], ...] = ()
    """Groups with a content filter (//OpenSplice/Domain/Filters), each with its place in the file."""
    pending: tuple[PendingWriter, ...] = ()
    """Durable writers of clients that could still hand over samples at the end of the last run."""
    autodispose: dict[str, tuple[AutodisposeWriter, ...]] = msgspec.field(default_factory=dict)
    """Autodispose writers that had not ended at the end of the last run, by name-space."""
    max_sample_bytes: int = MAX_SAMPLE_BYTES
    """Largest payload that is captured (DDSI2Service/Internal/MaxSampleSize)."""
    has_disk: bool = True
    """Whether the store is on a disk (DurabilityService/Persistent), not in memory."""
    learned: tuple[NameSpace, ...] = ()
    """Name-spaces learned from fellows in former runs (5.2.3.6)."""
    life: int = 0
    """Random number of this run, below 2^32."""
    began_at: int = 0
    """Transactions of the store when this run began; 0 if it was put back from a copy."""
    runs: dict[str, RunSeen] = msgspec.field(default_factory=dict)
    """Last runs of the fellows, by id, that were stored."""

    @property
    def hosts(self) -> frozenset[str]:
        """Return all addresses of the node."""
        return frozenset((self.host, *self.further_hosts))

    @property
    def run(self) -> int:
        """Return this run as the epochs have it that begin in it."""
        return run_of(self.incarnation, self.life)
