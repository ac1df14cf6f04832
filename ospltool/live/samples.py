"""Samples as an ordinary reader of a topic receives them: history from nodes, and live samples.

To nodes the reader looks like one of an application. It needs no type of its own: the types come
from discovery.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

from engine.core.expressions import name_within
from engine.core.name_spaces import Element, Group, Interest, NameSpace
from engine.core.states import ServiceState
from engine.dataset.content import Undecodable
from engine.dataset.groups import DurabilityKind, TypeDescription, meets
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample
from engine.dds.capture_reader import ANY_PARTITION, CaptureReader
from engine.dds.decoding import decode, key_names
from engine.dds.discovery import Discovery, EndpointGone, EndpointSeen, ParticipantSeen
from engine.dds.errors import DdsError
from engine.dds.participant import NODE_ID_BYTES, NodeParticipant, TagRole
from engine.dds.proofs import DomainSecret
from engine.dds.topics import open_topic, untyped
from engine.dds.typeinfo import ATTEMPT_S, ATTEMPTS, Resolution, TypeRef, is_keyless, resolve_type
from engine.dds.waiting import Signal
from engine.runtime.monitor import NameSpaceView
from ospltool.live.dds import LiveFeed
from ospltool.live.feed import Feed, NoticeKind
from ospltool.live.nodes import natural
from ospltool.live.topics import InstanceValue
from ospltool.output.text import plural

# Digests of 16 bytes, some hundred megabytes with Python's share: of more, repetitions are shown.
MAX_REMEMBERED: Final = 1_000_000
"""Samples remembered, so that none is shown twice."""
MAX_READERS: Final = 32
"""Most readers open at once, two for each type under the topic's name and each of `MAX_PLACES`."""
# A topic is in one or two partitions as a rule; each place costs two readers.
MAX_PLACES: Final = 8
"""Most expressions of writers whose data is read, and one."""
PREFIX_BYTES: Final = 12
"""Leading bytes of a GUID that identify its participant."""
_LEAST: Final = DurabilityKind.TRANSIENT
"""Least durability with which a reader is given history."""
# How late the end of the wait may be noticed; what arrives wakes it.
_STEP_S: Final = 0.25
# Chosen, above what discovery takes on one machine.
_SETTLE_S: Final = 0.3
"""Time to go on after the last delivery has ended: a live writer may have begun to send."""
_ABSENT_S: Final = 3.0
"""Time after the first node was heard from which on what no node shows counts as not kept.

Nodes show themselves each second, and a writer that was just seen has its group by then.
"""
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER


@dataclasses.dataclass(frozen=True, slots=True)
class LiveSample:
    """A sample with its type and the partitions of its writer, empty if discovery does not tell them.

    A node delivers history through its own writers, so the original writer of an `is_delivered` sample is not
    known to a reader.
    """

    type: TypeDescription
    partitions: tuple[str, ...]
    sample: Sample
    is_delivered: bool = False


class TopicReader:
    """A reader of one topic of a domain with all its types.

    Args:
        domain_id: DDS domain, 0 to 230.
        settings: Cyclone DDS settings.
        topic: name of the topic.
        partitions: names or expressions; empty for every partition.
        partition: the nodes' durability partition, where they report whether all history was delivered.
        secret: the secret of the domain; by default that of OSPLTOOL_DOMAIN_SECRET, if it is set.

    Attributes:
        refusal: why messages of nodes are refused; empty if none was.
        failure: why nothing is heard of nodes any more, a fault of this program; empty for none.
        is_kept: whether a node shows a group of the topic, perhaps empty, in one of the partitions.
        listened_s: seconds for which it has listened.

    Raises:
        DdsError: the domain cannot be opened with these settings.
    """

    def __init__(
        self,
        domain_id: int,
        settings: str,
        topic: str,
        partitions: tuple[str, ...],
        partition: str,
        secret: DomainSecret | None = None,
    ) -> None:
        self._topic, self._partitions = topic, partitions or ANY_PARTITION
        self._interest = Interest(topic, self._partitions)
        self.unreadable: list[str] = []
        self._participant = NodeParticipant(
            domain_id, settings, "ospltool cat", os.urandom(NODE_ID_BYTES), TagRole.TOOL
        )
        try:
            self._feed = LiveFeed(domain_id, partition, settings, secret)
            self._signal = Signal(self._participant)
            self._discovery = Discovery(self._participant, self._signal)
        except BaseException:
            self._participant.close()
            raise
        self._deliverers: set[bytes] = set()
        self._ours = {self._participant.guid}
        """Participants whose endpoints are no application's."""
        self._writers: dict[bytes, EndpointSeen] = {}
        self._present: dict[bytes, EndpointSeen] = {}
        """The topic's endpoints that have not left, at most `MAX_REMEMBERED`."""
        self._places = [self._partitions]
        """Partitions of the readers: those that are asked for, and one for each expression of writers."""
        self._asked: dict[tuple[TypeRef | str, bool], None] = {}
        self._readers: dict[tuple[TypeRef | str, bool, tuple[str, ...]], CaptureReader | None] = {}
        self._known: dict[str, TypeDescription] = {}
        self._looked_up: set[TypeRef] = set()
        self._resolutions: dict[TypeRef, Resolution] = {}
        self._seen: dict[tuple[object, ...], None] = {}
        self._delivered: dict[tuple[str, ...], str] = {}
        self._sets: dict[str, tuple[str, tuple[NameSpaceView, ...]]] = {}
        self._unsure: dict[str, str] = {}
        """Why it is not known whether a node keeps the topic, by the node's id."""
        self._fellows: dict[str, str] = {}
        self._heard_s = math.inf
        self._is_over = self.is_kept = False
        self.refusal = self.failure = ""
        self.listened_s = 0.0

    @property
    def types(self) -> list[TypeDescription]:
        """The topic's types found so far."""
        return list({self._type_of(reader): None for reader in self._opened()})

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes of which a snapshot came."""
        return sorted(name for name, _ in self._sets.values())

    @property
    def unsure(self) -> list[str]:
        """Why it is not known, although no node shows the topic, that no node keeps it."""
        silent = [f"{name} was not heard" for id_, name in self._fellows.items() if id_ not in self._sets]
        return sorted([*self._unsure.values(), *silent])

    @property
    def seen(self) -> str:
        """The writers and readers of applications that the topic has, in words; empty for none."""
        counts: collections.Counter[str] = collections.Counter()
        for one in self._present.values():
            if one.participant not in self._ours:
                counts[f"{one.durability.name} {'writer' if one.is_writer else 'reader'}"] += 1
        return ", ".join(plural(count, what) for what, count in sorted(counts.items()))

    @property
    def is_delivered(self) -> bool:
        """Whether nodes report that they have delivered all history to this reader."""
        told = {partition for _, partition in self._delivered}
        return set(self._delivered.values()) == {"done"} and all(
            ",".join(one) in told for one in self._places
        )

    @property
    def has_samples(self) -> bool:
        """Whether a sample came."""
        return bool(self._seen)

    @property
    def parts(self) -> dict[str, list[str]]:
        """The name-spaces that no heard node has whole, with the names of the nodes that have parts."""
        found: dict[str, list[str]] = {}
        whole = set()
        for name, views in self._sets.values():
            for view in views:
                if view.is_less_than_whole:
                    found.setdefault(view.name, []).append(name)
                elif view.complete:
                    whole.add(view.name)
        return {name: sorted(nodes) for name, nodes in found.items() if name not in whole}

    def samples(self, timeout_s: float, *, follows: bool) -> Iterator[LiveSample]:
        """Yield each sample once until the time is over; without `follows`, until the history is here.

        Args:
            timeout_s: most seconds to read.
            follows: go on with samples written after the history was delivered.
        """
        began_s = time.monotonic()
        deadline_s, ends_s = began_s + timeout_s, math.inf
        while not self._is_over and (now := time.monotonic()) < min(deadline_s, ends_s):
            self._signal.wait(min(_STEP_S, deadline_s - now))
            self._look(deadline_s)
            yield from self._taken()
            self.listened_s = time.monotonic() - began_s
            if not follows and not self.is_kept and not self.unsure and now - self._heard_s > _ABSENT_S:
                break
            if follows or not self.is_delivered:
                ends_s = math.inf
            elif ends_s == math.inf:
                ends_s = time.monotonic() + _SETTLE_S
        yield from self._taken()

    def _look(self, deadline_s: float) -> None:
        """Take in the news from discovery and from the nodes; look types up until a monotonic time."""
        for change in self._discovery.take():
            if isinstance(change, ParticipantSeen):
                if change.is_ours:
                    self._ours.add(change.guid)
                if change.tag is not None and change.tag.role is TagRole.DELIVERER:
                    self._deliverers.add(change.guid[:PREFIX_BYTES])
            elif isinstance(change, EndpointSeen) and change.topic == self._topic:
                if len(self._present) < MAX_REMEMBERED:
                    self._present[change.guid] = change
                if change.is_writer:
                    self._writers[change.guid] = change
                reference = self._reference(change)
                if reference is not None:
                    self._asked[reference, True] = None
                    if change.is_writer and not (change.reliable and change.durability >= _LEAST):
                        self._asked[reference, False] = None  # volatile, to match lesser writers
            elif isinstance(change, EndpointGone):
                self._present.pop(change.guid, None)
                if len(self._writers) > MAX_REMEMBERED:
                    self._writers.pop(change.guid, None)
        self._hear()
        for place in self._places:
            for reference, is_durable in self._asked:
                self._open(place, reference, deadline_s, is_durable=is_durable)

    def _hear(self) -> None:
        """Take in the news from the nodes."""
        own = self._participant.guid.hex()
        update = self._feed.poll()
        for notice in update.notices:
            if notice.kind is NoticeKind.UNPROVED:
                self.refusal = notice.text
            elif notice.kind in (NoticeKind.WATCH_FAILED, NoticeKind.WATCH_BACK):
                self.failure = notice.text if notice.kind is NoticeKind.WATCH_FAILED else ""
        for heard in update.snapshots:
            self._heard_s = min(self._heard_s, time.monotonic())
            shown = heard.snapshot
            self._fellows |= {one.id: one.name for one in shown.fellows if one.communication != "lost"}
            self._sets[shown.id] = shown.name, tuple(filter(self._is_read, shown.name_spaces))
            wanted = [
                group.partition
                for group in shown.groups
                if self._interest.wants(Group(group.partition, group.topic))
            ]
            self.is_kept |= bool(wanted)
            self._unsure.pop(shown.id, None)
            if shown.groups_left_out:
                self._unsure[shown.id] = f"{shown.name} does not show all of its groups"
            elif shown.state != ServiceState.COMPLETE:
                self._unsure[shown.id] = f"{shown.name} is not complete"
            for partition in wanted:
                self._meet(partition)
            for delivery in heard.snapshot.deliveries:
                if own in delivery.participant.split(",") and delivery.topic == self._topic:
                    self._delivered[heard.snapshot.id, delivery.partition] = delivery.state

    def _reference(self, endpoint: EndpointSeen) -> TypeRef | str | None:
        """Return how to open a reader for an endpoint: without key, by the name of its type."""
        if not is_keyless(endpoint.guid):
            return endpoint.type
        name = endpoint.type_name
        if endpoint.type is not None and name not in self._known and endpoint.type not in self._looked_up:
            self._looked_up.add(endpoint.type)
            resolution = resolve_type(self._participant, endpoint.type, attempts=1)
            if resolution.type is not None:
                self._known[name] = resolution.type
        return name

    def _is_read(self, view: NameSpaceView) -> bool:
        """Return whether the topic, in the partitions that are read, may belong to a name-space."""
        return self._interest.touches(NameSpace(view.name, tuple(map(Element.parse, view.elements))))

    def _meet(self, partition: str) -> None:
        """Read what is kept of writers in an expression, too: two expressions do not match."""
        place = (name_within(partition),)
        if any(meets(one, partition) for one in self._partitions) or place in self._places:
            return
        if len(self._places) < MAX_PLACES:
            self._places.append(place)

    def _open(
        self, place: tuple[str, ...], reference: TypeRef | str, deadline_s: float, *, is_durable: bool
    ) -> None:
        """Open a reader of a type, or of the name of one that is not announced, unless that was tried."""
        key = reference, is_durable, place
        if key in self._readers or len(self._readers) >= MAX_READERS:
            return
        self._readers[key] = None
        resolution = self._resolved(reference, deadline_s)
        if resolution.type is None:
            problem = f"topic '{self._topic}': {resolution.reason}"
            if problem not in self.unreadable:
                self.unreadable.append(problem)
            return
        topic = open_topic(self._participant, self._topic, resolution.type)
        self._readers[key] = CaptureReader(
            self._participant,
            topic,
            partitions=place,
            durability=_LEAST if is_durable else DurabilityKind.VOLATILE,
            reliable=is_durable,
            signal=self._signal,
        )

    def _resolved(self, reference: TypeRef | str, deadline_s: float) -> Resolution:
        """Look a type up once; all its readers have the answer, or the lack of one, in common."""
        if isinstance(reference, str):
            return Resolution(untyped(reference))
        if reference not in self._resolutions:
            left_s = max(_STEP_S, deadline_s - time.monotonic())
            attempts = min(ATTEMPTS, math.ceil(left_s / ATTEMPT_S))
            self._resolutions[reference] = resolve_type(
                self._participant, reference, attempts=attempts, attempt_timeout_s=min(ATTEMPT_S, left_s)
            )
        return self._resolutions[reference]

    def _taken(self) -> Iterator[LiveSample]:
        for reader in self._opened():
            for record in reader.drain():
                if not 0 < record.status <= _SAMPLE or self._is_known(record):
                    continue
                writer = self._writers.get(record.writer)
                is_delivered = record.writer[:PREFIX_BYTES] in self._deliverers
                if record.status == UNREGISTER and (writer is None or is_delivered):
                    continue  # the deliverer is done; the original writer did not unregister
                partitions = writer.partitions if writer else ()
                yield LiveSample(self._type_of(reader), partitions, record, is_delivered)

    def _type_of(self, reader: CaptureReader) -> TypeDescription:
        """Return the type of a reader's samples; of those without key it reads any by name."""
        return self._known.get(reader.topic.type.name, reader.topic.type)

    def _opened(self) -> list[CaptureReader]:
        return [reader for reader in self._readers.values() if reader is not None]

    def _is_known(self, record: Sample) -> bool:
        """Return whether the sample came before: a live sample may be delivered as history, too."""
        identity = (record.source_time_ns, record.status, record.key, hash(record.payload))
        if identity in self._seen:
            return True
        self._seen[identity] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return False

    def end(self) -> None:
        """Make `samples` end within a quarter of a second; from any thread."""
        self._is_over = True

    def close(self) -> None:
        """Leave the domain."""
        self._feed.close()
        self._participant.close()


# Longer than anybody looks at a page.
_WATCHED_S: Final = 7 * 86_400.0
# What a person scrolls through; `ospltool cat` prints any number.
MAX_INSTANCES: Final = 1_000
"""Instances whose newest value is kept."""


@dataclasses.dataclass(slots=True)
class _Newest:
    """The newest sample of an instance, and its value as soon as somebody asked for it."""

    type: TypeDescription
    partition: str
    sample: Sample
    samples: int = 1
    changed_ns: int = 0
    value: InstanceValue | None = None


class LatestValues:
    """The newest sample of each instance of a topic, which a thread reads as an ordinary late joiner does.

    Args:
        feed: of the domain.
        topic: name of the topic.

    Attributes:
        problem: why nothing, or not everything, can be read; empty if all is well.
        left_out: samples of instances beyond the bound.
    """

    def __init__(self, feed: LiveFeed, topic: str) -> None:
        self.topic = topic
        self.problem = ""
        self.left_out = 0
        self._place = feed.place
        self._clock = feed.now_ns
        self._lock = threading.Lock()
        self._newest: dict[tuple[str, str, bytes], _Newest] = {}
        self._reader: TopicReader | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="latest-values", daemon=True)
        self._thread.start()

    def values(self) -> list[InstanceValue]:
        """Return the values by partition and key; what cannot be decoded makes the `problem`."""
        with self._lock:
            every = list(self._newest.values())
        found = []
        for one in every:
            try:
                one.value = one.value or _decoded(one)
            except Undecodable as error:
                self.problem = str(error)
                continue
            found.append(one.value._replace(samples=one.samples))
        return sorted(found, key=lambda one: (natural(one.partition), natural(one.key)))

    def close(self) -> None:
        """Stop reading; the thread leaves the domain soon."""
        self._is_over = True
        if self._reader is not None:
            self._reader.end()

    def _run(self) -> None:
        domain_id, partition, settings, secret = self._place
        try:
            reader = self._reader = TopicReader(domain_id, settings, self.topic, (), partition, secret)
        except DdsError as error:
            self.problem = str(error)
            return
        try:
            if not self._is_over:
                for each in reader.samples(_WATCHED_S, follows=True):
                    self._add(each)
                    self.problem = "; ".join((*reader.unreadable, reader.failure)).strip("; ") or self.problem
        finally:
            reader.close()

    def _add(self, each: LiveSample) -> None:
        partition = ",".join(each.partitions)
        key = partition, each.type.name, each.sample.key
        with self._lock:
            before = self._newest.get(key)
            if before is None and len(self._newest) >= MAX_INSTANCES:
                self.left_out += 1
            elif before is None:
                changed_ns = 0 if each.is_delivered else self._clock()
                self._newest[key] = _Newest(each.type, partition, each.sample, changed_ns=changed_ns)
            elif each.sample.source_time_ns < before.sample.source_time_ns:
                before.samples += 1
            else:
                is_alike = each.sample.payload == before.sample.payload
                changed_ns = before.changed_ns if is_alike or each.is_delivered else self._clock()
                number = before.samples + 1
                self._newest[key] = _Newest(each.type, partition, each.sample, number, changed_ns)


def latest_values(feed: Feed, topic: str) -> LatestValues | None:
    """Begin to read the newest values of a topic; None where the feed is not that of a live domain."""
    return LatestValues(feed, topic) if isinstance(feed, LiveFeed) else None


def _decoded(one: _Newest) -> InstanceValue:
    """Return a sample as text and fields.

    Raises:
        Undecodable: it is no value of its type.
    """
    fields = decode(one.type, one.sample.status, one.sample.payload)
    keys = key_names(one.type)
    return InstanceValue(
        key=", ".join(f"{name}={fields.get(name)}" for name in keys) or "no key",
        fields=fields,
        keys=keys,
        is_alive=bool(one.sample.status & DATA),
        source_time_ns=one.sample.source_time_ns,
        samples=one.samples,
        changed_ns=one.changed_ns,
        partition=one.partition,
    )
