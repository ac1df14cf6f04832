"""Put a fellow's set in place: it joins the set that is here, or replaces it.

At the start of a run the stored set joins the aligner's, unless the two evolved apart
(`engine.core.joining.why_not_joined`). In that case, and if a merge policy removes a set, the store keeps a
back-up (deployment guide 5.2.3.3).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from engine.core.events import ExpectSet
from engine.core.name_spaces import Group, MergeType
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR
from engine.dataset.living import by_instance
from engine.dataset.rateless import Stepwise
from engine.runtime.incoming import IncomingStream
from engine.runtime.jobs import Conversion
from engine.runtime.name_space_data import Began, Difference, NameSpaceData, dispose_of
from engine.runtime.reconciling.alignee import AligneeComparisons, Finished, joined
from engine.runtime.replacing import replaced
from engine.runtime.serving import Serving
from engine.runtime.shared_state import SharedState
from engine.runtime.withholding import at_once, filtered

GIVE: Final = "give"
"""Purpose of a stream without a request: samples that its sender found to be missing here."""
EXTEND: Final = "extend"
"""Purpose of a request of a Lazy alignee for more groups."""
_REPLACING: Final = (MergeType.REPLACE.value.lower(), MergeType.CATCHUP.value.lower())
_SHARING: Final = ("repair", MergeType.MERGE.value.lower())
"""Purposes after which the aligner is given the samples that it lacks."""


class Placing:
    """The part of a runtime that puts received sets in place."""

    def __init__(self, shared: SharedState, serving: Serving, comparing: AligneeComparisons) -> None:
        self._shared = shared
        self._serving = serving
        self._comparing = comparing
        self._began: dict[tuple[str, int], Began] = {}

    def expect(self, event: ExpectSet) -> None:
        """Note that a request went out: samples written from now on are newer than its answer."""
        if event.purpose in _REPLACING:
            data = self._shared.spaces[event.name_space]
            self._began[event.name_space, event.request] = data.begin(self._shared.clock.wall_ns())

    def keep_wanted(self) -> None:
        """Forget requests that are not wanted any more."""
        if not self._began:
            return
        expects = self._shared.core.expects
        for name, request in [key for key in self._began if not expects(*key)]:
            del self._began[name, request]

    def finish(self, data: NameSpaceData, incoming: IncomingStream) -> Stepwise[Finished | None]:
        """Combine a received set or difference with the set here; None if a difference does not fit.

        The request does not time out meanwhile, because the aligner has done its part.
        """
        core, clock = self._shared.core, self._shared.clock
        self.open_groups(incoming)
        steps = self._passed(data, incoming)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: Finished | None = end.value
                return made
            core.set_progress(data.state.name, incoming.target.request, clock.monotonic())
            yield

    def _passed(self, data: NameSpaceData, incoming: IncomingStream) -> Stepwise[Finished | None]:
        """Combine, then apply the content filters."""
        # Decided once: what is given up here must be what is kept as a back-up in `put`.
        is_initial = self._is_initial(data, incoming)
        why_not = self._why_not_joined(data, incoming) if is_initial else ""
        made = yield from self._made(data, incoming, joins=is_initial and not why_not)
        if made is not None and data.state.policy.filtered:
            passed = yield from filtered(made.data, self._shared.gates)
            made = dataclasses.replace(made, data=passed)
        return made if made is None else dataclasses.replace(made, gives_way=why_not)

    def _made(
        self, data: NameSpaceData, incoming: IncomingStream, *, joins: bool
    ) -> Stepwise[Finished | None]:
        purpose = incoming.target.purpose
        if incoming.begin.is_difference:
            whole = purpose in _REPLACING or not data.state.holder
            return (yield from self._comparing.finish(incoming, whole=whole, joins=joins))
        if joins:
            return (yield from joined(incoming, data, self._shared.descriptions))
        surplus: Difference = {}
        if data.state.holder and purpose in _SHARING:
            surplus = _without(data.working, incoming.data)
            surplus = {group: samples for group, samples in surplus.items() if incoming.target.wants(group)}
        return Finished(incoming.data, Conversion([], incoming.number), surplus)

    @staticmethod
    def _is_initial(data: NameSpaceData, incoming: IncomingStream) -> bool:
        """Whether this is the first alignment of the run, and there is a stored set."""
        is_asked = incoming.target.purpose == "initial" and not data.state.holder
        return is_asked and data.staging is None and data.loaded is not None

    def _why_not_joined(self, data: NameSpaceData, incoming: IncomingStream) -> str:
        if incoming.target.forgotten:
            return "this node was away for longer than deletions are remembered"
        return self._shared.core.why_not_joined(data.state.name, incoming.begin.aligner)

    def put(
        self, data: NameSpaceData, incoming: IncomingStream, finished: Finished
    ) -> tuple[Difference, Difference]:
        """Put a combined set in place; return the samples that joined, and those only this node has."""
        purpose = incoming.target.purpose
        new: Difference = {}
        if purpose in _REPLACING:
            began = self._began.get((data.state.name, incoming.target.request))
            self._replace(data, finished.data, began, purpose, passes_disposed=purpose == _REPLACING[0])
        elif data.state.holder:
            new = self._join(data, incoming, finished.data)
            self._serving.show(data.state.name, new, missed=purpose == "repair")
            self._shared.on_joined(data.state.name, new)
        elif data.staging is not None:
            data.stage_too(finished.data, self._shared.descriptions)
        else:
            self._note_replaced(data, incoming, finished)
            data.stage(finished.data, finished.conversion)
        if data.state.holder:
            return new, _still_in(data.working, finished.surplus) if purpose in _SHARING else {}
        return new, finished.surplus

    def _note_replaced(self, data: NameSpaceData, incoming: IncomingStream, finished: Finished) -> None:
        """Note that a stored set that gives way stays as a back-up."""
        if finished.gives_way and data.loaded is not None and _without(data.loaded, finished.data):
            giver = self._shared.core.name_of(incoming.begin.aligner)
            data.keeps = f"aligned with {giver} at the start: {finished.gives_way}"

    def take_gift(self, incoming: IncomingStream) -> None:
        """Take samples that a fellow found to be missing here."""
        data = self._shared.spaces[incoming.begin.name_space]
        self.open_groups(incoming)
        new = self._join(data, incoming, at_once(filtered(incoming.data, self._shared.gates)))
        self._serving.show(data.state.name, new, missed=True)
        self._shared.on_joined(data.state.name, new)

    def open_groups(self, incoming: IncomingStream) -> None:
        """Open the groups of a stream, and leave out those that this node does not keep."""
        self._shared.counters["streams_received"] += 1
        for description in incoming.descriptions:
            self._shared.open_group(description, announce=False)
        known = self._shared.descriptions
        state = self._shared.spaces[incoming.begin.name_space].state
        groups = incoming.data.groups
        for group in [group for group in groups if group not in known or not state.is_wanted(group)]:
            del groups[group]

    def _join(self, data: NameSpaceData, incoming: IncomingStream, other: DataSet) -> Difference:
        """Join a received set with the one here; return the new samples."""
        shared, purpose = self._shared, incoming.target.purpose
        told = [group for group, theirs in other.groups.items() if theirs.floor_ns > NO_FLOOR]
        new, changes = data.join(other, shared.descriptions)
        shared.store_queue.append(data.state.name, changes, data.floors(told))
        count = sum(map(len, new.values()))
        if purpose in ("repair", GIVE):
            shared.counters["repaired"] += count
        shared.tracer.event(
            "merge.finished",
            namespace=data.state.name,
            role=shared.settings.role,
            policy=purpose,
            samples=count,
            elapsed_ns=shared.clock.wall_ns() - incoming.started_ns,
        )
        return new

    def show_equal(self, name_space: str) -> None:
        """Show readers that an equal set replaced the one here: all is disposed, and comes again."""
        data, descriptions = self._shared.spaces[name_space], self._shared.descriptions
        now_ns = self._shared.clock.wall_ns()
        difference: Difference = {}
        for group, group_set in data.working.groups.items():
            if not descriptions[group].qos.by_source_timestamp:
                keys = group_set.keys()
                disposed = [dispose_of(key, now_ns) for key in keys]
                difference[group] = by_instance([*disposed, *group_set.samples()])
        self._show_replaced(data, data.working, difference, now_ns, disposes_all=True)
        self._shared.tracer.event("merge.equal-shown", namespace=name_space)

    def delete_set(self, name_space: str) -> None:
        """Empty a set (merge policy Delete); readers see its instances disposed."""
        data = self._shared.spaces[name_space]
        emptied = DataSet()
        for group, group_set in data.working.groups.items():
            emptied.open_group(group, group_set.depth, group_set.limits)
        self._replace(data, emptied, None, "delete", passes_disposed=False)

    def _replace(
        self, data: NameSpaceData, other: DataSet, began: Began | None, policy: str, *, passes_disposed: bool
    ) -> None:
        """Replace a set; readers by source time would refuse samples older than a dispose."""
        descriptions = self._shared.descriptions

        def passes(group: Group) -> bool:
            return passes_disposed and not descriptions[group].qos.by_source_timestamp

        before, seen = data.stored_part(descriptions.values()), data.working
        now_ns = self._shared.clock.wall_ns()
        difference, changes = data.replace(other, began, now_ns, passes, descriptions)
        is_loss = any(change.evicted for change in changes)
        keeps = f"merge policy {policy.capitalize()}" if is_loss else ""
        self._shared.write_set(data, Conversion(changes, before=before), keeps=keeps)
        self._show_replaced(data, seen, difference, now_ns, disposes_all=passes_disposed)

    def _show_replaced(
        self, data: NameSpaceData, seen: DataSet, difference: Difference, now_ns: int, *, disposes_all: bool
    ) -> None:
        """Show readers, who have `seen` a set, the one that is here now; for the rest see `replaced`."""
        shown = replaced(
            seen,
            data.working,
            difference,
            self._shared.descriptions,
            now_ns,
            disposes_all=disposes_all,
            tells=self._serving.on_replaced is not None,
        )
        self._serving.show_replaced(data.state.name, shown)
        self._shared.on_joined(data.state.name, None)


def _without(ours: DataSet, theirs: DataSet) -> Difference:
    """Return the samples of one set that another one lacks."""
    difference: Difference = {}
    for group, group_set in ours.groups.items():
        other = theirs.groups.get(group)
        rows = group_set.samples().without(set(other.samples().each_digest()) if other else set())
        if rows:
            difference[group] = list(rows)
    return difference


def _still_in(data: DataSet, samples: Difference) -> Difference:
    """Return the samples that newer ones have not pushed out."""
    left: Difference = {}
    for group, each in samples.items():
        group_set = data.groups.get(group)
        kept = [
            one
            for one in each
            if group_set is not None and group_set.holds(one.key, one.source_time_ns, one.digest)
        ]
        if kept:
            left[group] = kept
    return left
