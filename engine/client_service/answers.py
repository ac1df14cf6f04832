"""Answers to clients: the data of this node for them, the messages, and the writers that send these.

The node's thread decides what goes into an answer. The messages are made and written on other threads: one
writer, with a queue of its own, for each partition in which a client reads, so that a slow client holds up no
other.
"""

from __future__ import annotations

import collections
import itertools
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from engine.core.name_spaces import Group, Interest
from engine.core.states import Phase
from engine.dataset.sample import DATA
from engine.dataset.sample_rows import SampleRows
from engine.dds.activity import Workers, moved
from engine.dds.client_protocol import extensions
from engine.dds.client_protocol.endpoints import open_writer
from engine.dds.client_protocol.extensions import StateAddition
from engine.dds.client_protocol.messages import (
    MAJOR_VERSION,
    UNLIMITED,
    ByteOrder,
    Completeness,
    ErrorCode,
    GroupState,
    HistoryLimits,
    Link,
    encode_link,
)
from engine.dds.errors import DdsError, DdsTimeout
from engine.dds.writer import stamp_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.core.name_space_state import NameSpaceState
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample_rows import Samples
    from engine.dds.activity import ThreadActivities
    from engine.dds.channel import Announced
    from engine.dds.client_protocol.messages import HistoryRequest
    from engine.dds.participant import NodeParticipant
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter
    from engine.runtime.runtime import Runtime


Groups = Sequence[tuple["GroupDescription", "Samples"]]

MAX_LIVING: Final = 10_000
"""Limit for the living writers that an answer names, and for the lost ones."""
_ENCAPSULATIONS: Final = {
    ByteOrder.ANY: (b"\x00\x00", b"\x00\x01"),
    ByteOrder.BIG_ENDIAN: (b"\x00\x00",),
    ByteOrder.LITTLE_ENDIAN: (b"\x00\x01",),
}
"""Encapsulations for which the protocol has a name: plain CDR of XCDR1."""


class Answers:
    """What a runtime has for clients, and the messages that carry it.

    Args:
        runtime: the node's; used on its thread only.
        living: returns the living writers of an interest.
        disposing: returns its lost writers with autodispose.
    """

    def __init__(
        self,
        runtime: Runtime,
        living: Callable[[Interest], Iterable[bytes]],
        disposing: Callable[[Interest], Iterable[bytes]],
    ) -> None:
        self._runtime = runtime
        self._server = bytes.fromhex(runtime.settings.node)
        self._living = living
        self._disposing = disposing

    # Data.

    def name_spaces(self, interest: Interest) -> list[NameSpaceState]:
        """Return the name-spaces that the interest touches."""
        return [state for state in self._runtime.core.name_spaces if interest.touches(state.name_space)]

    def is_responsible(self, state: NameSpaceState) -> bool:
        """Tell whether this node answers unaddressed requests for a name-space: its master does."""
        return state.is_master(self._runtime.settings.node)

    def want(self, state: NameSpaceState, interest: Interest) -> None:
        """Request data for a client that a Lazy alignee may not keep yet."""
        self._runtime.shared.want(state.name, interest.elements)

    def groups(
        self, states: list[NameSpaceState], interest: Interest
    ) -> Iterator[tuple[GroupDescription, SampleRows]]:
        """Return the current samples of the groups of an interest."""
        for state in states:
            data = self._runtime.spaces[state.name]
            for group, group_set in sorted(data.working.groups.items()):
                description = self._runtime.descriptions.get(group)
                if description is not None and interest.wants(group):
                    yield description, group_set.samples()

    def unexpired(self, description: GroupDescription, samples: Samples) -> Samples:
        """Return the samples that may still be given; see `LateJoinerDelivery.unexpired`."""
        if not description.qos.lifespans:
            return samples
        return self._runtime.late_joiners.unexpired(description, SampleRows.of(samples))

    def completeness(self, state: NameSpaceState, group: Group) -> Completeness:
        """Return the completeness of a group; a group of which a part may be missing is incomplete."""
        if state.phase is Phase.DISCOVER or not state.keeps(group):
            return Completeness.UNKNOWN
        return Completeness.COMPLETE if state.has_group(group) else Completeness.INCOMPLETE

    def state_addition(self, groups: list[GroupState]) -> StateAddition:
        """Return who this node is, and what the state of these groups has no field for."""
        kept = {
            (group.partition, group.topic): group_set
            for data in self._runtime.spaces.values()
            for group, group_set in data.working.groups.items()
        }
        found = [kept.get((one.partition, one.topic)) for one in groups]
        gated = {(group.partition, group.topic) for group in self._runtime.shared.gates}
        return StateAddition(
            node=self._runtime.settings.node,
            name=self._runtime.settings.name,
            filtered=tuple(at for at, one in enumerate(groups) if (one.partition, one.topic) in gated),
            samples=tuple(one.count if one is not None else 0 for one in found),
            floors=tuple(one.floor_ns if one is not None else None for one in found),
        )

    def fellows(self) -> tuple[tuple[str, str], ...]:
        """Return ids and names of the nodes that this node hears."""
        return tuple((fellow.node, fellow.name) for fellow in self._runtime.core.fellows)

    def away(self) -> tuple[str, ...]:
        """Return the names of the nodes that this node has heard in this run, and does not hear now."""
        here = {fellow.name for fellow in self._runtime.core.fellows} | {self._runtime.settings.name}
        return tuple(sorted({fellow.name for fellow in self._runtime.core.away} - here))

    def group_states(self, states: list[NameSpaceState], interest: Interest | None) -> list[GroupState]:
        """Return the completeness of the groups of an interest; of all groups with None."""
        groups_of_answer = [
            (group, self.completeness(state, group))
            for state in states
            for group in self._runtime.spaces[state.name].working.groups
        ]
        groups_of_answer += [  # the node keeps nothing of a group whose content filter does not fit
            (group, Completeness.INCOMPLETE)
            for group in self._runtime.shared.refused
            if self._runtime.core.name_space_of(group) in states
        ]
        found = {
            GroupState(group.partition, group.topic, completeness)
            for group, completeness in groups_of_answer
            if interest is None or interest.wants(group)
        }
        return sorted(found, key=lambda one: (one.partition, one.topic))

    # Messages.

    def interest(self, request: HistoryRequest) -> Interest:
        """Return the groups that a request is about."""
        return Interest(request.topic, request.partitions)

    def refusal(self, request: HistoryRequest) -> ErrorCode:
        """Return the fault of a request, checked in OpenSplice's order; OK for none."""
        start, end = request.start, request.end
        bounded = not (start.is_open or end.is_open)
        checks = (
            (request.version == MAJOR_VERSION, ErrorCode.INCOMPATIBLE_VERSION),
            (bool(request.topic), ErrorCode.NO_TOPIC),
            (start.is_sound, ErrorCode.INVALID_START_TIME),
            (end.is_sound, ErrorCode.INVALID_END_TIME),
            (not bounded or start.ns <= end.ns, ErrorCode.INVALID_TIME_RANGE),
            (request.format in set(ByteOrder), ErrorCode.INVALID_SERIALIZATION),
            (bool(request.partitions), ErrorCode.NO_PARTITIONS),
            (request.max_samples >= UNLIMITED, ErrorCode.INVALID_MAX_SAMPLES),
            (request.max_instances >= UNLIMITED, ErrorCode.INVALID_MAX_INSTANCES),
            (
                request.max_samples_per_instance >= UNLIMITED,
                ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE,
            ),
            # A node does not evaluate SQL conditions; it refuses them, because it would send too much.
            (not request.sql_filter, ErrorCode.INVALID),
        )
        return next((code for holds, code in checks if not holds), ErrorCode.OK)

    def why_not(self, states: list[NameSpaceState]) -> ErrorCode:
        """Return the reason why this node does not answer."""
        if not states:
            return ErrorCode.GROUP_NOT_FOUND
        if any(state.following is None for state in states):
            return ErrorCode.NO_MASTER_SELECTED
        if not any(state.policy.aligner for state in states):
            return ErrorCode.SERVER_IS_NOT_ALIGNER
        return ErrorCode.NOT_RESPONSIBLE

    def error(self, request: HistoryRequest, error: ErrorCode) -> list[bytes]:
        """Make an answer without data."""
        link = Link(0, Completeness.UNKNOWN, error)
        states = self.name_spaces(self.interest(request))
        return [encode_link(self._server, request.request, link, self._addition(request, states, []))]

    def messages(
        self, request: HistoryRequest, groups: Groups, states: list[NameSpaceState] | None = None
    ) -> Iterator[bytes]:
        """Make samples and link.

        Args:
            request: the request to answer.
            groups: the groups and their samples.
            states: the name-spaces that the answer is about, None for an update.
        """
        groups = [(one, self.unexpired(one, samples)) for one, samples in groups]
        touched = self.name_spaces(self.interest(request)) if states is not None else []
        elements = self.interest(request).elements
        complete = all(state.has_all(elements) for state in states or ())
        addition = self._addition(request, touched, states)
        return self._make(request, groups, addition, complete=complete)

    def _make(
        self, request: HistoryRequest, groups: Groups, addition: dict[str, bytes], *, complete: bool
    ) -> Iterator[bytes]:
        """Make the messages, on the thread that writes; it uses no data of the node's thread."""
        ours = extensions.NAME in request.extensions
        count = left_out = 0
        for description, samples in _select(request, groups):
            encoder = extensions.SampleEncoder(
                self._server, request.request, description.group, description.qos, ours=ours
            )
            earlier: dict[bytes, bytes] = {}
            for sample in samples:
                if sample.status & DATA:
                    if not ours and sample.payload[:2] not in _ENCAPSULATIONS[ByteOrder(request.format)]:
                        left_out += 1
                        continue
                    earlier[sample.key] = sample.payload[4:]
                yield encoder.encode(sample, earlier.get(sample.key, b""))
                count += 1
        whole = complete and not left_out
        error = ErrorCode.INVALID_SERIALIZATION if left_out else ErrorCode.OK
        link = Link(count, Completeness.COMPLETE if whole else Completeness.INCOMPLETE, error)
        yield encode_link(self._server, request.request, link, addition)

    def _addition(
        self,
        request: HistoryRequest,
        touched: Iterable[NameSpaceState],
        covered: list[NameSpaceState] | None,
    ) -> dict[str, bytes]:
        if extensions.NAME not in request.extensions:
            return {}
        interest = self.interest(request)
        elements = interest.elements
        return extensions.pack(
            extensions.LinkAddition(
                living=frozenset(itertools.islice(self._living(interest), MAX_LIVING)),
                disposing=frozenset(itertools.islice(self._disposing(interest), MAX_LIVING)),
                update=covered is None,
                name_spaces={state.name: state.has_all(elements) for state in touched},
                covers=tuple(state.name for state in covered or () if state.has_all(elements)),
                parts=tuple(state.name for state in covered or () if state.has_part_of(elements)),
            )
        )


def _select(request: HistoryRequest, groups: Groups) -> Groups:
    """Select the samples within the limits; `max_samples` and `max_instances` count all groups together."""
    added = extensions.unpack(request.extensions, extensions.HistoryRequestAddition)
    each = added.each if added is not None else UNLIMITED
    limits = HistoryLimits(
        start_ns=HistoryLimits().start_ns if request.start.is_open else request.start.ns,
        end_ns=HistoryLimits().end_ns if request.end.is_open else request.end.ns,
        max_samples=request.max_samples,
        max_instances=request.max_instances,
        max_samples_per_instance=each if each >= 0 else request.max_samples_per_instance,
    )
    if limits == HistoryLimits(start_ns=0):
        return groups
    objects = [(group, list(samples)) for group, samples in groups]
    selected = {id(one) for one in limits.select([one for _, samples in objects for one in samples])}
    return [(group, [one for one in samples if id(one) in selected]) for group, samples in objects]


WORKERS: Final = 4
"""Limit for clients served at once; a slow client blocks one thread."""
MATCH_TIMEOUT_S: Final = 10.0
"""Limit for discovering a client's reader; then the answer is given up."""
SEND_TIMEOUT_S: Final = 30.0
"""Limit for a client that takes nothing; then the answer is given up."""
ANSWER_S: Final = MATCH_TIMEOUT_S + SEND_TIMEOUT_S + 10.0
"""Limit for one message of an answer, with a margin for the deadlock watch."""
IDLE_S: Final = 10.0
CLOSE_S: Final = 10.0
"""Time that the end of the node waits for threads that are in the middle of a message."""
MAX_LINES: Final = 1_000
PREFIX_BYTES: Final = 12
"""The first bytes of a GUID, the same for all entities of a participant."""


class _Job:
    """Messages for one client (None: for all), and the callback for their end."""

    __slots__ = ("done", "messages", "participant")

    def __init__(
        self, participant: bytes | None, messages: Iterable[bytes], done: Callable[[str], None]
    ) -> None:
        self.participant = participant
        self.messages = messages
        self.done = done


class _Line:
    """One writer with its queue. One thread at a time works on it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: collections.deque[_Job] = collections.deque()
        self.busy = False
        self.used_s = time.monotonic()
        self.writer: RawWriter | None = None


class TopicWriters:
    """The writers of one topic.

    Args:
        participant: the node's.
        topic: the topic of the answers.
        announced: name and TRANSPORT_PRIORITY of the writers.
        activities: registers the work of its threads for the deadlock watch.
        is_proved: the messages have a place for their proof.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        topic: Topic,
        announced: Announced,
        activities: ThreadActivities,
        *,
        is_proved: bool = False,
    ) -> None:
        self._participant = participant
        self._is_proved = is_proved
        self._announced = announced
        self._topic = topic
        self._activities = activities
        self._lines: dict[tuple[str, ...], _Line] = {}
        self._workers = Workers(activities, WORKERS, "historicalData")
        self._closing = threading.Event()

    def send(
        self,
        partitions: tuple[str, ...],
        participant: bytes | None,
        messages: Iterable[bytes],
        done: Callable[[str], None],
    ) -> None:
        """Write messages in a client's partitions, after earlier messages there.

        Args:
            partitions: the partitions of the client's reader.
            participant: GUID prefix of the client whose reader must match first. None writes to all matched.
            messages: the messages, iterated on another thread.
            done: called on another thread with the problem, "" for none.
        """
        line = self._lines.get(partitions)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                done(f"{MAX_LINES} clients are being answered already")
                return
            line = self._lines[partitions] = _Line()
        with line.lock:
            line.jobs.append(_Job(participant, messages, done))
            line.used_s = time.monotonic()
            if line.busy:
                return
            line.busy = True
        self._workers.submit(lambda: self._work(partitions, line))

    def close_idle(self, kept: set[tuple[str, ...]]) -> None:
        """Close the writers unused for `IDLE_S`, except those of `kept` partitions."""
        now = time.monotonic()
        for partitions, line in list(self._lines.items()):
            with line.lock:
                idle = not line.busy and not line.jobs and now - line.used_s > IDLE_S
            if idle and partitions not in kept:
                del self._lines[partitions]
                if line.writer is not None:
                    line.writer.close()

    def _work(self, partitions: tuple[str, ...], line: _Line) -> None:
        while True:
            with line.lock:
                if not line.jobs:
                    line.busy = False
                    line.used_s = time.monotonic()
                    return
                job = line.jobs.popleft()
            problem = ""
            try:
                if line.writer is None:
                    line.writer = self._open(partitions)
                with self._activities.job("historicalDataRequestHandler (answer to a client)", ANSWER_S):
                    problem = self._carry_out(line.writer, job)
            except DdsError as error:
                problem = str(error)
            job.done(problem)

    def _open(self, partitions: tuple[str, ...]) -> RawWriter:
        announced = self._announced
        return open_writer(
            self._participant,
            self._topic,
            partitions,
            batching=True,
            name=announced.writer,
            priority=announced.priorities.get(self._topic.name, announced.priority),
        )

    def _carry_out(self, writer: RawWriter, job: _Job) -> str:
        def is_there() -> bool:
            if self._closing.is_set():
                return True
            prefixes = {guid[:PREFIX_BYTES] for guid in writer.matched_readers().values()}
            return job.participant is None or job.participant in prefixes

        if not writer.wait_until(is_there, MATCH_TIMEOUT_S):
            return "READER_NOT_KNOWN: its reader of historical data was not discovered"
        for message in job.messages:
            problem = self._write(writer, message, is_there)
            moved()
            if problem:
                return problem
        writer.flush()
        return ""

    def _write(self, writer: RawWriter, message: bytes, is_there: Callable[[], bool]) -> str:
        deadline = time.monotonic() + SEND_TIMEOUT_S
        while not self._closing.is_set():
            try:
                writer.write(self._proved(writer, message), stamp_ns())
            except DdsTimeout:
                if not is_there():
                    return "the client is gone"
                if time.monotonic() > deadline:
                    return f"the client took nothing for {SEND_TIMEOUT_S} s"
            else:
                return ""
        return "the node ends"

    def _proved(self, writer: RawWriter, message: bytes) -> bytes:
        if not self._is_proved:
            return message
        return self._participant.proofs.filled(self._topic.name, writer.guid, message)

    def close(self) -> None:
        """End the threads; unwritten messages are given up."""
        self._closing.set()
        self._workers.close(CLOSE_S)
        for line in self._lines.values():
            if line.writer is not None:
                line.writer.close()
