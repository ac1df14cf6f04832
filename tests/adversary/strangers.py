"""What attacks real nodes: a process of its own, `python -m tests.adversary.strangers attacks JSON`.

A `Stranger` is a participant of the domain that is no node, and writes what it likes to the topics of nodes.
An attack is a generator in `ATTACKS`, which gets the stranger and the options that its test gives it; it
yields once for each message or other step. A test starts the process with `Attacker`, and `attack` returns
the number of steps when all are done. What a stranger wrote stays until its process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.core import messages
from engine.core.events import AligneeRequest
from engine.core.messages import DeleteData, Epoch, Outgoing
from engine.core.states import ServiceState
from engine.dataset.group_set import NO_FLOOR
from engine.dataset.sample import DATA, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.dds import cdr, proofs
from engine.dds.bulk import BulkSender
from engine.dds.channel import ATTACHMENT_TOPIC, PARTITION, Channel, ChannelTopic
from engine.dds.client_protocol import endpoints, extensions
from engine.dds.client_protocol.extensions import StateRequestAddition
from engine.dds.client_protocol.messages import RequestId, StateRequest, encode
from engine.dds.errors import DdsTimeout
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.writer import stamp_ns
from engine.node.wire import EVENTS_TOPIC, MONITOR_TOPIC, PAST_TOPIC, receiver_partition
from engine.runtime import codec, monitor, stream
from engine.runtime.monitor import NodeEvent, NodePast
from engine.runtime.transfers import GIVE
from engine.store.interface import DamageLog, SetState
from engine.store.read_only import StoreView
from tests import fake
from tests.fuzzing import damaged_values
from tests.integration.lab import Lab
from tests.integration.programs import Program

PATIENCE_S: Final = 20.0
ID: Final = "f" * 32
"""The id in the tag of a stranger."""

NO_ADDRESSES: Final = (
    *("\u202e", "a\0b", "[", "", "::g", "1.2.3.4%eth0", "x" * 70_000),
    *("\u00e4" * 300, "host.invalid", "10.0.0.1:99999"),
)
"""What is no address. Some cannot be encoded, and names would be looked up by a resolver."""


class Stranger:
    """A participant of the domain, with the settings of CYCLONEDDS_URI.

    Args:
        domain: DDS domain.
        role: what its tag says that it is.
    """

    def __init__(self, domain: int, role: TagRole = TagRole.NODE) -> None:
        self.participant = NodeParticipant(
            domain, os.environ["CYCLONEDDS_URI"], "stranger", bytes.fromhex(ID), role
        )
        self._channels: dict[str, Channel] = {}

    def write(self, topic: str, payload: bytes, sender: str = ID, *, readers: int = 1, state: bool) -> None:
        """Write to a topic of the protocol in the name of a sender, once it has so many readers."""
        if topic not in self._channels:
            wanted = ChannelTopic(topic, is_state=state, reads=False)
            self._channels[topic] = Channel(self.participant, topics=[wanted])
        channel = self._channels[topic]
        assert channel._writers[topic].wait_matched(readers, PATIENCE_S), f"nobody reads {topic}"
        channel.publish(topic, sender, payload)


Attack = Callable[..., Iterator[object]]


def false_addresses(stranger: Stranger) -> Iterator[object]:
    """As invented nodes: my host has an address that is none."""
    for number, address in enumerate(NO_ADDRESSES, 100):
        document = json.loads(monitor.encode(fake.snapshot(number)))
        document["data"]["addresses"] = ["10.0.0.1", address]
        payload = json.dumps(document).encode()
        stranger.write(MONITOR_TOPIC, payload, fake.node_id(number), state=True)
        yield address


NEVER_NS: Final = (1 << 63) - 1
FAR_NS: Final = 1 << 62
FAR: Final = 10**30
"""A number that JSON carries and no column of a store."""
_WRITER: Final = "77" * 16
ODD_REQUESTS: Final = (
    *(
        StateRequestAddition(delete=extensions.DeletionOrder("none", "None", each))
        for each in (-FAR, FAR, -1, True)
    ),
    *(
        StateRequestAddition(delete=extensions.DeletionOrder(each, each, 1))
        for each in ("\0", "[", "x" * 100_000)
    ),
    *(
        StateRequestAddition(stored=extensions.StoredQuestion(2, bytes.fromhex(_WRITER), each))
        for each in (FAR, 0)
    ),
    *(
        StateRequestAddition(pending=extensions.PendingAddition(_WRITER, each, 1e9))
        for each in (FAR, -FAR, 5, None)
    ),
    StateRequestAddition(pending=extensions.PendingAddition(_WRITER, 5, -1e300)),
    StateRequestAddition(keep=bytes.fromhex(_WRITER)),
)


def odd_requests(stranger: Stranger) -> Iterator[object]:
    """As a client: requests with numbers and names that no client sends."""
    from ospltool.client import DurabilityClient
    from ospltool.client.asking import ask

    domain = stranger.participant.domain_id
    with DurabilityClient(domain, uri=os.environ["CYCLONEDDS_URI"]) as client:
        client.session.wait_for_services(time.monotonic() + PATIENCE_S)
        for addition in ODD_REQUESTS:
            yield ask(client.session, "Reading", ("stock",), time.monotonic() + 0.2, addition=addition)


def _gifts(store: str, lineage: list[Any], aligner: str, to: str, number: int) -> Iterator[bytes]:
    """The batches of a gift with an invented sample, of a group that a store has."""
    with StoreView(Path(store)) as view:
        held = next(each for each in view.sets("stock") if each.state is SetState.COMPLETE)
        loaded = [(description, [*samples]) for description, samples in view.load(held.version, DamageLog())]
    ((description, samples),) = loaded
    invented = make_sample(2_000_000_000, b"w" * 16, DATA, b"\xff" * 4, samples[0].payload)
    rows = [(stream.GroupBegin(description, NO_FLOOR), SampleRows.coerce([invented]))]
    begin = stream.StreamBegin("stock", aligner, Epoch(*lineage), (AligneeRequest(to, 0, GIVE),), 1, 1)
    return stream.batches(bytes([number] * 16), begin, rows)


def gifts(
    stranger: Stranger, store: str, lineage: list[Any], aligners: list[str], to: str
) -> Iterator[object]:
    """As fellows of a node: take this sample of your lineage, of a group of yours."""
    for number, aligner in enumerate(aligners):
        sender = BulkSender(stranger.participant, [receiver_partition(PARTITION, to)], [])
        assert sender._writer.wait_matched(1, PATIENCE_S)
        for batch in _gifts(store, lineage, aligner, to, number + 1):
            sender.send(batch, PATIENCE_S)
        sender.finish(PATIENCE_S)
        sender.close()
        yield aligner


class _Proving:
    """Proofs of one who has seen messages with proofs, and does not know the secret."""

    def __init__(self, seen: bytes) -> None:
        self.seen = seen
        self.way: Callable[[bytes], bytes] = self.none

    def proves_with(self) -> bytes:
        return b""

    def prove(self, topic: str, writer: bytes, sender: bytes, payload: bytes) -> bytes:
        return self.way(payload)

    def none(self, payload: bytes) -> bytes:
        return b""

    def invented(self, payload: bytes) -> bytes:
        return self.seen[:4] + os.urandom(proofs.SIZE - 4)

    def of_the_key(self, payload: bytes) -> bytes:
        """The id of the key is seen by all, and serials are moments."""
        return self.seen[:12] + struct.pack("<Q", time.time_ns()) + os.urandom(32)

    def recorded(self, payload: bytes) -> bytes:
        return self.seen[: proofs.SIZE]

    @property
    def ways(self) -> tuple[Callable[[bytes], bytes], ...]:
        return self.none, self.invented, self.of_the_key, self.recorded


_LEAVING: Final = messages.Status(
    incarnation=1 << 40, serial=1 << 40, name="n1", role="Depot", host="127.0.0.1",
    state=ServiceState.TERMINATING, period_s=1.0, expiry_s=2.0, wall_ns=0,
)  # fmt: skip


def forgeries(
    stranger: Stranger, count: int, nodes: list[str], store: str, lineage: list[Any]
) -> Iterator[object]:
    """In the name of each node, on each topic: leave, delete all, look at this; without the secret."""
    topics = {
        codec.STATUS_TOPIC: codec.encode(Outgoing(_LEAVING)),
        codec.NAME_SPACES_TOPIC: codec.encode(Outgoing(messages.NameSpaces(1 << 40, 1 << 40, ()))),
        codec.MESSAGE_TOPIC: codec.encode(Outgoing(messages.DeleteData("*", "*", 2_000_000_000))),
        ATTACHMENT_TOPIC: b"",
        MONITOR_TOPIC: monitor.encode(fake.snapshot(7)),
        EVENTS_TOPIC: b"{}",
    }
    recorder = Channel(
        stranger.participant, topics=[ChannelTopic(codec.STATUS_TOPIC, is_state=True, writes=False)]
    )
    seen: list[bytes] = []

    def has_seen() -> bool:
        seen.extend(one.payload for one in recorder._readers[codec.STATUS_TOPIC].drain(100))
        return bool(seen)

    assert recorder.signal.wait_until(has_seen, PATIENCE_S)
    recorder.close()  # it must not hold us up
    sender, recorded = cdr.unpack_named(seen[0])
    proving = _Proving(recorded)
    stranger.participant.proofs = proving  # type: ignore[assignment]  # it only proves
    bulk = BulkSender(stranger.participant, [receiver_partition(PARTITION, node) for node in nodes], [])
    assert bulk._writer.wait_matched(len(nodes), PATIENCE_S)
    gift = next(_gifts(store, lineage, nodes[1], nodes[0], 1))
    deletion = encode(
        StateRequest(
            RequestId(stranger.participant.guid, 1), "*", ("*",),
            extensions=extensions.pack(
                extensions.StateRequestAddition(delete=extensions.DeletionOrder("*", "*", 2_000_000_000))
            ),
        )
    )  # fmt: skip
    topic = endpoints.open_topics(stranger.participant)[endpoints.STATE_REQUEST]
    requests = endpoints.open_writer(stranger.participant, topic, (endpoints.PARTITION,))
    assert requests.wait_matched(len(nodes), PATIENCE_S)
    kinds: list[Callable[[], None]] = []
    for name, payload in topics.items():
        is_state = name not in (codec.MESSAGE_TOPIC, EVENTS_TOPIC)
        for victim in nodes:
            kinds.append(partial(stranger.write, name, payload, victim, state=is_state))
    kinds.append(
        partial(stranger.write, codec.STATUS_TOPIC, recorded[proofs.SIZE :], sender.decode(), state=True)
    )
    kinds.append(lambda: bulk.send(gift, PATIENCE_S))
    kinds.append(lambda: requests.write(deletion, stamp_ns()))
    for number in range(count):
        proving.way = proving.ways[number % len(proving.ways)]
        with contextlib.suppress(DdsTimeout):  # it is behind for three seconds: the next one
            kinds[number // len(proving.ways) % len(kinds)]()
        yield number


def false_views(stranger: Stranger, nodes: list[str]) -> Iterator[object]:
    """To consoles, in the name of each node: I am called `fooled`."""
    for node in nodes:
        document = json.loads(monitor.encode(fake.snapshot(7)))
        document["data"] |= {"id": node, "name": "fooled"}
        stranger.write(MONITOR_TOPIC, json.dumps(document).encode(), node, state=True)
        yield node


_SHOWN: Final = (MONITOR_TOPIC, EVENTS_TOPIC, PAST_TOPIC)
_COPIED: Final = (*_SHOWN, codec.STATUS_TOPIC, codec.NAME_SPACES_TOPIC, codec.MESSAGE_TOPIC)


def copies(stranger: Stranger, victim: str, count: int, seed: int) -> Iterator[object]:
    """As an invented node: all that a node sends in my own name, and what consoles get with odd values."""
    states = {*_COPIED} - {EVENTS_TOPIC, codec.MESSAGE_TOPIC}
    channel = Channel(stranger.participant, topics=[ChannelTopic(name, name in states) for name in _COPIED])
    chance, newest, sent = random.Random(seed), dict[str, bytes](), 0
    while sent < count:
        channel.signal.wait(1 / 30)
        for one in channel.take():
            if one.sender_id == victim:
                newest[one.topic] = one.payload.replace(victim.encode(), ID.encode())
                if one.topic not in _SHOWN:
                    channel.publish(one.topic, ID, newest[one.topic])
        for name in newest.keys() & {*_SHOWN}:
            with contextlib.suppress(DdsTimeout):  # it is behind for three seconds: the next one
                channel.publish(name, ID, damaged_values(newest[name], chance.randrange(1 << 30)))
            sent += 1
            yield name


def hiding(stranger: Stranger, nodes: list[str], event: str, count: int) -> Iterator[object]:
    """As one who hides what nodes have told: I remember it of them otherwise, and they know worse of me."""
    told = NodeEvent("", "", 1, 1, "TERMINATED", "d", "WARNING", event, "long ago")
    for number, node in enumerate(nodes):
        events = (
            msgspec.structs.replace(told, node=node),
            msgspec.structs.replace(told, node=node, time_ns=FAR_NS),
        )
        stranger.write(PAST_TOPIC, monitor.encode(NodePast(ID, "x", events, (), ())), state=True)
        yield node
        shown = msgspec.structs.replace(
            fake.snapshot(7), id=ID, name=f"n{number + 1}", started_ns=time.time_ns()
        )
        stranger.write(MONITOR_TOPIC, monitor.encode(shown), state=True)
        yield node
    for number in range(count):
        stranger.write(codec.MESSAGE_TOPIC, b"no message %d" % number, readers=len(nodes), state=False)
        yield number


def deletions(stranger: Stranger, nodes: int) -> Iterator[object]:
    """As somebody who is no fellow: delete everything, also what is written in the future."""
    for until_ns in (NEVER_NS, time.time_ns()):
        payload = codec.encode(Outgoing(DeleteData("*", "*", until_ns)))
        stranger.write(codec.MESSAGE_TOPIC, payload, readers=nodes, state=False)
        yield until_ns


ATTACKS: Final[dict[str, Attack]] = {
    "false views": false_views,
    "forgeries": forgeries,
    "gifts": gifts,
    "false addresses": false_addresses,
    "odd requests": odd_requests,
    "deletions": deletions,
    "copies": copies,
    "hiding": hiding,
}


class Attacker(Program):
    """The process of a stranger, seen from the test."""

    module = "tests.adversary.strangers"

    def __init__(self, lab: Lab, **options: Any) -> None:
        super().__init__("attacks", {"domain": lab.domain, **options}, lab.environ)
        lab.adopt(self)

    def attack(self, name: str, *, timeout_s: float = PATIENCE_S * 2, **options: Any) -> int:
        """Carry out an attack; return the number of its steps."""
        self.tell(attack=name, options=options)
        steps: int = self.answer("steps", timeout_s)
        return steps


def main(options: dict[str, Any]) -> None:
    """Attack as the test says, until it closes our standard input."""
    stranger = Stranger(options["domain"], TagRole(options.get("role", "node")))
    for line in sys.stdin:
        wanted = json.loads(line)
        steps = sum(1 for _ in ATTACKS[wanted["attack"]](stranger, **wanted["options"]))
        print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[2]))
