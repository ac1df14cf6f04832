"""One node: its assembly, and the one thread of its runtime.

`RunningNode.run` first opens the store, which may take its time: it must know what this node has before it
takes part in an election. Then `_begin` makes the parts from the outside in: participant, channel, pulse, and
the runtime, which makes its wire. From then on one thread, `_serve`, owns the runtime. Each turn takes in
everything that has arrived (the mailbox, streams, the taps) *before* it lets the core look at its timers, so
that no fellow is judged silent while its heartbeat waits here. Other threads only hand tasks to the mailbox:
the pump (receives from Cyclone DDS), the sender and the workers of the wire, the pulse (heartbeats), the disk
(the store), the past, and the deadlock watch, which alone renews the lease towards the supervisor.

A new run in the same process, with the data of the one before, begins when a network interface comes up
late, for nodes that choose their interface themselves, because Cyclone DDS reads the interfaces only when a
domain is created. It also begins when the store turns out to be an older copy (`CarriedSets`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from engine import native
from engine.capture.configured_uri import InterfaceWatch, interface_fault, is_automatic, uri_of
from engine.capture.neighbourhood import Neighbourhood
from engine.capture.shell import Shell, give_memory_back
from engine.config.scheduling import ThreadScheduling, schedules
from engine.config.schema import OF_SECRET, documented
from engine.config.settings import ALIGNEE, ALIGNER, HEARTBEAT, PERSISTENT, SERVICE, WATCHDOG
from engine.core.states import ServiceState
from engine.dataset.content import Expression, ExpressionFault, Undecodable
from engine.dataset.sample import DATA
from engine.dds import abi
from engine.dds.activity import BEAT_S, IDLE_BEATS
from engine.dds.bulk import TOPIC as BULK_TOPIC
from engine.dds.bulk import BulkReceiver
from engine.dds.channel import Announced, Channel, ChannelTopic
from engine.dds.client_protocol import endpoints
from engine.dds.decoding import class_of, decode, key_names, kinds_of
from engine.dds.errors import OUT_OF_RESOURCES, DdsError, DdsTimeout, SettingsRefused, UnsupportedCyclone
from engine.dds.interfaces import address_of, addresses_of, interface_of, known_addresses
from engine.dds.participant import NodeParticipant
from engine.dds.proofs import DomainSecret, SecretError
from engine.dds.selfcheck import check_layouts
from engine.dds.uri import domain_tag
from engine.dds.writer import LATEST_NS
from engine.files import is_permanent
from engine.node import wire
from engine.node.disk import Disk, WriteSchedule, trace_found
from engine.node.intake import CaptureDrain, NodeIntake, Streams
from engine.node.pulse import Pulse
from engine.node.wire import DdsWire, receiver_partition
from engine.runtime import codec
from engine.runtime.node_snapshot import only_parts, refused_groups, unstored, without_candidates
from engine.runtime.past import ACTIVITY, IN_ORDER, Past
from engine.runtime.ports import FilterRefused
from engine.runtime.runtime import CarriedSets, Runtime
from engine.runtime.startup import core_settings
from engine.runtime.withholding import at_once, filtered
from engine.store.interface import StoreError, StoreForbidden, StoreRefused
from engine.tracing.levels import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from engine.client_service.service import ClientService
    from engine.config.settings import Configuration, ContentFilterSettings, EntityNames
    from engine.core.name_spaces import Element
    from engine.dataset.groups import GroupDescription, TypeDescription
    from engine.runtime.ports import Gate
    from engine.runtime.startup import StoredContent
    from engine.tracing.tracer import Tracer


TOPICS: Final = (
    *(ChannelTopic(name, is_state=True) for name in codec.STATE_TOPICS),
    ChannelTopic(codec.MESSAGE_TOPIC, is_state=False),
    *wire.TOPICS,
)


SUPERVISOR: Final = "supervisor"
"""Name of the supervisor in reports of the deadlock watch."""
# The supervisor itself gives a node one lease, and a stopped one (SIGSTOP, a debugger) shall come back to a
# living node.
LEFT_ALONE_LEASES: Final = 3
# With a short ExpiryTime a busy machine alone could delay the supervisor for three leases.
LEFT_ALONE_S: Final = 10.0
"""The node ends when its supervisor has stood still for this number of leases, and at least for this time."""
LEFT_ALONE: Final = "the supervisor stands still"

# Often enough for a person who looks at the log, and few lines for a disk that is full over night.
WAITING_PERIOD_S: Final = 10.0
"""Period of reports that the node waits for room to open its store, or for its clock."""


class ConfigurationRefused(Exception):
    """The node cannot run with this configuration in this system; a restart would not help."""


def _is_permanent(error: BaseException) -> bool:
    """Whether another start of the node would end in the same way."""
    match error:
        case UnsupportedCyclone() | SettingsRefused():
            return not error.may_pass
        case DdsError():  # as for a port that another process has
            return not isinstance(error, DdsTimeout) and error.code != OUT_OF_RESOURCES
        case OSError():
            return is_permanent(error)
    return isinstance(error, StoreRefused | StoreForbidden)


class NodeError(Exception):
    """A part that the node needs cannot be used, or failed."""


class Lease(Protocol):
    """The duties of a supervised node towards its supervisor (see `engine.supervisor.lease_link`)."""

    def renew(self) -> None:
        """Tell that the node is alive."""

    def report(self, state: str, **details: object) -> None:
        """Report the state of the node."""

    def is_lost(self, timeout_s: float = 0) -> bool:
        """Tell whether the supervisor is gone."""

    def note(self, **details: object) -> None:
        """Report details without renewing the lease."""

    def is_alive(self) -> bool:
        """Tell whether the supervisor has given a sign of life since the last call."""


class SystemClock:
    """The real clocks."""

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970 UTC."""
        return time.time_ns()


def _wrong_clock(now_ns: int) -> str:
    """Return what is wrong with the wall clock if no sample can have its time; else nothing."""
    if 0 <= now_ns <= LATEST_NS:
        return ""
    said, last = (
        time.strftime("%Y-%m-%d", time.gmtime(one_ns // 1_000_000_000)) for one_ns in (now_ns, LATEST_NS)
    )
    return f"the clock of this machine says {said}, and samples have times from 1970-01-01 to {last}"


def _pace(configuration: Configuration) -> WriteSchedule:
    """Return times and intervals for writing the node's store."""
    persistent = configuration.persistent
    if persistent is None:
        return WriteSchedule()
    return WriteSchedule(persistent.session_time_s, persistent.sleep_time_s, persistent.optimize_interval)


SETTING_OF: Final = {
    "MainThread": ALIGNEE,
    "dds-pump": ALIGNEE,
    "recv": ALIGNEE,
    "dq.": ALIGNEE,
    "worker": ALIGNER,
    "historicalData": ALIGNER,
    "heartbeat": HEARTBEAT,
    "sender": HEARTBEAT,
    "tev": HEARTBEAT,
    "persistentData": PERSISTENT,
    "watch": WATCHDOG,
}
"""Setting for the threads whose names have this prefix.

Alignee: threads that receive from fellows. Aligner: threads that send sets to fellows, readers and clients.
Heartbeat: threads that send heartbeats and other small messages, and the timed events of Cyclone DDS. The
guide assigns the statusThread to Watchdog, the schema the sender of heartbeats to Heartbeat; here the status
is the heartbeat. All other threads follow Domain/Service/Scheduling.
"""

_TASKS: Final = Path("/proc/self/task")
# Listing all threads reads a file for each of the tens of them. Chosen, not measured.
LOOKS: Final = 10
"""How many looks have one at all threads among them; the others notice only another number of threads."""
_RIGHTS: Final = (
    "the node needs CAP_SYS_NICE, or limits that allow it (ulimit -r for Realtime, -e for Timeshare)"
)


def schedule_of(tid: int) -> ThreadScheduling:
    """Return the scheduling of a thread; 0 is the calling one."""
    priority = os.sched_getparam(tid).sched_priority
    return ThreadScheduling(os.sched_getscheduler(tid), priority, os.getpriority(os.PRIO_PROCESS, tid))


def _apply(wanted: ThreadScheduling, tid: int) -> None:
    """Set the scheduling of a thread.

    Raises:
        OSError: the kernel refuses; a part may have been changed.
    """
    now = schedule_of(tid)
    if (now.policy, now.priority) != (wanted.policy, wanted.priority):
        os.sched_setscheduler(tid, wanted.policy, os.sched_param(wanted.priority))
    if now.nice != wanted.nice:
        os.setpriority(os.PRIO_PROCESS, tid, wanted.nice)


class Threads:
    """The threads of this process; it gives each its scheduling (deployment guide 5.5).

    Linux schedules threads, so it sets class and priority of each thread in /proc/self/task: it knows
    Python's threads by their Python name, native ones, as those of Cyclone DDS, by the name that they gave
    themselves. `engine.config.scheduling` explains class and priority.

    Args:
        configuration: the node's.
        tracer: takes the events of changes and refusals.
    """

    def __init__(self, configuration: Configuration, tracer: Tracer) -> None:
        self._tracer = tracer
        self._refused: set[str] = set()
        self._known: set[int] = set()
        self._unnamed: set[int] = set()
        self._count = self._looks = 0
        process = schedule_of(0)
        self._wanted: dict[str, ThreadScheduling] = {}
        self._origins: dict[str, str] = {}
        for path, asked, used, fault in schedules(configuration, process):
            self._wanted[path], self._origins[path] = used, str(asked.origin)
            if fault:
                tracer.event(
                    "lifecycle.scheduling-impossible",
                    place=asked.origin,
                    setting=documented(f"{path}/Priority"),
                    cause=fault,
                    used=used,
                )
        self._base = self._wanted.get(SERVICE, process)
        self._asked = {path for path, used in self._wanted.items() if used != process}

    def schedule_new(self) -> None:
        """Schedule the threads that started since the last call."""
        count = _TASKS.stat().st_nlink  # 2 more than the threads; to list them takes the kernel a millisecond
        self._looks = (self._looks + 1) % LOOKS
        if count == self._count and self._looks and not self._unnamed:
            return
        self._count = count
        found = {int(path.name) for path in _TASKS.iterdir()}
        new = found - self._known
        self._known = found
        if not new:
            return
        later: set[int] = set()
        process = (_TASKS / str(os.getpid()) / "comm").read_text("utf-8", "replace").strip()
        python = {thread.native_id: thread.name for thread in threading.enumerate()}
        for tid in sorted(new):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                name = python.get(tid)
                if name is None:
                    name = (_TASKS / str(tid) / "comm").read_text("utf-8", "replace").strip()
                    if name == process and tid not in self._unnamed:
                        later.add(tid)  # a native thread names itself once it runs
                        continue
                if self._asked:
                    self._schedule(tid, name)
        self._known -= later
        self._unnamed = later

    def _schedule(self, tid: int, name: str) -> None:
        begins = next((one for one in SETTING_OF if name.startswith(one)), "")
        setting = SETTING_OF.get(begins, SERVICE)
        wanted = self._wanted.get(setting, self._base)
        if wanted == self._base:  # the thread gets the scheduling of the whole process
            setting = SERVICE
        try:
            _apply(wanted, tid)
        except ProcessLookupError:
            raise
        except OSError as error:
            if setting in self._asked - self._refused:
                self._refused.add(setting)
                cause = f"{error.strerror}: {_RIGHTS}" if isinstance(error, PermissionError) else str(error)
                self._tracer.event(
                    "lifecycle.scheduling-refused",
                    place=self._origins[setting],
                    setting=documented(setting),
                    thread=name,
                    wanted=wanted,
                    cause=cause,
                )
        else:
            self._tracer.event("lifecycle.scheduled", thread=name, tid=tid, wanted=wanted, setting=setting)


class _Filter(msgspec.Struct, frozen=True):
    expression: Expression
    elements: tuple[Element, ...]
    place: str


class _TypeGate:
    """A filter on samples of one type."""

    def __init__(self, expression: Expression, description: TypeDescription) -> None:
        self._expression = expression
        self._type = description
        self._class = class_of(description)
        keys = {(name,) for name in key_names(description)}
        self._decides_by_key = expression.fields <= keys

    def accepts(self, status: int, payload: bytes) -> bool | None:
        """See `engine.runtime.ports.Gate`."""
        try:
            if status & DATA:
                return self._expression.accepts(self._class.deserialize(payload))
            if not self._decides_by_key:
                return None
            return self._expression.accepts(decode(self._type, status, payload))
        except Exception:  # the wheel raises errors of many classes for bytes of another type
            return False


class ContentFilters:
    """The filters of a configuration (//OpenSplice/Domain/Filters); the first that matches a group applies.

    The node keeps only samples that they accept, and decodes payloads only in groups that have a filter.

    Args:
        filters: the configured filters, valid expressions.
        tracer: takes the events of filters without effect.

    Attributes:
        elements: all groups that have one.
    """

    def __init__(self, filters: Iterable[ContentFilterSettings], tracer: Tracer) -> None:
        self._tracer = tracer
        self._filters = []
        for each in filters:
            if each.elements:
                self._filters.append(_Filter(Expression(each.content), each.elements, str(each.origin)))
            else:
                tracer.event("filter.ignored", place=each.origin, cause=each.why_ignored)
        self.elements = tuple(element for each in self._filters for element in each.elements)

    def gate(self, description: GroupDescription) -> Gate | None:
        """Return the filter of a group; None if none applies.

        Raises:
            FilterRefused: the filter does not fit the group's type; the text has file, line, and the column
                in the condition.
        """
        for each in self._filters:
            if any(element.contains(description.group) for element in each.elements):
                try:
                    each.expression.check(kinds_of(description.type))
                    return _TypeGate(each.expression, description.type)
                except (ExpressionFault, Undecodable) as fault:
                    name = description.type.name
                    raise FilterRefused(f"{each.place}: type {name}: the condition, {fault}") from fault
        return None

    def left_of(self, found: StoredContent, renew: Callable[[], None]) -> StoredContent:
        """Apply the filters to stored sets, because a filter may be newer than the store.

        Args:
            found: the content of the store. It is not changed.
            renew: called repeatedly meanwhile.

        Raises:
            FilterRefused: a filter does not fit a stored type; the text names the group, too.
        """
        sets = {}
        for name, (data, descriptions) in found.sets.items():
            gates = {}
            for description in descriptions:
                try:
                    gate = self.gate(description)
                except FilterRefused as refusal:
                    raise FilterRefused(f"group {description.group}: {refusal}") from refusal
                if gate is not None:
                    gates[description.group] = gate
            left = at_once(filtered(data, gates), renew)
            sets[name] = left, descriptions
            if left is not data and (removed := data.summary().count - left.summary().count):
                self._tracer.event("filter.removed", namespace=name, samples=removed)
        return msgspec.structs.replace(found, sets=sets)


class RunningNode:
    """One running durability service.

    Args:
        configuration: the settings.
        name: the human name of the node.
        tracer: takes the events; the node publishes them for consoles, too.
        environ: environment variables, with CYCLONEDDS_URI.
        lease: the link to the supervisor, None without one.
        carried: data of this process from before it moved to another network interface.
        past: remembered events, which consoles show.

    Attributes:
        carries: data for the next `RunningNode`, if `run` returned to move to another network interface; None
            if the node ended for good.
    """

    def __init__(
        self,
        configuration: Configuration,
        name: str,
        tracer: Tracer,
        environ: Mapping[str, str],
        lease: Lease | None = None,
        carried: CarriedSets | None = None,
        past: Past | None = None,
    ) -> None:
        self.carries: CarriedSets | None = None
        self._carried, self._has_moved = carried or CarriedSets(), carried is not None
        self._past = past or Past(None, time.time_ns, pid=0, version="")
        self._interfaces = InterfaceWatch() if is_automatic(configuration, environ) else None
        self._is_moving = self._is_left_alone = False
        self._configuration = configuration
        self._tracer = tracer
        self._lease = lease
        self._clock = SystemClock()
        self._shell = Shell("ospl_durability", "node", NodeError)
        self._lease_pause_s = min(1.0, configuration.domain.lease.period_s)
        self._said: tuple[object, ...] = ()
        self._said_stuck: tuple[str, ...] = ()
        self._started_ns = self._clock.wall_ns()
        self._shown_state = ""
        directory = configuration.persistent.store_directory if configuration.persistent else None
        self._disk = Disk(
            Path(directory) if directory else None,
            name,
            self._shell.mailbox.wake,
            self._shell.activities,
            _pace(configuration),
        )
        self._uri = uri_of(configuration, environ)
        self._name = name
        self._threads = Threads(configuration, tracer)

    def _open_store(self) -> StoredContent | None:
        """Open and verify the store; return None if told to end first.

        It waits while the disk is full, and while the clock tells a time that no sample can have: a node
        counts on from the clock of its start, and need not be started again when that is corrected.
        """
        domain, persistent = self._configuration.domain, self._configuration.persistent
        directory = persistent.store_directory if persistent else ""
        self._disk.start()
        self._shell.stack.callback(self._disk.close, domain.service_terminate_period_s * 0.7)
        warned_s = -WAITING_PERIOD_S
        while self._shell.stop_reason is None:
            found, wrong = self._disk.found(), _wrong_clock(self._clock.wall_ns())
            if found is not None and not wrong:
                if _wrong_clock(self._started_ns):  # else what was said before stays of this run
                    self._started_ns = self._clock.wall_ns()
                trace_found(self._tracer, directory, found)
                return self._carried.added_to(found)
            refusal, now = self._disk.refusal, self._clock.monotonic()
            if (refusal or wrong) and now - warned_s >= WAITING_PERIOD_S:
                warned_s = now
                if refusal:
                    self._tracer.event("store.waiting", directory=directory, cause=refusal)
                if wrong:
                    self._tracer.event("lifecycle.clock-wrong", cause=wrong)
            self._report_state(ServiceState.INIT.value, problem=refusal, waits=wrong)
            self._renew()
            self._shell.mailbox.wait(self._lease_pause_s)
            self._shell.mailbox.carry_out()
        return None

    def _begin(self, found: StoredContent) -> None:
        """Join the domain with the content of the store."""
        configuration, name, node = self._configuration, self._name, found.report.node_id
        self._found = found
        before = self._past.open(self._shell.activities.work(ACTIVITY, withholds=False))
        if before is not None and before.end != IN_ORDER:
            self._tracer.event("lifecycle.run-before", cause=before.end)
        self._participant = self._shell.join(
            NodeParticipant(
                configuration.domain.id,
                self._uri,
                name,
                bytes.fromhex(node),
                secret=self._secret,
                tries=True,
            )
        )
        self._neighbourhood = Neighbourhood()
        signal, partition = self._shell.signal, configuration.entity_names.partition
        announced = self._announced(configuration.entity_names)
        self._channel = Channel(
            self._participant, partition, topics=TOPICS, signal=signal, announced=announced
        )
        self._receiver = BulkReceiver(
            self._participant, receiver_partition(partition, node), signal=signal, name=announced.reader
        )
        self._pulse = Pulse(
            functools.partial(self._channel.publish, codec.STATUS_TOPIC, node),
            self._shell.work,
            self._shell.activities.work("dcpsHeartbeatListener"),
            configuration.network.heartbeat.period_s,
        )
        self._shell.stack.callback(self._pulse.close, 1.0)
        self._assemble(name)
        self._listen()
        self._watch()
        self._threads.schedule_new()

    def _announced(self, names: EntityNames) -> Announced:
        """Return names and priorities of a protocol's endpoints."""
        network = self._configuration.network
        heartbeat, alignment = network.heartbeat_priority, self._configuration.alignment.transport_priority
        priorities = {
            codec.STATUS_TOPIC: heartbeat,
            endpoints.STATE: heartbeat,
            BULK_TOPIC: alignment,
            endpoints.HISTORY: alignment,
        }
        return Announced(names.publisher, names.subscriber, network.transport_priority, priorities)

    def _assemble(self, name: str) -> None:
        """Make the runtime, its inputs, and its display for consoles."""
        configuration = self._configuration
        filters = ContentFilters(configuration.filters, self._tracer)
        try:
            found = self._found = filters.left_of(self._found, self._renew)
        except FilterRefused as refusal:
            raise ConfigurationRefused(str(refusal)) from refusal
        self._runtime = Runtime(
            core_settings(configuration, name, addresses_of(self._uri), found),
            self._disk.store_queue,
            self._make_wire,
            self._clock,
            self._tracer,
            found.sets,
            found.parts,
            filters=filters,
        )
        is_loopback = address_of(self._interface).startswith("127.")
        reach = "which reaches this machine only" if is_loopback else "which leaves this machine"
        self._tracer.event("lifecycle.interface", interface=self._interface, reach=reach)
        self._clients = self._serve_clients()
        self._incoming = NodeIntake(
            self._participant,
            self._neighbourhood,
            self._wire,
            self._runtime,
            self._tracer,
            self._shell.mailbox.post,
        )
        self._streams = Streams(
            self._receiver, self._neighbourhood, self._participant.proofs, self._runtime, self._clock
        )
        self._capture = CaptureDrain(
            self._wire.taps,
            self._neighbourhood,
            self._runtime,
            self._disk.store_queue,
            self._clients,
            self._wire.alive,
            self._incoming.watch,
            self._clock,
            max_waiting=configuration.persistent.queue_size if configuration.persistent else 0,
            bell=self._wire.tap_bell,
        )
        identity = wire.identity_of(
            configuration, self._disk.kind, found, self._started_ns, known_addresses(self._uri)
        )
        self._showing = wire.ConsolePublisher(
            self._runtime, self._wire, identity, self._clock, lambda: self._disk.used_bytes, self._past
        )
        self._shell.stack.callback(self._tracer.subscribe(self._showing.event, Level.FINE))

    def _make_wire(self, runtime: Runtime) -> DdsWire:
        self._wire = wire = DdsWire(
            runtime,
            self._participant,
            self._channel,
            self._neighbourhood,
            self._shell.signal,
            self._shell.mailbox.post,
            node=self._found.report.node_id,
            partition=self._configuration.entity_names.partition,
            interface=self._interface,
            tag=domain_tag(self._uri),
            pulse=self._pulse,
            announced=self._announced(self._configuration.entity_names),
            activities=self._shell.activities,
        )
        return wire

    def _serve_clients(self) -> ClientService | None:
        """Make the service for clients, if the configuration has one."""
        names = self._configuration.client_durability
        if names is None:
            return None
        from engine.client_service.service import ClientService

        clients = ClientService(
            self._participant,
            self._runtime,
            names.partition,
            self._shell.signal,
            self._shell.mailbox.post,
            self._neighbourhood.routes,
            self._neighbourhood.living,
            self._wire.alive.disposing,
            self._wire.taps.is_sound,
            self._announced(names),
            self._shell.activities,
            has_disk=self._disk.kind != "memory",
        )
        self._shell.stack.callback(clients.close)
        self._shell.listen("clients", clients.drain, clients.handle)
        self._shell.stack.callback(self._shell.pump.remove, "clients")
        return clients

    def _listen(self) -> None:
        listen = self._shell.listen
        # Topics come before their writers.
        listen("topics", self._shell.topics.take, self._incoming.topics_seen)
        listen("discovery", self._shell.discovery.take, self._incoming.discovered)
        listen("channel", self._channel.take, self._incoming.messages)
        listen("attachment", self._channel.take_changes, self._incoming.discovered)
        listen("streams", self._streams.take, self._streams.arrived)
        # The node's turn drains the taps.
        bell = self._wire.tap_bell
        rings = self._capture.urged
        listen("taps", lambda: [True] if bell.acknowledge() else [], lambda _: rings(), has_bell=True)
        self._shell.rely_on(self._disk, self._wire, self._pulse)
        self._shell.pump.start()

    def _watch(self) -> None:
        if self._lease is not None:
            self._supervisor = self._shell.activities.work(SUPERVISOR, withholds=False)
            expiry_s = self._configuration.domain.lease.expiry_s
            self._supervisor.idle_s = max(expiry_s, IDLE_BEATS * BEAT_S)  # it has its lease as well
        self._shell.begin_watch(
            self._tracer.event,
            self._renew,
            self._lease_pause_s,
            detects=self._configuration.watchdog.deadlock_detection,
            lease_s=self._configuration.domain.lease.expiry_s,
            hear=self._hear_supervisor,
        )

    def request_stop(self, reason: str) -> None:
        """Request an orderly end. Any thread and a signal handler may call this."""
        self._shell.request_stop(reason)

    # The node's thread.

    def run(self) -> None:
        """Serve until `request_stop` or the loss of the supervisor; return when all is closed.

        Raises:
            ConfigurationRefused: the configuration is impossible in this system, or with this Cyclone DDS.
            NodeError: the store or Cyclone DDS cannot be used, or a part of the node failed. With a full disk
                the node waits.
        """
        try:
            self._secret = self._read_secret()
            give_memory_back()
            check_layouts()
            self._tell_capture()
            self._interface = interface_of(self._uri)
            found = self._open_store()
            if found is not None:
                self._begin(found)
        except BaseException as error:  # threads of what was opened must end before the reason is reported
            self._shell.stack.close()
            if isinstance(error, DdsError) and (fault := interface_fault(self._configuration, self._uri)):
                raise ConfigurationRefused(fault) from error
            if _is_permanent(error) and not self._has_moved:  # the former interface may be back
                raise ConfigurationRefused(str(error)) from error
            if isinstance(error, StoreError | DdsError | UnsupportedCyclone | OSError):
                raise NodeError(str(error)) from error
            raise
        if found is None:
            self._tracer.event("lifecycle.stop-requested", signal=self._shell.stop_reason)
            self._shell.stack.close()
            self._tracer.event("lifecycle.stopped")
            return
        self._serve()

    def _read_secret(self) -> DomainSecret | None:
        path = self._configuration.domain.secret
        try:
            return DomainSecret(path) if path else None
        except SecretError as fault:
            place = self._configuration.origin_of(documented(OF_SECRET))
            raise ConfigurationRefused(f"{place}: {documented(OF_SECRET)}: {fault}") from fault

    def _tell_capture(self) -> None:
        """Which compiled library takes samples in, and which Cyclone DDS it is."""
        self._tracer.event("lifecycle.capture", path=str(native.LIBRARY))
        if abi.OTHER:
            self._tracer.event("lifecycle.other-library", path=abi.OTHER)

    def _serve(self) -> None:
        try:
            due = 0.0
            while self._shell.stop_reason is None:
                due = min(due, self._showing.times.due_s)
                self._shell.wait(self._patience_s(due))
                self._note_stuck()
                if self._is_early(due):
                    continue
                with self._shell.work:
                    self._shell.carry_out()
                    self._streams.turn()
                    self._incoming.turn(self._clock.monotonic())
                    self._capture.turn()
                    self._shell.carry_out()  # read all messages before judging fellows
                    due = self._runtime.turn()
                    if self._clients:
                        due = min(due, self._clients.work())
                    self._disk.wake()
                    self._duties()
                    if self._runtime.refusal:
                        raise ConfigurationRefused(self._runtime.refusal)
            self._shell.work.rest()
            if not self._is_moving:  # to its user, a node that moves goes on
                self._tracer.event("lifecycle.stop-requested", signal=self._shell.stop_reason)
            self._runtime.stop()
            self._duties()
            self._capture.drain()
            if self._is_moving:
                self.carries = CarriedSets.collected(self._runtime)
            unwritten, ending_ns = self._disk.store_queue.queued_changes, self._clock.wall_ns()
            self._tracer.event("lifecycle.stopping")
            self._runtime.stop(finished=True)
            # The end is decided: what a slow fellow has not got by then, it asks another node for.
            self._wire.close(timeout_s=1.0)
            self._shell.stack.close()
            self._tell_flushed(unwritten, self._clock.wall_ns() - ending_ns)
            if self._is_left_alone:
                raise NodeError(LEFT_ALONE)
        finally:
            self._shell.stack.close()
            if self.carries is None:
                self._tracer.event("lifecycle.stopped")
                if self._lease:
                    self._lease.report("TERMINATED", node=self._found.report.node_id)

    def _tell_flushed(self, unwritten: int, elapsed_ns: int) -> None:
        """Trace how many of the samples that were not on disk at the request to end are now."""
        left = self._disk.store_queue.queued_changes
        self._tracer.event("store.flushed", samples=unwritten - left, elapsed_ns=elapsed_ns)
        if left:
            self._tracer.event("store.not-flushed", samples=left)

    def _patience_s(self, due: float) -> float:
        """Return the time to wait for news until the next turn."""
        if self._streams.is_waiting:
            return 0.0
        now = self._clock.monotonic()
        return min(max(0.0, due - now), self._capture.patience_s(now))

    def _is_early(self, due: float) -> bool:
        """Whether a beat, or a look at the taps that found nothing, was the only reason to wake up."""
        now = self._clock.monotonic()
        is_quiet = self._shell.mailbox.is_empty and now < due and not self._streams.is_waiting
        return is_quiet and (self._capture.patience_s(now) > 0 or self._capture.found_nothing(now))

    # Duties towards supervisor and consoles.

    def _duties(self) -> None:
        now = self._clock.monotonic()
        interface = self._interfaces.next_interface(now) if self._interfaces and not self._is_moving else ""
        if interface:
            self._is_moving = True
            self._tracer.event("lifecycle.interface-found", before=self._interface, interface=interface)
            self.request_stop(f"network interface {interface} came up")
        if self._runtime.is_outdated and not self._is_moving:
            self._is_moving = True
            self.request_stop("fellows remember a later run of it")
        state = self._runtime.state.value
        if state != self._shown_state:
            self._shown_state = state
            self._showing.times.due_s = now
        if self._showing.is_due(now):
            problem = self._runtime.store_queue.problem
            waiting = unstored(self._runtime) if problem else 0
            said = {"problem": problem, "unstored": waiting, "waits": without_candidates(self._runtime)}
            said["parts"] = only_parts(self._runtime)
            said["refused"] = refused_groups(self._runtime)
            self._report_state(state, node=self._found.report.node_id, **said)
            self._incoming.count_undecodable(
                {**self._channel.malformed, BULK_TOPIC: self._receiver.malformed}
            )
            self._incoming.tell_unproved(now)
            self._threads.schedule_new()  # before the other thread that sends has something to do
            self._showing.show(now)

    def _report_state(self, state: str, **details: object) -> None:
        """Report the state of the node to the supervisor, and so to `ospltool status`, if it changed."""
        said = (state, details)
        if self._lease and said != self._said and not self._is_moving:
            self._said = said
            self._lease.report(state, **details)

    def _note_stuck(self) -> None:
        """Note for the supervisor what is stuck now.

        The watch's thread and the node's own one call this: either may be what is stuck.
        """
        watch = self._shell.watch
        if self._lease and watch is not None and (stuck := watch.stuck) != self._said_stuck:
            self._said_stuck = stuck
            self._lease.note(stuck=", ".join(stuck))

    def _renew(self) -> None:
        """Renew the lease, on the watch's thread."""
        if self._lease is None:
            return
        self._lease.renew()
        expiry_ns = int(self._configuration.domain.lease.expiry_s * 1e9)
        self._tracer.event("watch.lease-renewed", expiry_ns=expiry_ns)

    def _hear_supervisor(self) -> None:
        """Take in signs of life of the supervisor, on the watch's thread; end the node if it is gone.

        A supervisor that stands still is reported by the watch after ExpiryTime. The guide (5.3.2) lets the
        service end then; this one waits for `LEFT_ALONE_LEASES` times that time, because a supervisor that
        was stopped for a moment comes back, and transient data does not.
        """
        if self._lease is None:
            return
        if self._lease.is_alive():
            self._supervisor.beat()
            self._supervisor.tid = os.getppid()  # not of the thread that hears it
        watch = self._shell.watch
        self._note_stuck()
        if self._shell.stop_reason is not None:
            return
        if self._lease.is_lost():
            self._tracer.event("lifecycle.daemon-lost")
            self.request_stop("the supervisor is gone")
        expiry_s = self._configuration.domain.lease.expiry_s
        quiet_s = watch.quiet_s(self._supervisor) if watch is not None else 0.0
        if self._supervisor.is_beating and quiet_s > max(LEFT_ALONE_S, LEFT_ALONE_LEASES * expiry_s):
            self._is_left_alone = True
            self._tracer.event("lifecycle.daemon-silent", elapsed_ns=int(quiet_s * 1e9))
            self.request_stop(LEFT_ALONE)
