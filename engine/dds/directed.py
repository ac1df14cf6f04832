"""Delivery to one process only: samples for a late joiner must not reach readers that already have them.

A second Cyclone domain in this process announces itself to a single address, the target's, so its writers
match only the target's readers. All readers of the target process for a topic and partition receive the
delivery.

For a reader, an instance is ALIVE while a writer that sent it a sample of the instance is registered for it.
For instances whose original writer lives, the delivering writer therefore stays until that writer ends.
Readers that order by source time accept a sample of equal time from another writer only if that writer's
GUID is lower, compared in memory order. So a session has two kinds of participants: the one with a high GUID
gives history, which a reader that has it rejects (but it registers the writer); those with low GUIDs repeat
samples that a reader lost with their writer.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from engine.core.name_spaces import Group
from engine.dataset.groups import GroupDescription, TypeDescription
from engine.dataset.living import DeliveryStep, InstanceEnd
from engine.dds import offering
from engine.dds.discovery import Discovery, EndpointGone, EndpointSeen, ParticipantSeen
from engine.dds.errors import DdsError
from engine.dds.participant import NodeParticipant, TagRole, free_domain_id, high_guid, in_memory, low_guid
from engine.dds.ports import open_unsearched, searched_ports
from engine.dds.qos import EndpointQos
from engine.dds.shared_waits import Waits, at_once
from engine.dds.topics import Topic, announced, open_topic
from engine.dds.uri import directed_uri
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter, key_payload

# 1,280 threads: within what systemd allows a service by default (TasksMax, 15 % of the kernel's limit, some
# thousands).
MAX_SESSIONS: Final = 256
"""Limit for the directed domains of a process at one time; each has five threads."""

# Discovery on its own domain with one known address takes milliseconds; the rest is room for a process that
# is loaded or still starting.
MATCH_TIMEOUT_S: Final = 5.0
"""Limit for discovering the target's readers, and again for matching them."""

UNREST_S: Final = 0.15
"""Time without a new participant or reader of the target after which a whole set is delivered.

An application makes its participants and readers one by one, and a delivery reaches those that are there.
"""
LONGEST_UNREST_S: Final = 1.0
"""Limit for waiting for such a time."""
# Our side may match before theirs, and a VOLATILE reader begins with what comes after its own match.
# Chosen: discovery between two processes that know each other is a message each way.
SETTLE_S: Final = 0.005
"""Pause between our match with the target's readers and the first write."""
LATECOMERS_S: Final = 0.025
"""Pause between the last acknowledgement and the look at who came late: discovery of a reader that was made
while samples arrived is on its way, and that reader has got them."""
VERSION_TIMEOUT_S: Final = 2.0
"""Limit for readers of another version of a type, whose process looks the type up first."""
REFUSED: Final = "every reader of the target refuses what is offered: "
# What is unacknowledged by then belongs to a reader that has gone or hangs; it asks again when it returns.
END_TIMEOUT_S: Final = 5.0
"""Limit for the acknowledgements of a writer that is about to be closed."""
RESEND_S: Final = 1.0
"""Period of checks whether readers with RESOURCE_LIMITS have room (deployment guide 5.5.8)."""
# Chosen: each is a participant that the target has to discover; with fewer the oldest retires earlier.
MAX_LOW: Final = 8
"""Limit for a session's participants with low GUIDs; beyond it the oldest must retire first."""
# Not measured: matching takes milliseconds, and only a status of the reader, for people, depends on it.
REFUSAL_S: Final = 0.2
"""Limit for offering an incompatible writer so that readers notice it."""

_sessions = threading.BoundedSemaphore(MAX_SESSIONS)


class DeliveryPurpose(enum.Enum):
    """Purpose of a delivery's samples.

    - WHOLE: all kept samples of a group; readers that have them reject them.
    - PART: new samples, or samples that keep instances ALIVE.
    - TAKEN_OVER: samples that keep ALIVE instances from another node; readers that have them reject them.
    - RETURN: samples that readers lost with their writer, which is back; readers accept them again.
    - INSTEAD: replacements of readers' samples; readers accept them although they are not newer.
    """

    WHOLE = enum.auto()
    PART = enum.auto()
    TAKEN_OVER = enum.auto()
    RETURN = enum.auto()
    INSTEAD = enum.auto()


class Portion(NamedTuple):
    """The delivery of one group to a process.

    Attributes:
        description: the group.
        steps: samples, per instance in order of source time, disposes and unregisters included; each with
            whether its instance has a living writer.
        mode: the purpose of the samples.
        keeps: whether the writer of instances with a living writer stays until `DirectedSession.end`.
        instances: upper bound of the topic's instances. A reader with a smaller max_instances must drop some,
            and can drop only instances without a registered writer, so no writer stays for it.
    """

    description: GroupDescription
    steps: Iterable[DeliveryStep]
    mode: DeliveryPurpose = DeliveryPurpose.WHOLE
    keeps: bool = False
    instances: int = sys.maxsize


class DeliveryReport(msgspec.Struct):
    """Outcome of the delivery of one group's samples."""

    sent: int = 0
    """Samples handed to Cyclone DDS."""
    acked: int = 0
    """Samples acknowledged by every matched reader: `sent`, or 0 if that took too long."""
    unwritten: int = 0
    """How many of `sent` are of instances without a living writer."""
    readers: frozenset[bytes] = frozenset()
    """GUIDs of the target's readers that got them."""
    by_reception: frozenset[bytes] = frozenset()
    """Those of them that take samples in the order of their reception."""
    latecomers: frozenset[bytes] = frozenset()
    """GUIDs of readers that came while it was written, and got what was written from then on."""
    problem: str = ""
    """Reason why not everything was delivered, for a report; empty on success."""
    refused: tuple[str, ...] = ()
    """Incompatible readers, one text each, with both values of each policy."""
    resent: int = 0
    """Periods of `RESEND_S` in which resource limits of readers rejected samples."""
    is_freed: bool = False
    """Whether instances did not stay ALIVE because of a reader's max_instances."""


class DirectedSession:
    """A connection to another process that can deliver many groups to the readers of all its participants.

    The session blocks; use it in a worker thread, and from one thread at a time. Its writers stay until
    `close`: deleting them makes instances without another writer NOT_ALIVE_NO_WRITERS.

    Args:
        address: the target's metatraffic locator (`ParticipantSeen.address`).
        interface: name or address of the network interface that reaches it.
        wire_domain: the domain id of the target.
        node_id: id of the node that the target sees as the deliverer.
        target: the target (`ParticipantSeen.process`), if known: others at the address are then not served.
        tag: domain tag of the target.

    Raises:
        DdsError: too many sessions are open, or the domain cannot be made.
    """

    def __init__(
        self,
        address: str,
        interface: str,
        wire_domain: int,
        node_id: bytes,
        target: bytes | None = None,
        tag: str = "",
    ) -> None:
        if not _sessions.acquire(blocking=False):
            raise DdsError(-5, f"open a delivery to {address}; {MAX_SESSIONS} are open already")
        self.address = address
        self.target = target
        self._readers: dict[bytes, EndpointSeen] = {}
        self._members: set[bytes] = set()
        self._news_s = 0.0
        self._abandoned = threading.Event()
        self._kept: dict[tuple[str, str, str], list[RawWriter]] = {}
        self._topics: dict[tuple[int, str, TypeDescription], Topic] = {}
        self._strengths = itertools.count(offering.LEAST_STRENGTH)
        self._stack = contextlib.ExitStack()
        self._stack.callback(_sessions.release)
        try:
            self._domain_id = self._stack.enter_context(free_domain_id())
            self._uri = directed_uri(address, interface, wire_domain, tag)
            self._node_id = node_id
            opened = open_unsearched(
                lambda: self._new_participant(high_guid()), searched_ports(wire_domain, address)
            )
            self._participant = self._stack.enter_context(opened)
            self._lows: list[NodeParticipant] = []
            self._spent: set[tuple[str, str, str]] = set()
            self._signal = Signal(self._participant)
            self._discovery = Discovery(self._participant, self._signal)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_participant(self, guid: bytes) -> NodeParticipant:
        return NodeParticipant(
            self._domain_id, self._uri, "deliverer", self._node_id, TagRole.DELIVERER, guid
        )

    def abandon(self) -> None:
        """Stop delivering because the target is lost; waiting calls return. Any thread may call this."""
        self._abandoned.set()
        self._signal.set()

    @property
    def kept(self) -> int:
        """Number of writers that stay."""
        return sum(map(len, self._kept.values()))

    def delivering(
        self,
        portion: Portion,
        timeout_s: float,
        turns: Sequence[Iterable[DeliveryStep]] = (),
        on_rejected: Callable[[Group, int], None] | None = None,
    ) -> Waits[DeliveryReport]:
        """Write samples, in the order given, to the target's readers of a topic and partition.

        It waits for a match before the first write, because later readers would get nothing, and for the
        acknowledgements after the last write. Faults of the target appear in the report; they never raise.
        Before the first write and before the acknowledgements it yields the seconds that it has to wait, so
        that deliveries of other groups may go on (`engine.dds.shared_waits.together`).

        Args:
            portion: the group and its samples.
            timeout_s: limit for the whole delivery; the report shows how much was sent.
            turns: the samples turn by turn, in place of `portion.steps`. Before each but the first it waits
                until all before is acknowledged, and yields, so that deliveries of other types of the topic
                may write in between.
            on_rejected: called every `RESEND_S` while resource limits of readers leave no room, with the
                group and the number of the attempt. Cyclone DDS in the reader's process offers a rejected
                sample to the reader repeatedly, and accepts nothing else from this session until it has room.
        """
        report, deadline = DeliveryReport(), time.monotonic() + timeout_s
        try:
            yield from self._delivering(report, portion, deadline, turns or (portion.steps,), on_rejected)
        except DdsError as error:  # the target's fault or its end: it belongs into the report
            report.problem = str(error)
        return report

    deliver = at_once(delivering)
    """`delivering`, with all that it waits for."""

    def _delivering(
        self,
        report: DeliveryReport,
        portion: Portion,
        deadline: float,
        turns: Sequence[Iterable[DeliveryStep]],
        on_rejected: Callable[[Group, int], None] | None,
    ) -> Waits[None]:
        """Deliver, and note in the report how far it came."""
        description, is_whole = portion.description, portion.mode is DeliveryPurpose.WHOLE
        topic, partition = description.group.topic, description.group.partition
        group = topic, partition, description.type.type_id
        found = self._await_readers(topic, partition, min(deadline, time.monotonic() + MATCH_TIMEOUT_S))
        if is_whole and found:
            found = self._settled_readers(topic, partition, found)
        offer = offering.offer(description.qos, partition, [reader.endpoint_qos for reader in found])
        willing, versions, report.refused = offering.sort_out(offer, description.type, found)
        if not found or self._abandoned.is_set():
            report.problem = self._nobody(topic, partition)
            return
        if not willing and not versions:
            report.problem = REFUSED + "; ".join(report.refused)
            self._be_refused(topic, description.type, offer)
            return
        served = willing | versions.keys()
        limits = [one.endpoint_qos.resource_limits for one in found if one.guid in served]
        frees = any(0 < most < portion.instances for _, most, _ in limits)
        report.is_freed = portion.keeps and frees
        with contextlib.ExitStack() as passing:
            stays = portion.keeps and not frees
            writers = self._writers_for(group, description.type, offer, passing, portion.mode, keeps=stays)
            left_s = min(deadline - time.monotonic(), MATCH_TIMEOUT_S)
            report.problem = offering.match(writers, willing, left_s)
            missing = offering.match_versions(writers, versions, VERSION_TIMEOUT_S)
            report.refused += tuple(versions[reader] for reader in sorted(missing))
            # The target discovers the writer about a millisecond later, and no call tells when. Earlier
            # samples are not lost, but resent, which takes up to 0.1 s.
            yield SETTLE_S
            readers = frozenset.intersection(*(frozenset(one.matched_guids()) for one in writers))
            if not readers:
                if report.refused and not report.problem:
                    report.problem = REFUSED + "; ".join(report.refused)
                return
            report.readers = readers
            by_time = {one.guid for one in found if one.endpoint_qos.by_source_timestamp}
            report.by_reception = readers.intersection({one.guid for one in found} - by_time)
            period_s = RESEND_S if any(max(each) > 0 for each in limits) else math.inf
            rejected = functools.partial(on_rejected, description.group) if on_rejected else None
            acks = offering.AwaitedAcks(writers, period_s, deadline, rejected)
            is_acked = yield from self._write(report, writers, turns, acks, deadline, frees=frees)
            yield LATECOMERS_S if is_whole else 0.0
            report.latecomers = frozenset().union(*(one.matched_guids() for one in writers)) - readers
            if is_acked and is_whole:
                self._replace(group)

    def _write(
        self,
        report: DeliveryReport,
        writers: tuple[RawWriter, ...],
        turns: Sequence[Iterable[DeliveryStep]],
        acks: offering.AwaitedAcks,
        deadline: float,
        *,
        frees: bool,
    ) -> Waits[bool]:
        """Write turn by turn, each when all before is acknowledged; return whether all is in the end."""
        for number, turn in enumerate(turns):
            if number:
                acks.wait()
                yield 0.0
            is_gone = self._abandoned.is_set
            sent, unwritten, trouble = offering.write_all(writers, turn, deadline, is_gone, frees=frees)
            report.sent, report.unwritten = report.sent + sent, report.unwritten + unwritten
            report.problem = report.problem or trouble
        yield 0.0
        is_acked = acks.wait()
        report.resent, report.acked = acks.resent, report.sent if is_acked else 0
        if not is_acked:
            report.problem = report.problem or "the target did not acknowledge everything in time"
        return is_acked

    def _writers_for(
        self,
        group: tuple[str, str, str],
        description: TypeDescription,
        offer: EndpointQos,
        passing: contextlib.ExitStack,
        mode: DeliveryPurpose,
        *,
        keeps: bool,
    ) -> tuple[RawWriter, ...]:
        """Return the writer for instances without a living writer, and the one for those with one.

        The first is closed after the delivery. A third one, with a low GUID, disposes later the instances
        that readers got from another node.
        """
        if mode is DeliveryPurpose.RETURN and offer.by_source_timestamp:
            if group in self._spent:
                self.go_below()
            low = self._low()
            stays = self._kept_by(low, group) or self._keep_open(low, group, description, offer)
            return stays, stays
        giver = self._low() if mode is DeliveryPurpose.INSTEAD else self._participant
        if mode is DeliveryPurpose.INSTEAD:
            self._spent.add(group)
        goes = self._open_writer(giver, group, description, offer)
        passing.callback(goes.close)
        if not keeps:
            return goes, goes
        known = None if mode is DeliveryPurpose.WHOLE else self._kept_by(giver, group)
        stays = known or self._keep_open(giver, group, description, offer)
        if mode is DeliveryPurpose.TAKEN_OVER and offer.by_source_timestamp:
            low = self._low()
            return goes, stays, self._kept_by(low, group) or self._keep_open(low, group, description, offer)
        return goes, stays

    def _low(self) -> NodeParticipant:
        """Return the participant with the lowest GUID; open it if there is none."""
        if not self._lows:
            self._lows.append(self._stack.enter_context(self._new_participant(low_guid())))
        return self._lows[-1]

    def go_below(self) -> None:
        """Make the next delivery with INSTEAD or RETURN come from a lower GUID than all before.

        A reader accepts a sample of equal time from the writer that it heard last, but not from a newer
        writer of the same participant, whose GUID is higher. So this is needed once that writer is closed.
        """
        kept = {writer.guid[:12] for writers in self._kept.values() for writer in writers}
        for former in [one for one in self._lows if one.guid[:12] not in kept]:
            self._lows.remove(former)
            self._topics = {key: each for key, each in self._topics.items() if key[0] != former.entity}
            former.close()
        if len(self._lows) < MAX_LOW:
            self._lows.append(self._stack.enter_context(self._new_participant(low_guid())))
            self._spent.clear()

    @property
    def crowd(self) -> frozenset[tuple[str, str, str]]:
        """Topic, partition and type of the groups of the oldest low participant, if it must retire."""
        return self._groups_of(self._lows[0]) if len(self._lows) >= MAX_LOW else frozenset()

    def _groups_of(self, participant: NodeParticipant) -> frozenset[tuple[str, str, str]]:
        return frozenset(group for group in self._kept if self._kept_by(participant, group) is not None)

    def retire(self, moved: frozenset[tuple[str, str, str]]) -> None:
        """Close the oldest low participant if all groups that it keeps are in `moved`."""
        if len(self._lows) < MAX_LOW or not self.crowd <= moved:
            return
        oldest = self._lows.pop(0)
        for group in self._groups_of(oldest):
            for writer in [one for one in self._kept[group] if one.guid[:12] == oldest.guid[:12]]:
                self._kept[group].remove(writer)
                writer.close()
        self._topics = {key: each for key, each in self._topics.items() if key[0] != oldest.entity}
        oldest.close()

    def _kept_by(self, participant: NodeParticipant, group: tuple[str, str, str]) -> RawWriter | None:
        """Return the newest staying writer of a participant for a group."""
        kept = reversed(self._kept.get(group, ()))
        return next((one for one in kept if one.guid[:12] == participant.guid[:12]), None)

    def _keep_open(
        self,
        participant: NodeParticipant,
        group: tuple[str, str, str],
        description: TypeDescription,
        offer: EndpointQos,
    ) -> RawWriter:
        writer = self._open_writer(participant, group, description, offer)
        self._kept.setdefault(group, []).append(writer)
        return writer

    def _open_writer(
        self,
        participant: NodeParticipant,
        group: tuple[str, str, str],
        description: TypeDescription,
        offer: EndpointQos,
    ) -> RawWriter:
        """Open a writer; with OWNERSHIP EXCLUSIVE, it outranks this session's earlier writers."""
        offer = msgspec.structs.replace(offer, strength=next(self._strengths))
        return RawWriter(participant, self._topic(participant, group[0], description), offer)

    def _replace(self, group: tuple[str, str, str]) -> None:
        """Close all staying writers of a group but the newest: that one has just delivered the whole set."""
        former = [one for one in self._kept.get(group, ()) if one.guid[:12] == self._participant.guid[:12]]
        for writer in former[:-1]:
            self._kept[group].remove(writer)
            writer.close()

    def end(
        self,
        topic: str,
        description: TypeDescription,
        partition: str,
        ends: Iterable[InstanceEnd],
        *,
        disposes: bool,
        closes: bool,
    ) -> int:
        """Dispose or unregister instances that have lost their last writer; return their number.

        Args:
            topic: their topic.
            description: the topic's type.
            partition: their partition.
            ends: the instances.
            disposes: whether they count as disposed, as their last writer's autodispose says.
            closes: whether the group has no living writer left: then all its writers are closed.
        """
        group = topic, partition, description.type_id
        # The lowest GUID first: of two samples of equal time, readers take that of the lower one.
        writers = sorted(self._kept.get(group, ()), key=lambda one: in_memory(one.guid))
        count = 0
        for end in ends if writers and (disposes or not closes) else ():
            payload = key_payload(end.key)
            if disposes:
                if not count and not closes:
                    writers = self._with_lowest(writers, group, description)
                writers[0].dispose(payload, end.source_time_ns)
            # The writer that disposed an instance stays registered, so that readers accept its next sample.
            for writer in () if closes else writers[1:] if disposes else writers:
                writer.unregister(payload, end.source_time_ns)
            count += 1
        for writer in writers:
            writer.flush()
        if closes:
            for writer in writers:
                writer.wait_for_acks(0.0 if self._abandoned.is_set() else END_TIMEOUT_S)
                writer.close()
            self._kept.pop(group, None)
            self._spent.add(group)
        return count

    def _with_lowest(
        self, writers: list[RawWriter], group: tuple[str, str, str], description: TypeDescription
    ) -> list[RawWriter]:
        """Return the writers, with one first from which readers accept a dispose of equal time.

        Readers got the last sample of an instance from its own writer, whose GUID is lower than those of the
        writers that keep instances ALIVE. (Closing these ends the instance, too.)
        """
        if not writers[0].qos.by_source_timestamp:
            return writers
        if group in self._spent:
            self.go_below()
        low = self._low()
        if self._kept_by(low, group) is not None:
            return writers
        lowest = self._keep_open(low, group, description, writers[0].qos)
        lowest.wait_for_readers(writers[0].matched_guids(), MATCH_TIMEOUT_S)
        time.sleep(SETTLE_S)
        return [lowest, *writers]

    def _settled_readers(self, topic: str, partition: str, found: list[EndpointSeen]) -> list[EndpointSeen]:
        """Wait until the target makes no more participants or readers; return its readers of the topic."""
        # It sleeps and does not yield: groups that go out together write turn by turn, by source time, so
        # each must come to its first turn in the same round.
        until_s = time.monotonic() + LONGEST_UNREST_S
        while (rest_s := min(self._news_s + UNREST_S, until_s) - time.monotonic()) > 0.0:
            if self._abandoned.wait(rest_s):
                break
            found = self._await_readers(topic, partition, time.monotonic())
        return found

    def _await_readers(self, topic: str, partition: str, deadline: float) -> list[EndpointSeen]:
        """Wait until discovery has found readers of the topic in the target, and return them."""
        found: list[EndpointSeen] = []

        def has_found() -> bool:
            for change in self._discovery.take():
                if isinstance(change, ParticipantSeen) and self.target in (None, change.process):
                    self._members.add(change.guid)
                    self._news_s = time.monotonic()
                elif isinstance(change, EndpointSeen) and not change.is_writer:
                    if change.participant in self._members:
                        self._readers[change.guid] = change
                        self._news_s = time.monotonic()
                elif isinstance(change, EndpointGone):
                    self._readers.pop(change.guid, None)
            found[:] = (
                reader
                for reader in self._readers.values()
                if reader.topic == topic and offering.partition_matches(reader.partitions, partition)
            )
            return bool(found) or self._abandoned.is_set()

        self._signal.wait_until(has_found, deadline - time.monotonic())
        return found

    def _be_refused(self, topic: str, description: TypeDescription, offer: EndpointQos) -> None:
        """Show readers a writer that they refuse, which changes their REQUESTED_INCOMPATIBLE_QOS status."""
        writer = RawWriter(self._participant, self._topic(self._participant, topic, description), offer)
        writer.wait_until(lambda: writer.incompatible_policy()[0] > 0, REFUSAL_S)
        # Our status may come before the reader's; closing at once would undo the match before that.
        time.sleep(SETTLE_S)
        writer.close()

    def _nobody(self, topic: str, partition: str) -> str:
        if self.target is not None and not self._members:
            return f"the target at {self.address} did not answer"
        return f"the target at {self.address} has no reader of topic '{topic}' in partition '{partition}'"

    def _topic(self, participant: NodeParticipant, name: str, description: TypeDescription) -> Topic:
        type_ = announced(description)
        key = (participant.entity, name, type_)
        if key not in self._topics:
            self._topics[key] = open_topic(participant, name, type_)
        return self._topics[key]

    def close(self) -> None:
        """Delete the writers and the domain. Idempotent."""
        self._stack.close()
