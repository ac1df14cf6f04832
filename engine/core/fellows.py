"""The fellows of this node: who they are, whether they are alive, and whether we talk to them.

Deployment guide 5.4.1 (connectivity) and 5.4.2 (compatibility). A fellow is *approved* when its endpoints
are matched both ways (wait-for-attachment), its three state messages are here, it hears us too, and its
name-spaces do not conflict with ours. A fellow that falls silent or whose endpoints go away without notice
is lost. When it comes back with the same incarnation, and its endpoints were gone meanwhile, that is a
reconnection, however short the gap was; while they stay matched nothing gets lost, and silence is only that.
Time in which this node itself stood still is not silence of its fellows (docs/protocol.md, Life signs).
"""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.core.messages import Deliveries, NameSpaces, Status
from engine.core.states import ServiceState

if TYPE_CHECKING:
    from engine.core.messages import NameSpaceReport, RollUp
    from engine.core.namespaces import Conflict

MAX_REMEMBERED: Final = 1024
"""Lost fellows remembered for telling a reconnection; the oldest are forgotten first."""

EXPIRY_S: Final = 10.0
"""How long a fellow may be silent whose heartbeat, which says it, has not come yet."""

_LEAVING: Final = (ServiceState.TERMINATING, ServiceState.TERMINATED)


@dataclasses.dataclass(slots=True)
class Fellow:
    """What is known of one fellow in its present incarnation.

    `gap_s` is how long it was away when it came back without having been restarted, None otherwise;
    `silence_s` is the same where the connection lasted all the time, so that nothing was missed; `is_back`
    says that either was acted upon; `deaf_since_s` is when it stopped hearing us, None while it does;
    `since_s` is when it was first heard; `excused_s` is how much of its present silence is due to stalls of
    this node. It is `forgotten` if it was away, restarted or not, for longer than tombstones are kept for
    it; `in_step` are the name-spaces whose settled set was ours at its last heartbeat, and as of when.
    `skews_ns` are the last differences of the clocks; `is_clock_off` and `is_late` tell what has been
    reported (see `engine.core.reports`).
    """

    node: str
    incarnation: int
    attached: bool = False
    status: Status | None = None
    name_spaces: NameSpaces | None = None
    deliveries: Deliveries | None = None
    since_s: float = 0.0
    last_heard_s: float = 0.0
    skew_ns: int = 0
    conflict: Conflict | None = None
    approved: bool = False
    gap_s: float | None = None
    silence_s: float | None = None
    is_back: bool = False
    excused_s: float = 0.0
    deaf_since_s: float | None = None
    forgotten: bool = False
    in_step: dict[str, int] = dataclasses.field(default_factory=dict)
    skews_ns: tuple[int, ...] = ()
    is_clock_off: bool = False
    is_late: bool = False

    def can(self, capability: str) -> bool:
        """Whether it says that it has one of `engine.core.messages.CAPABILITIES`."""
        return self.status is not None and capability in self.status.capabilities

    @property
    def name(self) -> str:
        """The human name, or the beginning of the id while it is not known."""
        return self.status.name if self.status else self.node[:8]

    @property
    def expiry_s(self) -> float:
        """How long it may be silent before it counts as lost."""
        return self.status.expiry_s if self.status else EXPIRY_S

    @property
    def role(self) -> str:
        """The role, empty while it is not known."""
        return self.status.role if self.status else ""

    @property
    def leaving(self) -> bool:
        """Whether it said that it is terminating."""
        return self.status is not None and self.status.state in _LEAVING

    @property
    def answered(self) -> bool:
        """Whether all three state messages are here, and the name-spaces not older than the heartbeat."""
        if self.status is None or self.name_spaces is None or self.deliveries is None:
            return False
        return self.name_spaces.serial >= self.status.reported

    @property
    def is_current(self) -> bool:
        """Whether its roll-ups are of the sets that it reports, and not of what it had before.

        A heartbeat follows each report at once, but one topic may overtake another.
        """
        status, reported = self.status, self.name_spaces
        return status is not None and reported is not None and status.reported == reported.serial

    def heard(self, now: float) -> None:
        """It gave a sign of life."""
        self.last_heard_s, self.excused_s = now, 0.0

    def hears(self, node: str) -> bool:
        """Whether its heartbeats say that it hears `node`."""
        return self.status is not None and node in self.status.heard

    def report(self, name_space: str) -> NameSpaceReport | None:
        """Its report on a name-space, None when it does not have it."""
        for report in self.name_spaces.reports if self.name_spaces else ():
            if report.name == name_space:
                return report
        return None

    def roll_up(self, name_space: str) -> RollUp | None:
        """Its newest roll-up of a name-space's set."""
        roll_ups = self.status.roll_ups if self.status else ()
        return next((roll for roll in roll_ups if roll.name_space == name_space), None)


class _Lost(NamedTuple):
    """A fellow that is not here: which one, since when, and whether its endpoints stayed matched."""

    incarnation: int
    since_s: float
    is_connected: bool


class FellowTable:
    """All fellows, by id, and a bounded memory of the lost ones."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._fellows: dict[str, Fellow] = {}
        self._sorted: list[Fellow] | None = None
        self._attached: dict[str, int | None] = {}
        self._lost: dict[str, _Lost] = {}
        self._silenced: dict[str, Fellow] = {}

    def all(self) -> list[Fellow]:
        """Every fellow present, by id."""
        return list(self._in_order())

    def approved(self) -> list[Fellow]:
        """The fellows we talk to, by id."""
        return [fellow for fellow in self._in_order() if fellow.approved]

    def _in_order(self) -> list[Fellow]:
        if self._sorted is None:
            self._sorted = sorted(self._fellows.values(), key=operator.attrgetter("node"))
        return self._sorted

    def get(self, node: str) -> Fellow | None:
        """The fellow with this id, if present."""
        return self._fellows.get(node)

    def is_current(self, node: str) -> bool:
        """Whether what is known of a fellow's sets belongs together."""
        fellow = self._fellows.get(node)
        return fellow is not None and fellow.is_current

    def recently_lost(self, now: float, within_s: float) -> frozenset[str]:
        """Ids lost within the last `within_s` seconds and not back."""
        return frozenset(
            node
            for node, lost in self._lost.items()
            if now - lost.since_s <= within_s and node not in self._fellows
        )

    def receive(
        self, message: Status | NameSpaces | Deliveries, sender: str, now: float
    ) -> tuple[Fellow, bool] | None:
        """Take a state message; returns the fellow and whether it is new, None for a stale message.

        A fellow that is back may say first what was known of it before: it is new all the same.
        """
        fellow = self._fellows.get(sender)
        new = fellow is None or fellow.incarnation < message.incarnation
        if fellow is None or new:
            fellow = self._admit(sender, message.incarnation, now)
        if message.incarnation < fellow.incarnation:
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
                fellow.heard(now)  # it is busy, and repeats its last heartbeat
            return (fellow, True) if new else None
        if isinstance(message, Status):
            fellow.status = message
            fellow.heard(now)
        elif isinstance(message, NameSpaces):
            fellow.name_spaces = message
        else:
            fellow.deliveries = message
        return fellow, new

    def _admit(self, node: str, incarnation: int, now: float) -> Fellow:
        fellow = Fellow(node, incarnation, since_s=now, last_heard_s=now)
        fellow.attached = self.is_attached(fellow)
        if fellow.attached:
            self._attached[node] = incarnation
        self._fellows[node] = fellow
        self._sorted = None
        lost = self._lost.get(node)
        if lost is not None and lost.incarnation == incarnation:
            if lost.is_connected:
                fellow.silence_s = now - lost.since_s
            else:
                fellow.gap_s = now - lost.since_s
        known = self._silenced.pop(node, None)
        if known is not None and known.incarnation == incarnation:
            # Whether it says everything again depends on which side lost the other; heartbeats tell whether
            # what it said last still holds.
            fellow.name_spaces, fellow.deliveries = known.name_spaces, known.deliveries
            fellow.conflict = known.conflict
        return fellow

    def attach(self, node: str) -> None:
        """The endpoints of a process of the fellow are matched both ways."""
        fellow = self._fellows.get(node)
        before = self._attached.get(node, -1)
        is_its_own = fellow is not None and before is not None and before < fellow.incarnation
        # Else it is the process of an incarnation that is not known yet, beside the one that is.
        self._attached[node] = fellow.incarnation if fellow and is_its_own else None
        if fellow:
            fellow.attached = True

    def is_attached(self, fellow: Fellow) -> bool:
        """Whether the attachment is that of its present incarnation, and not of one that has ended."""
        if fellow.node not in self._attached:
            return False
        return self._attached[fellow.node] in (None, fellow.incarnation)

    def claim_attachments(self, now: float) -> None:
        """Endpoints that outlive a former incarnation by twice its lease are those of the present one.

        Which incarnation a process has is not told when its endpoints are matched; a late word of the former
        one may have made them look like its own.
        """
        for fellow in self._fellows.values():
            settled_s = fellow.since_s + 2 * fellow.expiry_s
            if not fellow.attached and fellow.node in self._attached and now >= settled_s:
                self._attached[fellow.node] = fellow.incarnation
                fellow.attached = True

    def detach(self, node: str) -> None:
        """The endpoints of a fellow went away."""
        self._attached.pop(node, None)
        if node in self._lost:
            self._lost[node] = self._lost[node]._replace(is_connected=False)

    def remove(self, node: str, now: float) -> Fellow | None:
        """Forget a fellow that left or was lost, but remember its incarnation."""
        fellow = self._fellows.pop(node, None)
        self._sorted = None
        if fellow:
            before = self._lost.pop(node, None)
            lost = _Lost(fellow.incarnation, now, self.is_attached(fellow))
            if before is not None and before.incarnation == fellow.incarnation and not fellow.is_back:
                lost = before._replace(is_connected=before.is_connected and lost.is_connected)
            self._lost[node] = lost
            self._silenced[node] = fellow
            while len(self._lost) > MAX_REMEMBERED:
                oldest = next(iter(self._lost))
                del self._lost[oldest]
                self._silenced.pop(oldest, None)
        return fellow

    def away_s(self, node: str, now: float) -> float | None:
        """How long ago a fellow was last lost in this run; None when it never was."""
        lost = self._lost.get(node)
        return None if lost is None else now - lost.since_s

    def absent(self, now: float, within_s: float, remembered: frozenset[str]) -> frozenset[str]:
        """Fellows of this run or the last that are not here and not away for longer than `within_s`."""
        lost = {node for node, each in self._lost.items() if now - each.since_s <= within_s}
        given_up = self._lost.keys() - lost
        return frozenset((lost | remembered) - given_up - self._fellows.keys())

    def silent(self, now: float) -> list[Fellow]:
        """The fellows whose heartbeat is overdue."""
        return [fellow for fellow in self.all() if now >= self.expires_at(fellow)]

    def excuse(self, stall_s: float) -> None:
        """This node stood still for `stall_s`: no fellow could be heard in that time.

        One stall counts in full. Many short ones in one silence count for at most an expiry together, so that
        a node that is always late still notices a loss.
        """
        for fellow in self._fellows.values():
            fellow.excused_s = min(fellow.excused_s + stall_s, max(stall_s, fellow.expiry_s))

    @staticmethod
    def expires_at(fellow: Fellow) -> float:
        """When the fellow counts as lost unless it is heard before; it says itself how long to wait."""
        return fellow.last_heard_s + fellow.expiry_s + fellow.excused_s
