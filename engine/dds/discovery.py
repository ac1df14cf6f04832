"""Discovered participants, readers and writers, from the built-in topics of Cyclone DDS."""

from __future__ import annotations

import ctypes
import hashlib
import ipaddress
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from engine.dataset.groups import DurabilityKind, GroupQos
from engine.dds import abi
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant, Tag, TagRole
from engine.dds.qos import EndpointQos, read_endpoint_qos, read_name
from engine.dds.typeinfo import TypeRef
from engine.dds.waiting import Signal

# Chosen: a start among thousands of endpoints makes tens of calls, and the arrays take some 20 KiB.
_BATCH: Final = 256
# 16,384 endpoints: a storm of announcements must not keep the thread from its heartbeat.
_MAX_BATCHES: Final = 64
"""Batches in one go at most: the rest comes with the next look, after other work."""
_MAX_USER_DATA_BYTES: Final = 4096
"""Bytes that are looked at: a tag has tens, and a stranger may announce megabytes."""
_BUILTIN_TYPES: Final = b"org::eclipse::cyclonedds::builtin::"
# Linux process ids have at most 7 digits (4,194,304).
_PID_DIGITS: Final = 10
"""Python refuses to convert numbers of more than 4,300 digits, and a participant may announce any text."""
_LOCATOR: Final = re.compile(r"(?P<kind>\w+)/(?P<address>[^@,\s]+)")


class ParticipantSeen(msgspec.Struct, frozen=True):
    """A participant that appeared, or came back after it was lost.

    Attributes:
        guid: 16 bytes, network order.
        tag: its tag, None for a participant of another product.
        addresses: its unicast metatraffic locators as `host:port`; none if not announced, and for our own.
        hostname: as announced by Cyclone DDS, empty for others.
        pid: process id as announced, 0 for none.
        name: entity name.
        is_own: whether it is the participant that observes.
    """

    guid: bytes
    tag: Tag | None
    addresses: tuple[str, ...]
    hostname: str
    pid: int
    name: str
    is_own: bool

    @property
    def address(self) -> str | None:
        """Its first address, None without one."""
        return self.addresses[0] if self.addresses else None

    @property
    def process(self) -> bytes:
        """Id of the domain instance, in a process, that it belongs to: 16 bytes, the same for all observers.

        What is sent to a port reaches the readers of all participants there. Those of one domain instance of
        Cyclone DDS share a port (unless its ManySocketsMode is `many`), host name and process id, but only
        four bytes of their GUIDs. Participants of other vendors have a port each: the id is the GUID.
        """
        if not (self.hostname and self.pid and self.addresses):
            return self.guid
        ports = sorted({address.rpartition(":")[2] for address in self.addresses})
        place = "\0".join((self.hostname, str(self.pid), *ports))
        return self.guid[:4] + hashlib.blake2b(place.encode(), digest_size=12).digest()

    def succeeds(self, former: ParticipantSeen) -> bool:
        """Whether it has the addresses of a participant whose process is dead, although its lease still runs.

        Participants of one process of Cyclone DDS share their addresses, and the first bytes of their GUIDs.
        """
        if not self.addresses or former.addresses != self.addresses:
            return False
        return (former.hostname, former.pid, former.guid[:4]) != (self.hostname, self.pid, self.guid[:4])

    @property
    def tag_node_id(self) -> bytes | None:
        """Node id of a node, of a node's deliverer or of a persistence service; None for others."""
        return self.tag.node_id if self.tag and self.tag.role is not TagRole.CLIENT else None

    @property
    def is_ours(self) -> bool:
        """Whether it is a service of this product or its deliverer, without endpoints of applications."""
        return self.tag_node_id is not None


class ParticipantGone(msgspec.Struct, frozen=True):
    """A participant that left or whose lease expired. Its endpoints were reported gone before.

    `time_ns` is that of its end: by its own clock if it said so, by this node's if its lease expired; 0 if
    unknown.
    """

    guid: bytes
    time_ns: int = 0


class EndpointSeen(msgspec.Struct, frozen=True):
    """A reader or writer that appeared, came back, or changed its QoS.

    Attributes:
        guid: 16 bytes, network order.
        participant: the participant's GUID; it was reported before.
        is_writer: whether it is a writer.
        topic: topic name.
        type_name: type name.
        type: reference for `resolve_type`; None if the endpoint announces no type information (other
            vendors, old versions): it cannot be captured.
        endpoint_qos: all its policies.
        handle: its number in this process, as readers know it; 0 if unknown.
    """

    guid: bytes
    participant: bytes
    is_writer: bool
    topic: str
    type_name: str
    type: TypeRef | None
    endpoint_qos: EndpointQos
    handle: int = 0

    @property
    def partitions(self) -> tuple[str, ...]:
        """Partition names; empty for the default partition."""
        return self.endpoint_qos.partitions

    @property
    def durability(self) -> DurabilityKind:
        """Offered or requested durability."""
        return self.endpoint_qos.durability

    @property
    def reliable(self) -> bool:
        """Offered or requested reliability."""
        return self.endpoint_qos.reliable

    @property
    def qos(self) -> GroupQos:
        """Policies that a group adopts from this endpoint."""
        return self.endpoint_qos.of_group()


class EndpointGone(msgspec.Struct, frozen=True):
    """A reader or writer that was deleted, or lost with its participant.

    `time_ns` is when it was deleted, by its own clock. Where it was lost with its participant, both have the
    same time (Cyclone DDS ends them in one go). 0 if unknown.
    """

    guid: bytes
    time_ns: int = 0


class TopicSeen(msgspec.Struct, frozen=True):
    """A topic that appeared or changed its QoS.

    Attributes:
        topic: topic name.
        type_name: type name.
        topic_qos: all policies of the topic.
    """

    topic: str
    type_name: str
    topic_qos: EndpointQos


Change = ParticipantSeen | ParticipantGone | EndpointSeen | EndpointGone

_Endpoint = tuple[bytes, int, EndpointSeen | int]
"""GUID and generation of an endpoint, and its description; the time of its end if it is gone."""

# Endpoints come before their participant only by a race of milliseconds; what stays belongs to a stranger.
MAX_EARLY: Final = 100_000
"""Limit for endpoints that wait for their participants; beyond it the oldest are forgotten."""


class TopicDiscovery:
    """The topics of other participants since the last call of `take`.

    Participants announce topics if Discovery/EnableTopicDiscoveryEndpoints is on in their settings and in
    ours; otherwise only the topics of this process appear.

    Args:
        participant: the participant that observes.
        signal: set when there is something to take.
    """

    def __init__(self, participant: NodeParticipant, signal: Signal) -> None:
        self._participant = participant
        self._signal = signal
        code = abi.create_reader(participant.entity, abi.BUILTIN_TOPIC, None, None)
        self._reader = check(code, "create a reader of a built-in topic")
        self._closed = False
        signal.attach(self._reader)
        participant.adopt(self._reader, self)

    def take(self) -> list[TopicSeen]:
        """Take the topics that appeared or changed; lost topics are not reported."""
        found = []
        for address, info in take_raw(self._reader):
            if info.valid_data:
                sample = abi.BuiltinTopic.from_address(address)
                if not sample.type_name.startswith(_BUILTIN_TYPES):
                    topic = sample.topic_name.decode("utf-8", "replace")
                    type_name = sample.type_name.decode("utf-8", "replace")
                    found.append(TopicSeen(topic, type_name, read_endpoint_qos(sample.qos)))
        return found

    def close(self) -> None:
        """Delete the reader. Idempotent."""
        if not self._closed:
            self._closed = True
            self._signal.detach(self._reader)
            abi.delete(self._reader)
            self._participant.disown(self._reader)


class Discovery:
    """The changes among participants and endpoints since the last call of `take`.

    A GUID that goes and comes back, even between two calls, is reported as gone and then as seen.

    Args:
        participant: the participant that observes.
        signal: set when there is something to take.
    """

    def __init__(self, participant: NodeParticipant, signal: Signal | None = None) -> None:
        self._participant = participant
        self._signal = signal
        self._participants: dict[bytes, int] = {}
        self._endpoints: dict[bytes, tuple[bytes, int]] = {}
        self._early: list[_Endpoint] = []
        self._readers: dict[int, int] = {}
        for topic in (abi.BUILTIN_PUBLICATION, abi.BUILTIN_SUBSCRIPTION, abi.BUILTIN_PARTICIPANT):
            reader = check(
                abi.create_reader(participant.entity, topic, None, None),
                "create a reader of a built-in topic",
            )
            self._readers[topic] = reader
            if signal is not None:
                signal.attach(reader)
        self._closed = False
        participant.adopt(self._readers[abi.BUILTIN_PARTICIPANT], self)

    def take(self) -> list[Change]:
        """Take the changes, in this order: participants seen, endpoints, participants gone.

        One call takes at most 16384 samples of each built-in topic and leaves the rest for the next.
        """
        # Cyclone DDS reports a participant before its endpoints, and all these before the participant's end.
        # So when endpoints are taken after participants, all endpoints of a lost participant are there; those
        # of a participant that came in between wait for it.
        first: list[Change] = []
        last: list[Change] = []
        lost: dict[bytes, int] = {}
        for guid, generation, seen in self._take_participants():
            known = self._participants.get(guid)
            if isinstance(seen, int):
                if known is not None:
                    lost[guid] = seen
                continue
            if known is not None and known != generation:
                first += self._forget_endpoints_of(guid)
                first.append(ParticipantGone(guid))
            self._participants[guid] = generation
            if guid in lost:
                del lost[guid]
                first += self._forget_endpoints_of(guid)
                first.append(ParticipantGone(guid))
            first.append(seen)
        middle: list[Change] = []
        for guid, generation, endpoint in self._endpoints_of_known():
            middle += self._endpoint_change(guid, generation, endpoint)
        for guid, time_ns in lost.items():
            del self._participants[guid]
            last += self._forget_endpoints_of(guid)
            last.append(ParticipantGone(guid, time_ns))
        return first + middle + last

    def _endpoints_of_known(self) -> list[_Endpoint]:
        """Take the endpoints whose participants were reported; the others wait."""
        endpoints, self._early = self._early, []
        for topic in (abi.BUILTIN_PUBLICATION, abi.BUILTIN_SUBSCRIPTION):
            endpoints += self._take_endpoints(topic)
        known: list[_Endpoint] = []
        waiting: set[bytes] = set()
        for each in endpoints:
            guid, _, seen = each
            if abi.participant_of(guid) in self._participants:
                known.append(each)
            elif isinstance(seen, EndpointSeen) or guid in waiting:  # else it was already reported as gone
                waiting.add(guid)
                self._early.append(each)
        del self._early[:-MAX_EARLY]
        return known

    def _endpoint_change(self, guid: bytes, generation: int, seen: EndpointSeen | int) -> Iterator[Change]:
        known = self._endpoints.get(guid)
        if known is not None and (isinstance(seen, int) or known[1] != generation):
            del self._endpoints[guid]
            yield EndpointGone(guid, seen if isinstance(seen, int) else 0)
        if isinstance(seen, EndpointSeen):
            self._endpoints[guid] = (seen.participant, generation)
            yield seen

    def _forget_endpoints_of(self, participant: bytes) -> list[EndpointGone]:
        gone = [guid for guid, known in self._endpoints.items() if known[0] == participant]
        for guid in gone:
            del self._endpoints[guid]
        return [EndpointGone(guid) for guid in gone]

    def _take_participants(self) -> Iterator[tuple[bytes, int, ParticipantSeen | int]]:
        for address, info in take_raw(self._readers[abi.BUILTIN_PARTICIPANT]):
            sample = abi.BuiltinParticipant.from_address(address)
            guid = bytes(sample.key)
            if info.valid_data:
                yield guid, _generation(info), self._participant_seen(guid, sample.qos)
            if info.instance_state != abi.ALIVE:
                yield guid, _generation(info), _end_ns(info)

    def _take_endpoints(self, topic: int) -> Iterator[_Endpoint]:
        is_writer = topic == abi.BUILTIN_PUBLICATION
        for address, info in take_raw(self._readers[topic]):
            sample = abi.BuiltinEndpoint.from_address(address)
            guid = bytes(sample.key)
            # Report also an endpoint that came and went between two calls: it may have written something.
            if info.valid_data and not sample.type_name.startswith(_BUILTIN_TYPES):
                seen = _endpoint_seen(guid, address, info.instance_handle, is_writer=is_writer)
                yield guid, _generation(info), seen
            if info.instance_state != abi.ALIVE:
                yield guid, _generation(info), _end_ns(info)

    def _participant_seen(self, guid: bytes, qos: int) -> ParticipantSeen:
        pid = _property(qos, b"__Pid")
        return ParticipantSeen(
            guid=guid,
            tag=Tag.decode(_user_data(qos)),
            addresses=_addresses(_property(qos, b"__NetworkAddresses")),
            hostname=_property(qos, b"__Hostname"),
            pid=int(pid[:_PID_DIGITS]) if pid.isdecimal() else 0,
            name=read_name(qos),
            is_own=guid == self._participant.guid,
        )

    def close(self) -> None:
        """Delete the readers. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for reader in self._readers.values():
            if self._signal is not None:
                self._signal.detach(reader)
            abi.delete(reader)
        self._participant.disown(self._readers[abi.BUILTIN_PARTICIPANT])


def _endpoint_seen(guid: bytes, address: int, handle: int, *, is_writer: bool) -> EndpointSeen:
    sample = abi.BuiltinEndpoint.from_address(address)
    return EndpointSeen(
        guid=guid,
        participant=bytes(sample.participant_key),
        is_writer=is_writer,
        topic=sample.topic_name.decode("utf-8", "replace"),
        type_name=sample.type_name.decode("utf-8", "replace"),
        type=TypeRef.of_endpoint(address),
        endpoint_qos=read_endpoint_qos(sample.qos),
        handle=handle,
    )


def take_raw(reader: int) -> Iterator[tuple[int, abi.SampleInfo]]:
    """Take built-in samples; each address is valid until the next one is requested."""
    buffers = (ctypes.c_void_p * _BATCH)()
    infos = (abi.SampleInfo * _BATCH)()
    # Bounded: taking may be slower than what a hostile participant announces.
    for _ in range(_MAX_BATCHES):
        buffers[0] = None
        count = check(abi.take(reader, buffers, infos, _BATCH, _BATCH), "take from a built-in topic")
        if count == 0:
            return
        try:
            for index in range(count):
                address = buffers[index]
                if address is not None:
                    yield address, infos[index]
        finally:
            abi.return_loan(reader, buffers, count)


def _generation(info: abi.SampleInfo) -> int:
    """Return how often one GUID came back while its samples waited to be taken."""
    return int(info.disposed_generation_count + info.no_writers_generation_count)


def _end_ns(info: abi.SampleInfo) -> int:
    """Return the time of an end; 0 if it is hidden by the description, which was not taken before."""
    return 0 if info.valid_data else int(info.source_timestamp)


def _property(qos: int, name: bytes) -> str:
    value = ctypes.c_void_p()
    abi.qget_property(qos, name, ctypes.byref(value))
    return abi.take_c_string(value)


def _user_data(qos: int) -> bytes:
    value, size = ctypes.c_void_p(), ctypes.c_size_t()
    abi.qget_userdata(qos, ctypes.byref(value), ctypes.byref(size))
    if not value.value:
        return b""
    data = ctypes.string_at(value.value, min(size.value, _MAX_USER_DATA_BYTES))
    abi.release(value)
    return data


def _addresses(locators: str) -> tuple[str, ...]:
    """Return `host:port` of the unicast UDP locators in `udp/239.255.0.1:7400@2,udp/10.0.0.1:7410@2`.

    Multicast locators are left out, because all participants share them.
    """
    found = (each["address"] for each in _LOCATOR.finditer(locators) if each["kind"].startswith("udp"))
    return tuple(dict.fromkeys(each for each in found if _is_unicast(each)))


def _is_unicast(address: str) -> bool:
    try:
        host = ipaddress.ip_address(host_of(address))
    except ValueError:
        return False
    return not (host.is_multicast or host.is_unspecified)


def host_of(address: str) -> str:
    """Return the host of a `host:port`."""
    return address.rpartition(":")[0].strip("[]")
