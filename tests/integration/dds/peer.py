"""The other process: `python -m tests.integration.dds.peer ROLE JSON`.

It writes one JSON object a line to its standard output and obeys words on its standard input.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.integration.dds import sample_types
from tests.integration.dds.processes import PeakMemory


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


ended = threading.Event()
"""The parent says that it is enough, or is gone."""


def at_end(action: Callable[[], object]) -> None:
    """Do something when the parent says that it is enough."""

    def wait() -> None:
        sys.stdin.readline()
        ended.set()
        action()

    threading.Thread(target=wait, daemon=True).start()


def leave() -> None:
    """End at once, whatever the main thread waits for."""
    os._exit(0)


def application_qos(options: dict[str, Any]) -> Any:
    from cyclonedds.core import Policy, Qos

    kinds = (Policy.Durability.Volatile, Policy.Durability.TransientLocal, Policy.Durability.Transient)
    policies = [
        Policy.Reliability.Reliable(10_000_000_000),
        Policy.History.KeepAll,
        kinds[options.get("durability", 2)],
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.DurabilityService(5_000_000_000, Policy.History.KeepLast(3), 1000, 100, 50),
    ]
    if options.get("by_source"):
        policies.append(Policy.DestinationOrder.BySourceTimestamp)
    if options.get("deadline_ns"):
        policies.append(Policy.Deadline(options["deadline_ns"]))
    return Qos(*policies)


def application(options: dict[str, Any], group: type, end: type, names: list[str]) -> list[Any]:
    """Readers or writers as an ordinary application makes them."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.topic import Topic

    participant = DomainParticipant(options["domain"])
    partitions = options.get("partitions")
    parent = group(participant, qos=Qos(Policy.Partition(partitions)) if partitions else None)
    ends = []
    for name in names:
        type_ = sample_types.TYPES[name]
        topic = Topic(participant, options.get("topic") or name, type_)
        ends.append((name, type_, end(parent, topic, qos=application_qos(options))))
    return [participant, parent, *ends]


def writer(options: dict[str, Any]) -> None:
    """Writes, disposes and unregisters samples of each type once somebody reads them.

    With `untimed` it writes only.
    """
    from cyclonedds.pub import DataWriter, Publisher

    _, _, *ends = kept = application(options, Publisher, DataWriter, options["types"])
    at_end(lambda: None)
    say(ready=True)
    for name, type_, one in ends:
        deadline = time.monotonic() + 10
        while not one.get_matched_subscriptions() and time.monotonic() < deadline and not ended.is_set():
            time.sleep(0.002)
        for number in range(options.get("count", 4)):
            sample = sample_types.SAMPLES[type_](number * options.get("step", 1))
            # Without a source timestamp a sample is received with the time 0.
            one.write(sample, timestamp=0 if options.get("untimed") else 1000 + 10 * number)
            if name != "Keyless" and number % 2 and not options.get("untimed"):
                one.dispose(sample, timestamp=1001 + 10 * number)
                one.unregister_instance(sample, timestamp=1002 + 10 * number)
    say(written=True)
    ended.wait()
    del kept


def reader(options: dict[str, Any]) -> None:
    """Tells each sample that an ordinary reader gets; with `keeps` they stay in its cache."""
    from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.sub import DataReader, Subscriber

    participant, _, *ends = application(options, Subscriber, DataReader, options["types"])
    waitset = WaitSet(participant)
    fresh = SampleState.NotRead if options.get("keeps") else SampleState.Any
    conditions = [ReadCondition(one, fresh | ViewState.Any | InstanceState.Any) for _, _, one in ends]
    for condition in conditions:
        waitset.attach(condition)
    say(ready=True)
    at_end(leave)
    while True:
        waitset.wait(1_000_000_000)
        for (name, _, one), condition in zip(ends, conditions, strict=True):
            get = one.read if options.get("keeps") else one.take
            for sample in get(100, condition=condition):
                info = sample.sample_info
                valid = bool(info.valid_data)
                say(
                    type=name,
                    sample=repr(sample) if valid else "",
                    time=info.source_timestamp,
                    state=int(info.instance_state),
                )


def tap(options: dict[str, Any]) -> None:
    """Tells each event that a tap gets, on topics of described types."""
    from engine.dataset.groups import TypeDescription
    from engine.dds.capture_reader import CaptureReader
    from engine.dds.participant import NodeParticipant
    from engine.dds.topics import open_topic
    from engine.dds.waiting import Signal

    participant = NodeParticipant(options["domain"], os.environ["CYCLONEDDS_URI"], "tap", b"t" * 16)
    signal = Signal(participant)
    taps = {}
    for topic, (name, information, mapping, keyed) in options["described"].items():
        type_ = TypeDescription(name, bytes.fromhex(information), bytes.fromhex(mapping), keyed)
        taps[topic] = CaptureReader(participant, open_topic(participant, topic, type_), signal=signal)
    say(ready=True)
    at_end(leave)
    while True:
        signal.wait(1.0)
        for topic, one in taps.items():
            for time_ns, _, _, _, status, key, payload in one.drain():
                say(topic=topic, event=[time_ns, status, key.hex(), payload.hex()])


def raw_writer(options: dict[str, Any]) -> None:
    """Writes `count` numbers as fast as it can, or until it is enough."""
    from engine.dataset.groups import DurabilityKind
    from engine.dds.participant import NodeParticipant
    from engine.dds.qos import EndpointQos
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter

    participant = NodeParticipant(options["domain"], os.environ["CYCLONEDDS_URI"], "writer", b"w" * 16)
    topic = Topic.of_class(participant, "Plain", sample_types.Plain)
    durability = DurabilityKind(options.get("durability", 0))
    qos = EndpointQos(history_depth=0, blocking_ns=60_000_000_000, autodispose=False, durability=durability)
    one = RawWriter(participant, topic, qos)
    at_end(lambda: None)
    one.wait_matched(1, 10)
    number = 0
    while number < options.get("count", 1 << 62) and not ended.is_set():
        one.write(b"\0\1\0\0" + number.to_bytes(8, "little") + bytes(8), 1000 + number)
        number += 1
    say(written=number, acked=one.wait_for_acks(30))
    ended.wait()
    participant.close()


def node(options: dict[str, Any]) -> None:
    """A node with a channel: tells all that it hears, and answers a `ping` with a `pong`."""
    from engine.dds.channel import Channel
    from engine.dds.participant import NodeParticipant

    name = options["name"]
    participant = NodeParticipant(options["domain"], os.environ["CYCLONEDDS_URI"], name, os.urandom(16))
    channel = Channel(participant)
    channel.publish("d_status", name, b"state of " + name.encode())
    say(ready=True, guid=participant.guid.hex())
    at_end(leave)
    while True:
        channel.wait(1.0)
        for got in channel.take():
            say(topic=got.topic, sender=got.sender_id, payload=got.payload.decode())
            if got.payload == b"ping":
                channel.publish("d_message", name, b"pong")
        for change in channel.take_changes():
            say(change=type(change).__name__, participant=change.participant.hex())


def bulk_receiver(options: dict[str, Any]) -> None:
    """Takes batches slowly and tells what came."""
    from engine.dds.bulk import BulkReceiver
    from engine.dds.participant import NodeParticipant

    participant = NodeParticipant(options["domain"], os.environ["CYCLONEDDS_URI"], "bulk", os.urandom(16))
    receiver = BulkReceiver(participant, options["partition"], limit=options.get("limit", 4))
    say(ready=True, guid=participant.guid.hex())
    at_end(receiver.wake)
    digest, size, peak = hashlib.sha256(), 0, PeakMemory()
    while not ended.is_set():
        receiver.wait(10.0)
        for _, _, payload in receiver.take(1):
            if payload is None:
                grown_kib = peak.grown_kib()
                say(bytes=size, digest=digest.hexdigest(), rejected=receiver.rejected, grown_kib=grown_kib)
                continue
            time.sleep(options.get("pause_s", 0.0))  # the receiver is slow: that is what is tested
            size += len(payload)
            digest.update(payload)
    participant.close()


ROLES = {
    "writer": writer,
    "reader": reader,
    "tap": tap,
    "raw_writer": raw_writer,
    "node": node,
    "bulk_receiver": bulk_receiver,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
