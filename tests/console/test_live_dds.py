from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.dds.channel import Channel, ChannelTopic
from engine.dds.discovery import Discovery, EndpointSeen
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.subscription_endpoints import PARTITION as PERSISTENCE_PARTITION
from engine.dds.uri import cyclone_uri
from engine.dds.waiting import Signal
from engine.persistence.service import replica_view as view
from engine.persistence.service.service_process import STATUS_TOPICS
from engine.runtime import monitor
from ospltool.live.dds import LiveFeed, _Link
from ospltool.live.feed import NoticeKind, Update
from ospltool.live.model import SystemModel
from ospltool.live.samples import LatestValues
from ospltool.live.topics import InstanceValue
from tests import fake
from tests.fake import node_id

pytestmark = pytest.mark.dds

DOMAIN = 171
TOPIC = "Observation"
TOPICS = (
    ChannelTopic("d_monitor", is_state=True, reads=False),
    ChannelTopic("d_monitorEvents", is_state=False, reads=False),
)


@pytest.fixture
def uri() -> str:
    """A domain of our own, on loopback: the tag keeps tests that run at the same time apart."""
    return cyclone_uri(tag=f"console-{os.getpid()}-{time.monotonic_ns()}", environment={})


@pytest.fixture
def feed(uri: str) -> Iterator[LiveFeed]:
    feed = LiveFeed(DOMAIN, uri=uri)
    yield feed
    feed.close()


APPLICATION = """
import sys
sys.path[:0] = [{root!r}, {samples!r}]
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic
from observation import TOPIC, Observation
from publisher import QOS
domain = Domain({domain}, {uri!r})
participant = DomainParticipant({domain}, qos=Qos(Policy.EntityName("weather")))
topic = Topic(participant, TOPIC, Observation, qos=QOS)
writer = DataWriter(Publisher(participant, Qos(Policy.Partition(["ships"]))), topic, qos=QOS)
for line in sys.stdin:
    writer.write(Observation(7, int(line), 0, "\\x1b[31m"))
"""


@pytest.fixture
def application(uri: str) -> Iterator[subprocess.Popen[str]]:
    """An application with a durable writer; each number that it is told is a value of one instance."""
    root = Path(__file__).parents[2]
    text = APPLICATION.format(root=str(root), samples=str(root / "samples"), domain=DOMAIN, uri=uri)
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close() if process.stdin else None


def test_readers_and_writers_of_applications_are_seen_with_their_process_and_values(
    feed: LiveFeed, application: subprocess.Popen[str]
) -> None:
    model = SystemModel()
    follow(feed, model, lambda _: bool(model.applications.by_topic))
    ((one,),) = model.applications.by_topic.values()
    assert (one.topic, one.partitions, one.is_writer, one.is_durable) == (TOPIC, ("ships",), True, True)
    assert one.application[1:4] == ("weather", application.pid, socket.gethostname())

    values = LatestValues(feed, TOPIC)
    try:
        deadline_s, number = time.monotonic() + 30, 0
        found: list[InstanceValue] = []
        while not (found and found[0].samples > 1) and time.monotonic() < deadline_s:
            number += 1  # a writer alone keeps nothing for a reader that has not met it yet
            assert application.stdin is not None
            print(number, file=application.stdin, flush=True)
            time.sleep(0.2)
            found = values.values()
        assert [(each.key, each.keys, each.is_alive, each.partition) for each in found] == [
            ("station=7", ("station",), True, "ships")
        ]
        assert found[0].fields["remark"] == "\x1b[31m"
        assert found[0].changed_ns > 0
        assert values.problem == ""
        follow(feed, model, lambda _: len(model.applications.by_participant) > 1)
        assert {each.application.is_watch for each in model.applications.by_topic[TOPIC]} == {True, False}
        assert sum(model.applications.hosts[socket.gethostname()].values()) == 1, "this watch is none"
    finally:
        values.close()
    application.communicate()
    follow(feed, model, lambda _: not model.applications.by_topic)


class Node:
    """What a node process publishes of itself, from this process."""

    def __init__(self, number: int, uri: str) -> None:
        self.number = number
        self.participant = NodeParticipant(DOMAIN, uri, f"n{number}", bytes.fromhex(node_id(number)))
        self.channel = Channel(self.participant, topics=TOPICS)

    def show(self, *, sender: str = "", payload: bytes | None = None) -> None:
        content = payload or monitor.encode(fake.snapshot(self.number, fake.name_space("Orders", 1)))
        self.channel.publish("d_monitor", sender or node_id(self.number), content)

    def tell(self, number: int) -> None:
        event = fake.event(number, self.number, time.time_ns(), f"event {number}")
        self.channel.publish("d_monitorEvents", node_id(self.number), monitor.encode(event))

    def close(self) -> None:
        self.participant.close()


@pytest.fixture
def node(uri: str) -> Iterator[Node]:
    node = Node(1, uri)
    yield node
    node.close()


def follow(
    feed: LiveFeed, model: SystemModel, until: Callable[[Update], bool], timeout_s: float = 30
) -> list[Update]:
    """Poll as a console does until an update is the one waited for."""
    seen = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        update = feed.poll()
        model.apply(update, feed.now_ns())
        if update:
            seen.append(update)
            if until(update):
                return seen
        time.sleep(0.02)
    raise AssertionError(f"not seen in {timeout_s} s: {seen}")


def has_notice(kind: NoticeKind) -> Callable[[Update], bool]:
    return lambda update: any(notice.kind is kind for notice in update.notices)


def test_a_console_that_comes_late_sees_the_last_snapshot(uri: str, node: Node) -> None:
    node.show()
    late = LiveFeed(DOMAIN, uri=uri)
    try:
        model = SystemModel()
        follow(late, model, lambda update: bool(update.snapshots))
        assert model.nodes[node_id(1)].snapshot == fake.snapshot(1, fake.name_space("Orders", 1))
    finally:
        late.close()


def test_events_arrive_in_order(feed: LiveFeed, node: Node) -> None:
    model = SystemModel()
    node.show()
    follow(feed, model, lambda update: bool(update.snapshots))
    for number in range(1, 51):
        node.tell(number)
    follow(feed, model, lambda update: any(event.number == 50 for event in update.events))
    assert [event.number for event in model.events] == list(range(1, 51))
    assert model.dropped == 0


def test_a_node_that_leaves_is_lost_and_its_last_snapshot_stays(feed: LiveFeed, uri: str) -> None:
    first, second = Node(1, uri), Node(2, uri)
    model = SystemModel()
    try:
        first.show()
        second.show()
        follow(feed, model, lambda _: len(model.nodes) == 2)
        second.close()
        follow(feed, model, has_notice(NoticeKind.NODE_LOST))
        assert model.nodes[node_id(2)].gone_ns
        assert model.nodes[node_id(2)].name_spaces["Orders"].count == 1000
        assert not model.nodes[node_id(1)].gone_ns
        assert not model.domain_lost_ns
    finally:
        first.close()
        second.close()


def test_without_any_node_the_domain_is_lost_and_found_again(feed: LiveFeed, uri: str) -> None:
    model = SystemModel()
    first = Node(1, uri)
    first.show()
    follow(feed, model, lambda update: bool(update.snapshots))
    first.close()
    follow(feed, model, has_notice(NoticeKind.DOMAIN_LOST))
    assert model.domain_lost_ns
    again = Node(1, uri)
    try:
        again.show()
        follow(feed, model, has_notice(NoticeKind.DOMAIN_FOUND))
        assert not model.domain_lost_ns
        assert not model.nodes[node_id(1)].gone_ns
    finally:
        again.close()


KILLED = """
import sys, time
from engine.dds.channel import Channel, ChannelTopic
from engine.dds.participant import NodeParticipant
from engine.runtime import monitor
from tests import fake

participant = NodeParticipant(int(sys.argv[1]), sys.argv[2], "n7", bytes.fromhex(fake.node_id(7)))
channel = Channel(participant, topics=(ChannelTopic("d_monitor", is_state=True, reads=False),))
channel.publish("d_monitor", fake.node_id(7), monitor.encode(fake.snapshot(7)))
print("shown", flush=True)
sys.stdin.read()
"""


def test_a_node_killed_with_sigkill_is_lost_when_its_lease_ends(feed: LiveFeed, uri: str) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(DOMAIN), uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        model = SystemModel()
        follow(feed, model, lambda _: node_id(7) in model.nodes)
        process.kill()
        follow(feed, model, has_notice(NoticeKind.NODE_LOST))
        assert model.nodes[node_id(7)].gone_ns
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("sender", "payload", "reason"),
    [
        ("", b"\x1b[2J not json", "not a monitor message"),
        ("", b'{"format_version":2,"kind":"node","data":{}}', "format 2 is not 1"),
        ("n2", None, "sender n2 speaks for"),
    ],
    ids=["no JSON", "newer format", "wrong sender"],
)
def test_what_is_no_monitor_message_is_refused_counted_and_told(
    feed: LiveFeed, node: Node, sender: str, payload: bytes | None, reason: str
) -> None:
    model = SystemModel()
    node.show(sender=sender, payload=payload)
    follow(feed, model, has_notice(NoticeKind.FAULT))
    assert reason in model.notices[0].text
    assert model.dropped == 1
    assert not model.nodes


def test_captions_come_with_the_next_update(feed: LiveFeed) -> None:
    feed.set_caption("Act 1")
    assert feed.poll().caption == "Act 1"
    assert feed.poll().caption is None


class PersistenceService:
    """What the process of a persistence service publishes of itself, from this process."""

    def __init__(self, name: str, uri: str) -> None:
        self.view = fake.replica(name, fake.provided(1))
        tag = bytes.fromhex(self.view.id)
        self.participant = NodeParticipant(DOMAIN, uri, name, tag, TagRole.PERSISTENCE)
        self.channel = Channel(self.participant, PERSISTENCE_PARTITION, topics=STATUS_TOPICS)

    def show(self, *, sender: str = "", payload: bytes | None = None) -> None:
        self.channel.publish(view.TOPIC, sender or self.view.name, payload or view.encode(self.view))

    def close(self) -> None:
        self.participant.close()


@pytest.fixture
def service(uri: str) -> Iterator[PersistenceService]:
    made = PersistenceService("a", uri)
    yield made
    made.close()


def test_a_console_that_comes_late_sees_what_persistence_services_showed_last(
    uri: str, service: PersistenceService
) -> None:
    service.show()
    late = LiveFeed(DOMAIN, uri=uri)
    try:
        model = SystemModel()
        follow(late, model, lambda update: bool(update.replicas))
        assert [one.view for one in model.persistence.ordered()] == [service.view]
    finally:
        late.close()


def test_a_persistence_service_that_leaves_is_lost_and_so_is_the_domain_when_it_was_the_last(
    feed: LiveFeed, uri: str, node: Node
) -> None:
    first = PersistenceService("a", uri)
    model = SystemModel()
    first.show()
    node.show()
    follow(feed, model, lambda _: bool(model.persistence) and bool(model.nodes))
    node.close()
    follow(feed, model, has_notice(NoticeKind.NODE_LOST))
    assert not model.domain_lost_ns
    first.close()
    follow(feed, model, has_notice(NoticeKind.DOMAIN_LOST))
    assert model.persistence.ordered()[0].gone_ns


@pytest.mark.parametrize(
    ("sender", "payload", "reason"),
    [
        ("", b"\x1b[2J not json", "not a view of a replica"),
        ("b", None, "sender b speaks for a"),
    ],
    ids=["no JSON", "wrong sender"],
)
def test_what_no_persistence_service_would_show_is_refused_counted_and_told(
    feed: LiveFeed, service: PersistenceService, sender: str, payload: bytes | None, reason: str
) -> None:
    model = SystemModel()
    service.show(sender=sender, payload=payload)
    follow(feed, model, has_notice(NoticeKind.FAULT))
    assert reason in model.notices[0].text
    assert model.dropped == 1
    assert not model.persistence


def test_nobody_has_to_know_of_a_reader_more_until_there_is_a_persistence_service(
    feed: LiveFeed, uri: str, node: Node
) -> None:
    signal = Signal(node.participant)
    discovery = Discovery(node.participant, signal)
    topics: set[str] = set()

    def has(topic: str) -> Callable[[], bool]:
        def look() -> bool:
            topics.update(one.topic for one in discovery.take() if isinstance(one, EndpointSeen))
            return topic in topics

        return look

    node.show()
    model = SystemModel()
    follow(feed, model, lambda update: bool(update.snapshots))
    assert signal.wait_until(has("d_monitorEvents"), 20)
    assert view.TOPIC not in topics
    service = PersistenceService("a", uri)
    try:
        service.show()
        follow(feed, model, lambda update: bool(update.replicas))
        assert signal.wait_until(has(view.TOPIC), 20)
    finally:
        service.close()


def test_a_link_that_carries_again_is_opened_again_unless_somebody_is_heard(
    uri: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cyclone DDS forgets unicast peers that did not answer: a watch was deaf for 25 s, or for ever."""
    problem, opened = ["interface e0 has no carrier"], []
    monkeypatch.setattr("ospltool.live.dds.broken_links", lambda _: problem[0])
    monkeypatch.setattr("ospltool.live.dds.without_route", lambda _: ())

    class Counted(_Link):
        def __init__(self, *where: Any) -> None:
            opened.append(where)
            super().__init__(*where)

    monkeypatch.setattr("ospltool.live.dds._Link", Counted)
    feed = LiveFeed(DOMAIN, uri=uri)
    heard: list[str] = []

    def wait_for(what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not what():
            assert time.monotonic() < deadline
            feed.wait(0.5)
            update = feed.poll()
            heard.extend(notice.kind.value for notice in update.notices)
            heard.extend(one.snapshot.name for one in update.snapshots)

    try:
        for _ in range(2):  # the second time n1 is heard
            wait_for(lambda: heard[-1:] == ["link lost"])
            problem[0] = ""
            wait_for(lambda: "link found" in heard and len(opened) == 2)
            node.show()
            wait_for(lambda: "n1" in heard)
            heard.clear()
            problem[0] = "interface e0 has no carrier"
    finally:
        feed.close()
    assert len(opened) == 2


def test_a_watch_without_a_route_to_its_peers_is_cut_off_before_it_hears_anybody(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.live.dds.without_route", tuple)
    feed = LiveFeed(DOMAIN, uri=uri.replace("<Peers>", '<Peers><Peer Address="10.0.0.9"/>'))
    try:
        model = SystemModel()
        follow(feed, model, has_notice(NoticeKind.LINK_LOST))
        assert model.link_lost is not None
        assert model.link_lost.text == "no route leads to 10.0.0.9"
    finally:
        feed.close()


def test_a_watch_that_no_route_leads_away_from_is_cut_off(
    uri: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = [True]
    monkeypatch.setattr("ospltool.live.dds.without_route", lambda each: tuple(each) if refuses[0] else ())
    feed = LiveFeed(DOMAIN, uri=uri)
    try:
        model = SystemModel()
        node.show()
        follow(feed, model, has_notice(NoticeKind.LINK_LOST))
        assert model.link_lost is not None
        assert model.link_lost.text == "no route leads to 10.0.0.1"
        assert model.route_lost is not None
        refuses.clear()
        refuses.append(False)
        follow(feed, model, lambda _: not (model.link_lost or model.route_lost))
    finally:
        feed.close()
