"""What nodes say to each other. Every message is a frozen value; how it is written is the codec's business.

Three kinds describe a sender as it is now, replace their predecessor, and reach late joiners:

1. `Status`: the heartbeat (deployment guide 5.4.1), with whom the sender hears and a roll-up of its sets.
2. `NameSpaces`: definitions, vote, master, lineage (5.4.2, 5.4.3).
3. `Deliveries`: which late-joining readers have been or are being served (5.4.7).

A fellow is talked to once all three are known. The others are sent once, to the named fellows:
`SampleRequest` (alignee to aligner), answered by a stream of data or by `Refusal`; `NewGroup`, `DeleteData`
and `Purge` to all.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Final, NamedTuple

from engine.core.namespaces import Durability, Element, Group, MergeRule
from engine.core.states import Phase, ServiceState

RANGES = "range-fingerprints"
"""The sender answers `engine.runtime.reconciling.messages.Narrow`."""
JOINS = "lineage-join"
"""The sender joins sets of one lineage, says what has settled, and takes gifts (docs/protocol.md)."""
PARTS = "parts"
"""The sender answers requests for some groups of its set (`SampleRequest.elements`)."""
LACKING = "told-lacking"
"""The sender understands `engine.runtime.reconciling.messages.Sketch.lacking`."""
CAPABILITIES = ("batched-alignment", "digest-roll-up", "delivery-announcement", RANGES, JOINS, PARTS, LACKING)
"""What this version can do; sent in every status, unknown names are ignored (5.5.20)."""


class Epoch(NamedTuple):
    """A term of one master, or the lineage of a set: a counter, and the node and run of it that began it.

    The node is part of the epoch, so two masters can never hold the same one; `run` is the incarnation of the
    node, so a node that was killed before it could store its last epoch never begins the same one again.
    """

    counter: int
    node: str
    run: int = 0

    def __str__(self) -> str:
        return f"{self.counter}/{self.node[:8]}" if self.node else "none"


NO_EPOCH = Epoch(0, "")

DAMAGED = -1
"""The quality of a stored set, damaged or a part, that never wins over a whole one, by no masterPriority."""


class Vote(NamedTuple):
    """A proposal: `choice` should be master from epoch counter `counter` on."""

    counter: int
    choice: str


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """A name-space's set as of a source time, without what was written since (`engine.dataset.settling`)."""

    until_ns: int
    count: int
    digest: int


@dataclasses.dataclass(frozen=True, slots=True)
class RollUp:
    """A name-space's set in one line; equal count and digest mean equal sets.

    `settled` is what can be compared while others write; None from nodes that do not say it.
    """

    name_space: str
    complete: bool
    count: int
    digest: int
    settled: Settled | None = None

    def same_content(self, other: RollUp) -> bool:
        """Whether both describe the same samples."""
        return self.count == other.count and self.digest == other.digest


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """The heartbeat (d_status).

    `expiry_s` is how long a receiver may wait for the next one before the sender counts as lost;
    `heard` are the fellows whose heartbeats arrive here, which shows one-sided links; `away` are those that
    are waited for with tombstones; `host` is the address under which this node is reached, `further_hosts`
    those of its other interfaces; `reported` is the serial of the newest `NameSpaces`, to which the
    roll-ups belong.
    """

    incarnation: int
    serial: int
    name: str
    role: str
    host: str
    state: ServiceState
    period_s: float
    expiry_s: float
    wall_ns: int
    heard: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    roll_ups: tuple[RollUp, ...] = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    reported: int = 0
    further_hosts: tuple[str, ...] = ()

    @property
    def hosts(self) -> frozenset[str]:
        """All addresses of the sender."""
        return frozenset((self.host, *self.further_hosts))

    def repeats(self, other: Status) -> bool:
        """Whether it says what `other`, an earlier one of the same node, says, but for time and content."""
        return _stated(self) == _stated(other) and [
            (roll.name_space, roll.complete) for roll in self.roll_ups
        ] == [(roll.name_space, roll.complete) for roll in other.roll_ups]


_CHANGING = ("serial", "wall_ns", "roll_ups")
_stated = operator.attrgetter(*(f.name for f in dataclasses.fields(Status) if f.name not in _CHANGING))


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpaceReport:
    """One name-space as its sender has it.

    Attributes:
        quality_ns: newest source timestamp of the verified stored set, 0 for none (5.4.4), `DAMAGED` for one
            that is not as it was written.
        holder: the sender has held the whole set at some time in this run.
        vote: its proposal while no master is confirmed, or for a planned hand-over.
        following: the epoch of the confirmed master that it follows; a master follows itself.
        lineage: which history its set belongs to; sets of one lineage have not evolved apart.
        parents: lineages that became `lineage` without new data; their holders just adopt the new one.
        line: earlier lineages of this set, oldest first. What their holders have belongs to it and is joined,
            whatever the merge policies. The set that a domain began with is `NO_EPOCH`.
        merged: lineages whose data has been decided about; their holders apply their merge policy.
        because_of: the role whose set changed this one in `lineage`; empty for the sender's own.
        is_repair: `lineage` began because sets differed without a disconnection. Only nodes of the first
            release say so; they are merged with, whatever the policies.
        merges: the sender's merge policies, for telling pairs that make no sense between roles.
        has_writers: a live DataWriter of some group of the name-space is known to the sender.
        delayed: the sender's delayedAlignment policy.
        apart: a merge policy left the sender's set different; it is neither repaired nor repairs others.
        filtered: content filters of the sender withhold a part, so its set differs from the others.
        part: the sender, a Lazy alignee, has what readers on its host want, and gives it to them. It says
            nothing else of that part: it is no holder, and its `phase` is PASSIVE.
        part_until_ns: up to which source time a part, or a set where one of the two is filtered, has what its
            aligner has; -1 of a set that can be compared, and while nothing is wanted of a part.
        from_parts: the sender's set is what Lazy nodes had kept, for want of a whole one.
    """

    name: str
    elements: tuple[Element, ...]
    aligner: bool
    master_priority: int
    durability: Durability
    quality_ns: int
    phase: Phase
    complete: bool
    holder: bool
    vote: Vote | None
    following: Epoch | None
    lineage: Epoch
    parents: tuple[Epoch, ...] = ()
    merged: tuple[Epoch, ...] = ()
    because_of: str = ""
    is_repair: bool = False
    merges: tuple[MergeRule, ...] = ()
    has_writers: bool = False
    delayed: bool = False
    line: tuple[Epoch, ...] = ()
    apart: bool = False
    filtered: bool = False
    part: bool = False
    part_until_ns: int = -1
    from_parts: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpaces:
    """All name-spaces of the sender (d_nameSpaces)."""

    incarnation: int
    serial: int
    reports: tuple[NameSpaceReport, ...]


class ReaderKey(NamedTuple):
    """What is served once: a process, a topic, its partitions, in one name-space."""

    participant: str
    topic: str
    partitions: tuple[str, ...]
    name_space: str

    @property
    def elements(self) -> tuple[Element, ...]:
        """What is read, as expressions."""
        return tuple(Element(partition, self.topic) for partition in self.partitions)

    @property
    def text(self) -> str:
        """What is read, as the trace names it."""
        return f"{','.join(self.partitions)}.{self.topic}"


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """A claim on a late joiner: `done` once the whole set was acknowledged by its process."""

    reader: ReaderKey
    node: str
    done: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Deliveries:
    """All late joiners alive that the sender knows to be served, by whomever."""

    incarnation: int
    serial: int
    deliveries: tuple[Delivery, ...]


MERGE_PURPOSES: Final = ("merge", "replace", "catchup")
"""Purposes of requests that carry out a merge policy; only a complete set answers them."""


@dataclasses.dataclass(frozen=True, slots=True)
class SampleRequest:
    """Asks for the set of a name-space (d_sampleRequest).

    With `compares` the requester holds a set already and says, beside this message, what is in it; only the
    difference need be sent.

    `purpose` is "initial" (give me the complete set), "collect" (give me what you have), "repair" (likewise,
    because settled sets of one lineage differ), "delayed" (give me your stored set), "extend" (give me
    further groups of your complete set), or "merge", "replace", "catchup" (give me the set for that policy).
    `request` is unique for the sender, in all its incarnations. With `elements` only the groups in them are
    asked for.
    """

    request: int
    name_space: str
    purpose: str
    compares: bool = False
    elements: tuple[Element, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """The aligner will not answer a request; the alignee chooses again."""

    request: int
    name_space: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class NewGroup:
    """The sender knows this group (d_newGroup); `description` is opaque to the protocol (type and QoS)."""

    group: Group
    description: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteData:
    """Historical data up to a source time is deleted everywhere, for good (d_deleteData, 5.5.18)."""

    partition: str
    topic: str
    until_ns: int


class PurgedInstance(NamedTuple):
    """A disposed instance and the digest of its last sample."""

    key: bytes
    last: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Purge:
    """The master forgets these instances; whoever holds them unchanged forgets them, too."""

    group: Group
    instances: tuple[PurgedInstance, ...]


Message = Status | NameSpaces | Deliveries | SampleRequest | Refusal | NewGroup | DeleteData | Purge
STATE_MESSAGES = (Status, NameSpaces, Deliveries)
"""Messages that describe the sender as it is now and replace their predecessor."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send; no addressee means every fellow."""

    message: Message
    to: tuple[str, ...] = ()
