"""Transfers of sets between nodes: pack and send, receive and put in place, as the core decides.

The core decides who gets which set from whom, and when; this module carries that out. `Transfers` answers a
fellow's request with a stream of batches: of the whole set, or, where the two nodes have compared their sets
(`engine.runtime.reconciling`), of what differs. What arrives is collected and verified apart from the sets
of this node (`engine.runtime.incoming`), so a stream that breaks off or is damaged changes none of them.

`_SetInstaller` puts a verified set in place: it joins the set that is here, or replaces it. At the start of
a run the stored set joins the aligner's, unless the two evolved apart
(`engine.core.joining.why_not_joined`). In that case, and if a merge policy removes a set, the store keeps a
back-up (deployment guide 5.2.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from engine.core.events import AligneeRequest, ExpectSet, SendSet
from engine.core.messages import Epoch, Outgoing
from engine.core.name_spaces import Group, MergeType
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR
from engine.dataset.living import by_instance
from engine.dataset.rateless import Stepwise
from engine.dataset.sample import digest_sum
from engine.dataset.sample_rows import SampleRows
from engine.runtime import stream
from engine.runtime.deletions import Deletions
from engine.runtime.housekeeping import PurgedTombstones
from engine.runtime.incoming import IncomingStream, IncomingStreams, broke_off, fills_store
from engine.runtime.late_joiners import LateJoinerDelivery
from engine.runtime.name_space_data import Began, Difference, NameSpaceData, dispose_of
from engine.runtime.protocol_tracer import ProtocolTracer
from engine.runtime.reconciling import messages
from engine.runtime.reconciling.alignee import AligneeComparisons, Finished, joined
from engine.runtime.reconciling.aligner import AlignerComparisons, LackingSamples, SetDifference, sent_part
from engine.runtime.replacing import replaced
from engine.runtime.shared_state import SharedState
from engine.runtime.steps import Steps
from engine.runtime.store_queue import Conversion
from engine.runtime.withholding import at_once, filtered
from engine.runtime.writer_ends import WriterEnds


class Transfers:
    """The streams of a runtime, in both directions. The secret of this node makes the salts of comparisons.

    Attributes:
        steps: comparisons under way.
    """

    def __init__(
        self,
        shared: SharedState,
        late_joiners: LateJoinerDelivery,
        protocol_tracer: ProtocolTracer,
        deletions: Deletions,
        tombstones: PurgedTombstones,
        steps: Steps,
        writer_ends: WriterEnds,
        secret: bytes,
    ) -> None:
        self._shared = shared
        self._protocol_tracer = protocol_tracer
        self._deletions = deletions
        self._incoming = IncomingStreams(shared.settings.node)
        self.steps = steps
        lacking = LackingSamples(shared.clock)
        self._comparing = AligneeComparisons(shared, self.steps, secret, lacking)
        self._answering = AlignerComparisons(shared, self.steps, self._send_to, lacking)
        self._installer = _SetInstaller(shared, late_joiners, tombstones, self._comparing, writer_ends)
        self._sent = 0
        self._joint: dict[tuple[str, tuple[str, ...]], tuple[AligneeRequest, ...]] = {}

    def running(self, name_space: str) -> list[IncomingStream]:
        """Return the streams that bring a set of the name-space."""
        return self._incoming.running(name_space)

    @property
    def next_s(self) -> float | None:
        """Time of the next `work`; None if there is none."""
        return self._shared.clock.monotonic() if self.steps.are_left else self._answering.next_s

    def work(self, now: float) -> None:
        """Forget overdue questions of alignees."""
        self._answering.work(now)

    def announced(self, outgoing: Outgoing) -> Outgoing:
        """Return an outgoing message; mark in a request that a sketch goes with it."""
        return self._comparing.announced(outgoing)

    def keep_wanted(self) -> None:
        """Forget everything about requests that are not wanted any more."""
        self._comparing.keep_wanted()
        self._keep_streams()
        self._installer.keep_wanted()

    def _keep_streams(self) -> None:
        for incoming in self._incoming.forget_unless(self._is_wanted):
            data = self._shared.spaces[incoming.begin.name_space]
            if not data.state.is_part:
                broke_off(data, incoming)

    # Out.

    def send(self, event: SendSet) -> None:
        """Send the present set of a name-space; to targets with a sketch, only the difference."""
        everything = tuple(each for each in event.targets if not (each.compares or each.elements))
        if everything:
            self._send_set(event.name_space, event.lineage, everything, None)
        for target in event.targets:
            if target.compares:
                self._answering.asked(event.name_space, target)
            elif target.elements:
                self._send_set(event.name_space, event.lineage, (target,), None)

    def _send_to(self, name_space: str, target: AligneeRequest, answer: SetDifference | None) -> None:
        self._send_set(name_space, self._shared.spaces[name_space].state.lineage, (target,), answer)

    def _send_set(
        self,
        name_space: str,
        lineage: Epoch,
        targets: tuple[AligneeRequest, ...],
        answer: SetDifference | None,
    ) -> None:
        shared = self._shared
        data = shared.spaces[name_space]
        is_delayed = all(target.purpose == "delayed" for target in targets)
        whole = (data.loaded or DataSet()) if is_delayed else data.working
        held = sent_part(shared, whole, targets[0].wants)
        groups = []
        for group, group_set in held.groups.items():
            samples = group_set.samples() if answer is None else SampleRows.coerce(answer.new.get(group, ()))
            groups.append((stream.GroupBegin(shared.descriptions[group], group_set.floor_ns), samples))
        count = sum(len(samples) for _, samples in groups)
        begin = stream.StreamBegin(
            name_space,
            shared.settings.node,
            lineage,
            targets,
            count,
            sum(samples.payload_bytes for _, samples in groups),
            is_difference=answer is not None,
        )
        removed = None
        if answer is not None:
            removed = stream.Removed(answer.removed, stream.StreamEnd(answer.root.count, answer.root.digest))
        fellows = tuple(target.node for target in targets)
        if len(fellows) > 1:
            self._joint[name_space, fellows] = targets
        self._note_sending(name_space, fellows)
        what = "the whole set" if answer is None else "what it lacks"
        self._protocol_tracer.answering(name_space, targets, held, what, count)
        batches = self._batches(begin, groups, removed)
        shared.wire.send_stream(name_space, fellows, batches, count)

    def _batches(
        self,
        begin: stream.StreamBegin,
        groups: list[stream.GroupSamples],
        removed: stream.Removed | None = None,
    ) -> Iterator[bytes]:
        clock = self._shared.clock.monotonic
        return stream.batches(self._next_number(), begin, groups, clock, removed)

    def _note_sending(self, name_space: str, fellows: tuple[str, ...]) -> None:
        names = ",".join(map(self._shared.core.name_of, fellows))
        self._shared.tracer.event("align.sending", group=name_space, count=len(fellows), fellows=names)

    def _next_number(self) -> bytes:
        """Return a unique stream number: node, run, count."""
        self._sent += 1  # never again in this run, or batches of two streams would be taken for one
        settings = self._shared.settings
        number = bytes.fromhex(settings.node)[:8] + (settings.incarnation ^ settings.life).to_bytes(4)
        return number + self._sent.to_bytes(4)

    def sent(self, name_space: str, fellows: tuple[str, ...], samples: int, bytes_sent: int) -> None:
        """Take the result of `Wire.send_stream` to some fellows; 0 `bytes_sent` mean that it broke off."""
        for target in self._joint.pop((name_space, fellows), ()):
            if not bytes_sent:
                fellow = self._shared.core.name_of(target.node)
                self._shared.tracer.event("align.slow", fellow=fellow, group=name_space, outstanding=samples)
                self._shared.core.refuse(name_space, target, "one of those who asked does not keep up")
        self._shared.counters["streams_sent"] += 1
        self._shared.counters["stream_bytes_sent"] += bytes_sent
        self._shared.tracer.event(
            "align.sent",
            samples=samples,
            group=name_space,
            fellow=",".join(self._shared.core.name_of(fellow) for fellow in fellows),
            fellows=len(fellows),
            total=samples,
            bytes=bytes_sent,
        )

    # In.

    def expect(self, event: ExpectSet) -> None:
        """Prepare for the answer to a request that goes out; samples written from now on are newer."""
        self._keep_streams()  # the next request can use what a broken-off stream brought
        self._installer.expect(event)
        self._comparing.begin(event)

    def batch(self, sender: str, payload: bytes) -> None:
        """Take a batch of a stream, or a comparison message; each counts for its sender only."""
        shared = self._shared
        shared.counters["stream_bytes_received"] += len(payload)
        try:
            if payload.startswith(messages.MAGIC):
                self._take_message(sender, payload)
                return
            incoming = self._incoming.receive(sender, payload, shared.clock.wall_ns())
        except stream.StreamFault as fault:
            malformed(shared, fault)
            return
        if incoming is None:
            return
        if not self._is_wanted(incoming):
            self._protocol_tracer.is_stray(incoming)
            return
        self._protocol_tracer.arrives(incoming)
        self._store_early(incoming)
        name, request = incoming.begin.name_space, incoming.target.request
        shared.core.set_progress(name, request, shared.clock.monotonic())
        if incoming.is_whole:
            self._deletions.refuse(incoming.data, incoming.begin.aligner)
        if incoming.is_whole and incoming.target.purpose == GIVE:
            self._installer.take_gift(incoming)
        elif incoming.is_whole:
            self.steps.begin(self._received(incoming))

    def _is_wanted(self, incoming: IncomingStream) -> bool:
        begin, target = incoming.begin, incoming.target
        if target.purpose == GIVE:
            return self._shared.core.takes_gift(begin.name_space, begin.aligner, begin.lineage)
        return self._shared.core.expects(begin.name_space, target.request, begin.aligner)

    def _take_message(self, sender: str, payload: bytes) -> None:
        message, body = messages.decode(payload)
        if isinstance(message, messages.More):
            self._comparing.asked(sender, message)
        elif message.node != sender:
            raise stream.StreamFault(f"{sender} speaks for {message.node}")
        else:
            self._answering.sketched(message, body, len(payload))

    def _store_early(self, incoming: IncomingStream) -> None:
        """Hand arrived samples to the store before the whole set is here."""
        fresh, incoming.fresh = incoming.fresh, []
        shared, name = self._shared, incoming.begin.name_space
        data = shared.spaces[name]
        if not fills_store(data, incoming) or data.state.is_part:
            return  # a part is stored once it is complete
        for description, samples in fresh:
            state = shared.core.name_space_of(description.group)
            known = shared.descriptions.get(description.group, description)
            if state is data.state and data.is_kept(known) and data.is_on_disk(known):
                shared.store_queue.fill(
                    name, incoming.number, known, samples, resumes=incoming.begin.is_difference
                )

    def _received(self, incoming: IncomingStream) -> Stepwise[None]:
        """Put a whole set in place, and give the fellows what they lack."""
        shared = self._shared
        name, request = incoming.begin.name_space, incoming.target.request
        data = shared.spaces[name]
        floors = {group: group_set.floor_ns for group, group_set in incoming.data.groups.items()}
        finished = yield from self._installer.finish(data, incoming)
        if not shared.core.expects(name, request):
            return
        if finished is None:
            shared.core.set_failed(name, request, shared.clock.monotonic())
            return
        self._protocol_tracer.injects(incoming)
        new, surplus = self._installer.put(data, incoming, finished)
        shared.tracer.event(
            "align.completed",
            group=name,
            fellow=shared.core.name_of(incoming.begin.aligner),
            source=request,
            samples=incoming.samples,
            elapsed_ns=shared.clock.wall_ns() - incoming.started_ns,
        )
        shared.tell_changes()  # the core decides on the new content
        moved = _sum(new) + _sum(surplus) if incoming.target.purpose == "repair" else 0
        lineage, now = incoming.begin.lineage, shared.clock.monotonic()
        shared.core.set_received(name, request, lineage, now, moved=moved)
        if incoming.target.purpose != _EXTEND:
            self._give(data, incoming.target, surplus, floors)

    # Gifts.

    def _give(
        self, data: NameSpaceData, target: AligneeRequest, surplus: Difference, known: dict[Group, int]
    ) -> None:
        """Give the fellows samples that only this node has, and deletions that they do not know."""
        floors = {
            group: group_set.floor_ns
            for group, group_set in (data.staging or data.working).groups.items()
            if group_set.floor_ns > known.get(group, NO_FLOOR) and target.wants(group)
        }
        descriptions = self._shared.descriptions
        given = [group for group in {*surplus, *floors} if group in descriptions]
        if not given:
            return
        fellows = self._shared.core.surplus_found(data.state.name)
        if not fellows:
            return
        groups = [
            (
                stream.GroupBegin(descriptions[group], floors.get(group, NO_FLOOR)),
                SampleRows.coerce(surplus.get(group, ())),
            )
            for group in sorted(given)
        ]
        targets = tuple(AligneeRequest(fellow, 0, GIVE) for fellow in fellows)
        count = sum(len(samples) for _, samples in groups)
        size = sum(samples.payload_bytes for _, samples in groups)
        node = self._shared.settings.node
        begin = stream.StreamBegin(data.state.name, node, data.state.lineage, targets, count, size)
        self._note_sending(data.state.name, fellows)
        batches = self._batches(begin, groups)
        self._shared.wire.send_stream(data.state.name, fellows, batches, count)

    def show_equal(self, name_space: str) -> None:
        """See `_SetInstaller.show_equal`."""
        self._installer.show_equal(name_space)

    def delete_set(self, name_space: str) -> None:
        """Delete everything in a set (merge policy Delete)."""
        self._installer.delete_set(name_space)


def _sum(samples: Difference) -> int:
    return sum(map(digest_sum, samples.values()))


GIVE: Final = "give"
"""Purpose of a stream without a request: samples that its sender found to be missing here."""
_EXTEND: Final = "extend"
"""Purpose of a request of a Lazy alignee for more groups."""
_REPLACING: Final = (MergeType.REPLACE.value.lower(), MergeType.CATCHUP.value.lower())
_SHARING: Final = ("repair", MergeType.MERGE.value.lower())
"""Purposes after which the aligner is given the samples that it lacks."""


def malformed(shared: SharedState, fault: stream.StreamFault) -> None:
    """Count and trace a batch of a fellow that is damaged or out of order."""
    shared.malformed("d_sampleChain", "a fellow", str(fault))


class _SetInstaller:
    """The part of a runtime that puts received sets in place."""

    def __init__(
        self,
        shared: SharedState,
        late_joiners: LateJoinerDelivery,
        tombstones: PurgedTombstones,
        comparing: AligneeComparisons,
        writer_ends: WriterEnds,
    ) -> None:
        self._writer_ends = writer_ends
        self._shared = shared
        self._late_joiners = late_joiners
        self._tombstones = tombstones
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
            made = msgspec.structs.replace(made, data=passed)
        return made if made is None else msgspec.structs.replace(made, gives_way=why_not)

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
        self._join(data, incoming, at_once(filtered(incoming.data, self._shared.gates)))

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
        """Join a received set with the one here, and show the new samples; return them."""
        shared, purpose = self._shared, incoming.target.purpose
        were_missed = purpose in ("repair", GIVE)
        floored = [group for group, theirs in other.groups.items() if theirs.floor_ns > NO_FLOOR]
        self._tombstones.join(other)
        new, changes = data.join(other, shared.descriptions)
        shared.store_queue.append(data.state.name, changes, data.floors(floored))
        count = sum(map(len, new.values()))
        if were_missed:
            shared.counters["repaired"] += count
        shared.tracer.event(
            "merge.finished",
            namespace=data.state.name,
            role=shared.settings.role,
            policy=purpose,
            samples=count,
            elapsed_ns=shared.clock.wall_ns() - incoming.started_ns,
        )
        self._late_joiners.show(data.state.name, new, missed=were_missed)
        self._writer_ends.joined(data.state.name, new)
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
            tells=self._late_joiners.on_replaced is not None,
        )
        self._late_joiners.show_replaced(data.state.name, shown)
        self._writer_ends.joined(data.state.name, None)


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
