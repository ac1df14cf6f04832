"""The applications of a round: `python -m chaos.programs ROLE JSON`. Ordinary ones: they use cyclonedds only.

They take commands as lines of JSON on standard input and answer in the same way; the end of the input ends
them. A writer keeps a record, a file that only grows. Its lines, separated by blanks:

- `a TOPIC WRITER OP TIME STATION VALUE SIZE`: the writer (its GUID) is about to write (OP `w`) or dispose
  (`d`) with this source time;
- `c TOPIC WRITER FIRST LAST WALL NODES`: what has these source times was confirmed at this wall clock by
  these nodes (joined by commas, or a star).

A topic whose name ends in `All` is KEEP_ALL; the others are KEEP_LAST 1.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, Protocol

PARTITION: Final = "stock"
PIECE_S: Final = 0.05
CONFIRM_S: Final = 0.5
MATCHED_S: Final = 20.0
"""How long a writer waits for its readers before it writes all the same."""
ACKNOWLEDGED_NS: Final = 10_000_000_000
NODES: Final = 2
"""On how many disks a durable promise is."""


def say(**what: Any) -> None:
    """A line for the harness."""
    print(json.dumps(what), flush=True)


def history_of(topic: str) -> Any:
    """The history that a topic keeps."""
    from cyclonedds.core import Policy

    return Policy.History.KeepAll if topic.endswith("All") else Policy.History.KeepLast(1)


def qos_of(topic: str) -> Any:
    """The QoS of a topic and its writers, as in samples/publisher.py."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.util import duration

    return Qos(
        Policy.Durability.Persistent,
        Policy.DurabilityService(
            cleanup_delay=duration(infinite=True),
            history=history_of(topic),
            max_samples=-1,
            max_instances=-1,
            max_samples_per_instance=-1,
        ),
        Policy.Reliability.Reliable(duration(seconds=10)),
        Policy.History.KeepAll,
        Policy.DestinationOrder.BySourceTimestamp,
        Policy.WriterDataLifecycle(autodispose=False),
    )


class Application:
    """A participant, its topics, and which participant is which node."""

    def __init__(self, domain: int) -> None:
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsParticipant
        from cyclonedds.domain import DomainParticipant

        self.participant = DomainParticipant(domain)
        self._seen = BuiltinDataReader(self.participant, BuiltinTopicDcpsParticipant)
        self._names: dict[bytes, str] = {}
        self._client: Any = None

    def topic(self, name: str) -> Any:
        """A topic of entries."""
        from cyclonedds.topic import Topic

        from chaos.entry_type import Entry

        return Topic(self.participant, name, Entry, qos=qos_of(name))

    def client(self) -> Any:
        """A client of the durability services, one for all writers."""
        from ospltool.client import DurabilityClient

        self._client = self._client or DurabilityClient(self.participant)
        return self._client

    def name_of(self, participant: Any) -> str:
        """The name of the participant with this key; empty for one that has none."""
        from cyclonedds.core import Policy

        if participant.bytes not in self._names:
            for one in self._seen.take(1000):
                qos = getattr(one, "qos", None)
                if qos is not None and Policy.EntityName in qos:
                    named: Any = qos[Policy.EntityName]
                    self._names[one.key.bytes] = named.name
        return self._names.get(participant.bytes, "")


class Promise(Protocol):
    """A writer, and what it means by a confirmation. Another kind of promise is another of these."""

    reached: threading.Event
    """Set once enough nodes read along."""
    guid: str

    def __init__(self, application: Application, topic: str, readers: int) -> None: ...

    def begin(self) -> None:
        """A batch begins."""

    def write(self, sample: Any, *, timestamp: int) -> None:
        """Write with this source time."""

    def dispose(self, sample: Any, *, timestamp: int) -> None:
        """Dispose with this source time."""

    def confirm(self) -> list[str]:
        """The nodes that have confirmed the batch; none if it is not confirmed in time."""


class PlainPromise:
    """What DDS alone gives: all matched readers have acknowledged everything.

    A batch is confirmed by the nodes whose readers were matched before its first sample was written and are
    still matched once everything is acknowledged. It is on no disk yet (see `chaos.rounds`).
    """

    def __init__(self, application: Application, topic: str, readers: int) -> None:
        from cyclonedds.core import Listener, Policy, Qos
        from cyclonedds.pub import DataWriter, Publisher

        self.reached = threading.Event()
        self._application = application
        self._before: dict[int, str] = {}
        self._is_late = False

        def on_publication_matched(_: Any, status: Any) -> None:
            if status.current_count >= readers:
                self.reached.set()

        self.writer = DataWriter(
            Publisher(application.participant, Qos(Policy.Partition([PARTITION]))),
            application.topic(topic),
            qos=qos_of(topic),
            listener=Listener(on_publication_matched=on_publication_matched),
        )
        self.guid = self.writer.guid.hex

    def begin(self) -> None:
        """Note who reads along."""
        self._before, self._is_late = self._matched(), False

    def write(self, sample: Any, *, timestamp: int) -> None:
        """Write; a writer that blocks for too long cannot confirm the batch."""
        self._do(self.writer.write, sample, timestamp)

    def dispose(self, sample: Any, *, timestamp: int) -> None:
        """Dispose, likewise."""
        self._do(self.writer.dispose, sample, timestamp)

    def _do(self, operation: Any, sample: Any, timestamp: int) -> None:
        from cyclonedds.core import DDSException

        try:
            operation(sample, timestamp=timestamp)
        except DDSException:
            self._is_late = True

    def confirm(self) -> list[str]:
        """The nodes that read along all the time, once everything is acknowledged."""
        from cyclonedds.core import DDSException

        try:
            acknowledged = self.writer.wait_for_acks(ACKNOWLEDGED_NS)
        except (DDSException, AttributeError):  # the wheel's time-out path raises the latter
            acknowledged = False
        if self._is_late or not acknowledged:
            return []
        after = self._matched()
        return sorted({name for handle, name in self._before.items() if after.get(handle) == name})

    def _matched(self) -> dict[int, str]:
        """The nodes whose readers match, by the handle of the reader."""
        found = {}
        handles: list[int] | None = None
        while handles is None:
            with contextlib.suppress(IndexError):  # the wheel's, where one more matches meanwhile
                handles = self.writer.get_matched_subscriptions()
        for handle in handles:
            with contextlib.suppress(Exception):  # it has gone meanwhile
                data = self.writer.get_matched_subscription_data(handle)
                if data is not None and (name := self._application.name_of(data.participant_key)):
                    found[handle] = name
        return found


class DurablePromise:
    """What `ospltool.client.DurableWriter` gives: a batch is confirmed once `NODES` nodes have it on disk.

    It does not name the nodes, so that the record has a star in their place.
    """

    def __init__(self, application: Application, topic: str, readers: int) -> None:
        plain = PlainPromise(application, topic, readers)
        client: Any = importlib.import_module("ospltool.client")
        self._writer = client.DurableWriter(application.client(), plain.writer, nodes=NODES)
        self._error: type[Exception] = client.DurabilityError
        self._is_late = False
        self.reached, self.guid = plain.reached, plain.guid

    def begin(self) -> None:
        """A batch begins."""
        self._is_late = False

    def write(self, sample: Any, *, timestamp: int) -> None:
        """Write; where the bound is reached, the batch cannot be confirmed."""
        self._do(self._writer.write, sample, timestamp)

    def dispose(self, sample: Any, *, timestamp: int) -> None:
        """Dispose, likewise."""
        self._do(self._writer.dispose, sample, timestamp)

    def _do(self, operation: Any, sample: Any, timestamp: int) -> None:
        try:
            operation(sample, timestamp)
        except self._error:
            self._is_late = True

    def confirm(self) -> list[str]:
        """A star once enough nodes have stored everything."""
        try:
            self._writer.flush(ACKNOWLEDGED_NS / 1e9)
        except self._error:
            return []
        return [] if self._is_late else ["*"]


PROMISES: Final[dict[str, type[Promise]]] = {"plain": PlainPromise, "durable": DurablePromise}


class TopicWriter:
    """One writer of one topic, with the record of what it was promised."""

    def __init__(self, topic: str, promise: Promise, record: Any, options: dict[str, Any]) -> None:
        self.topic, self._promise, self._record = topic, promise, record
        self._shift_ns = int(options.get("shift_s", 0) * 1e9)
        self._size = options.get("size", 60)
        self._first_ns = self._last_ns = 0
        self._values = 0

    def write(self, stations: list[int], *, dispose: bool = False) -> None:
        """Write or dispose these stations, as a part of the batch that is next to be confirmed."""
        from chaos.entry_type import Entry, text_of

        promise = self._promise
        if not self._first_ns:
            promise.begin()
        lines, samples = [], []
        for station in stations:
            self._values += 1
            self._last_ns = max(self._last_ns + 1, time.time_ns() + self._shift_ns)
            self._first_ns = self._first_ns or self._last_ns
            lines.append(
                f"a {self.topic} {promise.guid} {'d' if dispose else 'w'} {self._last_ns} {station}"
                f" {self._values} {self._size}\n"
            )
            text = text_of(self.topic, station, self._values, self._size)
            samples.append((Entry(station, self._values, text), self._last_ns))
        self._note("".join(lines))
        operation = promise.dispose if dispose else promise.write
        for sample, stamp in samples:
            operation(sample, timestamp=stamp)

    def confirm(self) -> bool:
        """Wait until the batch is confirmed; returns whether it is."""
        nodes = self._promise.confirm() if self._first_ns else []
        if nodes:
            times = f"{self._first_ns} {self._last_ns} {time.time_ns()}"
            self._note(f"c {self.topic} {self._promise.guid} {times} {','.join(nodes)}\n")
        self._first_ns = 0
        return bool(nodes)

    def _note(self, text: str) -> None:
        self._record.write(text)
        self._record.flush()


def writer(options: dict[str, Any]) -> None:
    """Writes what it is told.

    Options: `domain`, `record`, `topics`; `readers` to wait for with each; `at_once` written to each as soon
    as they are there; `promise`, one of `PROMISES`; `size` of the texts, `shift_s` of the source times,
    `seed`. Commands: `write` or `dispose` [FIRST, COUNT] stations of each topic; `rate` samples a second to
    `stations` stations, a share of `disposes`, until the next `rate`.
    """
    application = Application(options["domain"])
    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    chance = random.Random(options.get("seed", 0))
    writers: list[TopicWriter] = []
    with Path(options["record"]).open("a", encoding="utf-8") as record:
        for topic in options["topics"]:
            promise = PROMISES[options.get("promise", "plain")](application, topic, options.get("readers", 1))
            made = TopicWriter(topic, promise, record, options)
            promise.reached.wait(MATCHED_S)
            writers.append(made)
            if "at_once" in options:
                made.write(list(range(options["at_once"])))
                made.confirm()
        say(ready=True)
        flow: Flow | None = None
        while True:
            command = _next(commands, waits=flow is None)
            if command is None:
                os._exit(0)
            if "rate" in command:
                flow = Flow(writers, command, chance) if command["rate"] else None
                say(rate=command["rate"])
            elif command:
                say(done=all(_carry_out(one, command) for one in writers))
            elif flow:
                flow.go_on()


def _carry_out(writer: TopicWriter, command: dict[str, Any]) -> bool:
    dispose = "dispose" in command
    first, count = command["dispose" if dispose else "write"]
    writer.write(list(range(first, first + count)), dispose=dispose)
    return writer.confirm()


class Flow:
    """Writing at a rate: in small pieces, and confirmed twice a second."""

    def __init__(self, writers: list[TopicWriter], command: dict[str, Any], chance: random.Random) -> None:
        self._writers, self._chance = writers, chance
        self._rate = command["rate"] / len(writers)
        self._stations = command.get("stations", 100)
        self._disposes = command.get("disposes", 0)
        self._began = time.monotonic()
        self._confirm_due = self._began + CONFIRM_S
        self._written = 0

    def go_on(self) -> None:
        """Write what is due by now."""
        time.sleep(PIECE_S)
        now = time.monotonic()
        due = round((now - self._began) * self._rate) - self._written
        self._written += due
        for one in self._writers:
            if due:
                dispose = self._chance.random() < self._disposes
                one.write([self._chance.randrange(self._stations) for _ in range(due)], dispose=dispose)
        if now >= self._confirm_due:
            for one in self._writers:
                one.confirm()
            self._confirm_due = time.monotonic() + CONFIRM_S


def _listen(commands: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put(None)


def _next(commands: queue.Queue[dict[str, Any] | None], *, waits: bool) -> dict[str, Any] | None:
    try:
        return commands.get(block=waits)
    except queue.Empty:
        return {}


def reader(options: dict[str, Any]) -> None:
    """A late joiner: tells what it has, whenever it is asked.

    Options: `domain`, `topics`. Command: `tally`; the answer has, for each topic, the samples as [STATION,
    VALUE, TIME, TEXT], and the state of each station (16 alive, 32 disposed, 64 without writers).
    """
    from cyclonedds.core import Policy, Qos
    from cyclonedds.sub import DataReader, Subscriber

    application = Application(options["domain"])
    subscriber = Subscriber(application.participant, Qos(Policy.Partition([PARTITION])))
    ends = {}
    for name in options["topics"]:
        topic = application.topic(name)
        others = (policy for policy in qos_of(name) if policy.__scope__ != "History")
        ends[name] = DataReader(subscriber, topic, qos=Qos(*others, history_of(name)))
    say(ready=True)
    for line in sys.stdin:
        assert "tally" in json.loads(line)
        found = {}
        for name, end in ends.items():
            states: dict[int, int] = {}
            samples = []
            for one in end.read(1_000_000):
                info = one.sample_info
                entry = one if info.valid_data else one.key_sample
                states[entry.station] = int(info.instance_state)
                if info.valid_data:
                    samples.append([one.station, one.value, info.source_timestamp, one.text])
            found[name] = {"samples": samples, "states": states}
        say(tally=found)


def burner(_: dict[str, Any]) -> None:
    """Keeps one core busy."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    say(ready=True)
    while True:
        sum(range(10_000))


ROLES = {"writer": writer, "reader": reader, "burner": burner}

if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
