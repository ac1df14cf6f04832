"""Sets on their way between nodes: what the core decided is packed and sent, received and put in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.events import Target
from engine.core.namespaces import MergeType
from engine.dataset.dataset import NO_FLOOR, DataSet
from engine.dataset.rows import Rows
from engine.runtime import notes, resuming, stream
from engine.runtime.answering import Answer, Answering, sent_part
from engine.runtime.comparing import Comparing, Finished, joined
from engine.runtime.incoming import Incoming, IncomingStreams
from engine.runtime.persistence import Turn

if TYPE_CHECKING:
    from engine.core.events import ExpectSet, SendSet
    from engine.core.messages import Epoch, Outgoing
    from engine.core.namespaces import Group
    from engine.runtime.holdings import Holdings
    from engine.runtime.housekeeping import Housekeeping
    from engine.runtime.serving import Serving
    from engine.runtime.sets import Began, Difference, NameSpaceData

_REPLACING = (MergeType.REPLACE.value.lower(), MergeType.CATCHUP.value.lower())
_SHARING = ("repair", MergeType.MERGE.value.lower())
"""After these, what the aligner lacks is given to it."""
GIVE = "give"
"""The purpose of a stream that nobody asked for."""


class Transfers:
    """The streams of a runtime, in both directions."""

    def __init__(
        self, holdings: Holdings, serving: Serving, housekeeping: Housekeeping, secret: bytes
    ) -> None:
        self._holdings = holdings
        self._serving = serving
        self._housekeeping = housekeeping
        self._incoming = IncomingStreams(holdings.settings.node)
        self._comparing = Comparing(holdings, secret)
        self._answering = Answering(holdings, self._send_to)
        self._began: dict[tuple[str, int], Began] = {}
        self._sent = 0
        self._shared: dict[tuple[str, tuple[str, ...]], tuple[Target, ...]] = {}

    def running(self, name_space: str) -> list[Incoming]:
        """The streams that are bringing a set of the name-space."""
        return self._incoming.running(name_space)

    @property
    def next_s(self) -> float | None:
        """When `work` has something to do."""
        return self._answering.next_s

    def work(self, now: float) -> None:
        """Do what is due."""
        self._answering.work(now)

    def announced(self, outgoing: Outgoing) -> Outgoing:
        """A message on its way out, with what only we know added to it."""
        return self._comparing.announced(outgoing)

    def keep_wanted(self) -> None:
        """Forget what belongs to requests that are not wanted any more."""
        self._comparing.keep_wanted()
        self._keep_streams()
        if self._began:
            expects = self._holdings.core.expects
            for name, request in [key for key in self._began if not expects(*key)]:
                del self._began[name, request]

    def _keep_streams(self) -> None:
        for incoming in self._incoming.keep(self._is_wanted):
            resuming.broke_off(self._holdings.spaces[incoming.begin.name_space], incoming)

    # Out.

    def send(self, event: SendSet) -> None:
        """Send the set of a name-space as it is now; to those who say what they hold, what they lack."""
        everything = tuple(target for target in event.targets if not target.compares)
        if everything:
            self._send_set(event.name_space, event.lineage, everything, None)
        for target in event.targets:
            if target.compares:
                self._answering.asked(event.name_space, target)

    def _send_to(self, name_space: str, target: Target, answer: Answer | None) -> None:
        self._send_set(name_space, self._holdings.spaces[name_space].state.lineage, (target,), answer)

    def _send_set(
        self, name_space: str, lineage: Epoch, targets: tuple[Target, ...], answer: Answer | None
    ) -> None:
        holdings = self._holdings
        data = holdings.spaces[name_space]
        is_delayed = all(target.purpose == "delayed" for target in targets)
        held = sent_part(holdings, (data.loaded or DataSet()) if is_delayed else data.working)
        groups = []
        for group, group_set in held.groups.items():
            samples = group_set.samples() if answer is None else Rows.of(answer.new.get(group, ()))
            groups.append((stream.GroupBegin(holdings.descriptions[group], group_set.floor_ns), samples))
        count = sum(len(samples) for _, samples in groups)
        begin = stream.Begin(
            name_space,
            holdings.settings.node,
            lineage,
            targets,
            count,
            sum(samples.payload_bytes for _, samples in groups),
            is_difference=answer is not None,
        )
        removed = None
        if answer is not None:
            removed = stream.Removed(answer.removed, stream.End(answer.root.count, answer.root.digest))
        fellows = tuple(target.node for target in targets)
        if len(fellows) > 1:
            self._shared[name_space, fellows] = targets
        self._note_sending(name_space, fellows)
        batches = stream.batches(self._next_number(), begin, groups, holdings.clock.monotonic, removed)
        holdings.wire.send_stream(name_space, fellows, batches, count)

    def _note_sending(self, name_space: str, fellows: tuple[str, ...]) -> None:
        names = ",".join(map(self._holdings.core.name_of, fellows))
        self._holdings.tracer.event("align.sending", group=name_space, count=len(fellows), fellows=names)

    def _next_number(self) -> bytes:
        """A stream number that no other stream ever had: node, incarnation, count."""
        self._sent += 1
        settings = self._holdings.settings
        number = bytes.fromhex(settings.node)[:8] + settings.incarnation.to_bytes(4)
        return number + self._sent.to_bytes(4)

    def sent(self, name_space: str, fellows: tuple[str, ...], samples: int, bytes_sent: int) -> None:
        """The answer to `Wire.send_stream`; nothing was sent when it broke off."""
        for target in self._shared.pop((name_space, fellows), ()):
            if not bytes_sent:
                self._holdings.core.refuse(name_space, target, "one of those who asked does not keep up")
        self._holdings.counters["streams_sent"] += 1
        self._holdings.counters["stream_bytes_sent"] += bytes_sent
        self._holdings.tracer.event(
            "align.sent",
            samples=samples,
            group=name_space,
            fellow=",".join(self._holdings.core.name_of(fellow) for fellow in fellows),
            fellows=len(fellows),
            total=samples,
            bytes=bytes_sent,
        )

    # In.

    def expect(self, event: ExpectSet) -> None:
        """A request went out; what is written from now on is newer than what will come."""
        self._keep_streams()  # what broke off is compared with the set that is asked for now
        if event.purpose in _REPLACING:
            data = self._holdings.spaces[event.name_space]
            self._began[event.name_space, event.request] = data.begin(self._holdings.clock.wall_ns())
        self._comparing.begin(event)

    def batch(self, payload: bytes) -> None:
        """A batch of a stream arrived."""
        holdings = self._holdings
        holdings.counters["stream_bytes_received"] += len(payload)
        try:
            if payload.startswith(notes.MAGIC):
                self._note(payload)
                return
            incoming = self._incoming.take(payload, holdings.clock.wall_ns())
        except stream.StreamFault as error:
            holdings.malformed("d_sampleChain", "a fellow", str(error))
            return
        if incoming is None:
            return
        if not self._is_wanted(incoming):
            return
        self._store_early(incoming)
        if not incoming.is_whole:
            name, request = incoming.begin.name_space, incoming.target.request
            holdings.core.set_progress(name, request, holdings.clock.monotonic())
        elif incoming.target.purpose == GIVE:
            self._taken(incoming)
        else:
            self._received(incoming)

    def _is_wanted(self, incoming: Incoming) -> bool:
        begin, target = incoming.begin, incoming.target
        if target.purpose == GIVE:
            return self._holdings.core.takes_gift(begin.name_space, begin.aligner, begin.lineage)
        return self._holdings.core.expects(begin.name_space, target.request)

    def _note(self, payload: bytes) -> None:
        note, body = notes.decode(payload)
        if isinstance(note, notes.More):
            self._comparing.more(note)
        elif isinstance(note, notes.Narrow):
            self._comparing.narrow(note, body)
        elif isinstance(note, notes.Ranges):
            self._answering.narrowed(note, body, len(payload))
        else:
            self._answering.sketched(note, body, len(payload))

    def _store_early(self, incoming: Incoming) -> None:
        """Give the store what has arrived of a set that it will need: it need not wait for the whole."""
        fresh, incoming.fresh = incoming.fresh, []
        holdings, name = self._holdings, incoming.begin.name_space
        data = holdings.spaces[name]
        if not resuming.is_filled(data, incoming):
            return
        for description, samples in fresh:
            state = holdings.core.name_space_of(description.group)
            known = holdings.descriptions.get(description.group, description)
            if state is data.state and data.is_kept(known) and data.is_on_disk(known):
                holdings.persistence.fill(
                    name, incoming.number, known, samples, resumes=incoming.begin.is_difference
                )

    def _received(self, incoming: Incoming) -> None:
        """A whole set is here: it joins or takes the place of what it was asked for."""
        holdings = self._holdings
        name, request = incoming.begin.name_space, incoming.target.request
        data = holdings.spaces[name]
        self._open_groups(incoming)
        surplus = self._put_in_place(data, incoming)
        if surplus is None:
            holdings.core.set_failed(name, request, holdings.clock.monotonic())
            return
        self._remember_floors(data, incoming)
        holdings.tracer.event(
            "align.completed",
            group=name,
            fellow=holdings.core.name_of(incoming.begin.aligner),
            source=request,
            samples=incoming.samples,
            elapsed_ns=holdings.clock.wall_ns() - incoming.started_ns,
        )
        holdings.tell_changes()  # before the core decides about anything on the ground of it
        holdings.core.set_received(name, request, incoming.begin.lineage, holdings.clock.monotonic())
        self._give(data, surplus, incoming.data)

    def _open_groups(self, incoming: Incoming) -> None:
        """Take part in the groups that come, and leave out those that are not kept here, by policy."""
        self._holdings.counters["streams_received"] += 1
        for description in incoming.descriptions:
            self._holdings.open_group(description, announce=False)
        known = self._holdings.descriptions
        for group in [group for group in incoming.data.groups if group not in known]:
            del incoming.data.groups[group]

    def _remember_floors(self, data: NameSpaceData, incoming: Incoming) -> None:
        for group, group_set in incoming.data.groups.items():
            if group_set.floor_ns > NO_FLOOR:
                self._housekeeping.remember_floor(data, group)

    def _put_in_place(self, data: NameSpaceData, incoming: Incoming) -> Difference | None:
        """What only this node has; None when a difference did not make the set that it should."""
        purpose = incoming.target.purpose
        if not data.state.holder:
            return self._stage(data, incoming)
        finished: Finished | None = Finished(incoming.data, Turn([]))
        if incoming.begin.is_difference:
            finished = self._comparing.finish(incoming, whole=purpose in _REPLACING, joins=False)
        if finished is None:
            return None
        if purpose in _REPLACING:
            began = self._began.get((data.state.name, incoming.target.request))
            self._replace(data, finished.data, began, purpose, passes_disposed=purpose == _REPLACING[0])
            return {}
        here_only = finished.surplus
        if not incoming.begin.is_difference:
            here_only = _without(data.working, incoming.data)
        incoming.data = finished.data
        new = self._join(data, incoming)
        self._serving.show(data.state.name, new, missed=purpose == "repair")
        return _still_in(data.working, here_only) if purpose in _SHARING else {}

    def _stage(self, data: NameSpaceData, incoming: Incoming) -> Difference | None:
        """Put what came at the start of a run in place: it joins the stored set, or gives way to none."""
        holdings, giver = self._holdings, incoming.begin.aligner
        is_initial = incoming.target.purpose == "initial" and data.staging is None
        why_not = "it is not asked for"
        if is_initial and data.loaded is not None:
            why_not = holdings.core.why_not_joined(data.state.name, giver)
            if incoming.target.forgotten:
                why_not = "this node was away for longer than deletions are remembered"
        finished: Finished | None = Finished(incoming.data, Turn([], incoming.number))
        if incoming.begin.is_difference:
            finished = self._comparing.finish(incoming, whole=True, joins=not why_not)
        elif not why_not and data.loaded is not None:
            finished = joined(incoming, data, holdings.descriptions)
        if finished is None:
            return None
        if not is_initial:
            if data.staging is None:
                data.stage(finished.data, finished.turn)
            else:
                data.stage_too(finished.data, holdings.descriptions)
            return {}
        data.stage(finished.data, finished.turn)
        if why_not and data.loaded is not None and _without(data.loaded, finished.data):
            data.keeps = f"aligned with {holdings.core.name_of(giver)} at the start: {why_not}"
        return finished.surplus

    def _join(self, data: NameSpaceData, incoming: Incoming) -> Difference:
        """MERGE what came into the set that is here; what was new."""
        holdings = self._holdings
        new, changes = data.join(incoming.data, holdings.descriptions)
        holdings.persistence.append(data.state.name, changes)
        count = sum(map(len, new.values()))
        if incoming.target.purpose in ("repair", GIVE):
            holdings.counters["repaired"] += count
        holdings.tracer.event(
            "merge.finished",
            namespace=data.state.name,
            role=holdings.settings.role,
            policy=incoming.target.purpose,
            samples=count,
            elapsed_ns=holdings.clock.wall_ns() - incoming.started_ns,
        )
        return new

    # Gifts.

    def _give(self, data: NameSpaceData, surplus: Difference, theirs: DataSet) -> None:
        """Give the fellows what an alignment showed to be here only, and what they do not know as deleted."""
        floors = {
            group: group_set.floor_ns
            for group, group_set in (data.staging or data.working).groups.items()
            if group_set.floor_ns > (theirs.groups[group].floor_ns if group in theirs.groups else NO_FLOOR)
        }
        descriptions = self._holdings.descriptions
        given = [group for group in {*surplus, *floors} if group in descriptions]
        if not given:
            return
        fellows = self._holdings.core.surplus_found(data.state.name)
        if not fellows:
            return
        groups = [
            (
                stream.GroupBegin(descriptions[group], floors.get(group, NO_FLOOR)),
                Rows.of(surplus.get(group, ())),
            )
            for group in sorted(given)
        ]
        targets = tuple(Target(fellow, 0, GIVE) for fellow in fellows)
        count = sum(len(samples) for _, samples in groups)
        size = sum(samples.payload_bytes for _, samples in groups)
        node = self._holdings.settings.node
        begin = stream.Begin(data.state.name, node, data.state.lineage, targets, count, size)
        self._note_sending(data.state.name, fellows)
        batches = stream.batches(self._next_number(), begin, groups, self._holdings.clock.monotonic)
        self._holdings.wire.send_stream(data.state.name, fellows, batches, count)

    def _taken(self, incoming: Incoming) -> None:
        """A fellow has given what it found to be missing here."""
        data = self._holdings.spaces[incoming.begin.name_space]
        self._open_groups(incoming)
        new = self._join(data, incoming)
        self._remember_floors(data, incoming)
        self._serving.show(data.state.name, new, missed=True)

    def delete_set(self, name_space: str) -> None:
        """Merge policy Delete: everything that is here now goes, and readers see it disposed."""
        data = self._holdings.spaces[name_space]
        emptied = DataSet()
        for group, group_set in data.working.groups.items():
            emptied.open_group(group, group_set.depth)
        self._replace(data, emptied, None, "delete", passes_disposed=False)

    def _replace(
        self, data: NameSpaceData, other: DataSet, began: Began | None, policy: str, *, passes_disposed: bool
    ) -> None:
        """Put another set in place. Readers by source time would take no sample older than a dispose."""
        descriptions = self._holdings.descriptions

        def passes(group: Group) -> bool:
            return passes_disposed and not descriptions[group].qos.by_source_timestamp

        before = data.stored_part(descriptions.values())
        now_ns = self._holdings.clock.wall_ns()
        difference, changes = data.replace(other, began, now_ns, passes, descriptions)
        is_loss = any(change.evicted for change in changes)
        keeps = f"merge policy {policy.capitalize()}" if is_loss else ""
        self._holdings.write_set(data, Turn(changes, before=before), keeps=keeps)
        self._serving.show(data.state.name, difference)


def _without(ours: DataSet, theirs: DataSet) -> Difference:
    """The samples of one set that another does not hold."""
    difference: Difference = {}
    for group, group_set in ours.groups.items():
        other = theirs.groups.get(group)
        rows = group_set.samples().without(set(other.samples().each_digest()) if other else set())
        if rows:
            difference[group] = list(rows)
    return difference


def _still_in(data: DataSet, samples: Difference) -> Difference:
    """Those of the samples that newer ones have not pushed out."""
    left: Difference = {}
    for group, each in samples.items():
        group_set = data.groups.get(group)
        kept = [one for one in each if group_set is not None and one in group_set.instance(one.key)]
        if kept:
            left[group] = kept
    return left
