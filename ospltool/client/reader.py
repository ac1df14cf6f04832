"""A reader that gets what was written before it came, whole, in order, and nothing twice."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from cyclonedds.domain import DomainParticipant
from cyclonedds.qos import Policy, Qos, _CQos

from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample
from engine.dds.captured import AUTODISPOSE
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.limits import Limits
from engine.dds.client_protocol.messages import (
    INFINITE,
    UNLIMITED,
    ZERO,
    Bead,
    HistoryRequest,
    RequestId,
    Time,
    decode_history,
)
from engine.dds.errors import DdsError
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, read_endpoint_qos
from engine.dds.tap import WRITER_GONE, CaptureReader
from engine.dds.topics import Topic
from ospltool.client import errors
from ospltool.client.cache import Counters, SampleCache
from ospltool.client.client import DurabilityClient
from ospltool.client.fetching import HOLD_S, Fetch, Send
from ospltool.client.samples import HistorySelection, InstanceState, ReceivedSample
from ospltool.client.session import PREFIX_BYTES, Member
from ospltool.client.subscribing import Subscription, identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.sample import Sample
    from ospltool.client.cache import Waiting

Data = TypeVar("Data")

DEFAULT_MAX_SAMPLES: Final = 100_000
DEFAULT_LIMIT: Final = 1_000_000
DEFAULT_QOS: Final = (Policy.Durability.Transient, Policy.Reliability.Reliable(0), Policy.History.KeepAll)
HOLD_BACK_S: Final = 30.0
"""How long live samples are held back for the history at most; then they are given first."""
DRAIN: Final = 10_000


class DurableReader(Member, Generic[Data]):
    """A reader of one topic; its methods may be called from any thread.

    What writers send while the history is on its way is held back, so that each instance comes in order of
    source time. That ends when the history is complete, when `wait_for_historical_data` runs out of time, or
    after `HOLD_BACK_S`; what is missing then still comes, only later.

    Args:
        where: a client, or a domain id or participant of `cyclonedds`, for which a client is made.
        topic: the topic's name.
        type_: its type, a class of `cyclonedds.idl`.
        partitions: its partitions, expressions allowed; none is the default one.
        qos: its policies. What is not given is TRANSIENT, RELIABLE, KEEP_ALL. HISTORY says how many samples
            of an instance may wait for the application.
        max_samples: samples from writers that may wait for the application; then writers are held back.
            History comes whole in any case.
        durable_subscription: the name of a durable subscription. Persistence services keep every sample for
            it until it is acknowledged; they create it where there is none of this name. The reader then
            gets what is not acknowledged from them, and no history of durability services.
        quorum: readers of the durable subscription that must acknowledge a sample.
        member: the reader's name among them; needed for quorums above 1.
        acknowledges_on_take: `take` acknowledges; otherwise the application calls `acknowledge`.

    Raises:
        InvalidSubscription: name, quorum or member are out of range.
        UnsupportedQos: the library does not carry out what is asked for.
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
        self._type = type_
        self._max_samples = max_samples
        self._cache = SampleCache(self._qos.history_depth)
        self._held: list[Sample] = []
        self._given: list[Sample] = []
        self._subscription: Subscription | None = None
        self._fetches: list[Fetch] = []
        self._is_closed = False
        self._hold_until_s = 0.0
        with session.lock:
            session.check()
            if subscription is not None:
                self._subscription = Subscription(session, topic, self.partitions, *subscription)
                self._hold_until_s = time.monotonic() + HOLD_BACK_S
            self._alignment = (f"{session.partition}.{session.id.hex()}.{next(session.numbers)}",)
            self._history = endpoints.open_reader(
                session.participant, session.history_topic, self._alignment, session.signal
            )
            self._topic = Topic.of_class(session.participant, topic, type_)
            self._live = CaptureReader(session.participant, self._topic, qos=self._qos, signal=session.signal)
            if self.is_durable:
                self._hold_until_s = time.monotonic() + HOLD_BACK_S
                self._fetches.append(self._fetch(HistorySelection(), is_followed=True))
            session.join(self)

    @property
    def is_durable(self) -> bool:
        """Whether the history is asked for without being told to (DURABILITY above TRANSIENT_LOCAL)."""
        return self._qos.durability >= DurabilityKind.TRANSIENT

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        return self._cache.counters

    # For the application.

    def wait_for_historical_data(self, timeout_s: float, selection: HistorySelection | None = None) -> None:
        """Wait until the complete set of historical data is where `take` finds it (guide 5.4.7).

        With a durable subscription: until every persistence service that is there has given what is not
        acknowledged. Otherwise the set is complete when all name-spaces that the reader touches are, and no
        merge is going on in them. What later merges bring is given to a durable reader as it comes.

        Args:
            timeout_s: how long at most.
            selection: which part is wanted. Only a reader whose DURABILITY is VOLATILE or TRANSIENT_LOCAL
                may choose, and such a reader gets history only when it asks.

        Raises:
            PreconditionNotMet: a durable reader gets all of it and cannot choose; neither can one with a
                durable subscription.
            NoPersistenceService: none is there, and the reader has a durable subscription.
            RequestRefused: the services refuse the request; see its subclasses.
            DurabilityTimeout: it is not complete in time; the subclass and the text say what is missing.
            Closed: the reader has been closed.
        """
        deadline_s = time.monotonic() + timeout_s
        session = self._session
        if self._subscription is not None:
            self._wait_for_pending(self._subscription, deadline_s, selection)
            return
        with session.lock:
            self._check()
            if self.is_durable:
                if selection is not None:
                    raise errors.PreconditionNotMet(
                        "a reader with TRANSIENT or PERSISTENT durability gets the whole history;"
                        " only a VOLATILE or TRANSIENT_LOCAL one can select"
                    )
                fetch = self._fetches[0]
            else:
                fetch = self._fetch(selection or HistorySelection(), is_followed=False)
                self._fetches.append(fetch)
                session.signal.set()
        try:
            done = session.wait_until(lambda: self._is_over(fetch), deadline_s)
            with session.lock:
                self._check()
                if fetch.refusal.is_refusal:
                    raise errors.refused(fetch.refusal, f"historical data of topic '{self.topic}'")
                if not done:
                    raise self._too_late(fetch)
        finally:
            with session.lock:
                self._release()
                if not fetch.is_followed and fetch in self._fetches:
                    self._fetches.remove(fetch)
                    self._cancel_fetch(fetch)

    def _wait_for_pending(
        self, subscription: Subscription, deadline_s: float, selection: HistorySelection | None
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
                self._release()
        with self._session.lock:
            self._check()
            if not done:
                raise _not_answered(subscription, what)

    def acknowledge(self, samples: Iterable[ReceivedSample[Data]]) -> None:
        """Tell persistence services that the application has done with these samples.

        Of a reader without a durable subscription nothing happens.
        """
        with self._session.lock:
            self._check()
            if self._subscription is not None:
                self._subscription.acknowledge(identity_of(each) for each in samples)

    def wait_for_acknowledgments(self, timeout_s: float) -> None:
        """Wait until what was acknowledged is on the disk of every persistence service that is there.

        Raises:
            PreconditionNotMet: the reader has no durable subscription.
            NoPersistenceService: none is there.
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
                raise _not_answered(subscription, "storing what was acknowledged")

    def take(self, limit: int = DEFAULT_LIMIT) -> list[ReceivedSample[Data]]:
        """Take samples, instance by instance, each in order of source time; does not wait."""
        with self._session.lock:
            self._check()
            items = self._cache.take(limit, self._writers())
            if self._subscription is not None and self._acknowledges_on_take:
                self._subscription.acknowledge(identity(item.sample) for item, _ in items)
            self._session.signal.set()  # there may be room for live samples again
        return [self._received(item, state) for item, state in items]

    def read(self, limit: int = DEFAULT_LIMIT) -> list[ReceivedSample[Data]]:
        """As `take`, but the samples stay."""
        with self._session.lock:
            self._check()
            items = self._cache.read(limit, self._writers())
        return [self._received(item, state) for item, state in items]

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to take; False if not in time."""
        return self._session.wait_until(
            lambda: self._is_closed or self._cache.count > 0, time.monotonic() + timeout_s
        )

    def instance_state(self, key: bytes) -> InstanceState | None:
        """The state of an instance (`ReceivedSample.key`) now, None for one never heard of."""
        with self._session.lock:
            self._check()
            return self._cache.state_of(key, self._writers())

    def close(self) -> None:
        """Delete the reader. Idempotent."""
        with self._session.changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._session.leave(self)
            self._cancel()
            for reader in (self._live, self._history):
                reader.close()
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

    def _is_over(self, fetch: Fetch) -> bool:
        return self._is_closed or fetch.done or fetch.refusal.is_refusal

    def _too_late(self, fetch: Fetch) -> errors.DurabilityTimeout:
        missing = ", ".join(repr(one.partition) for one in fetch.exchanges if not one.done)
        what = f"the complete history of topic '{self.topic}' in partition {missing}"
        if not self._session.services():
            return errors.NoService(f"{what}: no durability service that serves clients was found")
        return errors.timed_out(fetch.last_code, what)

    def _received(self, item: Waiting, state: InstanceState) -> ReceivedSample[Data]:
        sample, data, problem = item.sample, None, ""
        if sample.status & DATA:
            try:
                data = self._decode(sample.payload)
            except Exception as error:  # the wheel raises what it likes for bytes of another type
                problem = f"not a sample of '{self._topic.type.name}': {error!r}"
                self.counters.undecodable += 1
        return ReceivedSample(
            data=data,
            key=sample.key,
            source_time_ns=sample.source_time_ns,
            writer=sample.writer,
            is_dispose=bool(sample.status & DISPOSE),
            is_unregister=bool(sample.status & UNREGISTER),
            instance_state=state,
            is_historical=item.is_historical,
            cdr=sample.payload,
            problem=problem,
        )

    def _decode(self, payload: bytes) -> Data:
        decoded: Data = self._type.deserialize(payload)  # type: ignore[attr-defined]  # every IDL class has it
        return decoded

    def _writers(self) -> frozenset[bytes]:
        return frozenset(self._live.matched_writers())

    # On the session's thread, under its lock.

    @property
    def due_s(self) -> float | None:
        """When something is due."""
        dues = [fetch.due_s for fetch in self._fetches]
        if self._is_holding:
            dues.append(self._hold_until_s)
        if self._subscription is not None:
            dues.append(self._subscription.due_s)
        return min((due for due in dues if due is not None), default=None)

    @property
    def _is_holding(self) -> bool:
        return self._hold_until_s > 0

    def turn(self, now: float) -> None:
        """Take what arrived, and ask for what is missing."""
        live = self._take_live()
        self._session.discovered()
        for sample in live:
            self._arrived(sample)
        for record in self._history.drain(DRAIN):
            if record.status & DATA:
                try:
                    self._answered(record.writer[:PREFIX_BYTES], record.payload, now)
                except (Malformed, ValueError):
                    self.counters.malformed += 1
        for fetch in list(self._fetches):
            for send in fetch.turn(now, self._session.services()):
                self._session.request_history(self._request(fetch, send, follow=fetch.is_followed))
        if self._subscription is not None:
            self._given += self._subscription.hear(now)
            self.counters.missed = self._subscription.deciding.missed
            self.counters.malformed += self._subscription.take_malformed()
            if self._subscription.deciding.is_complete or not self._is_holding:
                self._release()
        if self._is_holding and now >= self._hold_until_s:
            self._release()

    def _take_live(self) -> list[Sample]:
        room = self._max_samples - self._cache.count - len(self._held)
        if room <= 0:
            return []  # the queue fills, and writers are held back until the application takes
        taken = self._live.drain(min(DRAIN, room))
        for record in taken:
            if record.status & WRITER_GONE and record.payload == AUTODISPOSE:
                self._cache.autodisposed(record.writer)
        return [make_sample(*record) for record in taken if not record.status & WRITER_GONE]

    def _arrived(self, sample: Sample) -> None:
        if sample.writer[:PREFIX_BYTES] in self._session.deliverers:
            self.counters.deliveries += 1  # meant for ordinary readers of this process
        elif self._subscription is not None and not self._subscription.is_new(sample):
            self.counters.repeated += 1
        elif self._is_holding:
            self._held.append(sample)
        else:
            self._cache.add(sample, is_historical=False)

    def _release(self) -> None:
        """Give the application what was held back."""
        self._hold_until_s = 0.0
        given, self._given = self._given, []
        for sample in given:
            self._cache.add(sample, is_historical=True, outdates=False)
        held, self._held = self._held, []
        for sample in held:
            self._cache.add(sample, is_historical=False)

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
                    added = extensions.unpack(message.extensions)
                    fetch.end(service, request.number, message.server, message.content, added)

    def _sample(self, bead: Bead, added: Any) -> tuple[Sample, bool]:
        """The sample in a bead, and whether its writer's GUID is the one that its live samples have."""
        sample, depth = extensions.sample_of(bead, added)
        if depth is None:
            return self._with_key(sample), False
        self._cache.group_depth(depth)
        return sample, True

    def _with_key(self, sample: Sample) -> Sample:
        """A sample of another product comes without its key, but with all its data."""
        if not self._topic.type.keyed or not sample.payload[4:]:
            return sample
        decoded: Any = self._decode(sample.payload)
        key = decoded.serialize_key(use_version_2=True)[4:]
        return make_sample(
            sample.source_time_ns, sample.writer, sample.status, key, sample.payload, sample.sequence
        )

    def _fetch(self, selection: HistorySelection, *, is_followed: bool) -> Fetch:
        def on_history(parts: list[tuple[Sample, bool]]) -> None:
            exact = {sample.digest: is_exact for sample, is_exact in parts}
            whole = {sample.digest: sample for sample, _ in parts}.values()
            for sample in selection.limits.select(filter(accepts, whole)):
                self._cache.add(sample, is_historical=True, exact=exact[sample.digest])
            self._release()

        def accepts(sample: Sample) -> bool:
            if selection.condition is None or not sample.status & DATA:
                return True
            try:
                return selection.condition.accepts(self._decode(sample.payload))
            except Exception:  # the wheel raises what it likes; `take` tells of the sample
                return True

        def on_update(parts: list[tuple[Sample, bool]]) -> None:
            self._cache.add_update([sample for sample, _ in parts], exact=all(one for _, one in parts))

        return Fetch(
            self.partitions,
            self._session.numbers,
            selection,
            is_followed=is_followed,
            on_history=on_history,
            on_update=on_update,
        )

    def _request(self, fetch: Fetch, send: Send, **added: object) -> HistoryRequest:
        """A request. Of limits only what services can apply without knowing each other's sets is sent."""
        limits, none = fetch.selection.limits, Limits()
        each = UNLIMITED if fetch.selection.condition else limits.max_samples_per_instance
        return HistoryRequest(
            request=RequestId(self._session.id, send.number),
            topic=self.topic,
            partitions=(send.partition,),
            durability=int(self._qos.durability),
            start=ZERO if limits.start_ns == none.start_ns else Time.of_ns(limits.start_ns),
            end=INFINITE if limits.end_ns == none.end_ns else Time.of_ns(limits.end_ns),
            max_samples_per_instance=each,
            alignment_partitions=self._alignment,
            servers=send.servers,
            timeout=Time.of_ns(round(HOLD_S * 1e9)),
            extensions=extensions.pack(**added),
        )

    def _cancel(self) -> None:
        """Nobody needs to keep this reader up to date any more."""
        for fetch in self._fetches:
            self._cancel_fetch(fetch)

    def _cancel_fetch(self, fetch: Fetch) -> None:
        for exchange in fetch.exchanges:
            if exchange.numbers:
                send = Send(max(exchange.numbers), exchange.partition, ())
                with contextlib.suppress(DdsError):  # services also see that the reader is gone
                    self._session.request_history(self._request(fetch, send, cancel=True))


def identity_of(sample: ReceivedSample[Any]) -> tuple[str, int]:
    """How persistence services call a sample."""
    has_data = sample.data is not None or sample.problem
    status = (DATA if has_data else 0) | (DISPOSE if sample.is_dispose else 0)
    return identity(make_sample(sample.source_time_ns, sample.writer, status, sample.key, sample.cdr))


def _not_answered(subscription: Subscription, what: str) -> errors.DurabilityTimeout:
    if subscription.deciding.is_alone:
        return errors.NoPersistenceService(f"{what}: no persistence service was found")
    return errors.DurabilityTimeout(f"{what} did not happen in time")


def subscribed_qos(qos: EndpointQos) -> EndpointQos:
    """The policies of the reader of live samples, when persistence services give everything else.

    Raises:
        UnsupportedQos: samples could be lost on the way.
    """
    if not qos.reliable or qos.history_depth != KEEP_ALL:
        raise errors.UnsupportedQos("a reader with a durable subscription is RELIABLE and KEEP_ALL")
    return dataclasses.replace(qos, durability=DurabilityKind.VOLATILE)


def endpoint_qos(qos: Qos | None, partitions: tuple[str, ...]) -> EndpointQos:
    """The policies of the reader of live samples.

    Raises:
        UnsupportedQos: the library does not carry out what is asked for.
    """
    given = Qos(*(DEFAULT_QOS if qos is None else qos))
    for policy in given:
        if policy == Policy.Ownership.Exclusive or isinstance(policy, Policy.TimeBasedFilter):
            raise errors.UnsupportedQos(f"a durable reader does not support {policy}")
    c_qos = _CQos.qos_to_cqos(given)
    try:
        values = read_endpoint_qos(c_qos)
    finally:
        _CQos.cqos_destroy(c_qos)
    if Policy.Durability not in given:
        values = dataclasses.replace(values, durability=DurabilityKind.TRANSIENT)
    if Policy.Reliability not in given:
        values = dataclasses.replace(values, reliable=True)
    if Policy.History not in given:
        values = dataclasses.replace(values, history_depth=KEEP_ALL)
    return dataclasses.replace(
        values,
        partitions=partitions or values.partitions,
        representations=values.representations or BOTH_REPRESENTATIONS,
    )
