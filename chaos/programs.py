"""The applications of a round: `python -m chaos.programs ROLE JSON`. Ordinary ones: they use cyclonedds only.

They take commands as lines of JSON on standard input and answer in the same way; the end of the input ends
them. A writer keeps a record, a file that only grows. Its lines, separated by blanks:

- `a TOPIC PLACE OP TIME STATION VALUE SIZE`: the writer `PLACE` (its GUID) is about to write (OP `w`) or
  dispose (`d`) with this source time;
- `c TOPIC PLACE TIME WALL NODES`: everything up to this source time was confirmed at this wall clock by
  readers of these nodes (joined by commas), which were matched before the first of it was written.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

PARTITION: Final = "stock"
BATCH_S: Final = 0.1
ALIVE, DISPOSED, NO_WRITERS = 16, 32, 64


def say(**what: Any) -> None:
    """A line for the harness."""
    print(json.dumps(what), flush=True)


def qos_of(*, keep_all: bool) -> Any:
    """The QoS of topics, writers and readers, as in samples/publisher.py."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.util import duration

    return Qos(
        Policy.Durability.Persistent,
        Policy.DurabilityService(
            cleanup_delay=duration(infinite=True),
            history=Policy.History.KeepAll if keep_all else Policy.History.KeepLast(1),
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

    def topic(self, name: str, *, keep_all: bool) -> Any:
        """A topic of entries."""
        from cyclonedds.topic import Topic

        from chaos.entry_type import Entry

        return Topic(self.participant, name, Entry, qos=qos_of(keep_all=keep_all))

    def name_of(self, participant: Any) -> str:
        """The name of the participant with this key; empty for one that has none."""
        from cyclonedds.core import Policy

        if participant.bytes not in self._names:
            for one in self._seen.take(1000):
                qos = getattr(one, "qos", None)
                if qos is not None:
                    self._names[one.key.bytes] = (
                        qos[Policy.EntityName].name if Policy.EntityName in qos else ""
                    )
        return self._names.get(participant.bytes, "")


class TopicWriter:
    """One writer of one topic, with the record of what it was promised.

    `plain`: a batch is confirmed by the nodes whose readers were matched before its first sample was
    written, are still matched once everything is acknowledged, and have therefore acknowledged it.
    """

    def __init__(self, application: Application, topic: str, record: Any, options: dict[str, Any]) -> None:
        from cyclonedds.core import Listener, Policy, Qos
        from cyclonedds.pub import DataWriter, Publisher

        reached = threading.Event()
        wanted = options.get("readers", 1)

        def on_publication_matched(_: Any, status: Any) -> None:
            if status.current_count >= wanted:
                reached.set()

        keep_all = options.get("keep_all", False)
        self.topic, self._record, self._application = topic, record, application
        self._shift_ns = int(options.get("shift_s", 0) * 1e9)
        self._size = options.get("size", 60)
        self._last_ns = 0
        self._values = 0
        self._writer = DataWriter(
            Publisher(application.participant, Qos(Policy.Partition([PARTITION]))),
            application.topic(topic, keep_all=keep_all),
            qos=qos_of(keep_all=keep_all),
            listener=Listener(on_publication_matched=on_publication_matched),
        )
        self._place = self._writer.guid.hex
        self.reached = reached

    def _matched(self) -> dict[int, str]:
        """The nodes whose readers match, by the handle of the reader."""
        found = {}
        for handle in self._writer.get_matched_subscriptions():
            with contextlib.suppress(Exception):  # it has gone meanwhile
                data = self._writer.get_matched_subscription_data(handle)
                if data is not None and (name := self._application.name_of(data.participant_key)):
                    found[handle] = name
        return found

    def write(self, stations: list[int], *, dispose: bool = False) -> bool:
        """Write or dispose these stations; returns whether a node has confirmed it."""
        from chaos.entry_type import Entry, text_of

        before = self._matched()
        operation = self._writer.dispose if dispose else self._writer.write
        lines, samples = [], []
        for station in stations:
            self._values += 1
            self._last_ns = max(self._last_ns + 1, time.time_ns() + self._shift_ns)
            lines.append(
                f"a {self.topic} {self._place} {'d' if dispose else 'w'} {self._last_ns} {station}"
                f" {self._values} {self._size}\n"
            )
            text = text_of(self.topic, station, self._values, self._size)
            samples.append((Entry(station, self._values, text), self._last_ns))
        self._note("".join(lines))
        from cyclonedds.core import DDSException

        try:
            for sample, stamp in samples:
                operation(sample, timestamp=stamp)
            if not self._writer.wait_for_acks(10_000_000_000):
                return False
        except (DDSException, AttributeError):  # the wheel's time-out path raises the latter
            return False
        after = self._matched()
        nodes = sorted({name for handle, name in before.items() if after.get(handle) == name})
        if nodes:
            self._note(f"c {self.topic} {self._place} {self._last_ns} {time.time_ns()} {','.join(nodes)}\n")
        return bool(nodes)

    def _note(self, text: str) -> None:
        self._record.write(text)
        self._record.flush()


def writer(options: dict[str, Any]) -> None:
    """Writes what it is told.

    Options: `domain`, `record`, `topics`; `readers` to wait for with each; `keep_all`, `size`, `shift_s` of
    the source times, `seed`. Commands: `write` or `dispose` [FIRST, COUNT] stations of each topic in turn;
    `rate` samples a second to `stations` stations, every n-th `dispose_every`, until another command;
    0 stops it.
    """
    application = Application(options["domain"])
    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    chance = random.Random(options.get("seed", 0))
    writers: list[TopicWriter] = []
    with Path(options["record"]).open("a", encoding="utf-8") as record:
        for topic in options["topics"]:
            made = TopicWriter(application, topic, record, options)
            if not made.reached.wait(options.get("patience_s", 20)):
                say(error=f"nobody reads {topic}")
            writers.append(made)
            if "at_once" in options:
                made.write(list(range(options["at_once"])))
        say(ready=True)
        rate: dict[str, Any] = {"rate": 0}
        while True:
            command = _next(commands, waits=not rate["rate"])
            if command is None:
                os._exit(0)
            if "rate" in command:
                rate = command
                say(rate=rate["rate"])
            elif command:
                done = [_carry_out(one, command) for one in writers]
                say(done=all(done))
            elif rate["rate"]:
                _write_on(writers, rate, chance)


def _carry_out(writer: TopicWriter, command: dict[str, Any]) -> bool:
    dispose = "dispose" in command
    first, count = command["dispose" if dispose else "write"]
    return writer.write(list(range(first, first + count)), dispose=dispose)


def _write_on(writers: list[TopicWriter], rate: dict[str, Any], chance: random.Random) -> None:
    began = time.monotonic()
    count = max(1, round(rate["rate"] * BATCH_S / len(writers)))
    for one in writers:
        dispose = bool(rate.get("disposes")) and chance.random() < rate["disposes"]
        one.write([chance.randrange(rate.get("stations", 100)) for _ in range(count)], dispose=dispose)
    time.sleep(max(0.0, began + BATCH_S - time.monotonic()))


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

    Options: `domain`, `topics` as [NAME, KEEPS ALL]. Command: `tally`; the answer has, for each topic, the
    samples as [STATION, VALUE, TIME, TEXT], and the state of each station.
    """
    from cyclonedds.core import InstanceState, Policy, Qos, SampleState, ViewState
    from cyclonedds.sub import DataReader, Subscriber

    application = Application(options["domain"])
    subscriber = Subscriber(application.participant, Qos(Policy.Partition([PARTITION])))
    ends = {}
    for name, keep_all in options["topics"]:
        topic = application.topic(name, keep_all=keep_all)
        qos = qos_of(keep_all=keep_all)
        history = Policy.History.KeepAll if keep_all else Policy.History.KeepLast(1)
        ends[name] = DataReader(
            subscriber, topic, qos=Qos(*(p for p in qos if p.__scope__ != "History"), history)
        )
    say(ready=True)
    for line in sys.stdin:
        if "tally" not in json.loads(line):
            continue
        found = {}
        for name, end in ends.items():
            states: dict[int, int] = {}
            samples = []
            for one in end.read(1_000_000):
                info = one.sample_info
                states[one.station] = int(info.instance_state)
                if info.valid_data:
                    samples.append([one.station, one.value, info.source_timestamp, one.text])
            found[name] = {"samples": samples, "states": states}
        say(tally=found)
    _ = (SampleState, ViewState, InstanceState)


def burner(_: dict[str, Any]) -> None:
    """Keeps one core busy."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    say(ready=True)
    while True:
        sum(range(10_000))


ROLES = {"writer": writer, "reader": reader, "burner": burner}

if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
