"""Delivery to one process only: what a late joiner gets must not reach those that have it already.

A second Cyclone domain in this process announces itself to a single address: the target's. Its writers match
the target's readers and nobody else's. The granularity is the process: all its readers of a topic and
partition get what is delivered.

For a reader, an instance is ALIVE for as long as a writer of which it has heard a sample is registered for
it. What is delivered of instances whose original writer lives is therefore written by a writer that stays
until that one ends. Readers that are ordered by source time take a sample of equal time from another writer
only if its GUID is lower, compared as it lies in memory. So there are two participants: the one with a high
GUID gives history, which a reader that has it refuses (but it registers the writer); the one with a low
GUID shows again what a reader lost with its writer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Self

from engine.dataset.groups import GroupQos, TypeDescription
from engine.dataset.living import End, Step
from engine.dds import offering, stepping
from engine.dds.discovery import Discovery, EndpointGone, EndpointSeen, ParticipantSeen
from engine.dds.domains import free_domain_id
from engine.dds.errors import DdsError
from engine.dds.guids import high_guid, in_memory, low_guid
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic, open_topic
from engine.dds.typeinfo import TypeRef
from engine.dds.uri import directed_uri
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter, key_payload

MAX_SESSIONS: Final = 256
"""Directed domains that may be open in one process at the same time; each has five threads."""

MATCH_TIMEOUT_S: Final = 5.0
"""How long a delivery waits for the target's readers to be discovered, and then to match."""

SETTLE_S: Final = 0.005
"""Pause between our match with the target's readers and the first write."""
END_TIMEOUT_S: Final = 5.0
"""How long a writer that is not needed any more waits for the target to acknowledge its last words."""
RESEND_S: Final = 1.0
"""How often it is looked whether readers with RESOURCE_LIMITS have room (deployment guide 5.5.8)."""
MAX_LOW: Final = 8
"""Participants of a session with low GUIDs. The oldest must retire before another one is made."""
REFUSAL_S: Final = 0.2
"""How long a writer is offered at most, so that readers find out that they refuse it."""

_sessions = threading.BoundedSemaphore(MAX_SESSIONS)


class Mode(enum.Enum):
    """What samples are to the readers that get them.

    - WHOLE: everything that is kept of a group; readers that have it already refuse it.
    - PART: what is new, or what keeps instances ALIVE.
    - TAKEN_OVER: what keeps instances ALIVE that another node gave; readers that have it refuse it.
    - RETURN: what readers lost with its writer, which is back; they take it again.
    - INSTEAD: what takes the place of what readers have; they take it although it is not newer.
    """

    WHOLE = enum.auto()
    PART = enum.auto()
    TAKEN_OVER = enum.auto()
    RETURN = enum.auto()
    INSTEAD = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What became of one group's samples.

    Attributes:
        sent: samples handed to Cyclone DDS.
        acked: samples acknowledged by every matched reader; `sent`, or 0 when that did not happen in time.
        readers: GUIDs of the target's readers that got them.
        seconds: from the call to the end.
        problem: why not everything was delivered, for a report; empty when it was.
        refused: readers that are incompatible, one text each, with both values of each policy.
        resent: for how many periods of `RESEND_S` resource limits of readers rejected samples.
        is_freed: instances that were to stay ALIVE do not, for the sake of a reader's max_instances.
    """

    sent: int
    acked: int
    readers: frozenset[bytes]
    seconds: float
    problem: str = ""
    refused: tuple[str, ...] = ()
    resent: int = 0
    is_freed: bool = False


class DirectedSession:
    """A connection to one participant of another process, over which many groups can be delivered.

    The session blocks; use it in a worker thread, and from one thread at a time. Its writers stay until
    `close`: deleting them turns the instances that no other writer has to NOT_ALIVE_NO_WRITERS.

    Args:
        address: the target's metatraffic locator (`ParticipantSeen.address`).
        interface: name or address of the network interface that reaches it.
        wire_domain: the domain id of the target.
        node_id: our node's id; the target's side sees a deliverer of it.
        target: GUID of the target, where it is known: others at the address are then not served.
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
        self._arrived = False
        self._is_abandoned = False
        self._kept: dict[tuple[str, str, str], list[RawWriter]] = {}
        self._topics: dict[tuple[int, str, TypeDescription], Topic] = {}
        self._strengths = itertools.count(offering.LEAST_STRENGTH)
        self._stack = contextlib.ExitStack()
        self._stack.callback(_sessions.release)
        try:
            self._domain_id = self._stack.enter_context(free_domain_id())
            self._uri = directed_uri(address, interface, wire_domain, tag)
            self._node_id = node_id
            self._participant = self._open_participant(high_guid())
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

    def _open_participant(self, guid: bytes) -> NodeParticipant:
        return self._stack.enter_context(
            NodeParticipant(self._domain_id, self._uri, "deliverer", self._node_id, TagRole.DELIVERER, guid)
        )

    def abandon(self) -> None:
        """Give nothing any more: the target is lost. What waits for it now ends; from any thread."""
        self._is_abandoned = True
        self._signal.set()

    @property
    def kept(self) -> int:
        """How many writers stay."""
        return sum(map(len, self._kept.values()))

    def deliver(
        self,
        topic: str,
        description: TypeDescription,
        qos: GroupQos,
        partition: str,
        steps: Iterable[Step],
        timeout_s: float,
        *,
        mode: Mode = Mode.WHOLE,
        keeps: bool = False,
        instances: int = sys.maxsize,
        on_rejected: Callable[[int], None] | None = None,
    ) -> DeliveryReport:
        """Write samples, in the order given, to the target's readers of a topic and partition.

        Waits for a match before the first write (nothing is kept for readers that come later) and for
        the acknowledgements after the last. It never raises for what the target does or is.

        Args:
            topic: topic name.
            description: its type.
            qos: the group's; the writer offers it.
            partition: the group's partition; empty for the default one.
            steps: samples, per instance in order of source time, disposes and unregisters included.
            timeout_s: for all of it; a report says how far it came.
            mode: what the samples are to the readers.
            keeps: let the writer of written instances stay, until `end`.
            instances: how many the topic has at most. A reader whose max_instances is smaller must drop some,
                and can drop only what no writer is registered for, so that of these nothing stays.
            on_rejected: called every `RESEND_S` while resource limits of readers leave no room, with the
                number of the attempt. Cyclone DDS in the reader's process offers a rejected sample to the
                reader again and again, and takes nothing else from us until it has room.
        """
        started = time.monotonic()
        deadline = started + timeout_s
        sent = acked = 0
        readers: frozenset[bytes] = frozenset()
        problem = ""
        refused: tuple[str, ...] = ()
        resent = 0
        frees = False
        try:
            found = self._await_readers(topic, partition, min(deadline, started + MATCH_TIMEOUT_S))
            offer = offering.offer(qos, partition, found)
            willing, refused = offering.sort_out(offer, TypeRef.of_description(description), found)
            if not found or self._is_abandoned:
                problem = self._nobody(topic, partition)
            elif not willing:
                problem = "every reader of the target refuses what is offered: " + "; ".join(refused)
                self._be_refused(topic, description, offer)
            else:
                group = topic, partition, description.type_id
                with contextlib.ExitStack() as passing:
                    limits = [one.endpoint_qos.resource_limits for one in found if one.guid in willing]
                    frees = any(0 < most < instances for _, most, _ in limits)
                    stays = keeps and not frees
                    writers = self._writers_for(group, description, offer, passing, mode, keeps=stays)
                    left = min(deadline, time.monotonic() + MATCH_TIMEOUT_S) - time.monotonic()
                    problem = stepping.match(writers, willing, left)
                    # The target hears of the writer about a millisecond later, and no call tells when. What
                    # is written before that is not lost, but repaired, which takes up to 0.1 s.
                    time.sleep(SETTLE_S)
                    readers = frozenset.intersection(*(frozenset(one.matched_guids()) for one in writers))
                    if readers:
                        sent, trouble = stepping.write_all(writers, steps, deadline, frees=frees)
                        problem = problem or trouble
                        for writer in writers:
                            writer.flush()
                        period_s = RESEND_S if any(max(each) > 0 for each in limits) else timeout_s
                        while not (is_acked := stepping.wait_for_acks(writers, period_s, deadline)):
                            if time.monotonic() >= deadline:
                                break
                            resent += 1
                            if on_rejected is not None:
                                on_rejected(resent)
                        if is_acked:
                            acked = sent
                            if mode is Mode.WHOLE:
                                self._replace(group)
                        else:
                            problem = problem or "the target did not acknowledge everything in time"
        except DdsError as error:
            problem = str(error)
        took_s = time.monotonic() - started
        return DeliveryReport(sent, acked, readers, took_s, problem, refused, resent, keeps and frees)

    def _writers_for(
        self,
        group: tuple[str, str, str],
        description: TypeDescription,
        offer: EndpointQos,
        passing: contextlib.ExitStack,
        mode: Mode,
        *,
        keeps: bool,
    ) -> tuple[RawWriter, ...]:
        """The writer for instances without a living writer, which goes, and the one for those with one.

        A third one, with a low GUID, disposes in the end what readers took from another node.
        """
        if mode is Mode.RETURN and offer.by_source_timestamp:
            if group in self._spent:
                self.go_below()
            low = self._low()
            stays = self._kept_by(low, group) or self._keep(low, group, description, offer)
            return stays, stays
        giver = self._low() if mode is Mode.INSTEAD else self._participant
        if mode is Mode.INSTEAD:
            self._spent.add(group)
        goes = self._open_writer(giver, group, description, offer)
        passing.callback(goes.close)
        if not keeps:
            return goes, goes
        known = None if mode is Mode.WHOLE else self._kept_by(giver, group)
        stays = known or self._keep(giver, group, description, offer)
        if mode is Mode.TAKEN_OVER and offer.by_source_timestamp:
            low = self._low()
            return goes, stays, self._kept_by(low, group) or self._keep(low, group, description, offer)
        return goes, stays

    def _low(self) -> NodeParticipant:
        """The participant with the lowest GUID."""
        if not self._lows:
            self._lows.append(self._open_participant(low_guid()))
        return self._lows[-1]

    def go_below(self) -> None:
        """Let what is given next with INSTEAD or RETURN come from a lower GUID than everything before.

        A reader takes a sample of equal time from the writer that it heard last, but not from another one of
        the same participant, whose GUID is higher. So it is needed where that writer is gone.
        """
        kept = {writer.guid[:12] for writers in self._kept.values() for writer in writers}
        for former in [one for one in self._lows if one.guid[:12] not in kept]:
            self._lows.remove(former)
            self._topics = {key: each for key, each in self._topics.items() if key[0] != former.entity}
            former.close()
        if len(self._lows) < MAX_LOW:
            self._lows.append(self._open_participant(low_guid()))
            self._spent.clear()

    @property
    def crowd(self) -> frozenset[tuple[str, str, str]]:
        """Topic, partition and type of what the oldest low participant keeps, where it must retire."""
        return self._groups_of(self._lows[0]) if len(self._lows) >= MAX_LOW else frozenset()

    def _groups_of(self, participant: NodeParticipant) -> frozenset[tuple[str, str, str]]:
        return frozenset(group for group in self._kept if self._kept_by(participant, group) is not None)

    def retire(self, moved: frozenset[tuple[str, str, str]]) -> None:
        """Close the oldest low participant, if all groups are `moved` of which it keeps something."""
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
        """The newest writer of our participant that stays for a group."""
        kept = reversed(self._kept.get(group, ()))
        return next((one for one in kept if one.guid[:12] == participant.guid[:12]), None)

    def _keep(
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
        """With OWNERSHIP EXCLUSIVE, each writer may change what those before it have given."""
        offer = dataclasses.replace(offer, strength=next(self._strengths))
        return RawWriter(participant, self._topic(participant, group[0], description), offer)

    def _replace(self, group: tuple[str, str, str]) -> None:
        """A whole set was delivered: of its writers that stay, those before the newest are needed no more."""
        former = [one for one in self._kept.get(group, ()) if one.guid[:12] == self._participant.guid[:12]]
        for writer in former[:-1]:
            self._kept[group].remove(writer)
            writer.close()

    def end(
        self,
        topic: str,
        description: TypeDescription,
        partition: str,
        ends: Iterable[End],
        *,
        disposes: bool,
        closes: bool,
    ) -> int:
        """Instances have lost their last writer; how many were told of.

        Args:
            topic: their topic.
            description: its type.
            partition: their partition.
            ends: the instances.
            disposes: its autodispose says that they are disposed then.
            closes: the group has no living writer any more: nothing of it stays.
        """
        group = topic, partition, description.type_id
        writers = sorted(self._kept.get(group, ()), key=lambda one: in_memory(one.guid))
        count = 0
        for end in ends if writers and (disposes or not closes) else ():
            payload = key_payload(end.key)
            if disposes:
                if not count and not closes:
                    writers = self._with_lowest(writers, group, description)
                writers[0].dispose(payload, end.source_time_ns)
            # The one that disposed an instance stays registered, so that readers take it from it again.
            for writer in () if closes else writers[1:] if disposes else writers:
                writer.unregister(payload, end.source_time_ns)
            count += 1
        for writer in writers:
            writer.flush()
        if closes:
            for writer in writers:
                writer.wait_for_acks(0.0 if self._is_abandoned else END_TIMEOUT_S)
                writer.close()
            self._kept.pop(group, None)
            self._spent.add(group)
        return count

    def _with_lowest(
        self, writers: list[RawWriter], group: tuple[str, str, str], description: TypeDescription
    ) -> list[RawWriter]:
        """The writers, the first of them one from which readers take a dispose of equal time.

        They have heard the last sample of an instance from its own writer, whose GUID is lower than those of
        the writers that keep instances ALIVE. (Where these are closed, that ends the instance, too.)
        """
        if not writers[0].qos.by_source_timestamp:
            return writers
        if group in self._spent:
            self.go_below()
        low = self._low()
        if self._kept_by(low, group) is not None:
            return writers
        lowest = self._keep(low, group, description, writers[0].qos)
        lowest.wait_for_readers(writers[0].matched_guids(), MATCH_TIMEOUT_S)
        time.sleep(SETTLE_S)
        return [lowest, *writers]

    def _await_readers(self, topic: str, partition: str, deadline: float) -> list[EndpointSeen]:
        """The target's readers of the topic, once discovery has named one."""
        found: list[EndpointSeen] = []

        def look() -> bool:
            for change in self._discovery.take():
                if isinstance(change, ParticipantSeen) and change.guid == self.target:
                    self._arrived = True
                elif isinstance(change, EndpointSeen) and not change.is_writer:
                    if self.target in (None, change.participant):
                        self._readers[change.guid] = change
                elif isinstance(change, EndpointGone):
                    self._readers.pop(change.guid, None)
            found[:] = (
                reader
                for reader in self._readers.values()
                if reader.topic == topic and offering.partition_matches(reader.partitions, partition)
            )
            return bool(found) or self._is_abandoned

        self._signal.wait_until(look, deadline - time.monotonic())
        return found

    def _be_refused(self, topic: str, description: TypeDescription, offer: EndpointQos) -> None:
        """Let readers see a writer that they refuse: their REQUESTED_INCOMPATIBLE_QOS changes."""
        writer = RawWriter(self._participant, self._topic(self._participant, topic, description), offer)
        writer.wait_until(lambda: writer.incompatible_policy()[0] > 0, REFUSAL_S)
        time.sleep(SETTLE_S)
        writer.close()

    def _nobody(self, topic: str, partition: str) -> str:
        if self.target is not None and not self._arrived:
            return f"the target at {self.address} did not answer"
        return f"the target at {self.address} has no reader of topic '{topic}' in partition '{partition}'"

    def _topic(self, participant: NodeParticipant, name: str, description: TypeDescription) -> Topic:
        key = (participant.entity, name, description)
        if key not in self._topics:
            self._topics[key] = open_topic(participant, name, description)
        return self._topics[key]

    def close(self) -> None:
        """Delete the writers and the domain. Idempotent."""
        self._stack.close()
