from __future__ import annotations

import contextlib
import hashlib
import os
import threading

import pytest

from engine.dds.bulk import MAX_BATCH_BYTES, BulkReceiver, BulkSender
from engine.dds.discovery import Discovery, EndpointSeen
from engine.dds.errors import DdsTimeout
from engine.dds.participant import NodeParticipant
from engine.dds.waiting import Signal
from tests.integration.dds.processes import Arena, PeakMemory

pytestmark = pytest.mark.dds

MIB = 1 << 20


def test_a_slow_receiver_holds_the_sender_and_memory_stays_bounded(
    arena: Arena, participant: NodeParticipant
) -> None:
    peer = arena.start("bulk_receiver", partition="slow", limit=4, pause_s=0.01)
    target = bytes.fromhex(peer.ready()["guid"])
    sender = BulkSender(participant, ["slow"], [target])
    assert sender.wait_targets(20) == frozenset()
    batches = [os.urandom(MIB) for _ in range(8)]
    digest = hashlib.sha256()
    peak = PeakMemory()
    for number in range(64):
        sender.send(batches[number % 8], 20)
        digest.update(batches[number % 8])
    assert sender.finish(20)
    grown_kib = peak.grown_kib()
    sender.close()
    end = peer.expect(lambda line: "bytes" in line, 20)
    assert (end["bytes"], end["digest"]) == (64 * MIB, digest.hexdigest())
    assert end["rejected"] > 0
    assert grown_kib < 32 * 1024
    assert end["grown_kib"] < 32 * 1024


def test_one_stream_serves_many_receivers_and_no_other(arena: Arena, participant: NodeParticipant) -> None:
    peers = [arena.start("bulk_receiver", partition=name) for name in ("a", "b", "c")]
    guids = [bytes.fromhex(peer.ready()["guid"]) for peer in peers]
    sender = BulkSender(participant, ["a", "b"], guids[:2])
    assert sender.wait_targets(20) == frozenset()
    sender.send(b"x" * 1000, 20)
    sender.send(b"", 20)
    assert sender.finish(20)
    sender.close()
    for peer in peers[:2]:
        assert peer.expect(lambda line: "bytes" in line)["bytes"] == 1000
    assert list(peers[2].heard(0.3)) == []


def test_a_sender_announces_its_name_and_priority(participant: NodeParticipant) -> None:
    flag = Signal(participant)
    discovery = Discovery(participant, flag)
    sender = BulkSender(participant, ["anywhere"], [], "announced", name="sends", priority=33)

    def is_seen() -> bool:
        seen = [each for each in discovery.take() if isinstance(each, EndpointSeen)]
        found = [each.endpoint_qos for each in seen if each.topic == "announced"]
        return [(qos.name, qos.transport_priority) for qos in found] == [("sends", 33)]

    assert flag.wait_until(is_seen, 20)
    sender.close()


def test_a_target_that_does_not_come_is_named(participant: NodeParticipant) -> None:
    nobody = b"\1" * 16
    sender = BulkSender(participant, ["nobody"], [nobody])
    assert sender.wait_targets(0.2) == {nobody}


def test_a_receiver_that_takes_nothing_makes_the_send_time_out(participant: NodeParticipant) -> None:
    receiver = BulkReceiver(participant, "mine", limit=1)
    sender = BulkSender(participant, ["mine"], [])

    def send_eight() -> None:
        for _ in range(8):
            sender.send(b"x" * MIB, 0.3)

    with pytest.raises(DdsTimeout):
        send_eight()
    taken = receiver.take()
    assert [one.payload for one in taken] == [b"x" * MIB]
    sender.send(b"after", 20)
    assert [one.payload for one in receiver.take()] == [b"after"]


def test_the_end_of_a_stream_is_told_after_its_batches(participant: NodeParticipant) -> None:
    receiver = BulkReceiver(participant, "mine")
    sender = BulkSender(participant, ["mine"], [])
    sender.send(b"one", 1)
    sender.close()
    assert receiver.wait(1)
    taken = receiver.take()
    assert [one.payload for one in taken] == [b"one", None]
    assert {one.participant for one in taken} == {participant.guid}
    assert {one.stream for one in taken} == {sender.stream}


def test_a_batch_above_the_bound_is_refused(participant: NodeParticipant) -> None:
    sender = BulkSender(participant, ["mine"], [])
    with pytest.raises(ValueError, match="the limit is"):
        sender.send(bytes(MAX_BATCH_BYTES + 1), 1)


def test_a_blocked_sender_does_not_stop_other_threads(participant: NodeParticipant) -> None:
    receiver = BulkReceiver(participant, "mine", limit=1)
    sender = BulkSender(participant, ["mine"], [])
    sender.send(bytes(MIB), 1)
    ticks = 0
    done = threading.Event()

    def send() -> None:
        with contextlib.suppress(DdsTimeout):
            sender.send(bytes(MIB), 1.0)
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    while not done.wait(0.01):
        ticks += 1
    thread.join()
    assert ticks > 10, "a hundred on an idle machine, one or two if the sender held the interpreter"
    receiver.close()
