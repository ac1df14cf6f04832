"""Instances that readers must see ALIVE while their writers live.

A reader knows a writer of an instance only by its samples. An instance that it knows only from a node is kept
ALIVE by a writer of the node, until the original writer unregisters it, ends or is lost; then the instance
is disposed or not, as that writer's autodispose says. When a lost writer comes back, the node delivers the
newest sample of each of its instances again: readers that lost the instance with its writer, and have the
same sample, see it ALIVE in a new generation.

Writers that keep instances ALIVE, and deliveries, belong to the reader's process: each has one session and a
queue, so that a process which does not answer delays no other one.
"""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.capture.delivery import TIMEOUT_S, give, giving
from engine.core.name_spaces import Group
from engine.core.untrusted import Newest
from engine.dataset.captured import CapturedRun
from engine.dataset.groups import is_given
from engine.dataset.living import (
    InstanceEnd,
    WholeSet,
    ends,
    instances,
    is_written,
    returning,
    unregistered,
    whole,
    written,
)
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from engine.dds.directed import DeliveryPurpose, DirectedSession, Portion
from engine.dds.errors import ALREADY_DELETED, DdsError
from engine.dds.shared_waits import TOGETHER, Waits, completed, together
from engine.runtime.ports import AliveInstances, Delivered, ReplacingDelivery, RevivingDelivery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    from engine.capture.delivery import Directed
    from engine.capture.neighbourhood import DiscoveryChanges, Neighbourhood
    from engine.core.messages import ReaderKey
    from engine.dataset.group_set import GroupSet
    from engine.dataset.groups import GroupDescription
    from engine.dataset.living import DeliveryStep
    from engine.dataset.sample import Sample
    from engine.dataset.sample_rows import SampleRows
    from engine.runtime.runtime import Runtime

    Submit: TypeAlias = Callable[[Callable[[], None], str, float], None]

# Chosen, as `engine.core.readers.MAX_FORMER`. Beyond it the oldest is forgotten.
MAX_LOST: Final = 10_000
"""Limit for the memory of lost writers, which may come back."""
# Milliseconds on the node's thread; a whole group of a million is read on a worker's thread instead.
MAX_LOOKED_UP: Final = 1_000
"""Limit for the samples of a delivery whose instances the node's thread looks up itself."""
# Chosen: a key and a time each, some ten megabytes in all.
MAX_LATER: Final = 100_000
"""Limit for remembered instances that readers have with a later source time than the set's."""
_NO_TIMES: Final[Mapping[bytes, int]] = {}
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER
_WORK: Final = "resendQueue (delivery to a process of readers)"


class KeptInstances(AliveInstances):
    """Deliveries to readers' processes, and the writers that stay there. One thread calls all methods.

    Args:
        runtime: has the sets, and knows the readers in this node's charge.
        directed: opens sessions.
        neighbourhood: knows the living writers.
        submit: runs blocking work on a worker thread.
    """

    def __init__(
        self, runtime: Runtime, directed: Directed, neighbourhood: Neighbourhood, submit: Submit
    ) -> None:
        self._runtime = runtime
        self._directed = directed
        self._neighbourhood = neighbourhood
        self._submit = submit
        self._processes: dict[bytes, Process] = {}
        self._kept: dict[Group, set[bytes]] = {}
        self._writers: dict[bytes, tuple[tuple[Group, ...], bool]] = {}
        self._lost: Newest[bytes, tuple[tuple[Group, ...], bool]] = Newest(MAX_LOST)
        self._back: Newest[bytes, None] = Newest(MAX_LOST)
        self._unseen: Newest[bytes, None] = Newest(MAX_LOST)
        """Writers that counted as lost in a delivery without ever having been here."""
        self._began_ns = time.time_ns()
        self._later: dict[Group, dict[bytes, int]] = {}

    @property
    def sessions(self) -> int:
        """Number of processes in which the node keeps instances ALIVE."""
        return sum(process.kept > 0 for process in self._processes.values())

    @property
    def writers(self) -> int:
        """Number of the node's writers that keep instances ALIVE."""
        return sum(process.kept for process in self._processes.values())

    def participants(self, reader: ReaderKey) -> tuple[str, ...]:
        """Return the GUIDs of the participants with readers of a kind."""
        return self._runtime.late_joiners.participants(reader)

    def is_present(self, reader: ReaderKey) -> bool:
        """Tell whether there are readers of a kind."""
        return self._runtime.late_joiners.is_present(reader)

    # Delivery.

    def deliver(
        self,
        reader: ReaderKey,
        addresses: Sequence[str],
        groups: list[tuple[GroupDescription, SampleRows]],
        done: Callable[[Delivered], None],
        *,
        is_whole: bool,
        how: RevivingDelivery | ReplacingDelivery | None,
        on_rejected: Callable[[Group, int], None] | None = None,
    ) -> None:
        """Deliver samples to a reader's process.

        Args:
            reader: the reader.
            addresses: the process's unicast metatraffic locators.
            groups: the groups and their samples.
            done: called with the result, on a worker thread.
            is_whole: whether the samples are all that is kept of the groups.
            how: for samples that the reader has had before, how they are shown to it; None for new ones.
            on_rejected: called on a worker thread, see `give`.
        """
        name = bytes.fromhex(reader.process)
        process = self._processes.setdefault(name, Process(lambda: self._directed.open(name, addresses)))
        has_room, most = self._has_room(process), self._instances(reader.topic)
        portions: list[Portion] = []
        ended: list[tuple[GroupDescription, Iterator[InstanceEnd]]] = []
        is_ordered = len(groups) > 1 and self._neighbourhood.goes_by_reception(name, reader.topic)
        for description, rows in groups:
            group = description.group
            living = self._neighbourhood.living(group)
            if keeps := bool(living) and has_room:
                self._kept.setdefault(group, set()).add(name)
            elif living:
                self._runtime.late_joiners.deviates(reader, "not_kept", 1)
            revives = isinstance(how, RevivingDelivery)
            if keeps or not revives:
                steps, mode = self._steps(group, rows, living, how, is_whole=is_whole)
                portions.append(Portion(description, steps, mode, keeps, most))
            if not (is_whole or revives) and name in self._kept.get(group, ()):
                ended.append((description, unregistered(rows, self._rows(group) or (), living)))

        crowd = process.crowd
        moved = list(self._moved(crowd)) if how is not None else []

        def job(session: DirectedSession) -> Waits[None]:
            if moved:
                give(session, moved)
                session.retire(crowd)
            if isinstance(how, ReplacingDelivery):
                session.go_below()
            result = yield from giving(session, portions, on_rejected, is_ordered=is_ordered)
            for description, unwritten in ended:
                _tell_ends(session, description, unwritten, disposes=False, closes=False)
            done(result)

        together = frozenset(description.group for description, _ in groups) if how is None else frozenset()
        self._put(process, job, lambda error: done(Delivered(problem=str(error))), together)

    def _steps(
        self,
        group: Group,
        rows: SampleRows,
        living: frozenset[bytes],
        how: RevivingDelivery | ReplacingDelivery | None,
        *,
        is_whole: bool,
    ) -> tuple[Iterable[DeliveryStep], DeliveryPurpose]:
        """Return the delivery of a group, and its purpose."""
        if isinstance(how, RevivingDelivery):
            if not how.writer:
                return written(rows, living), DeliveryPurpose.TAKEN_OVER
            again = returning(rows, how.writer, living)
            return _not_before(self._later.get(group, _NO_TIMES), again), DeliveryPurpose.RETURN
        disposing = self.disposing(group)
        if is_whole and how is None:
            return WholeSet(rows, living, disposing), DeliveryPurpose.WHOLE
        has_writer = None if is_whole else self._has_writer(group, rows, living)
        steps = whole(rows, living, disposing, has_writer)
        if how is None:
            return steps, DeliveryPurpose.PART
        self._remember_later(group, how.times[group])
        return _not_before(how.times[group], steps), DeliveryPurpose.INSTEAD

    def _moved(self, crowd: frozenset[tuple[str, str, str]]) -> Iterator[Portion]:
        """Return deliveries that replace the writers of a participant that must retire."""
        for group, description in self._runtime.descriptions.items():
            if (group.topic, group.partition, description.type.type_id) in crowd:
                rows = self._rows(group)
                some = self._runtime.late_joiners.unexpired(description, rows) if rows else ()
                steps = written(some, self._neighbourhood.living(group))
                most = self._instances(group.topic)
                yield Portion(description, steps, DeliveryPurpose.PART, keeps=True, instances=most)

    def _instances(self, topic: str) -> int:
        """Return the number of instances that this node has of a topic, in all partitions."""
        held = map(self._held, self._runtime.shared.groups_of.get(topic, ()))
        return sum(group_set.instance_count for group_set in held if group_set is not None)

    def disposing(self, group: Group) -> frozenset[bytes]:
        """Return the lost writers of a group that had autodispose, also those of former runs."""
        unseen = self._runtime.writer_ends.missed(group) - self._lost.keys()
        self._unseen.update(dict.fromkeys(unseen))
        return unseen.union(
            writer for writer, (groups, autodispose) in self._lost.items() if autodispose and group in groups
        )

    def _remember_later(self, group: Group, times: Mapping[bytes, int]) -> None:
        known = self._later.setdefault(group, {})
        room = MAX_LATER - sum(map(len, self._later.values()))
        known.update(item for item, _ in zip(times.items(), range(room), strict=False))

    def _has_room(self, process: Process) -> bool:
        others = self.sessions - (process.kept > 0)
        return others < MAX_KEPT_SESSIONS and self.writers < MAX_KEPT_WRITERS

    def _put(
        self, process: Process, job: _Job, failed: _Failed, groups: frozenset[Group] = frozenset()
    ) -> None:
        if process.put(job, failed, groups):
            self._submit(process.work, _WORK, TIMEOUT_S)

    # Changes of writers and readers.

    def processes_gone(self, names: Iterable[bytes]) -> None:
        """Forget processes that left or were lost."""
        for name in names:
            process = self._processes.pop(name, None)
            if process is not None and process.leave():
                self._submit(process.work, _WORK, TIMEOUT_S)
            for kept in self._kept.values():
                kept.discard(name)

    def living(self, group: Group) -> frozenset[bytes]:
        """See `AliveInstances`, as for the next five."""
        return self._neighbourhood.living(group)

    def was_away(self, sample: Sample) -> bool:
        """Tell whether a sample's writer was lost: readers on this host may have missed the sample, too."""
        writer = sample.writer
        is_unheard = writer not in self._writers and sample.source_time_ns > self._began_ns
        return is_unheard or writer in self._lost or writer in self._back

    def changed(self, changes: DiscoveryChanges) -> None:
        """Take in writers that came and went."""
        autodispose = {each.endpoint.guid: each.endpoint.endpoint_qos.autodispose for each in changes.offers}
        for writer, groups in changes.writers:
            if groups:
                self._writers[writer] = groups, autodispose.get(writer, True)
                if writer in self._lost or writer in self._unseen:
                    self._lost.pop(writer, None)
                    self._unseen.pop(writer, None)
                    self._back[writer] = None
                    self._show_again(groups, writer)
            else:
                self._gone(writer)

    def _gone(self, writer: bytes) -> None:
        known = self._writers.pop(writer, None)
        if known is None:
            return
        groups, autodispose = known
        self._lost[writer] = known
        self._runtime.late_joiners.lost(writer)
        for group in groups:
            rows = self._rows(group) if self._kept.get(group) else None
            if rows is None:
                continue
            living = self._neighbourhood.living(group)
            self._end(group, functools.partial(ends, rows, writer, living), autodispose, closes=not living)

    def unregistered(self, records: Iterable[Sample | CapturedRun]) -> None:
        """End the instances that writers unregistered by these records; others are skipped."""
        for record in records if self._kept else ():
            if isinstance(record, CapturedRun):
                continue
            time_ns, writer, _, _, status, key, _ = record
            if not status & UNREGISTER or status > _SAMPLE:
                continue
            for group in self._neighbourhood.routes.get(writer, ()):
                history = self._history(group, key) if self._kept.get(group) else ()
                if history and not is_written(history, self._neighbourhood.living(group)):
                    # Readers may hear of it from here first: an end by autodispose is a dispose here, too.
                    disposes = bool(status & DISPOSE)
                    self._end(group, functools.partial(_one, key, time_ns), disposes, closes=False)

    def _end(
        self, group: Group, ended: Callable[[], Iterable[InstanceEnd]], disposes: bool, *, closes: bool
    ) -> None:
        """End instances of a group that have lost their last writer."""
        description = self._runtime.descriptions[group]
        later = self._later.get(group, _NO_TIMES)

        def job(session: DirectedSession) -> Waits[None]:
            yield 0.0
            instances = (InstanceEnd(key, max(time_ns, later.get(key, time_ns))) for key, time_ns in ended())
            _tell_ends(session, description, instances, disposes=disposes, closes=closes)

        for name in sorted(self._kept[group]):
            process = self._processes.get(name)
            if process is not None:
                self._put(process, job, _ignore)
        if closes:
            del self._kept[group]

    def ended(self, group: Group, samples: Iterable[Sample]) -> None:
        """Dispose instances that the end of one writer has disposed although another one lives.

        What depended on the writer alone has been ended when it went.
        """
        if not self._kept.get(group):
            return
        living = self._neighbourhood.living(group)
        found = []
        for sample in samples:
            before = [one for one in self._history(group, sample.key) if one.digest != sample.digest]
            if is_written(before, living):
                found.append(InstanceEnd(sample.key, sample.source_time_ns))
        if found:
            self._end(group, lambda: found, disposes=True, closes=False)

    def revived(self, writer: bytes, groups: tuple[Group, ...]) -> None:
        """Show readers that the instances of a writer, which had counted as ended, are alive after all."""
        if writer in self._back:
            self._show_again(groups, writer)

    def _show_again(self, groups: tuple[Group, ...], writer: bytes) -> None:
        """Deliver the groups of a returned writer again: readers on this host lost it, too."""
        self._runtime.late_joiners.returned(writer)
        for group in groups:
            state = self._runtime.core.name_space_of(group)
            rows = self._rows(group)
            shown = set()  # all readers of a process get a delivery to one of them
            for reader in self._runtime.core.in_charge_of(state.name) if state and rows else ():
                is_first = reader.process not in shown
                if rows and is_first and is_given(group, reader.topic, reader.partitions):
                    shown.add(reader.process)
                    description = self._runtime.descriptions[group]
                    self._runtime.late_joiners.show_again(
                        reader, [(description, rows)], RevivingDelivery(writer)
                    )

    def taken_over(self, reader: ReaderKey) -> None:
        """Keep a reader's instances ALIVE, because the node that did so is gone."""
        groups = []
        process = bytes.fromhex(reader.process)
        for group, description in sorted(self._runtime.descriptions.items()):
            if process in self._kept.get(group, ()):
                continue  # for other readers of its process
            if is_given(group, reader.topic, reader.partitions) and self._neighbourhood.living(group):
                rows = self._rows(group)
                if rows:
                    groups.append((description, rows))
        self._runtime.late_joiners.show_again(reader, groups, RevivingDelivery(b""))

    def handed_over(self, reader: ReaderKey) -> None:
        """Stop keeping a reader's instances ALIVE, as another node does, except for others of its process."""
        name = bytes.fromhex(reader.process)
        process = self._processes.get(name)
        ours = [
            other
            for state in self._runtime.core.name_spaces
            for other in self._runtime.core.in_charge_of(state.name)
            if other.process == reader.process
        ]
        for group, kept in self._kept.items():
            if (
                name in kept
                and is_given(group, reader.topic, reader.partitions)
                and not any(is_given(group, other.topic, other.partitions) for other in ours)
            ):
                kept.discard(name)
                description = self._runtime.descriptions[group]
                job = functools.partial(_closing, description=description)
                if process is not None:
                    self._put(process, job, _ignore)

    # The sets.

    def _has_writer(
        self, group: Group, rows: SampleRows, living: frozenset[bytes]
    ) -> Callable[[bytes], bool]:
        """Return a function that tells whether an instance has a living writer, by all its kept samples."""
        if len(rows) <= MAX_LOOKED_UP:
            keys = {sample.key for sample in rows}
            alive = {key for key in keys if is_written(self._history(group, key), living)}
            return alive.__contains__
        kept = self._rows(group) or ()

        @functools.cache
        def found() -> set[bytes]:
            """Return the keys of the written instances; it reads the whole group, on the worker's thread."""
            return {history[0].key for history in instances(kept) if is_written(history, living)}

        return lambda key: key in found()

    def _held(self, group: Group) -> GroupSet | None:
        state = self._runtime.core.name_space_of(group)
        data = self._runtime.spaces.get(state.name) if state else None
        return data.working.groups.get(group) if data else None

    def _rows(self, group: Group) -> SampleRows | None:
        group_set = self._held(group)
        return group_set.samples() if group_set and group in self._runtime.descriptions else None

    def _history(self, group: Group, key: bytes) -> Sequence[Any]:
        group_set = self._held(group)
        return group_set.instance(key) if group_set else ()


def _not_before(times: Mapping[bytes, int], steps: Iterable[DeliveryStep]) -> Iterator[DeliveryStep]:
    """Give steps the source time that readers have for the instance, if that is later."""
    for step in steps:
        sample = step.sample
        time_ns = times.get(sample.key, sample.source_time_ns)
        if time_ns > sample.source_time_ns:
            step = step._replace(sample=sample._replace(source_time_ns=time_ns))
        yield step


def _tell_ends(
    session: DirectedSession,
    description: GroupDescription,
    instances: Iterable[InstanceEnd],
    *,
    disposes: bool,
    closes: bool,
) -> None:
    group = description.group
    session.end(group.topic, description.type, group.partition, instances, disposes=disposes, closes=closes)


def _closing(session: DirectedSession, description: GroupDescription) -> Waits[None]:
    yield 0.0
    _tell_ends(session, description, (), disposes=False, closes=True)


def _one(key: bytes, time_ns: int) -> tuple[InstanceEnd]:
    return (InstanceEnd(key, time_ns),)


def _ignore(_: DdsError) -> None:
    """Do nothing: a process that cannot be reached loses its writers by itself."""


_Job = Callable[[DirectedSession], Waits[None]]
_Failed = Callable[[DdsError], None]


class _Waiting(NamedTuple):
    """A job, what hears of its failure, and its groups if it may go on together with jobs of others."""

    job: _Job
    failed: _Failed
    groups: frozenset[Group]


# Three quarters of `directed.MAX_SESSIONS`: late joiners that need none kept ALIVE must always find a free
# one.
MAX_KEPT_SESSIONS: Final = 192
"""Limit for processes with instances kept ALIVE; each needs a Cyclone DDS domain with five threads."""
# Chosen: each writer takes memory in Cyclone DDS, here and in the reader's process.
MAX_KEPT_WRITERS: Final = 100_000
"""Limit for the writers in all of them; beyond either limit delivered instances are NOT_ALIVE_NO_WRITERS."""


class Process:
    """One process, its session while it is needed, and the deliveries that wait."""

    def __init__(self, opens: Callable[[], DirectedSession]) -> None:
        self._opens = opens
        # The node's thread queues jobs and notes the end; a worker carries them out. Nobody holds it while a
        # job runs, or the node would wait for a reader's process.
        self._lock = threading.Lock()
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._is_running = False
        self._is_gone = False
        self._session: DirectedSession | None = None
        self.kept = 0
        self.crowd: frozenset[tuple[str, str, str]] = frozenset()

    def put(self, job: _Job, failed: _Failed, groups: frozenset[Group] = frozenset()) -> bool:
        """Queue a job; return True if the caller must have `work` called on a worker thread.

        Args:
            job: the job.
            failed: called instead if the process cannot be reached.
            groups: the groups that it delivers, if it may be carried out together with jobs of others.
        """
        with self._lock:
            self._waiting.append(_Waiting(job, failed, groups))
            if self._is_running:
                return False
            self._is_running = True
            return True

    def leave(self) -> bool:
        """Note that the process is gone, so that jobs fail soon; return True if `work` must be called."""
        self._is_gone = True
        self._abandon_if_gone()
        with self._lock:
            if self._is_running:
                return False
            self._is_running = True
            return True

    def work(self) -> None:
        """Carry out the jobs in order, and close the session if no writer stays. It blocks."""
        while (task := self._next()) is not None:
            task()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                jobs = self._next_jobs()
                return lambda: self._carry_out(jobs)
            if self._session is not None and (self._is_gone or not self.kept):
                return self._close
            self._is_running = False
            return None

    def _next_jobs(self) -> list[_Waiting]:
        """Take the next job, and those behind it that may be carried out together with it."""
        jobs = [self._waiting.popleft()]
        groups = jobs[0].groups
        while groups and self._waiting and len(jobs) < TOGETHER:
            more = self._waiting[0].groups
            if not more or not groups.isdisjoint(more):
                break
            groups |= more
            jobs.append(self._waiting.popleft())
        return jobs

    def _carry_out(self, jobs: list[_Waiting]) -> None:
        try:
            if self._is_gone:
                raise DdsError(ALREADY_DELETED, "deliver to a process that is gone")
            if self._session is None:
                session = self._opens()
                with self._lock:
                    self._session = session
                self._abandon_if_gone()
            try:
                completed(together(_carried_out(each, self._session) for each in jobs))
            finally:
                self.kept, self.crowd = self._session.kept, self._session.crowd
        except DdsError as error:
            for each in jobs:
                each.failed(error)

    def _abandon_if_gone(self) -> None:
        with self._lock:
            if self._is_gone and self._session is not None:
                self._session.abandon()

    def _close(self) -> None:
        assert self._session is not None
        with self._lock:
            session, self._session = self._session, None
        session.close()
        self.kept, self.crowd = 0, frozenset()


def _carried_out(waiting: _Waiting, session: DirectedSession) -> Waits[None]:
    try:
        yield from waiting.job(session)
    except DdsError as error:
        waiting.failed(error)
