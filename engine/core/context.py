"""What the parts of the core share: settings, fellows, name-spaces, and the way out."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

from engine.core.events import Event, Note
from engine.core.fellows import Fellow, FellowTable
from engine.core.messages import JOINS, NO_EPOCH, Epoch, Outgoing
from engine.core.readers import ReaderTable
from engine.core.requests import RequestQueue
from engine.core.states import Phase

if TYPE_CHECKING:
    from engine.core.messages import Message, NameSpaceReport
    from engine.core.namespace import NameSpaceState
    from engine.core.settings import CoreSettings

MAX_QUEUED: Final = 100_000
"""Messages or events that may wait for the runtime; more than that means that nobody takes them."""


class Context:
    """The shared state of one node's core.

    Attributes:
        changed: name-spaces must be reported anew; likewise `status_due` and `readers_changed`.
        greeting_due: a fellow must learn that it is heard. Fellows come in crowds, so it waits a
            little for more of them.
        started_s: when this run began; `away_due_s`: when to remember for how long fellows have been away.
        absent: fellows of the last run that the store remembers as away since this one.
        wall_offset_ns: wall clock minus monotonic clock at the start.
        refused: nodes whose name-spaces conflicted with ours when they were last compared.
        behind_s: by how much this node itself is late with its work just now.
    """

    def __init__(self, settings: CoreSettings, wall_offset_ns: int, now: float) -> None:
        self.settings = settings
        self.node = settings.node
        self.fellows = FellowTable(settings.node)
        self.states: dict[str, NameSpaceState] = {}
        self.outbox: collections.deque[Outgoing] = collections.deque()
        self.events: collections.deque[Event] = collections.deque()
        self.requests = RequestQueue()
        self.readers = ReaderTable(settings.node, self._hosts_of)
        self.changed = True
        self.status_due = True
        self.greeting_due = False
        self.readers_changed = True
        self.wall_offset_ns = wall_offset_ns
        self.behind_s = 0.0
        self.refused: set[str] = set()
        self.started_s = self.away_due_s = now
        self.absent: set[str] = set()
        self._requests_made = 0

    def _hosts_of(self, node: str) -> frozenset[str]:
        """The addresses of a node's host, none for a node that is not known."""
        if node == self.node:
            return self.settings.hosts
        fellow = self.fellows.get(node)
        status = fellow.status if fellow else None
        return status.hosts if status else frozenset()

    @property
    def has_output(self) -> bool:
        """Whether something waits for the runtime."""
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

    def next_request(self) -> int:
        """A request number that is new in this and all other incarnations.

        A stream that answers the request of a former incarnation may reach the present one.
        """
        self._requests_made += 1
        return (self.settings.incarnation << 24) + self._requests_made

    def wall_ns(self, now: float) -> int:
        """The wall clock at monotonic time `now`."""
        return self.wall_offset_ns + int(now * 1e9)

    def away_s(self, node: str, now: float) -> float | None:
        """For how long nodes have run without a fellow that was lost; None if it was not."""
        lost_s = self.fellows.away_s(node, now)
        if lost_s is None and (node in self.settings.away or node in self.absent):
            return self.settings.away.get(node, 0) / 1e9 + now - self.started_s
        return lost_s

    def name_of(self, node: str) -> str:
        """A node's human name where it is known."""
        if node == self.node:
            return self.settings.name
        fellow = self.fellows.get(node)
        return fellow.name if fellow else node[:8]

    def role_fellows(self, state: NameSpaceState) -> list[tuple[Fellow, NameSpaceReport]]:
        """The fellows of our role that we talk to and that take part in the name-space, with reports."""
        return self._fellows_of(state, is_ours=True)

    def foreign_fellows(self, state: NameSpaceState) -> list[tuple[Fellow, NameSpaceReport]]:
        """The fellows of other roles that we talk to and that take part in the name-space."""
        return self._fellows_of(state, is_ours=False)

    def _fellows_of(self, state: NameSpaceState, *, is_ours: bool) -> list[tuple[Fellow, NameSpaceReport]]:
        name, role = state.name, self.settings.role
        return [
            (fellow, report)
            for fellow in self.fellows.approved()
            if (fellow.role == role) is is_ours
            and (report := fellow.report(name)) is not None
            and report.phase is not Phase.PASSIVE
        ]

    def line_of(self, state: NameSpaceState, node: str) -> tuple[Epoch, ...]:
        """The line of a fellow's set; of one that does not tell it, the whole history of the domain."""
        fellow = self.fellows.get(node)
        report = fellow.report(state.name) if fellow else None
        return report.line if fellow and report and fellow.can(JOINS) else (NO_EPOCH,)

    def aligner_report(self, state: NameSpaceState) -> NameSpaceReport | None:
        """What the node to ask for the set says of the name-space; None when it is not to be asked."""
        return self.report_of(state, state.aligner)

    def report_of(self, state: NameSpaceState, node: str) -> NameSpaceReport | None:
        """What a fellow that we talk to says of the name-space; None of one that is gone."""
        fellow = self.fellows.get(node)
        return fellow.report(state.name) if fellow and fellow.approved else None
