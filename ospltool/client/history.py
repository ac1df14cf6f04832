"""The reader's side of the client-durability protocol: requests for history and their answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from engine.dataset.sample import DATA
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.encoding import decode_history
from engine.dds.client_protocol.messages import (
    INFINITE,
    UNLIMITED,
    ZERO,
    Bead,
    HistoryLimits,
    HistoryRequest,
    RequestId,
    Time,
)
from engine.dds.errors import DdsError
from ospltool.client import errors
from ospltool.client.asking import mismatch
from ospltool.client.fetching import HOLD_S, HistoryFetch, Send
from ospltool.client.session import PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.dataset.sample import Sample
    from engine.dds.qos import EndpointQos
    from ospltool.client.cache import SampleCache
    from ospltool.client.samples import HistorySelection, SampleDecoder
    from ospltool.client.session import Session

DRAIN: Final = 10_000


class HistoryRequests:
    """The requests of one reader for history. All methods are called under the session's lock.

    Args:
        session: provides participant and thread.
        topic: name of the topic.
        qos: policies of the reader.
        decoder: decodes its samples.
        cache: receives the history.
        on_history: called when the cache has the whole history of a request.
        expect: called with living writers and lost ones with autodispose that a service knows, and when it
            was asked.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        qos: EndpointQos,
        decoder: SampleDecoder[Any],
        cache: SampleCache,
        on_history: Callable[[], None],
        expect: Callable[[Iterable[bytes], Iterable[bytes], float], None],
    ) -> None:
        self._session = session
        self._topic = topic
        self._qos = qos
        self._decoder = decoder
        self._cache = cache
        self._on_history = on_history
        self._expect = expect
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
            self._expect(fetch.living, fetch.disposing, fetch.asked_s)
            for kind in (True, False):
                some = [sample for sample in selected if exact[sample.digest] is kind]
                self._cache.add(some, is_historical=True, exact=kind)
            self._on_history()

        def accepts(sample: Sample) -> bool:
            return self._decoder.is_accepted(sample, selection.condition)

        def on_update(parts: list[tuple[Sample, bool]]) -> None:
            self._expect(fetch.living, fetch.disposing, fetch.asked_s)
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
                self._session.request_history(self._request(fetch, send, follow=fetch.is_followed))

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
        """Return the sample in a bead, and whether its writer's GUID equals that of its live samples."""
        sample, depth = extensions.sample_of(bead, added)
        if depth is None:
            return self._decoder.with_key(sample), False
        self._cache.group_depth(depth)
        return sample, True

    def _request(self, fetch: HistoryFetch, send: Send, **added: object) -> HistoryRequest:
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
            extensions=extensions.pack(**({"each": each} if each != UNLIMITED else {}), **added),
        )

    def _cancel(self, fetch: HistoryFetch) -> None:
        for exchange in fetch.exchanges:
            if exchange.numbers:
                send = Send(max(exchange.numbers), exchange.partition, ())
                with contextlib.suppress(DdsError):  # services also see that the reader is gone
                    self._session.request_history(self._request(fetch, send, cancel=True))
