"""State that the parts of a runtime share: the node's sets, groups and counters, and its ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from engine.core.events import NameSpaceLearned
from engine.core.messages import Epoch
from engine.core.name_spaces import Element, Group, kept_partitions
from engine.core.node import DurabilityNode
from engine.core.settings import CoreSettings
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import GroupSet
from engine.dataset.groups import DurabilityKind, GroupDescription
from engine.dataset.lifespans import LifespanTable, WriterLifespan
from engine.dataset.sample import DATA, Sample
from engine.runtime.monitor import DEVIATIONS
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.ports import Clock, FilterRefused, Filters, Gate, Wire
from engine.runtime.store_queue import BackupDropped, BackupMissing, Conversion, StoreQueue
from engine.runtime.withholding import without_rest
from engine.store.interface import GroupChange, Replaced
from engine.tracing.tracer import Tracer

# Some lines of a terminal; the message may be megabytes.
MAX_CAUSE: Final = 300
"""Characters of a peer's fault in the trace."""
# Enough to find the machine whose clock is wrong; the counters have all.
MAX_AHEAD: Final = 20
"""Writers with samples in the future named in the trace."""
# Chosen: enough to see the pattern. A stranger may make groups without end.
MAX_OUTSIDE: Final = 1000
"""Groups outside all name-spaces that are counted and traced."""
LINEAGE: Final = "lineage"
LINE: Final = "line"
APART: Final = "apart"
PART: Final = "part"
WHOLE: Final = "whole"
WANTED: Final = "wanted"
ROLE: Final = "role"
ELEMENTS: Final = "elements"
LEARNED: Final = "learned"
RESTORED: Final = "restored"
PURGES: Final = "purges"
COUNTERS: Final = (
    "captured",
    "stored",
    "too_old",
    "too_large",
    "rejected",
    "malformed",
    "streams_sent",
    "streams_received",
    "delivered",
    "unrouted",
    "purged",
    "future_deletions",
    "repeated",
    "not_given",
    "expired",
    "refused",
    "resent",
    "refused_writers",
    "unkept_writers",
    "refused_samples",
    "refused_groups",
    "outside_groups",
    "memory_only_groups",
    "withheld",
    *DEVIATIONS,
    "stream_bytes_sent",
    "stream_bytes_received",
    "comparison_bytes_sent",
    "comparisons_failed",
    "repaired",
)


class SharedState:
    """The data and ports of one node, used by one thread at a time."""

    def __init__(
        self,
        settings: CoreSettings,
        store_queue: StoreQueue,
        wire: Wire,
        clock: Clock,
        tracer: Tracer,
        loaded: dict[str, DataSet],
        parts: Mapping[str, DataSet],
        filters: Filters,
        opened: Callable[[Group], None],
    ) -> None:
        self.settings = settings
        self._opened = opened
        """Called with a group that this node keeps from now on."""
        self._filters = filters
        self.gates: dict[Group, Gate] = {}
        """Content filters by group."""
        self._refused: set[Group] = set()
        """Groups whose content filter does not fit their type."""
        self._outside: set[Group] = set()
        """Groups of durable writers that are not to be kept here, and have been traced."""
        self._unwanted: set[Group] = set()
        """Known groups of Lazy name-spaces that no reader here wants."""
        self._undecided: dict[Group, set[bytes]] = {}
        """Instances let in by a dispose or unregister that their filter could not judge."""
        self.store_queue = store_queue
        self.wire = wire
        self.clock = clock
        self.tracer = tracer
        self.descriptions: dict[Group, GroupDescription] = {}
        """Groups that this node keeps."""
        self.lifespans = LifespanTable()
        """The writers whose samples expire, of all groups."""
        self.groups_of: dict[str, list[Group]] = {}
        """The same by topic: looking through all of them for each of many readers takes long."""
        self.spaces: dict[str, NameSpaceData] = {}
        """Sets by name-space."""
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        """Totals since the start, by name."""
        self.is_outdated = self.is_restored = False
        """A fellow remembers a later state of this node's store; a new run must begin."""
        self.is_behind = False
        """Captured samples wait to be applied."""
        self.set_handed_over_ns: dict[str, int] = {}
        """Wall clock at which a whole set went to the store, by name-space."""
        self._ahead: set[bytes] = set()
        self.too_large: dict[Group, int] = {}
        """Writers with samples in the future that have been traced."""
        self.ended_writers: dict[bytes, int] = {}
        """Autodispose writers that said that they end, with the time that they said; the latest ones."""
        self.late_writers: dict[str, set[bytes]] = {}
        """Those of which samples came afterwards, by name-space."""
        self._loaded = loaded
        """Stored sets of name-spaces that the core has not announced yet."""
        self._parts = dict(parts)
        """Interrupted sets of name-spaces that the core has not announced yet."""
        self.core = DurabilityNode(settings, clock.monotonic(), clock.wall_ns())

    def steady_ns(self) -> int:
        """Return the wall clock of the start plus the time since then, which never jumps."""
        return self.core.wall_ns(self.clock.monotonic())

    def tell_future(self, group: Group, writer: bytes, ahead_ns: int) -> None:
        """Trace a writer with samples in the future, once.

        Its clock is `ahead_ns` nanoseconds ahead of this node's.
        """
        if writer in self._ahead or len(self._ahead) >= MAX_AHEAD:
            return
        self._ahead.add(writer)
        self.tracer.event("capture.future", group=group, writer=writer.hex(), ahead_ns=ahead_ns)

    def tell_too_large(self, group: Group, size: int) -> None:
        """Count a sample of `size` bytes that is not kept, and trace the first one of each group."""
        self.counters["too_large"] += 1
        if group in self.too_large:
            self.too_large[group] += 1
            return
        if len(self.too_large) >= MAX_AHEAD:
            return
        self.too_large[group] = 1
        limit = self.settings.max_sample_bytes
        self.tracer.event("capture.too-large", group=group, bytes=size, limit=limit)

    def malformed(self, topic: str, sender: str, cause: str, count: int = 1) -> None:
        """Count and trace an invalid message, which is ignored.

        The cause goes to the trace, cut after MAX_CAUSE characters.
        """
        self.counters["malformed"] += count
        self.tracer.event("message.malformed", topic=topic, sender=sender, cause=cause[:MAX_CAUSE])

    def add_name_space(self, event: NameSpaceLearned) -> None:
        """Take part in a name-space from now on."""
        name = event.name_space.name
        state = next(state for state in self.core.name_spaces if state.name == name)
        loaded, part = self._loaded.pop(name, None), self._parts.pop(name, None)
        self.spaces[name] = NameSpaceData(state, loaded=loaded, part=part)
        marks = {ELEMENTS: msgspec.json.encode(event.name_space.elements).decode()}
        if not event.is_configured:
            marks[LEARNED] = "yes"
        elif name in {learned.name for learned in self.settings.learned}:
            marks[LEARNED] = ""
        self.store_queue.mark(name, marks)
        self.tracer.event(
            "namespace.added",
            namespace=name,
            aligner=event.policy.aligner,
            alignee=event.policy.alignee,
            durability=event.policy.durability,
        )

    def want_stored(self) -> None:
        """Want the stored groups of Lazy name-spaces, which readers wanted before the restart."""
        for name, data in self.spaces.items():
            groups = data.loaded.groups.items() if data.loaded is not None else ()
            self.want(name, [Element(group.partition, group.topic) for group, held in groups if held.count])

    def want(self, name_space: str, elements: Iterable[Element]) -> None:
        """Note groups that readers on this host want, and capture those of a Lazy name-space."""
        state = self.spaces[name_space].state
        known = state.wanted
        self.core.wanted(name_space, elements, self.clock.monotonic())
        if state.wanted != known:
            self.store_queue.mark(name_space, {WANTED: msgspec.json.encode(state.wanted).decode()})
        for group in [group for group in self._unwanted if state.name_space.contains(group)]:
            if state.is_wanted(group):
                self._unwanted.discard(group)
                self._capture(self.descriptions[group])

    def _capture(self, description: GroupDescription) -> None:
        self._open_tap(description)
        depth = description.qos.history_depth
        self.tracer.event("capture.started", group=description.group, depth=depth)

    def _open_tap(self, description: GroupDescription) -> None:
        """Capture a group with a reader that matches no writer outside of what is kept."""
        kept = [
            element
            for state in self.core.name_spaces
            # A Lazy policy keeps what readers want, group by group.
            if not state.is_lazy and (data := self.spaces.get(state.name)) is not None and data.keeps_any
            for element in state.name_space.elements
        ]
        self.wire.open_group(description, kept_partitions(description.group, kept, self._filters.elements))

    def open_group(self, description: GroupDescription, *, announce: bool) -> bool:
        """Keep a group from now on, and with `announce` tell fellows; False if this node does not keep it.

        A known group may learn its type, and that its topic requests more durability.
        """
        group = description.group
        if reason := self._why_outside(group):
            if announce:
                self._tell_outside(group, reason)
            return False
        state = self.core.name_space_of(group)
        assert state is not None
        data = self.spaces[state.name]
        if not data.is_kept(description) or not self._open_gate(description):
            return False
        self.lifespans.learn(description.qos.lifespans)
        if group not in self.descriptions:
            self.descriptions[group] = description
            self.groups_of.setdefault(group.topic, []).append(group)
            group_set = data.open_group(description)
            if data.loaded and group in data.loaded.groups:
                group_set.raise_floor(data.loaded.groups[group].floor_ns)
            self.tracer.event("group.found", group=group, durability=description.qos.durability.name)
            self.tracer.event("group.administrating", group=group)
            self._tell_memory_only(description, data)
            if state.is_wanted(group):
                self._capture(description)
            else:  # a writer must not find a reader here that does not keep its samples
                self._unwanted.add(group)
            if announce:
                self._announce(description)
            self._opened(group)
            return True
        self.improve_group(description, announce=announce)
        if differences := self.descriptions[group].qos.differences(description.qos):
            cause = ", ".join(differences)
            self.tracer.event("group.qos-mismatch", group=group, endpoint="a writer", cause=cause)
        return True

    def is_meant(self, groups: Iterable[Group]) -> bool:
        """Whether one of these groups of a durable writer is to be kept here, as it is configured."""
        return not all(map(self._why_outside, groups))

    def tell_outside(self, groups: Iterable[Group]) -> None:
        """Count and trace, once, those of these groups of a durable writer that are not to be kept here."""
        for group in groups:
            if reason := self._why_outside(group):
                self._tell_outside(group, reason)

    def _why_outside(self, group: Group) -> str:
        """Return why a group is not to be kept here; empty if it is."""
        state = self.core.name_space_of(group)
        if state is None or state.name not in self.spaces:
            return "it is in no name-space of this node"
        if not self.spaces[state.name].keeps_any:
            return f"its policy for name-space {state.name} has durability {state.policy.durability.value}"
        return ""

    def _tell_outside(self, group: Group, reason: str) -> None:
        if group not in self._outside and len(self._outside) < MAX_OUTSIDE:
            self._outside.add(group)
            self.counters["outside_groups"] += 1
            self.tracer.event("group.outside", group=group, reason=reason)

    def _tell_memory_only(self, description: GroupDescription, data: NameSpaceData) -> None:
        """Count and trace a PERSISTENT group that does not go to disk, because of its policy or the store."""
        policy = data.state.policy
        if description.qos.durability is not DurabilityKind.PERSISTENT:
            return
        if policy.persists and self.settings.has_disk:
            return
        reason = "it has no store on disk (DurabilityService/Persistent)"
        if not policy.persists:
            reason = f"its policy for name-space {data.state.name} has durability {policy.durability.value}"
        self.counters["memory_only_groups"] += 1
        self.tracer.event("group.memory-only", group=description.group, reason=reason)

    def _open_gate(self, description: GroupDescription) -> bool:
        """Find the content filter of a group; False if it does not fit, so that nothing may be kept."""
        group = description.group
        if group in self.descriptions or (group in self._refused and description.type.is_untyped):
            return group not in self._refused
        try:
            gate = self._filters.gate(description)
        except FilterRefused as refusal:
            if group not in self._refused:
                self.counters["refused_groups"] += 1
            self._refused.add(group)
            self.tracer.event("filter.refused", group=group, cause=str(refusal))
            return False
        self._refused.discard(group)  # its type is known meanwhile
        if gate is not None:
            self.gates[group] = gate
            self.tracer.event("filter.applies", group=group)
        return True

    @property
    def refused(self) -> list[Group]:
        """Groups that are not kept because their content filter does not fit their type."""
        return sorted(self._refused)

    def passes(self, group: Group, sample: Sample, group_set: GroupSet) -> bool:
        """Whether content filters let a sample into a set of the group.

        A dispose or unregister whose key does not decide it passes if the instance is here. While the set is
        incomplete the instance may still come, so it passes, too (see `withhold_rest`).
        """
        gate = self.gates.get(group)
        if gate is None:
            return True
        accepted = gate.accepts(sample.status, sample.payload)
        if accepted is None:
            state = self.core.name_space_of(group)
            accepted = sample.key in group_set
            if not accepted and state is not None and not state.complete:
                self._undecided.setdefault(group, set()).add(sample.key)
                return True
        self.counters["withheld"] += not accepted and bool(sample.status & DATA)
        return accepted

    def withhold_rest(self, data: NameSpaceData) -> None:
        """Remove, once the set is complete, instances of which a filter let in no data."""
        for group in self._undecided.keys() & data.working.groups.keys():
            without_rest(data.working.groups[group], self._undecided.pop(group))

    def _announce(self, description: GroupDescription) -> None:
        self.tracer.event("group.announced", group=description.group)
        self.core.group_found(description.group, msgspec.json.encode(description))

    def improve_group(self, description: GroupDescription, *, announce: bool) -> None:
        """Take in what is known better of a kept group: `GroupDescription.improved_by`.

        With `announce`, fellows learn of it. They learn lifespans with the samples of their writers.
        """
        group = description.group
        known = self.descriptions[group]
        raised = known.improved_by(description)
        if raised == known:
            return
        self.descriptions[group] = raised
        before, now = known.qos, raised.qos
        if now.lifespans is not before.lifespans:
            self._keep_lifespans(raised)
        if raised == msgspec.structs.replace(
            known, qos=msgspec.structs.replace(before, lifespans=now.lifespans)
        ):
            return
        if differences := before.deepened(now):
            self.tracer.event("group.deepened", group=group, differences=", ".join(differences))
        is_typed = raised.type is not known.type
        if is_typed:
            self.tracer.event("group.typed", group=group)
        if now.requested is before.requested:
            if now.durability is not before.durability:
                was, is_now = before.durability.name, now.durability.name
                self.tracer.event("group.raised", group=group, before=was, durability=is_now)
            if is_typed and group not in self._unwanted:
                self._open_tap(raised)
        elif group not in self._unwanted:
            self._open_tap(raised)
            self.tracer.event(
                "capture.moving", group=group, before=before.requested.name, requested=now.requested.name
            )
        if announce:
            self._announce(raised)
        state = self.core.name_space_of(group)
        data = self.spaces[state.name] if state is not None else None
        if data is not None:
            data.open_group(raised)  # its set keeps more; the store learns of it with the next sample
        if data is not None and now.durability is not before.durability:
            self._tell_memory_only(raised, data)
        if data is None or not data.is_switched or not data.is_on_disk(raised):
            return
        if not data.is_on_disk(known):
            self.write_set(data)
        elif is_typed:
            self.store_queue.append(data.state.name, [GroupChange(raised, None)])

    def learn_lifespan(self, groups: Iterable[Group], writer: bytes, lifespan_ns: int) -> None:
        """Note that the samples of a writer in these groups expire after `lifespan_ns` nanoseconds."""
        lifespans = (WriterLifespan(writer, lifespan_ns),)
        self.lifespans.learn(lifespans)
        for group in groups:
            if (known := self.descriptions.get(group)) is not None:
                qos = msgspec.structs.replace(known.qos, lifespans=lifespans)
                self.improve_group(msgspec.structs.replace(known, qos=qos), announce=False)

    def _keep_lifespans(self, raised: GroupDescription) -> None:
        """Remember the lifespans of a group's writers, and store them even if no sample follows."""
        self.lifespans.learn(raised.qos.lifespans)
        state = self.core.name_space_of(raised.group)
        data = self.spaces[state.name] if state is not None else None
        if data is not None and data.is_switched and data.is_on_disk(raised):
            self.store_queue.append(data.state.name, [GroupChange(raised, None)])

    def refuse_writer(self, group: Group, writer: str, policies: Sequence[str]) -> None:
        """Trace a writer that does not match the built-in reader, so is not captured (DDS 1.4, 2.2.3.4).

        `policies` are the names of those that differ.
        """
        self.counters["refused_writers"] += 1
        cause = f"writer {writer} and the built-in reader: {', '.join(policies)}: it is not captured"
        self.tracer.event("group.qos-mismatch", group=group, endpoint=f"writer {writer}", cause=cause)

    def tell_changes(self) -> None:
        """Tell the core count and digest of the sets that have changed."""
        for name, data in self.spaces.items():
            if data.has_changed:
                data.has_changed = False
                summary = data.applied.summary()  # others may be told later of samples that wait
                self.core.roll_up(name, summary.count, summary.digest)

    def write_set(
        self, data: NameSpaceData, conversion: Conversion | None = None, *, keeps: str = ""
    ) -> None:
        """Make the working set the store's complete set.

        Args:
            data: the name-space.
            conversion: changes that bring the store there; None to write the whole set.
            keeps: reason to keep the store's present set as a back-up (deployment guide 5.2.3.3); empty to
                drop it.
        """
        groups = data.persistent_groups(self.descriptions.values())
        lineage = lineage_text(data.state.lineage)
        wanted = data.stored_part(self.descriptions.values())
        self.set_handed_over_ns[data.state.name] = self.clock.wall_ns()
        note = Replaced(f"node {self.settings.name}", self.clock.wall_ns(), keeps) if keeps else None
        marks = {**self._marks_of(data), **data.floors(data.working.groups)}
        self.store_queue.write_set(
            data.state.name, groups, wanted, lineage, conversion, marks=marks, keeps=note
        )

    def remember_lineage(self, data: NameSpaceData) -> None:
        """Store the lineage of the set and the other marks."""
        self.store_queue.mark(data.state.name, self._marks_of(data))

    def _marks_of(self, data: NameSpaceData) -> dict[str, str]:
        state = data.state
        return {
            LINEAGE: lineage_text(state.lineage),
            LINE: " ".join(map(lineage_text, state.line)),
            APART: "yes" if state.apart else "",
            PART: "yes" if state.may_lack else "",
            WHOLE: msgspec.json.encode(state.whole).decode() if state.may_lack else "",
            ROLE: self.settings.role,
            RESTORED: "yes" if self.is_restored else "",
            PURGES: str(state.purges),
        }

    def tell_backups(self) -> None:
        """Trace the reports on back-ups."""
        for report in self.store_queue.backup_reports():
            if isinstance(report, BackupDropped):
                self.tracer.event(
                    "store.backup-dropped",
                    namespace=report.name_space,
                    version=report.version,
                    samples=report.samples,
                    cause=report.cause,
                )
                continue
            note = report.note
            fields = {"samples": note.before, "total": note.after, "cause": note.why}
            if isinstance(report, BackupMissing):
                self.tracer.event("store.not-kept", namespace=report.name_space, **fields)
                continue
            if data := self.spaces.get(report.name_space):
                data.backup = f"{note.why}: {note.before:,} samples, set {report.version}"
                data.backup_ns = note.at_ns
            self.tracer.event("store.backup", namespace=report.name_space, **fields, version=report.version)


def lineage_text(lineage: Epoch) -> str:
    """Return a lineage as it is written into the store."""
    return f"{lineage.counter}/{lineage.node}/{lineage.run}"
