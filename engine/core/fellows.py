"""The fellows of this node: identity, life signs, and approval.

Deployment guide 5.4.1 (connectivity) and 5.4.2 (compatibility). A fellow is *approved*, and this node talks
to it, when its endpoints are matched both ways (wait-for-attachment), its three state messages are here, it
hears this node, and its name-spaces do not conflict. A fellow is lost when it falls silent or its endpoints
go away. If it comes back with the same incarnation and its endpoints were gone, that is a reconnection,
however short the gap was; while endpoints stay matched, silence loses no data.
A fellow whose store is older than this node remembers is not heard until it begins a new run.
Time in which this node itself was paused is not silence of its fellows (docs/internals/protocol.md, "Life
signs").
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from engine.core.messages import Deliveries, NameSpaceReport, NameSpaces, RollUp, Status
from engine.core.name_spaces import DefinitionConflict
from engine.core.settings import RunSeen
from engine.core.states import ServiceState
from engine.core.untrusted import Newest

# As the largest system that is tried. A forgotten fellow that returns counts as a new one.
MAX_REMEMBERED: Final = 1024
"""Lost fellows remembered to recognise a reconnection; the oldest are forgotten first."""

# Chosen: with fewer one late heartbeat is an error of the clock, with more a clock that was set counts
# late.
ESTIMATES: Final = 5
"""Heartbeats by which clocks are compared: one of five has hardly waited on its way."""

# Heartbeats are a period apart; those that are closer than half of one waited in the same queue.
AT_ONCE: Final = 0.5
"""Part of the period within which heartbeats come at once: they waited, and count as one."""

# Above all expiry times that are sensible, below the differences (hours, a time zone) of clocks that were
# set wrong.
FAR_NS: Final = 60_000_000_000
"""Nanoseconds for which no heartbeat waits: a fellow that is so late is lost."""

# OpenSplice's example and default of Network/Heartbeat/ExpiryTime (engine/config/opensplice.tsv).
EXPIRY_S: Final = 10.0
"""Allowed silence of a fellow until its first heartbeat, which states it, has come."""

NOBODY: Final[frozenset[str]] = frozenset()
LEAVING: Final = (ServiceState.TERMINATING, ServiceState.TERMINATED)


@dataclasses.dataclass(slots=True)
class Fellow:
    """One fellow in its present incarnation. Moments are seconds on the monotonic clock."""

    node: str
    """Its id."""
    incarnation: int
    """Number of its run."""
    life: int = 0
    """Random number of its run."""
    attached: bool = False
    """The endpoints of this incarnation are matched both ways."""
    status: Status | None = None
    """Its newest heartbeat."""
    name_spaces: NameSpaces | None = None
    """Its newest report on name-spaces."""
    deliveries: Deliveries | None = None
    """Its newest message about served readers."""
    since_s: float = 0.0
    """When this node first heard it."""
    last_heard_s: float = 0.0
    """When its last life sign came."""
    skew_ns: int = 0
    """Its wall clock minus this node's, by the last heartbeat."""
    conflict: DefinitionConflict | None = None
    """Name-spaces that make it incompatible (5.4.2)."""
    approved: bool = False
    """This node talks to it."""
    gap_s: float | None = None
    """Seconds that it was away before it came back without a restart; None if it was not away."""
    silence_s: float | None = None
    """Seconds of silence during which endpoints stayed matched, so that nothing was missed."""
    is_back: bool = False
    """This node has acted upon `gap_s` or `silence_s`."""
    excused_s: float = 0.0
    """Seconds of its present silence in which this node itself stood still."""
    deaf_since_s: float | None = None
    """When it stopped hearing this node; None while it does."""
    forgotten: bool = False
    """It was away for longer than tombstones are kept for it."""
    in_step: dict[str, int] = dataclasses.field(default_factory=dict)
    """Source time as of which its settled set was equal to this node's, by name-space."""
    stored: dict[str, int] = dataclasses.field(default_factory=dict)
    """Source time as of which its disk has that set, by name-space (`engine.core.purging`)."""
    storing: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Wall clock of a heartbeat, and the source time as of which its set was equal then, by name-space."""
    skews_ns: tuple[int, ...] = ()
    """`skew_ns` by the last heartbeats, at most `ESTIMATES`; of those that came at once, by the fastest."""
    skewed_s: float = 0.0
    """When the first of the heartbeats came that the last of them stands for."""
    is_clock_off: bool = False
    """Its clock has been reported (`engine.core.operator_events`)."""
    is_late: bool = False
    """Its late heartbeats have been reported."""
    hears_us: bool = False
    """It hears this node, by its last heartbeat."""
    name: str = dataclasses.field(init=False)
    """Human name, or the beginning of the id while it is unknown."""
    role: str = dataclasses.field(init=False)
    """Role; empty while it is unknown."""
    expiry_s: float = dataclasses.field(init=False)
    """Seconds of silence after which it counts as lost."""

    def __post_init__(self) -> None:
        """Take what the heartbeat says, if one has come."""
        self.name, self.role, self.expiry_s = self.node[:8], "", EXPIRY_S
        if self.status is not None:
            self.note_status(self.status)

    def note_status(self, status: Status) -> None:
        """Note its newest heartbeat."""
        self.status = status
        self.name, self.role, self.expiry_s = status.name, status.role, status.expiry_s

    @property
    def run(self) -> tuple[int, int]:
        """Return number and random number of its run."""
        return self.incarnation, self.life

    @property
    def least_skew_ns(self) -> int:
        """Its wall clock minus this node's, by the fastest of the last heartbeats.

        A heartbeat that waited makes a clock seem slow, so it is 0 while fewer than `ESTIMATES` heartbeats
        show a slow clock.
        """
        if not self.skews_ns:
            return 0
        skew_ns = max(self.skews_ns)
        return 0 if skew_ns < 0 and len(self.skews_ns) < ESTIMATES else skew_ns

    @property
    def clock_skew_ns(self) -> int:
        """`least_skew_ns`, and at once that of a clock that is slower than any heartbeat waits."""
        skew_ns = max(self.skews_ns, default=0)
        return skew_ns if skew_ns < -FAR_NS else self.least_skew_ns

    @property
    def leaving(self) -> bool:
        """Whether it has announced its end."""
        return self.status is not None and self.status.state in LEAVING

    @property
    def answered(self) -> bool:
        """Whether its three state messages are here, with a report as new as the heartbeat."""
        if self.status is None or self.name_spaces is None or self.deliveries is None:
            return False
        return self.name_spaces.serial >= self.status.reported

    @property
    def is_current(self) -> bool:
        """Whether its roll-ups belong to its last report; one topic may overtake another."""
        status, reported = self.status, self.name_spaces
        return status is not None and reported is not None and status.reported == reported.serial

    def note_skew(self, skew_ns: int, now: float) -> None:
        """Note the difference of the clocks that a heartbeat shows.

        A node that stood still reads all heartbeats of that time at once, and even the fastest of the first
        few would make the clock seem slow.
        """
        self.skew_ns = skew_ns
        period_s = self.status.period_s if self.status else 0.0
        if self.skews_ns and now - self.skewed_s < AT_ONCE * period_s:
            self.skews_ns = (*self.skews_ns[:-1], max(self.skews_ns[-1], skew_ns))
            return
        self.skewed_s = now
        self.skews_ns = (*self.skews_ns, skew_ns)[-ESTIMATES:]

    def heard(self, now: float) -> None:
        """Note a life sign."""
        self.last_heard_s, self.excused_s = now, 0.0

    def report(self, name_space: str) -> NameSpaceReport | None:
        """Return its report on a name-space; None if it does not have it."""
        for report in self.name_spaces.reports if self.name_spaces else ():
            if report.name == name_space:
                return report
        return None

    def leads(self, report: NameSpaceReport) -> bool:
        """Whether it is the confirmed master, by its own report on a name-space."""
        return report.following is not None and report.following.node == self.node

    def roll_up(self, name_space: str) -> RollUp | None:
        """Return its newest roll-up of a name-space's set."""
        roll_ups = self.status.roll_ups if self.status else ()
        return next((roll for roll in roll_ups if roll.name_space == name_space), None)


class _Lost(NamedTuple):
    """Run of a lost fellow, when it was lost, and whether its endpoints stayed matched."""

    run: tuple[int, int]
    since_s: float
    is_connected: bool


class FellowTable:
    """All fellows, by id, and a bounded memory of the lost ones."""

    def __init__(self, node: str, runs: Mapping[str, RunSeen] = MappingProxyType({})) -> None:
        self._node = node
        self.runs: Newest[str, RunSeen] = Newest(MAX_REMEMBERED)
        self.runs |= runs
        """The last run of each fellow that was heard, in this run of the node or before; the newest last."""
        self._fellows: dict[str, Fellow] = {}
        self.get = self._fellows.get
        """Returns the fellow with an id, None if it is not present."""
        self._sorted: tuple[Fellow, ...] | None = None
        self._attached: dict[str, int | None] = {}
        self._lost: dict[str, _Lost] = {}
        self._silenced: dict[str, Fellow] = {}
        self._refused: Newest[str, tuple[int, int]] = Newest(MAX_REMEMBERED)
        self._met: Newest[str, None] = Newest(MAX_REMEMBERED)
        self._heard: tuple[str, ...] = ()
        self._pending: tuple[Fellow, ...] = ()
        self._pending_at = -1
        self.excused_s = 0.0
        """Seconds in which this node stood still in this run."""
        self.discovered: set[str] = set()
        """Ids of the nodes that were discovered in this run, heard or not."""
        self.version = 0
        """Grows when fellows come or go, are approved or refused, or report something."""
        self.heard_version = 0
        """Grows when a fellow says that it hears others than before."""

    def all(self) -> tuple[Fellow, ...]:
        """Return the present fellows, in order of their ids."""
        if self._sorted is None:
            # By id, not by arrival: a simulated run is the same each time, and a message lists fellows
            # alike on each node.
            self._sorted = tuple(sorted(self._fellows.values(), key=operator.attrgetter("node")))
            self._heard = tuple([fellow.node for fellow in self._sorted])
        return self._sorted

    def heard(self) -> tuple[str, ...]:
        """Return the ids of the present fellows, in order; the same object while they are the same."""
        self.all()
        return self._heard

    def pending(self) -> tuple[Fellow, ...]:
        """Return the fellows that are neither approved nor incompatible, in order of their ids."""
        if self._pending_at != self.version:
            self._pending_at = self.version
            self._pending = tuple([one for one in self.all() if not (one.approved or one.conflict)])
        return self._pending

    def has_met(self, node: str) -> bool:
        """Whether this node has approved a fellow with that id in this run."""
        return node in self._met

    def away(self) -> tuple[Fellow, ...]:
        """Return the fellows of this run that left or were lost and are not back; the latest last."""
        return tuple(self._silenced.values())

    def unheard(self) -> frozenset[str]:
        """Return the ids of the nodes that were discovered and have never been heard."""
        return frozenset(self.discovered - self._fellows.keys() - self._lost.keys() - {self._node})

    def judge(self, fellow: Fellow, *, approved: bool) -> None:
        """Note whether this node talks to a fellow."""
        fellow.approved = approved
        if approved:
            self._met[fellow.node] = None
        self.version += 1

    def compared(self, fellow: Fellow, conflict: DefinitionConflict | None) -> None:
        """Note whether a fellow's name-spaces are compatible with this node's."""
        fellow.conflict = conflict
        self.version += 1

    def approved(self) -> list[Fellow]:
        """Return the approved fellows, in order of their ids."""
        return [fellow for fellow in self.all() if fellow.approved]

    def is_current(self, node: str) -> bool:
        """Whether a fellow is present and its roll-ups belong to its last report."""
        fellow = self._fellows.get(node)
        return fellow is not None and fellow.is_current

    def recently_lost(self, now: float, within_s: float) -> frozenset[str]:
        """Return the ids that were lost within the last `within_s` seconds and are not back."""
        if not self._lost:
            return NOBODY
        return frozenset(
            node
            for node, lost in self._lost.items()
            if now - lost.since_s <= within_s and node not in self._fellows
        )

    def receive(
        self, message: Status | NameSpaces | Deliveries, sender: str, now: float
    ) -> tuple[Fellow, bool] | None:
        """Take a state message; return the fellow and whether it is new, None for a stale message.

        A fellow that is back is new even if its first message is one that was known before.
        """
        if self.outdated(message, sender) is not None:
            return None
        fellow = self._fellows.get(sender)
        new = fellow is None or fellow.incarnation < message.incarnation
        if fellow is None or new:
            fellow = self._admit(sender, message.incarnation, message.life, now)
        if message.incarnation < fellow.incarnation or message.life != fellow.life:
            return None
        known = (
            fellow.status
            if isinstance(message, Status)
            else fellow.name_spaces
            if isinstance(message, NameSpaces)
            else fellow.deliveries
        )
        if known is not None and known.serial >= message.serial:
            if isinstance(message, Status) and known.serial == message.serial:
                fellow.heard(now)  # a busy fellow repeats its last heartbeat
            return (fellow, True) if new else None
        if isinstance(message, Status):
            self._note_status(fellow, message)
            fellow.heard(now)
            self._remember(sender, message)
        elif isinstance(message, NameSpaces):
            fellow.name_spaces = message
            self.version += 1
        else:
            fellow.deliveries = message
        return fellow, new

    def refuse(self, node: str, run: tuple[int, int]) -> Fellow | None:
        """Note that a run is on an older store: its other messages do not count either.

        If one of them came before, its sender has taken the place of the run that may still be there: it is
        removed without a trace, and returned.
        """
        self._refused[node] = run
        fellow = self._fellows.get(node)
        if fellow is None or fellow.run != run or fellow.status is not None:
            return None
        del self._fellows[node]
        self._sorted = None
        self.version += 1
        return fellow

    def outdated(self, message: Status | NameSpaces | Deliveries, sender: str) -> RunSeen | None:
        """Return the run that shows that the sender's store is older than remembered; None for no such run.

        A message of an earlier run may be late, so its sender decides (`engine.core.membership`).
        """
        known = self.runs.get(sender)
        if known is None or not message.life or message.life == known.life:
            return None
        run = message.incarnation, message.life
        is_older = message.incarnation <= known.incarnation or self._refused.get(sender) == run
        if isinstance(message, Status) and message.began_at:  # the start of a run is a transaction of its own
            is_older = is_older or message.began_at <= known.commits
        return known if is_older else None

    def _remember(self, node: str, status: Status) -> None:
        known = self.runs.get(node)
        commits = max(status.commits, known.commits if known and known.life == status.life else 0)
        self.runs[node] = RunSeen(status.incarnation, status.life, commits)

    def _note_status(self, fellow: Fellow, status: Status) -> None:
        before = fellow.status
        fellow.note_status(status)
        if before is None or before.role != status.role:
            self.version += 1
        if before is None or (before.heard is not status.heard and before.heard != status.heard):
            fellow.hears_us = self._node in status.heard
            self.heard_version += 1

    def _admit(self, node: str, incarnation: int, life: int, now: float) -> Fellow:
        fellow = Fellow(node, incarnation, life, since_s=now, last_heard_s=now)
        fellow.attached = self.is_attached(fellow)
        if fellow.attached:
            self._attached[node] = incarnation
        self._fellows[node] = fellow
        self._sorted = None
        self.version += 1
        lost = self._lost.get(node)
        if lost is not None and lost.run == fellow.run:
            if lost.is_connected:
                fellow.silence_s = now - lost.since_s
            else:
                fellow.gap_s = now - lost.since_s
        known = self._silenced.pop(node, None)
        if known is not None and known.run == fellow.run:
            # It repeats its reports only if it lost this node, too; heartbeats show if the old ones hold.
            fellow.name_spaces, fellow.deliveries = known.name_spaces, known.deliveries
            fellow.conflict = known.conflict
        return fellow

    def attach(self, node: str) -> None:
        """Note that the endpoints of a process of the fellow are matched both ways."""
        fellow = self._fellows.get(node)
        before = self._attached.get(node, -1)
        is_its_own = fellow is not None and before is not None and before < fellow.incarnation
        # Otherwise it is the process of an unknown incarnation beside the known one.
        self._attached[node] = fellow.incarnation if fellow and is_its_own else None
        if fellow:
            fellow.attached = True

    def is_attached(self, fellow: Fellow) -> bool:
        """Whether the attachment belongs to its present incarnation."""
        if fellow.node not in self._attached:
            return False
        return self._attached[fellow.node] in (None, fellow.incarnation)

    def claim_attachments(self, now: float) -> None:
        """Assign endpoints that outlive a former incarnation by twice its lease to the present one.

        Matched endpoints do not state their incarnation, and a late message of a former one may have claimed
        them.
        """
        for fellow in self._fellows.values():
            if fellow.attached or fellow.node not in self._attached:
                continue
            if now >= fellow.since_s + 2 * fellow.expiry_s:
                self._attached[fellow.node] = fellow.incarnation
                fellow.attached = True

    def detach(self, node: str) -> None:
        """Note that the endpoints of a fellow went away."""
        self._attached.pop(node, None)
        if node in self._lost:
            self._lost[node] = self._lost[node]._replace(is_connected=False)

    def remove(self, node: str, now: float) -> Fellow | None:
        """Remove a fellow that left or was lost, and remember its incarnation."""
        fellow = self._fellows.pop(node, None)
        self._sorted = None
        self.version += 1
        if fellow:
            before = self._lost.pop(node, None)
            lost = _Lost(fellow.run, now, self.is_attached(fellow))
            if before is not None and before.run == fellow.run and not fellow.is_back:
                lost = before._replace(is_connected=before.is_connected and lost.is_connected)
            self._lost[node] = lost
            self._silenced[node] = fellow
            while len(self._lost) > MAX_REMEMBERED:
                oldest = next(iter(self._lost))
                del self._lost[oldest]
                self._silenced.pop(oldest, None)
        return fellow

    def away_s(self, node: str, now: float) -> float | None:
        """Return how many seconds ago a fellow was last lost in this run; None if never."""
        lost = self._lost.get(node)
        return None if lost is None else now - lost.since_s

    def absent(self, now: float, within_s: float, remembered: frozenset[str]) -> frozenset[str]:
        """Return the fellows of this run and `remembered` ones that are away, for at most `within_s` here."""
        lost = {node for node, each in self._lost.items() if now - each.since_s <= within_s}
        given_up = self._lost.keys() - lost
        return frozenset((lost | remembered) - given_up - self._fellows.keys())

    def silent(self, now: float) -> list[Fellow]:
        """Return the fellows whose heartbeat is overdue."""
        return [fellow for fellow in self.all() if now >= self.expires_at(fellow)]

    def excuse(self, stall_s: float) -> None:
        """Grant all fellows the seconds in which this node stood still and heard none of them.

        One stall counts in full. Many short ones in one silence count for at most one expiry together, so
        that a node that is always late still notices a loss.
        """
        self.excused_s += stall_s
        for fellow in self._fellows.values():
            fellow.excused_s = min(fellow.excused_s + stall_s, max(stall_s, fellow.expiry_s))

    @staticmethod
    def expires_at(fellow: Fellow) -> float:
        """Return when a silent fellow counts as lost."""
        return fellow.last_heard_s + fellow.expiry_s + fellow.excused_s

    def next_expiry(self) -> float:
        """Return when the first fellow counts as lost if all are silent; infinite without fellows."""
        return min([self.expires_at(fellow) for fellow in self.all()], default=math.inf)
