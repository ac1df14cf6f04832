"""Deliver to late joiners the whole set once, and afterwards what merges bring (guide 5.4.7)."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from engine.core.expressions import intersection, matches
from engine.core.messages import ReaderKey
from engine.core.name_spaces import Group
from engine.core.purging import FOREVER_NS
from engine.dataset.groups import GroupDescription, is_given
from engine.dataset.living import by_instance, instances
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.monitor import DEVIATIONS
from engine.runtime.name_space_data import Difference
from engine.runtime.ports import Delivered, ReplacingDelivery, RevivingDelivery
from engine.runtime.replacing import Replacement
from engine.runtime.shared_state import SharedState
from engine.runtime.tails import MAX_TAIL, Tails

_How: TypeAlias = RevivingDelivery | ReplacingDelivery | None

Groups = list[tuple[GroupDescription, SampleRows]]


class Serving:
    """The part of a runtime that serves readers."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.tails = Tails()
        self.on_difference: Callable[[str, Difference], None] | None = None
        """Called with the samples that a merge brought to a name-space."""
        self.on_replaced: Callable[[str, Difference], None] | None = None
        """Called with the samples for clients when another set replaced that of a name-space."""
        self.on_taken_over: Callable[[ReaderKey], None] | None = None
        """Called when this node takes charge of a served reader."""
        self.on_handed_over: Callable[[ReaderKey], None] | None = None
        """Called when another node has taken charge of a reader."""
        self.was_away: Callable[[Sample], bool] = lambda _: False
        """Whether the writer of a sample was out of this host's reach when it wrote it."""
        self.living: Callable[[Group], frozenset[bytes]] = lambda _: frozenset()
        """Returns the GUIDs of a group's living writers."""
        self.deviations: dict[ReaderKey, collections.Counter[str]] = {}
        """Counts of what readers see otherwise than it is in the set, by cause."""
        self._waiting: dict[ReaderKey, collections.deque[tuple[Groups, bool, _How]]] = {}
        """Deliveries after the one under way."""
        self._got: dict[ReaderKey, frozenset[bytes]] = {}
        """GUIDs of the readers that got the last complete set."""
        self._joined: dict[ReaderKey, set[bytes]] = {}
        """GUIDs of the readers that appeared during a delivery."""
        self._since_ns: dict[ReaderKey, int] = {}
        """Wall clock at which this node first saw a reader."""

    @property
    def next_s(self) -> float | None:
        """Time of the next `work`; None if there is none."""
        return self.tails.next_s

    def work(self, now: float) -> None:
        """Deliver samples again that were captured during a delivery."""
        if not self.tails:
            return
        for reader, tail in self.tails.take_sets(now):
            self._shared.counters["not_given"] += max(0, tail.count - MAX_TAIL)
            self._give(reader, tail.after(0))
        for tail in self.tails.take_returns(now):
            self._shared.counters["not_given"] += max(0, tail.count - MAX_TAIL)
            for state in self._shared.core.name_spaces if tail.noted else ():
                for reader in self._shared.core.in_charge_of(state.name):
                    self._give(reader, self.tails.lacking(reader, tail))
        for reader, samples in self.tails.take_passed(now):
            self._give(reader, samples)

    def _give(self, reader: ReaderKey, samples: Difference) -> None:
        """Deliver to a reader again those samples that it reads, in the order of their capture."""
        name_space_of = self._shared.core.name_space_of
        by_group = {
            group: by_instance(some)
            for group, some in samples.items()
            if (state := name_space_of(group)) is not None and state.name == reader.name_space
        }
        if groups := self._read_by(reader, by_group):
            self._shared.counters["repeated"] += sum(len(rows) for _, rows in groups)
            self._send(reader, [self._with_ends(*one) for one in groups], whole=False)

    def lost(self, writer: bytes) -> None:
        """Note a lost writer, which may come back."""
        self.tails.lost(writer, self._shared.clock.monotonic())

    def returned(self, writer: bytes) -> None:
        """Note a lost writer that is back."""
        self.tails.returned(writer, self._shared.clock.monotonic())

    def reader_keys(self, participant: str, topic: str, partitions: tuple[str, ...]) -> list[ReaderKey]:
        """Return one key for each name-space that a reader's partitions and topic touch.

        `participant` is the id of the reader's process.
        """
        wanted = partitions or ("",)
        return [
            ReaderKey(participant, topic, wanted, state.name)
            for state in self._shared.core.name_spaces
            if any(
                matches(element.topic, topic)
                and any(intersection(element.partition, partition) is not None for partition in wanted)
                for element in state.name_space.elements
            )
        ]

    def seen(self, reader: ReaderKey, hosts: frozenset[str]) -> None:
        """Note a durable reader that appeared in a process on the host with these addresses."""
        now = self._shared.clock.monotonic()
        self._since_ns.setdefault(reader, self._shared.clock.wall_ns())
        self._shared.core.reader_seen(reader, hosts, now)
        if self._shared.settings.hosts & hosts:
            self._shared.want(reader.name_space, reader.elements)

    def gone(self, reader: ReaderKey) -> None:
        """Forget the last durable reader of its kind in a process."""
        self.tails.forget(reader)
        if self._waiting.pop(reader, None) is not None:
            self._shared.tracer.event("deliver.reader-gone", reader=reader.participant, group=reader.text)
        self._got.pop(reader, None)
        self._joined.pop(reader, None)
        self._since_ns.pop(reader, None)
        self.deviations.pop(reader, None)
        self._shared.core.reader_gone(reader)

    def taken_over(self, reader: ReaderKey) -> None:
        """Take charge of a served reader, because the former node is lost or on another host."""
        if self.on_taken_over is not None:
            self.on_taken_over(reader)

    def handed_over(self, reader: ReaderKey) -> None:
        """Hand a reader over to another node, which keeps its instances ALIVE."""
        if self.on_handed_over is not None:
            self.on_handed_over(reader)

    def joined(self, reader: ReaderKey, end: bytes) -> None:
        """Note another durable reader of a kind in a process, with its GUID.

        A delivery reaches all readers of the process. So the process is served again only if the reader came
        too late for the last delivery or the one under way.
        """
        if reader in self._waiting:
            self._joined.setdefault(reader, set()).add(end)
        elif end not in self._got.get(reader, ()):
            self._shared.core.reader_joined(reader, self._shared.clock.monotonic())

    def deliver(self, reader: ReaderKey) -> None:
        """Deliver the complete set to a reader."""
        held = self._shared.spaces[reader.name_space].working.groups
        groups = [
            (self._shared.descriptions[group], held[group].samples())
            for group in sorted(self._shared.groups_of.get(reader.topic, ()))
            if group in held and held[group].count and _reads(reader, group)
        ]
        self.tails.set_taken(reader, self._shared.clock.monotonic())
        self._send(reader, groups, whole=True)
        self._note_overtaken(reader, groups)

    def show(self, name_space: str, difference: Difference, *, missed: bool = False) -> None:
        """Deliver what a merge brought to durability clients and the readers in this node's charge.

        Samples that only this node `missed` go to readers that came after them, because older readers have
        them from the writer, unless the writer was away from this host.
        """
        if self.on_difference is not None:
            self.on_difference(name_space, difference)
        readers = self._shared.core.in_charge_of(name_space)
        if missed:
            self._note_missed(readers, difference)
        for reader in readers:
            since_ns = self._since_ns.get(reader) if missed else None
            groups = self._read_by(reader, difference, since_ns)
            if groups:
                self._send(reader, [self._with_ends(*one) for one in groups], whole=False)
                self._note_older(reader, groups)

    def _note_missed(self, readers: Sequence[ReaderKey], difference: Difference) -> None:
        """Remember samples that readers should have from living writers, which may be lost already."""
        now = self._shared.clock.monotonic()
        since_ns = min((self._since_ns.get(reader, 0) for reader in readers), default=FOREVER_NS)
        for group, samples in difference.items():
            living = self.living(group)
            taken = (s for s in samples if s.source_time_ns >= since_ns and s.writer in living)
            self.tails.missed(group, (sample for sample in taken if not self.was_away(sample)), now)

    def show_replaced(self, name_space: str, replaced: Replacement) -> None:
        """Deliver the set that replaced the one that readers and durability clients have."""
        if self.on_replaced is not None:
            self.on_replaced(name_space, replaced.told)
        owned = {
            group: {key for key, writer in owners.items() if writer in self.living(group)}
            for group, owners in replaced.owners.items()
        }
        for reader in self._shared.core.in_charge_of(name_space):
            if count := sum(len(keys) for group, keys in owned.items() if _reads(reader, group)):
                self.deviates(reader, "owned", count)
            if groups := self._read_by(reader, replaced.instead):
                self._send(reader, groups, whole=False, how=ReplacingDelivery(replaced.times))
                self._note_later(reader, groups, replaced.times, owned)
            if groups := self._read_by(reader, replaced.new):
                self._send(reader, groups, whole=False)

    def _read_by(self, reader: ReaderKey, difference: Difference, since_ns: int | None = None) -> Groups:
        """Return what a reader reads of a difference; with `since_ns`, only older samples."""
        return [
            (self._shared.descriptions[group], SampleRows.of(shown))
            for group, samples in sorted(difference.items(), key=lambda item: item[0])
            if _reads(reader, group)
            and (
                shown := [
                    s for s in samples if since_ns is None or s.source_time_ns < since_ns or self.was_away(s)
                ]
            )
        ]

    def _with_ends(
        self, description: GroupDescription, rows: SampleRows
    ) -> tuple[GroupDescription, SampleRows]:
        """Extend samples to the newest of their instances; readers by reception see the last one."""
        state = self._shared.core.name_space_of(description.group)
        if description.qos.by_source_timestamp or state is None:
            return description, rows
        group_set = self._shared.spaces[state.name].working.groups[description.group]
        ended: list[Sample] = []
        for some in instances(rows):
            history = group_set.instance(some[0].key)
            known = [at for at, sample in enumerate(history) if sample in some]
            ended += history[known[0] if known else 0 :] or some
        return description, SampleRows.of(ended)

    def _note_later(
        self,
        reader: ReaderKey,
        groups: Groups,
        times: Mapping[Group, Mapping[bytes, int]],
        owned: Mapping[Group, set[bytes]],
    ) -> None:
        for description, rows in groups:
            later, refused = times[description.group], owned.get(description.group, ())
            shown = [sample for sample in rows if sample.key not in refused]
            count = sum(sample.source_time_ns < later[sample.key] for sample in shown)
            if count:
                self.deviates(reader, "shown_later", count)

    def _note_older(self, reader: ReaderKey, groups: Groups) -> None:
        """Count samples that readers by source time refuse, because they may have newer ones."""
        working = self._shared.spaces[reader.name_space].working
        count = 0
        for description, rows in groups:
            if not description.qos.by_source_timestamp:
                continue
            group_set = working.groups[description.group]
            new = set(rows.each_digest())
            for history in instances(rows):
                kept = group_set.instance(history[0].key)
                known_ns = max((one.source_time_ns for one in kept if one.digest not in new), default=-1)
                count += sum(sample.source_time_ns < known_ns for sample in history)
        if count:
            self.deviates(reader, "refused_older", count)

    def _note_overtaken(self, reader: ReaderKey, groups: Groups) -> None:
        """Count samples that a late joiner by source time refuses if it gets a later write first."""
        since_ns = self._since_ns.get(reader, FOREVER_NS)
        working = self._shared.spaces[reader.name_space].working
        count = 0
        for description, rows in groups:
            if description.qos.by_source_timestamp:
                histories = map(
                    working.groups[description.group].instance, {s.key for s in rows.after(since_ns)}
                )
                count += sum(s.source_time_ns < since_ns for history in histories for s in history)
        if count:
            self.deviates(reader, "refused_older", count)

    def deviates(self, reader: ReaderKey, cause: str, count: int) -> None:
        """Count deviations of what a reader sees from the set; for the causes see DEVIATIONS."""
        self._shared.counters[cause] += count
        self.deviations.setdefault(reader, collections.Counter())[cause] += count
        self._shared.tracer.event(
            "deliver.deviates",
            reader=reader.participant,
            group=reader.text,
            count=count,
            reason=DEVIATIONS[cause],
        )

    def show_again(self, reader: ReaderKey, groups: Groups, again: RevivingDelivery) -> None:
        """Deliver samples that make instances with a living writer ALIVE again."""
        if groups:
            self._send(reader, groups, whole=False, how=again)

    def _send(self, reader: ReaderKey, groups: Groups, *, whole: bool, how: _How = None) -> None:
        """Queue a delivery; those to one reader go out one after the other, to keep their order."""
        groups = _once(groups)
        waiting = self._waiting.get(reader)
        if waiting is None:
            self._waiting[reader] = collections.deque()
            self._begin(reader, groups, whole=whole, how=how)
        else:
            waiting.append((groups, whole, how))

    def unexpired(self, description: GroupDescription, rows: SampleRows) -> SampleRows:
        """Return the samples of a group whose lifespan is not over now, by the clock of this node.

        The others are counted. An instance of which nothing else is kept is not given at all: DDS 1.4,
        2.2.3.16 removes expired data from all caches, and a reader does not learn an instance without data.
        """
        if not description.qos.lifespans or not rows:
            return rows
        now_ns, is_expired = self._shared.clock.wall_ns(), self._shared.lifespans.is_expired
        left = [
            sample
            for sample in rows
            if not is_expired(sample.writer, sample.status, sample.source_time_ns, now_ns)
        ]
        if len(left) == len(rows):
            return rows
        count = len(rows) - len(left)
        self._shared.counters["expired"] += count
        self._shared.tracer.event("deliver.expired", group=description.group, count=count)
        return SampleRows.of(left)

    def _begin(self, reader: ReaderKey, groups: Groups, *, whole: bool, how: _How) -> None:
        current = ((description, self.unexpired(description, rows)) for description, rows in groups)
        groups = [(description, rows) for description, rows in current if rows]
        count = sum(len(samples) for _, samples in groups)
        self._shared.tracer.event(
            "deliver.started", group=reader.text, reader=reader.participant, samples=count
        )
        self.tails.begins(reader, groups, has_all=whole or isinstance(how, RevivingDelivery))
        self._shared.wire.deliver(reader, groups, whole=whole, how=how)

    def _next(self, reader: ReaderKey) -> None:
        waiting = self._waiting.get(reader)
        if waiting:
            groups, whole, how = waiting.popleft()
            self._begin(reader, groups, whole=whole, how=how)
        else:
            self._waiting.pop(reader, None)

    def rejected(self, group: Group, attempt: int) -> None:
        """Count a group for which a late joiner had no room; the wire tries again (guide 5.5.8)."""
        self._shared.counters["resent"] += 1
        if attempt == 1:
            self._shared.tracer.event("align.rejected", group=group, code="V_REJECTED")

    def delivered(self, reader: ReaderKey, result: Delivered, *, whole: bool) -> None:
        """Take the result of `Wire.deliver`. `whole` is repeated from there."""
        shared = self._shared
        self.tails.ended(reader, shared.clock.monotonic())
        self._next(reader)
        shared.counters["delivered"] += result.samples
        group = reader.text
        if result.resent and not result.problem:
            shared.tracer.event("align.resent", group=group)
        for text in result.refused:
            shared.counters["refused"] += 1
            shared.tracer.event("group.qos-mismatch", group=group, endpoint=reader.participant, cause=text)
        if result.problem:
            reason = f"{result.problem}; trying again"
            shared.tracer.event("deliver.waiting", reader=reader.participant, group=group, reason=reason)
            if result.samples:  # what arrived before will arrive again
                shared.counters["repeated"] += result.samples
                shared.tracer.event(
                    "deliver.repeated", count=result.samples, group=group, process=reader.participant
                )
        else:
            shared.tracer.event(
                "deliver.finished",
                group=group,
                reader=reader.participant,
                samples=result.samples,
                elapsed_ns=result.elapsed_ns,
            )
        now = shared.clock.monotonic()
        if result.not_kept:
            self.deviates(reader, "not_kept", result.not_kept)
        if whole and not result.problem:
            self._got[reader] = result.readers
        if whole:
            shared.core.delivered(reader, now, done=not result.problem)
        elif result.problem:
            shared.core.serve_again(reader, now)
        if reader not in self._waiting:
            for end in self._joined.pop(reader, ()):
                self.joined(reader, end)


def _reads(reader: ReaderKey, group: Group) -> bool:
    return is_given(group, reader.topic, reader.partitions)


def _once(groups: Groups) -> Groups:
    """Return groups in which a sample that was written in several partitions occurs once."""
    if len(groups) < 2:
        return groups
    seen: set[bytes] = set()
    result: Groups = []
    for description, samples in groups:
        fresh = samples.without(seen)
        seen.update(fresh.each_digest())
        if fresh:
            result.append((description, fresh))
    return result
