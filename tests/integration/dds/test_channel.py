from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from engine.dds.cdr import HEADER, pack_named
from engine.dds.channel import Channel, ChannelTopic, PeerAttached, PeerDetached, ReceivedMessage
from engine.dds.errors import DdsError
from engine.dds.own_types import Message
from engine.dds.participant import NodeParticipant
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic
from engine.dds.writer import RawWriter
from tests.integration.dds import sample_types
from tests.integration.dds.processes import Arena, wait_until

pytestmark = pytest.mark.dds


class Listener:
    """A channel, and all that came through it."""

    def __init__(self, participant: NodeParticipant) -> None:
        self.channel = Channel(participant)
        self.received: list[ReceivedMessage] = []
        self.changes: list[PeerAttached | PeerDetached] = []

    def look(self) -> None:
        self.received += self.channel.take()
        self.changes += self.channel.take_changes()

    def until(self, thing: object, timeout_s: float = 30.0) -> None:
        def there() -> bool:
            self.look()
            return thing in self.changes or thing in self.received

        wait_until(there, self.channel.wait, timeout_s)


@pytest.fixture
def listener(participant: NodeParticipant) -> Iterator[Listener]:
    made = Listener(participant)
    yield made
    made.channel.close()


def test_nodes_attach_and_nothing_sent_from_then_on_is_lost(
    arena: Arena, participant: NodeParticipant, listener: Listener
) -> None:
    peer = arena.start("node", name="peer")
    guid = bytes.fromhex(peer.ready()["guid"])
    listener.until(PeerAttached(guid))
    listener.channel.publish("d_message", "me", b"ping")
    listener.until(ReceivedMessage("d_message", "peer", b"pong", guid))
    assert listener.channel.peers() == {guid}
    said = []
    for line in peer.heard(20):
        said.append((line.get("change") or line["payload"], line.get("participant")))
        if len(said) == 2:
            break
    assert set(said) == {("ping", None), ("PeerAttached", participant.guid.hex())}


def test_a_node_that_comes_later_gets_the_last_state_and_no_old_message(
    arena: Arena, listener: Listener
) -> None:
    for number in range(3):
        listener.channel.publish("d_status", "me", b"state %d" % number)
        listener.channel.publish("d_message", "me", b"message %d" % number)
    peer = arena.start("node", name="peer")
    guid = bytes.fromhex(peer.ready()["guid"])
    listener.until(ReceivedMessage("d_status", "peer", b"state of peer", guid))
    listener.until(PeerAttached(guid))
    listener.channel.publish("d_message", "me", b"last")
    heard = []
    for line in peer.heard(20):
        heard.append(line.get("payload"))
        if {"state 2", "last"} <= {*heard}:  # two topics: either may come first
            break
    assert sorted(one for one in heard if one) == ["last", "state 2"]


def test_a_reader_of_states_that_comes_and_goes_leaves_nobody_awake(
    arena: Arena, participant: NodeParticipant
) -> None:
    """Whoever only publishes takes nothing: what is triggered for ever would spin its thread."""
    shown = Channel(participant, topics=[ChannelTopic("d_monitor", is_state=True, reads=False)])
    seen = Channel(participant, topics=[ChannelTopic("d_past", is_state=True, writes=False)])
    with NodeParticipant(arena.domain, arena.uri, "console", b"c" * 16) as console:
        watching = Channel(console, topics=[ChannelTopic("d_monitor", is_state=True, writes=False)])
        told = Channel(console, topics=[ChannelTopic("d_past", is_state=True, reads=False)])
        shown.publish("d_monitor", "me", b"state")
        wait_until(lambda: bool(watching.take()), watching.wait)
        told.publish("d_past", "it", b"past")
        wait_until(lambda: bool(seen.take()), seen.wait)
        check_goes_to_sleep(shown, told)
    check_goes_to_sleep(shown)
    for channel in (shown, seen):
        channel.close()


def check_goes_to_sleep(*channels: Channel) -> None:
    """What woke a channel does so a few times at most, also if it takes nothing."""
    for channel in channels:
        assert not all(channel.wait(0.3) for _ in range(20))


def test_a_node_that_does_not_know_us_yet_is_not_attached(arena: Arena, listener: Listener) -> None:
    class Silent(Channel):
        """Matches everybody and tells nobody."""

        untold: bytes | None = None

        def publish(self, topic: str, sender_id: str, payload: bytes) -> None:
            self.untold = payload

    with NodeParticipant(arena.domain, arena.uri, "silent", b"s" * 16) as other:
        silent = Silent(other)

        def matched() -> bool:
            silent.take()
            return silent.untold is not None

        wait_until(matched, silent.wait)
        listener.channel.wait(0.5)
        listener.look()
        assert listener.changes == []
        assert silent.untold is not None
        Channel.publish(silent, "d_attachment", "silent", silent.untold)
        listener.until(PeerAttached(other.guid))


def test_a_killed_node_detaches_with_its_lease(arena: Arena, listener: Listener) -> None:
    """It goes before one that was silent earlier, and has the lease of Cyclone DDS itself."""
    peers = [arena.start("node", name="usual", lease_s=10.0), arena.start("node", name="peer")]
    usual, guid = [bytes.fromhex(peer.ready()["guid"]) for peer in peers]
    for one in (usual, guid):
        listener.until(PeerAttached(one))
    peers[0].kill()
    listener.channel.publish("d_message", "me", b"ping")
    listener.until(ReceivedMessage("d_message", "peer", b"pong", guid))
    peers[1].kill()
    listener.until(PeerDetached(guid))
    gone = [change for change in listener.changes if isinstance(change, PeerDetached)]
    assert gone[0] == PeerDetached(guid)
    assert guid not in listener.channel.peers()


def test_a_node_that_was_silent_for_longer_than_its_lease_attaches_anew(
    arena: Arena, listener: Listener
) -> None:
    peer = arena.start("node", name="peer")
    guid = bytes.fromhex(peer.ready()["guid"])
    listener.until(PeerAttached(guid))
    peer.signal(signal.SIGSTOP)
    listener.until(PeerDetached(guid))
    listener.changes.clear()
    peer.signal(signal.SIGCONT)
    listener.until(PeerAttached(guid))
    listener.channel.publish("d_message", "me", b"ping")
    listener.until(ReceivedMessage("d_message", "peer", b"pong", guid))


def test_samples_that_are_not_ours_are_counted_and_never_raise(
    arena: Arena, participant: NodeParticipant, listener: Listener
) -> None:
    with NodeParticipant(arena.domain, arena.uri, "stranger", b"s" * 16) as stranger:
        qos = EndpointQos(history_depth=0, partitions=("durabilityPartition",))
        same_type = RawWriter(stranger, Topic.of_class(stranger, "d_message", Message), qos)
        same_type.wait_matched(1, 10)
        foreign = RawWriter(stranger, Topic.of_class(stranger, "d_message", sample_types.Plain), qos)
        foreign.write(HEADER + bytes(16), 1)
        not_utf8 = pack_named(b"\xff\xfe", b"x")
        same_type.write(not_utf8, 1)
        too_long = HEADER + (400).to_bytes(4, "little") + b"n" * 399 + b"\0" + bytes(4)
        same_type.write(too_long, 2)
        same_type.write(pack_named(b"stranger", b"good"), 3)
        for rubbish in (b"", b"\0\1\0\0", b"\0\1\0\0\xff\xff\xff\x7fabcd", b"\x42" * 40):
            with pytest.raises(DdsError, match=r"BAD_PARAMETER|ERROR"):
                same_type.write(rubbish, 4)
        listener.until(ReceivedMessage("d_message", "stranger", b"good", stranger.guid))
    assert listener.channel.malformed == {"d_message": 2}
    assert [one.payload for one in listener.received] == [b"good"]


def test_our_own_messages_do_not_come_back(listener: Listener) -> None:
    listener.channel.publish("d_status", "me", b"mine")
    listener.channel.publish("d_message", "me", b"mine")
    listener.channel.wait(0.3)
    listener.look()
    assert listener.received == []


@pytest.mark.parametrize("sender", ["", "x" * 256, "a\0b"])
def test_a_sender_id_that_cannot_travel_is_refused(listener: Listener, sender: str) -> None:
    with pytest.raises(ValueError, match="a sender id has"):
        listener.channel.publish("d_message", sender, b"")
