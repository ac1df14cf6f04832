"""The participants and endpoints of the domain: fellows, writers by group, readers by process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.capture.unkept import Unkept, UnkeptReason, UnkeptWriters
from engine.core.name_spaces import Group
from engine.core.untrusted import Newest
from engine.dataset.groups import BUILTIN_PARTITION, DurabilityKind, GroupDescription, is_given, loosest
from engine.dds.channel import PeerAttached, PeerDetached
from engine.dds.discovery import EndpointGone, EndpointSeen, ParticipantGone, ParticipantSeen, host_of
from engine.dds.participant import TagRole
from engine.dds.topics import untyped
from engine.dds.typeinfo import is_keyless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dataset.groups import GroupQos, TypeDescription
    from engine.dds.discovery import Change, TopicSeen
    from engine.dds.qos import EndpointQos
    from engine.dds.typeinfo import TypeRef

SERVICE_TOPICS: Final = frozenset(
    (
        "d_status",
        "d_capability",
        "d_nameSpacesRequest",
        "d_nameSpaces",
        "d_groupsRequest",
        "d_newGroup",
        "d_sampleRequest",
        "d_sampleChain",
        "d_deleteData",
        "d_durabilityStateRequest",
        "d_durabilityState",
        "d_historicalDataRequest",
        "d_historicalData",
    )
)
"""Topics of the durability protocol: a participant with their endpoints is a service or asks one itself."""


_VENDORS: Final = frozenset(bytes((1, low)) for low in range(1, 0x20) if low != 2)
"""Vendor ids of products other than OpenSplice, the start of their GUID prefixes (RTPS 2.5, 9.3.1.5)."""


def _is_federated(participant: bytes) -> bool:
    """Tell whether a GUID has OpenSplice's form.

    Its prefix is three numbers in network order: the random system id of the federation, a local id and a
    serial number. The last two are below 65,536.
    """
    return participant[4:6] == participant[8:10] == bytes(2) and participant[6:8] != bytes(2)


class ForeignServices:
    """The participants that are other products' durability services, or belong to a federation with one.

    Cyclone DDS does not tell the vendor of a participant. OpenSplice's (vendor 1.2) are recognised by their
    GUID, other services by the topics of their endpoints.
    """

    def __init__(self) -> None:
        self._services: dict[bytes, set[bytes]] = {}

    def endpoint_seen(self, participant: bytes, topic: str) -> bool:
        """Take in a new endpoint; return True if it first shows that its participant is a service."""
        if topic not in SERVICE_TOPICS:
            return False
        known = self._services.setdefault(_family(participant), set())
        known.add(participant)
        return len(known) == 1

    def gone(self, participant: bytes) -> None:
        """Forget a participant that left."""
        family = _family(participant)
        known = self._services.get(family, set())
        known.discard(participant)
        if not known:
            self._services.pop(family, None)

    def is_one(self, participant: bytes) -> bool:
        """Tell whether a participant is a service, or of an OpenSplice federation."""
        return _family(participant) in self._services or (
            _is_federated(participant) and participant[:2] not in _VENDORS
        )


def _family(participant: bytes) -> bytes:
    """Return the common part of the GUIDs of a federation; for other participants, the whole GUID."""
    return participant[:4] if _is_federated(participant) else participant


# Far above any system we know; it only keeps a stranger that announces topics without end from filling the
# memory.
MAX_TOPICS: Final = 100_000
"""Limit for topics whose QoS is remembered; groups of other topics take the QoS of their first writer."""

# Each question holds a worker for some seconds if nobody answers, so shorter would keep one busy; longer
# delays the capture of a topic whose type comes back.
ASK_AGAIN_S: Final = 5.0
"""Seconds from one question for a type that was given up to the next; with several, each in its turn."""

# A column of a screen; nothing compares names.
MAX_NAME_CHARS: Final = 80
"""Characters of a foreign name that are shown; a participant may announce a text of any length."""
# Sized like the other memories of endpoints. Beyond it, a reader that comes back is served as a new one: it
# costs a delivery, loses nothing.
MAX_FORMER: Final = 10_000
"""Limit for the memory of lost readers and of participants, which may only have been out of reach."""


class HistoryReader(msgspec.Struct, frozen=True):
    """Readers that request history: their process, the addresses of that, their topic and partitions."""

    process: bytes
    addresses: tuple[str, ...]
    topic: str
    partitions: tuple[str, ...]

    @property
    def hosts(self) -> frozenset[str]:
        """The addresses of its host."""
        return frozenset(host_of(address) for address in self.addresses)


class Offer(msgspec.Struct, frozen=True):
    """A durable writer with its type and its groups, one for each partition."""

    endpoint: EndpointSeen
    type: TypeDescription
    groups: tuple[Group, ...]


class DiscoveryChanges(msgspec.Struct):
    """The changes for the node from one batch of discovery."""

    unresolved: list[EndpointSeen] = msgspec.field(default_factory=list)
    """Endpoints whose types must be looked up: for their keys, or to show samples of those without key."""
    groups: list[GroupDescription] = msgspec.field(default_factory=list)
    """Durable groups that got a writer, or whose topic is known better now."""
    writers: list[tuple[bytes, tuple[Group, ...]]] = msgspec.field(default_factory=list)
    """Durable writers with their groups; a writer without groups is gone."""
    ends: list[EndpointGone | ParticipantGone] = msgspec.field(default_factory=list)
    """Ends of durable writers, and of participants, in order."""
    offers: list[Offer] = msgspec.field(default_factory=list)
    """New durable writers."""
    readers_seen: list[HistoryReader] = msgspec.field(default_factory=list)
    """New durable readers, one for each process, topic and partitions."""
    readers_gone: list[HistoryReader] = msgspec.field(default_factory=list)
    """Lost durable readers, one for each process, topic and partitions."""
    ends_seen: list[tuple[HistoryReader, bytes, bool]] = msgspec.field(default_factory=list)
    """New reader endpoints, with GUIDs; True if earlier readers of its process got history without it."""
    ends_gone: list[tuple[HistoryReader, bytes]] = msgspec.field(default_factory=list)
    """Reader endpoints that went away, with GUIDs; they count before those that were seen."""
    processes_gone: list[bytes] = msgspec.field(default_factory=list)
    """Processes whose last participant left or was lost."""
    unkept: list[Unkept] = msgspec.field(default_factory=list)
    """Durable writers that cannot be kept; each reason is reported once."""
    fellows: list[tuple[str, bytes, bool]] = msgspec.field(default_factory=list)
    """Node id and participant of fellows that attached (True) or detached, in order."""
    nodes_seen: list[str] = msgspec.field(default_factory=list)
    """Ids of the other nodes that were discovered."""


class Neighbourhood:
    """This node's view of the domain, without its own and its fellows' endpoints."""

    def __init__(self) -> None:
        self.participants: dict[bytes, ParticipantSeen] = {}
        self._processes: dict[bytes, dict[bytes, ParticipantSeen]] = {}
        self.routes: dict[bytes, tuple[Group, ...]] = {}
        self.unkept = UnkeptWriters()
        self._topics: dict[tuple[str, str], EndpointQos] = {}
        self._types: dict[TypeRef, TypeDescription] = {}
        self._waiting: dict[TypeRef, list[EndpointSeen]] = {}
        self._given_up: dict[TypeRef, dict[bytes, EndpointSeen]] = {}
        self._ask_s = 0.0
        self._endpoints: dict[bytes, EndpointSeen] = {}
        self._depths: dict[str, dict[tuple[str, ...], int]] = {}
        self._asked: dict[Group, int] = {}
        self._writers: dict[bytes, str] = {}
        self._offers: dict[str, dict[bytes, Offer]] = {}
        self._gone: set[bytes] = set()
        self._readers: dict[HistoryReader, set[bytes]] = {}
        self._former: dict[bytes, None] = {}
        self._former_readers: dict[HistoryReader, None] = {}
        self._attached: set[bytes] = set()
        self._foreign = ForeignServices()
        self._fellows: dict[bytes, str] = {}
        self._left: Newest[bytes, str | None] = Newest(MAX_FORMER)

    def node_of(self, participant: bytes) -> str | None:
        """Return the id of the node whose participant this is; None for other participants."""
        seen = self.participants.get(participant)
        if seen is None or seen.tag is None or seen.tag.role is not TagRole.NODE:
            return None
        return seen.tag.node_id.hex()

    def knows(self, participant: bytes) -> bool:
        """Tell whether a participant was discovered, although it may have left since."""
        return participant in self.participants or participant in self._left

    def speaker(self, participant: bytes) -> str | None:
        """Return the id of the node whose messages come from a participant, also after it has left."""
        return self.node_of(participant) or self._left.get(participant)

    def name_of(self, participant: bytes) -> str:
        """Return what people call a participant; empty if it is not known.

        That is the name of a node; of a client or an application, its name with process and host.
        """
        seen = self.participants.get(participant)
        if seen is None:
            return ""
        name = seen.name[:MAX_NAME_CHARS]
        if self.node_of(participant) is None:
            kind = "client" if seen.tag and seen.tag.role is TagRole.CLIENT else "participant"
            process = f", process {seen.pid}" if seen.pid else ""
            place = f" on {seen.hostname[:MAX_NAME_CHARS]}" if seen.hostname else ""
            name = f"{kind} {name or participant.hex()}{process}{place}"
        return "".join(char if char.isprintable() else "?" for char in name)

    def members(self, process: bytes) -> tuple[ParticipantSeen, ...]:
        """Return the participants of a process (`ParticipantSeen.process`), in the order of discovery."""
        return tuple(self._processes.get(process, {}).values())

    def participant_of(self, node: str) -> bytes | None:
        """Return the participant of a fellow."""
        return next((guid for guid in self.participants if self.node_of(guid) == node), None)

    def topics_seen(self, topics: Sequence[TopicSeen]) -> DiscoveryChanges:
        """Take in topics with their QoS; for one name and type, the first with the highest durability counts.

        The changes contain the groups of known writers of these topics.
        """
        found = DiscoveryChanges()
        for each in topics:
            topic = each.topic, each.type_name
            known = self._topics.get(topic)
            least = DurabilityKind.TRANSIENT if known is None else known.durability + 1
            if each.topic_qos.durability >= least and (known or len(self._topics) < MAX_TOPICS):
                self._topics[topic] = each.topic_qos
                for offer in self._offers.get(each.topic, {}).values():
                    if offer.endpoint.type_name == each.type_name:
                        found.groups += self._descriptions(offer)
        return found

    def offers(self, topic: str, type_id: str) -> list[Offer]:
        """Return the current durable writers of a topic and type."""
        return [each for each in self._offers.get(topic, {}).values() if each.type.type_id == type_id]

    def offer_of(self, writer: bytes) -> Offer | None:
        """Return a current durable writer that has groups; None if it is gone or refused."""
        if not self.routes.get(writer):
            return None
        return self._offers.get(self._writers.get(writer, ""), {}).get(writer)

    def living(self, group: Group) -> frozenset[bytes]:
        """Return the current durable writers of a group."""
        offers = self._offers.get(group.topic, {}).items()
        return frozenset(writer for writer, offer in offers if group in offer.groups)

    def refuse(self, offer: Offer, why: UnkeptReason, detail: str) -> Unkept | None:
        """Ignore a writer from now on that cannot be captured; return None if it was ignored before.

        `why` and `detail` are the reason that is reported.
        """
        endpoint = offer.endpoint
        is_news = bool(self.routes.get(endpoint.guid))
        self.routes[endpoint.guid] = ()
        return self.unkept.add(endpoint, why, detail) if is_news else None

    def unmatched(self, offer: Offer, *, is_so: bool) -> Unkept | None:
        """Note that a writer does not match its tap, or does after all; return what must be reported."""
        endpoint = offer.endpoint
        if is_so:
            return self.unkept.add(endpoint, UnkeptReason.UNMATCHED)
        self.unkept.remove(endpoint.guid, is_kept=True)
        return None

    def refused(self, writer: bytes, detail: str) -> Unkept | None:
        """Note that samples of a writer were refused; return what must be reported the first time."""
        offer = self.offer_of(writer)
        if offer is None:
            return None
        is_known = any(one.writer == writer.hex() and one.why is UnkeptReason.REFUSED for one in self.unkept)
        unkept = self.unkept.add(offer.endpoint, UnkeptReason.REFUSED, detail)
        return None if is_known else unkept

    def _qos_of(self, endpoint: EndpointSeen) -> GroupQos:
        """Return the QoS of a writer's group: a durable topic's if topic discovery gives it, or the writer's.

        DDS 1.4, 2.2.3.4 defines it so for the built-in reader and writer. Representations are the writer's.
        """
        topic = self._topics.get((endpoint.topic, endpoint.type_name))
        if topic is None:
            return endpoint.qos
        return msgspec.structs.replace(
            topic.of_group(), representations=endpoint.qos.representations, requested=topic.durability
        )

    def apply(self, changes: Sequence[Change | PeerAttached | PeerDetached]) -> DiscoveryChanges:
        """Take in changes from discovery and the channel.

        Those of one participant may come in either order, and the channel may overlook that a participant
        was lost and came back.
        """
        found = DiscoveryChanges()
        for change in changes:
            match change:
                case ParticipantSeen():
                    self._forget_dead(change, found)
                    self._leave(change.guid)
                    self._left.pop(change.guid, None)
                    self.participants[change.guid] = change
                    self._processes.setdefault(change.process, {})[change.guid] = change
                    if not change.is_own and (node := self.node_of(change.guid)):
                        found.nodes_seen.append(node)
                    self._fellow_attached(change.guid, found)
                case ParticipantGone():
                    self._fellow_detached(change.guid, found)
                    self._foreign.gone(change.guid)
                    found.ends.append(change)
                    if (process := self._leave(change.guid)) is not None:
                        found.processes_gone.append(process)
                case PeerAttached():
                    self._attached.add(change.participant)
                    self._fellow_attached(change.participant, found)
                case PeerDetached():
                    self._attached.discard(change.participant)
                    self._fellow_detached(change.participant, found)
                case EndpointSeen():
                    self._endpoint_seen(change, found)
                case EndpointGone():
                    self._endpoint_gone(change, found)
        return found

    def _leave(self, participant: bytes) -> bytes | None:
        """Forget a participant; return its process if it was the last one there."""
        node = self.node_of(participant)
        seen = self.participants.pop(participant, None)
        if seen is None:
            return None
        self._left[participant] = node  # what it sent before may come later
        members = self._processes[seen.process]
        del members[participant]
        if members:
            return None
        del self._processes[seen.process]
        return seen.process

    def _forget_dead(self, successor: ParticipantSeen, found: DiscoveryChanges) -> None:
        """Forget the readers of a dead process at once: what is on its way to it reaches its successor."""
        dead = {one.process: None for one in self.participants.values() if successor.succeeds(one)}
        found.processes_gone.extend(dead)
        for reader in [one for one in self._readers if one.process in dead] if dead else ():
            del self._readers[reader]
            self._reader_gone(reader, found)

    def resolved(
        self,
        reference: TypeRef,
        description: TypeDescription | None,
        reason: str = "",
    ) -> DiscoveryChanges:
        """Take in a type that was looked up; None as `description` gives up on its writers, for `reason`.

        They are kept from the moment on at which the type is found after all; see `to_ask_again`. Writers
        without key are kept anyway, and their groups get the type.
        """
        found = DiscoveryChanges()
        waiting = self._waiting.pop(reference, [])
        given_up = self._given_up.pop(reference, {})
        if description is not None:
            self._types[reference] = description
        for endpoint in (*given_up.values(), *waiting):
            if is_keyless(endpoint.guid):
                offer = self._offers.get(endpoint.topic, {}).get(endpoint.guid)
                if offer is not None and description is not None:
                    self._learn_type(offer, description, found)
            elif description is not None:
                self._writer_seen(endpoint, description, found)
                if endpoint.guid in self._gone:  # its earlier samples may have been captured
                    self._endpoint_gone(EndpointGone(endpoint.guid), found)
            else:
                self._give_up(reference, endpoint, found, reason, is_news=endpoint.guid not in given_up)
        if not self._waiting:
            self._gone.clear()
        return found

    def _learn_type(self, offer: Offer, description: TypeDescription, found: DiscoveryChanges) -> None:
        """Give the groups of a writer, which is kept, its type."""
        better = msgspec.structs.replace(offer, type=description)
        self._offers[offer.endpoint.topic][offer.endpoint.guid] = better
        found.groups += self._descriptions(better)

    def _give_up(
        self,
        reference: TypeRef,
        endpoint: EndpointSeen,
        found: DiscoveryChanges,
        reason: str,
        *,
        is_news: bool,
    ) -> None:
        self.routes[endpoint.guid] = ()
        if is_news:
            self._not_kept(endpoint, UnkeptReason.TYPE_UNKNOWN, found, reason)
        if endpoint.guid in self._gone:
            self.unkept.remove(endpoint.guid)
        else:
            self._given_up.setdefault(reference, {})[endpoint.guid] = endpoint

    def to_ask_again(self, now_s: float) -> EndpointSeen | None:
        """Return a writer whose type was given up and should be looked up again; None if it is too early."""
        if not self._given_up or now_s < self._ask_s:
            return None
        self._ask_s = now_s + ASK_AGAIN_S
        reference = next(iter(self._given_up))
        writers = self._given_up[reference] = self._given_up.pop(reference)  # its next turn is the last
        return next(iter(writers.values()))

    def _fellow_attached(self, participant: bytes, found: DiscoveryChanges) -> None:
        node = self.node_of(participant)
        if node is not None and participant in self._attached and participant not in self._fellows:
            self._fellows[participant] = node
            found.fellows.append((node, participant, True))

    def _fellow_detached(self, participant: bytes, found: DiscoveryChanges) -> None:
        node = self._fellows.pop(participant, None)
        if node is not None:
            found.fellows.append((node, participant, False))

    def _endpoint_seen(self, endpoint: EndpointSeen, found: DiscoveryChanges) -> None:
        participant = self.participants.get(endpoint.participant)
        if participant is None or participant.is_own or participant.is_ours:
            self.routes[endpoint.guid] = ()
            return
        if self._foreign.endpoint_seen(endpoint.participant, endpoint.topic):
            self._forget_foreign_readers(found)
        if endpoint.durability < DurabilityKind.TRANSIENT:
            if endpoint.is_writer:
                self.routes[endpoint.guid] = ()
            return
        if not endpoint.is_writer:
            self._reader_seen(endpoint, participant, found)
        else:
            self._durable_writer_seen(endpoint, found)

    def _durable_writer_seen(self, endpoint: EndpointSeen, found: DiscoveryChanges) -> None:
        """Take in a writer; one without key is kept as bytes, and only shown by its type.

        The look-up would take a moment or fail: some implementations announce types and do not answer.
        """
        known = self._types.get(endpoint.type) if endpoint.type is not None else None
        if known is not None or is_keyless(endpoint.guid):
            self._writer_seen(endpoint, known or untyped(endpoint.type_name), found)
        elif endpoint.type is not None:
            self.unkept.add(endpoint, UnkeptReason.TYPE_AWAITED)
        else:
            self.routes[endpoint.guid] = ()
            self._not_kept(endpoint, UnkeptReason.UNTYPED_KEYED, found)
        if known is None and endpoint.type is not None:
            waiting = self._waiting.setdefault(endpoint.type, [])
            waiting.append(endpoint)
            if len(waiting) == 1:
                found.unresolved.append(endpoint)

    def _not_kept(
        self, endpoint: EndpointSeen, why: UnkeptReason, found: DiscoveryChanges, detail: str = ""
    ) -> None:
        unkept = self.unkept.add(endpoint, why, detail)
        if unkept is not None:
            found.unkept.append(unkept)

    def _writer_seen(
        self, endpoint: EndpointSeen, description: TypeDescription, found: DiscoveryChanges
    ) -> None:
        """Note the groups of a writer; a sample of a writer in several partitions belongs to each."""
        groups = _groups_of(endpoint, description)
        self.routes[endpoint.guid] = groups
        self.unkept.remove(endpoint.guid, is_kept=True)
        self._writers[endpoint.guid] = endpoint.topic
        found.writers.append((endpoint.guid, groups))
        offer = Offer(endpoint, description, groups)
        self._offers.setdefault(endpoint.topic, {})[endpoint.guid] = offer
        found.offers.append(offer)
        found.groups += self._descriptions(offer)

    def _descriptions(self, offer: Offer) -> list[GroupDescription]:
        qos = self._qos_of(offer.endpoint)
        return [GroupDescription(group, offer.type, qos) for group in offer.groups]

    def _reader_seen(
        self, endpoint: EndpointSeen, participant: ParticipantSeen, found: DiscoveryChanges
    ) -> None:
        if not participant.addresses or (participant.tag and participant.tag.role is TagRole.CLIENT):
            return  # the client library asks for what it needs
        partitions = tuple(each for each in endpoint.partitions or ("",) if each != BUILTIN_PARTITION)
        if not partitions or self._foreign.is_one(endpoint.participant):
            return
        reader = HistoryReader(participant.process, participant.addresses, endpoint.topic, partitions)
        self._endpoints[endpoint.guid] = endpoint
        self._readers_changed()
        guids = self._readers.setdefault(reader, set())
        if not guids:
            found.readers_seen.append(reader)
        is_known = endpoint.guid in guids or endpoint.guid in self._former
        is_further = not is_known and (bool(guids) or reader in self._former_readers)
        found.ends_seen.append((reader, endpoint.guid, is_further))
        guids.add(endpoint.guid)

    def asked(self, group: Group) -> int:
        """Return the deepest HISTORY of the durable readers of a group; 0 for KEEP_ALL, 1 without any."""
        # Each snapshot asks for all groups, and readers seldom change: both steps are remembered till then.
        if not self._depths:
            for one in self._endpoints.values():
                wanted = self._depths.setdefault(one.topic, {})
                partitions = one.partitions or ("",)
                wanted[partitions] = loosest(one.endpoint_qos.history_depth, wanted.get(partitions, 1))
        if group not in self._asked:
            wanted = self._depths.get(group.topic, {})
            found = (depth for names, depth in wanted.items() if is_given(group, group.topic, names))
            self._asked[group] = functools.reduce(loosest, found, 1)
        return self._asked[group]

    def _readers_changed(self) -> None:
        self._depths.clear()
        self._asked.clear()

    def goes_by_reception(self, process: bytes, topic: str) -> bool:
        """Tell whether a reader of a process takes the samples of a topic as they arrive."""
        kinds = (ends for one, ends in self._readers.items() if (one.process, one.topic) == (process, topic))
        ends = (self._endpoints[guid] for guids in kinds for guid in guids)
        return any(not one.endpoint_qos.by_source_timestamp for one in ends)

    def _endpoint_gone(self, change: EndpointGone, found: DiscoveryChanges) -> None:
        # The route of a writer stays: samples of it may still be queued in the tap.
        topic = self._writers.pop(change.guid, None)
        self.unkept.remove(change.guid)
        if topic is not None:
            offers = self._offers[topic]
            del offers[change.guid]
            if not offers:
                del self._offers[topic]
            found.writers.append((change.guid, ()))
            found.ends.append(change)
        else:
            self._forget_given_up(change.guid)
            if self._waiting:
                self._gone.add(change.guid)
        if self._endpoints.pop(change.guid, None) is None:
            return
        self._readers_changed()
        for reader, guids in list(self._readers.items()):
            if change.guid in guids:
                guids.discard(change.guid)
                found.ends_seen = [each for each in found.ends_seen if each[1] != change.guid]
                found.ends_gone.append((reader, change.guid))
                _remember(self._former, change.guid)
                _remember(self._former_readers, reader)
                if not guids:
                    del self._readers[reader]
                    self._reader_gone(reader, found)

    def _forget_given_up(self, writer: bytes) -> None:
        for reference, writers in list(self._given_up.items()):
            writers.pop(writer, None)
            if not writers:
                del self._given_up[reference]

    def _forget_foreign_readers(self, found: DiscoveryChanges) -> None:
        for guid, endpoint in list(self._endpoints.items()):
            if self._foreign.is_one(endpoint.participant):
                self._endpoint_gone(EndpointGone(guid), found)

    @staticmethod
    def _reader_gone(reader: HistoryReader, found: DiscoveryChanges) -> None:
        if reader in found.readers_seen:  # it came and went within this batch
            found.readers_seen.remove(reader)
            found.ends_seen = [each for each in found.ends_seen if each[0] != reader]
        else:
            found.readers_gone.append(reader)


def _groups_of(endpoint: EndpointSeen, description: TypeDescription) -> tuple[Group, ...]:
    type_id = description.type_id
    return tuple(Group(name, endpoint.topic, type_id) for name in endpoint.partitions or ("",))


def _remember(former: dict[Any, None], key: object) -> None:
    former[key] = None
    if len(former) > MAX_FORMER:
        del former[next(iter(former))]
