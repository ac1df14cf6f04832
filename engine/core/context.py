"""State that the parts of the core share: settings, fellows, name-spaces, and the queues out."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from engine.core.events import AligneeRequest, Event, Note, StoreMarks
from engine.core.fellows import Fellow, FellowTable
from engine.core.messages import (
    NO_EPOCH,
    Epoch,
    Message,
    NameSpaceReport,
    Outdated,
    Outgoing,
)
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import Group
from engine.core.readers import SETTLED_S, ReaderTable, Server
from engine.core.settings import CoreSettings
from engine.core.states import Phase

Reporting: TypeAlias = tuple[Fellow, NameSpaceReport]
"""A fellow with its report on a name-space."""

# Four for each node of the largest system. A fellow that is refused asks again later.
MAX_WAITING: Final = 4096
"""Requests that may wait; the aligner refuses further ones."""


class _Batch(msgspec.Struct):
    """The requests for one name-space that one stream will answer."""

    due_s: float
    targets: dict[str, AligneeRequest] = msgspec.field(default_factory=dict)


class RequestQueue:
    """Queue of the aligner (guide, 5.3.4, 5.5.7 and 5.5.17): one stream answers several requests.

    Requests of fellows, by name-space, each batch with the end of its RequestCombinePeriod.
    """

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}
        self._waiting = 0

    def add(self, name_space: str, target: AligneeRequest, now: float, combine_s: float) -> bool:
        """Queue a request; False if the queue is full. A newer request of a node replaces its older one.

        The first request of a name-space waits `combine_s` seconds for others.
        """
        batch = self._batches.get(name_space)
        if batch is None:
            batch = self._batches[name_space] = _Batch(now + combine_s)
        if target.node not in batch.targets:
            if self._waiting >= MAX_WAITING:
                return False
            self._waiting += 1
        batch.targets[target.node] = target
        assert 0 < self._waiting <= MAX_WAITING, "the queue of requests has lost count"
        return True

    def waits(self, name_space: str) -> bool:
        """Whether a request for a name-space waits already."""
        return name_space in self._batches

    def drop(self, node: str) -> None:
        """Forget the requests of a lost fellow."""
        for name_space in sorted(self._batches):
            batch = self._batches[name_space]
            if batch.targets.pop(node, None):
                self._waiting -= 1
            if not batch.targets:
                del self._batches[name_space]

    def due(
        self, now: float, is_ready: Callable[[str], bool]
    ) -> list[tuple[str, tuple[AligneeRequest, ...]]]:
        """Take the batches whose period is over and whose name-space is complete."""
        due = [name for name in sorted(self._batches) if is_ready(name) and now >= self._batches[name].due_s]
        answers: list[tuple[str, tuple[AligneeRequest, ...]]] = []
        for name in due:
            batch = self._batches.pop(name)
            self._waiting -= len(batch.targets)
            assert self._waiting >= 0, "the queue of requests has lost count"
            answers.append((name, tuple(batch.targets[node] for node in sorted(batch.targets))))
        return answers

    def next_due(self, is_ready: Callable[[str], bool]) -> float | None:
        """Return when the next batch that can be answered is due."""
        return min((batch.due_s for name, batch in self._batches.items() if is_ready(name)), default=None)


# Chosen. Beyond it all are forgotten: matching expressions costs some microseconds for a sample.
MAX_KNOWN_GROUPS: Final = 10_000
"""Groups whose name-space is remembered: each sample needs it, and name-spaces do not change."""
SET_NS: Final = 1_577_836_800_000_000_000
"""2020-01-01T00:00:00Z: a clock that is earlier was never set."""
# The runtime takes them after each turn; only an error in it can let them grow.
MAX_QUEUED: Final = 100_000
"""Messages or events that may wait for the runtime; more means that the runtime does not take them."""


class Context:
    """The shared state of one node's core.

    `wall_offset_ns` is the wall clock minus the monotonic clock, in nanoseconds.
    """

    def __init__(self, settings: CoreSettings, wall_offset_ns: int, now: float) -> None:
        self.settings = settings
        self.node = settings.node
        """Id of this node."""
        self.fellows = FellowTable(settings.node, settings.runs)
        self.states: dict[str, NameSpaceState] = {}
        """Name-spaces by name, in the order in which they were configured or learned."""
        self.outbox: collections.deque[Outgoing] = collections.deque()
        """Messages to send."""
        self.events: collections.deque[Event] = collections.deque()
        """Events for the runtime."""
        self.requests = RequestQueue()
        """Fellows' requests that wait for RequestCombinePeriod."""
        self.readers = ReaderTable(settings.node, self._hosts_of)
        self._settled: set[str] = set()
        self._space_of: dict[Group, NameSpaceState] = {}
        self._reporting: dict[tuple[str, bool], tuple[Reporting, ...]] = {}
        """Approved fellows with their reports, by name-space, of this node's role or of others."""
        self._reporting_at = -1
        """Version of the fellows that `_reporting` is of."""
        self.changed = True
        """A report on the name-spaces is due."""
        self.status_due = True
        """A heartbeat is due."""
        self.greeting_due = False
        """A heartbeat for new fellows is due; it waits a little, because fellows start together."""
        self.readers_changed = True
        """A message about served readers is due."""
        self.writers_due = False
        """Messages about autodispose writers are due: with heartbeats, and before a fellow gets samples."""
        self.wall_offset_ns = wall_offset_ns
        """Wall clock minus monotonic clock at the start."""
        self.behind_s = 0.0
        """Seconds by which this node is late with its own work now."""
        self.refused: set[str] = set()
        """Nodes whose name-spaces conflicted with this node's at the last comparison."""
        self.started_s = self.away_due_s = now
        """Start of this run, and when the store next notes how long fellows have been away."""
        self.absent: set[str] = set()
        """Fellows of the last run that the store has marked as away since this one."""
        self.outlived: Outdated | None = None
        """What showed that fellows remember a later run of this node; a new one must begin."""
        self.outlived_by = ""
        """Id of the fellow that showed it."""
        self.outlived_due_s: float | None = None
        """When that begins, unless a fellow tells more by then; None if nothing is known, or it has begun."""
        self.doubles: set[int] = set()
        """Random numbers of the runs of other processes that were heard with this node's id."""
        self.outdated: set[str] = set()
        """Fellows that run on an older state of their store, have been told so, and have begun no new run."""
        self.out_of_range: dict[str, tuple[str, str]] = {}
        """Kind of the message whose counters are impossible, and name of the sender, by id."""
        self._requests_made = 0

    def _hosts_of(self, node: str) -> frozenset[str]:
        """Return the addresses of a node's host, none for an unknown node."""
        if node == self.node:
            return self.settings.hosts
        fellow = self.fellows.get(node)
        status = fellow.status if fellow else None
        return status.hosts if status else frozenset()

    @property
    def has_output(self) -> bool:
        """Whether messages or events wait for the runtime."""
        return bool(self.changed or self.status_due or self.readers_changed or self.outbox or self.events)

    def send(self, message: Message, *to: str) -> None:
        """Queue a message for the named fellows, or for all."""
        assert len(self.outbox) < MAX_QUEUED, "nobody sends the messages of the core"
        self.outbox.append(Outgoing(message, to))

    def emit(self, event: Event) -> None:
        """Queue an event for the runtime."""
        assert len(self.events) < MAX_QUEUED, "nobody takes the events of the core"
        self.events.append(event)

    def note(self, event: str, **fields: object) -> None:
        """Queue a trace line."""
        self.emit(Note(event, fields))

    def note_lineage(self, state: NameSpaceState) -> None:
        """Have the lineage of a set stored, and trace it."""
        self.emit(StoreMarks(state.name))
        self.note(
            "namespace.merge-state",
            namespace=state.name,
            merge_state=state.lineage,
            role=self.settings.role,
        )

    def next_request(self) -> int:
        """Return a request number that no run of this node has used.

        A stream that answers a request of a former run may reach this one.
        """
        self._requests_made += 1
        # Of two runs with one incarnation, on copies of one store, each has its own random number.
        return ((self.settings.incarnation ^ self.settings.life) << 24) + self._requests_made

    def wall_ns(self, now: float) -> int:
        """Return the wall clock at monotonic time `now`."""
        return self.wall_offset_ns + int(now * 1e9)

    def clocks_ns(self, wall_ns: int, now: float) -> dict[str, int]:
        """Return the wall clocks of this node, `wall_ns`, and of the approved fellows, by node.

        Clocks that were never set do not count, unless there is no other: a computer without a battery starts
        in 1970 or 2000, and would keep all others from deleting anything.
        """
        steady_ns = self.wall_ns(now)
        clocks = {one.node: steady_ns + one.clock_skew_ns for one in self.fellows.approved()}
        clocks[self.node] = wall_ns
        return {node: time_ns for node, time_ns in clocks.items() if time_ns >= SET_NS} or clocks

    def away_s(self, node: str, now: float) -> float | None:
        """Return how long nodes have run without a lost fellow; None if it was not lost."""
        lost_s = self.fellows.away_s(node, now)
        if lost_s is None and (node in self.settings.away or node in self.absent):
            return self.settings.away.get(node, 0) / 1e9 + now - self.started_s
        return lost_s

    def name_of(self, node: str) -> str:
        """Return a node's human name, or the beginning of its id."""
        if node == self.node:
            return self.settings.name
        fellow = self.fellows.get(node)
        return fellow.name if fellow else node[:8]

    def space_of(self, group: Group) -> NameSpaceState | None:
        """Return the first name-space that contains a group."""
        known = self._space_of.get(group)
        if known is None:
            for state in self.states.values():
                if state.name_space.contains(group):
                    if len(self._space_of) >= MAX_KNOWN_GROUPS:
                        self._space_of.clear()  # strangers may announce many; the groups in use come back
                    self._space_of[group] = state
                    return state
        return known

    def role_fellows(self, state: NameSpaceState) -> Sequence[Reporting]:
        """Return the approved fellows of this role that take part in the name-space, with reports."""
        return self._fellows_of(state, is_ours=True)

    def foreign_fellows(self, state: NameSpaceState) -> Sequence[Reporting]:
        """Return the approved fellows of other roles that take part in the name-space, with reports."""
        return self._fellows_of(state, is_ours=False)

    def _fellows_of(self, state: NameSpaceState, *, is_ours: bool) -> Sequence[Reporting]:
        if self._reporting_at != self.fellows.version:
            self._reporting_at = self.fellows.version
            self._reporting.clear()
        known = self._reporting.get((state.name, is_ours))
        if known is None:
            known = tuple(self._reports_of(state.name, is_ours=is_ours))
            self._reporting[state.name, is_ours] = known
        return known

    def _reports_of(self, name: str, *, is_ours: bool) -> list[Reporting]:
        role = self.settings.role
        return [
            (fellow, report)
            for fellow in self.fellows.all()
            if fellow.approved
            and (fellow.role == role) is is_ours
            and (report := fellow.report(name)) is not None
            and report.phase is not Phase.PASSIVE
        ]

    def servers_of(self, state: NameSpaceState) -> list[Server]:
        """Return the nodes with the complete set of a name-space, this one included."""
        servers: list[Server] = []
        if state.complete:
            is_master = state.is_master(self.node)
            priority = state.policy.master_priority
            servers.append(Server(self.node, self.settings.hosts, is_master, priority, state.is_lazy))
        for fellow in self.fellows.approved():
            report = fellow.report(state.name)
            if report and (report.complete or report.part) and fellow.status:
                is_master, priority = fellow.leads(report), report.master_priority
                servers.append(Server(fellow.node, fellow.status.hosts, is_master, priority, report.part))
        return servers

    def settle(self, state: NameSpaceState, now: float) -> None:
        """Leave readers to other complete nodes for a moment when the set is complete for the first time.

        Until they hear of it they serve the readers on this node's host, too.
        """
        if state.complete and state.name not in self._settled:
            self._settled.add(state.name)
            if any(server.node != self.node for server in self.servers_of(state)):
                self.readers.settle(state.name, now + SETTLED_S)

    def line_of(self, state: NameSpaceState, node: str) -> tuple[Epoch, ...]:
        """Return the line of a fellow's set, or that of the whole domain if the fellow tells none."""
        fellow = self.fellows.get(node)
        report = fellow.report(state.name) if fellow else None
        return report.line if report else (NO_EPOCH,)

    def aligner_report(self, state: NameSpaceState) -> NameSpaceReport | None:
        """Return the report of the node to ask for the set; None if it cannot be asked."""
        return self.report_of(state, state.aligner)

    def report_of(self, state: NameSpaceState, node: str) -> NameSpaceReport | None:
        """Return an approved fellow's report on the name-space; None for any other node."""
        fellow = self.fellows.get(node)
        return fellow.report(state.name) if fellow and fellow.approved else None
