"""Deliver to late joiners the whole set once, and afterwards what merges bring (guide 5.4.7).

A delivery reaches all readers of a topic and partition in a process, whatever their participants are. So
deliveries to one *place*, a process and topic, go out one after the other, and each remembers which readers
got which groups: a reader that was there when an earlier delivery began needs no delivery of its own. What a
reader gets once more because of another one is counted as `repeated`: for each reader by reception, all
samples; for one by source time, those of instances without a living writer, which Cyclone DDS has forgotten
where the application took them. The count is exact for readers that take their samples. It is an upper bound
for a reader that got a part only: its delivery broke off, or it came in the middle of one.

While a delivery is under way the applications go on writing. `Tails` keeps the samples captured meanwhile
that readers must get again after it, because nobody can know whether they got them from their writer:

- The tail of a set: a living writer begins to send to a new reader at about the time at which this node
  discovers the reader; the exact time is unknown.
- The tail of a return: this node may hear a writer that is back before the readers of its host do, and before
  discovery reports the writer.
- Missed samples that came from another node before the loss of their writer was known: readers of this host
  may have missed them, too.
- Overtaken samples: readers ordered by reception may get a delivered sample after a newer one that the writer
  sent meanwhile, and would see the older one last.

A repeated sample is counted and shown; a lost one would be neither.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from engine.core.expressions import intersection, matches
from engine.core.messages import Place, ReaderKey
from engine.core.name_spaces import Group
from engine.core.purging import FOREVER_NS
from engine.core.readers import MAX_FORMER
from engine.dataset.groups import GroupDescription, is_given
from engine.dataset.living import by_instance, instances
from engine.dataset.sample import UNREGISTER, Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.monitor import DEVIATIONS
from engine.runtime.name_space_data import Difference
from engine.runtime.ports import Delivered, ReplacingDelivery, RevivingDelivery
from engine.runtime.replacing import Replacement
from engine.runtime.shared_state import SharedState

_How: TypeAlias = RevivingDelivery | ReplacingDelivery | None

Groups = list[tuple[GroupDescription, SampleRows]]

_PARTICIPANT: Final = bytes.fromhex("000001c1")
"""Entity id of participants, the end of their GUIDs (RTPS 2.5, 9.3.1.3)."""


class _Outgoing(msgspec.Struct, frozen=True):
    """A delivery.

    Attributes:
        reader: whose groups it has.
        groups: the groups and their samples.
        whole: whether it is the whole set.
        how: how samples are shown that readers have had before.
        is_again: whether readers may have had the samples, or not.
        reduced: groups without the samples that are in others of them, too.
    """

    reader: ReaderKey
    groups: Groups
    whole: bool
    how: _How
    is_again: bool
    reduced: frozenset[Group]


class _PlaceState(msgspec.Struct):
    """The deliveries to a place.

    Attributes:
        ends: GUIDs of its readers, by their keys, in the order of discovery.
        sets: the groups of the last whole set for each key.
        got: GUIDs of the readers that have a group's set, whole.
        begun: GUIDs of the readers that have at least a part of some set, or all that there was.
        late: readers that came too late for the delivery under way.
        joined: readers that came during the delivery under way, with their keys.
        whole: whose set was delivered last, or is under way.
        current: the delivery under way.
        waiting: those after it.
    """

    ends: dict[ReaderKey, dict[bytes, None]] = msgspec.field(default_factory=dict)
    sets: dict[ReaderKey, tuple[Group, ...]] = msgspec.field(default_factory=dict)
    got: dict[Group, set[bytes]] = msgspec.field(default_factory=dict)
    begun: set[bytes] = msgspec.field(default_factory=set)
    late: set[bytes] = msgspec.field(default_factory=set)
    joined: dict[bytes, ReaderKey] = msgspec.field(default_factory=dict)
    whole: ReaderKey | None = None
    current: _Outgoing | None = None
    waiting: collections.deque[_Outgoing] = msgspec.field(default_factory=collections.deque)


class LateJoinerDelivery:
    """The part of a runtime that serves readers."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.tails = Tails()
        self.on_difference: Callable[[str, Difference], None] | None = None
        """Called with the samples that a merge brought to a name-space."""
        self.on_replaced: Callable[[str, Difference], None] | None = None
        """Called with the samples for clients when another set replaced that of a name-space."""
        self.deviations: dict[ReaderKey, collections.Counter[str]] = {}
        """Counts of what readers see otherwise than it is in the set, by cause."""
        self._places: dict[Place, _PlaceState] = {}
        self._former: dict[bytes, None] = {}
        """GUIDs of readers that went away with at least a part of a set."""
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
        for reader, samples, left_out in self.tails.take_sets(now):
            self._shared.counters["not_given"] += left_out
            self._give({reader: samples})
        for tail in self.tails.take_returns(now):
            self._shared.counters["not_given"] += max(0, tail.count - MAX_TAIL)
            for state in self._shared.core.name_spaces if tail.noted else ():
                readers = self._shared.core.in_charge_of(state.name)
                self._give({reader: self.tails.lacking(reader, tail) for reader in readers})
        for reader, samples in self.tails.take_passed(now):
            self._give({reader: samples})

    def _give(self, samples: Mapping[ReaderKey, Difference]) -> None:
        """Deliver to readers again those samples that they read, in the order of their capture."""
        name_space_of = self._shared.core.name_space_of

        def read(reader: ReaderKey) -> Groups:
            by_group = {
                group: by_instance(some)
                for group, some in samples[reader].items()
                if (state := name_space_of(group)) is not None and state.name == reader.name_space
            }
            return [self._with_ends(*one) for one in self._read_by(reader, by_group)]

        for reader, groups in self._by_process(samples, read):
            self._send(reader, groups, whole=False, is_again=True)

    @staticmethod
    def _by_process(
        readers: Iterable[ReaderKey], read: Callable[[ReaderKey], Groups]
    ) -> Iterator[tuple[ReaderKey, Groups]]:
        """Yield readers with what they `read`; each group once for a process, all readers of which get it."""
        given: dict[Place, set[Group]] = {}
        for reader in readers:
            groups, reduced = _once(read(reader))
            known = given.setdefault(reader.place, set())
            if fresh := [one for one in groups if one[0].group not in known]:
                known.update(description.group for description, _ in fresh)
                known -= reduced
                yield reader, fresh

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
        place = self._places.get(reader.place)
        if place is not None:
            for end in list(place.ends.get(reader, ())):
                self.end_gone(reader, end)
            place.ends.pop(reader, None)
            place.waiting = collections.deque(one for one in place.waiting if one.reader != reader)
            if place.current is not None and place.current.reader == reader:
                self._shared.tracer.event("deliver.reader-gone", reader=self.name(reader), group=reader.text)
            if not place.ends:
                del self._places[reader.place]
        self._since_ns.pop(reader, None)
        self.deviations.pop(reader, None)
        self._shared.core.reader_gone(reader)

    def end_gone(self, reader: ReaderKey, end: bytes) -> None:
        """Forget a durable reader, by its GUID, of a kind; it may only be out of reach."""
        place = self._places.get(reader.place)
        if place is None:
            return
        if end in place.begun:
            self._former[end] = None
            if len(self._former) > MAX_FORMER:
                del self._former[next(iter(self._former))]
        place.ends.get(reader, {}).pop(end, None)
        place.joined.pop(end, None)
        for known in (place.begun, place.late, *place.got.values()):
            known.discard(end)

    def end_seen(self, reader: ReaderKey, end: bytes, *, is_further: bool) -> None:
        """Note a durable reader of a kind that was `seen`.

        A delivery reaches all readers of the process. So the process is served again only if a further reader
        came too late for the last delivery or the one under way.

        Args:
            reader: the kind.
            end: GUID of the reader.
            is_further: whether others of its kind may have been served before.
        """
        place = self._places.setdefault(reader.place, _PlaceState())
        place.ends.setdefault(reader, {})[end] = None
        if end in self._former:
            del self._former[end]
            place.begun.add(end)
        now = self._shared.clock.monotonic()
        # A delivery may reach it that began before it was known here. What is written between that set and
        # the first sample that it hears itself must then be in the tail of the set.
        is_late = place.whole is not None and not self.tails.extended(place.whole, now)
        if place.current is not None:
            if is_late:
                place.late.add(end)
            if is_further:
                place.joined[end] = reader
            return
        for known in place.got.values() if is_late else ():
            known.discard(end)
        if is_further and _lacks(place, reader, end):
            self._shared.core.reader_joined(reader, now)

    def is_present(self, reader: ReaderKey) -> bool:
        """Tell whether there are readers of a kind."""
        place = self._places.get(reader.place)
        return place is not None and bool(place.ends.get(reader))

    def participants(self, reader: ReaderKey) -> tuple[str, ...]:
        """Return the GUIDs of the participants with readers of a kind, the first to be discovered first."""
        place = self._places.get(reader.place)
        ends = place.ends.get(reader, ()) if place else ()
        return tuple(dict.fromkeys((end[:12] + _PARTICIPANT).hex() for end in ends)) or (reader.process,)

    def name(self, reader: ReaderKey) -> str:
        """Return the GUID by which the trace names readers of a kind."""
        return self.participants(reader)[0]

    def deliver(self, reader: ReaderKey, *, is_begun: bool = False) -> None:
        """Deliver the complete set to a reader; with `is_begun`, a lost node may have begun to."""
        if is_begun:
            self._note_begun(reader)
        held = self._shared.spaces[reader.name_space].working.groups
        groups = [
            (self._shared.descriptions[group], held[group].samples())
            for group in sorted(self._shared.groups_of.get(reader.topic, ()))
            if group in held and held[group].count and _reads(reader, group)
        ]
        self.tails.set_taken(reader, self._shared.clock.monotonic())
        self._send(reader, groups, whole=True)
        self._note_overtaken(reader, groups)

    def taken_over(self, reader: ReaderKey) -> None:
        """Take charge of a served reader, because the former node is lost or on another host."""
        self._note_begun(reader)
        self._shared.wire.alive.taken_over(reader)

    def _note_begun(self, reader: ReaderKey) -> None:
        """Note that readers of a kind may have what another node delivered."""
        place = self._places.get(reader.place)
        if place is not None:
            place.begun.update(place.ends.get(reader, ()))

    def show(self, name_space: str, difference: Difference, *, missed: bool = False) -> None:
        """Deliver what a merge brought to durability clients and the readers in this node's charge.

        Samples that only this node `missed` go to readers that came after them, because older readers have
        them from the writer, unless the writer was away from this host.
        """
        self.notify_clients(name_space, difference)
        readers = self._shared.core.in_charge_of(name_space)
        if missed:
            self._note_missed(readers, difference)
        if missed:  # of the readers of a process, the latest needs most
            readers = sorted(readers, key=lambda reader: self._since_ns.get(reader, 0), reverse=True)

        def read(reader: ReaderKey) -> Groups:
            return self._read_by(reader, difference, self._since_ns.get(reader) if missed else None)

        for reader, groups in self._by_process(readers, read):
            self._send(reader, [self._with_ends(*one) for one in groups], whole=False)
            self._note_older(reader, groups)

    def notify_clients(self, name_space: str, difference: Difference) -> None:
        """Tell durability clients of samples that other readers know from their own view of writers."""
        if self.on_difference is not None:
            self.on_difference(name_space, difference)

    def _note_missed(self, readers: Sequence[ReaderKey], difference: Difference) -> None:
        """Remember samples that readers should have from living writers, which may be lost already."""
        now, alive = self._shared.clock.monotonic(), self._shared.wire.alive
        since_ns = min((self._since_ns.get(reader, 0) for reader in readers), default=FOREVER_NS)
        for group, samples in difference.items():
            living = alive.living(group)
            taken = (s for s in samples if s.source_time_ns >= since_ns and s.writer in living)
            self.tails.missed(group, (sample for sample in taken if not alive.was_away(sample)), now)

    def show_replaced(self, name_space: str, replaced: Replacement) -> None:
        """Deliver the set that replaced the one that readers and durability clients have."""
        if self.on_replaced is not None:
            self.on_replaced(name_space, replaced.told)
        alive = self._shared.wire.alive
        owned = {
            group: {key for key, writer in owners.items() if writer in alive.living(group)}
            for group, owners in replaced.owners.items()
        }
        readers = self._shared.core.in_charge_of(name_space)
        for reader in readers:
            if count := sum(len(keys) for group, keys in owned.items() if _reads(reader, group)):
                self.deviates(reader, "owned", count)
        for reader, groups in self._by_process(readers, lambda one: self._read_by(one, replaced.instead)):
            self._send(reader, groups, whole=False, how=ReplacingDelivery(replaced.times))
            self._note_later(reader, groups, replaced.times, owned)
        for reader, groups in self._by_process(readers, lambda one: self._read_by(one, replaced.new)):
            self._send(reader, groups, whole=False)

    def _read_by(self, reader: ReaderKey, difference: Difference, since_ns: int | None = None) -> Groups:
        """Return what a reader reads of a difference; with `since_ns`, only older samples."""
        was_away = self._shared.wire.alive.was_away
        return [
            (self._shared.descriptions[group], SampleRows.coerce(shown))
            # By group: the same difference gives the same messages, and a simulated run can be repeated.
            for group, samples in sorted(difference.items(), key=lambda item: item[0])
            if _reads(reader, group)
            and (
                shown := [
                    s for s in samples if since_ns is None or s.source_time_ns < since_ns or was_away(s)
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
        return description, SampleRows.coerce(ended)

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
            reader=self.name(reader),
            group=reader.text,
            count=count,
            reason=DEVIATIONS[cause],
        )

    def _repeats(self, reader: ReaderKey, count: int) -> None:
        """Count samples that readers of a kind got once more."""
        self._shared.counters["repeated"] += count
        self.deviations.setdefault(reader, collections.Counter())["repeated"] += count
        self._shared.tracer.event(
            "deliver.repeated", count=count, group=reader.text, process=self.name(reader)
        )

    def show_again(self, reader: ReaderKey, groups: Groups, again: RevivingDelivery) -> None:
        """Deliver samples that make instances with a living writer ALIVE again."""
        if groups:
            self._send(reader, groups, whole=False, how=again)

    def _send(
        self, reader: ReaderKey, groups: Groups, *, whole: bool, how: _How = None, is_again: bool = False
    ) -> None:
        """Queue a delivery; those to one place go out one after the other, to keep their order."""
        groups, reduced = _once(groups)
        one = _Outgoing(reader, groups, whole, how, is_again, reduced)
        place = self._places.setdefault(reader.place, _PlaceState())
        place.ends.setdefault(reader, {})
        if place.current is None:
            self._begin(place, one)
        else:
            place.waiting.append(one)

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
        return SampleRows.coerce(left)

    def _begin(self, place: _PlaceState, one: _Outgoing) -> None:
        reader, groups = one.reader, one.groups
        ends = place.ends.get(reader, {})
        if one.whole:
            place.whole = reader
            place.sets[reader] = tuple(description.group for description, _ in groups)
        if one.whole and ends:  # a delivery to other readers of the place may have brought some of it
            groups = [each for each in groups if not ends.keys() <= place.got.get(each[0].group, set())]
        current = ((description, self.unexpired(description, rows)) for description, rows in groups)
        groups = [(description, rows) for description, rows in current if rows]
        place.current = msgspec.structs.replace(one, groups=groups)
        count = sum(len(samples) for _, samples in groups)
        self._shared.tracer.event(
            "deliver.started", group=reader.text, reader=self.name(reader), samples=count
        )
        self.tails.begins(reader, groups, has_all=one.whole or isinstance(one.how, RevivingDelivery))
        self._shared.wire.deliver(reader, groups, whole=one.whole, how=one.how)

    def rejected(self, group: Group, attempt: int) -> None:
        """Count a group for which a late joiner had no room; the wire tries again (guide 5.5.8)."""
        self._shared.counters["resent"] += 1
        if attempt == 1:
            self._shared.tracer.event("align.rejected", group=group, code="V_REJECTED")

    def delivered(self, reader: ReaderKey, result: Delivered, *, whole: bool) -> None:
        """Take the result of `Wire.deliver`. `whole` is repeated from there."""
        shared = self._shared
        now = shared.clock.monotonic()
        self.tails.ended(reader, now)
        shared.counters["delivered"] += result.samples
        group, name = reader.text, self.name(reader)
        if result.resent and not result.problem:
            shared.tracer.event("align.resent", group=group)
        for text in result.refused:
            shared.counters["refused"] += 1
            shared.tracer.event("group.qos-mismatch", group=group, endpoint=name, cause=text)
        if result.problem:
            reason = f"{result.problem}; trying again"
            shared.tracer.event("deliver.waiting", reader=name, group=group, reason=reason)
        else:
            shared.tracer.event(
                "deliver.finished",
                group=group,
                reader=name,
                samples=result.samples,
                elapsed_ns=result.elapsed_ns,
            )
        if result.not_kept:
            self.deviates(reader, "not_kept", result.not_kept)
        place = self._places.get(reader.place)
        ended = place.current if place else None
        if place is not None and ended is not None and ended.reader == reader:
            self._note_given(place, ended, result)
            place.current = None
        if whole:
            shared.core.delivered(reader, now, done=not result.problem)
        elif result.problem:
            shared.core.serve_again(reader, now)
        if place is not None and place.current is None:
            for end, key in place.joined.items():
                if _lacks(place, key, end):
                    shared.core.reader_joined(key, now)
            place.joined.clear()
            place.late.clear()
            if place.waiting:
                self._begin(place, place.waiting.popleft())

    def _note_given(self, place: _PlaceState, ended: _Outgoing, result: Delivered) -> None:
        """Note which readers have what a delivery brought, and count what they had before."""
        reader = ended.reader
        ours = place.ends.get(reader, {}).keys()
        is_repetition = ended.is_again or (isinstance(ended.how, RevivingDelivery) and not ended.how.writer)
        count = 0
        for given in result.given:
            by_source = given.readers - given.by_reception
            if is_repetition:
                count += given.samples * len(given.by_reception)
            elif ended.whole:
                count += given.samples * len(given.by_reception & place.begun)
                count += given.unwritten * len(by_source & place.begun)
            if ended.whole and not given.problem:
                # A reader of other partitions lacks what is in a group that it does not read.
                complete = given.readers & ours if given.group in ended.reduced else given.readers
                place.got.setdefault(given.group, set()).update(complete - place.late)
        if count:
            self._repeats(reader, count)
        if ended.whole:
            place.begun |= {end for given in result.given for end in given.readers | given.latecomers}
            if not result.problem:
                place.begun |= ours - place.late - (place.joined.keys() if ended.groups else set())
        elif result.problem:  # the whole set must replace what is lacking now
            complete_groups = {given.group for given in result.given if not given.problem}
            for description, _ in ended.groups:
                if description.group not in complete_groups:
                    place.got.pop(description.group, None)


def _lacks(place: _PlaceState, reader: ReaderKey, end: bytes) -> bool:
    """Whether a reader was not there when the last whole set for its key was delivered."""
    groups = place.sets.get(reader, ())
    return any(end not in place.got.get(group, ()) for group in groups) if groups else end not in place.begun


def _reads(reader: ReaderKey, group: Group) -> bool:
    return is_given(group, reader.topic, reader.partitions)


def _once(groups: Groups) -> tuple[Groups, frozenset[Group]]:
    """Return groups in which a sample that was written in several partitions occurs once.

    Those that lack samples for that reason are named.
    """
    if len(groups) < 2:
        return groups, frozenset()
    seen: set[bytes] = set()
    result: Groups = []
    reduced: set[Group] = set()
    for description, samples in groups:
        fresh = samples.without(seen)
        seen.update(fresh.each_digest())
        if len(fresh) < len(samples):
            reduced.add(description.group)
        if fresh:
            result.append((description, fresh))
    return result, frozenset(reduced)


# A sample that was written before the set was taken is captured within the look at the taps
# (`engine.node.intake.CALM_S`, 100 ms).
TAIL_S: Final = 0.1
"""Seconds after a set was taken for which its reader also gets captured samples."""
READERS_S: Final = 1.25
"""Seconds after a set was taken for which a further reader may get it with the same delivery.

A delivery waits for the readers of a process for at most 1 s (`engine.dds.directed.LONGEST_UNREST_S`).
"""
RETURN_S: Final = 3.0
"""Seconds after a writer's return for which readers get its samples again.

A writer finds the readers of a host one by one; a second, short network cut without a lost lease delays that.
"""
# As `TAIL_S`: the longest time from a write to its capture.
LATE_S: Final = 0.1
"""Seconds after a delivery in which samples may be captured that its reader had before its end."""
# Two looks at the taps: then a newer sample of the writer has been captured, if there is one.
PASSED_S: Final = 0.2
"""Seconds after that to wait whether the writer itself sends a newer sample."""
# Three times the default lease of Cyclone DDS, after which the loss of a writer is known.
MISSED_S: Final = 30.0
"""Seconds for which a missed sample is kept in case its writer turns out to be lost."""
# Chosen, as the other memories of writers.
MAX_LOST: Final = 10_000
"""Lost writers remembered."""
# Chosen: more than comes in `TAIL_S`. They are kept for each delivery, by reference.
MAX_TAIL: Final = 10_000
"""Samples of one tail; further ones are counted as not given."""


class _Tail(msgspec.Struct):
    """Samples captured since a reader's set was taken, or since a writer is back.

    Attributes:
        until_s: when it is due; infinite if it only waits for more readers.
        closes_s: when it ends, for the tail of a set.
        taken: number of the last sample that was given.
        left_out: samples that could not be given.
    """

    until_s: float
    closes_s: float = math.inf
    taken: int = 0
    left_out: int = 0
    count: int = 0
    noted: list[tuple[int, Group, Sample]] = msgspec.field(default_factory=list)

    def add(self, number: int, group: Group, sample: Sample) -> None:
        """Add a sample, by its number; beyond `MAX_TAIL` only count it."""
        self.count += 1
        if self.count <= MAX_TAIL:
            self.noted.append((number, group, sample))

    def after(self, number: int) -> Difference:
        """Return the samples with higher numbers."""
        samples: Difference = {}
        for at, group, sample in self.noted:
            if at > number:
                samples.setdefault(group, []).append(sample)
        return samples


class _Passed(msgspec.Struct):
    """The instances in a delivery (None for a whole group), and their samples captured meanwhile."""

    keys: dict[Group, frozenset[bytes] | None]
    newer: dict[Group, dict[bytes, Sample]] = msgspec.field(default_factory=dict)
    closes_s: float = math.inf
    until_s: float = math.inf

    @property
    def next_s(self) -> float:
        """Time of the next action."""
        return min(self.closes_s, self.until_s)

    def close(self, now: float) -> None:
        """End the delivery: from now on the reader gets captured samples after the delivered ones."""
        self.closes_s = math.inf
        self.until_s = now + PASSED_S if any(self.newer.values()) else 0.0

    def add(self, group: Group, sample: Sample) -> None:
        """Note the newest sample of an instance; a later one makes the repetition unnecessary."""
        keys = self.keys.get(group, _NONE)
        if keys is None or sample.key in keys:
            newer = self.newer.setdefault(group, {})
            if self.until_s < math.inf:
                newer.pop(sample.key, None)
            elif sample.status != UNREGISTER and (len(newer) < MAX_TAIL or sample.key in newer):
                newer[sample.key] = sample


_NONE: Final[frozenset[bytes]] = frozenset()


class Tails:
    """The repetitions of one node; true while they need all captured samples."""

    def __init__(self) -> None:
        self._sets: dict[ReaderKey, _Tail] = {}
        self._lost: dict[bytes, _Tail] = {}
        self._missed: dict[bytes, _Tail] = {}
        self._returns: dict[bytes, _Tail] = {}
        self._passed: dict[ReaderKey, _Passed] = {}
        self._number = 0
        """Samples noted so far."""
        self._has: dict[ReaderKey, int] = {}
        """Number of the last sample that readers have, with all before it, from their set and its tail."""

    def __bool__(self) -> bool:
        return bool(self._sets or self._returns or self._passed)

    @property
    def next_s(self) -> float | None:
        """Time of the next action; None if there is none."""
        if not (self._sets or self._returns or self._passed):
            return None
        dues = [min(tail.until_s, tail.closes_s) for tail in (*self._sets.values(), *self._returns.values())]
        until_s = min([*dues, *(passed.next_s for passed in self._passed.values())], default=math.inf)
        return None if until_s == math.inf else until_s

    def set_taken(self, reader: ReaderKey, now: float) -> None:
        """Begin the tail of a set that was taken for a reader."""
        self._sets[reader] = _Tail(now + TAIL_S, now + READERS_S)
        self._has[reader] = self._number

    def extended(self, reader: ReaderKey, now: float) -> bool:
        """Extend the tail of a reader's set for a further reader; False if that is not possible any more."""
        tail = self._sets.get(reader)
        if tail is None or tail.count > MAX_TAIL:
            return False
        tail.until_s = now + TAIL_S
        return True

    def lost(self, writer: bytes, now: float) -> None:
        """Note a lost writer: samples of it from now on mean that it is back.

        The tail of its last return is due at once.
        """
        missed = self._missed.pop(writer, None)
        if missed is not None and now < missed.until_s:
            self._return(writer, missed)
        if (tail := self._returns.get(writer)) is not None:
            tail.until_s = 0.0
        self._lost[writer] = _Tail(math.inf)
        if len(self._lost) > MAX_LOST:
            del self._lost[next(iter(self._lost))]

    def returned(self, writer: bytes, now: float) -> None:
        """Begin the tail of a writer that is back."""
        since = self._lost.pop(writer, _Tail(now))
        self._return(writer, since).until_s = now + RETURN_S

    def _return(self, writer: bytes, tail: _Tail) -> _Tail:
        """Queue a tail of a writer, after the one that waits already."""
        if (former := self._returns.get(writer)) is not None:
            former.count += tail.count
            former.noted.extend(tail.noted)
            return former
        self._returns[writer] = tail
        return tail

    def missed(self, group: Group, samples: Iterable[Sample], now: float) -> None:
        """Note samples from another node that readers should have from their living writers.

        If this node hears nothing more of such a writer until it is lost, readers have missed them, too.
        """
        self._missed = {writer: tail for writer, tail in self._missed.items() if now < tail.until_s}
        for sample in samples:
            self._number += 1
            if sample.writer in self._missed or len(self._missed) < MAX_LOST:
                self._missed.setdefault(sample.writer, _Tail(now + MISSED_S)).add(self._number, group, sample)

    def wants(self, writer: bytes) -> bool:
        """Whether `captured` needs the samples of a writer."""
        if self._sets or self._returns or self._passed:
            return True
        return writer in self._lost or writer in self._missed

    def begins(
        self, reader: ReaderKey, groups: Iterable[tuple[GroupDescription, SampleRows]], *, has_all: bool
    ) -> None:
        """Begin a delivery; with `has_all` it has every instance of its groups."""
        keys = {
            description.group: None if has_all else frozenset(sample.key for sample in rows)
            for description, rows in groups
            if not description.qos.by_source_timestamp
        }
        if not keys:
            return
        former = self._passed.get(reader)
        passed = self._passed[reader] = _Passed(keys)
        if former is not None:
            passed.newer = former.newer
            for group, some in former.keys.items():
                more = keys.get(group, _NONE)
                keys[group] = None if some is None or more is None else some | more

    def ended(self, reader: ReaderKey, now: float) -> None:
        """End a delivery."""
        if (passed := self._passed.get(reader)) is not None:
            passed.closes_s, passed.until_s = now + LATE_S, math.inf

    def forget(self, reader: ReaderKey) -> None:
        """Forget a reader."""
        self._sets.pop(reader, None)
        self._passed.pop(reader, None)
        self._has.pop(reader, None)

    def captured(self, group: Group, sample: Sample) -> None:
        """Take a captured sample."""
        self._number += 1
        self._missed.pop(sample.writer, None)
        for reader, tail in self._sets.items():
            if is_given(group, reader.topic, reader.partitions):
                tail.add(self._number, group, sample)
        if (tail_of := self._lost.get(sample.writer) or self._returns.get(sample.writer)) is not None:
            tail_of.add(self._number, group, sample)
        for passed in self._passed.values():
            passed.add(group, sample)

    def take_sets(self, now: float) -> Iterator[tuple[ReaderKey, Difference, int]]:
        """Take what is due for readers whose set was taken, and the number of samples that were too many."""
        for reader, tail in list(self._sets.items()):
            if now >= tail.until_s:
                samples, tail.taken = tail.after(tail.taken), self._number
                left_out, tail.left_out = tail.left_out, max(0, tail.count - MAX_TAIL)
                if not tail.left_out:
                    self._has[reader] = self._number
                tail.until_s = math.inf
                yield reader, samples, tail.left_out - left_out
            if now >= tail.closes_s and tail.until_s == math.inf:
                del self._sets[reader]

    def take_returns(self, now: float) -> Iterator[_Tail]:
        """Take the tails that are due of writers that are back; readers get what they are `lacking`."""
        for writer in [writer for writer, tail in self._returns.items() if now >= tail.until_s]:
            yield self._returns.pop(writer)

    def lacking(self, reader: ReaderKey, tail: _Tail) -> Difference:
        """Return the samples of a tail that a reader has neither from its set nor from that set's tail."""
        return tail.after(self._has.get(reader, 0))

    def take_passed(self, now: float) -> Iterator[tuple[ReaderKey, Difference]]:
        """Take samples that readers may have seen before older ones; call it when nothing waits."""
        for passed in self._passed.values():
            if now >= passed.closes_s:
                passed.close(now)
        for reader in [reader for reader, passed in self._passed.items() if now >= passed.until_s]:
            newer = self._passed.pop(reader).newer
            if again := {group: list(samples.values()) for group, samples in newer.items() if samples}:
                yield reader, again
