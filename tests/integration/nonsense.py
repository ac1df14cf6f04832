"""What a hostile or broken participant sends to nodes on their own topics."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from engine.core import messages
from engine.core.messages import Outgoing
from engine.core.name_spaces import Durability, Group
from engine.core.states import Phase, ServiceState
from engine.dds.bulk import BulkSender
from engine.dds.channel import ATTACHMENT_TOPIC, PARTITION, Channel, ChannelTopic
from engine.dds.errors import DdsTimeout
from engine.dds.own_types import SelfCheck
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic
from engine.dds.writer import RawWriter
from engine.node.wire import MONITOR_TOPIC, receiver_partition
from engine.runtime import codec

TOPICS: Final = (*codec.STATE_TOPICS, codec.MESSAGE_TOPIC)
SENDER: Final = "f" * 32
ESCAPE: Final = "\x1b]0;owned\x07"


def _changed(message: messages.Message, **fields: Any) -> bytes:
    """A message with some fields of its body replaced by what does not belong there."""
    document = json.loads(codec.encode(Outgoing(message)))
    document["body"].update(fields)
    return json.dumps(document).encode()


_STATUS: Final = messages.Status(
    incarnation=1,
    serial=1,
    name=ESCAPE,
    role=ESCAPE,
    host="127.0.0.1",
    state=ServiceState.COMPLETE,
    period_s=1.0,
    expiry_s=2.0,
    wall_ns=0,
)


def malformed() -> Iterator[bytes]:
    """Messages that are none."""
    yield b""
    yield random.Random(1).randbytes(5_000)
    yield bytes(5 << 20)
    yield b"[" * 200_000
    yield b"null"
    yield b"[1, 2]"
    yield b'"text"'
    for rest in (
        "",
        ', "kind": "Status", "to": [], "body": null',
        ', "kind": "Status", "to": 7, "body": {}',
        ', "kind": ["Status"], "to": [], "body": {}',
        ', "kind": {}, "to": [], "body": {}',
        f', "kind": "Status", "to": [], "body": {{"a": {"9" * 10_000}}}',
        ', "kind": "Status", "to": [], "body": {"name": "\ud800"}',
    ):
        yield f'{{"version": {codec.VERSION}{rest}}}'.encode("utf-8", "surrogatepass")
    yield _changed(_STATUS, incarnation="1")
    yield _changed(_STATUS, period_s="soon")
    yield _changed(_STATUS, heard=[1, 2])
    yield _changed(_STATUS, heard={"a": 1})
    yield _changed(_STATUS, state=ESCAPE)
    yield _changed(_STATUS, roll_ups=[[]])


def absurd() -> Iterator[bytes]:
    """Well-formed messages with values that make no sense."""
    for changes in (
        {"period_s": -1.0, "expiry_s": -1.0},
        {"period_s": 1e308, "expiry_s": 1e308},
        {"period_s": float("nan"), "expiry_s": float("nan")},
        {"expiry_s": float("inf")},
        {"wall_ns": 1 << 80},
        {"serial": 1 << 200},
        {"heard": [f"{number:032x}" for number in range(20_000)]},
        {"name": "x" * 1_000_000},
    ):
        yield _changed(_STATUS, **changes)
    for description in (b"", b"null", b"[" * 10_000, b'{"group": 1}', bytes(1000), ESCAPE.encode()):
        yield codec.encode(Outgoing(messages.NewGroup(Group("stock", ESCAPE, "0"), description)))
    for purpose in ("initial", "collect", "merge", ESCAPE):
        yield codec.encode(Outgoing(messages.SampleRequest(1 << 70, "stock", purpose)))
    yield codec.encode(Outgoing(messages.Refusal(-1, ESCAPE, ESCAPE)))


def unsupported() -> Iterator[bytes]:
    """Messages of another version, or of a kind that is not known."""
    yield b'{"version": 99, "kind": "Status", "to": [], "body": {}}'
    yield b'{"version": "1", "kind": "Status", "to": [], "body": {}}'
    yield json.dumps({"version": codec.VERSION, "kind": ESCAPE, "to": [], "body": {}}).encode()


def batches() -> Iterator[bytes]:
    """Batches of alignment streams that are none."""
    header = struct.Struct("<4sB16sII")

    def batch(body: bytes, index: int = 0, version: int = 1, check: int | None = None) -> bytes:
        number = os.urandom(16)
        return (
            header.pack(b"OSPL", version, number, index, zlib.crc32(body) if check is None else check) + body
        )

    yield b""
    yield random.Random(2).randbytes(100_000)
    yield batch(b"", version=9)
    yield batch(b"text", check=1)
    yield batch(struct.pack("<BI", 1, 1 << 31))
    yield batch(struct.pack("<BI", 3, 4) + b"abcd")
    yield batch(struct.pack("<BI", 77, 0))
    for body in (b"null", b"{}", b"[" * 100_000, json.dumps({"name_space": 1}).encode()):
        yield batch(struct.pack("<BI", 1, len(body)) + body)


KINDS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    "malformed": malformed,
    "absurd": absurd,
    "unsupported": unsupported,
}


class Hostile:
    """A participant that claims to be a node, or does not even do that."""

    def __init__(self, domain: int, tag: str, nodes: list[str]) -> None:
        role = TagRole(tag)
        self._participant = NodeParticipant(
            domain, os.environ["CYCLONEDDS_URI"], "hostile", bytes.fromhex(SENDER), role
        )
        topics = [
            *(ChannelTopic(name, is_state=True) for name in codec.STATE_TOPICS),
            ChannelTopic(codec.MESSAGE_TOPIC, is_state=False),
        ]
        self._channel = Channel(self._participant, topics=topics)
        self._nodes = nodes
        while len(self._channel.peers()) < len(nodes):
            self._take()
        self._is_open = True
        self._taking = threading.Thread(target=self._take_all)  # our own reader must not hold us up
        self._taking.start()

    def _take(self) -> None:
        self._channel.wait(1.0)
        self._channel.take()

    def _take_all(self) -> None:
        while self._is_open:
            self._take()

    def _publish(self, topic: str, payload: bytes) -> None:
        for _ in range(5):
            try:
                self._channel.publish(topic, SENDER, payload)
            except DdsTimeout:
                continue
            return
        raise AssertionError("the nodes do not take any more")

    def send(self, kind: str) -> int:
        """Send everything of a kind; returns how much of it each node must have got.

        A state may be overwritten by the next one before it is sent, so only messages count for sure.
        """
        if kind == "batches":
            return self._send_batches()
        if kind == "views":
            return self._send_views()
        if kind == "types":
            return self._send_wrong_types()
        if kind == "counters":
            return self._send_counters()
        if kind == "impersonation":
            return self._send_as_others()
        sent = 0
        for payload in KINDS[kind]():
            for topic in TOPICS:
                self._publish(topic, payload)
                sent += topic == codec.MESSAGE_TOPIC
        if kind == "malformed":
            self._publish(ATTACHMENT_TOPIC, b"no list of ids")
            sent += 1
        return sent

    def _send_batches(self) -> int:
        partitions = [receiver_partition(PARTITION, node) for node in self._nodes]
        sender = BulkSender(self._participant, partitions, [])
        sender._writer.wait_matched(len(self._nodes), 10)
        payloads = list(batches())
        for payload in payloads:
            sender.send(payload, 10)
        sender.finish(10)
        sender.close()
        return len(payloads)

    def _send_views(self) -> int:
        """To consoles: what is no view of a node."""
        with contextlib.closing(
            Channel(self._participant, topics=[ChannelTopic(MONITOR_TOPIC, is_state=True, reads=False)])
        ) as channel:
            channel._writers[MONITOR_TOPIC].wait_matched(
                2, 10
            )  # that of the test, and the one that it watches
            payloads = list(malformed())
            for payload in payloads:
                channel.publish(MONITOR_TOPIC, SENDER, payload)
            return len(payloads)

    def _send_wrong_types(self) -> int:
        """The names of our topics with a type that is not theirs: nobody may match."""
        matched = 0
        for name in (*TOPICS, ATTACHMENT_TOPIC):
            topic = Topic.of_class(self._participant, name, SelfCheck)
            writer = RawWriter(self._participant, topic, EndpointQos(partitions=(PARTITION,)))
            sample: Any = SelfCheck(1, "text")
            writer.write(sample.serialize(), 1)
            matched += len(writer.matched())
        return matched

    def _send_as_others(self) -> int:
        """In the name of every node: I am about to end."""
        leaving = {"incarnation": 1 << 40, "serial": 1 << 40, "state": ServiceState.TERMINATING}
        for node in self._nodes:
            self._channel.publish(codec.STATUS_TOPIC, node, _changed(_STATUS, **leaving))
        return len(self._nodes)

    def _send_counters(self) -> int:
        """As a fellow that all others hear: votes, epochs and lineages far above all that were ever used."""
        absurd = (1 << 128) - 2
        status = {"heard": self._nodes, "name": "stranger", "role": "", "life": 7, "began_at": 1}
        self._channel.publish(codec.STATUS_TOPIC, SENDER, _changed(_STATUS, **status))
        deliveries = messages.Deliveries(1, 1, (), 7)
        self._channel.publish(codec.DELIVERIES_TOPIC, SENDER, codec.encode(Outgoing(deliveries)))
        report = messages.NameSpaceReport(
            name="stock",
            elements=(),
            aligner=True,
            master_priority=255,
            durability=Durability.DURABLE,
            quality_ns=1,
            phase=Phase.COMPLETE,
            complete=True,
            holder=True,
            vote=messages.Vote(absurd, SENDER),
            following=None,
            lineage=messages.Epoch(absurd, SENDER, 1),
        )
        name_spaces = messages.NameSpaces(1, 1, (report,), 7)
        self._channel.publish(codec.NAME_SPACES_TOPIC, SENDER, codec.encode(Outgoing(name_spaces)))
        for node in self._nodes:  # and as one who remembers a later run of each node
            outdated = Outgoing(messages.Outdated(absurd, 7, 1), (node,))
            self._channel.publish(codec.MESSAGE_TOPIC, SENDER, codec.encode(outdated))
        return len(self._nodes)

    def close(self) -> None:
        self._is_open = False
        self._taking.join()
        self._participant.close()
