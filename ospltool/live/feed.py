"""The feed that every console, recorder and status command reads: live, recorded or simulated.

A feed is polled and never blocks. It keeps the newest snapshot of each node and a bounded number of events
between two polls; `Update.dropped` counts what did not fit, so a reader can show it.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import operator
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar, runtime_checkable

from engine.persistence.service.replica_view import ReplicaView
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot
from engine.runtime.past import without_surplus
from ospltool.live.supervision import LocalView
from ospltool.live.topics import ApplicationEndpoint
from ospltool.output.text import listed

# A watch polls four times a second: only one that stands still has more.
MAX_PENDING_EVENTS: Final = 5_000
"""Events kept between two polls; the oldest of those that send most are dropped and counted."""

# As `engine.config.fleet.MAX_NODES`; a stranger may pretend to be any number of nodes.
MAX_PENDING_NODES: Final = 1_000
"""Nodes with a waiting snapshot, and likewise replicas of persistence services; snapshots of others are
dropped and counted."""

# Each is for a person; a screen has some twenty.
MAX_PENDING_NOTICES: Final = 200
MAX_PENDING_FAULTS: Final = 20
"""Notices of messages that are refused or cannot be read, which a stranger provokes: they have a bound of
their own, so that none pushes out what happened to nodes."""

_MOST_NAMED: Final = 3
"""Addresses that a message names; the others are counted."""

ENDING: Final = ("TERMINATING", "TERMINATED")
"""States of a node that shuts down in an orderly way."""

T = TypeVar("T")
_SENDER: Final = operator.attrgetter("node")


class NoticeKind(enum.StrEnum):
    """Kind of a message from the feed itself."""

    NODE_LOST = "node lost"
    NODE_FOUND = "node found"
    REPLICA_LOST = "replica lost"
    DOMAIN_LOST = "domain lost"
    DOMAIN_FOUND = "domain found"
    LINK_LOST = "link lost"
    LINK_FOUND = "link found"
    ROUTE_LOST = "route lost"
    ROUTE_FOUND = "route found"
    WATCH_FAILED = "watch failed"
    WATCH_BACK = "watch back"
    UNPROVED = "unproved"
    FAULT = "fault"
    END = "end"


def no_route(addresses: Sequence[str]) -> str:
    """Say that no route leads to these addresses; empty without any."""
    return f"no route leads to {listed(addresses, _MOST_NAMED)}" if addresses else ""


@dataclasses.dataclass(frozen=True, slots=True)
class FeedNotice:
    """One message from the feed itself.

    `node` is the id of its subject: a node, or with REPLICA_LOST a replica of a persistence
    service. `in_order` (NODE_LOST) means that the node had announced its end. LINK_LOST: no interface of the
    feed carries anything, or no route leads to any other host, as its text says. ROUTE_LOST: its text has the
    addresses, with spaces between, to which no route leads. WATCH_FAILED: what reads has failed by a fault of
    its own, and hears nothing until WATCH_BACK. UNPROVED: `names` are those of the nodes that are refused.
    """

    kind: NoticeKind
    time_ns: int
    text: str
    node: str = ""
    in_order: bool = False
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedSnapshot:
    """A snapshot and when it arrived, by the clock of the feed (not of the node)."""

    snapshot: NodeSnapshot
    heard_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class HeardReplica:
    """A view of a replica of a persistence service, and when it arrived, as in `ReceivedSnapshot`."""

    view: ReplicaView
    heard_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """The news since the last poll."""

    snapshots: tuple[ReceivedSnapshot, ...] = ()
    """New snapshots of nodes."""
    events: tuple[NodeEvent, ...] = ()
    """New events, in order, including those that pasts contain, each once."""
    notices: tuple[FeedNotice, ...] = ()
    """New messages from the feed itself."""
    caption: str | None = None
    """Sentence for the reader; None if it did not change."""
    dropped: int = 0
    """Items that did not fit, in all since the feed was opened."""
    restart: bool = False
    """Whether a recording jumped to another place, so that everything known must be forgotten first."""
    replicas: tuple[HeardReplica, ...] = ()
    """New views of replicas of persistence services."""
    pasts: tuple[NodePast, ...] = ()
    """Masterships and runs that nodes and persistence services remember."""
    local: LocalView | None = None
    """What the recorder's machine knew beside what it heard; None if that did not change."""
    endpoints: tuple[ApplicationEndpoint, ...] | None = None
    """All readers and writers of applications; None if they did not change, or are not known."""

    def __bool__(self) -> bool:
        news = self.snapshots or self.replicas or self.events or self.notices or self.pasts
        others = (self.caption, self.local, self.endpoints)
        return bool(self.restart or news or any(one is not None for one in others))


class Feed(Protocol):
    """A source of updates. Reading it never changes the system that it shows."""

    @property
    def title(self) -> str:
        """Name of the watched system, for a header: "domain 7", "recording night.jsonl"."""
        ...

    @property
    def mode(self) -> str:
        """One of "live", "recorded", "simulated"."""
        ...

    def now_ns(self) -> int:
        """Return the moment that ages are counted from, in nanoseconds since 1970 UTC."""
        ...

    def poll(self) -> Update:
        """Return the news since the last call, at once; empty if there is none."""
        ...

    def close(self) -> None:
        """Release all resources. A second call does nothing."""
        ...


@runtime_checkable
class TimeTravel(Protocol):
    """A feed whose time the reader controls: a recording or a simulation."""

    @property
    def timeline(self) -> ReplayPosition:
        """Current position."""
        ...

    def pause(self, *, paused: bool) -> None:
        """Pause or continue."""
        ...

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on."""
        ...

    def seek(self, moment_ns: int) -> None:
        """Move to a moment."""
        ...

    def step(self, direction: int) -> bool:
        """Move to the next event (the previous one if `direction` < 1); return False if there is none."""
        ...

    def mark(self, text: str) -> None:
        """Mark this moment, with a note."""
        ...

    def notes(self) -> tuple[tuple[int, str], ...]:
        """Return (moment, note) of every mark, oldest first."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayPosition:
    """Position in a recording: all times in ns since 1970; `marks` are the reader's.

    `reached` is the speed of a simulation that cannot keep up with `speed`; None if it can.
    """

    begin_ns: int
    end_ns: int
    now_ns: int
    paused: bool
    speed: float
    marks: tuple[int, ...] = ()
    reached: float | None = None


class Inbox:
    """The bounded buffer between a feed's source and its reader. It has no lock of its own.

    Snapshots coalesce per node and per replica, since only the newest matters; events are kept in order.
    """

    def __init__(self, max_events: int = MAX_PENDING_EVENTS, max_nodes: int = MAX_PENDING_NODES) -> None:
        self._snapshots: dict[str, ReceivedSnapshot] = {}
        self._replicas: dict[str, HeardReplica] = {}
        self._pasts: dict[str, NodePast] = {}
        self._events: list[NodeEvent] = []
        self._notices: collections.deque[FeedNotice] = collections.deque()
        self._faults: collections.deque[FeedNotice] = collections.deque(maxlen=MAX_PENDING_FAULTS)
        self._caption: str | None = None
        self._endpoints: tuple[ApplicationEndpoint, ...] | None = None
        self._max_events = max_events
        self._max_nodes = max_nodes
        self.dropped = 0

    def put(self, item: ReceivedSnapshot | HeardReplica | NodeEvent | NodePast | FeedNotice) -> None:
        """Add one item; at a bound something is dropped and counted."""
        if isinstance(item, ReceivedSnapshot):
            self._replace(self._snapshots, item.snapshot.id, item)
        elif isinstance(item, HeardReplica):
            self._replace(self._replicas, item.view.id, item)
        elif isinstance(item, NodePast):
            self._replace(self._pasts, item.id, item)
        elif isinstance(item, NodeEvent):
            self._events.append(item)
            if len(self._events) > 2 * self._max_events:  # not for each one: it costs a look at all
                self._drop_surplus()
        elif item.kind in (NoticeKind.FAULT, NoticeKind.UNPROVED):
            self._faults.append(item)
        else:
            self._notices.append(item)
            if len(self._notices) > MAX_PENDING_NOTICES:
                self._notices.popleft()
                self.dropped += 1

    def set_caption(self, caption: str) -> None:
        """Set the sentence for the reader; an empty one removes it."""
        self._caption = caption

    def set_endpoints(self, endpoints: tuple[ApplicationEndpoint, ...]) -> None:
        """Set the readers and writers of applications that there are now."""
        self._endpoints = endpoints

    def drain(self, *, restart: bool = False) -> Update:
        """Return everything that waits, and forget it; `restart` makes the reader forget earlier updates."""
        self._drop_surplus()
        update = Update(
            snapshots=tuple(self._snapshots.values()),
            events=tuple(self._events),
            notices=(*self._notices, *self._faults),
            caption=self._caption,
            dropped=self.dropped,
            restart=restart,
            replicas=tuple(self._replicas.values()),
            pasts=tuple(self._pasts.values()),
            endpoints=self._endpoints,
        )
        self._pasts.clear()
        self._snapshots.clear()
        self._replicas.clear()
        self._events.clear()
        self._notices.clear()
        self._faults.clear()
        self._caption = self._endpoints = None
        return update

    def _drop_surplus(self) -> None:
        few = without_surplus(self._events, self._max_events, _SENDER)
        self.dropped += len(self._events) - len(few)
        self._events = few

    def _replace(self, newest: dict[str, T], key: str, item: T) -> None:
        if key in newest or len(newest) < self._max_nodes:
            newest[key] = item
        else:
            self.dropped += 1
