"""Requests of durability clients: the node's thread answers them, and other threads write the answers.

The service holds a request that it cannot answer yet, for at most the time that the client gave. A client of
this product may request updates (see `engine.client_service.followers`).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

from engine.client_service.answers import Answers, ClientView
from engine.client_service.followers import (
    Followers,
    HeldDeletion,
    HeldRequest,
    Question,
    Way,
    parse_pending,
    way_of,
)
from engine.client_service.lines import PREFIX_BYTES, TopicWriters
from engine.client_service.storage import Storage, StorageQuestion
from engine.core.name_spaces import Interest
from engine.dataset.captured import CapturedSample
from engine.dataset.sample import DATA
from engine.dds.abi import INFINITE_NS
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import endpoints, extensions, naming
from engine.dds.client_protocol.encoding import decode_history_request, decode_state_request, encode_state
from engine.dds.client_protocol.messages import (
    ErrorCode,
    GroupState,
    HistoryRequest,
    StateAnswer,
    StateRequest,
)
from engine.dds.writer_names import WRITER_GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from engine.client_service.answers import Groups
    from engine.core.name_space_state import NameSpaceState
    from engine.core.name_spaces import Element, Group
    from engine.dataset.captured import CapturedRun
    from engine.dataset.sample import Sample
    from engine.dds.activity import ThreadActivities
    from engine.dds.channel import Announced
    from engine.dds.participant import NodeParticipant
    from engine.dds.waiting import Signal
    from engine.runtime.runtime import Runtime

MAX_HELD: Final = 10_000
"""Limit for waiting requests of each kind; more are refused."""
MAX_HOLD_S: Final = 60.0
"""Limit for holding a request, even if the client gave more."""
RECHECK_S: Final = 0.02
DELETION_S: Final = 1.0
"""Least seconds that a deletion waits for the disk, also if the client gave none."""
MAX_BACKLOG: Final = 200_000
"""Samples that may wait for the disk; while more wait, clients cannot hand over samples."""
MAX_GROUPS_TOLD: Final = 2_000
REFUSAL_S: Final = 0.3
"""Seconds from a request that is refused for its proof until clients hear that this node refuses: by then
its client's reader has been discovered. All refusals of that time are one message, of whichever clients."""


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
        self._told: dict[str, tuple[bool, tuple[Element, ...]]] = {}
        self._view = ClientView(runtime)
        self._routes = routes
        self._is_sound = is_sound
        self._storage = Storage(runtime, has_disk=has_disk)
        self._answers = Answers(
            self._server,
            self._view,
            functools.partial(self._writers, living),
            functools.partial(self._writers, disposing),
        )
        self._followers = Followers(runtime, self._view, self._answers, self._send_update)
        topics = {
            name: endpoints.open_protocol_topic(participant, name)
            for name in (
                endpoints.STATE_REQUEST,
                endpoints.STATE,
                endpoints.HISTORY_REQUEST,
                endpoints.HISTORY,
            )
        }
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

    def take(self) -> list[tuple[str, CapturedSample]]:
        """Take the records of clients."""
        return [(name, record) for name, reader in self._readers.items() for record in reader.drain()]

    # In, on the node's thread.

    def handle(self, batch: Sequence[Any]) -> None:
        """Handle the records of `take`."""
        for topic, record in batch:
            client = record.writer[:PREFIX_BYTES]
            if record.status & WRITER_GONE:
                self._gone(client)
            elif record.status & DATA:
                try:
                    if topic == endpoints.HISTORY_REQUEST:
                        request = decode_history_request(record.payload)
                        if self._is_proved(topic, record, request.extensions):
                            self._history_requested(client, request)
                    else:
                        question = decode_state_request(record.payload)
                        if self._is_proved(topic, record, question.extensions):
                            self._state_requested(client, question)
                except Malformed as error:
                    self._runtime.shared.malformed(topic, client.hex(), str(error))

    def _is_proved(self, topic: str, record: CapturedSample, added: Mapping[str, bytes]) -> bool:
        proof = added.get(extensions.PROOF, b"")
        is_proved = self._proofs.is_proved(topic, record.writer, record.payload, proof)
        if not is_proved:
            self._refusal_due_s = min(self._refusal_due_s, self._clock.monotonic() + REFUSAL_S)
        return is_proved

    def captured(
        self,
        records: Sequence[CapturedSample | CapturedRun],
        unrouted: Sequence[CapturedSample],
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
        added = extensions.unpack(request.extensions) or {}
        if extensions.NAME in request.extensions:
            self._supersede(request)
            if added.get("cancel"):
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
        for state in self._view.name_spaces(self._answers.interest(request)):
            self._view.want(state, self._answers.interest(request))
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
        states = self._view.name_spaces(interest)
        followed = self._followers.name_spaces(request)
        mine = [
            state
            for state in states
            if state.name in followed
            or self._view.is_responsible(state)
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
        sets = {state.name: list(self._view.groups([state], interest)) for state in whole}
        if (extensions.unpack(request.extensions) or {}).get("follow"):
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
        added = extensions.unpack(request.extensions) or {}
        if "delete" in added:
            self._delete(client, request, added["delete"])
        elif "stored" in added:
            self._asked(client, request, StorageQuestion.parse(added["stored"], request.extensions))
        elif "pending" in added:
            self._is_pending(request, added["pending"])
        elif "keep" in added:
            self._keep(client, request, added["keep"])
        elif "others" in added:
            self._send_state(client, request, fellows=self._view.fellows(), away=self._view.away())
        else:
            self._send_state(client, request)

    def _delete(self, client: bytes, request: StateRequest, values: Any) -> None:
        try:
            partition, topic, until_ns = values["partition"], values["topic"], values["until_ns"]
        except (TypeError, KeyError):
            raise Malformed("our addition does not say what to delete") from None
        if not (isinstance(partition, str) and isinstance(topic, str) and isinstance(until_ns, int)):
            raise Malformed("our addition does not say what to delete")
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
        for state in self._view.name_spaces(interest):
            if state.is_lazy or not state.policy.aligner:
                what = "has parts of" if state.is_lazy else "is no aligner of"
                return f"node {self._runtime.settings.name} {what} name-space '{state.name}'"
        return ""

    def _asked(self, client: bytes, request: StateRequest, question: StorageQuestion | None) -> None:
        """Take in a client's question about its stored samples."""
        if question is None:
            reason = "the client is of another version than this node, which does not answer it"
            self._send_state(client, request, required=True, stored=False, reason=reason)
        elif len(self._questions) < MAX_HELD:
            hold_s = min(MAX_HOLD_S, max(0.0, request.timeout.ns / 1e9))
            deadline_s = self._clock.monotonic() + hold_s
            self._questions.append(Question(client, deadline_s, request, question))

    def _answer_question(self, one: Question, now: float) -> bool:
        request, question, storage = one.request, one.storage, self._storage
        states = self._view.name_spaces(Interest(request.topic, request.partitions))
        places = storage.places(states, request.topic, request.partitions)
        if places and not storage.is_answered(question, states, places, now, one.deadline_s):
            return False
        is_persistent, is_on_disk = storage.keeping(places)
        added: dict[str, object] = {
            "answers": naming.ANSWERS,
            "required": bool(places),
            "partitions": [place.partition for place in places],
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

    def _is_pending(self, request: StateRequest, values: Any) -> None:
        """Note that a durable writer may still hand over samples, or will not; nothing is answered."""
        writer = parse_pending(request, values)
        if writer.since_ns < 0:
            self._runtime.pending.ended(writer.id)
        else:
            self._runtime.pending.heard(writer)

    def _keep(self, client: bytes, request: StateRequest, values: Any) -> None:
        """Take in samples that this node missed and a client hands over, as if captured.

        `by` is a living writer of the client in the same groups; the samples may be of an earlier writer.
        """
        try:
            by = bytes.fromhex(values["by"])
        except (TypeError, KeyError, ValueError):
            raise Malformed("our addition names no writer") from None
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
                CapturedSample(one[0], one.writer, one.status, one.key, one.payload) for one in samples
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
        **added: object,
    ) -> None:
        interest = Interest(request.topic, request.partitions, by_expression=True)
        states = self._view.name_spaces(interest)
        found = self._view.group_states(states, interest)
        settings, told = self._runtime.settings, found[:MAX_GROUPS_TOLD]
        state = StateAnswer(
            self._server,
            (request.request,),
            tuple(told),
            extensions.with_proof(
                {
                    **extensions.pack(
                        node=settings.node,
                        filtered=self._view.filtered(told),
                        samples=self._view.counts(told),
                        floors=self._view.floors(told),
                        name=settings.name,
                        left_out=max(0, len(found) - MAX_GROUPS_TOLD),
                        **added,
                    ),
                    **(blocks or {}),
                },
                self._proofs,
            ),
        )
        self._states.send((self._partition,), client, [encode_state(state)], _nothing)

    def _tell_changes(self) -> None:
        """Tell all clients about groups whose completeness has changed."""
        changed = []
        for state in self._runtime.core.name_spaces:
            now = (state.complete, state.whole)
            if self._told.get(state.name, (False, ())) != now:
                self._told[state.name] = now
                changed.append(state)
        groups = self._view.group_states(changed, None)
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
        self._states.send((self._partition,), None, [encode_state(message)], _nothing)


def _nothing(_: str) -> None:
    """Do nothing: if a state does not arrive, the client asks again."""
