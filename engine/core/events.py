"""Events of the core for its runtime: work to do, and news.

They name sets and fellows, never bytes: the runtime moves the data between store and wire and reports back by
a method of `DurabilityNode`. Three messages are events, too: `DeleteData`, `Purge` and `WritersEnded` mean
the same to the node that sends them and to those that hear them.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from engine.core.messages import AutodisposeWriter, DeleteData, Epoch, Purge, ReaderKey, WritersEnded
from engine.core.name_spaces import Element, Group, NameSpace, Policy
from engine.core.settings import RunSeen


class LoadStored(msgspec.Struct, frozen=True):
    """Load the stored set of a name-space for injection; answer with `DurabilityNode.injected`."""

    name_space: str


class AbandonSet(msgspec.Struct, frozen=True):
    """Forget the set that was being loaded, collected or received; the stored one stays."""

    name_space: str


class AligneeRequest(msgspec.Struct, frozen=True):
    """An alignee and its request; with `compares` it sends a sketch of its set and needs the difference only.

    An alignee that is `forgotten` was away for longer than tombstones are kept, so its set is not joined.
    With `elements` it asks only for the groups in them.
    """

    node: str
    request: int
    purpose: str
    compares: bool = False
    forgotten: bool = False
    elements: tuple[Element, ...] = ()

    def wants(self, group: Group) -> bool:
        """Whether the request includes a group."""
        return is_asked_for(group, self.elements)


def is_asked_for(group: Group, elements: Collection[Element]) -> bool:
    """Whether a request for `elements` includes a group; a request without elements includes all."""
    return not elements or any(element.contains(group) for element in elements)


class SendSet(msgspec.Struct, frozen=True):
    """Send the set of a name-space, as it is now, to all targets at once."""

    name_space: str
    lineage: Epoch
    targets: tuple[AligneeRequest, ...]


class ExpectSet(msgspec.Struct, frozen=True):
    """Expect a stream from `aligner` that answers this request, which goes out now."""

    name_space: str
    request: int
    aligner: str
    purpose: str
    elements: tuple[Element, ...] = ()


class Completed(msgspec.Struct, frozen=True):
    """Switch to the set, which is whole, and store it with its lineage."""

    name_space: str
    lineage: Epoch


class StoreMarks(msgspec.Struct, frozen=True):
    """Store what is known of the set besides its samples.

    That is its lineage, whether it stands apart, what of it is whole, and how often instances were purged.
    """

    name_space: str


class DeleteSet(msgspec.Struct, frozen=True):
    """Dispose and delete everything in the name-space (merge policy Delete)."""

    name_space: str


class ReplaceShown(msgspec.Struct, frozen=True):
    """Show readers merge policy Replace with a set that is equal to the one here (equalityCheck false)."""

    name_space: str


class NameSpaceLearned(msgspec.Struct, frozen=True):
    """Take part in a name-space: a configured one, or a fellow's that a policy matches (5.2.3.6)."""

    name_space: NameSpace
    policy: Policy
    is_configured: bool = False


class NameSpaceDoubted(msgspec.Struct, frozen=True):
    """Forget a learned name-space for the next run, because it conflicts with a fellow's."""

    name_space: str


class GroupAnnounced(msgspec.Struct, frozen=True):
    """A fellow has announced a group."""

    group: Group
    description: bytes
    fellow: str


class AutodisposeWritersKnown(msgspec.Struct, frozen=True):
    """Remember these autodispose writers of a name-space in the store."""

    name_space: str
    writers: tuple[AutodisposeWriter, ...]


class Deliver(msgspec.Struct, frozen=True):
    """Deliver the complete set to this late joiner; answer with `DurabilityNode.delivered`.

    Attributes:
        reader: the late joiner.
        is_begun: whether an earlier delivery of it broke off, because its node or the process was lost.
    """

    reader: ReaderKey
    is_begun: bool = False


class TakenOver(msgspec.Struct, frozen=True):
    """This node is now in charge of a served reader, because the former one is lost or on another host."""

    reader: ReaderKey


class HandedOver(msgspec.Struct, frozen=True):
    """Another node has taken charge of a reader that this node was in charge of."""

    reader: ReaderKey


class NoAligner(msgspec.Struct, frozen=True):
    """End the node: no node may be master, and TimeToWaitForAligner 0 forbids waiting."""

    name_space: str


class FellowsKnown(msgspec.Struct, frozen=True):
    """Store the fellows for the next start: (id, name, role)."""

    fellows: tuple[tuple[str, str, str], ...]


class FellowAway(msgspec.Struct, frozen=True):
    """Store how long nodes have run without a fellow, which may come back with data that others forgot."""

    node: str
    away_ns: int


class RunsSeen(msgspec.Struct, frozen=True):
    """Store the last runs of fellows, by id."""

    runs: dict[str, RunSeen]


class StoreOutdated(msgspec.Struct, frozen=True):
    """Begin a new run: a fellow remembers a later state of this node's store than the present run is on.

    Attributes:
        incarnation: number that the new run must exceed.
        commits: transactions that the store must exceed.
        is_restored: the store was put back from a copy; otherwise fellows took a process on a copy of this
            store for a run of this node.
    """

    incarnation: int
    commits: int
    is_restored: bool = True


class Note(msgspec.Struct, frozen=True):
    """Write a trace line: an event of the catalogue with its fields."""

    event: str
    fields: dict[str, object]


Event = (
    LoadStored
    | AbandonSet
    | SendSet
    | ExpectSet
    | Completed
    | StoreMarks
    | DeleteSet
    | ReplaceShown
    | NameSpaceLearned
    | NameSpaceDoubted
    | GroupAnnounced
    | DeleteData
    | Purge
    | WritersEnded
    | AutodisposeWritersKnown
    | Deliver
    | TakenOver
    | HandedOver
    | FellowsKnown
    | FellowAway
    | RunsSeen
    | StoreOutdated
    | NoAligner
    | Note
)
