"""One running replica: all its parts, and the one thread that decides."""

from __future__ import annotations

import collections
import dataclasses
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.capture.delivery import TIMEOUT_S as DELIVERY_S
from engine.capture.delivery import Directed
from engine.capture.neighbourhood import HistoryReader
from engine.capture.shell import Shell
from engine.capture.tap_registry import look_up_type
from engine.config.persistence import PersistenceService
from engine.core.lazy_dataclass import lazy_dataclass
from engine.dds.activity import Workers
from engine.dds.channel import Channel
from engine.dds.discovery import EndpointSeen, ParticipantGone, ParticipantSeen
from engine.dds.interfaces import interface_of
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.selfcheck import check_layouts
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.typeinfo import ATTEMPTS
from engine.dds.uri import cyclone_uri, domain_tag
from engine.persistence.service.kept_groups import KnownGroups
from engine.persistence.service.late_readers import Groupwise, LateReaders, ReaderDelivery
from engine.persistence.service.lifespans import Lifespans
from engine.persistence.service.peer_links import Links
from engine.persistence.service.replica_intake import Intake
from engine.persistence.service.replica_store import ReplicaStore
from engine.persistence.service.replica_transport import Hello, ReplicaTransport
from engine.persistence.service.replica_view import ReplicaView
from engine.persistence.service.service_part import ServicePart
from engine.persistence.service.service_status import STATUS_TOPICS, StatusPublisher, ViewedParts
from engine.persistence.service.subscribing import Subscribing
from engine.persistence.service.subscription_readers import ConnectedReaders
from engine.persistence.service.synchronization import Synchronization
from engine.runtime import past
from engine.tracing.catalogue import catalogue
from engine.tracing.record import message
from engine.tracing.version import product_version

SAID: Final = "persistence.said"
"""The event id of sentences of a service."""
LONGEST_TURN_S: Final = 1.0
WORKERS: Final = 8
CLOSE_S: Final = 10.0
WATCH_S: Final = 1.0
"""Interval at which the deadlock watch looks at all threads."""
WORK_S: Final = DELIVERY_S + 10.0
"""Longest time of a worker for one group of a delivery, or for another job."""


class ServiceFault(Exception):
    """A part of the service failed, and the service cannot continue without it."""


@lazy_dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Options of a running replica.

    Attributes:
        name: its name, which no other replica has.
        directory: of its store.
        domain_id: DDS domain.
        environ: environment with CYCLONEDDS_URI.
        say: takes sentences for operators.
    """

    name: str
    directory: Path
    domain_id: int
    environ: Mapping[str, str]
    say: Callable[[str], None]


class Service:
    """One replica of a persistence service.

    Args:
        settings: the configuration.
        options: of this process.

    Raises:
        StoreError: the store cannot be used.
        DdsError, UnsupportedCyclone: Cyclone DDS cannot be used.
    """

    def __init__(self, settings: PersistenceService, options: ReplicaOptions) -> None:
        past_file = options.directory / past.FILE
        self._past = past.Past(past_file, time.time_ns, pid=os.getpid(), version=product_version())

        tell = options.say

        def say(text: str) -> None:
            self._past.say(text, SAID)
            tell(text)

        self._settings = settings
        self._options = options = dataclasses.replace(options, say=say)
        self._shell = Shell("service", "service", ServiceFault)
        self._started_ns = time.time_ns()
        self._counters: collections.Counter[str] = collections.Counter()
        check_layouts()
        self._groups = KnownGroups(settings.groups)
        self._synchronization = Synchronization(options.name, settings.synchronization, self._groups)
        self._lifespans = Lifespans()
        self._store = ReplicaStore(
            options.directory,
            options.name,
            lambda: secrets.token_hex(16),
            self._shell.mailbox.wake,
            self._shell.activities,
        )
        try:
            self._begin()
        except BaseException:
            self._shell.stack.close()
            raise

    def _begin(self) -> None:
        options = self._options
        uri = cyclone_uri(environment=options.environ)
        self._workers = Workers(self._shell.activities, WORKERS, "worker")
        self._shell.stack.callback(self._workers.close)
        self._serving = LateReaders(
            options.name,
            synchronizes=self._settings.synchronization.enable,
            groups=self._groups,
            kept=lambda prefix: self._synchronization.replica.of_group(prefix),
            is_expired=self._lifespans.is_expired,
            deliver=self._deliver,
            submit=self._submit,
        )
        self._subscribing = Subscribing(
            options.name,
            self._settings.synchronization,
            self._settings.subscriptions,
            self._groups,
            values=lambda group: self._synchronization.replica.of_group(group),
            say=options.say,
        )
        self._parts: list[ServicePart] = [
            self._lifespans,
            self._synchronization,
            self._serving,
            self._subscribing,
        ]
        self._store.open(self._parts)
        self._shell.stack.callback(self._store.close, CLOSE_S)
        self._shell.stack.callback(self._past.close)
        before = self._past.open(self._shell.activities.work(past.ACTIVITY, withholds=False))
        if before is not None and before.end != past.IN_ORDER:
            options.say(f"the previous run did not stop cleanly: {before.end}")
        self._participant = self._shell.join(
            NodeParticipant(
                options.domain_id, uri, options.name, bytes.fromhex(self._store.id), TagRole.PERSISTENCE
            )
        )
        self._directed = Directed(
            self._participant, bytes.fromhex(self._store.id), interface_of(uri), domain_tag(uri)
        )
        signal = self._shell.signal
        self._channel = Channel(self._participant, PARTITION, topics=STATUS_TOPICS, signal=signal)
        hello = Hello(self._settings.name, options.name, self._store.id)
        self._transport = ReplicaTransport(
            self._participant, hello, signal, self._shell.mailbox.wake, self._shell.activities
        )
        self._links = Links(hello, self._transport, self._parts, self._received, options.say)
        for part in self._parts:
            part.has_room = self._links.has_room
        self._intake = Intake(self._participant, signal, self._groups, self._synchronization, self._lifespans)
        self._readers = ConnectedReaders(self._participant, signal, self._submit)
        self._subscribing.begin(self._participant.guid.hex())
        self._watch = self._shell.begin_watch(self._tell, _no_lease, WATCH_S, detects=False)
        self._prepare_status()
        self._listen()

    def _prepare_status(self) -> None:
        options = self._options
        self._shown = ViewedParts(
            settings=self._settings,
            name=options.name,
            domain_id=options.domain_id,
            directory=options.directory,
            started_ns=self._started_ns,
            counters=self._counters,
            groups=self._groups,
            synchronization=self._synchronization,
            lifespans=self._lifespans,
            serving=self._serving,
            subscribing=self._subscribing,
            store=self._store,
            intake=self._intake,
            readers=self._readers,
            transport=self._transport,
            links=self._links,
            watch=self._watch,
        )
        self._status = StatusPublisher(options.name, self._store.id, self._channel, self._past, self._submit)

    def _listen(self) -> None:
        listen = self._shell.listen
        # Topics come before the writers of them.
        listen("topics", self._shell.topics.take, self._intake.topics_seen)
        listen("discovery", self._shell.discovery.take, self._discovered)
        listen("exchange", self._transport.receiver.take, self._links.exchanged)
        listen("readers", self._readers.take, self._readers_said)
        # The turn itself reads the taps.
        listen("taps", lambda: [True] if self._intake.taps.has_news() else [])
        self._shell.rely_on(self._store)
        self._shell.pump.start()

    # Other threads.

    def _submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run a blocking function on a worker thread; an exception in it ends the service."""

        def run() -> None:
            try:
                with self._shell.activities.job("worker (delivery, answer or type look-up)", WORK_S):
                    result = work()
            except Exception as error:
                failure = error
                if not self._participant.closed:
                    self._shell.mailbox.post(lambda: self._fail(failure))
            else:
                self._shell.mailbox.post(lambda: done(result))

        self._workers.submit(run)

    def _tell(self, event: str, **fields: object) -> None:
        """Say an event of the deadlock watch."""
        self._options.say(message(catalogue()[event], fields))

    def _fail(self, error: Exception) -> None:
        raise ServiceFault(f"a thread of the service ended: {error!r}") from error

    def _deliver(self, reader: HistoryReader, groups: Groupwise) -> ReaderDelivery:
        result = self._directed.deliver(reader.process, reader.addresses, groups)
        return ReaderDelivery(
            reader.topic,
            ",".join(reader.partitions),
            reader.process.hex(),
            result.samples,
            result.elapsed_ns / 1e9,
            result.problem,
            result.readers,
        )

    def request_stop(self, reason: str) -> None:
        """Ask the service to stop cleanly; callable from a signal handler and from any thread."""
        self._shell.request_stop(reason)

    # The service's thread.

    def run(self) -> bool:
        """Serve until `request_stop`; return whether everything is on disk at the end.

        Raises:
            ServiceFault: a part of it failed.
        """
        try:
            due_s = 0.0
            while self._shell.stop_reason is None:
                self._shell.wait(max(0.0, due_s - time.monotonic()))
                with self._shell.work:
                    self._shell.carry_out()
                    due_s = self._turn()
            self._shell.work.rest()
            return self._end()
        except Exception as error:
            self._past.end(str(error))
            raise
        finally:
            self._shell.stack.close()

    def _turn(self) -> float:
        """Decide, send, store and show; return when the next turn is due at the latest."""
        for text in self._intake.turn(time.monotonic()):
            self._options.say(text)
        again = self._intake.neighbourhood.to_ask_again(time.monotonic())
        if again is not None:
            self._look_up(again, is_first=False)
        captured = self._intake.drain()
        if captured:
            for part in self._parts:
                part.captured(captured)
        now_s = time.monotonic()
        due_s = now_s + min(LONGEST_TURN_S, self._intake.taps.patience_s)
        for part in self._parts:
            due_s = min(due_s, part.turn(now_s))
        try:
            due_s = min(due_s, self._transport.turn(now_s))
        except Exception as error:
            raise ServiceFault(f"a link of the service ended: {error!r}") from error
        self._send()
        self._save()
        self._readers.send(self._subscribing.answers())
        return min(due_s, self._status.turn(now_s, self.shown))

    def _send(self) -> None:
        self._links.send()
        self._links.restart(self._synchronization.overrun())

    def _save(self) -> None:
        if self._store.is_idle:
            writes = [write for part in self._parts if (write := part.changes()) is not None]
            if writes:
                self._store.submit(writes)

    def _end(self) -> bool:
        """Take captured samples, write everything, and close."""
        captured = self._intake.drain()
        for part in self._parts:
            part.captured(captured)
        self._send()
        deadline = time.monotonic() + CLOSE_S
        self._save()
        while not self._store.is_idle and time.monotonic() < deadline and not self._store.fault:
            self._shell.mailbox.wait(0.1)
            self._shell.carry_out()
            self._save()
        self._past.end(past.IN_ORDER)
        self._status.show_last(self.shown())
        self._readers.close()
        self._transport.close(1.0)
        self._intake.taps.close()
        return self._store.close(max(0.1, deadline - time.monotonic()))

    # Discovery.

    def _discovered(self, batch: Sequence[Any]) -> None:
        for change in batch:
            if isinstance(change, ParticipantSeen) and not change.is_own:
                if change.tag is not None and change.tag.role is TagRole.PERSISTENCE:
                    self._transport.seen(change.guid, change.tag.node_id.hex())
            elif isinstance(change, ParticipantGone):
                self._links.gone(change.guid)
        changes = self._intake.discovered(batch)
        self._serving.discovered(changes)
        for endpoint in changes.unresolved:
            self._look_up(endpoint)

    def _look_up(self, endpoint: EndpointSeen, *, is_first: bool = True) -> None:
        reference, attempts = endpoint.type, ATTEMPTS if is_first else 1
        if reference is None:
            return

        def resolved(resolution: Any) -> None:
            self._intake.resolved(reference, resolution)
            if resolution.type is None and is_first:
                self._counters["unresolved"] += 1

        self._submit(lambda: look_up_type(self._participant, endpoint, attempts=attempts), resolved)

    # Messages of replicas and readers.

    def _received(self) -> None:
        arrived, last_values = self._synchronization.take_from_others()
        if arrived:
            self._subscribing.captured(arrived)
            self._serving.heard(last_values)

    def _readers_said(self, batch: Sequence[Any]) -> None:
        for heard in self._readers.understand(batch):
            if heard.state is None:
                self._subscribing.left(heard.reader)
            else:
                self._subscribing.heard(heard.reader, heard.state)

    # Status.

    def shown(self) -> ReplicaView:
        """Return the present view of the replica."""
        return self._shown.look(is_ending=self._shell.stop_reason is not None)


def _no_lease() -> None:
    """Nobody supervises a persistence service: what is stuck is said and shown."""
