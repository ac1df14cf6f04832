"""Giving data to late joiners: the whole set once, and afterwards what merges bring (guide 5.4.7).

A living writer begins to send to a new reader at about the time at which we see that reader; nobody else
knows exactly when. What is written in the moments after the set was taken is therefore given once more: a
sample that arrives twice is counted and shown, a sample that is lost would be neither.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core.expressions import intersection, matches
from engine.core.messages import ReaderKey
from engine.core.namespaces import Group
from engine.dataset.groups import is_given
from engine.dataset.living import instances
from engine.dataset.rows import Rows
from engine.dataset.sample import Sample
from engine.runtime.monitor import DEVIATIONS
from engine.runtime.ports import Instead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from engine.dataset.groups import GroupDescription
    from engine.runtime.holdings import Holdings
    from engine.runtime.ports import Again, Delivered
    from engine.runtime.replacing import Replaced
    from engine.runtime.sets import Difference

    _How: TypeAlias = Again | Instead | None

Groups = list[tuple["GroupDescription", Rows]]

TAIL_S: Final = 0.1
"""How long after a set was taken what is captured is given to its reader, too."""
MAX_TAIL: Final = 10_000
"""Samples of one such moment; more are counted as not given."""


@dataclasses.dataclass(slots=True)
class _Tail:
    """What was captured since a reader's set was taken."""

    until_s: float
    samples: dict[Group, list[Sample]] = dataclasses.field(default_factory=dict)
    count: int = 0


class Serving:
    """The readers' side of a holdings."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self.tails: dict[ReaderKey, _Tail] = {}
        self.on_difference: Callable[[str, Difference], None] | None = None
        self.on_taken_over: Callable[[ReaderKey], None] | None = None
        self.deviations: dict[ReaderKey, collections.Counter[str]] = {}
        self._waiting: dict[ReaderKey, collections.deque[tuple[Groups, bool, _How]]] = {}
        self._got: dict[ReaderKey, frozenset[bytes]] = {}
        self._joined: dict[ReaderKey, set[bytes]] = {}
        self._since_ns: dict[ReaderKey, int] = {}

    @property
    def next_s(self) -> float | None:
        """When `work` has something to do."""
        return min(tail.until_s for tail in self.tails.values()) if self.tails else None

    def captured(self, group: Group, sample: Sample) -> None:
        """A sample was taken in while `tails` is not empty."""
        for reader, tail in self.tails.items():
            if _reads(reader, group):
                tail.count += 1
                if tail.count <= MAX_TAIL:
                    tail.samples.setdefault(group, []).append(sample)

    def work(self, now: float) -> None:
        """Give readers what was captured in the moments after their set was taken."""
        for reader in [reader for reader, tail in self.tails.items() if now >= tail.until_s]:
            tail = self.tails.pop(reader)
            groups = [
                (self._holdings.descriptions[group], Rows.of(samples))
                for group, samples in tail.samples.items()
            ]
            if groups:
                self._holdings.counters["repeated"] += min(tail.count, MAX_TAIL)
                self._holdings.counters["not_given"] += max(0, tail.count - MAX_TAIL)
                self._send(reader, groups, whole=False)

    def reader_keys(self, participant: str, topic: str, partitions: tuple[str, ...]) -> list[ReaderKey]:
        """What must be served to a reader, by name-space: those that its partitions and topic touch."""
        wanted = partitions or ("",)
        return [
            ReaderKey(participant, topic, wanted, state.name)
            for state in self._holdings.core.name_spaces
            if any(
                matches(element.topic, topic)
                and any(intersection(element.partition, partition) is not None for partition in wanted)
                for element in state.name_space.elements
            )
        ]

    def seen(self, reader: ReaderKey, hosts: frozenset[str]) -> None:
        """A durable reader appeared in a process on the host that has these addresses."""
        now = self._holdings.clock.monotonic()
        self._since_ns.setdefault(reader, self._holdings.clock.wall_ns())
        self._holdings.core.reader_seen(reader, hosts, now)
        if self._holdings.settings.hosts & hosts:
            self._holdings.core.wanted(reader.name_space, now)

    def gone(self, reader: ReaderKey) -> None:
        """The last durable reader of its kind in a process went away."""
        self.tails.pop(reader, None)
        if self._waiting.pop(reader, None) is not None:
            self._holdings.tracer.event("deliver.reader-gone", reader=reader.participant, group=_text(reader))
        self._got.pop(reader, None)
        self._joined.pop(reader, None)
        self._since_ns.pop(reader, None)
        self.deviations.pop(reader, None)
        self._holdings.core.reader_gone(reader)

    def taken_over(self, reader: ReaderKey) -> None:
        """This node is in charge of a served reader now, because the one that was is gone."""
        if self.on_taken_over is not None:
            self.on_taken_over(reader)

    def joined(self, reader: ReaderKey, end: bytes) -> None:
        """One more durable reader of a kind appeared in a process, with this GUID.

        What is delivered reaches all readers of the process. So it is served again only if it came too late
        for the last delivery, or for the one that is on its way.
        """
        if reader in self._waiting:
            self._joined.setdefault(reader, set()).add(end)
        elif end not in self._got.get(reader, ()):
            self._holdings.core.reader_joined(reader, self._holdings.clock.monotonic())

    def deliver(self, reader: ReaderKey) -> None:
        """Give a reader the complete set."""
        working = self._holdings.spaces[reader.name_space].working
        groups = [
            (self._holdings.descriptions[group], group_set.samples())
            for group, group_set in sorted(working.groups.items())
            if group_set.count and _reads(reader, group)
        ]
        self.tails[reader] = _Tail(self._holdings.clock.monotonic() + TAIL_S)
        self._send(reader, groups, whole=True)

    def show(self, name_space: str, difference: Difference, *, missed: bool = False) -> None:
        """Give the readers in this node's charge, and durability clients, what a merge brought.

        What a node had only `missed`, readers that were there when it was written have from its writer.
        """
        if self.on_difference is not None:
            self.on_difference(name_space, difference)
        for reader in self._holdings.core.in_charge_of(name_space):
            since_ns = self._since_ns.get(reader) if missed else None
            groups = self._read_by(reader, difference, since_ns)
            if groups:
                self._send(reader, groups, whole=False)
                self._note_older(reader, groups)

    def show_replaced(self, name_space: str, difference: Difference, replaced: Replaced) -> None:
        """Show that another set took the place of the one that readers and durability clients have."""
        if self.on_difference is not None:
            self.on_difference(name_space, difference)
        for reader in self._holdings.core.in_charge_of(name_space):
            if groups := self._read_by(reader, replaced.instead):
                self._send(reader, groups, whole=False, how=Instead(replaced.times))
                self._note_later(reader, groups, replaced.times)
            if groups := self._read_by(reader, replaced.new):
                self._send(reader, groups, whole=False)

    def _read_by(self, reader: ReaderKey, difference: Difference, since_ns: int | None = None) -> Groups:
        """What a reader reads of a difference, and is older than it where that counts."""
        return [
            (self._holdings.descriptions[group], Rows.of(shown))
            for group, samples in sorted(difference.items(), key=lambda item: item[0])
            if _reads(reader, group)
            and (shown := [s for s in samples if since_ns is None or s.source_time_ns < since_ns])
        ]

    def _note_later(
        self, reader: ReaderKey, groups: Groups, times: Mapping[Group, Mapping[bytes, int]]
    ) -> None:
        for description, rows in groups:
            later = times[description.group]
            count = sum(sample.source_time_ns < later[sample.key] for sample in rows)
            if count:
                self.deviates(reader, "shown_later", count)

    def _note_older(self, reader: ReaderKey, groups: Groups) -> None:
        """Count what is not the newest of its instance: readers by source time have something newer."""
        working = self._holdings.spaces[reader.name_space].working
        count = 0
        for description, rows in groups:
            if not description.qos.by_source_timestamp or description.qos.history_depth == 1:
                continue
            group_set = working.groups[description.group]
            new = set(rows.each_digest())
            for history in instances(rows):
                kept = group_set.instance(history[0].key)
                known_ns = max((one.source_time_ns for one in kept if one.digest not in new), default=-1)
                count += sum(sample.source_time_ns < known_ns for sample in history)
        if count:
            self.deviates(reader, "refused_older", count)

    def deviates(self, reader: ReaderKey, cause: str, count: int) -> None:
        """Count what a reader sees otherwise than it is in the set; for the causes see DEVIATIONS."""
        self._holdings.counters[cause] += count
        self.deviations.setdefault(reader, collections.Counter())[cause] += count
        self._holdings.tracer.event(
            "deliver.deviates",
            reader=reader.participant,
            group=_text(reader),
            count=count,
            reason=DEVIATIONS[cause],
        )

    def show_again(self, reader: ReaderKey, groups: Groups, again: Again) -> None:
        """Let a reader see instances ALIVE again that have a living writer."""
        if groups:
            self._send(reader, groups, whole=False, how=again)

    def _send(self, reader: ReaderKey, groups: Groups, *, whole: bool, how: _How = None) -> None:
        """Deliver, one after the other for each reader: what is newer must not overtake what is older."""
        groups = _once(groups)
        waiting = self._waiting.get(reader)
        if waiting is None:
            self._waiting[reader] = collections.deque()
            self._begin(reader, groups, whole=whole, how=how)
        else:
            waiting.append((groups, whole, how))

    def _begin(self, reader: ReaderKey, groups: Groups, *, whole: bool, how: _How) -> None:
        count = sum(len(samples) for _, samples in groups)
        self._holdings.tracer.event(
            "deliver.started", group=_text(reader), reader=reader.participant, samples=count
        )
        self._holdings.wire.deliver(reader, groups, whole=whole, how=how)

    def _next(self, reader: ReaderKey) -> None:
        waiting = self._waiting.get(reader)
        if waiting:
            groups, whole, how = waiting.popleft()
            self._begin(reader, groups, whole=whole, how=how)
        else:
            self._waiting.pop(reader, None)

    def rejected(self, group: Group, attempt: int) -> None:
        """Resource limits of a late joiner leave no room for a group; it is tried again (guide 5.5.8)."""
        self._holdings.counters["resent"] += 1
        if attempt == 1:
            self._holdings.tracer.event("align.rejected", group=group, code="V_REJECTED")

    def delivered(self, reader: ReaderKey, result: Delivered, *, whole: bool) -> None:
        """The answer to `Wire.deliver`."""
        self._next(reader)
        holdings = self._holdings
        holdings.counters["delivered"] += result.samples
        group = _text(reader)
        if result.resent and not result.problem:
            holdings.tracer.event("align.resent", group=group)
        for text in result.refused:
            holdings.counters["refused"] += 1
            holdings.tracer.event("group.qos-mismatch", group=group, endpoint=reader.participant, cause=text)
        if result.problem:
            reason = f"{result.problem}; trying again"
            holdings.tracer.event("deliver.waiting", reader=reader.participant, group=group, reason=reason)
            if result.samples:  # what arrived before will arrive again
                holdings.counters["repeated"] += result.samples
                holdings.tracer.event(
                    "deliver.repeated", count=result.samples, group=group, process=reader.participant
                )
        else:
            holdings.tracer.event(
                "deliver.finished",
                group=group,
                reader=reader.participant,
                samples=result.samples,
                elapsed_ns=result.elapsed_ns,
            )
        now = holdings.clock.monotonic()
        if whole and not result.problem:
            self._got[reader] = result.readers
        if whole:
            holdings.core.delivered(reader, now, done=not result.problem)
        elif result.problem:
            holdings.core.serve_again(reader, now)
        if reader not in self._waiting:
            for end in self._joined.pop(reader, ()):
                self.joined(reader, end)


def _reads(reader: ReaderKey, group: Group) -> bool:
    return is_given(group, reader.topic, reader.partitions)


def _text(reader: ReaderKey) -> str:
    return f"{','.join(reader.partitions)}.{reader.topic}"


def _once(groups: Groups) -> Groups:
    """A sample that was written in several partitions is one; who reads several of them gets it once."""
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
