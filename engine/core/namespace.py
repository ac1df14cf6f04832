"""One name-space on one node: its phase, its master, and the lineage of its set.

**Lineage.** Sets of one lineage have not evolved apart: whatever one of their holders has belongs to all.
A master gives its set a lineage when it completes. When a holder becomes master after the loss of another,
it begins a new lineage with the old one among its *parents*: those who were together with it just adopt
it, while those who were cut off come back with another lineage and are merged. A node that follows a master
who was out of its reach for a while, and was not restarted, cannot know what it missed, and starts a lineage
of its own, too.

**Line.** The earlier lineages of a set, back to the beginning of the domain. It is kept with the store. It
ends where a merge policy took another set in place of this one, or deleted it. Sets whose lines meet are
joined after a restart.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core.election import Stand
from engine.core.messages import NO_EPOCH, Epoch, NameSpaceReport, RollUp
from engine.core.states import Phase, Trigger, is_complete, next_phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.core.election import Decision
    from engine.core.messages import Vote
    from engine.core.namespaces import NameSpace, Policy
    from engine.core.settings import StoredSet

MAX_MERGED: Final = 64
"""Lineages remembered as decided about; a holder of an older one is merged once more."""
MAX_LINE: Final = 64
"""Earlier lineages of a set that are remembered, with the first of all."""
MAX_FOREIGN: Final = 8 * MAX_MERGED
"""Lineages of other roles remembered; each comes with all that it consists of, so there are more."""
MAX_HISTORY: Final = 32
"""Masters remembered for the console."""


@dataclasses.dataclass(slots=True)
class Outstanding:
    """A request of ours that has not been answered in full."""

    request: int
    aligner: str
    purpose: str
    deadline_s: float
    attempts: int = 1


@dataclasses.dataclass(slots=True)
class NameSpaceState:
    """Everything the core keeps of one name-space.

    Attributes:
        stored: what the store held at the start of this run.
        apart: a merge policy left this set different from the master's set of the same lineage.
        rejoined: fellows that came back without a restart, and whose sets may have evolved apart from ours.
        gives: what only this node has when its merge is done may go to the fellows.
        differs: heartbeats of the aligner in a row whose settled set was not ours.
        last_moved: tells what the last repair moved from what another one did; 0 is nothing.
        repairs: repairs in a row that did not help.
        noted_phase: the phase when it was looked at last.
        mixed: the masterPriorities that were reported because 255 is among them.
    """

    name_space: NameSpace
    policy: Policy
    run: int = 0
    stored: StoredSet | None = None
    quality_ns: int = 0
    phase: Phase = Phase.DISCOVER
    holder: bool = False
    given_by: str = ""
    vote: Vote | None = None
    following: Epoch | None = None
    followed_s: float = 0.0
    via: str = ""
    source: str = ""
    source_until_s: float = 0.0
    foreign_seen: tuple[Epoch, ...] = ()
    has_writers: bool = False
    is_wanted: bool = False
    mixed: tuple[int, ...] = ()
    noted_phase: Phase = Phase.DISCOVER
    why: str = ""
    lineage: Epoch = NO_EPOCH
    parents: tuple[Epoch, ...] = ()
    merged: tuple[Epoch, ...] = ()
    line: tuple[Epoch, ...] = (NO_EPOCH,)
    apart: bool = False
    gives: bool = False
    because_of: str = ""
    rejoined: set[str] = dataclasses.field(default_factory=set)
    outstanding: dict[int, Outstanding] = dataclasses.field(default_factory=dict)
    merging: tuple[Epoch, ...] = ()
    merging_role: str = ""
    merging_replaces: bool = False
    history: list[tuple[Epoch, str]] = dataclasses.field(default_factory=list)
    roll_up: RollUp = dataclasses.field(init=False)
    differs: int = 0
    last_repaired: tuple[RollUp, RollUp] | None = None
    last_moved: int = 0
    repairs: int = 0
    repair_not_before_s: float = 0.0
    highest: int = 0
    masterless_since_s: float | None = None
    not_before_s: float = 0.0
    decision: Decision | None = None
    grounds: object = None

    def __post_init__(self) -> None:
        """An empty set is a set."""
        self.roll_up = RollUp(self.name, complete=False, count=0, digest=0)

    @property
    def name(self) -> str:
        """The name-space's name."""
        return self.name_space.name

    @property
    def complete(self) -> bool:
        """Whether the set is whole and may be given away."""
        return is_complete(self.phase)

    @property
    def is_steady(self) -> bool:
        """Whether it waits for nothing and nobody."""
        return self.phase in (Phase.COMPLETE, Phase.PASSIVE) and not self.outstanding

    @property
    def aligner(self) -> str:
        """The node to ask for the set: the injector of another role, else the master or the fellow to it."""
        return self.source or self.via or (self.following.node if self.following else "")

    def is_master(self, node: str) -> bool:
        """Whether `node` is the confirmed master as followed here."""
        return self.following is not None and self.following.node == node

    def move(self, trigger: Trigger) -> None:
        """Take the transition of the table."""
        self.phase = next_phase(self.phase, trigger)

    def follow(self, decision: Decision, node: str) -> None:
        """Take over a decision about the master; `node` is this node."""
        previous, self.following = self.following, decision.following
        self.vote, self.via = decision.vote, decision.via
        if self.following is not None and self.following == previous:
            return  # the reason stays the one for which this master was chosen
        self.why = decision.rule
        if self.following is None:
            return
        self.history.append((self.following, decision.rule))
        del self.history[:-MAX_HISTORY]
        took_over = self.following.node == node and (previous is None or previous.node != node)
        if took_over and self.holder:
            self.parents = (*self.parents, self.lineage)[-MAX_MERGED:]
            self.line = lengthened(self.line, self.lineage)
            self.lineage = self.following

    def decide_about(
        self,
        lineages: tuple[Epoch, ...],
        *,
        with_data: bool,
        node: str,
        because_of: str = "",
        replaced: bool = False,
    ) -> None:
        """After a merge round of the master: a new lineage, in which `lineages` have been decided about.

        Holders of the old lineage just adopt the new one when no data was taken in; otherwise they join it,
        unless the old set was `replaced` or deleted. Then they align, as do those of `lineages`, by their
        policy for the role `because_of` that changed the set (their own when it is empty).
        """
        self.because_of = because_of
        old = self.lineage
        self.line = () if replaced else lengthened(self.line, old)
        decided = [*self.merged, *lineages]
        parents = (*self.parents, old)
        if with_data:
            decided += parents
        self.lineage = Epoch(self._next_counter(lineages), node, self.run)
        self.parents = () if with_data else parents[-MAX_MERGED:]
        self.merged = tuple(dict.fromkeys(epoch for epoch in decided if epoch.node))[-MAX_MERGED:]

    def diverge(self, node: str) -> None:
        """Something may have been missed: begin a lineage of our own, which the master will merge."""
        line = lengthened(self.line, self.lineage)
        self.adopt(Epoch(self._next_counter(), node, self.run), line)

    def part_from(self, node: str, report: NameSpaceReport | None) -> bool:
        """Leave the lineage of a master, or of the fellow to it, that had been out of reach; whether we did.

        A node that stayed with its master stays in its lineage when others come back. So does one whose
        lineage is news to the aligner, which `report` is of: it will be dealt with as it is.
        """
        before = {self.aligner, self.following.node if self.following else ""} & self.rejoined
        if not self.holder or self.is_master(node) or not before or report is None:
            return False
        self.rejoined -= before
        if self.lineage not in (report.lineage, *report.parents, *report.line, *report.merged):
            return False
        self.diverge(node)
        return True

    def _next_counter(self, others: tuple[Epoch, ...] = ()) -> int:
        """A counter that no epoch or lineage known here has: a new one must not be taken for an old one."""
        self.highest = max(self.newest, *(epoch.counter for epoch in (NO_EPOCH, *others))) + 1
        return self.highest

    @property
    def newest(self) -> int:
        """The highest counter of an epoch or lineage that was ever known here."""
        following = self.following.counter if self.following else 0
        self.highest = max(self.highest, self.lineage.counter, following)
        return self.highest

    def has_decided_about(self, lineage: Epoch) -> bool:
        """Whether nothing of `lineage` is news to the holder of this set."""
        return lineage in (self.lineage, *self.parents, *self.merged, *self.foreign_seen)

    def note_foreign(self, *lineages: Epoch) -> None:
        """A lineage of another role has been dealt with, and everything that it consists of."""
        known = dict.fromkeys(self.foreign_seen)
        for lineage in lineages:
            known.pop(lineage, None)
            known[lineage] = None
        self.foreign_seen = tuple(known)[-MAX_FOREIGN:]

    def adopt(self, lineage: Epoch, line: tuple[Epoch, ...]) -> None:
        """The set belongs to `lineage` now, begun by somebody else or, after a gap, by nobody else."""
        self.lineage, self.line = lineage, line
        self.parents, self.merged, self.because_of = (), (), ""

    def report(self) -> NameSpaceReport:
        """What fellows are told."""
        return NameSpaceReport(
            name=self.name,
            elements=self.name_space.elements,
            aligner=self.policy.aligner,
            master_priority=self.policy.master_priority,
            durability=self.policy.durability,
            quality_ns=self.quality_ns,
            phase=self.phase,
            complete=self.complete,
            holder=self.holder,
            vote=self.vote,
            following=self.following,
            lineage=self.lineage,
            parents=self.parents,
            merged=self.merged,
            because_of=self.because_of,
            merges=self.policy.merges,
            has_writers=self.has_writers,
            delayed=self.policy.delayed_alignment,
            line=self.line,
            apart=self.apart,
            filtered=self.policy.filtered,
        )


def lengthened(line: tuple[Epoch, ...], lineage: Epoch) -> tuple[Epoch, ...]:
    """A line with one more lineage; when it is long, the oldest but the first are forgotten."""
    longer = tuple(dict.fromkeys((*line, lineage)))
    return longer if len(longer) <= MAX_LINE else (longer[0], *longer[2:])


def stand_of(
    report: NameSpaceReport, node: str, name: str, heard: Collection[str], newest: int, run: int = 0
) -> Stand:
    """A report as the election sees it."""
    return Stand(
        node=node,
        name=name,
        may_be_master=report.aligner and report.master_priority > 0,
        priority=report.master_priority,
        quality_ns=report.quality_ns,
        holder=report.holder,
        discovering=report.phase is Phase.DISCOVER,
        vote=report.vote,
        following=report.following,
        heard=heard,
        newest=newest,
        run=run,
        aligner=report.aligner,
    )
