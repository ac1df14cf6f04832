"""Requests of durability clients: the node's thread answers them, and other threads write the answers.

The node's thread decides what goes into an answer (`Answers`). The messages are made and written on other
threads (`engine.dds.client_protocol.topic_writers`).

The service holds a request that it cannot answer yet, for at most the time that the client gave.

A reader of this product may ask for updates after its set. It gets, as further parts of the same answer, the
samples captured while it was being matched and those that merges bring. It may request everything again;
until that answer it still gets the merges, because the disposes of a merge are not part of any set.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from engine.client_service.storage import Storage, StorageQuestion
from engine.core.name_spaces import Group, Interest
from engine.core.purging import FOREVER_NS
from engine.core.settings import PendingWriter
from engine.core.states import Phase
from engine.dataset.sample import DATA, captured_sample
from engine.dataset.sample_rows import SampleRows
from engine.dds.abi import INFINITE_NS
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import endpoints, extensions, naming
from engine.dds.client_protocol.extensions import StateAddition
from engine.dds.client_protocol.messages import (
    MAJOR_VERSION,
    UNLIMITED,
    ByteOrder,
    Completeness,
    ErrorCode,
    GroupState,
    HistoryLimits,
    HistoryRequest,
    Link,
    StateAnswer,
    StateRequest,
    decode,
    encode,
    encode_link,
)
from engine.dds.client_protocol.topic_writers import PREFIX_BYTES, TopicWriters
from engine.dds.writer_names import WRITER_GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.core.name_space_state import NameSpaceState
    from engine.core.name_spaces import Element
    from engine.dataset.captured import CapturedRun
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.dataset.sample_rows import Samples
    from engine.dds.activity import ThreadActivities
    from engine.dds.channel import Announced
    from engine.dds.client_protocol.extensions import DeletionOrder, PendingAddition
    from engine.dds.participant import NodeParticipant
    from engine.dds.waiting import Signal
    from engine.runtime.name_space_data import Difference
    from engine.runtime.runtime import Runtime

Groups = Sequence[tuple["GroupDescription", "Samples"]]

# Chosen: 16 bytes each, so the answer stays below a fifth of a megabyte.
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
        return self._runtime.late_joiners.unexpired(description, SampleRows.coerce(samples))

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
        # The same states give the same bytes; and what is cut off at `MAX_GROUPS_TOLD` is the same each
        # time.
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


# Chosen: a request is some hundred bytes, and nobody has to prove who he is to make one.
MAX_HELD: Final = 10_000
"""Limit for waiting requests of each kind; more are refused."""
# Chosen: a client asks again after it. Longer would keep requests of clients that have gone.
MAX_HOLD_S: Final = 60.0
"""Limit for holding a request, even if the client gave more."""
# As long as the store gathers changes (`engine.node.disk.GATHER_S`). Longer is added to each answer that
# waits for the disk.
RECHECK_S: Final = 0.02
DELETION_S: Final = 1.0
"""Least seconds that a deletion waits for the disk, also if the client gave none."""
# As for captured samples (`engine.node.intake`): both wait for the same disk.
MAX_BACKLOG: Final = 200_000
"""Samples that may wait for the disk; while more wait, clients cannot hand over samples."""
# Chosen so that an answer stays below a megabyte with long names; `left_out` has the number of the others.
MAX_GROUPS_TOLD: Final = 2_000
# As long as tombstones wait for an absent fellow by default (`absence_bound_s`).
MAX_PENDING_S: Final = 86_400.0
"""Limit for the time in which tombstones wait for a durable writer that is silent."""
# Chosen: names of 255 characters and some partitions fit; each pending writer stays in memory and in the
# store.
MAX_PENDING_CHARS: Final = 4_096
"""Limit for the characters of its topic and partitions together."""
REFUSAL_S: Final = 0.3
"""Seconds from a request that is refused for its proof until clients hear that this node refuses: by then
its client's reader has been discovered. All refusals of that time are one message, of whichever clients."""

Way = tuple[bytes, str, tuple[str, ...], tuple[str, ...]]
"""Identity of a client's reader: a repeated request for the same comes from the same reader."""


def way_of(request: HistoryRequest) -> Way:
    """Return the identity of the reader that sent a request."""
    return request.request.client, request.topic, request.partitions, request.alignment_partitions


class HeldRequest(Struct):
    """A request for history that waits for complete sets or its deadline."""

    client: bytes
    deadline_s: float
    request: HistoryRequest


class Question(Struct):
    """A state request that waits for its samples or its deadline."""

    client: bytes
    deadline_s: float
    request: StateRequest
    storage: StorageQuestion


class HeldDeletion(Struct):
    """A deletion that this node has carried out in memory, and that waits for the disk or its deadline."""

    client: bytes
    deadline_s: float
    request: StateRequest
    until_ns: int
    """Source time up to which it deletes."""
    slow: str
    """Node whose clock bounds it; empty if none does."""
    barrier: int | None = None
    """Number of changes that the disk must have carried out; None until the deletion has been queued."""


TAIL_S: Final = 1.0
"""Time after a set at which a reader gets samples captured meanwhile; all writers have matched it by then."""


class _Follower(Struct):
    """A reader with its client and its last request.

    `given` has the digests of the samples that it got of a name-space, until `tail_s`: then it gets the
    samples that came into the set meanwhile.
    """

    client: bytes
    request: HistoryRequest
    name_spaces: frozenset[str]
    given: dict[str, set[bytes]]
    tail_s: float


class Followers:
    """All readers that get updates.

    Args:
        runtime: the node's.
        answers: the node's data.
        send: sends samples to a client as an update of the answer to a request.
    """

    def __init__(
        self,
        runtime: Runtime,
        answers: Answers,
        send: Callable[[bytes, HistoryRequest, Groups], None],
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.shared.clock
        self._answers = answers
        self._send = send
        self._all: dict[Way, _Follower] = {}

    @property
    def partitions(self) -> set[tuple[str, ...]]:
        """Partitions of their answers."""
        return {one.request.alignment_partitions for one in self._all.values()}

    def name_spaces(self, request: HistoryRequest) -> frozenset[str]:
        """Return the name-spaces of a reader's updates, even if another node is their master now."""
        known = self._all.get(way_of(request))
        return known.name_spaces if known else frozenset()

    def begin(
        self,
        client: bytes,
        request: HistoryRequest,
        sets: Mapping[str, Sequence[tuple[GroupDescription, SampleRows]]],
    ) -> None:
        """Begin updates for a reader that is about to get these sets, by name-space.

        Its `client` is the sender of the request.
        """
        given = {name: _digests(samples for _, samples in groups) for name, groups in sets.items()}
        names = self.name_spaces(request).union(given)
        tail_s = self._clock.monotonic() + TAIL_S
        self._all[way_of(request)] = _Follower(client, request, names, given, tail_s)

    def ask_again(self, request: HistoryRequest) -> None:
        """Note that a reader requests everything again."""
        known = self._all.get(way_of(request))
        if known is not None:
            known.request = request

    def end(self, request: HistoryRequest) -> None:
        """End the updates for a reader."""
        self._all.pop(way_of(request), None)

    def failed(self, request: HistoryRequest) -> None:
        """End the updates for a reader that a message did not reach: it must request everything again."""
        known = self._all.get(way_of(request))
        if known is not None and known.request.request == request.request:
            self.end(request)

    def gone(self, client: bytes) -> None:
        """Forget a client with all its readers."""
        self._all = {way: one for way, one in self._all.items() if one.client != client}

    def work(self, now: float) -> list[float]:
        """Send what is due; return the times of later updates."""
        for follower in self._all.values():
            if follower.given and now >= follower.tail_s:
                self._send_tail(follower)
        return [follower.tail_s for follower in self._all.values() if follower.given]

    def difference(self, name_space: str, difference: Difference) -> None:
        """Send the result of a merge to the readers that have the set."""
        for follower in self._all.values():
            if name_space not in follower.name_spaces:
                continue
            interest = self._answers.interest(follower.request)
            groups = [
                (self._runtime.descriptions[group], samples)
                # By group: two nodes with the same difference send the same messages, and a simulated run
                # can be repeated.
                for group, samples in sorted(difference.items(), key=lambda item: item[0])
                if interest.wants(group)
            ]
            if groups:
                self._send(follower.client, follower.request, groups)

    def replaced(self, name_space: str, news: Difference) -> None:
        """Send the changes after a set was replaced; samples captured meanwhile follow."""
        followers = [each for each in self._all.values() if name_space in each.name_spaces]
        if not followers:
            return
        self.difference(name_space, news)
        working = self._runtime.spaces[name_space].working
        given = _digests(group_set.samples() for group_set in working.groups.values())
        for follower in followers:
            follower.given[name_space] = given
            follower.tail_s = self._clock.monotonic() + TAIL_S

    def _send_tail(self, follower: _Follower) -> None:
        """Send the samples that came into the set since it was sent."""
        interest = self._answers.interest(follower.request)
        groups = []
        for state in self._answers.name_spaces(interest):
            if state.name not in follower.given:
                continue
            given = follower.given[state.name]
            for description, samples in self._answers.groups([state], interest):
                new = [sample for sample in samples if sample.digest not in given]
                if new:
                    groups.append((description, new))
        follower.given = {}
        if groups:
            self._send(follower.client, follower.request, groups)


def _digests(sets: Iterable[SampleRows]) -> set[bytes]:
    return {digest for samples in sets for digest in samples.each_digest()}


class ClientService:
    """The service side of the protocol.

    Args:
        participant: the node's.
        runtime: the node's; used on its thread only.
        partition: //OpenSplice/DurabilityService/ClientDurability/EntityNames/Partition.
        signal: set when there is something to take.
        post: runs a callable on the node's thread.
        routes: the groups of every discovered writer.
        living: returns the living writers of a group.
        disposing: returns the lost writers of a group that had autodispose.
        is_sound: tells whether a sample is of a group's type; None if the type is not captured.
        announced: names and priorities of the endpoints.
        activities: registers the work of its threads for the deadlock watch.
        has_disk: whether the node's store is on a disk; otherwise no sample counts as stored there.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        runtime: Runtime,
        partition: str,
        signal: Signal,
        post: Callable[[Callable[[], None]], None],
        routes: Mapping[bytes, tuple[Group, ...]],
        living: Callable[[Group], Iterable[bytes]],
        disposing: Callable[[Group], Iterable[bytes]],
        is_sound: Callable[[Group, Sample], bool | None],
        announced: Announced,
        activities: ThreadActivities,
        *,
        has_disk: bool = True,
    ) -> None:
        self._runtime = runtime
        self._post = post
        self._partition = partition
        self._clock = runtime.shared.clock
        self._tracer = runtime.shared.tracer
        self._server = bytes.fromhex(runtime.settings.node)
        self._held: list[HeldRequest] = []
        self._questions: list[Question] = []
        self._deletions: list[HeldDeletion] = []
        self._newest: dict[Way, tuple[int, bytes]] = {}
        self._last_answers: dict[str, tuple[bool, tuple[Element, ...]]] = {}
        self._routes = routes
        self._is_sound = is_sound
        self._storage = Storage(runtime, has_disk=has_disk)
        self._answers = Answers(
            runtime,
            functools.partial(self._writers, living),
            functools.partial(self._writers, disposing),
        )
        self._followers = Followers(runtime, self._answers, self._send_update)
        topics = endpoints.open_topics(participant)
        self._lines = TopicWriters(participant, topics[endpoints.HISTORY], announced, activities)
        self._states = TopicWriters(
            participant, topics[endpoints.STATE], announced, activities, is_proved=True
        )
        self._proofs = participant.proofs
        self._refusal_due_s = math.inf
        self._readers = {
            name: endpoints.open_reader(
                participant, topics[name], (partition,), signal, name=announced.reader
            )
            for name in (endpoints.STATE_REQUEST, endpoints.HISTORY_REQUEST)
        }
        runtime.late_joiners.on_difference = self._followers.difference
        runtime.late_joiners.on_replaced = self._followers.replaced
        for name in ("client_requests", "client_samples", "client_handed_over"):
            runtime.counters.setdefault(name, 0)

    def _writers(self, find: Callable[[Group], Iterable[bytes]], interest: Interest) -> Iterable[bytes]:
        groups = [group for group in self._runtime.descriptions if interest.wants(group)]
        return dict.fromkeys(writer for group in groups for writer in sorted(find(group)))

    # In, on the pump's thread.

    def drain(self) -> list[tuple[str, Sample]]:
        """Return the records of clients that have come in."""
        return [(name, record) for name, reader in self._readers.items() for record in reader.drain()]

    # In, on the node's thread.

    def handle(self, batch: Sequence[Any]) -> None:
        """Handle the records of `drain`."""
        for topic, record in batch:
            client = record.writer[:PREFIX_BYTES]
            if record.status & WRITER_GONE:
                self._gone(client)
            elif record.status & DATA:
                try:
                    if topic == endpoints.HISTORY_REQUEST:
                        request = decode(HistoryRequest, record.payload)
                        if self._is_proved(topic, record, request.extensions):
                            self._history_requested(client, request)
                    else:
                        question = decode(StateRequest, record.payload)
                        if self._is_proved(topic, record, question.extensions):
                            self._state_requested(client, question)
                except Malformed as error:
                    self._runtime.shared.malformed(topic, client.hex(), str(error))

    def _is_proved(self, topic: str, record: Sample, added: Mapping[str, bytes]) -> bool:
        proof = added.get(extensions.PROOF, b"")
        is_proved = self._proofs.is_proved(topic, record.writer, record.payload, proof)
        if not is_proved:
            self._refusal_due_s = min(self._refusal_due_s, self._clock.monotonic() + REFUSAL_S)
        return is_proved

    def captured(
        self,
        records: Sequence[Sample | CapturedRun],
        unrouted: Sequence[Sample],
        routes: Mapping[bytes, tuple[Group, ...]],
    ) -> None:
        """Count records from a tap; the writers of `unrouted` are not known yet."""
        self._storage.captured(records, unrouted, routes)

    def work(self) -> float:
        """Answer what can be answered; return the time of the next call at the latest."""
        now = self._clock.monotonic()
        self._tell_changes()
        self._tell_refusal(now)
        self._held = [held for held in self._held if not self._answer(held, now)]
        self._questions = [one for one in self._questions if not self._answer_question(one, now)]
        self._deletions = [one for one in self._deletions if not self._answer_deletion(one, now)]
        dues = [held.deadline_s for held in self._held]
        dues += [*self._followers.work(now), self._refusal_due_s]
        self._lines.close_idle(self._followers.partitions)
        if self._questions or self._deletions:
            dues.append(now + RECHECK_S)
        return min(dues, default=now + 1.0)

    def close(self) -> None:
        """End the threads and close the readers."""
        self._lines.close()
        self._states.close()
        for reader in self._readers.values():
            reader.close()

    # History.

    def _history_requested(self, client: bytes, request: HistoryRequest) -> None:
        if request.servers and self._server not in request.servers:
            return
        added = extensions.unpack(request.extensions, extensions.HistoryRequestAddition)
        if added is not None:
            self._supersede(request)
            if added.cancel:
                self._followers.end(request)
                return
            self._newest[way_of(request)] = (request.request.number, client)
        self._runtime.counters["client_requests"] += 1
        self._tracer.event(
            "client.request",
            reader=request.request.client.hex(),
            group=f"{','.join(request.partitions)}.{request.topic}",
        )
        error = self._answers.refusal(request)
        if error is ErrorCode.OK and len(self._held) >= MAX_HELD:
            error = ErrorCode.NO_CLIENTS
        if error is not ErrorCode.OK:
            self._send_link(client, request, error)
            return
        hold_s = min(MAX_HOLD_S, 0.0 if request.timeout.ns < 0 else request.timeout.ns / 1e9)
        held = HeldRequest(client, self._clock.monotonic() + hold_s, request)
        for state in self._answers.name_spaces(self._answers.interest(request)):
            self._answers.want(state, self._answers.interest(request))
        self._held.append(held)

    def _supersede(self, request: HistoryRequest) -> None:
        """Drop the earlier request of a reader of our library, which repeats or cancels it."""
        way = way_of(request)
        self._newest.pop(way, None)
        self._followers.ask_again(request)
        self._held = [held for held in self._held if way_of(held.request) != way]

    def _answer(self, held: HeldRequest, now: float) -> bool:
        """Answer a request if that is possible or due; return False to hold it."""
        request = held.request
        interest = self._answers.interest(request)
        states = self._answers.name_spaces(interest)
        followed = self._followers.name_spaces(request)
        mine = [
            state
            for state in states
            if state.name in followed
            or self._answers.is_responsible(state)
            or (request.servers and not followed)
        ]
        undecided = [state for state in states if state.following is None]
        waits = undecided or [state for state in mine if not state.has_all(interest.elements)]
        if waits and now < held.deadline_s:
            return False
        if not mine:
            self._send_link(held.client, request, self._answers.why_not(states))
            return True
        self._send_set(held.client, request, mine)
        return True

    def _send_set(self, client: bytes, request: HistoryRequest, states: list[NameSpaceState]) -> None:
        interest = self._answers.interest(request)
        whole = [state for state in states if state.has_all(interest.elements)]
        sets = {state.name: list(self._answers.groups([state], interest)) for state in whole}
        added = extensions.unpack(request.extensions, extensions.HistoryRequestAddition)
        if added is not None and added.follow:
            self._followers.begin(client, request, sets)
        groups = [each for some in sets.values() for each in some]
        self._send(client, request, self._answers.messages(request, groups, states))

    def _send_link(self, client: bytes, request: HistoryRequest, error: ErrorCode) -> None:
        self._send(client, request, self._answers.error(request, error))

    def _send(
        self, client: bytes, request: HistoryRequest, messages: Any, *, is_update: bool = False
    ) -> None:
        count = [0]
        way = way_of(request) if extensions.NAME in request.extensions and not is_update else None

        def counted() -> Any:
            for message in messages:
                if way is not None and self._newest.get(way, (0,))[0] != request.request.number:
                    return  # superseded
                count[0] += 1
                yield message

        def done(problem: str) -> None:
            self._post(lambda: self._sent(request, problem, max(0, count[0] - 1)))

        self._lines.send(request.alignment_partitions, client, counted(), done)

    def _send_update(self, client: bytes, request: HistoryRequest, groups: Groups) -> None:
        """Send an update, also if the reader has repeated its request meanwhile."""
        self._send(client, request, self._answers.messages(request, groups), is_update=True)

    def _sent(self, request: HistoryRequest, problem: str, samples: int) -> None:
        self._runtime.counters["client_samples"] += samples
        reader = request.request.client.hex()
        if problem:
            self._tracer.event("deliver.waiting", reader=reader, group=request.topic, reason=problem)
            self._followers.failed(request)
            self._held = [held for held in self._held if held.request.request != request.request]
        else:
            self._tracer.event("client.fulfilled", reader=reader)

    def _gone(self, client: bytes) -> None:
        """Forget a client whose request writer is gone."""
        self._held = [held for held in self._held if held.client != client]
        self._questions = [one for one in self._questions if one.client != client]
        self._deletions = [one for one in self._deletions if one.client != client]
        self._newest = {way: one for way, one in self._newest.items() if one[1] != client}
        self._followers.gone(client)

    # States.

    def _state_requested(self, client: bytes, request: StateRequest) -> None:
        if request.servers and self._server not in request.servers:
            return
        self._tracer.event(
            "client.state-request", client=request.request.client.hex(), count=len(request.partitions)
        )
        if not request.topic or not request.partitions:
            return  # NO_TOPIC, NO_PARTITIONS: the answer has no field for an error
        added = extensions.unpack(request.extensions, extensions.StateRequestAddition)
        if added is None:
            self._send_state(client, request)
        elif added.delete is not None:
            self._delete(client, request, added.delete)
        elif added.stored is not None:
            self._asked(client, request, StorageQuestion.parse(added.stored, request.extensions))
        elif added.pending is not None:
            self._is_pending(request, added.pending)
        elif added.keep is not None:
            self._receive_missed(client, request, added.keep)
        elif added.others:
            self._send_state(client, request, fellows=self._answers.fellows(), away=self._answers.away())
        else:
            self._send_state(client, request)

    def _delete(self, client: bytes, request: StateRequest, order: DeletionOrder) -> None:
        partition, topic, until_ns = order.partition, order.topic, order.until_ns
        self._tracer.event(
            "delete.received", expression=f"{partition}.{topic}", origin=request.request.client.hex()
        )
        reason = self._why_it_would_come_back(Interest(topic, (partition,), by_expression=True))
        if not reason and len(self._deletions) >= MAX_HELD:
            reason = f"too many deletions wait for the disk of node {self._runtime.settings.name}"
        if reason:
            self._send_state(client, request, deleted=False, reason=reason)
            return
        reached = self._runtime.deletions.delete(partition, topic, min(until_ns, INFINITE_NS))
        hold_s = min(MAX_HOLD_S, max(DELETION_S, request.timeout.ns / 1e9))
        self._deletions.append(HeldDeletion(client, self._clock.monotonic() + hold_s, request, *reached))

    def _answer_deletion(self, one: HeldDeletion, now: float) -> bool:
        """Confirm a deletion once it is on the disk, or say why it is not; False to wait for the disk.

        The runtime has had a turn since the request, so what it removed has been queued.
        """
        queue = self._runtime.store_queue
        if one.barrier is None:
            one.barrier = self._runtime.hurry()
        is_stored = queue.carried_out >= one.barrier and not queue.is_overflowed
        if not is_stored and now < one.deadline_s:
            return False
        problem = f"refuses: {queue.problem}" if queue.problem else "is behind"
        reason = "" if is_stored else f"the disk of node {self._runtime.settings.name} {problem}"
        self._send_state(
            one.client, one.request, deleted=is_stored, reason=reason, until_ns=one.until_ns, slow=one.slow
        )
        return True

    def _why_it_would_come_back(self, interest: Interest) -> str:
        """Return the reason why a deletion by this node would not last; empty if it lasts."""
        for state in self._answers.name_spaces(interest):
            if state.is_lazy or not state.policy.aligner:
                what = "has parts of" if state.is_lazy else "is no aligner of"
                return f"node {self._runtime.settings.name} {what} name-space '{state.name}'"
        return ""

    def _asked(self, client: bytes, request: StateRequest, question: StorageQuestion | None) -> None:
        """Take in a client's question about its stored samples."""
        if question is None:
            reason = "the client is of another version than this node, which does not answer it"
            self._send_state(client, request, required=True, reason=reason)
        elif len(self._questions) < MAX_HELD:
            hold_s = min(MAX_HOLD_S, max(0.0, request.timeout.ns / 1e9))
            deadline_s = self._clock.monotonic() + hold_s
            self._questions.append(Question(client, deadline_s, request, question))

    def _answer_question(self, one: Question, now: float) -> bool:
        request, question, storage = one.request, one.storage, self._storage
        states = self._answers.name_spaces(Interest(request.topic, request.partitions))
        places = storage.places(states, request.topic, request.partitions)
        if places and not storage.is_answered(question, states, places, now, one.deadline_s):
            return False
        is_persistent, is_on_disk = storage.keeping(places)
        added: dict[str, Any] = {
            "answers": naming.ANSWERS,
            "required": bool(places),
            "partitions": tuple(place.partition for place in places),
            "complete": not storage.incomplete(states),
            "reason": storage.why_not(states, places),
            "on_disk": is_on_disk,
            "weaker": is_persistent and not is_on_disk,
            "not_shared": storage.why_not_shared(places),
            "limits": storage.limits(places),
        }
        blocks = {}
        if question.names:
            verdicts = storage.verdicts(question, states, places) if places else []
            blocks[naming.VERDICTS] = bytes(verdicts)
            added["forgotten_ns"] = storage.forgotten_ns(places)
        elif places:
            captured, refused = storage.tally(question.writer)
            added |= {"captured": captured, "refused": refused, "content": question.content}
            added["written"] = storage.is_past(question)
            added["deleted"] = storage.is_deleted(question.writer, places)
            added["kept_out"] = storage.has_kept_out(places)
        self._send_state(one.client, request, blocks, **added)
        return True

    def _is_pending(self, request: StateRequest, pending: PendingAddition) -> None:
        """Note that a durable writer may still hand over samples, or will not; nothing is answered."""
        if len(request.topic) + sum(map(len, request.partitions)) > MAX_PENDING_CHARS:
            raise Malformed("the names of what is pending are too long")
        if pending.since_ns is None:
            self._runtime.pending.ended(pending.id)
            return
        since_ns = max(0, min(pending.since_ns, FOREVER_NS))
        wait_s = min(MAX_PENDING_S, pending.wait_s)
        self._runtime.pending.heard(
            PendingWriter(pending.id, request.topic, request.partitions, since_ns, wait_s)
        )

    def _receive_missed(self, client: bytes, request: StateRequest, by: bytes) -> None:
        """Take in samples that this node missed and a client hands over, as if captured.

        `by` is a living writer of the client in the same groups; the samples may be of an earlier writer.
        """
        samples = naming.unpack_samples(request.extensions.get(naming.SAMPLES, b""))
        groups = self._routes.get(by, ())
        sound = {self._is_sound(group, one) for group in groups[:1] for one in samples}
        if False in sound:
            raise Malformed(f"a sample that is handed over is none of topic '{request.topic}'")
        store_queue = self._runtime.store_queue
        if not groups or None in sound:
            self._send_state(client, request, kept=0, reason="the writer is not known here yet")
        elif store_queue.queued_changes > MAX_BACKLOG and not store_queue.problem:
            self._send_state(client, request, kept=0, reason="too much waits for the disk")
        else:
            self._storage.refused(samples)
            records = [
                captured_sample(one[0], one.writer, one.status, one.key, one.payload) for one in samples
            ]
            self._runtime.capture(records, {one.writer: groups for one in samples})
            self._runtime.counters["client_handed_over"] += len(records)
            self._tracer.event(
                "client.handed-over",
                client=request.request.client.hex(),
                topic=request.topic,
                count=len(records),
            )
            self._send_state(client, request, kept=len(records), reason="")

    def _send_state(
        self,
        client: bytes,
        request: StateRequest,
        blocks: Mapping[str, bytes] | None = None,
        **added: Any,
    ) -> None:
        interest = Interest(request.topic, request.partitions, by_expression=True)
        states = self._answers.name_spaces(interest)
        found = self._answers.group_states(states, interest)
        shown = found[:MAX_GROUPS_TOLD]
        addition = msgspec.structs.replace(
            self._answers.state_addition(shown), left_out=len(found) - len(shown), **added
        )
        packed = {**extensions.pack(addition), **(blocks or {})}
        state = StateAnswer(
            self._server, (request.request,), tuple(shown), extensions.with_proof(packed, self._proofs)
        )
        self._states.send((self._partition,), client, [encode(state)], _nothing)

    def _tell_changes(self) -> None:
        """Tell all clients about groups whose completeness has changed."""
        changed = []
        for state in self._runtime.core.name_spaces:
            now = (state.complete, state.whole)
            if self._last_answers.get(state.name, (False, ())) != now:
                self._last_answers[state.name] = now
                changed.append(state)
        groups = self._answers.group_states(changed, None)
        if groups:
            self._tell_all(groups[:MAX_GROUPS_TOLD])

    def _tell_refusal(self, now: float) -> None:
        """Tell all clients nothing, with our proof: one that cannot verify it learns why nobody answers."""
        if now >= self._refusal_due_s:
            self._refusal_due_s = math.inf
            self._tell_all(())

    def _tell_all(self, groups: Sequence[GroupState]) -> None:
        added = extensions.with_proof({}, self._proofs)
        message = StateAnswer(self._server, (), tuple(groups), added)
        self._states.send((self._partition,), None, [encode(message)], _nothing)


def _nothing(_: str) -> None:
    """Do nothing: if a state does not arrive, the client asks again."""
