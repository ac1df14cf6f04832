"""One running replica: its intake, all its parts, the one thread that decides, and what it shows of itself.

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.capture.delivery import TIMEOUT_S as DELIVERY_S
from engine.capture.delivery import Directed
from engine.capture.intake import DiscoveryIntake
from engine.capture.neighbourhood import DiscoveryChanges, Neighbourhood, Offer
from engine.capture.shell import Shell
from engine.capture.tap import Tap, TapMove
from engine.capture.tap_registry import TapRegistry, UnroutedSamples
from engine.capture.unkept import Unkept, UnkeptReason
from engine.config.persistence import PersistenceService
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample
from engine.dds import abi
from engine.dds.activity import Workers
from engine.dds.channel import Channel, ChannelTopic
from engine.dds.discovery import EndpointSeen, ParticipantGone, ParticipantSeen
from engine.dds.errors import DdsTimeout
from engine.dds.interfaces import interface_of
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.selfcheck import check_layouts
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.typeinfo import Resolution
from engine.dds.uri import cyclone_uri, domain_tag
from engine.dds.waiting import Signal
from engine.dds.writer_names import WRITER_GONE
from engine.persistence.core.messages import Hello, OriginalSample
from engine.persistence.core.positions import Positions
from engine.persistence.core.provider_selection import ORIGINAL
from engine.persistence.core.replica import Replica
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups, WriterName, group_id, writer_name
from engine.persistence.service.links import ConnectedReaders, Links, ServicePart, Submit
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
from engine.persistence.service.service_parts import LateReaders, Lifespans, Subscribing, Synchronization
from engine.runtime import monitor, past
from engine.tracing.catalogue import catalogue
from engine.tracing.record import message
from engine.tracing.version import product_version

# Chosen: some hundred megabytes of keys.
MAX_INSTANCES: Final = 1_000_000
"""Instances whose owner is remembered; beyond, the oldest is forgotten, and its next writer owns it."""


class Owners:
    """The owners of the instances of exclusive topics, among the writers that this process sees."""

    def __init__(self) -> None:
        self._owners: dict[bytes, tuple[bytes, int]] = {}
        self._owned: collections.defaultdict[bytes, set[bytes]] = collections.defaultdict(set)

    def admits(self, instance: bytes, writer: bytes, strength: int) -> bool:
        """Note that a writer wrote or disposed an instance; return whether that counts.

        Args:
            instance: its key, with its group.
            writer: GUID.
            strength: of the writer.
        """
        owner = self._owners.get(instance)
        if owner is not None and owner[0] != writer and (-owner[1], owner[0]) < (-strength, writer):
            return False
        if owner is None or owner[0] != writer:
            self._release(instance)
            self._owned[writer].add(instance)
        self._owners[instance] = (writer, strength)
        if len(self._owners) > MAX_INSTANCES:
            self._release(next(iter(self._owners)))
        return True

    def unregistered(self, instance: bytes, writer: bytes) -> None:
        """Release an instance that its writer unregistered."""
        if self._owners.get(instance, (b"", 0))[0] == writer:
            self._release(instance)

    def gone(self, writer: bytes) -> None:
        """Release the instances of a writer that is gone."""
        for instance in list(self._owned.get(writer, ())):
            self._release(instance)

    def _release(self, instance: bytes) -> None:
        owner = self._owners.pop(instance, None)
        if owner is not None:
            owned = self._owned[owner[0]]
            owned.discard(instance)
            if not owned:
                del self._owned[owner[0]]


# As `engine.node.intake.DRAIN`.
DRAIN: Final = 20_000
"""Samples of one tap in one turn, so that other inputs have their turn, too."""
# Chosen: a person reads the first ones.
MAX_NEWS: Final = 100
"""Sentences of one turn: writers of others could fill the log."""


class Intake(DiscoveryIntake):
    """Captures the writers of the groups that the service keeps.

    Args:
        participant: of the taps.
        signal: set by the taps.
        groups: the topics to capture.
        synchronization: learns which writers are connected.
        lifespans: learns the lifespans of writers.
        run_aside: runs a function on a worker thread, and then one on the service's thread.

    Attributes:
        counters: `captured`, `unregistered` (not kept), `unrouted` (dropped), `refused_writers` (their QoS
            does not satisfy the tap's), `not_owner` (written by another writer than the exclusive owner),
            `unresolved` (types that could not be looked up).
    """

    def __init__(
        self,
        participant: NodeParticipant,
        signal: Signal,
        groups: KnownGroups,
        synchronization: Synchronization,
        lifespans: Lifespans,
        run_aside: Submit,
    ) -> None:
        super().__init__(
            participant, Neighbourhood(), TapRegistry(participant, signal), collections.Counter()
        )
        self._run_aside = run_aside
        self._groups = groups
        self._synchronization = synchronization
        self._lifespans = lifespans
        self._owners = Owners()
        self._strengths: dict[bytes, int] = {}
        self._lost: list[bytes] = []
        self._positions = Positions()
        self._names: dict[bytes, tuple[tuple[bytes, str], ...]] = {}
        self._unrouted_samples = UnroutedSamples()
        self._news: collections.deque[str] = collections.deque(maxlen=MAX_NEWS)

    def discovered(self, batch: Sequence[Any]) -> DiscoveryChanges:
        """Take in changes of discovery, and return them."""
        changes = self.neighbourhood.apply(batch)
        self.changed(changes)
        for endpoint in changes.unresolved:
            self.look_up(endpoint)
        return changes

    def changed(self, changes: DiscoveryChanges) -> None:
        """Open taps for new groups, and tell synchronization which writers came and went."""
        for description in changes.groups:
            if self._groups.covers(description.group.topic):
                self._synchronization.group_seen(description)
                self.taps.open(self._groups.get(group_id(description.group)) or description)
        offers = {offer.endpoint.guid: offer for offer in changes.offers}
        for writer, groups in changes.writers:
            if groups:
                self._writer_seen(offers[writer])
                self.watch.watch((offers[writer],))
            else:
                self._writer_gone(writer)
        for unkept in changes.unkept:
            self.not_kept(unkept)

    def not_kept(self, unkept: Unkept) -> None:
        """Report a writer that is not kept, of a topic that the service keeps."""
        if self._groups.covers(unkept.topic):
            if unkept.why is UnkeptReason.TYPE_UNKNOWN:
                self._names[bytes.fromhex(unkept.writer)] = ()
            self.counters["unkept_writers"] += 1
            self._news.append(f"writer {unkept.writer} of topic {unkept.topic!r} is not kept: {unkept.text}")

    def kept_after_all(self, unkept: Unkept) -> None:
        """Report a writer that is kept now, as it was reported before."""
        if self._groups.covers(unkept.topic):
            words = f"writer {unkept.writer} of topic {unkept.topic!r} is kept from now on; it was not"
            self._news.append(f"{words}: {unkept.text}")

    def mismatched(self, offer: Offer, policies: Sequence[str]) -> None:
        """Report a writer whose policies do not match those of its tap, for each group."""
        writer = offer.endpoint.guid
        self._writer_gone(writer)
        self._names[writer] = ()
        self.counters["refused_writers"] += len(offer.groups)
        self._news += (
            f"writer {writer.hex()} of topic {group.topic!r} in partition {group.partition!r} is not "
            f"captured: it and the built-in reader do not match, {', '.join(policies)}"
            for group in offer.groups
        )

    def moved(self, move: TapMove) -> None:
        """Report that another reader has taken the place of a tap's."""
        self._news.append(
            f"topic {move.topic!r} is {move.requested.name}, which was not known before: another "
            f"built-in reader has taken the place of the one that requested {move.before.name}"
        )

    def unresolved(self) -> None:
        """Count a type that could not be looked up."""
        self.counters["unresolved"] += 1

    def submit(
        self, endpoint: EndpointSeen, work: Callable[[], Resolution], done: Callable[[Resolution], None]
    ) -> None:
        """Look up a type on a worker."""
        self._run_aside(work, done)

    def _writer_seen(self, offer: Offer) -> None:
        if not self._groups.covers(offer.endpoint.topic):
            self._names[offer.endpoint.guid] = ()
            return
        writer, qos = offer.endpoint.guid, offer.endpoint.endpoint_qos
        ids = [group_id(group) for group in offer.groups]
        self._names[writer] = tuple((id_, writer_name(writer, id_)) for id_ in ids)
        if qos.lifespan_ns != abi.INFINITE_NS:
            self._lifespans.learn(writer, qos.lifespan_ns)
        if qos.exclusive:
            self._strengths[writer] = qos.strength
        if not self.is_refused(offer):
            for _, name in self._names[writer]:
                self._synchronization.replica.writer_matched(name)

    def turn(self, now_s: float) -> list[str]:
        """Look at taps and adapt them to the known QoS of topics; return sentences for operators.

        Of many sentences the last are returned; `now_s` is monotonic.
        """
        for description in self._groups.take_raised():
            self.taps.request(description)
        self.review(now_s)
        found = list(self._news)
        self._news.clear()
        return found

    def _writer_gone(self, writer: bytes) -> None:
        if writer in self._strengths:
            self._lost.append(writer)  # it owns its instances until its samples have been taken
        for _, name in self._names.get(writer, ()):
            self._synchronization.replica.writer_lost(name)
            self._positions.unmatched(name)

    def drain(self) -> list[OriginalSample]:
        """Take the samples of all taps, in order for each writer."""
        found: list[OriginalSample] = []
        for tap in self.taps:
            drained = [*self._unrouted_samples.before(tap), *tap.drain(DRAIN)]
            taken = self.taps.once(tap, drained, self.neighbourhood.routes)
            self.watch.heard(taken)
            for captured in taken:
                self._convert(tap, captured, found)
        self.counters["unrouted"] += self._unrouted_samples.drop_surplus()
        if self._lost and not self.taps.has_news():
            for writer in self._lost:
                self._owners.gone(writer)
            self._lost = []
        self.counters["captured"] += len(found)
        return found

    def _convert(self, tap: Tap, captured: Sample, found: list[OriginalSample]) -> None:
        """Add a sample of each group that its writer writes to."""
        names = self._names.get(captured.writer)
        if names is None:
            if captured.writer not in self.neighbourhood.routes:
                self._unrouted_samples.wait(tap, (captured,))
            return
        if captured.status & WRITER_GONE:
            self._owners.gone(captured.writer)
            for _, name in names:
                self._positions.unmatched(name)
            return
        is_kept, strength = captured.status & (DATA | DISPOSE), self._strengths.get(captured.writer)
        self.counters["unregistered"] += not is_kept
        for id_, name in names:
            instance = id_ + captured.key
            if is_kept:
                if strength is None or self._owners.admits(instance, captured.writer, strength):
                    found.append(
                        self._positions.sample(
                            name, instance, captured.source_time_ns, captured.status, captured.payload
                        )
                    )
                else:
                    self.counters["not_owner"] += 1
            if captured.status & UNREGISTER:
                self._owners.unregistered(instance, captured.writer)

    @property
    def rejected(self) -> int:
        """How often a full queue refused a sample, which DDS then sent again."""
        return sum(tap.rejected for tap in self.taps)


SAID: Final = "persistence.said"
"""The event id of sentences of a service."""
LONGEST_TURN_S: Final = 1.0
"""Longest time between two turns: some of what parts look at has no event, such as wall clocks."""
# As `engine.node.wire.WORKERS`.
WORKERS: Final = 8
"""Deliveries, answers and type look-ups at one time; a slow reader holds up one of them."""
# As the ServiceTerminatePeriod of OpenSplice by default, after which the supervisor kills.
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
"""Least time between two views: people look at them."""
# Chosen: with many writers a status takes long, and people can wait.
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
        report: takes sentences for operators.
    """

    name: str
    directory: Path
    domain_id: int
    environ: Mapping[str, str]
    report: Callable[[str], None]


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
        self._settings = settings
        self._options = options
        self._shell = Shell("service", "service", ServiceError)
        self._started_ns = time.time_ns()
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
            report=self._report,
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
            self._report(f"the previous run did not stop cleanly: {before.end}")

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
            self._report,
        )
        self._intake = Intake(
            self._participant,
            signal,
            self._groups,
            self._synchronization,
            self._lifespans,
            self._submit,
        )
        self._readers = ConnectedReaders(self._participant, signal, self._submit, self._subscribing.heard)
        self._subscribing.begin(self._participant.guid.hex())
        self._watch = self._shell.begin_watch(
            lambda event, **fields: self._report(message(catalogue()[event], fields)),
            lambda: None,  # nobody supervises a persistence service: what is stuck is said and shown
            WATCH_S,
            detects=False,
        )
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
        listen("readers", self._readers.drain, self._readers.receive)
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
            except Exception as error:  # of any class: it must reach the service's thread
                failure = error
                if not self._participant.closed:
                    self._shell.mailbox.post(lambda: self._fail(failure))
            else:
                self._shell.mailbox.post(lambda: done(result))

        self._workers.submit(run)

    def _report(self, text: str) -> None:
        """Tell operators, now and later, of something."""
        self._past.note(text, SAID)
        self._options.report(text)

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
            self._report(text)
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
        self._serving.discovered(self._intake.discovered(batch))

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
        with contextlib.suppress(DdsTimeout):  # a slow console: the next view is due in a second
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
            digest=f"{replica.digest():016x}",
        )

    def _all_counters(self) -> dict[str, int]:
        counted = collections.Counter(self._synchronization.replica.counters)
        for more in (
            self._synchronization.counters,
            self._intake.counters,
            self._serving.counters,
            self._subscribing.counters(),
            {f"reader_{name}": count for name, count in self._readers.counters.items()},
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


def _writer_views(groups: KnownGroups, replica: Replica) -> tuple[tuple[WriterView, ...], int]:
    """Return the views of writers, those in use before the others, and how many were left out."""
    names = replica.writers()
    if len(names) > MAX_WRITERS_SHOWN:
        # Those that are heard directly, then those that any provider has: what is cut off says least.
        names.sort(key=lambda name: (not replica.is_direct(name), replica.path(name) is None, name))
    settings, shown = replica.settings, list[WriterView]()

    def shown_as(provider: str | None) -> str:
        return "original" if provider == ORIGINAL else provider or ""

    for name in names[:MAX_WRITERS_SHOWN]:
        writer = WriterName.parse(name)
        description = groups.get(writer.group) if writer is not None else None
        if writer is None or description is None:
            continue
        stability = replica.stability(name)
        used, selected = stability.applied, stability.selected
        view = WriterView(
            writer=writer.guid.hex(),
            topic=description.group.topic,
            partition=description.group.partition,
            late=writer.late,
            direct=replica.is_direct(name),
            provider=shown_as(used.live),
            filling=tuple(sorted(used.filling)),
            selected=shown_as(selected.live),
            selected_filling=tuple(sorted(selected.filling)),
            lag_ns=replica.lag_ns(name),
            stable=min(stability.unchanged, settings.stable_periods),
            stable_of=settings.stable_periods,
            unsettled=stability.unsettled,
            unsettled_of=settings.max_change_periods,
            path=replica.path(name) or (),
        )
        shown.append(view)
    # By name, so that rows of a screen do not jump.
    shown.sort(key=lambda view: (view.topic, view.partition, view.writer, view.late))
    return tuple(shown), len(names) - len(shown)
