"""A reader that gets the complete history in order, without repetitions.

`HistoryRequests` asks the services, and puts what they answer into the cache. `Arrivals` holds live samples
back while the history is on its way, puts them behind it, and tells the cache which writers live. The cache
(`ospltool.client.cache`) decides what is new and where it belongs. All of it runs on the session's thread,
under its lock; `DurableReader` is what the application calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from cyclonedds.domain import DomainParticipant
from cyclonedds.qos import Policy, Qos, _CQos

from engine.core.untrusted import Newest
from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dataset.instance_states import InstanceState
from engine.dataset.sample import DATA, with_digest
from engine.dds import abi
from engine.dds.capture_reader import CaptureReader
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.extensions import HistoryRequestAddition, LinkAddition
from engine.dds.client_protocol.messages import (
    INFINITE,
    UNLIMITED,
    ZERO,
    Bead,
    HistoryLimits,
    HistoryRequest,
    RequestId,
    Time,
    decode_history,
)
from engine.dds.errors import DdsError
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, read_endpoint_qos
from engine.dds.topics import Topic
from engine.dds.writer_names import AUTODISPOSE, WRITER_GONE
from ospltool.client import errors
from ospltool.client.asking import mismatch
from ospltool.client.cache import Counters, ResourceLimits, SampleCache
from ospltool.client.client import DurabilityClient
from ospltool.client.errors import UnsupportedQos
from ospltool.client.presence import MAX_GONE
from ospltool.client.samples import (
    HOLD_S,
    HistoryFetch,
    HistorySelection,
    ReceivedSample,
    SampleDecoder,
    Send,
)
from ospltool.client.session import PREFIX_BYTES, Session, SessionPart
from ospltool.client.subscribing import ReaderSubscription, identity, identity_of_received

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.sample import Sample
    from ospltool.client.cache import CacheEntry

DEFAULT_QOS: Final = (Policy.Durability.Transient, Policy.Reliability.Reliable(0), Policy.History.KeepAll)


def endpoint_qos(qos: Qos | None, partitions: tuple[str, ...]) -> EndpointQos:
    """Return the policies of the reader of live samples.

    Raises:
        UnsupportedQos: the library does not support a policy.
    """
    given = Qos(*(DEFAULT_QOS if qos is None else qos))
    for policy in given:
        if policy == Policy.Ownership.Exclusive or isinstance(policy, Policy.TimeBasedFilter):
            raise UnsupportedQos(f"a durable reader does not support {policy}")
    c_qos = _CQos.qos_to_cqos(given)
    try:
        values = read_endpoint_qos(c_qos)
    finally:
        _CQos.cqos_destroy(c_qos)
    if Policy.Durability not in given:
        values = msgspec.structs.replace(values, durability=DurabilityKind.TRANSIENT)
    if Policy.Reliability not in given:
        values = msgspec.structs.replace(values, reliable=True)
    if Policy.History not in given:
        values = msgspec.structs.replace(values, history_depth=KEEP_ALL)
    return msgspec.structs.replace(
        values,
        partitions=partitions or values.partitions,
        representations=values.representations or BOTH_REPRESENTATIONS,
    )


def resource_limits(qos: Qos | None) -> ResourceLimits:
    """Return RESOURCE_LIMITS of the application's policies."""
    for policy in qos or ():
        if isinstance(policy, Policy.ResourceLimits):
            given = (policy.max_samples, policy.max_instances, policy.max_samples_per_instance)
            return ResourceLimits(*(max(0, each) for each in given))
    return ResourceLimits()


def subscribed_qos(qos: EndpointQos) -> EndpointQos:
    """Return the policies of the reader of live samples of a durable subscription.

    Raises:
        UnsupportedQos: the policies would allow the loss of samples.
    """
    if not qos.reliable or qos.history_depth != KEEP_ALL:
        raise UnsupportedQos("a reader with a durable subscription is RELIABLE and KEEP_ALL")
    return msgspec.structs.replace(qos, durability=DurabilityKind.VOLATILE)


# Chosen: an application waits longer for its first sample only if no service answers.
HOLD_BACK_S: Final = 30.0
"""Most seconds that live samples are held back for the history; then they are given first."""
# Chosen: `take` of the application waits for the lock meanwhile.
DRAIN: Final = 10_000
LOOK_AGAIN_S: Final = 1.0
"""Seconds between two checks of the living writers without news."""
RETURN_S: Final = 1.0
"""Seconds after a writer's return in which a reader may miss samples that services have."""
# The default lease of Cyclone DDS: a writer that lives is discovered by then.
EXPECTED_S: Final = 10.0
"""Seconds that a writer counts as living on the word of a service, before it is discovered."""


class _Expected(NamedTuple):
    """A writer that a service knows: when the service was asked, and how long the writer counts as living."""

    asked_s: float
    until_s: float


class Arrivals:
    """Puts live samples into the cache, after the older history, and tells it which writers live.

    Called under the session's lock.

    Args:
        session: knows the participants that deliver history to ordinary readers.
        live: reader of live samples.
        cache: the application takes samples from it.
        subscription: durable subscription of the reader, if it has one; its samples wait with the others.
        max_samples: samples that may wait for the application; then writers are held back.
        holds: hold live samples back from the start.
    """

    def __init__(
        self,
        session: Session,
        live: CaptureReader,
        cache: SampleCache,
        subscription: ReaderSubscription | None,
        max_samples: int,
        *,
        holds: bool,
    ) -> None:
        self._session = session
        self._live = live
        self._cache = cache
        self._subscription = subscription
        self._max_samples = max_samples
        self._held: list[Sample] = []
        self._given: list[Sample] = []
        self._seen = -1
        self._look_again_s = 0.0
        self._autodispose: dict[bytes, bool] = {}
        self._expected: dict[bytes, _Expected] = {}
        self._found_s: dict[bytes, float] = {}
        self._unmatched: Newest[bytes, None] = Newest(MAX_GONE)
        session.signal.attach(live.entity, abi.SUBSCRIPTION_MATCHED)
        self._hold_until_s = time.monotonic() + HOLD_BACK_S if holds else 0.0
        self._return_s = 0.0

    @property
    def due_s(self) -> float | None:
        """Time at which `turn` is due even if nothing arrives."""
        dues = [self._hold_until_s if self._is_holding else None, self._return_s or None]
        if self._subscription is not None:
            dues.append(self._subscription.due_s)
        return min((due for due in dues if due is not None), default=None)

    @property
    def _is_holding(self) -> bool:
        return self._hold_until_s > 0

    def take_live(self, now: float) -> None:
        """Take live samples, and update the living writers."""
        status = ctypes.c_uint32()
        abi.take_status(self._live.entity, ctypes.byref(status), abi.SUBSCRIPTION_MATCHED)
        records, is_drained = self._drain()
        self._session.discovered()
        batch: list[Sample] = []
        for record in records:
            if record.status & WRITER_GONE:
                self._arrived(batch)
                batch = []
                self._unmatched[record.writer] = None
                self._lost(record.writer, autodispose=record.payload == AUTODISPOSE)
            else:
                batch.append(with_digest(record))
        self._arrived(batch)
        is_changed = bool(status.value) or self._session.writers_seen != self._seen
        if is_drained and (is_changed or now >= self._look_again_s):
            self._seen = self._session.writers_seen
            self._look_again_s = now + LOOK_AGAIN_S
            self._look(now)

    def _look(self, now: float) -> None:
        """Tell the cache which writers live: matched and discovered ones."""
        writers = self._cache.writers
        matched = self._live.matched_writers().keys()
        there = self._session.writers(self._live.topic.name)
        for writer in matched:
            self._unmatched.pop(writer, None)
        known = matched | (there.keys() - self._unmatched.keys())
        for writer in known & self._expected.keys():
            self._look_for_gap(now, self._expected.pop(writer).asked_s, now)
            self._found_s[writer] = now
        self._expected = {one: each for one, each in self._expected.items() if now < each.until_s}
        living = known | self._expected.keys()
        for writer in writers.living - living:
            self._lost(writer, autodispose=self._autodispose.pop(writer, False))
        self._autodispose.update(there)
        for writer in living - writers.living:
            self._found(writer, now)
        for writer in self._autodispose.keys() - living:
            del self._autodispose[writer]

    def _found(self, writer: bytes, now: float) -> None:
        if self._cache.writers.was_lost(writer):
            self._return_s = now + RETURN_S
        self._found_s[writer] = now
        self._cache.found(writer)

    def _look_for_gap(self, found_s: float, asked_s: float, now: float) -> None:
        """Note that samples may be missing if a writer was found long after services were asked."""
        if found_s > asked_s + RETURN_S:
            self._return_s = now + RETURN_S

    def is_missing(self, now: float) -> bool:
        """Return, once, whether samples of writers that came back may be missing."""
        if not self._return_s or now < self._return_s:
            return False
        self._return_s = 0.0
        return True

    def _lost(self, writer: bytes, *, autodispose: bool) -> None:
        self._expected.pop(writer, None)
        self._found_s.pop(writer, None)
        if writer in self._cache.writers.living:
            self._cache.lost(writer, time.time_ns(), autodispose=autodispose)

    def expect(
        self, writers: Iterable[bytes], disposing: Iterable[bytes], asked_s: float, now: float
    ) -> None:
        """Let writers that a service knows count as living until they are discovered, for a while.

        Args:
            writers: the living writers.
            disposing: the lost writers with autodispose.
            asked_s: when the service was asked; its answer describes a moment after that.
            now: monotonic time, seconds.
        """
        self._look(now)
        for writer in disposing:
            if writer not in self._cache.writers.living:
                self._cache.lost(writer, time.time_ns(), autodispose=True)
        for writer in writers:
            if writer in self._cache.writers.living:
                self._look_for_gap(self._found_s.get(writer, asked_s), asked_s, now)
            elif writer not in self._unmatched:
                self._expected[writer] = _Expected(asked_s, now + EXPECTED_S)
        self._look(now)

    def turn(self, now: float) -> None:
        """Take samples from persistence services, and release live samples when the history is complete."""
        counters = self._cache.counters
        if self._subscription is not None:
            self._given += self._subscription.hear(now)
            counters.missed = self._subscription.deciding.missed
            counters.malformed += self._subscription.take_malformed()
            if self._subscription.deciding.is_complete or not self._is_holding:
                self.release()
        if self._is_holding and now >= self._hold_until_s:
            self.release()

    def _drain(self) -> tuple[list[Sample], bool]:
        """Return the arrived samples that find room, and whether these were all."""
        room = self._max_samples - self._cache.count - len(self._held)
        if room <= 0 or self._cache.is_full:
            return [], False  # the queue fills, and writers block until the application takes samples
        most = min(DRAIN, room)
        taken = self._live.drain(most)
        return taken, len(taken) < most

    def _arrived(self, samples: list[Sample]) -> None:
        counters, ours = self._cache.counters, []
        for sample in samples:
            if sample.writer[:PREFIX_BYTES] in self._session.deliverers:
                counters.deliveries += 1  # for ordinary readers of this process
            elif self._subscription is not None and not self._subscription.is_new(sample):
                counters.repeated += 1
            else:
                ours.append(sample)
        if self._is_holding:
            self._held += ours
            return
        for writer in dict.fromkeys(sample.writer for sample in ours):
            if writer not in self._cache.writers.living:
                self._found(writer, time.monotonic())
        self._cache.add(ours, is_historical=False)

    def release(self) -> None:
        """Give the held samples to the application."""
        self._hold_until_s = 0.0
        given, self._given = self._given, []
        self._cache.add(given, is_historical=True, outdates=False)
        held, self._held = self._held, []
        self._cache.add(held, is_historical=False)


class HistoryRequests:
    """The requests of one reader for history, and their answers. Called under the session's lock.

    Args:
        session: provides participant and thread.
        topic: name of the topic.
        qos: policies of the reader.
        decoder: decodes its samples.
        cache: receives the history.
        arrivals: gets the writers that a service knows, and releases live samples behind the history.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        qos: EndpointQos,
        decoder: SampleDecoder[Any],
        cache: SampleCache,
        arrivals: Arrivals,
    ) -> None:
        self._session = session
        self._topic = topic
        self._qos = qos
        self._decoder = decoder
        self._cache = cache
        self._arrivals = arrivals
        self._fetches: list[HistoryFetch] = []
        self._alignment = (f"{session.partition}.{session.id.hex()}.{next(session.numbers)}",)
        self._answers = endpoints.open_reader(
            session.participant, session.history_topic, self._alignment, session.signal
        )

    # What the reader wants.

    def fetch(self, selection: HistorySelection, *, is_followed: bool) -> HistoryFetch:
        """Request history until `end`.

        Args:
            selection: wanted part of the history.
            is_followed: the services send updates afterwards.
        """

        def on_history(parts: list[tuple[Sample, bool]]) -> None:
            exact = {sample.digest: is_exact for sample, is_exact in parts}
            whole = {sample.digest: sample for sample, _ in parts}.values()
            selected = selection.limits.select(filter(accepts, whole))
            self._expect(fetch)
            for kind in (True, False):
                some = [sample for sample in selected if exact[sample.digest] is kind]
                self._cache.add(some, is_historical=True, exact=kind)
            self._arrivals.release()

        def accepts(sample: Sample) -> bool:
            return self._decoder.is_accepted(sample, selection.condition)

        def on_update(parts: list[tuple[Sample, bool]]) -> None:
            self._expect(fetch)
            self._cache.add_update([sample for sample, _ in parts], exact=all(one for _, one in parts))

        fetch = HistoryFetch(
            self._qos.partitions or ("",),
            self._session.numbers,
            selection,
            is_followed=is_followed,
            on_history=on_history,
            on_update=on_update,
            resolve=lambda expression: (
                partition for _, partition in self._session.groups(self._topic, expression)
            ),
        )
        self._fetches.append(fetch)
        self._session.signal.set()
        return fetch

    def _expect(self, fetch: HistoryFetch) -> None:
        self._arrivals.expect(fetch.living, fetch.disposing, fetch.asked_s, time.monotonic())

    def end(self, fetch: HistoryFetch) -> None:
        """End a fetch, and cancel its updates."""
        self._fetches.remove(fetch)
        self._cancel(fetch)

    def check_complete(self, fetch: HistoryFetch) -> None:
        """Raise if a fetch is not complete.

        Raises:
            RequestRefused: the services refuse the request; see its subclasses.
            DurabilityTimeout: the fetch is not complete; the subclass and the text tell what is missing.
        """
        if fetch.refusal.is_refusal:
            raise errors.refused(fetch.refusal, f"historical data of topic '{self._topic}'")
        if not fetch.done:
            raise self._too_late(fetch)

    def _too_late(self, fetch: HistoryFetch) -> errors.DurabilityTimeout:
        missing = ", ".join(repr(one.partition) for one in fetch.exchanges if not one.done)
        what = f"the complete history of topic '{self._topic}' in partition {missing}"
        if not self._session.services():
            return errors.NoService(f"{what}: no durability service that serves clients was found")
        if (refused := mismatch(self._session)) is not None:
            return refused
        if fetch.parts_only:
            names = ", ".join(f"'{name}'" for name in sorted(fetch.parts_only))
            reason = f"only parts of name-space {names} can be reached, which may lack some of it"
            return errors.OnlyParts(f"{what}: {reason}")
        return errors.timed_out(fetch.last_code, what)

    def close(self) -> None:
        """End all fetches and delete the reader of answers."""
        for fetch in self._fetches:
            self._cancel(fetch)
        self._answers.close()

    # On the session's thread.

    @property
    def due_s(self) -> float | None:
        """Time at which `turn` is due."""
        dues = [fetch.due_s for fetch in self._fetches]
        return min((due for due in dues if due is not None), default=None)

    def turn(self, now: float) -> None:
        """Take answers, and send requests that are due."""
        for record in self._answers.drain(DRAIN):
            if record.status & DATA:
                try:
                    self._answered(record.writer[:PREFIX_BYTES], record.payload, now)
                except (Malformed, ValueError):
                    self._cache.counters.malformed += 1
        for fetch in list(self._fetches):
            for send in fetch.turn(now, self._session.services()):
                self._session.request_history(self._request(fetch, send))

    def _answered(self, service: bytes, payload: bytes, now: float) -> None:
        message = decode_history(payload)
        for request in message.requests:
            for fetch in self._fetches:
                exchange = fetch.exchange(request.number)
                if request.client != self._session.id or exchange is None:
                    continue
                if isinstance(message.content, Bead):
                    sample, exact = self._sample(message.content, message.extensions)
                    exchange.part(service, request.number, sample, now, exact=exact)
                else:
                    added = extensions.unpack(message.extensions, LinkAddition)
                    fetch.end(service, request.number, message.server, message.content, added)

    def _sample(self, bead: Bead, added: Any) -> tuple[Sample, bool]:
        """Return the sample in a bead, and whether its writer's GUID equals that of its live samples."""
        sample, depth = extensions.sample_of(bead, added)
        if depth is None:
            return self._decoder.with_key(sample), False
        self._cache.group_depth(depth)
        return sample, True

    def _request(self, fetch: HistoryFetch, send: Send, *, cancel: bool = False) -> HistoryRequest:
        """Make a request with the limits that services can apply without knowing each other's sets.

        A service of another product is asked without limits, since it would leave out whole instances.
        """
        limits, none = fetch.selection.limits, HistoryLimits()
        each = UNLIMITED if fetch.selection.condition else limits.max_samples_per_instance
        return HistoryRequest(
            request=RequestId(self._session.id, send.number),
            topic=self._topic,
            partitions=(send.partition,),
            durability=int(self._qos.durability),
            start=ZERO if limits.start_ns == none.start_ns else Time.of_ns(limits.start_ns),
            end=INFINITE if limits.end_ns == none.end_ns else Time.of_ns(limits.end_ns),
            alignment_partitions=self._alignment,
            servers=send.servers,
            timeout=Time.of_ns(round(HOLD_S * 1e9)),
            extensions=extensions.pack(
                HistoryRequestAddition(fetch.is_followed and not cancel, cancel, each)
            ),
        )

    def _cancel(self, fetch: HistoryFetch) -> None:
        for exchange in fetch.exchanges:
            if exchange.numbers:
                send = Send(max(exchange.numbers), exchange.partition, ())
                with contextlib.suppress(DdsError):  # services also see that the reader is gone
                    self._session.request_history(self._request(fetch, send, cancel=True))


Data = TypeVar("Data")

# Chosen: a set of a usual size; an application with more says so.
DEFAULT_MAX_SAMPLES: Final = 100_000
# More than `DEFAULT_MAX_SAMPLES`: everything, unless the application set other limits.
DEFAULT_LIMIT: Final = 1_000_000


class DurableReader(SessionPart, Generic[Data]):
    """A reader of one topic; its methods may be called from any thread.

    Live samples are held back while the history is on its way, so that each instance comes in order of source
    time. That ends when the history is complete, when `wait_for_historical_data` times out, or after half a
    minute; history that is missing then comes later.

    Args:
        where: a client, or a domain id or participant of `cyclonedds`, for which a client is made.
        topic: name of the topic.
        type_: type of the topic, a class of `cyclonedds.idl`.
        partitions: names or expressions; empty for the default partition.
        qos: policies. Defaults are TRANSIENT, RELIABLE and KEEP_ALL. HISTORY bounds the samples of an
            instance that wait for the application.
        max_samples: most live samples that wait for the application; then writers block. History always
            comes whole.
        durable_subscription: the name of a durable subscription. Persistence services keep every sample for
            it until it is acknowledged, and create it if necessary. The reader then gets the samples that are
            not acknowledged from them, and no history from durability services.
        quorum: readers of the durable subscription that must acknowledge a sample.
        member: the reader's name among them; needed for quorums above 1.
        acknowledges_on_take: whether `take` acknowledges; otherwise the application calls `acknowledge`.

    Raises:
        InvalidSubscription: name, quorum or member are out of range.
        UnsupportedQos: the library does not support a policy.
        UnsupportedCyclone, DdsError: see `DurabilityClient`.
    """

    def __init__(
        self,
        where: DurabilityClient | DomainParticipant | int,
        topic: str,
        type_: type[Data],
        partitions: Sequence[str] = (),
        qos: Qos | None = None,
        *,
        max_samples: int = DEFAULT_MAX_SAMPLES,
        durable_subscription: str | None = None,
        quorum: int = 1,
        member: str | None = None,
        acknowledges_on_take: bool = True,
    ) -> None:
        self._acknowledges_on_take = acknowledges_on_take
        self._own_client = None if isinstance(where, DurabilityClient) else DurabilityClient(where)
        client = where if isinstance(where, DurabilityClient) else self._own_client
        assert client is not None
        try:
            terms = None if durable_subscription is None else (durable_subscription, quorum, member)
            self._open(client, topic, type_, tuple(partitions), qos, max_samples, terms)
        except BaseException:
            if self._own_client is not None:
                self._own_client.close()
            raise

    def _open(
        self,
        client: DurabilityClient,
        topic: str,
        type_: type[Data],
        partitions: tuple[str, ...],
        qos: Qos | None,
        max_samples: int,
        subscription: tuple[str, int, str | None] | None,
    ) -> None:
        session = client.session
        self.topic = topic
        self._qos = endpoint_qos(qos, partitions)
        if subscription is not None:
            self._qos = subscribed_qos(self._qos)
        self.partitions = self._qos.partitions or ("",)
        self._session = session
        self._cache = SampleCache(
            self._qos.history_depth, resource_limits(qos), shows_all=subscription is not None
        )
        self._subscription: ReaderSubscription | None = None
        self._whole_history: HistoryFetch | None = None
        self._is_closed = False
        with session.lock:
            session.check()
            if subscription is not None:
                self._subscription = ReaderSubscription(session, topic, self.partitions, *subscription)
            self._topic = Topic.of_class(session.participant, topic, type_)
            self._decoder = SampleDecoder(type_, self._topic.type)
            self._live = CaptureReader(session.participant, self._topic, qos=self._qos, signal=session.signal)
            self._arrivals = Arrivals(
                session,
                self._live,
                self._cache,
                self._subscription,
                max_samples,
                holds=self.is_durable or subscription is not None,
            )
            self._history = HistoryRequests(
                session, topic, self._qos, self._decoder, self._cache, self._arrivals
            )
            if self.is_durable:
                self._whole_history = self._history.fetch(HistorySelection(), is_followed=True)
            session.join(self)

    @property
    def is_durable(self) -> bool:
        """Whether the reader requests the history by itself (DURABILITY above TRANSIENT_LOCAL)."""
        return self._qos.durability >= DurabilityKind.TRANSIENT

    @property
    def counters(self) -> Counters:
        """Counts of samples up to now."""
        return self._cache.counters

    # For the application.

    def wait_for_historical_data(self, timeout_s: float, selection: HistorySelection | None = None) -> None:
        """Wait until `take` finds the complete set of historical data (guide 5.4.7).

        With a durable subscription: until every present persistence service has sent the samples that are not
        acknowledged. Otherwise the set is complete when all name-spaces that the reader touches are, without
        a running merge. A durable reader gets samples from later merges as they come.

        Args:
            timeout_s: most seconds to wait.
            selection: wanted part of the history. Only a reader whose DURABILITY is VOLATILE or
                TRANSIENT_LOCAL may select, and such a reader gets history only on request.

        Raises:
            PreconditionNotMet: a durable reader, or one with a durable subscription, cannot select.
            NoPersistenceService: the reader has a durable subscription, and none was found.
            RequestRefused: the services refuse the request; see its subclasses.
            DurabilityTimeout: the set is not complete in time; subclass and text tell what is missing.
            Closed: the reader has been closed.
        """
        deadline_s = time.monotonic() + timeout_s
        session = self._session
        if self._subscription is not None:
            self._wait_for_pending(self._subscription, deadline_s, selection)
            return
        with session.lock:
            self._check()
            if self._whole_history is not None and selection is not None:
                raise errors.PreconditionNotMet(
                    "a reader with TRANSIENT or PERSISTENT durability gets the whole history;"
                    " only a VOLATILE or TRANSIENT_LOCAL one can select"
                )
            fetch = self._whole_history or self._history.fetch(
                selection or HistorySelection(), is_followed=False
            )
        try:
            session.wait_until(lambda: self._is_closed or fetch.done or fetch.refusal.is_refusal, deadline_s)
            with session.lock:
                self._check()
                self._history.check_complete(fetch)
        finally:
            with session.lock:
                self._arrivals.release()
                if fetch is not self._whole_history:
                    self._history.end(fetch)

    def _wait_for_pending(
        self, subscription: ReaderSubscription, deadline_s: float, selection: HistorySelection | None
    ) -> None:
        if selection is not None:
            raise errors.PreconditionNotMet("a reader with a durable subscription gets all that is pending")
        what = f"what is pending for durable subscription '{subscription.deciding.name}'"
        try:
            done = self._session.wait_until(
                lambda: self._is_closed or subscription.deciding.is_complete, deadline_s
            )
        finally:
            with self._session.lock:
                self._arrivals.release()
        with self._session.lock:
            self._check()
            if not done:
                raise subscription.not_answered(what)

    def acknowledge(self, samples: Iterable[ReceivedSample[Data]]) -> None:
        """Tell persistence services that the application has processed these samples.

        Without a durable subscription this does nothing.
        """
        with self._session.lock:
            self._check()
            if self._subscription is not None:
                self._subscription.acknowledge(identity_of_received(each) for each in samples)

    def wait_for_acknowledgments(self, timeout_s: float) -> None:
        """Wait until all acknowledgments are on the disk of every present persistence service.

        Raises:
            PreconditionNotMet: the reader has no durable subscription.
            NoPersistenceService: none was found.
            DurabilityTimeout: not in time.
            Closed: the reader has been closed.
        """
        subscription = self._subscription
        if subscription is None:
            raise errors.PreconditionNotMet("the reader has no durable subscription")
        deadline_s = time.monotonic() + timeout_s
        done = self._session.wait_until(lambda: self._is_closed or subscription.deciding.is_heard, deadline_s)
        with self._session.lock:
            self._check()
            if not done:
                raise subscription.not_answered("storing what was acknowledged")

    def take(self, limit: int = DEFAULT_LIMIT) -> list[ReceivedSample[Data]]:
        """Take samples without waiting, instance by instance, each in order of source time."""
        with self._session.lock:
            self._check()
            looks = self._cache.take(limit)
            if self._subscription is not None and self._acknowledges_on_take:
                samples = [look.entry.sample for look in looks]
                self._subscription.acknowledge(identity(one) for one in samples if one is not None)
            self._session.signal.set()  # there may be room for live samples again
        return [self._received(look) for look in looks]

    def read(self, limit: int = DEFAULT_LIMIT) -> list[ReceivedSample[Data]]:
        """Return samples like `take`, but keep them."""
        with self._session.lock:
            self._check()
            looks = self._cache.read(limit)
        return [self._received(look) for look in looks]

    def wait(self, timeout_s: float) -> bool:
        """Wait until there are samples to take; return False at the timeout."""
        return self._session.wait_until(
            lambda: self._is_closed or self._cache.count > 0, time.monotonic() + timeout_s
        )

    def instance_state(self, key: bytes) -> InstanceState | None:
        """Return the present state of an instance (`ReceivedSample.key`).

        None if the instance or its state is unknown (see `ReceivedSample.instance_state`).
        """
        with self._session.lock:
            self._check()
            return self._cache.state_of(key)

    def close(self) -> None:
        """Delete the reader. Idempotent."""
        with self._session.changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._session.leave(self)
            self._history.close()
            self._live.close()
            if self._subscription is not None:
                self._subscription.close()
            self._topic.close()
            self._session.changed.notify_all()
        if self._own_client is not None:
            self._own_client.close()

    def __enter__(self) -> DurableReader[Data]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        self._session.check()
        if self._is_closed:
            raise errors.Closed("the reader has been closed")

    def _received(self, look: CacheEntry) -> ReceivedSample[Data]:
        received = self._decoder.received(look)
        if received.problem:
            self.counters.undecodable += 1
        return received

    # On the session's thread, under its lock.

    @property
    def due_s(self) -> float | None:
        """Time at which `turn` is due."""
        dues = (self._history.due_s, self._arrivals.due_s)
        return min((due for due in dues if due is not None), default=None)

    def turn(self, now: float) -> None:
        """Take arrived samples, and request missing ones."""
        self._arrivals.take_live(now)
        if self._arrivals.is_missing(now) and self._whole_history is not None:
            self._whole_history.ask_again()
        self._history.turn(now)
        self._arrivals.turn(now)
