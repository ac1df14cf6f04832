"""Messages between nodes. Every message is a frozen value; the codec decides how it is written.

Three kinds describe a sender as it is now, replace their predecessor, and reach late joiners:

1. `Status`: the heartbeat (deployment guide 5.4.1), with the fellows it hears and a roll-up of its sets.
2. `NameSpaces`: definitions, vote, master, lineage (5.4.2, 5.4.3).
3. `Deliveries`: which late-joining readers have been or are being served (5.4.7).

A node talks to a fellow once it has all three. The others are sent once: `SampleRequest` from alignee to
aligner, answered by a stream of data or by `Refusal`; `NewGroup`, `DeleteData`, `Purge`, `WriterView` and
`WritersEnded` to all fellows.
"""

from __future__ import annotations

import operator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from engine.core.name_spaces import Durability, Element, Group, MergeRule
from engine.core.states import Phase, ServiceState
from engine.core.untrusted import Seconds


class Epoch(NamedTuple):
    """A term of one master, or the lineage of a set: a counter, and the node and its run that began it.

    The node is part of the epoch, so two masters never hold the same one. So is its `run`, which `run_of`
    makes: a node that was killed before it could store its last epoch, or whose store was put back from a
    copy, never begins that one a second time.
    """

    counter: int
    node: str
    run: int = 0

    def __str__(self) -> str:
        return f"{self.counter}/{self.node[:8]}" if self.node else "none"


NO_EPOCH = Epoch(0, "")

# SQLite and msgpack hold 64 bits with a sign: a counter stays far below after any step.
MAX_COUNTER: Final = 1 << 62
"""Limit for the counter of an epoch, a vote, a lineage or purges, wherever it comes from."""
COUNTER_STEP: Final = 1 << 32
"""Most by which such a counter of a fellow may exceed what a node knows: a century of elections."""
# 32 bits in a run (`LIFE_BITS`), and room for a step.
MAX_INCARNATION: Final = 1 << 31
"""Limit for the number of a run."""
INCARNATION_STEP: Final = 1 << 20
"""Most by which that number may exceed the one that is remembered: a million starts."""
# A million messages a second for nine years.
MAX_SERIAL: Final = 1 << 48
"""Limit for the number of a message within a run, and for the transactions of a store."""
# As `INCARNATION_STEP`. Too few, and two states of a restored store would have one number.
COMMITS_STEP: Final = 1 << 20
"""Transactions that a store skips above those that a fellow remembers: another one may have heard of more."""
LIFE_BITS: Final = 32
"""Bits of an incarnation, and of the random number beside it."""


def run_of(incarnation: int, life: int) -> int:
    """Return what an epoch has of its beginner's run: the number of the run and its random number."""
    return life << LIFE_BITS | incarnation


def is_unknown_run(run: int, incarnation: int, life: int) -> bool:
    """Whether a run of this node's id, as an epoch has it, is none of this node's own history.

    Its own runs have lower numbers than the present one, which `incarnation` and `life` are of.
    """
    number = run & (1 << LIFE_BITS) - 1
    return number > incarnation or (number == incarnation and run >> LIFE_BITS != life)


DAMAGED = -1
"""Quality of a stored set that is damaged or a part; it loses to a whole one at any masterPriority."""


class Vote(NamedTuple):
    """A proposal that `choice` be master from epoch counter `counter` on."""

    counter: int
    choice: str


class Settled(msgspec.Struct, frozen=True):
    """A name-space's set as of a source time (`engine.dataset.settling`)."""

    until_ns: int
    count: int
    digest: int


class RollUp(msgspec.Struct, frozen=True):
    """A name-space's set in one line; equal count and digest mean equal sets.

    `settled` can be compared while others write; it is None while the sender is behind with what has arrived.
    """

    name_space: str
    complete: bool
    count: int
    digest: int
    settled: Settled | None = None

    def same_content(self, other: RollUp) -> bool:
        """Whether both describe the same samples."""
        return self.count == other.count and self.digest == other.digest


class Pending(NamedTuple):
    """What a durable writer of a client may still hand over (`engine.runtime.pending_writers`)."""

    writer: str
    """Its identity; `*` for many writers together."""
    topic: str
    """Name of its topic, or an expression."""
    partitions: tuple[str, ...]
    """Names of its partitions, or expressions."""
    since_ns: int
    """Source time of the earliest sample that may come, nanoseconds since 1970 UTC; 2^63 if none will."""


class Status(msgspec.Struct, frozen=True):
    """The heartbeat (d_status)."""

    incarnation: int
    """Number of the sender's run, which grows at each start."""
    serial: int
    """Number of the message within the run; a repeated heartbeat has the same one."""
    name: str
    """Human name of the node."""
    role: str
    """Role of the node (5.2.1)."""
    host: str
    """Address under which the node is reached."""
    state: ServiceState
    """State of the service."""
    period_s: Seconds
    """Seconds between two heartbeats."""
    expiry_s: Seconds
    """Seconds without a heartbeat after which the sender counts as lost."""
    wall_ns: int
    """Wall clock of the sender, nanoseconds since 1970 UTC."""
    heard: tuple[str, ...] = ()
    """Ids of the fellows whose heartbeats reach the sender, which shows one-sided links."""
    away: tuple[str, ...] = ()
    """Ids of absent fellows for which the sender keeps tombstones."""
    roll_ups: tuple[RollUp, ...] = ()
    """One line on each set."""
    reported: int = 0
    """Serial of the newest `NameSpaces`, to which the roll-ups belong."""
    further_hosts: tuple[str, ...] = ()
    """Addresses of the node's other network interfaces."""
    unstored_s: Seconds = 0.0
    """Seconds since the moment as of which the sender's disk has everything; 0 if it has everything now."""
    pending: tuple[Pending, ...] = ()
    """What durable writers of clients may still hand over, by what the sender knows."""
    life: int = 0
    """Random number of the run: runs on copies of one store may share an incarnation. 0 if not given."""
    began_at: int = 0
    """Transactions of the sender's store at the start of the run; 0 if it knows that others remember more."""
    commits: int = 0
    """Transactions of the sender's store so far."""

    @property
    def hosts(self) -> frozenset[str]:
        """Return all addresses of the sender."""
        return frozenset((self.host, *self.further_hosts))

    def repeats(self, other: Status) -> bool:
        """Whether it differs from an earlier one of the same node in time and content of sets only."""
        if len(self.roll_ups) != len(other.roll_ups) or _stated(self) != _stated(other):
            return False
        for now, before in zip(self.roll_ups, other.roll_ups, strict=True):
            if now.name_space != before.name_space or now.complete != before.complete:
                return False
        return True


_CHANGING = ("serial", "wall_ns", "roll_ups", "unstored_s", "pending", "commits")
_stated = operator.attrgetter(*(name for name in Status.__struct_fields__ if name not in _CHANGING))


class NameSpaceReport(msgspec.Struct, frozen=True):
    """One name-space as its sender has it; `engine.core.name_space_state` explains the lineages."""

    name: str
    """Name of the name-space."""
    elements: tuple[Element, ...]
    """Its expressions, in canonical order."""
    aligner: bool
    """The sender may give its set to fellows."""
    master_priority: int
    """0 (never master) to 255 (the legacy rule)."""
    durability: Durability
    """How strongly the sender keeps the data at most (5.2.3.2)."""
    quality_ns: int
    """Newest source time of the verified stored set, 0 for no set (5.4.4), `DAMAGED` for a damaged one."""
    phase: Phase
    """Place in the life cycle; PASSIVE for the part of a Lazy node."""
    complete: bool
    """The set is whole."""
    holder: bool
    """The sender has held the whole set at some time in this run."""
    vote: Vote | None
    """Proposal while there is no confirmed master, or for a planned hand-over."""
    following: Epoch | None
    """Epoch of the confirmed master that the sender follows; a master follows itself."""
    lineage: Epoch
    """History to which the set belongs."""
    parents: tuple[Epoch, ...] = ()
    """Lineages that became `lineage` without new data; their holders adopt it."""
    merged: tuple[Epoch, ...] = ()
    """Lineages that the sender decided about; their holders apply their merge policy."""
    because_of: str = ""
    """Role whose set changed this one in `lineage`; empty for the sender's own."""
    merges: tuple[MergeRule, ...] = ()
    """Merge policies of the sender, to find pairs that contradict each other between roles."""
    has_writers: bool = False
    """The sender knows a live DataWriter of some group."""
    delayed: bool = False
    """The sender's delayedAlignment policy is true (5.2.3.3)."""
    delayed_line: tuple[Epoch, ...] = ()
    """With `delayed`, until the sender holds the set: lineages of its stored set, for who injects that."""
    line: tuple[Epoch, ...] = ()
    """Earlier lineages, oldest first, `NO_EPOCH` for the beginning of the domain; their holders join."""
    apart: bool = False
    """A merge policy left the set different; it is not repaired and does not repair others."""
    filtered: bool = False
    """Content filters of the sender withhold samples, so its set differs from the others."""
    part: bool = False
    """The sender is Lazy and has what readers on its host want."""
    part_until_ns: int = -1
    """Source time up to which a part or a filtered set has what its aligner has; -1 if not applicable."""
    from_parts: bool = False
    """The set is what Lazy nodes had kept, because no whole one was there."""
    purges: int = 0
    """How often instances were purged from the sets of this history; masters count on from each other."""

    def epochs(self) -> tuple[Epoch, ...]:
        """Return all epochs and lineages in the report."""
        following = () if self.following is None else (self.following,)
        return (*following, self.lineage, *self.parents, *self.merged, *self.line)


class NameSpaces(msgspec.Struct, frozen=True):
    """All name-spaces of the sender (d_nameSpaces)."""

    incarnation: int
    serial: int
    reports: tuple[NameSpaceReport, ...]
    life: int = 0


Place: TypeAlias = tuple[str, str, str]
"""A process, a topic and a name-space."""


class ReaderKey(NamedTuple):
    """Key of the late joiners of a process with one topic and the same partitions, in one name-space.

    `process` is `engine.dds.discovery.ParticipantSeen.process`, in hexadecimal digits.
    """

    process: str
    topic: str
    partitions: tuple[str, ...]
    name_space: str

    @property
    def place(self) -> Place:
        """Return what it has in common with readers that a delivery to it may reach, too."""
        return self.process, self.topic, self.name_space

    @property
    def elements(self) -> tuple[Element, ...]:
        """Return the groups that it reads, as expressions."""
        return tuple(Element(partition, self.topic) for partition in self.partitions)

    @property
    def text(self) -> str:
        """Return the groups that it reads, as the trace names them."""
        return f"{','.join(self.partitions)}.{self.topic}"


class Delivery(msgspec.Struct, frozen=True):
    """A claim on a late joiner, `done` once its process has acknowledged the whole set."""

    reader: ReaderKey
    node: str
    done: bool


class Deliveries(msgspec.Struct, frozen=True):
    """All living late joiners that the sender knows to be served, by any node."""

    incarnation: int
    serial: int
    deliveries: tuple[Delivery, ...]
    life: int = 0


MERGE_PURPOSES: Final = ("merge", "replace", "catchup")
"""Purposes of requests that carry out a merge policy; only a complete set answers them."""


class SampleRequest(msgspec.Struct, frozen=True):
    """A request for the set of a name-space (d_sampleRequest).

    With `compares` the requester holds a set already and describes it in a sketch beside this message; the
    aligner then sends only the difference.

    `purpose` is "initial" (the complete set), "collect" (what the aligner has, complete or not), "repair"
    (likewise, because settled sets of one lineage differ), "delayed" (its stored set), "extend" (further
    groups of its complete set), or "merge", "replace", "catchup" (the set for that policy).
    `request` is unique for the sender, in all its incarnations. With `elements`, only those groups are meant.
    """

    request: int
    name_space: str
    purpose: str
    compares: bool = False
    elements: tuple[Element, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """The aligner does not answer a request; the alignee chooses an aligner again."""

    request: int
    name_space: str
    reason: str


class NewGroup(msgspec.Struct, frozen=True):
    """A group that the sender knows (d_newGroup); the protocol does not read `description` (type, QoS)."""

    group: Group
    description: bytes


class DeleteData(msgspec.Struct, frozen=True):
    """Permanent deletion of historical data up to a source time, on all nodes (d_deleteData, 5.5.18)."""

    partition: str
    topic: str
    until_ns: int


class PurgedInstance(NamedTuple):
    """A disposed instance and the digest of its last sample."""

    key: bytes
    last: bytes


class Purge(msgspec.Struct, frozen=True):
    """Instances that the master forgets; a node that holds them unchanged forgets them, too."""

    group: Group
    instances: tuple[PurgedInstance, ...]


class Outdated(msgspec.Struct, frozen=True):
    """The sender remembers a later state of the addressee's store than the addressee runs on.

    Attributes:
        incarnation: number of a run; the next one must be higher.
        life: random number of the run that the sender remembers.
        commits: transactions of the store in that run.
        known: number of that run, which may be lower than `incarnation`; 0 if it is not told.
    """

    incarnation: int
    life: int
    commits: int
    known: int = 0


class AutodisposeWriter(NamedTuple):
    """A writer whose instances are disposed when it ends (WRITER_DATA_LIFECYCLE)."""

    writer: bytes
    """Its GUID."""
    patience_s: Seconds
    """Seconds for which nodes must miss it before it counts as ended."""


class WriterView(msgspec.Struct, frozen=True):
    """What the sender knows of the autodispose writers of a name-space (`engine.core.autodispose`)."""

    name_space: str
    present: tuple[AutodisposeWriter, ...]
    """Those that the sender has, and that fellows may not know yet."""
    known: tuple[AutodisposeWriter, ...]
    """Others that fellows may not know yet."""
    missed: tuple[AutodisposeWriter, ...]
    """Those that the sender has not had for longer than they must be waited for."""


class WritersEnded(msgspec.Struct, frozen=True):
    """Writers that no node has any more: the master says that they have ended."""

    name_space: str
    writers: tuple[bytes, ...]


Message = (
    Status
    | NameSpaces
    | Deliveries
    | SampleRequest
    | Refusal
    | NewGroup
    | DeleteData
    | Purge
    | WriterView
    | WritersEnded
    | Outdated
)


class Outgoing(msgspec.Struct, frozen=True):
    """A message to send; no addressee means every fellow."""

    message: Message
    to: tuple[str, ...] = ()
