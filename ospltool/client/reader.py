"""A reader that gets the complete history in order, without repetitions."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from cyclonedds.domain import DomainParticipant
from cyclonedds.qos import Policy, Qos, _CQos

from engine.dataset.groups import KEEP_ALL, DurabilityKind
from engine.dataset.instance_states import InstanceState
from engine.dds.capture_reader import CaptureReader
from engine.dds.qos import BOTH_REPRESENTATIONS, EndpointQos, read_endpoint_qos
from engine.dds.topics import Topic
from ospltool.client import errors
from ospltool.client.arrivals import Arrivals
from ospltool.client.cache import Counters, ResourceLimits, SampleCache
from ospltool.client.client import DurabilityClient
from ospltool.client.errors import UnsupportedQos
from ospltool.client.history import HistoryRequests
from ospltool.client.samples import HistorySelection, ReceivedSample, SampleDecoder
from ospltool.client.session import SessionPart
from ospltool.client.subscribing import ReaderSubscription, identity, identity_of_received

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospltool.client.cache import CacheEntry
    from ospltool.client.fetching import HistoryFetch

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
    return dataclasses.replace(qos, durability=DurabilityKind.VOLATILE)


Data = TypeVar("Data")

DEFAULT_MAX_SAMPLES: Final = 100_000
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
                session,
                topic,
                self._qos,
                self._decoder,
                self._cache,
                self._arrivals.release,
                lambda living, disposing, asked_s: self._arrivals.expect(
                    living, disposing, asked_s, time.monotonic()
                ),
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
