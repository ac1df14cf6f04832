"""The ends of writers with autodispose, as facts in the sets.

The end of such a writer is a dispose and an unregister of each instance that it has registered, by that
writer. A writer that is deleted says so: its samples are dated by what it said. What they are depends on
nothing else, so all nodes that hear the end make the same ones, and their sets stay equal. A writer that was
lost, and that the master declares ended (`engine.core.autodispose`), has said nothing: its instances end
right after its newest sample of each, by its own clock. So whatever else it wrote, perhaps while it was cut
off, is newer and stays.

The end of a lost writer is taken back where the writer is seen again: its newest sample of an instance is
inserted once more, behind the end (eventual consistency, "Visible effects of a re-connect").

All this is done in steps, because a writer may have a million instances.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from engine.core.autodispose import FOREVER_S, PATIENCE_S
from engine.core.messages import AutodisposeWriter
from engine.core.name_spaces import Group
from engine.core.states import Phase
from engine.dataset.blocks import Block
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import ApplyOutcome, GroupSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import (
    DATA,
    DISPOSE,
    UNREGISTER,
    Sample,
    end_of_writer,
    is_lost_end,
    make_sample,
)
from engine.dataset.sample_rows import MaskedBlock, Part
from engine.runtime.housekeeping import INFINITE, Registered
from engine.runtime.late_joiners import LateJoinerDelivery
from engine.runtime.name_space_data import Difference, NameSpaceData
from engine.runtime.shared_state import SharedState
from engine.runtime.startup import autodispose_mark
from engine.runtime.steps import Steps
from engine.store.interface import GroupChange

MAX_ENDED: Final = 10_000
"""Limit for the remembered writers that have said that they end; a tap may still hold samples of them."""
_T = TypeVar("_T")
_STEP: Final = 64
"""Instances changed in one step: a few milliseconds."""
_LOOK: Final = 4_096
"""Samples looked at in one step."""


class WriterEnds:
    """The part of a runtime that ends the instances of autodispose writers.

    Args:
        shared: the node's sets and ports.
        late_joiners: tells clients of new samples.
        steps: carries out long work.
        registered: knows writers with instances registered, besides those of the kept samples.
    """

    def __init__(
        self, shared: SharedState, late_joiners: LateJoinerDelivery, steps: Steps, registered: Registered
    ) -> None:
        self._shared = shared
        self._late_joiners = late_joiners
        self._steps = steps
        self._registered = registered
        self._here: dict[bytes, tuple[Group, ...]] = {}
        self._unopened: dict[Group, dict[bytes, None]] = {}
        """Writers by those of their groups that are not kept, perhaps until a name-space is learned."""
        self._said: dict[str, dict[bytes, int]] = {}
        """Ends that wait for the complete set, by name-space: the time that each writer said."""
        self._working: set[str] = set()
        """Name-spaces in which ends are being carried out."""

    # Writers.

    def met(self, writer: bytes, groups: tuple[Group, ...]) -> None:
        """Note an autodispose writer of these groups that appeared or came back."""
        self._here[writer] = groups
        for group in groups:
            if group not in self._shared.descriptions:
                self._unopened.setdefault(group, {})[writer] = None
        for name, own in self._by_name_space(groups):
            delays = (self._shared.descriptions[group].qos.cleanup_delay_ns for group in own)
            longest_s = max((FOREVER_S if one == INFINITE else one / 1e9 for one in delays), default=0.0)
            patience_s = max(PATIENCE_S, longest_s)
            self._shared.core.autodispose_writer_met(name, AutodisposeWriter(writer, patience_s))
            self._revive_all(name, frozenset((writer,)))

    def lost(self, writer: bytes) -> None:
        """Note that a writer is gone, for whatever reason."""
        now = self._shared.clock.monotonic()
        groups = self._here.pop(writer, ())
        for group in self._unopened.keys() & groups:
            self._unopened[group].pop(writer, None)
            if not self._unopened[group]:
                del self._unopened[group]
        for name, _ in self._by_name_space(groups):
            self._shared.core.autodispose_writer_lost(name, writer, now)

    def opened(self, group: Group) -> None:
        """Note that this node keeps a group from now on."""
        for writer in self._unopened.pop(group, {}):
            self.met(writer, self._here[writer])

    def end_writer(self, writer: bytes, time_ns: int) -> None:
        """End a writer that has said that it is deleted, and all of whose samples have been captured.

        Args:
            writer: the writer.
            time_ns: when it was deleted, by its own clock.
        """
        ended = self._shared.ended_writers
        for state in self._shared.core.name_spaces:
            if writer in state.autodispose:
                self._said.setdefault(state.name, {})[writer] = ended[writer] = time_ns
        while len(ended) > MAX_ENDED:
            del ended[next(iter(ended))]

    def missed(self, group: Group) -> frozenset[bytes]:
        """Return the autodispose writers of a group's name-space that are known and not here."""
        state = self._shared.core.name_space_of(group)
        now = self._shared.clock.monotonic()
        return state.autodispose.missed(now) if state is not None else frozenset()

    def forget_unwritten(self, name: str, data: DataSet) -> None:
        """Forget, at the start, writers of which the stored set has no sample; their ends change nothing."""
        autodispose = self._shared.spaces[name].state.autodispose
        known = autodispose.writers
        parts = [part for one in data.groups.values() for part in one.samples().parts] if known else []
        unwritten = sorted(known.difference(*map(_writers, parts)))
        # They may not have ended: fellows tell of those of which they have transient samples.
        autodispose.forget(unwritten)
        self._unmark(name, unwritten)

    def _by_name_space(self, groups: Iterable[Group]) -> list[tuple[str, list[Group]]]:
        found: dict[str, list[Group]] = {}
        for group in groups:
            state = self._shared.core.name_space_of(group)
            if state is not None and group in self._shared.descriptions:
                found.setdefault(state.name, []).append(group)
        return list(found.items())

    # Ends.

    @property
    def is_due(self) -> bool:
        """Whether `work` has something to do."""
        return any(self._is_ready(name) for name in self._said)

    def work(self) -> None:
        """Begin to carry out the ends that were said, and of writers of which more samples came."""
        late, self._shared.late_writers = self._shared.late_writers, {}
        for name, writers in late.items():
            known = self._shared.ended_writers
            self._said.setdefault(name, {}).update({one: known[one] for one in writers if one in known})
        for name in [name for name in self._said if self._is_ready(name)]:
            self._begin(name, self._said.pop(name))

    def _is_ready(self, name: str) -> bool:
        """Whether the whole set is in place; what arrives while it is incomplete may lack the ends."""
        state = self._shared.spaces[name].state
        return name not in self._working and (state.complete or state.phase is Phase.PASSIVE)

    def decided(self, name: str, writers: Sequence[bytes]) -> None:
        """End writers that the master has declared ended."""
        self._shared.tracer.event("writer.ended", namespace=name, count=len(writers))
        state = self._shared.spaces[name].state
        if state.complete or state.phase is Phase.PASSIVE:
            self._begin(name, dict.fromkeys(writers, 0))
        else:  # what only this node has of them may join the set
            self._said[name] = {**dict.fromkeys(writers, 0), **self._said.get(name, {})}

    def _begin(self, name: str, ends: Mapping[bytes, int]) -> None:
        if self._shared.spaces[name].state.complete:
            self._working.add(name)
            self._steps.begin(self._carry_out(name, ends))
        else:  # it gets the ends with the set, if it ever keeps one
            self._forget(name, ends)

    def _carry_out(self, name: str, ends: Mapping[bytes, int]) -> Iterator[None]:
        data = self._shared.spaces[name]
        count = 0
        for group, group_set in list(data.working.groups.items()):
            description = self._shared.descriptions.get(group)
            if description is None:
                continue
            keys: dict[bytes, None] = {}
            for some in self._looks(group, group_set, ends):
                keys.update(dict.fromkeys(some))
                yield
            make = functools.partial(self._ends_of, group, ends)
            for chunk in _chunks(keys, _STEP):
                count += self._apply(data, description, chunk, make)
                yield
        self._forget(name, ends)
        self._working.discard(name)
        if count:
            self._shared.tracer.event("writer.disposed", namespace=name, count=len(ends), instances=count)
        if returned := frozenset(ends) & self._here.keys():
            self._revive_all(name, returned)

    def _forget(self, name: str, writers: Iterable[bytes]) -> None:
        """Forget writers once their ends are in the set, so that the store has the one or the other."""
        now = self._shared.clock.monotonic()
        self._shared.core.autodispose_writers_ended(name, writers, now)
        back = [writer for writer in writers if writer in self._here]
        self._unmark(name, [writer for writer in writers if writer not in back])
        for writer in back:  # the master was wrong, or it has come back since
            self.met(writer, self._here[writer])

    def _unmark(self, name: str, writers: Iterable[bytes]) -> None:
        marks = {autodispose_mark(writer): None for writer in writers}
        if marks:
            self._shared.store_queue.mark(name, marks)

    def _looks(
        self, group: Group, group_set: GroupSet, ends: Mapping[bytes, int]
    ) -> Iterator[Iterable[bytes]]:
        """Yield the keys of instances that may be those of the writers."""
        yield self._registered.keys(group, ends.keys())
        for part in group_set.samples().parts:
            if ends.keys().isdisjoint(_writers(part)):
                continue
            for some in _chunks(part.samples(), _LOOK):
                yield [sample.key for sample in some if sample.writer in ends]

    def _ends_of(
        self, group: Group, ends: Mapping[bytes, int], key: bytes, history: Sequence[Sample]
    ) -> list[Sample]:
        """Return the ends of an instance that is alive: by each of the writers that has it registered."""
        last = _last(history)
        if last is None or last.status & DISPOSE:
            return []
        made = []
        newest = {sample.writer: sample for sample in history}
        registered = self._registered.writers(group, key)
        for writer, said_ns in ends.items():
            own = newest.get(writer)
            if (own is None and writer not in registered) or (own is not None and own.status & UNREGISTER):
                continue
            time_ns = max(said_ns, own.source_time_ns + 1 if own is not None else 0)
            if (time_ns, writer) > (last.source_time_ns, last.writer):
                made.append(end_of_writer(time_ns, writer, key, is_lost=not said_ns))
        return made

    # Returns.

    def joined(self, name: str, new: Difference | None) -> None:
        """Look for ends of writers that are here, in samples of fellows or, with None, in the whole set.

        Args:
            name: the name-space.
            new: samples of fellows that joined its set; None after another set took its place.
        """
        if new is None:
            self._revive_all(name, frozenset(self._here))
            return
        keys = {
            group: found
            for group, samples in new.items()
            if (found := [one.key for one in samples if one.writer in self._here and is_lost_end(one)])
        }
        if keys:
            self._steps.begin(self._revive(name, frozenset(self._here), keys))

    def _revive_all(self, name: str, writers: frozenset[bytes]) -> None:
        groups = {group for writer in writers for group in self._here[writer]}
        held = self._shared.spaces[name].applied.groups
        keys = {
            group: list(held[group].disposed)
            for group in sorted(groups & held.keys())
            if held[group].disposed and self._may_be_lost(group)
        }
        if keys:
            self._steps.begin(self._revive(name, writers, keys))

    def _may_be_lost(self, group: Group) -> bool:
        """Whether lost writers of a group ever count as ended; else it may keep tombstones for ever."""
        description = self._shared.descriptions.get(group)
        return description is not None and description.qos.cleanup_delay_ns != INFINITE

    def _revive(
        self, name: str, writers: frozenset[bytes], keys: Mapping[Group, Iterable[bytes]]
    ) -> Iterator[None]:
        """Make instances alive again that ended with a writer that is here after all."""
        data = self._shared.spaces[name]
        revived: dict[bytes, list[Group]] = {}

        def make(group: Group, _: bytes, history: Sequence[Sample]) -> list[Sample]:
            last = _last(history)
            if last is None or last.writer not in writers or not is_lost_end(last):
                return []
            own = [one for one in history if one.writer == last.writer and one.status & DATA]
            if not own:
                return []
            revived.setdefault(last.writer, []).append(group)
            time_ns = last.source_time_ns + 1
            return [make_sample(time_ns, last.writer, DATA, last.key, own[-1].payload)]

        for group, some in keys.items():
            description = self._shared.descriptions.get(group)
            for several in _chunks(some, _LOOK) if description is not None else ():
                for chunk in _chunks(sorted(several), _STEP):  # in the same order in each run
                    self._apply(data, description, chunk, functools.partial(make, group))
                    yield
        for writer, groups in revived.items():
            self._shared.wire.alive.revived(writer, tuple(sorted(set(groups))))

    # Samples.

    def _apply(
        self,
        data: NameSpaceData,
        description: GroupDescription | None,
        keys: Iterable[bytes],
        make: Callable[[bytes, Sequence[Sample]], list[Sample]],
    ) -> int:
        """Add what `make` returns for the histories of instances; return the number of samples."""
        assert description is not None
        group = description.group
        group_set = data.open_group(description)
        is_on_disk = data.is_switched and data.is_on_disk(description)
        changes: list[GroupChange] = []
        new: list[Sample] = []
        for key in keys:
            for sample in make(key, group_set.instance(key)):
                outcome, evicted = group_set.apply(sample)
                if outcome is not ApplyOutcome.STORED:
                    continue
                new.append(sample)
                if sample.status & UNREGISTER:
                    self._registered.unregistered(group, key, sample.writer)
                if is_on_disk:
                    changes.append(GroupChange(description, sample, evicted))
        if new:
            data.has_changed = True
            self._late_joiners.notify_clients(data.state.name, {group: new})
            if new[0].status & DISPOSE:
                self._shared.wire.alive.ended(group, new)
        if changes:
            self._shared.store_queue.append(data.state.name, changes)
        return len(new)


def _writers(part: Part) -> Iterable[bytes]:
    """Return the writers of a part, perhaps with further ones."""
    block = part.block if isinstance(part, MaskedBlock) else part
    return block.writers if isinstance(block, Block) else {sample.writer for sample in part.samples()}


def _last(history: Sequence[Sample]) -> Sample | None:
    """Return the sample that decides whether an instance is alive."""
    return next((sample for sample in reversed(history) if sample.status != UNREGISTER), None)


def _chunks(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    remaining = iter(items)
    while chunk := list(itertools.islice(remaining, size)):
        yield chunk
