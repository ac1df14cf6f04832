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
from engine.core.namespaces import Alignee, Element
from engine.core.states import Phase, Trigger, is_complete, next_phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from engine.core.election import Decision
    from engine.core.messages import Vote
    from engine.core.namespaces import Group, NameSpace, Policy
    from engine.core.settings import StoredSet

MAX_MERGED: Final = 64
"""Lineages remembered as decided about; a holder of an older one is merged once more."""
MAX_LINE: Final = 64
"""Earlier lineages of a set that are remembered, with the first of all."""
MAX_FOREIGN: Final = 8 * MAX_MERGED
"""Lineages of other roles remembered; each comes with all that it consists of, so there are more."""
MAX_WANTED: Final = 1000
"""Expressions of what readers want of a Lazy name-space; with more of them the whole of it is wanted."""
EVERYTHING: Final = Element("*", "*")
PART_RESTS_NS: Final = 8_000_000_000
"""What a part had when it changed last has settled by then; a master may date a dispose up to 5 s later."""
MAX_HISTORY: Final = 32
"""Masters remembered for the console."""


@dataclasses.dataclass(slots=True)
class Outstanding:
    """A request that has not been answered in full."""

    request: int
    aligner: str
    purpose: str
    deadline_s: float
    elements: tuple[Element, ...] = ()
    attempts: int = 1


@dataclasses.dataclass(slots=True)
class NameSpaceState:
    """Everything the core keeps of one name-space.

    Attributes:
        is_learned: it is not in the configuration; a fellow, or the store, told of it (5.2.3.6).
        stored: what the store held at the start of this run.
        apart: a merge policy left this set different from the master's set of the same lineage.
        rejoined: fellows that came back without a restart, and whose sets may have evolved apart from ours.
        gives: what only this node has when its merge is done may go to the fellows.
        wanted: of a Lazy alignee, what readers on this host want. It keeps these groups, and no others.
        obtained: what of `wanted` is here, as far as the system had it.
        whole: what of a part came from a whole set. Of the rest nobody here can tell whether it is all.
        from_parts: this node is not Lazy, but its set is what Lazy ones had kept (`engine.core.parts`).
        asks: the set is held against the aligner's by asking: heartbeats cannot tell what it lacks.
        part_until_ns: where it `asks`, up to which source time it has what belongs here; so it will have up
            to `asked_until_ns` when it is answered.
        changed_ns: up to when the aligner's set had settled when this one or that one changed last.
        given_to: the master that a Lazy alignee was asked by, before there was a set, for what it has.
        differs: heartbeats of the aligner in a row whose settled set was not ours.
        last_moved: tells what the last repair moved from what another one did; 0 is nothing.
        repairs: repairs in a row that did not help.
        noted_phase: the phase when it was looked at last.
        mixed: the masterPriorities that were reported because 255 is among them.
    """

    name_space: NameSpace
    policy: Policy
    run: int = 0
    is_learned: bool = False
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
    wanted: tuple[Element, ...] = ()
    obtained: tuple[Element, ...] = ()
    whole: tuple[Element, ...] = ()
    from_parts: bool = False
    given_to: str = ""
    asks: bool = False
    part_until_ns: int = 0
    asked_until_ns: int = 0
    changed_ns: int = 0
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
    def is_lazy(self) -> bool:
        """Whether this node keeps the groups that readers on its host want, and no others (5.2.3.1)."""
        return self.policy.alignee is Alignee.LAZY

    @property
    def is_part(self) -> bool:
        """Whether the set may lack, for good, what others have: it is not compared with theirs."""
        return self.is_lazy or self.policy.filtered

    @property
    def is_level(self) -> bool:
        """Whether a set that is compared by asking has asked since it and the aligner's changed last."""
        return self.part_until_ns >= self.rests_ns

    @property
    def rests_ns(self) -> int:
        """From which settled source time on the two sets are at rest."""
        return self.changed_ns + PART_RESTS_NS

    def is_wanted(self, group: Group) -> bool:
        """Whether a group of the name-space concerns this node: of a Lazy one, what readers here want."""
        return not self.is_lazy or any(element.contains(group) for element in self.wanted)

    def keeps(self, group: Group) -> bool:
        """Whether what is written in a group of the name-space is kept now."""
        return self.phase is not Phase.PASSIVE and self.is_wanted(group)

    def has(self, elements: Iterable[Element]) -> bool:
        """Whether the groups in some elements are here whole, and may be given to readers on this host."""
        return self.complete and self.has_obtained(elements)

    def has_obtained(self, elements: Iterable[Element]) -> bool:
        """Whether the set, be it merging, has the groups in some elements."""
        return not self.is_lazy or all(_is_in(element, self.obtained) for element in elements)

    @property
    def may_lack(self) -> bool:
        """Whether the set is a part or comes from parts, so that only `whole` is known to be all of it."""
        return self.is_lazy or self.from_parts

    def has_all(self, elements: Iterable[Element]) -> bool:
        """Whether all that there is of some elements is here, and not only what some part had of it."""
        return self.has(elements) and (
            not self.may_lack or all(_is_in(element, self.whole) for element in elements)
        )

    def has_part_of(self, elements: Iterable[Element]) -> bool:
        """Whether what is here of some elements may be only a part of what there is."""
        return self.has(elements) and not self.has_all(elements)

    def has_group(self, group: Group) -> bool:
        """Whether all that there is of a group is here."""
        return self.complete and (not self.may_lack or any(element.contains(group) for element in self.whole))

    def want(self, elements: Iterable[Element]) -> bool:
        """Readers on this host want these groups from now on; False if that is no news."""
        news = [element for element in dict.fromkeys(elements) if not _is_in(element, self.wanted)]
        self.wanted = (*self.wanted, *news)
        if len(self.wanted) > MAX_WANTED:
            self.wanted = (EVERYTHING,)
        return bool(news)

    def obtain(self, elements: tuple[Element, ...], *, whole: bool = False) -> None:
        """These groups of a part are here; with `whole`, out of a set that had all of them."""
        if not self.is_lazy:
            return
        self.obtained = self._of_wanted((*self.obtained, *elements))
        self.whole = self._of_wanted((*self.whole, *elements) if whole else self.whole)

    def _of_wanted(self, elements: tuple[Element, ...]) -> tuple[Element, ...]:
        return tuple(element for element in self.wanted if _is_in(element, elements))

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
        # Another master counts by its own clock, and knows nothing of this part.
        self.part_until_ns, self.last_repaired = 0, None
        if self.following is None:
            return
        self.history.append((self.following, decision.rule))
        del self.history[:-MAX_HISTORY]
        took_over = self.following.node == node and (previous is None or previous.node != node)
        if took_over and self.holder and not self.is_lazy:
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
        self.lineage, self.line, self.given_to = lineage, line, ""
        self.parents, self.merged, self.because_of = (), (), ""

    def told(self) -> NameSpaceReport:
        """What fellows are told: a part that readers here want is nobody's set but theirs."""
        report = self.report()
        if not self.is_lazy:
            return report
        return dataclasses.replace(
            report,
            phase=Phase.PASSIVE,
            complete=False,
            holder=False,
            vote=None,
            following=None,
            part=self.complete,
            part_until_ns=self.part_until_ns if self.wanted else -1,
        )

    def report(self) -> NameSpaceReport:
        """The name-space as this node has it."""
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
            part_until_ns=self.part_until_ns if self.asks else -1,
            from_parts=self.from_parts,
        )


def _is_in(element: Element, elements: Iterable[Element]) -> bool:
    """Whether one of some elements has all the groups of another, as far as that is plain to see."""
    return any(
        each.partition in ("*", element.partition) and each.topic in ("*", element.topic) for each in elements
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
