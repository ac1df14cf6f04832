"""Nodes that are broken on purpose: each is caught, which shows that the checkers can fail.

What a broken node does is against the rules that are named with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine.core import alignment, joining, mastership, membership, merging
from engine.core.autodispose import AutodisposeWriters
from engine.core.context import Context
from engine.core.events import LoadStored
from engine.core.fellows import FellowTable
from engine.core.messages import Deliveries, Epoch
from engine.core.name_space_state import NameSpaceState
from engine.core.node import DurabilityNode
from engine.core.readers import ReaderTable
from engine.core.states import Phase, Trigger
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import ApplyOutcome, GroupSet
from engine.dataset.sample import DISPOSE, end_of_writer
from engine.runtime import writer_ends
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.runtime import Runtime
from engine.runtime.writer_ends import WriterEnds
from engine.simulator.campaign import Campaign
from engine.store.interface import NetChanges
from engine.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.core.fellows import Fellow
    from engine.dataset.sample import Sample

    Break = Callable[[pytest.MonkeyPatch], None]


def forgets_tombstones(patch: pytest.MonkeyPatch) -> None:
    """Every node forgets a disposed instance at once, whoever has not heard of the dispose."""
    patch.setattr(DurabilityNode, "purgeable_until", lambda *_: 1 << 63)


def reuses_epochs(patch: pytest.MonkeyPatch) -> None:
    """A lineage may have the name of an earlier one."""
    patch.setattr(NameSpaceState, "_next_counter", lambda self, others=(): 1)
    original = NameSpaceState.decide_about

    def without_run(self: NameSpaceState, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.lineage = Epoch(self.lineage.counter, self.lineage.node, 0)

    patch.setattr(NameSpaceState, "decide_about", without_run)


def completes_too_early(patch: pytest.MonkeyPatch) -> None:
    """An alignee calls itself complete as soon as it has asked for the set."""
    original = alignment.request

    def request(context: Context, state: NameSpaceState, *arguments: Any) -> None:
        original(context, state, *arguments)
        report = context.aligner_report(state)
        if state.phase is Phase.ALIGN and report is not None:
            state.outstanding.clear()
            alignment.complete(context, state, report.lineage, state.aligner)

    patch.setattr(alignment, "request", request)


def ignores_late_disposes(patch: pytest.MonkeyPatch) -> None:
    """A dispose of an instance that is there is taken for an old one."""
    original = GroupSet.apply

    def apply(self: GroupSet, sample: Sample) -> tuple[ApplyOutcome, list[Sample]]:
        if sample.status & DISPOSE and self.instance(sample.key):
            return ApplyOutcome.OLDER, []
        return original(self, sample)

    patch.setattr(GroupSet, "apply", apply)


def everybody_injects(patch: pytest.MonkeyPatch) -> None:
    """Each master injects its own stored set, whoever else has one."""

    def find_source(context: Context, state: NameSpaceState, now: float) -> None:
        state.move(Trigger.INJECTOR_IS_SELF)
        context.changed = True
        context.emit(LoadStored(state.name))

    patch.setattr(mastership, "find_source", find_source)
    patch.setattr(mastership, "yield_to_holder", lambda *_: None)


def overlooks_reconnections(patch: pytest.MonkeyPatch) -> None:
    """Who was away for a moment is taken for one that was never away, and differences are not looked for."""
    patch.setattr(membership, "_reconnected", lambda *_: None)
    patch.setattr(merging, "compared", lambda *_, **__: None)


def acknowledges_before_it_stores(patch: pytest.MonkeyPatch) -> None:
    """Some changes are said to be on the disk and are not."""
    original = MemoryStore.append

    def append(self: MemoryStore, name_space: str, changes: Any, *marks: Any) -> Any:
        net = NetChanges(changes) if isinstance(changes, list) else changes
        if net.count > 1 and (added := [each.added for each in net.groups.values() if each.added]):
            added[-1].popitem()
        return original(self, name_space, net, *marks)

    patch.setattr(MemoryStore, "append", append)


def serves_from_a_part(patch: pytest.MonkeyPatch) -> None:
    """A late joiner is served by whoever sees it first, complete or not."""
    patch.setattr(DurabilityNode, "_server_for", lambda self, reader, host: self._context.node)


def believes_hearsay_of_claims(patch: pytest.MonkeyPatch) -> None:
    """Who serves a late joiner is believed from anybody, also after it gave up."""
    original = ReaderTable.take_claims

    def take_claims(self: ReaderTable, deliveries: Deliveries, sender: str) -> bool:
        changed = original(self, deliveries, sender)
        told = [claim for claim in deliveries.deliveries if claim.reader not in self._claims]
        self._claims.update({claim.reader: claim for claim in told})
        return changed or bool(told)

    patch.setattr(ReaderTable, "take_claims", take_claims)


def moves_equal_sets(patch: pytest.MonkeyPatch) -> None:
    """Every heartbeat of the master is a reason to move the whole set."""

    def compared(
        context: Context, state: NameSpaceState, fellow: Fellow, until_ns: int, now: float, *, is_equal: bool
    ) -> None:
        if fellow.node != state.aligner:
            return
        if state.phase is Phase.COMPLETE and not state.outstanding and not state.is_master(context.node):
            state.move(Trigger.DIVERGED)
            alignment.request(context, state, state.aligner, "repair", now)

    patch.setattr(merging, "compared", compared)


def forgets_nothing(patch: pytest.MonkeyPatch) -> None:
    """Every heartbeat is kept."""
    original = FellowTable.receive

    def receive(self: FellowTable, message: Any, *arguments: Any) -> Any:
        self.__dict__.setdefault("_diary", []).append(message)
        return original(self, message, *arguments)

    patch.setattr(FellowTable, "receive", receive)


def forgets_what_it_stored(patch: pytest.MonkeyPatch) -> None:
    """A node that starts takes nothing from its disk, although it says what it has."""
    original = Runtime.__init__

    def init(self: Runtime, *arguments: Any, **named: Any) -> None:
        settings, persistence, wire, clock, tracer, loaded, *others = arguments
        emptied = {name: (DataSet(), descriptions) for name, (_, descriptions) in loaded.items()}
        original(self, settings, persistence, wire, clock, tracer, emptied, *others, **named)

    patch.setattr(Runtime, "__init__", init)


def takes_and_never_gives(patch: pytest.MonkeyPatch) -> None:
    """Nobody takes what only those have that were cut off, nor what a fellow lacks."""
    patch.setattr(merging, "_sources", lambda *_: [])
    patch.setattr(merging, "surplus_found", lambda *_: ())


def repairs_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a node has not captured it never gets, unless there is another reason to align."""
    patch.setattr(merging, "compared", lambda *_, **__: None)


def gives_up_what_it_stored(patch: pytest.MonkeyPatch) -> None:
    """A node that aligns at its start takes the aligner's set in place of its own, as OpenSplice does."""
    patch.setattr(joining, "why_not_joined", lambda *_: "it is not the aligner's")


def repairs_in_quiet_only(patch: pytest.MonkeyPatch) -> None:
    """Sets are compared as a whole, and repaired when neither changes."""
    original = merging.compared
    seen: dict[tuple[str, str], object] = {}

    def compared(
        context: Context, state: NameSpaceState, fellow: Fellow, until_ns: int, now: float, *, is_equal: bool
    ) -> None:
        pair = (state.roll_up, fellow.roll_up(state.name))
        is_quiet = seen.get((context.node, fellow.node)) == pair
        seen[context.node, fellow.node] = pair
        original(context, state, fellow, until_ns, now, is_equal=is_equal or not is_quiet)

    patch.setattr(merging, "compared", compared)


def takes_no_gifts(patch: pytest.MonkeyPatch) -> None:
    """What a fellow finds to be missing here is not taken."""
    patch.setattr(merging, "takes_gift", lambda *_: False)


def joins_without_disposes(patch: pytest.MonkeyPatch) -> None:
    """Of what is taken over from others, or from the disk, disposes are left out."""
    original = NameSpaceData._join

    def join(self: NameSpaceData, target: DataSet, other: DataSet, *arguments: Any) -> Any:
        kept = DataSet()
        for group, group_set in other.groups.items():
            writes = [sample for sample in group_set.samples() if not sample.status & DISPOSE]
            kept.open_group(group, group_set.depth).extend(writes)
        return original(self, target, kept, *arguments)

    patch.setattr(NameSpaceData, "_join", join)


def tells_a_part_as_a_set(patch: pytest.MonkeyPatch) -> None:
    """A Lazy node takes part in elections, and is asked, as if it had everything."""
    patch.setattr(NameSpaceState, "report_to_fellows", NameSpaceState.report)


def serves_what_it_has_not_obtained(patch: pytest.MonkeyPatch) -> None:
    """A Lazy node gives its readers what it has, whether or not it has asked for the rest."""
    patch.setattr(NameSpaceState, "has", lambda self, _: self.complete)


def looks_at_no_part(patch: pytest.MonkeyPatch) -> None:
    """A Lazy node never asks whether it missed something."""
    patch.setattr(merging, "_look_at_part", lambda *_: None)


def ends_nothing(patch: pytest.MonkeyPatch) -> None:
    """The end of a writer changes no set."""
    patch.setattr(WriterEnds, "_apply", lambda *_: 0)


def never_decides_about_lost_writers(patch: pytest.MonkeyPatch) -> None:
    """The master leaves it to each node what it thinks of a lost writer."""
    patch.setattr(AutodisposeWriters, "decide", lambda *_: ())


def dates_ends_by_its_own_clock(patch: pytest.MonkeyPatch) -> None:
    """The end of a writer is dated by when it is carried out, and so ends also what was written meanwhile."""

    def end(time_ns: int, writer: bytes, key: bytes, *, is_lost: bool) -> Sample:
        return end_of_writer(time_ns + 1_000_000_000, writer, key, is_lost=is_lost)

    patch.setattr(writer_ends, "end_of_writer", end)


BROKEN: list[tuple[Break, str, tuple[int, ...], str]] = [
    (forgets_tombstones, "classic", (32, 34, 71), "I1 I2 I11"),
    (reuses_epochs, "crash,partition", (3, 6, 12, 18, 25), "I4"),
    (completes_too_early, "classic", (5, 6, 7), "I5 I9"),
    (ignores_late_disposes, "classic", (80, 14, 27), "I11"),
    (everybody_injects, "classic", (2, 16, 23), "I9"),
    (overlooks_reconnections, "classic", (2, 5, 10), "I12"),
    (acknowledges_before_it_stores, "classic", (51, 94, 23), "I1"),
    (serves_from_a_part, "classic", (1, 2, 4), "I10"),
    (believes_hearsay_of_claims, "classic", (1, 2, 3), "I10"),
    (moves_equal_sets, "classic", (4, 5, 3), "I6 quiet"),
    (forgets_nothing, "classic", (2, 4, 5), "I7"),
    (forgets_what_it_stored, "any", (60, 67, 76), "I5 I11"),
    (takes_and_never_gives, "any", (2, 5, 6), "I11 I12"),
    (repairs_nothing, "any", (126, 13, 73), "I12"),
    (joins_without_disposes, "any", (73, 74, 91), "I12 quiet"),
    (gives_up_what_it_stored, "any", (52, 76, 78), "I11"),
    (repairs_in_quiet_only, "any", (5, 12, 13), "I12"),
    (takes_no_gifts, "any", (2, 12, 14), "I12"),
    (tells_a_part_as_a_set, "any", (18, 87, 219), "busy quiet"),
    (serves_what_it_has_not_obtained, "any", (3, 11, 56), "I10"),
    (looks_at_no_part, "any", (3, 4, 11), "quiet"),
    (ends_nothing, "any", (2, 3, 6), "I13"),
    (never_decides_about_lost_writers, "any", (2, 3, 6), "I13 quiet"),
    (dates_ends_by_its_own_clock, "any", (2, 3, 6), "I0"),
]


@pytest.mark.parametrize(
    ("broken", "faults", "seeds", "rules"), BROKEN, ids=[broken.__name__ for broken, _, _, _ in BROKEN]
)
def test_a_broken_node_is_caught(
    broken: Break, faults: str, seeds: tuple[int, ...], rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one of some seeds, in all of which the sound node is clean."""
    for seed in seeds:
        assert Campaign(faults).run(seed).violation == ""
        with monkeypatch.context() as patch:
            broken(patch)
            violation = Campaign(faults).run(seed).violation
        if violation:
            assert violation.partition(":")[0] in rules.split()
            return
    pytest.fail("not caught")
