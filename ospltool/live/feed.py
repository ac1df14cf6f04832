"""The feed: what every console, recorder and status command reads, wherever it comes from.

A feed is polled and never blocks. It keeps the newest snapshot of each node and a bounded number of events
between two polls; what did not fit is counted in `Update.dropped`, so a reader can show it.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar, runtime_checkable

from engine.persistence.service.view import ReplicaView
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot

MAX_PENDING_EVENTS: Final = 5_000
"""Events kept between two polls; the oldest are dropped and counted."""

MAX_PENDING_NODES: Final = 1_000
"""Nodes with a snapshot waiting, and likewise replicas of persistence services; what a further one shows is
dropped and counted."""

MAX_PENDING_NOTICES: Final = 200

ENDING: Final = ("TERMINATING", "TERMINATED")
"""States of a node that ends in order."""

T = TypeVar("T")


class NoticeKind(enum.StrEnum):
    """What the feed itself has to say."""

    NODE_LOST = "node lost"
    NODE_FOUND = "node found"
    REPLICA_LOST = "replica lost"
    DOMAIN_LOST = "domain lost"
    DOMAIN_FOUND = "domain found"
    FAULT = "fault"
    END = "end"

    @classmethod
    def _missing_(cls, value: object) -> NoticeKind | None:
        """Read recordings of release 0.1, which called a replica an instance."""
        return cls.REPLICA_LOST if value == "instance lost" else None


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """One remark of the feed.

    `node` is the id of what the remark is about: a node, or with REPLICA_LOST a replica of a persistence
    service. `in_order`, of NODE_LOST, means that the node had said before that it ends.
    """

    kind: NoticeKind
    time_ns: int
    text: str
    node: str = ""
    in_order: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """A snapshot and when it reached us, by the clock of the feed (not of the node)."""

    snapshot: NodeSnapshot
    heard_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class HeardReplica:
    """What a replica of a persistence service shows of itself, and when it reached us, as in `Heard`."""

    view: ReplicaView
    heard_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """What is new since the last poll.

    `caption` is a sentence for the reader, None when it did not change; `dropped` is a total since the feed
    was opened. `restart` means that this does not follow on from what came before: a recording was wound to
    another place, and everything known must be forgotten first. `pasts` are the masterships and runs that
    nodes and persistence services remember; the events that they remember are among `events`, each once.
    """

    snapshots: tuple[Heard, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    notices: tuple[Notice, ...] = ()
    caption: str | None = None
    dropped: int = 0
    restart: bool = False
    replicas: tuple[HeardReplica, ...] = ()
    pasts: tuple[NodePast, ...] = ()

    def __bool__(self) -> bool:
        news = self.snapshots or self.replicas or self.events or self.notices or self.pasts
        return bool(self.restart or news or self.caption is not None)


class Feed(Protocol):
    """A source of updates. Reading it never changes what it shows."""

    @property
    def title(self) -> str:
        """What is being watched, for a header: "domain 7", "recording night.jsonl"."""
        ...

    @property
    def mode(self) -> str:
        """One of "live", "recorded", "simulated"."""
        ...

    def now_ns(self) -> int:
        """The moment that ages are counted from, in nanoseconds since 1970 UTC."""
        ...

    def poll(self) -> Update:
        """What came since the last call; at once, empty when nothing did."""
        ...

    def close(self) -> None:
        """Let go of what the feed holds. A second call does nothing."""
        ...


@runtime_checkable
class TimeTravel(Protocol):
    """A feed whose time the reader decides about: a recording."""

    @property
    def timeline(self) -> Timeline:
        """Where it stands."""
        ...

    def pause(self, *, paused: bool) -> None:
        """Stand still, or go on."""
        ...

    def set_speed(self, speed: float) -> None:
        """Go faster or slower, from here on."""
        ...

    def seek(self, moment_ns: int) -> None:
        """Wind to a moment."""
        ...

    def step(self, direction: int) -> bool:
        """To the next event, or the one before; False when there is none."""
        ...

    def mark(self, text: str) -> None:
        """Mark this moment, with a note."""
        ...

    def notes(self) -> tuple[tuple[int, str], ...]:
        """(moment, note) of every mark, oldest first."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """Where a recording stands: all times in ns since 1970, `marks` those of the reader."""

    begin_ns: int
    end_ns: int
    now_ns: int
    paused: bool
    speed: float
    marks: tuple[int, ...] = ()


class Inbox:
    """The bounded memory between a feed's source and its reader. Not locked: the feed locks where it must.

    Snapshots coalesce per node and per replica, since only the newest matters; events are kept in order.
    """

    def __init__(self, max_events: int = MAX_PENDING_EVENTS, max_nodes: int = MAX_PENDING_NODES) -> None:
        self._snapshots: dict[str, Heard] = {}
        self._replicas: dict[str, HeardReplica] = {}
        self._pasts: dict[str, NodePast] = {}
        self._events: collections.deque[NodeEvent] = collections.deque()
        self._notices: collections.deque[Notice] = collections.deque()
        self._caption: str | None = None
        self._max_events = max_events
        self._max_nodes = max_nodes
        self.dropped = 0

    def put(self, item: Heard | HeardReplica | NodeEvent | NodePast | Notice) -> None:
        """Add one item; at a bound something is dropped and counted."""
        if isinstance(item, Heard):
            self._replace(self._snapshots, item.snapshot.id, item)
        elif isinstance(item, HeardReplica):
            self._replace(self._replicas, item.view.id, item)
        elif isinstance(item, NodePast):
            self._replace(self._pasts, item.id, item)
        elif isinstance(item, Notice):
            self._append(self._notices, item, MAX_PENDING_NOTICES)
        else:
            self._append(self._events, item, self._max_events)

    def say(self, caption: str) -> None:
        """Set the sentence for the reader; an empty one takes it away."""
        self._caption = caption

    def drain(self, *, restart: bool = False) -> Update:
        """Everything that waits, and forget it; `restart` says that it follows on from nothing."""
        update = Update(
            snapshots=tuple(self._snapshots.values()),
            events=tuple(self._events),
            notices=tuple(self._notices),
            caption=self._caption,
            dropped=self.dropped,
            restart=restart,
            replicas=tuple(self._replicas.values()),
            pasts=tuple(self._pasts.values()),
        )
        self._pasts.clear()
        self._snapshots.clear()
        self._replicas.clear()
        self._events.clear()
        self._notices.clear()
        self._caption = None
        return update

    def _replace(self, newest: dict[str, T], key: str, item: T) -> None:
        if key in newest or len(newest) < self._max_nodes:
            newest[key] = item
        else:
            self.dropped += 1

    def _append(self, queue: collections.deque[T], item: T, bound: int) -> None:
        queue.append(item)
        if len(queue) > bound:
            queue.popleft()
            self.dropped += 1


class ScriptedFeed:
    """A feed whose updates and clock are given: for tests, and for pictures that must not change.

    `steps` pairs a moment with the update that belongs to it; `poll` returns one step per call and the clock
    then stands at its moment. After the last step the clock stays, unless `clock` is given.
    """

    def __init__(
        self,
        steps: Iterable[tuple[int, Update]],
        *,
        title: str = "script",
        mode: str = "live",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._steps = collections.deque(steps)
        self._now_ns = self._steps[0][0] if self._steps else 0
        self._clock = clock
        self.title = title
        self.mode = mode
        self.closed = False

    def now_ns(self) -> int:
        """The moment of the step that was returned last, or the given clock."""
        return self._clock() if self._clock else self._now_ns

    def poll(self) -> Update:
        """The next step; empty after the last."""
        if not self._steps:
            return Update()
        self._now_ns, update = self._steps.popleft()
        return update

    def add(self, time_ns: int, update: Update) -> None:
        """Append a step."""
        self._steps.append((time_ns, update))

    def close(self) -> None:
        """Remember that the reader let go."""
        self.closed = True
