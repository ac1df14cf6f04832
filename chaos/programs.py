"""The applications of a round: `python -m chaos.programs ROLE JSON`. Ordinary ones: they use cyclonedds only.

They take commands as lines of JSON on standard input and answer in the same way; the end of the input ends
them. A writer keeps a record, a file that only grows. Its lines, separated by blanks:

- `a TOPIC WRITER OP TIME STATION VALUE SIZE`: the writer (its GUID) is about to write (OP `w`) or dispose
  (`d`) with this source time;
- `c TOPIC WRITER FIRST LAST SINCE WALL NODES`: what has these source times was written from the one wall
  clock on and confirmed until the other by these nodes (joined by commas, or a star).

A topic whose name ends in `All` is KEEP_ALL; the others are KEEP_LAST 1.
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from chaos.promises import PARTITION, PROMISES, Application, Promise, history_of, qos_of

PIECE_S: Final = 0.05
CONFIRM_S: Final = 0.5
MATCHED_S: Final = 20.0
"""How long a writer waits for its readers before it writes all the same."""


def print_json(**what: Any) -> None:
    """A line for the harness."""
    print(json.dumps(what), flush=True)


class TopicWriter:
    """One writer of one topic, with the record of what it was promised."""

    def __init__(self, topic: str, promise: Promise, record: Any, options: dict[str, Any]) -> None:
        self.topic, self._promise, self._record = topic, promise, record
        self._shift_ns = int(options.get("shift_s", 0) * 1e9)
        self._size = options.get("size", 60)
        self._first_ns = self._last_ns = self._since_ns = 0
        self._values = 0

    @property
    def guid(self) -> str:
        """The writer's, as in the record."""
        return self._promise.guid

    def write(self, stations: list[int], *, dispose: bool = False) -> None:
        """Write or dispose these stations, as a part of the batch that is next to be confirmed."""
        from chaos.entry_type import Entry, text_of

        promise = self._promise
        if not self._first_ns:
            self._since_ns = time.time_ns()
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
            times = f"{self._first_ns} {self._last_ns} {self._since_ns} {time.time_ns()}"
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
    `stations` stations, a share of `disposes`, until the next `rate`; `guids` of its writers.
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
        print_json(ready=True)
        flow: Flow | None = None
        while True:
            command = _next(commands, waits=flow is None)
            if command is None:
                os._exit(0)
            if "rate" in command:
                flow = Flow(writers, command, chance) if command["rate"] else None
                print_json(rate=command["rate"])
            elif "guids" in command:
                print_json(guids=[one.guid for one in writers])
            elif command:
                print_json(done=all(_carry_out(one, command) for one in writers))
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
    VALUE, TIME, TEXT], the state of each station (16 alive, 32 disposed, 64 without writers), and how many
    samples the reader has refused (SAMPLE_LOST).
    """
    from cyclonedds.core import Listener, Policy, Qos
    from cyclonedds.sub import DataReader, Subscriber

    application = Application(options["domain"])
    subscriber = Subscriber(application.participant, Qos(Policy.Partition([PARTITION])))
    ends = {}
    refused: dict[str, int] = {}

    def on_sample_lost(end: Any, status: Any) -> None:
        refused[end.topic.name] = status.total_count

    for name in options["topics"]:
        topic = application.topic(name)
        others = (policy for policy in qos_of(name) if policy.__scope__ != "History")
        qos = Qos(*others, history_of(name))
        ends[name] = DataReader(subscriber, topic, qos=qos, listener=Listener(on_sample_lost=on_sample_lost))
    print_json(ready=True)
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
            found[name] = {"samples": samples, "states": states, "refused": refused.get(name, 0)}
        print_json(tally=found)


def burner(_: dict[str, Any]) -> None:
    """Keeps one core busy."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print_json(ready=True)
    while True:
        sum(range(10_000))


def library_reader(options: dict[str, Any]) -> None:
    """As `reader`, with readers of the client library; what is shown again is told once."""
    from cyclonedds.core import Qos

    from chaos.entry_type import Entry
    from ospltool.client import DurabilityClient, DurableReader

    client = DurabilityClient(options["domain"])
    ends: dict[str, DurableReader[Any]] = {}
    for name in options["topics"]:
        qos = Qos(*(one for one in qos_of(name) if one.__scope__ not in _NOT_OF_READERS), history_of(name))
        ends[name] = DurableReader(client, name, Entry, [PARTITION], qos)
    print_json(ready=True)
    for line in sys.stdin:
        assert "tally" in json.loads(line)
        found = {}
        for name, end in ends.items():
            samples: dict[tuple[int, int], list[Any]] = {}
            states: dict[int, int] = {}
            for one in end.read():
                station = int.from_bytes(one.key[:4], "little")
                state = end.instance_state(one.key)
                states[station] = STATES.get(state.value if state else "", 0)
                if one.data is not None:
                    told = [station, one.data.value, one.source_time_ns, one.data.text]
                    samples[station, one.source_time_ns] = told
            found[name] = {"samples": [*samples.values()], "states": states, "refused": 0}
        print_json(tally=found)


STATES: Final = {"ALIVE": 16, "NOT_ALIVE_DISPOSED": 32, "NOT_ALIVE_NO_WRITERS": 64}
_NOT_OF_READERS: Final = ("History", "DurabilityService", "WriterDataLifecycle")
ROLES = {"writer": writer, "reader": reader, "library_reader": library_reader, "burner": burner}

if __name__ == "__main__":
    ROLES[sys.argv[1]](json.loads(sys.argv[2]))
