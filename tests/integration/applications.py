"""The other processes of a test: `python -m tests.integration.applications ROLE JSON`.

Ordinary applications: they use cyclonedds only. (The hostile one and the watcher use our own transport.)
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.integration import application_types as types

DURABILITY = ("Volatile", "TransientLocal", "Transient", "Persistent")
MAX_TEXT = 10_000
NOT_ALIVE_DISPOSED, NOT_ALIVE_NO_WRITERS, ALIVE = 32, 64, 16
STATES = {NOT_ALIVE_DISPOSED: "disposed", NOT_ALIVE_NO_WRITERS: "no writers", ALIVE: "alive"}


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def commands() -> Any:
    """What the parent says, until it closes."""
    for line in sys.stdin:
        yield json.loads(line)


def qos_of(options: dict[str, Any]) -> Any:
    from cyclonedds.core import Policy, Qos

    depth = options.get("depth", 1)
    policies = [
        getattr(Policy.Durability, DURABILITY[options.get("durability", 3)]),
        Policy.DurabilityService(
            options.get("cleanup_ns", (1 << 63) - 1),
            Policy.History.KeepLast(depth) if depth else Policy.History.KeepAll,
            *options.get("limits", (-1, -1, -1)),
        ),
        Policy.Reliability.Reliable(10_000_000_000),
        Policy.History.KeepAll,
        Policy.WriterDataLifecycle(autodispose=bool(options.get("autodispose"))),
    ]
    if options.get("by_source", True):
        policies.append(Policy.DestinationOrder.BySourceTimestamp)
    if options.get("exclusive"):
        policies.append(Policy.Ownership.Exclusive)
    if "strength" in options:
        policies.append(Policy.OwnershipStrength(options["strength"]))
    if "latency_budget_ns" in options:
        policies.append(Policy.LatencyBudget(options["latency_budget_ns"]))
    if "deadline_ns" in options:
        policies.append(Policy.Deadline(options["deadline_ns"]))
    if "lifespan_ns" in options:
        policies.append(Policy.Lifespan(options["lifespan_ns"]))
    return Qos(*policies)


class WriterSide:
    """One writer for each type, topic and partition that is named."""

    def __init__(self, options: dict[str, Any]) -> None:
        from cyclonedds.domain import DomainParticipant

        self._options = options
        self._participant = DomainParticipant(options["domain"])
        self._writers: dict[tuple[str, str, tuple[str, ...]], Any] = {}
        self._topics: dict[tuple[str, str], Any] = {}
        self._refused = threading.Event()
        self._told: list[Any] = []

    def writer(self, type_name: str, partitions: tuple[str, ...], topic_name: str = "") -> Any:
        from cyclonedds.core import Policy, Qos
        from cyclonedds.pub import DataWriter, Publisher
        from cyclonedds.topic import Topic

        topic_name = topic_name or self._options.get("topic") or type_name
        key = (type_name, topic_name, partitions)
        if key not in self._writers:
            qos = qos_of(self._options)
            topic_key = (type_name, topic_name)
            if topic_key not in self._topics:
                of_topic = {
                    name.removeprefix("topic_"): value
                    for name, value in self._options.items()
                    if name.startswith("topic_")
                }
                topic_qos = qos_of({**self._options, **of_topic})
                self._topics[topic_key] = Topic(
                    self._participant, topic_name, types.TYPES[type_name], qos=topic_qos
                )
            publisher = Publisher(self._participant, Qos(Policy.Partition(list(partitions))))
            matched = Matched(self._options.get("readers", 1), self._refused)
            writer = DataWriter(publisher, self._topics[topic_key], qos=qos, listener=matched.listener())
            if matched.wanted and not matched.reached.wait(20):
                say(error=f"nobody reads {topic_name} in {partitions}")
                sys.exit(1)
            self._writers[key] = writer
        return self._writers[key]

    def carry_out(self, steps: list[dict[str, Any]]) -> int:
        """Each step: `op`, `topic`, `first`, `count`, `time` of the first; others follow by a nanosecond.

        Without `time` each has the present, and they follow after `every_s`.
        """
        done = 0
        for step in steps:
            type_name = step.get("type", "Reading")
            partitions = tuple(step.get("partitions", ["stock"]))
            writer = self.writer(type_name, partitions, step.get("topic", ""))
            make = types.SAMPLES[types.TYPES[type_name]]
            perform = {
                "write": writer.write,
                "dispose": writer.dispose,
                "unregister": writer.unregister_instance,
            }[step.get("op", "write")]
            first, time_ns = step.get("first", 0), step.get("time")
            for index in range(step.get("count", 1)):
                number = first + index
                sample = make(number)
                if "value" in step:
                    sample.value = step["value"]
                if "text_bytes" in step:
                    sample.text = "x" * step["text_bytes"]
                if time_ns is None:
                    time.sleep(step["every_s"])
                perform(sample, timestamp=time.time_ns() if time_ns is None else time_ns + index)
                done += 1
                if done % 500 == 0 and step.get("progress"):
                    say(progress=done)
        for writer in self._writers.values():
            writer.wait_for_acks(20_000_000_000)
        return done

    def tell_topic(self, durability: int) -> None:
        """Make each topic once more, with this durability, in a participant that tells of it only now."""
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.topic import Topic

        participant = DomainParticipant(self._options["domain"])
        qos = qos_of({**self._options, "durability": durability})
        for type_name, topic_name in self._topics:
            self._told.append(Topic(participant, topic_name, types.TYPES[type_name], qos=qos))

    def refusal(self) -> dict[str, Any]:
        """Whether a reader refuses the writer, and its GUID."""
        (writer,) = self._writers.values()
        return {"guid": str(writer.guid.hex), "refused": self._refused.wait(20)}


class Matched:
    """`reached` is set once so many readers match, `refused` once one does not for its QoS."""

    def __init__(self, wanted: int, refused: threading.Event | None = None) -> None:
        self.wanted = wanted
        self.reached = threading.Event()
        self.refused = refused or threading.Event()

    def listener(self) -> Any:
        from cyclonedds.core import Listener

        def on_offered_incompatible_qos(*_: Any) -> None:
            self.refused.set()

        def on_publication_matched(_: Any, status: Any) -> None:
            if status.current_count >= self.wanted:
                self.reached.set()

        return Listener(
            on_publication_matched=on_publication_matched,
            on_offered_incompatible_qos=on_offered_incompatible_qos,
        )


def refused_writer(options: dict[str, Any]) -> None:
    """A writer of durable data that says whether a reader refused it, and ends when it is told to.

    Options: `durability`, `reliable`; `topic_durability`, that of the topic, which has no QoS without it.
    With it, it says `topic` once the topic is there, and goes on when it is told to.
    """
    from cyclonedds.core import Listener, Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter, Publisher
    from cyclonedds.topic import Topic

    refused = threading.Event()

    def on_offered_incompatible_qos(*_: Any) -> None:
        refused.set()

    participant = DomainParticipant(options["domain"])
    publisher = Publisher(participant, Qos(Policy.Partition(["stock"])))
    best_effort = Policy.Reliability.BestEffort
    reliable = Policy.Reliability.Reliable(10_000_000_000) if options.get("reliable") else best_effort
    qos = Qos(getattr(Policy.Durability, DURABILITY[options.get("durability", 3)]), reliable)
    kind = options.get("topic_durability")
    topic_qos = None if kind is None else Qos(getattr(Policy.Durability, DURABILITY[kind]), reliable)
    topic = Topic(participant, "Reading", types.Reading, qos=topic_qos)
    if topic_qos is not None:
        say(topic="Reading")
        next(commands())
    listener = Listener(on_offered_incompatible_qos=on_offered_incompatible_qos)
    writer = DataWriter(publisher, topic, qos=qos, listener=listener)
    say(guid=str(writer.guid.hex), refused=refused.wait(20))
    for _ in commands():
        pass


def writer(options: dict[str, Any]) -> None:
    """Carries out the given steps, and then those that it is told, until it is told to end.

    Other commands: `topic`, to tell of its topic with this durability; `refused`, to say whether it is.
    """
    side = WriterSide(options)
    say(done=side.carry_out(options.get("steps", [])))
    for command in commands():
        if "topic" in command:
            side.tell_topic(command["topic"])
            say(told=command["topic"])
        elif "refused" in command:
            say(**side.refusal())
        else:
            say(done=side.carry_out(command["steps"]))


class Tally:
    """What a reader got, by instance: the type's name and the key field `number`, where there is one."""

    def __init__(self) -> None:
        self._wanted: list[dict[str, Any]] = []
        self._names: dict[tuple[str, int], str] = {}
        self._samples: collections.defaultdict[str, list[list[Any]]] = collections.defaultdict(list)
        self._states: dict[str, str] = {}
        self._arrivals = 0
        self._refused = 0
        self._bytes = 0
        self._seen: collections.Counter[tuple[str, int]] = collections.Counter()

    def listener(self) -> Any:
        """Counts writers that the reader refused (REQUESTED_INCOMPATIBLE_QOS)."""
        from cyclonedds.core import Listener

        def on_requested_incompatible_qos(_: Any, status: Any) -> None:
            self._refused = status.total_count

        return Listener(on_requested_incompatible_qos=on_requested_incompatible_qos)

    def add(self, type_name: str, sample: Any) -> None:
        info = sample.sample_info
        valid = bool(info.valid_data)
        number = getattr(sample if valid else sample.key_sample, "number", None)
        unnamed = f"{type_name} #{len(self._names)}"
        name = self._names.setdefault(
            (type_name, info.instance_handle), unnamed if number is None else f"{type_name} {number}"
        )
        self._states[name] = STATES[int(info.instance_state)]
        if valid:
            text = repr(sample)
            self._bytes += len(text)
            self._samples[name].append([info.source_timestamp, text[:MAX_TEXT]])
            self._arrivals += 1
            if self._arrivals == 1:
                say(first=True)
            self._seen[name, info.source_timestamp] += 1

    def want(self, wanted: dict[str, Any]) -> None:
        self._wanted.append(wanted)

    def tell_reached(self) -> None:
        states = collections.Counter(self._states.values())
        states["instances"] = len(self._samples)
        for wanted in list(self._wanted):
            enough = all(states[state] >= count for state, count in wanted["states"].items())
            if enough and self._arrivals >= wanted["arrivals"]:
                self._wanted.remove(wanted)
                say(reached=wanted)

    def tell(self, *, detailed: bool) -> None:
        say(
            tally={
                "arrivals": self._arrivals,
                "refused": self._refused,
                "instances": len(self._samples),
                "bytes": self._bytes,
                "repeated": sum(count - 1 for count in self._seen.values()),
                "states": dict(collections.Counter(self._states.values())),
                "samples": self._samples if detailed else {},
                "state_of": self._states if detailed else {},
            }
        )


def reader(options: dict[str, Any]) -> None:
    """Counts what arrives. Commands: `want` arrivals and states, `tally`.

    Options: `resources`, its max_samples, max_instances and max_samples_per_instance; `holds`, to take
    nothing before the command `take`.
    """
    from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    participant = DomainParticipant(options["domain"])
    subscriber = Subscriber(participant, Qos(Policy.Partition(options.get("partitions", ["stock"]))))
    qos = qos_of(options)
    waitset = WaitSet(participant)
    tally = Tally()
    ends = []
    for type_name in options.get("types", ["Reading"]):
        topic = Topic(participant, options.get("topic") or type_name, types.TYPES[type_name], qos=qos)
        own = Policy.ResourceLimits(*options.get("resources", (-1, -1, -1)))
        one = DataReader(subscriber, topic, qos=Qos(own, base=qos), listener=tally.listener())
        waitset.attach(ReadCondition(one, SampleState.Any | ViewState.Any | InstanceState.Any))
        ends.append((type_name, one))
    lock = threading.Lock()
    takes = threading.Event()
    if not options.get("holds"):
        takes.set()
    say(ready=True)

    def collect() -> None:
        for type_name, one in ends:
            while samples := one.take(5000):
                for sample in samples:
                    tally.add(type_name, sample)
        tally.tell_reached()

    def obey() -> None:
        for command in commands():
            with lock:
                if "want" in command:
                    tally.want(command["want"])
                if "take" in command:
                    takes.set()
                if takes.is_set():
                    collect()
                if "tally" in command:
                    tally.tell(detailed=command["tally"] == "detailed")
        os._exit(0)

    threading.Thread(target=obey, daemon=True).start()
    takes.wait()
    while True:
        waitset.wait(1_000_000_000)
        with lock:
            collect()


def timelines(options: dict[str, Any]) -> None:
    """What readers see of each instance, in words; see `tests.integration.seen`."""
    from tests.integration import seen

    seen.timelines(options)


def readers_in_turn(options: dict[str, Any]) -> None:
    """Readers of one topic that come and go in one process; see `tests.integration.seen`."""
    from tests.integration import seen

    seen.readers_in_turn(options)


def iterating(options: dict[str, Any]) -> None:
    """A reader that looks at ALIVE instances only, as `take_iter` does; says how many samples it got."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    participant = DomainParticipant(options["domain"])
    subscriber = Subscriber(participant, Qos(Policy.Partition(["stock"])))
    qos = qos_of(options)
    reader = DataReader(subscriber, Topic(participant, options["topic"], types.Reading, qos=qos), qos=qos)
    count = 0
    for _ in reader.take_iter(timeout=20_000_000_000):
        count += 1
        if count == options["count"]:
            break
    say(count=count)
    for _ in commands():
        pass


def participant_as(domain: int, guid: str) -> Any:
    """A participant with a GUID of our choice, as those of another product have."""
    import ctypes

    from cyclonedds.domain import DomainParticipant
    from cyclonedds.internal import DDS

    class Chosen(DomainParticipant):  # type: ignore[misc]  # cyclonedds is untyped
        def _create_participant(self, domain_id: int, qos: Any, listener: Any) -> Any:
            create = DDS._dll_handle.dds_create_participant_guid
            return create(
                domain_id, None, None, 0, (ctypes.c_uint8 * 16).from_buffer_copy(bytes.fromhex(guid))
            )

    return Chosen(domain)


def services(options: dict[str, Any]) -> None:
    """What other durability services announce: participants with given GUIDs, topics and partitions.

    `ends` are readers: `guid` of the participant (32 hexadecimal digits; any other text names a usual one),
    `topic`, `durability`, `partition`. Each line is answered with how many samples each of them has got.
    """
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    participants: dict[str, Any] = {}
    readers = []
    for end in options["ends"]:
        guid = end["guid"]
        if guid not in participants:
            participants[guid] = (
                participant_as(options["domain"], guid)
                if len(guid) == 32
                else DomainParticipant(options["domain"])
            )
        participant = participants[guid]
        subscriber = Subscriber(participant, Qos(Policy.Partition([end["partition"]])))
        qos = qos_of({**options, "durability": end["durability"]})
        topic = Topic(participant, end["topic"], types.Reading, qos=qos)
        readers.append(DataReader(subscriber, topic, qos=qos))
    say(ready=True)
    counts = [0] * len(readers)
    for _ in commands():
        for number, one in enumerate(readers):
            counts[number] += sum(bool(sample.sample_info.valid_data) for sample in one.take(5000))
        say(counts=counts)


def watch(options: dict[str, Any]) -> None:
    """Passes on what nodes show, as seen from here."""
    from engine.runtime import monitor
    from ospltool.live.dds import LiveFeed

    feed = LiveFeed(options["domain"])
    threading.Thread(target=lambda: (sys.stdin.readline(), os._exit(0)), daemon=True).start()
    say(ready=True)
    while True:
        feed.wait(1.0)
        update = feed.poll()
        shown: list[monitor.Message] = [heard.snapshot for heard in update.snapshots]
        for item in [*shown, *update.events]:
            say(monitor=monitor.encode(item).decode())


def hostile(options: dict[str, Any]) -> None:
    """Sends to nodes what no node would; see `tests.integration.nonsense`."""
    from tests.integration.nonsense import Hostile

    one = Hostile(options["domain"], options["tag"], options["nodes"])
    say(ready=True)
    try:
        for command in commands():
            say(sent=one.send(command["send"]))
    finally:
        one.close()


def kept(options: dict[str, Any]) -> None:
    """Makes writers of one topic, and says which nodes keep them; samples/kept.py finds that out.

    Commands: `partitions` of a writer to make, which must be kept by so many `nodes` before it writes
    `count` samples; `each`, to say of each writer, in order, how many readers match it and which nodes.
    """
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter, Publisher
    from cyclonedds.topic import Topic

    sys.path.insert(0, str(Path(__file__).parents[2] / "samples"))
    kept = importlib.import_module("kept")
    participant = DomainParticipant(options["domain"])
    qos = qos_of(options)
    topic = Topic(participant, options["topic"], types.Reading, qos=qos)
    writers: list[Any] = []
    for command in commands():
        if "each" in command:
            looks = [(one.get_matched_subscriptions(), kept.keepers(one)) for one in writers]
            say(each=[[len(matched), sorted(map(bytes.decode, found))] for matched, found in looks])
            continue
        publisher = Publisher(participant, Qos(Policy.Partition(command["partitions"])))
        writers.append(DataWriter(publisher, topic, qos=qos))
        is_kept = kept.wait_until_kept(writers[-1], command["nodes"], 20)
        for number in range(command.get("count", 0)):
            writers[-1].write(types.SAMPLES[types.Reading](number), timestamp=time.time_ns())
        writers[-1].wait_for_acks(20_000_000_000)
        say(kept=is_kept)


def untyped(options: dict[str, Any]) -> None:
    """A writer that announces no type; see `tests.integration.untyped`."""
    from tests.integration import untyped

    untyped.writer(options)


def untyped_reader(options: dict[str, Any]) -> None:
    """A reader that announces no type; see `tests.integration.untyped`."""
    from tests.integration import untyped

    untyped.reader(options)


ROLES = {
    "writer": writer,
    "refused_writer": refused_writer,
    "reader": reader,
    "services": services,
    "timelines": timelines,
    "iterating": iterating,
    "readers_in_turn": readers_in_turn,
    "watch": watch,
    "hostile": hostile,
    "kept": kept,
    "untyped": untyped,
    "untyped_reader": untyped_reader,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
