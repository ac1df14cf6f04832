"""Processes of the measurements: `python -m benchmarks.programs ROLE JSON`; they speak in lines of JSON.

- `publish` writes ready-made samples as fast as readers take them and tells how long that took;
- `drain` captures like a node, and does nothing with what it gets;
- `take` is a plain reader that takes without looking;
- `hold` writes and stays, for readers that come later, as DDS alone can do it;
- `join` is a reader that comes later and tells when it has everything;
- `ask` asks one node again and again and tells how long it had to wait at most;
- `measure` reads what `publish` writes and tells how many samples came how late;
- `publish_topics` and `join_topics` do it with many topics and partitions.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

TOPIC: Final = "Load"
PARTITION: Final = "ships"
_HEADER: Final = b"\x00\x01\x00\x00"


class Program:
    """A child in one of the roles; `prefix` goes before its command.

    Attributes:
        began_ns: the wall clock before it was started.
    """

    def __init__(
        self, role: str, options: Mapping[str, Any], environ: Mapping[str, str], prefix: Sequence[str] = ()
    ) -> None:
        self.began_ns = time.time_ns()
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "benchmarks.programs", role, json.dumps(options)],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def answer(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a program of the measurement ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def go(self) -> None:
        """Send it a line, for which it waits or which it answers."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let it end."""
        self._process.communicate(timeout=30)


def print_json(**what: Any) -> None:
    """A line for the parent."""
    print(json.dumps(what), flush=True)


def publish(options: dict[str, Any]) -> None:
    """Write `count` samples of `size` bytes to `instances` instances, numbered from `first`, at a `rate`.

    `depth` is the history that nodes keep of each, 0 for all; the writer is PERSISTENT or `is_transient`.
    """
    from benchmarks.load_type import Load
    from engine.dataset.groups import KEEP_ALL, DurabilityKind
    from engine.dds.participant import NodeParticipant, TagRole
    from engine.dds.qos import EndpointQos
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter

    uri = os.environ["CYCLONEDDS_URI"]
    is_transient = options.get("is_transient", False)
    participant = NodeParticipant(options["domain"], uri, "publisher", os.urandom(16), TagRole.CLIENT)
    qos = EndpointQos(
        blocking_ns=30_000_000_000,
        durability=DurabilityKind.TRANSIENT if is_transient else DurabilityKind.PERSISTENT,
        history_depth=KEEP_ALL,
        service_history_depth=options.get("depth", 1),
        autodispose=False,
        batching=True,
        partitions=(PARTITION,),
    )
    writer = RawWriter(participant, Topic.of_class(participant, TOPIC, Load), qos)
    if not writer.wait_matched(1, 30):
        raise RuntimeError("nobody reads")
    instances, size = options["instances"], options["size"]
    tail = struct.pack("<I", size) + bytes(size)
    first = options.get("first", 0)
    samples = [_HEADER + struct.pack("<i", first + number) + tail for number in range(instances)]
    write, now_ns = writer.write, time.time_ns
    began_ns, began = now_ns(), time.monotonic()
    rate, step = options.get("rate", 0), options.get("step", 100)
    for number in range(options["count"]):
        write(samples[number % instances], now_ns())
        if rate and number % step == 0:
            writer.flush()
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
    writer.flush()
    if not writer.wait_for_acks(60):
        raise RuntimeError("not everything was acknowledged")
    print_json(seconds=time.monotonic() - began, began_ns=began_ns)
    sys.stdin.read()
    participant.close()


def drain(options: dict[str, Any]) -> None:
    """Capture and forget."""
    from benchmarks.load_type import Load
    from engine.capture.tap_registry import TAP_BYTES
    from engine.dds.capture_reader import CaptureReader
    from engine.dds.participant import NodeParticipant, TagRole
    from engine.dds.topics import Topic
    from engine.dds.writer_names import WRITER_GONE

    uri = os.environ["CYCLONEDDS_URI"]
    participant = NodeParticipant(options["domain"], uri, "drain", os.urandom(16), TagRole.CLIENT)
    topic = Topic.of_class(participant, TOPIC, Load)
    tap = CaptureReader(participant, topic, capacity_bytes=TAP_BYTES)  # as a node does it
    print_json(ready=True)
    got = 0
    while got < options["count"]:
        tap.wait(1.0)
        got += sum(not record.status & WRITER_GONE for record in tap.drain(20_000))
    print_json(got=got)
    sys.stdin.read()
    participant.close()


def take_plainly(options: dict[str, Any]) -> None:
    """A plain reader of cyclonedds whose samples are taken as bytes and forgotten."""
    from cyclonedds import _clayer
    from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    from benchmarks.load_type import Load

    qos = Qos(Policy.Reliability.Reliable(10_000_000_000), Policy.History.KeepAll)
    participant = DomainParticipant(options["domain"])
    subscriber = Subscriber(participant, Qos(Policy.Partition([PARTITION])))
    reader = DataReader(subscriber, Topic(participant, TOPIC, Load), qos=qos)
    state = SampleState.Any | ViewState.Any | InstanceState.Any
    waitset = WaitSet(participant)
    waitset.attach(ReadCondition(reader, state))
    print_json(ready=True)
    got = 0
    while got < options["count"]:
        waitset.wait(1_000_000_000)
        time.sleep(0.002)  # many small takes cost more than few large ones
        got += len(_clayer.ddspy_take(reader._ref, state, 8192))
    print_json(got=got)
    sys.stdin.read()


def hold(options: dict[str, Any]) -> None:
    """A living TRANSIENT_LOCAL writer with one sample of each of `count` instances."""
    from benchmarks.load_type import Load
    from engine.dataset.groups import DurabilityKind
    from engine.dds.participant import NodeParticipant, TagRole
    from engine.dds.qos import EndpointQos
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter

    uri = os.environ["CYCLONEDDS_URI"]
    participant = NodeParticipant(options["domain"], uri, "holder", os.urandom(16), TagRole.CLIENT)
    qos = EndpointQos(
        durability=DurabilityKind.TRANSIENT_LOCAL,
        autodispose=False,
        batching=True,
        partitions=(PARTITION,),
    )
    writer = RawWriter(participant, Topic.of_class(participant, TOPIC, Load), qos)
    tail = struct.pack("<I", options["size"]) + bytes(options["size"])
    for number in range(options["count"]):
        writer.write(_HEADER + struct.pack("<i", number) + tail, time.time_ns())
    writer.flush()
    print_json(ready=True)
    sys.stdin.read()
    participant.close()


def join(options: dict[str, Any]) -> None:
    """A late joiner; the time counts from before its participant is made."""
    from cyclonedds import _clayer
    from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    from benchmarks.load_type import Load

    kinds = {"transient local": Policy.Durability.TransientLocal, "persistent": Policy.Durability.Persistent}
    qos = Qos(
        kinds[options["durability"]], Policy.Reliability.Reliable(10_000_000_000), Policy.History.KeepAll
    )
    if options.get("waits"):
        print_json(waits=True)
        sys.stdin.readline()
    began = time.monotonic()
    participant = DomainParticipant(options["domain"])
    subscriber = Subscriber(participant, Qos(Policy.Partition([PARTITION])))
    reader = DataReader(subscriber, Topic(participant, TOPIC, Load), qos=qos)
    state = SampleState.Any | ViewState.Any | InstanceState.Any
    waitset = WaitSet(participant)
    waitset.attach(ReadCondition(reader, state))
    got, first, setup = 0, 0.0, time.monotonic() - began
    print_json(ready=True)
    while got < options["count"]:
        waitset.wait(1_000_000_000)
        taken = _clayer.ddspy_take(reader._ref, state, 8192)
        got += sum(1 for _, info in taken if info.valid_data)
        first = first or time.monotonic() - began
    print_json(first=first, setup=setup, last=time.monotonic() - began, got=got, ended_ns=time.time_ns())
    sys.stdin.read()


def ask(options: dict[str, Any]) -> None:
    """Ask the only node for an unknown topic; after each line, tell the waits since the last one."""
    import select

    from ospltool.client import DurabilityClient
    from ospltool.client.asking import ask as ask_nodes

    client = DurabilityClient(options["domain"])
    client.session.wait_until(lambda: bool(client.session.state_services()), time.monotonic() + 30.0)
    (node,) = client.session.state_services()
    print_json(ready=True)
    waits: list[float] = []
    while True:
        began = time.monotonic()
        until_s = began + 60.0
        if not ask_nodes(client.session, "None", (), until_s, enough=lambda answers: node in answers):
            raise RuntimeError("no answer in a minute")
        waits.append(time.monotonic() - began)
        time.sleep(0.002)
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                break
            waits.sort()
            print_json(longest=waits[-1], p99=waits[int(0.99 * (len(waits) - 1))], count=len(waits))
            waits.clear()
    client.close()


def measure(options: dict[str, Any]) -> None:
    """A reader; after each line it tells what came since the last one: how many, and how late by p99."""
    import select

    from benchmarks.load_type import Load
    from engine.dds.capture_reader import CaptureReader
    from engine.dds.participant import NodeParticipant, TagRole
    from engine.dds.topics import Topic
    from engine.dds.writer_names import WRITER_GONE

    uri = os.environ["CYCLONEDDS_URI"]
    participant = NodeParticipant(options["domain"], uri, "measure", os.urandom(16), TagRole.CLIENT)
    tap = CaptureReader(participant, Topic.of_class(participant, TOPIC, Load))
    print_json(ready=True)
    late: list[float] = []
    began = time.monotonic()
    while True:
        tap.wait(0.05)
        now_ns = time.time_ns()
        records = tap.drain(20_000)
        late += [(now_ns - one.source_time_ns) / 1e6 for one in records if not one.status & WRITER_GONE]
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                break
            late.sort()
            seconds, began = time.monotonic() - began, time.monotonic()
            print_json(rate=len(late) / seconds, p99_ms=late[int(0.99 * (len(late) - 1))] if late else 0.0)
            late.clear()
    participant.close()


def publish_topics(options: dict[str, Any]) -> None:
    """Write `count` samples to each of `topics` topics in each of `partitions` partitions.

    With `stays` nobody captures them: the writers are TRANSIENT_LOCAL, and stay for readers that come later.
    """
    from benchmarks.load_type import Load
    from engine.dataset.groups import KEEP_ALL, DurabilityKind
    from engine.dds.participant import NodeParticipant, TagRole
    from engine.dds.qos import EndpointQos
    from engine.dds.topics import Topic
    from engine.dds.writer import RawWriter

    uri = os.environ["CYCLONEDDS_URI"]
    participant = NodeParticipant(options["domain"], uri, "publisher", os.urandom(16), TagRole.CLIENT)
    tail = struct.pack("<I", options["size"]) + bytes(options["size"])
    writers, stays = [], options.get("stays", False)
    for number in range(options["topics"]):
        topic = Topic.of_class(participant, f"{TOPIC}{number}", Load)
        for place in range(options["partitions"]):
            qos = EndpointQos(
                durability=DurabilityKind.TRANSIENT_LOCAL if stays else DurabilityKind.PERSISTENT,
                history_depth=KEEP_ALL,
                autodispose=False,
                partitions=(f"{PARTITION}{place}",),
            )
            writers.append(RawWriter(participant, topic, qos))
    for writer in writers:
        if not stays and not writer.wait_matched(1, 60):
            raise RuntimeError("nobody reads")
        for number in range(options["count"]):
            writer.write(_HEADER + struct.pack("<i", number) + tail, time.time_ns())
    if not stays and not all(writer.wait_for_acks(60) for writer in writers):
        raise RuntimeError("not everything was acknowledged")
    print_json(written=len(writers) * options["count"])
    sys.stdin.read()
    participant.close()


def join_topics(options: dict[str, Any]) -> None:
    """A late joiner of everything that `publish_topics` wrote."""
    from cyclonedds import _clayer
    from cyclonedds.core import InstanceState, Policy, Qos, SampleState, ViewState
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    from benchmarks.load_type import Load

    durability = Policy.Durability.TransientLocal if options.get("stays") else Policy.Durability.Persistent
    qos = Qos(durability, Policy.Reliability.Reliable(10_000_000_000), Policy.History.KeepAll)
    began = time.monotonic()
    participant = DomainParticipant(options["domain"])
    readers = []
    for place in range(options["partitions"]):
        subscriber = Subscriber(participant, Qos(Policy.Partition([f"{PARTITION}{place}"])))
        topics = (Topic(participant, f"{TOPIC}{number}", Load) for number in range(options["topics"]))
        readers += [DataReader(subscriber, topic, qos=qos) for topic in topics]
    state = SampleState.Any | ViewState.Any | InstanceState.Any
    print_json(ready=True)
    got, wanted = 0, options["topics"] * options["partitions"] * options["count"]
    while got < wanted and time.monotonic() - began < options["patience"]:
        some = 0
        for reader in readers:
            some += sum(1 for _, info in _clayer.ddspy_take(reader._ref, state, 8192) if info.valid_data)
        got += some
        if not some:
            time.sleep(0.01)
    print_json(last=time.monotonic() - began, got=got, ended_ns=time.time_ns())
    sys.stdin.read()


ROLES = {
    "publish": publish,
    "drain": drain,
    "take": take_plainly,
    "hold": hold,
    "join": join,
    "ask": ask,
    "measure": measure,
    "publish_topics": publish_topics,
    "join_topics": join_topics,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
