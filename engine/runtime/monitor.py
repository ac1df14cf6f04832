"""What a node shows of itself: a snapshot of its state and its events, as JSON on the monitor topics.

A console anywhere in the domain, a recording and a simulation all feed on these values; nothing else of a
node is visible from outside. Times are integer nanoseconds since 1970 UTC, ids and digests are strings.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Final

from engine.core import plain

FORMAT_VERSION: Final = 1

DEVIATIONS: Final = {
    "shown_later": "samples shown with a later source time than the set's: it had newer ones",
    "refused_older": "samples of the set not taken, at most: it may have had newer ones of these instances",
    "owned": "instances of the set not taken: a writer that lives owns them",
    "not_kept": "times a topic's instances not kept ALIVE: the node's bounds, or a reader's max_instances",
}
"""Why an ordinary reader sees something otherwise than it is in the set; these are counters, too."""


@dataclasses.dataclass(frozen=True, slots=True)
class FellowView:
    """One fellow as this node sees it.

    `communication` is "approved", "waiting" (not matched both ways yet), "incompatible" (with `problem`
    naming both definitions) or "lost".
    """

    id: str
    name: str
    role: str
    state: str
    communication: str
    last_heartbeat_ns: int
    skew_ns: int = 0
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class AlignmentView:
    """One running alignment: `direction` is "from" (we are the alignee) or "to" (we are the aligner)."""

    direction: str
    fellow: str
    samples: int
    expected: int
    bytes: int
    started_ns: int


PART: Final = "part"
"""The phase of a Lazy name-space whose readers have what they want."""


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpaceView:
    """One name-space on this node.

    `phase` is the name-space's own life-cycle state, or `PART` where a Lazy node has what readers on its host
    want: such a set is never called complete. `why` says in words which rule chose the master, from
    which candidates; `epoch` and `merge_id` are shown as "counter/id". `master_since_ns` is since when this
    node follows this master in this epoch, 0 when it follows none or does not say. A set `from_parts` is what
    Lazy nodes had kept: nobody with a whole one was there. One that `is_learned` is not in the node's own
    configuration, but one of its policies applies to it. Of one that is `filtered`, content filters of this
    node keep a part out.
    """

    name: str
    elements: tuple[str, ...]
    aligner: bool
    alignee: str
    durability: str
    master_priority: int
    merges: tuple[str, ...]
    phase: str
    complete: bool
    master: str
    confirmed: bool
    epoch: str
    why: str
    merge_id: str
    quality_ns: int
    count: int
    digest: str
    groups: int
    alignments: tuple[AlignmentView, ...] = ()
    master_since_ns: int = 0
    from_parts: bool = False
    is_learned: bool = False
    filtered: bool = False

    @property
    def is_at_rest(self) -> bool:
        """Whether it waits for nothing: it is complete, a part, or passive as its policy asks."""
        return self.complete or self.phase in (PART, "passive")

    @property
    def is_less_than_whole(self) -> bool:
        """Whether it may lack for good what others have: it is a part, comes from parts, or is passive."""
        return self.from_parts or (self.is_at_rest and not self.complete)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupView:
    """One group on this node.

    `stored` is how many of the samples that are here are on this node's disk for certain; it equals `samples`
    only if the disk holds exactly what is here. It says nothing about samples that never arrived here.
    `rejected` are the samples that resource limits kept out or pushed out, by the name of the limit.
    """

    name_space: str
    partition: str
    topic: str
    type_name: str
    durability: str
    samples: int
    instances: int
    bytes: int
    digest: str
    newest_ns: int
    stored: int
    lost: int
    rejected: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryView:
    """One late joiner that this node serves or served: `state` is "waiting", "running", "done", "failed"."""

    participant: str
    topic: str
    partition: str
    state: str
    samples: int
    started_ns: int
    finished_ns: int
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviationView:
    """A reader that sees something otherwise than it is in the set: how often, by cause (see DEVIATIONS)."""

    participant: str
    topic: str
    partition: str
    counts: dict[str, int]

    @property
    def text(self) -> str:
        """The counts in words."""
        return "; ".join(
            f"{count:,} {DEVIATIONS.get(cause, cause)}" for cause, count in sorted(self.counts.items())
        )


@dataclasses.dataclass(frozen=True, slots=True)
class UnkeptView:
    """A durable writer whose data the node does not keep: `why` is a code, `text` says it in words."""

    writer: str
    topic: str
    partition: str
    why: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class StoreView:
    """Where sets live: `kind` is "memory", "sqlite" or "simulated"; `problem` is set while it is degraded.

    `disk_bytes` is what all files of the store take up on the disk, with indexes, backups and the write-ahead
    log; 0 while that is not known.
    """

    kind: str
    path: str
    problem: str = ""
    findings: tuple[str, ...] = ()
    disk_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node at one moment.

    `groups_left_out` counts the groups that did not fit into `groups`; `counters` are totals since start.
    `deviations` are those of the readers that are there, `unkept` the durable writers that are there and are
    not kept; of each at most 100.
    """

    id: str
    name: str
    role: str
    host: str
    pid: int
    domain_id: int
    incarnation: int
    configuration: str
    version: str
    time_ns: int
    started_ns: int
    state: str
    update_period_ns: int
    store: StoreView
    fellows: tuple[FellowView, ...] = ()
    name_spaces: tuple[NameSpaceView, ...] = ()
    groups: tuple[GroupView, ...] = ()
    groups_left_out: int = 0
    deliveries: tuple[DeliveryView, ...] = ()
    counters: dict[str, int] = dataclasses.field(default_factory=dict)
    deviations: tuple[DeviationView, ...] = ()
    unkept: tuple[UnkeptView, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event of a node, as in its trace: `event` is the catalogue id, `text` the rendered message."""

    node: str
    node_name: str
    number: int
    time_ns: int
    state: str
    thread: str
    level: str
    event: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Masterhood:
    """A master that a node has confirmed for a name-space, since when, and why."""

    since_ns: int
    name_space: str
    role: str
    master: str
    epoch: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One process of a node or persistence service.

    `ended_ns` is 0 while it runs; `end` is "in order" or why it ended. A run that ended without a word has
    the time of the last event that it left.
    """

    started_ns: int
    pid: int
    version: str
    ended_ns: int = 0
    end: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class NodePast:
    """What a node or persistence service remembers: events of INFO and above, masterships and runs.

    The oldest come first. All times are those of its own clock.
    """

    id: str
    name: str
    events: tuple[NodeEvent, ...]
    masterships: tuple[Masterhood, ...]
    runs: tuple[Run, ...]


Message = NodeSnapshot | NodeEvent | NodePast
_KINDS: Final[dict[str, type[Message]]] = {"node": NodeSnapshot, "event": NodeEvent, "past": NodePast}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


class MonitorFault(ValueError):
    """A monitor message that is not one of ours, or of a newer format."""


def encode(message: Message) -> bytes:
    """The message as JSON bytes, ready for a monitor topic or a line of a recording.

    Bytes of a path that are no text arrive as question marks.
    """
    kind, data = _NAMES[type(message)], plain.to_plain(message)
    document = {"format_version": FORMAT_VERSION, "kind": kind, "data": data}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def decode(data: bytes) -> Message:
    """The message in `data`. Fields that a newer minor version added are ignored.

    Raises:
        MonitorFault: not JSON, another format version, or a field with a wrong type.
    """
    try:
        document = json.loads(data)
        if document["format_version"] != FORMAT_VERSION:
            raise MonitorFault(f"monitor format {document['format_version']!r} is not {FORMAT_VERSION}")
        message: Message = plain.from_plain(_KINDS[document["kind"]], document["data"])
    except MonitorFault:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise MonitorFault(f"not a monitor message: {error!r}") from error
    return message
