"""One running replica: all its parts, the one thread that decides, and what it shows of itself.

A turn of the thread takes in what has arrived (from original writers, other replicas and readers), lets each
part do what is due, sends the messages of all parts, and hands their changes to the store in one transaction.
What may block is done by other threads: the taps and the pump of Cyclone DDS, one thread for each link, that
of the store, and a few workers for deliveries, answers and type look-ups.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.capture.delivery import TIMEOUT_S as DELIVERY_S
from engine.capture.delivery import Directed
from engine.capture.shell import Shell
from engine.capture.tap_registry import look_up_type
from engine.config.persistence import PersistenceService
from engine.dataset.groups import GroupDescription
from engine.dds.activity import Workers
from engine.dds.channel import Channel, ChannelTopic
from engine.dds.discovery import EndpointSeen, ParticipantGone, ParticipantSeen
from engine.dds.errors import DdsTimeout
from engine.dds.interfaces import interface_of
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.selfcheck import check_layouts
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.typeinfo import ATTEMPTS
from engine.dds.uri import cyclone_uri, domain_tag
from engine.persistence.core.messages import Hello
from engine.persistence.core.provider_selection import ORIGINAL
from engine.persistence.core.replica import Replica
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups, WriterName
from engine.persistence.service.late_readers import LateReaders
from engine.persistence.service.lifespans import Lifespans
from engine.persistence.service.links import Links
from engine.persistence.service.replica_intake import Intake
from engine.persistence.service.replica_store import ReplicaStore
from engine.persistence.service.replica_view import (
    MAX_WRITERS_SHOWN,
    PAST_TOPIC,
    TOPIC,
    KeptGroupView,
    ReplicaView,
    WriterView,
    encode,
)
from engine.persistence.service.service_part import ServicePart
from engine.persistence.service.subscribing import Subscribing
from engine.persistence.service.subscription_readers import ConnectedReaders
from engine.persistence.service.synchronization import Synchronization
from engine.runtime import monitor, past
from engine.tracing.catalogue import catalogue
from engine.tracing.record import message
from engine.tracing.version import product_version

SAID: Final = "persistence.said"
"""The event id of sentences of a service."""
LONGEST_TURN_S: Final = 1.0
"""Longest time between two turns: some of what parts look at has no event, such as wall clocks."""
WORKERS: Final = 8
"""Deliveries, answers and type look-ups at one time; a slow reader holds up one of them."""
CLOSE_S: Final = 10.0
"""Longest time for the last writes to the store at the end."""
WATCH_S: Final = 1.0
"""Interval at which the deadlock watch looks at all threads."""
WORK_S: Final = DELIVERY_S + 10.0
"""Longest time of a worker for one group of a delivery, or for another job."""
STATUS_TOPICS: Final = (
    ChannelTopic(TOPIC, is_state=True, reads=False),
    ChannelTopic(PAST_TOPIC, is_state=True, reads=False),
)
"""The topics on which a replica shows itself."""
STATUS_S: Final = 1.0
STATUS_SHARE: Final = 20
"""At most 1/20 of the time is spent on making the status."""


class ServiceError(Exception):
    """A part of the service failed, and the service cannot continue without it."""


@dataclasses.dataclass(frozen=True, slots=True)
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
        self._shell = Shell("service", "service", ServiceError)
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

    def _open_store(self) -> None:
        """Make the parts, and let them load what they have on disk."""
        options = self._options
        self._serving = LateReaders(
            options.name,
            synchronizes=self._settings.synchronization.enable,
            groups=self._groups,
            kept=lambda prefix: self._synchronization.replica.of_group(prefix),
            is_expired=self._lifespans.is_expired,
            deliver=lambda reader, groups: self._directed.deliver(reader.process, reader.addresses, groups),
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

    def _begin(self) -> None:
        options = self._options
        uri = cyclone_uri(environment=options.environ)
        self._workers = Workers(self._shell.activities, WORKERS, "worker")
        self._shell.stack.callback(self._workers.close)
        self._open_store()
        self._participant = self._shell.join(
            NodeParticipant(
                options.domain_id,
                uri,
                options.name,
                bytes.fromhex(self._store.id),
                TagRole.PERSISTENCE,
                tries=True,
            )
        )
        self._directed = Directed(
            self._participant, bytes.fromhex(self._store.id), interface_of(uri), domain_tag(uri)
        )
        signal = self._shell.signal
        self._channel = Channel(self._participant, PARTITION, topics=STATUS_TOPICS, signal=signal)
        self._links = Links(
            self._participant,
            Hello(self._settings.name, options.name, self._store.id),
            self._parts,
            signal,
            self._shell.mailbox.wake,
            self._shell.activities,
            options.say,
        )
        self._intake = Intake(self._participant, signal, self._groups, self._synchronization, self._lifespans)
        self._readers = ConnectedReaders(self._participant, signal, self._submit)
        self._subscribing.begin(self._participant.guid.hex())
        self._watch = self._shell.begin_watch(self._tell, _no_lease, WATCH_S, detects=False)
        self._is_showing = False
        self._show_due_s = 0.0
        self._past_shown = -1
        self._listen()

    def _listen(self) -> None:
        listen = self._shell.listen
        # Topics come before the writers of them.
        listen("topics", self._shell.topics.take, self._intake.topics_seen)
        listen("discovery", self._shell.discovery.take, self._discovered)
        listen("exchange", self._links.receiver.take, self._links.exchanged)
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
        raise ServiceError(f"a thread of the service ended: {error!r}") from error

    def request_stop(self, reason: str) -> None:
        """Ask the service to stop cleanly; callable from a signal handler and from any thread."""
        self._shell.request_stop(reason)

    # The service's thread.

    def run(self) -> bool:
        """Serve until `request_stop`; return whether everything is on disk at the end.

        Raises:
            ServiceError: a part of it failed.
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
        self._take_in()
        now_s = time.monotonic()
        due_s = now_s + min(LONGEST_TURN_S, self._intake.taps.patience_s)
        for part in self._parts:
            due_s = min(due_s, part.turn(now_s))
        try:
            due_s = min(due_s, self._links.turn(now_s))
        except Exception as error:
            raise ServiceError(f"a link of the service ended: {error!r}") from error
        self._send()
        self._save()
        # Behind the save: an answer confirms what is on disk.
        self._readers.send(self._subscribing.answers())
        if now_s >= self._show_due_s:
            self._show()
            took_s = time.monotonic() - now_s
            self._show_due_s = now_s + max(STATUS_S, STATUS_SHARE * took_s)
        return min(due_s, self._show_due_s)

    def _take_in(self) -> None:
        """Take in the samples that came from other replicas and from original writers."""
        arrived, last_values = self._synchronization.take_from_others()
        if arrived:
            self._subscribing.captured(arrived)
            self._serving.heard(last_values)
        captured = self._intake.drain()
        for part in self._parts if captured else ():
            part.captured(captured)

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
        self._take_in()
        self._send()
        deadline = time.monotonic() + CLOSE_S
        self._save()
        while not self._store.is_idle and time.monotonic() < deadline and not self._store.fault:
            self._shell.mailbox.wait(0.1)
            self._shell.carry_out()
            self._save()
        self._past.end(past.IN_ORDER)
        self._publish(encode(self.shown()))
        self._readers.close()
        self._links.close(1.0)
        self._intake.taps.close()
        return self._store.close(max(0.1, deadline - time.monotonic()))

    # Discovery.

    def _discovered(self, batch: Sequence[Any]) -> None:
        for change in batch:
            if isinstance(change, ParticipantSeen) and not change.is_own:
                if change.tag is not None and change.tag.role is TagRole.PERSISTENCE:
                    self._links.seen(change.guid, change.tag.node_id.hex())
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

    # Readers.

    def _readers_said(self, batch: Sequence[Any]) -> None:
        for reader, state in self._readers.understand(batch):
            if state is None:
                self._subscribing.left(reader)
            else:
                self._subscribing.heard(reader, state)

    # Status.

    def _show(self) -> None:
        """Publish a view unless the last one is still being sent: a slow reader must hold nothing up."""
        if self._is_showing:
            return
        self._is_showing = True
        payload = encode(self.shown())

        def published(_: None) -> None:
            self._is_showing = False

        self._submit(lambda: self._publish(payload), published)

    def _publish(self, payload: bytes) -> None:
        """Publish a view, and the past if it has changed; wait until they are sent."""
        name = self._options.name
        with contextlib.suppress(DdsTimeout):
            self._channel.publish(TOPIC, name, payload)
            revision = self._past.revision
            if revision != self._past_shown:
                self._channel.publish(
                    PAST_TOPIC, name, monitor.encode(self._past.shown(self._store.id, name))
                )
                self._past_shown = revision

    def shown(self) -> ReplicaView:
        """Return the present view of the replica."""
        replica, options = self._synchronization.replica, self._options
        counts = collections.Counter(key[:ID_BYTES] for key in replica.instances())
        groups = tuple(
            KeptGroupView(
                partition=description.group.partition,
                topic=description.group.topic,
                type_name=description.type.name,
                values=counts[id_],
                readers=self._serving.readers(description),
            )
            for id_, description in self._groups.items()
        )
        writers, left_out = _writer_views(self._groups, replica)
        return ReplicaView(
            service=self._settings.name,
            name=options.name,
            id=self._store.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            domain_id=options.domain_id,
            # A path need not be text that can be sent.
            store=str(options.directory.absolute()).encode(errors="replace").decode(),
            started_ns=self._started_ns,
            time_ns=time.time_ns(),
            synchronizes=self._settings.synchronization.enable,
            period_ms=self._settings.synchronization.period_ms,
            values=sum(group.values for group in groups),
            transactions=self._store.written,
            unwritten=not self._store.is_idle,
            peers=self._links.views(),
            groups=groups,
            writers=writers,
            writers_left_out=left_out,
            deliveries=tuple(self._serving.deliveries),
            subscriptions=self._subscribing.views(),
            counters=self._all_counters(),
            problems=self._problems(),
            ending=self._shell.stop_reason is not None,
        )

    def _all_counters(self) -> dict[str, int]:
        counted = collections.Counter(self._synchronization.replica.counters)
        for more in (
            self._synchronization.counters,
            self._intake.counters,
            self._serving.counters,
            self._subscribing.counters(),
            {f"reader_{name}": count for name, count in self._readers.counters.items()},
            self._counters,
            self._links.counters,
            {
                "malformed": self._links.receiver.malformed,
                "broken_links": self._links.broken,
                "rejected": self._intake.rejected,
                "refused_groups": self._groups.refused,
                "refused_lifespans": self._lifespans.refused,
            },
        ):
            counted.update(more)
        return dict(sorted((name, count) for name, count in counted.items() if count))

    def _problems(self) -> tuple[str, ...]:
        found = [self._store.problem] if self._store.problem else []
        damaged = self._synchronization.damaged + self._subscribing.damaged
        if damaged:
            found.append(f"{damaged} rows of the store were damaged and left out")
        found += [f"{name} does not proceed" for name in self._watch.stuck]
        found += self._subscribing.problems()
        return (*found, *(f"{one.name}: {one.problem}" for one in self._links.views() if one.problem))


def _no_lease() -> None:
    """Nobody supervises a persistence service: what is stuck is said and shown."""


def _writer_views(groups: KnownGroups, replica: Replica) -> tuple[tuple[WriterView, ...], int]:
    """Return the views of writers, those in use before the others, and how many were left out."""
    names = replica.writers()
    if len(names) > MAX_WRITERS_SHOWN:
        names.sort(key=lambda name: (not replica.is_direct(name), replica.path(name) is None, name))
    shown = list(_writers(names[:MAX_WRITERS_SHOWN], groups, replica))
    return tuple(sorted(shown, key=_place)), len(names) - len(shown)


def _place(view: WriterView) -> tuple[str, str, str, bool]:
    return view.topic, view.partition, view.writer, view.late


def _writers(names: list[str], groups: KnownGroups, replica: Replica) -> Iterator[WriterView]:
    for name in names:
        writer = WriterName.of(name)
        description = groups.get(writer.group) if writer is not None else None
        if writer is not None and description is not None:
            yield _writer(name, writer, description, replica)


def _writer(name: str, writer: WriterName, description: GroupDescription, replica: Replica) -> WriterView:
    stability, settings = replica.stability(name), replica.settings
    used, selected = stability.applied, stability.selected
    return WriterView(
        writer=writer.guid.hex(),
        topic=description.group.topic,
        partition=description.group.partition,
        late=writer.late,
        direct=replica.is_direct(name),
        provider=_provider(used.live),
        filling=tuple(sorted(used.filling)),
        selected=_provider(selected.live),
        selected_filling=tuple(sorted(selected.filling)),
        lag_ns=replica.lag_ns(name),
        stable=min(stability.unchanged, settings.stable_periods),
        stable_of=settings.stable_periods,
        unsettled=stability.unsettled,
        unsettled_of=settings.max_change_periods,
        path=replica.path(name) or (),
    )


def _provider(name: str | None) -> str:
    return "original" if name == ORIGINAL else name or ""
