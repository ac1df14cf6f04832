"""What the core tells its runtime: work to do, and things to know.

Work items name sets and fellows, never bytes: the runtime moves the data between store and wire and reports
back by a command of the core's face.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.core.namespaces import Element

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.core.messages import Epoch, PurgedInstance, ReaderKey
    from engine.core.namespaces import Group, NameSpace, Policy


@dataclasses.dataclass(frozen=True, slots=True)
class LoadStored:
    """Load the stored set of a name-space for injection; answer with `DurabilityNode.injected`."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class AbandonSet:
    """Forget the set that was being loaded, collected or received; the stored one stays."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """An alignee and its request; with `compares` it says what it holds, and needs the difference only.

    An alignee that is `forgotten` was away for longer than tombstones are kept: its own set is not joined.
    With `elements` it asks for the groups in them only.
    """

    node: str
    request: int
    purpose: str
    compares: bool = False
    forgotten: bool = False
    elements: tuple[Element, ...] = ()

    def wants(self, group: Group) -> bool:
        """Whether it asks for a group."""
        return is_asked_for(group, self.elements)


def is_asked_for(group: Group, elements: Collection[Element]) -> bool:
    """Whether a request for what is in some elements is about a group; one without elements is about all."""
    return not elements or any(element.contains(group) for element in elements)


@dataclasses.dataclass(frozen=True, slots=True)
class SendSet:
    """Send the set of a name-space, as it is now, to all targets at once."""

    name_space: str
    lineage: Epoch
    targets: tuple[Target, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectSet:
    """A request went out: a stream with this request number will come from `aligner`."""

    name_space: str
    request: int
    aligner: str
    purpose: str
    elements: tuple[Element, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Completed:
    """The set is whole: switch to it and keep it, marked with its lineage."""

    name_space: str
    lineage: Epoch


@dataclasses.dataclass(frozen=True, slots=True)
class WholeKnown:
    """More of a part is known to be whole, or a set that came from parts is: let the store remember it."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class LineageAdopted:
    """The set belongs to another lineage now, or stands apart now: let the store remember it."""

    name_space: str
    lineage: Epoch


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteSet:
    """Merge policy Delete: dispose and delete everything in the name-space."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpaceLearned:
    """A fellow's name-space that one of our policies matches is ours too from now on (5.2.3.6)."""

    name_space: NameSpace
    policy: Policy
    is_configured: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpaceDoubted:
    """A learned name-space conflicts with a fellow's: it is not remembered for the next run."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class GroupAnnounced:
    """A fellow knows a group that was not known here."""

    group: Group
    description: bytes
    fellow: str


@dataclasses.dataclass(frozen=True, slots=True)
class DataDeleted:
    """Delete the samples of all groups that match, up to a source time, and never take them in again."""

    partition: str
    topic: str
    until_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class InstancesPurged:
    """Forget these disposed instances where they still end with the same sample."""

    group: Group
    instances: tuple[PurgedInstance, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Deliver:
    """Give the complete set to this late joiner; answer with `DurabilityNode.delivered`."""

    reader: ReaderKey


@dataclasses.dataclass(frozen=True, slots=True)
class TakenOver:
    """This node is in charge of a served reader now: the one that was is gone, or not on its host."""

    reader: ReaderKey


@dataclasses.dataclass(frozen=True, slots=True)
class HandedOver:
    """Another node is in charge of a reader that was in this node's charge, and keeps up what it sees."""

    reader: ReaderKey


@dataclasses.dataclass(frozen=True, slots=True)
class NoAligner:
    """Nobody may be master and this node is told not to wait for one (TimeToWaitForAligner 0): end."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class FellowsKnown:
    """The fellows to remember for the next start: (id, name, role)."""

    fellows: tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class FellowAway:
    """A fellow has been away for so long while nodes ran; it may come back with data that others forgot."""

    node: str
    away_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something worth a trace line: an event of the catalogue with its fields."""

    event: str
    fields: dict[str, object]


Event = (
    LoadStored
    | AbandonSet
    | SendSet
    | ExpectSet
    | Completed
    | WholeKnown
    | LineageAdopted
    | DeleteSet
    | NameSpaceLearned
    | NameSpaceDoubted
    | GroupAnnounced
    | DataDeleted
    | InstancesPurged
    | Deliver
    | TakenOver
    | HandedOver
    | FellowsKnown
    | FellowAway
    | NoAligner
    | Note
)
