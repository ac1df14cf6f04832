"""Snapshots and events of a node, as JSON on the monitor topics.

Consoles, recordings and simulations all use these values; nothing else of a node is visible from outside.
Times are integer nanoseconds since 1970 UTC, ids and digests are strings in hexadecimal digits.
"""

from __future__ import annotations

import functools
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from engine.core.untrusted import JsonFault, json_reader
from engine.dataset.groups import is_deeper, kept_depth

FORMAT_VERSION: Final = 1

DEVIATIONS: Final = {
    "shown_later": "samples shown with a later source time than the set's: it had newer ones",
    "refused_older": "samples of the set not taken, at most: it may have had newer ones of these instances",
    "owned": "instances of the set not taken: a writer that lives owns them",
    "repeated": "samples given once more, at most: a delivery reaches all readers of a process",
    "not_kept": "times a topic's instances not kept ALIVE: the node's bounds, or a reader's max_instances",
}
"""Reasons why an ordinary reader sees other samples than the set has; each is a counter, too."""


class FellowView(msgspec.Struct, frozen=True):
    """One fellow as this node sees it."""

    id: str
    """32 hexadecimal digits."""
    name: str
    """Human name, or the beginning of the id while it is unknown."""
    role: str
    """Role; empty while it is unknown."""
    state: str
    """State of its service, such as COMPLETE; empty while it is unknown."""
    communication: str
    """One of "approved", "waiting" (not matched both ways yet), "incompatible" and "lost"."""
    last_heartbeat_ns: int
    """When its last heartbeat arrived."""
    skew_ns: int = 0
    """Its wall clock minus this node's, by the fastest of the last heartbeats."""
    problem: str = ""
    """Both definitions if it is incompatible; empty otherwise."""


class AlignmentView(msgspec.Struct, frozen=True):
    """One running alignment; `direction` is "from" (the node is the alignee) or "to" (it is the aligner)."""

    direction: str
    fellow: str
    samples: int
    expected: int
    bytes: int
    started_ns: int


PART: Final = "part"
"""Phase of a Lazy name-space whose readers have what they want."""


class NameSpaceView(msgspec.Struct, frozen=True):
    """One name-space on this node."""

    name: str
    """Name of the name-space."""
    elements: tuple[str, ...]
    """Its expressions, as partition.topic."""
    aligner: bool
    """The node may give its set to fellows."""
    alignee: str
    """Initial, Lazy or On_Request."""
    durability: str
    """Durable, Persistent, Transient, Transient_Local or Volatile."""
    master_priority: int
    """0 (never master) to 255 (the legacy rule)."""
    merges: tuple[str, ...]
    """Merge policies in the order of the configuration, as "type scope"."""
    phase: str
    """Phase of the life cycle, or `PART` if a Lazy node has what readers on its host want."""
    complete: bool
    """The set is whole; never true of a Lazy node."""
    master: str
    """Id of the master that the node follows; empty for no master."""
    confirmed: bool
    """There is a confirmed master."""
    epoch: str
    """Epoch of the master, as "counter/beginning of its id"; "none" for no master."""
    why: str
    """Rule by which the node follows the master now, in words.

    A master says why it was chosen, at `master_since_ns`.
    """
    merge_id: str
    """Lineage of the set, in the form of `epoch`."""
    quality_ns: int
    """Newest source time of the verified stored set; 0 for no set, or a damaged one."""
    count: int
    """Samples in the set."""
    digest: str
    """Digest of the set, 32 hexadecimal digits; equal count and digest mean equal sets."""
    groups: int
    """Groups in the set."""
    alignments: tuple[AlignmentView, ...] = ()
    """Alignments under way to this node."""
    master_since_ns: int = 0
    """Since when the node has followed this epoch; 0 for no master."""
    from_parts: bool = False
    """The set is what Lazy nodes had kept, because no whole one was there."""
    is_learned: bool = False
    """The name-space is not in the node's configuration, but one of its policies applies."""
    filtered: bool = False
    """Content filters of the node withhold samples."""
    backup: str = ""
    """The newest back-up that this run made of the stored set: why, and where; empty for none."""
    backup_ns: int = 0
    """When another set replaced that one; 0 for none."""

    @property
    def is_at_rest(self) -> bool:
        """Whether it is complete, a part, or passive as its policy asks."""
        return self.complete or self.phase in (PART, "passive")

    @property
    def is_less_than_whole(self) -> bool:
        """Whether it may permanently lack samples: it is a part, comes from parts, or is passive."""
        return self.from_parts or (self.is_at_rest and not self.complete)


class GroupView(msgspec.Struct, frozen=True):
    """One group on this node."""

    name_space: str
    """Name-space that contains it."""
    partition: str
    """Partition of the group."""
    topic: str
    """Topic of the group."""
    type_name: str
    """Name of the type on the wire."""
    durability: str
    """TRANSIENT or PERSISTENT."""
    samples: int
    """Samples in memory."""
    instances: int
    """Instances with at least one sample."""
    bytes: int
    """Bytes of all payloads."""
    digest: str
    """Digest of the samples, 32 hexadecimal digits."""
    newest_ns: int
    """Newest source time that the group ever had, deleted samples included; 0 for none."""
    stored: int
    """Samples certainly on this node's disk; equal to `samples` only if the disk has exactly these."""
    lost: int
    """Samples that arrived too old to be kept."""
    rejected: tuple[tuple[str, int], ...] = ()
    """Samples that a resource limit kept out or pushed out, by the name of the limit."""
    too_large: int = 0
    """Samples that were not captured because they are larger than MaxSampleSize."""
    depth: int = 1
    """History depth of DURABILITY_SERVICE; 0 for KEEP_ALL."""
    limits: tuple[int, int, int] = (-1, -1, -1)
    """max_samples, max_instances and max_samples_per_instance of DURABILITY_SERVICE; -1 for none."""
    cleanup_delay_ns: int = 0
    """service_cleanup_delay; -1 for infinite."""
    asked: int = 1
    """Deepest HISTORY of the durable readers that are present; 0 for KEEP_ALL."""
    # The defaults of these three refuse no reader that an older node may serve after all.
    by_source_timestamp: bool = True
    """DESTINATION_ORDER of its delivery: BY_SOURCE_TIMESTAMP, or else BY_RECEPTION_TIMESTAMP."""
    exclusive: bool = False
    """OWNERSHIP of its delivery: EXCLUSIVE, or else SHARED."""
    representations: tuple[int, ...] = (0, 2)
    """DATA_REPRESENTATION of its delivery (0 XCDR1, 2 XCDR2)."""

    @property
    def kept_depth(self) -> int:
        """Samples that are kept of each instance, by history and max_samples_per_instance; 0 for all."""
        return kept_depth(self.depth, self.limits[2])

    @property
    def is_cut(self) -> bool:
        """Whether readers ask for more samples of each instance than are kept."""
        return is_deeper(self.asked, self.kept_depth)


class DeliveryView(msgspec.Struct, frozen=True):
    """One late joiner that this node serves or served."""

    participant: str
    """GUIDs of the readers' participants, in hexadecimal digits, separated by commas."""
    topic: str
    """Topic that it reads."""
    partition: str
    """Its partitions, separated by commas."""
    state: str
    """One of "waiting", "running", "done" and "failed"."""
    samples: int
    """Samples that the reader's process has acknowledged."""
    started_ns: int
    """When the delivery began."""
    finished_ns: int
    """When it ended; 0 while it runs."""
    problem: str = ""
    """Why it failed, or which readers do not match; empty if all went well."""
    is_gone: bool = False
    """Whether the readers have left since."""


class DeviationView(msgspec.Struct, frozen=True):
    """Readers that see other samples than the set has, with counts by cause (see DEVIATIONS)."""

    participant: str
    """GUIDs of their participants, as in `DeliveryView`."""
    topic: str
    partition: str
    counts: dict[str, int]

    @property
    def text(self) -> str:
        """Return the counts in words."""
        return "; ".join(
            f"{count:,} {DEVIATIONS.get(cause, cause)}" for cause, count in sorted(self.counts.items())
        )


class UnkeptView(msgspec.Struct, frozen=True):
    """A durable writer whose data the node does not keep; `why` is a code, `text` explains it."""

    writer: str
    topic: str
    partition: str
    why: str
    text: str


class StoreStatus(msgspec.Struct, frozen=True):
    """The store: `kind` is "memory", "sqlite" or "simulated"; `problem` is set while it is degraded.

    `disk_bytes` is the size of all its files, with indexes, back-ups and the write-ahead log; 0 if unknown.
    """

    kind: str
    path: str
    problem: str = ""
    findings: tuple[str, ...] = ()
    disk_bytes: int = 0


# Machines have a few; a node may announce any number.
MAX_ADDRESSES: Final = 64
"""Addresses of one node: a watch asks for the route to each of them once a second."""


@functools.lru_cache(1_000)
def _check_address(text: str) -> None:
    if "%" in text:
        raise ValueError(f"{text[:50]!r} has a scope, which means something on its own host only")
    ipaddress.ip_address(text[:50])


class UnprovedView(msgspec.Struct, frozen=True):
    """A participant whose protocol messages this node refuses."""

    participant: str
    """Its GUID, 32 hexadecimal digits."""
    name: str
    """The name of a node; of others, name, process and host. Empty if it is not known."""
    counts: dict[str, int]
    """Refused messages, by reason (`engine.dds.proofs.ProofFault`)."""
    node: str = ""
    """Id of the node that it announced itself as; empty for a client or another participant."""


class NodeSnapshot(msgspec.Struct, frozen=True):
    """One node at one moment."""

    id: str
    """32 hexadecimal digits, the same in every run."""
    name: str
    """Human name of the node."""
    role: str
    """Role of the node (5.2.1)."""
    host: str
    """Name of its host."""
    pid: int
    """Process id."""
    domain_id: int
    """DDS domain that it serves."""
    incarnation: int
    """Number of the run; grows at each start."""
    configuration: str
    """Path of the configuration file."""
    version: str
    """Version of the program."""
    time_ns: int
    """When the snapshot was taken."""
    started_ns: int
    """When the process started."""
    state: str
    """State of the service, such as COMPLETE."""
    update_period_ns: int
    """Heartbeat period."""
    store: StoreStatus
    """Where its sets are kept."""
    fellows: tuple[FellowView, ...] = ()
    """Fellows that are present."""
    name_spaces: tuple[NameSpaceView, ...] = ()
    """Name-spaces in the order in which they were configured or learned."""
    groups: tuple[GroupView, ...] = ()
    """Groups; at most 500."""
    groups_left_out: int = 0
    """Groups that are not in `groups` because there are too many."""
    deliveries: tuple[DeliveryView, ...] = ()
    """Deliveries to late joiners, under way and past."""
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """Totals since the start, and figures such as `queued`, by name."""
    deviations: tuple[DeviationView, ...] = ()
    """Present readers that see other samples than the set has; at most 100."""
    unkept: tuple[UnkeptView, ...] = ()
    """Durable writers whose data is not kept, present ones and some that have just ended; at most 100."""
    addresses: tuple[str, ...] = ()
    """IPv4 addresses of its interfaces, which tell its host apart where hosts share a name.

    Loopback only if there is no other; empty if it has none.
    """

    unproved: tuple[UnprovedView, ...] = ()
    """Participants that are there and whose messages were refused for their proofs lately; at most 20."""
    secret: str = ""
    """Path of the file with the secret of the domain; empty without one."""
    secret_problem: str = ""
    """Reason why that file could not be read again; what was in it before still counts."""
    memory_bytes: int = 0
    """Memory of the process that is in RAM; 0 if unknown."""

    def __post_init__(self) -> None:
        """Refuse what is no address: watches ask for the route to each, and must not look up names."""
        if len(self.addresses) > MAX_ADDRESSES:
            raise ValueError(f"{len(self.addresses):,} addresses")
        for address in self.addresses:
            _check_address(address)


_ENDED: Final = "ended"
"""`engine.capture.unkept.UnkeptReason.ENDED`, which this package may not import."""


def is_nowhere(view: UnkeptView, nodes: Iterable[NodeSnapshot]) -> bool:
    """Whether these nodes lack what a writer wrote: if it has ended, one that captured it has sent it to all.

    So that is so only if all nodes that keep one of its groups say the same.
    """
    if view.why != _ENDED:
        return True
    partitions = view.partition.split(", ")
    return all(
        any(each.writer == view.writer for each in node.unkept)
        for node in nodes
        if any(each.topic == view.topic and each.partition in partitions for each in node.groups)
    )


class NodeEvent(msgspec.Struct, frozen=True):
    """One event of a node, as in its trace."""

    node: str
    """Id of the node."""
    node_name: str
    """Human name of the node."""
    number: int
    """Place in the order of the node's events."""
    time_ns: int
    """When it happened."""
    state: str
    """State of the service then."""
    thread: str
    """Thread that the trace names."""
    level: str
    """Level of the trace, such as INFO."""
    event: str
    """Id in the catalogue of trace events."""
    text: str
    """Message for people."""


class Masterhood(msgspec.Struct, frozen=True):
    """A master that a node has followed for a name-space, with time and reason."""

    since_ns: int
    name_space: str
    role: str
    master: str
    epoch: str
    why: str


class Run(msgspec.Struct, frozen=True):
    """One process of a node or persistence service.

    `ended_ns` is 0 while it runs; `end` is "in order" or the reason. A killed run ended with its last event.
    """

    started_ns: int
    pid: int
    version: str
    ended_ns: int = 0
    end: str = ""


class NodePast(msgspec.Struct, frozen=True):
    """The memory of a node or persistence service: events of INFO and above, masterships and runs.

    The oldest come first. Times are those of its own clock.
    """

    id: str
    name: str
    events: tuple[NodeEvent, ...]
    masterships: tuple[Masterhood, ...]
    runs: tuple[Run, ...]


Message = NodeSnapshot | NodeEvent | NodePast
_NAMES: Final[dict[type[Message], str]] = {NodeSnapshot: "node", NodeEvent: "event", NodePast: "past"}


class MonitorFault(ValueError):
    """Bytes that are not a monitor message, or one of a newer format."""


class _Document(msgspec.Struct):
    format_version: int
    kind: str
    data: msgspec.Raw


_read_document: Final = json_reader(_Document)
_READERS: Final = {name: json_reader(kind) for kind, name in _NAMES.items()}


def written(kind: str, value: object) -> bytes:
    """Return a value as a document of a kind; bytes of a path that are not UTF-8 become question marks."""
    document = {"format_version": FORMAT_VERSION, "kind": kind, "data": value}
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(document), separators=(",", ":"), ensure_ascii=False)
        return text.encode(errors="replace")


def read(data: bytes, readers: Mapping[str, Callable[[msgspec.Raw], Any]]) -> Any:
    """Return the value in a document; fields that a newer version added are ignored.

    Args:
        data: the document.
        readers: what reads the value of each kind.

    Raises:
        JsonFault: not JSON, another format version or kind, or a field with a wrong type.
    """
    document: _Document = _read_document(data)
    if document.format_version != FORMAT_VERSION:
        raise JsonFault(f"format {document.format_version} is not {FORMAT_VERSION}")
    if document.kind not in readers:
        raise JsonFault(f"a document of kind {document.kind[:80]!r}")
    return readers[document.kind](document.data)


def encode(message: Message) -> bytes:
    """Return the message as JSON bytes, for a monitor topic."""
    return written(_NAMES[type(message)], message)


def decode(data: bytes) -> Message:
    """Return the message in `data`.

    Raises:
        MonitorFault: it is none.
    """
    try:
        message: Message = read(data, _READERS)
    except JsonFault as error:
        raise MonitorFault(f"not a monitor message: {error}") from error
    return message
