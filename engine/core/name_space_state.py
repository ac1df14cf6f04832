"""One name-space on one node: its phase, its master, and the lineage of its set.

**Lineage.** The history to which a set belongs. Sets of one lineage have not evolved apart: what one holder
has belongs to all, so they are joined and no merge policy acts. A lineage is an `Epoch`, so no two nodes or
runs ever begin the same one; `highest` keeps its counter above all that this node has known.

These fields relate a set to the lineages of other sets; fellows see the first three and `lineage`:

- `parents`: lineages that became this one without new data. A holder of one adopts this lineage.
- `line`: all earlier lineages of the set, back to the beginning of the domain. A holder of one joins the set,
  also after a restart. A merge policy that replaces or deletes the set begins a new line.
- `merged`: lineages that the master has decided about. A holder of one applies its own merge policy.
- `merging`: foreign lineages whose sets the master is collecting now. They go to `merged` at the end.
- `foreign_seen`: lineages of other roles that this master has dealt with, so that two masters that merge with
  each other come to rest.
- `rejoined`: fellows that came back without a restart. What they, or this node, missed is unknown even if the
  lineages are equal. A master takes their sets in; a follower whose master came back begins a lineage of its
  own, which the master then merges.

A node gives its set a lineage when it completes as master. A holder that becomes master after a loss begins a
new one with the old one as parent. After each merge the master begins one that names what it decided about.

A split and a merge (A has the highest masterPriority, all merge policies are Merge):

```text
A            B              C
1/A          1/A            1/A          A is master, one lineage
=== the links between A and the others break ===
1/A          2/B            2/B          B becomes master, parents (1/A); C finds 1/A there and adopts 2/B
=== they are back: A has B and C in `rejoined`, and stays master, in epoch 3/A ===
1/A          2/B            2/B          A collects the set of B, merging (2/B)
4/A          2/B            2/B          A begins 4/A: line (none, 1/A), merged (2/B, 1/A)
4/A          4/A            4/A          B and C find 2/B in `merged` and apply their policy to the set of A
```

Had C stayed with A, it would find 1/A in the line of A, and join.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from engine.core.autodispose import AutodisposeWriters
from engine.core.election import Decision, Stand
from engine.core.messages import NO_EPOCH, Epoch, NameSpaceReport, RollUp, Vote
from engine.core.name_spaces import Alignee, Element, Group, NameSpace, Policy
from engine.core.settings import StoredSet
from engine.core.states import Phase, Trigger, is_complete, next_phase

# Splits and merges since the last new data; a cluster does not split that often within it. Beyond it a
# merge is repeated, which costs a comparison.
MAX_MERGED: Final = 64
"""Lineages in `parents` and in `merged`; the master merges a holder of an older one again."""
# Chosen: the announcement of each name-space carries the line.
MAX_LINE: Final = 64
"""Lineages in a line; the first of all is always one of them."""
MAX_FOREIGN: Final = 8 * MAX_MERGED
"""Lineages in `foreign_seen`; there are more because each brings its parents and what it merged."""
# Chosen: the announcement carries them, and each group is matched with each.
MAX_WANTED: Final = 1000
"""Expressions in `wanted`; if readers need more, the node keeps the whole Lazy name-space."""
EVERYTHING: Final = Element("*", "*")
# Longer than those 5 s and `SETTLING_NS` together; with a second or two for clocks that differ. Longer only
# delays repairs.
PART_RESTS_NS: Final = 8_000_000_000
"""Time after which the last change of a part has settled; a master may date a dispose up to 5 s later."""


class Outstanding(msgspec.Struct):
    """A request to an aligner that has not been answered in full."""

    request: int
    aligner: str
    purpose: str
    deadline_s: float
    elements: tuple[Element, ...] = ()
    attempts: int = 1


@dataclasses.dataclass(slots=True)
class NameSpaceState:
    """The core's state of one name-space. Times that end in `_s` are seconds on the monotonic clock."""

    name_space: NameSpace
    """Name and expressions, which never change."""
    policy: Policy
    """This node's policy for it (5.2.3), which never changes."""
    run: int = 0
    """This run of this node (`CoreSettings.run`), part of each lineage that it begins."""
    is_learned: bool = False
    """It is not in the configuration; a fellow, or the store, told of it (5.2.3.6)."""
    stored: StoredSet | None = None
    """What the store held at the start of this run; None for no set."""
    quality_ns: int = 0
    """Newest source time of the verified stored set, 0 for no set, `DAMAGED` for a damaged set or a part."""
    phase: Phase = dataclasses.field(default=Phase.DISCOVER, init=False)
    """Place in the life cycle (`engine.core.states`); only `move` changes it."""
    complete: bool = dataclasses.field(default=False, init=False)
    """The set is whole, so that others may have it: the phase is COMPLETE."""
    holder: bool = False
    """This node has held the whole set at some time in this run."""
    given_by: str = ""
    """Node that gave the set when it became complete, perhaps this one; empty before."""
    vote: Vote | None = None
    """This node's proposal for a master; an empty choice only reserves the counter."""
    following: Epoch | None = None
    """Epoch of the confirmed master; None while there is no master."""
    followed_s: float = 0.0
    """When `following` changed last."""
    via: str = ""
    """Fellow through which a master is followed that this node does not hear; empty if it hears it."""
    source: str = ""
    """Node that injected the set and gives it to this master at start; empty for the own master."""
    source_run: int = 0
    """Incarnation in which the source was chosen; started again, it may wait for this node."""
    source_until_s: float = 0.0
    """In phase SOURCE: how long to wait for the masters of other roles; 0 for not waiting."""
    foreign_seen: tuple[Epoch, ...] = ()
    """Lineages of other roles that have been dealt with; at most `MAX_FOREIGN`."""
    has_writers: bool = False
    """A live DataWriter of some group is known on this node (5.2.3.3)."""
    autodispose: AutodisposeWriters = dataclasses.field(default_factory=lambda: AutodisposeWriters((), 0.0))
    """The known writers with autodispose."""
    wanted: tuple[Element, ...] = ()
    """Lazy: what readers on this host want. The node keeps these groups and no others."""
    obtained: tuple[Element, ...] = ()
    """Lazy: the part of `wanted` that is here, as complete as the system had it."""
    whole: tuple[Element, ...] = ()
    """The part of `wanted` that came from a whole set; what else is here may lack samples."""
    from_parts: bool = False
    """Not Lazy, but the set is what Lazy nodes had kept (`engine.core.joining`)."""
    given_to: str = ""
    """Lazy: the master that collected this node's part before there was a set."""
    asks: bool = False
    """The set is compared with the aligner's by asking, because one of them is a part or filtered."""
    part_until_ns: int = 0
    """With `asks`: source time up to which this set has what belongs here."""
    asked_until_ns: int = 0
    """With `asks`: value of `part_until_ns` once the request under way is answered."""
    changed_ns: int = 0
    """With `asks`: settled source time of the aligner when one of the two sets changed last."""
    mixed: tuple[int, ...] = ()
    """masterPriorities that were reported because 255 is among them."""
    noted_phase: Phase = Phase.DISCOVER
    """Phase that the trace named last."""
    why: str = ""
    """Rule by which the master is followed now, in words; of this node as master, why it was chosen."""
    lineage: Epoch = NO_EPOCH
    """History to which the set belongs."""
    parents: tuple[Epoch, ...] = ()
    """Lineages that became `lineage` without new data; at most `MAX_MERGED`."""
    merged: tuple[Epoch, ...] = ()
    """Lineages that the beginner of `lineage` decided about; at most `MAX_MERGED`."""
    line: tuple[Epoch, ...] = (NO_EPOCH,)
    """Earlier lineages of the set, oldest first; at most `MAX_LINE`."""
    apart: bool = False
    """A merge policy left this set different from the master's set of the same lineage."""
    gives: bool = False
    """Samples that only this node has after the alignment under way may go to the fellows."""
    because_of: str = ""
    """Role whose set changed this one in `lineage`; empty for the own role."""
    rejoined: set[str] = dataclasses.field(default_factory=set)
    """Fellows that came back without a restart and whose sets may have evolved apart."""
    outstanding: dict[int, Outstanding] = dataclasses.field(default_factory=dict)
    """Requests under way, by number."""
    merging: tuple[Epoch, ...] = ()
    """Lineages that the master is taking in; empty when it merges nothing."""
    merging_role: str = ""
    """Role of the sets in `merging`; empty for the own role."""
    merging_replaces: bool = False
    """The set under way replaces this one instead of joining it (Replace, Catchup)."""
    roll_up: RollUp = dataclasses.field(init=False)
    """Count and digest of the set as it is now."""
    differs: int = 0
    """Successive heartbeats of the aligner whose settled set was not equal to the one here."""
    last_repaired: tuple[RollUp, RollUp] | None = None
    """Content of this set and the aligner's at the last repair."""
    last_moved: int = 0
    """Fingerprint of what the last repair moved; 0 for nothing."""
    repairs: int = 0
    """Successive repairs that did not help; at most 16."""
    repair_not_before_s: float = 0.0
    """Earliest time of the next repair."""
    purges: int = 0
    """How often instances were purged from the sets of this history, by what is known here."""
    highest: int = 0
    """Highest counter of the epochs and lineages that were replaced here; see `newest`."""
    masterless_since_s: float | None = None
    """Since when there has been no master; None while there is one."""
    not_before_s: float = 0.0
    """Earliest time of the next request or merge, after a refusal."""
    decision: Decision | None = None
    """Last decision of the election."""
    grounds: object = None
    """Everything that `decision` was based on; the election runs again when it changes."""
    outline: object = None
    """The same in brief: while it is equal, so are the grounds."""
    name: str = dataclasses.field(init=False)
    """Name of the name-space."""
    is_lazy: bool = dataclasses.field(init=False)
    """This node keeps only the groups that readers on its host want (5.2.3.1)."""

    def __post_init__(self) -> None:
        """Begin with an empty set, which is a set."""
        self.name = self.name_space.name
        self.is_lazy = self.policy.alignee is Alignee.LAZY
        self.roll_up = RollUp(self.name, complete=False, count=0, digest=0)

    @property
    def is_part(self) -> bool:
        """Whether the set may permanently lack samples, so that it is never equal to the others."""
        return self.is_lazy or self.policy.filtered

    @property
    def is_level(self) -> bool:
        """Whether this node has asked the aligner since their two sets changed last."""
        return self.part_until_ns >= self.rests_ns

    @property
    def rests_ns(self) -> int:
        """Settled source time from which on the two sets are at rest."""
        return self.changed_ns + PART_RESTS_NS

    def is_wanted(self, group: Group) -> bool:
        """Whether this node keeps a group: every group, or if Lazy, those that readers here want."""
        return not self.is_lazy or any(element.contains(group) for element in self.wanted)

    def keeps(self, group: Group) -> bool:
        """Whether samples of a group are kept now."""
        return self.phase is not Phase.PASSIVE and (not self.is_lazy or self.is_wanted(group))

    def has(self, elements: Iterable[Element]) -> bool:
        """Whether the groups in `elements` are here, ready for readers on this host."""
        return self.complete and self.has_obtained(elements)

    def has_obtained(self, elements: Iterable[Element]) -> bool:
        """Whether the set, complete or merging, has the groups in `elements`."""
        return not self.is_lazy or all(_is_in(element, self.obtained) for element in elements)

    @property
    def may_lack(self) -> bool:
        """Whether the set is a part or comes from parts, so that only `whole` is known to lack nothing."""
        return self.is_lazy or self.from_parts

    def has_all(self, elements: Iterable[Element]) -> bool:
        """Whether the groups in `elements` are here and known to lack nothing."""
        return self.has(elements) and (
            not self.may_lack or all(_is_in(element, self.whole) for element in elements)
        )

    def has_part_of(self, elements: Iterable[Element]) -> bool:
        """Whether the groups in `elements` are here, but may lack samples."""
        return self.has(elements) and not self.has_all(elements)

    def has_group(self, group: Group) -> bool:
        """Whether a group is here and known to lack nothing."""
        return self.complete and (not self.may_lack or any(element.contains(group) for element in self.whole))

    def want(self, elements: Iterable[Element]) -> bool:
        """Add to `wanted` what readers on this host need; False if it was all there."""
        news = [element for element in dict.fromkeys(elements) if not _is_in(element, self.wanted)]
        self.wanted = (*self.wanted, *news)
        if len(self.wanted) > MAX_WANTED:
            self.wanted = (EVERYTHING,)
        return bool(news)

    def obtain(self, elements: tuple[Element, ...], *, whole: bool = False) -> None:
        """Note groups of a part that have arrived; with `whole`, from a set that lacked nothing of them."""
        if not self.is_lazy:
            return
        self.obtained = self._of_wanted((*self.obtained, *elements))
        self.whole = self._of_wanted((*self.whole, *elements) if whole else self.whole)

    def _of_wanted(self, elements: tuple[Element, ...]) -> tuple[Element, ...]:
        return tuple(element for element in self.wanted if _is_in(element, elements))

    @property
    def is_steady(self) -> bool:
        """Whether it waits for no node and no request."""
        return self.phase in (Phase.COMPLETE, Phase.PASSIVE) and not self.outstanding

    @property
    def aligner(self) -> str:
        """Node to ask for the set: the source, else the fellow to the master, else the master."""
        return self.source or self.via or (self.following.node if self.following else "")

    def is_master(self, node: str) -> bool:
        """Whether `node` is the confirmed master that this node follows."""
        return self.following is not None and self.following.node == node

    def move(self, trigger: Trigger) -> None:
        """Change the phase as the table of transitions says."""
        self.phase = next_phase(self.phase, trigger)
        self.complete = is_complete(self.phase)

    def has_followed(self, decision: Decision) -> bool:
        """Whether the decision has been carried out."""
        return (self.following, self.vote, self.via) == (decision.following, decision.vote, decision.via)

    def follow(self, decision: Decision, node: str) -> None:
        """Carry out a decision about the master; `node` is this node."""
        self.highest = self.newest
        previous, self.following = self.following, decision.following
        self.vote, self.via = decision.vote, decision.via
        is_unchanged = self.following is not None and self.following == previous
        if not (is_unchanged and self.is_master(node)):
            self.why = decision.rule
        if is_unchanged:
            return
        # Another master counts by its own clock, and knows nothing of this part.
        self.part_until_ns, self.last_repaired = 0, None
        if self.following is None:
            return
        took_over = self.following.node == node and (previous is None or previous.node != node)
        if took_over and self.holder and not self.is_lazy:
            # A new lineage although nothing changed yet: what other nodes capture from now on, cut off with
            # the lost master, belongs to the old one.
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
        """Begin a new lineage after a merge of the master.

        Args:
            lineages: what the master decided about; their holders apply their policy for `because_of`.
            with_data: the set changed. Holders of the old lineage then join instead of adopting the new one.
            node: this node.
            because_of: role that changed the set; empty for the own role.
            replaced: the old set was replaced or deleted, so its holders apply their policy, too.
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
        """Begin a lineage of this node, which may have missed samples, for the master to merge."""
        line = lengthened(self.line, self.lineage)
        self.adopt(Epoch(self._next_counter(), node, self.run), line)

    def part_from(self, node: str, report: NameSpaceReport | None) -> bool:
        """Leave the lineage if the master, or the fellow to it, was out of reach; whether it was left.

        A node that stayed with its master keeps its lineage when others come back. So does a node whose
        lineage is news to its aligner, because the aligner will decide about it anyway.

        Args:
            node: this node.
            report: the aligner's report; None while it is unknown.
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
        """Reserve a counter above all known ones, so that a new lineage is never taken for an old one."""
        self.highest = max(self.newest, *(epoch.counter for epoch in (NO_EPOCH, *others))) + 1
        assert self.highest > self.lineage.counter, "a lineage would be begun twice"
        return self.highest

    @property
    def newest(self) -> int:
        """Highest counter of an epoch or lineage that was ever known here."""
        following = self.following.counter if self.following else 0
        return max(self.highest, self.lineage.counter, following)

    def forget_master(self) -> None:
        """Stop following the master that was lost."""
        self.highest, self.following = self.newest, None

    def has_decided_about(self, lineage: Epoch) -> bool:
        """Whether `lineage` is no news to the holder of this set."""
        return lineage in (self.lineage, *self.parents, *self.merged, *self.foreign_seen)

    def note_foreign(self, *lineages: Epoch) -> None:
        """Remember lineages of another role that have been dealt with."""
        known = dict.fromkeys(self.foreign_seen)
        for lineage in lineages:
            known.pop(lineage, None)
            known[lineage] = None
        self.foreign_seen = tuple(known)[-MAX_FOREIGN:]

    def adopt(self, lineage: Epoch, line: tuple[Epoch, ...]) -> None:
        """Put the set into another lineage, with the `line` of that lineage."""
        self.highest = self.newest
        self.lineage, self.line, self.given_to = lineage, line, ""
        self.parents, self.merged, self.because_of = (), (), ""

    def report_to_fellows(self) -> NameSpaceReport:
        """Report to fellows, in which the part of a Lazy node is no set."""
        report = self.report()
        if not self.is_lazy:
            return report
        return msgspec.structs.replace(
            report,
            phase=Phase.PASSIVE,
            complete=False,
            holder=False,
            vote=None,
            following=None,
            part=self.complete,
            part_until_ns=self.part_until_ns if self.wanted else -1,
        )

    @property
    def delayed_line(self) -> tuple[Epoch, ...]:
        """With delayedAlignment, until this node holds the set: the lineages of its stored set."""
        if not self.policy.delayed_alignment or self.stored is None or self.holder:
            return ()
        return (*self.stored.line, self.stored.lineage)

    def report(self) -> NameSpaceReport:
        """Report the name-space as this node has it."""
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
            delayed=bool(self.policy.delayed_alignment),
            delayed_line=self.delayed_line,
            line=self.line,
            apart=self.apart,
            filtered=self.policy.filtered,
            part_until_ns=self.part_until_ns if self.asks else -1,
            from_parts=self.from_parts,
            purges=self.purges,
        )


def _is_in(element: Element, elements: Iterable[Element]) -> bool:
    """Whether one of `elements` plainly has all groups of `element`; a pattern in part of a name does not."""
    return any(
        each.partition in ("*", element.partition) and each.topic in ("*", element.topic) for each in elements
    )


def lengthened(line: tuple[Epoch, ...], lineage: Epoch) -> tuple[Epoch, ...]:
    """Return a line with one more lineage; a line that is too long loses its second one."""
    longer = tuple(dict.fromkeys((*line, lineage)))
    return longer if len(longer) <= MAX_LINE else (longer[0], *longer[2:])


def stand_of(
    report: NameSpaceReport, node: str, name: str, heard: Collection[str], newest: int, run: int = 0
) -> Stand:
    """Return a report as the election sees it; the fields of `Stand` explain the arguments.

    Args:
        report: of the node, on the name-space.
        node: its id.
        name: its name, for the trace.
        heard: nodes that it hears.
        newest: highest counter of an epoch or lineage that it knows.
        run: its incarnation.
    """
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
