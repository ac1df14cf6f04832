"""Applications of these tests in processes of their own: `python -m tests.client.applications ROLE JSON`."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.integration.applications import commands, say
from tests.integration.programs import Program


def client_reader(options: dict[str, Any]) -> None:
    """A durable reader, or none before the first history with `later`.

    Commands: `history` waits, `want` waits for so many samples; then the tally of what came, without what was
    shown again. `seen` says the timeline of each instance in words, like programs with ordinary readers.
    """
    from ospltool.client import DurabilityClient, DurableReader
    from tests.integration import application_types as types

    with DurabilityClient(options["domain"]) as client:

        def make() -> DurableReader[Any]:
            return DurableReader(client, "Reading", types.Reading, options.get("partitions", ["stock"]))

        reader = None if options.get("later") else make()
        got: list[Any] = []
        shown: dict[str, Any] = {}

        def take() -> None:
            for one in reader.take() if reader else ():
                kind = "S" if one.data else "D" if one.is_dispose else "NW"
                time_ns = one.source_time_ns if one.data else ""
                seen = shown.setdefault(str(int.from_bytes(one.key[:4], "little")), {"words": []})
                seen["words"].append(f"{kind}{time_ns}")
                counts = one.disposed_generation_count, one.no_writers_generation_count
                seen.update(generations=counts, key=one.key.hex())
                if not one.is_again and not one.is_derived:
                    got.append(one)

        say(ready=True)
        for command in commands():
            reader = reader or make()
            if "seen" in command:
                take()
                for seen in shown.values():
                    seen["state"] = reader.instance_state(bytes.fromhex(seen["key"]))
                say(seen=shown)
                continue
            if "history" in command:
                reader.wait_for_historical_data(command["history"])
                say(history=True)
            deadline = time.monotonic() + 30
            take()
            while len(got) < command.get("want", 0) and time.monotonic() < deadline:
                reader.wait(deadline - time.monotonic())
                take()
            say(tally=[[one.source_time_ns, one.data.number if one.data else None] for one in got])


def stream(options: dict[str, Any]) -> None:
    """Writes to a few instances without a pause, each sample with the next value, until told to end."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter, Publisher
    from cyclonedds.topic import Topic

    from tests.integration import application_types as types
    from tests.integration.applications import Matched, qos_of

    participant = DomainParticipant(options["domain"])
    qos = qos_of({"depth": 0})
    matched = Matched(options["readers"])
    publisher = Publisher(participant, Qos(Policy.Partition(["stock"])))
    topic = Topic(participant, "Reading", types.Reading, qos=qos)
    writer = DataWriter(publisher, topic, qos=qos, listener=matched.listener())
    if not matched.reached.wait(20):
        sys.exit(1)
    ended = threading.Event()

    def until_told() -> None:
        sys.stdin.readline()
        ended.set()

    threading.Thread(target=until_told, daemon=True).start()
    say(ready=True)
    value = 0
    while not ended.wait(options["pause_s"]):
        for number in range(options["instances"]):
            writer.write(types.Reading(number, value, ""))
        value += 1
        if value == options["first"]:
            say(written=value)
    writer.wait_for_acks(20_000_000_000)
    say(written=value)
    sys.stdin.readline()


KEEPS = ("nodes", "expected", "max_samples", "sync")


class Keeper:
    """Writes what it is told to and asks whether it is stored; `plain` is without a DurableWriter.

    Commands: `write` [first, count] with `value`, `dispose`, `unregister`; `wait` seconds with `nodes` asks
    for the plain writer, `ask` with `timeout` for the names from that one on; `flush` seconds; `counters`;
    `close`; `matched` waits for exactly that number of readers; `delete` deletes the history; with `age_s`
    source times are as old as that. Each is answered.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        from cyclonedds.core import Policy, Qos
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.pub import DataWriter, Publisher
        from cyclonedds.topic import Topic

        from ospltool.client import DurabilityClient, DurableWriter
        from tests.integration import application_types as types
        from tests.integration.applications import qos_of

        participant = DomainParticipant(options["domain"])
        qos = qos_of({"depth": 0, **options})
        if "blocking_ns" in options:
            qos = Qos(Policy.Reliability.Reliable(options["blocking_ns"]), base=qos)
        self.partitions = options.get("partitions", ["stock"])
        publisher = Publisher(participant, Qos(Policy.Partition(self.partitions)))
        self.type = types.TYPES[options.get("type", "Reading")]
        self.make = types.SAMPLES[self.type]
        topic_name = options.get("topic", options.get("type", "Reading"))
        topic = Topic(participant, topic_name, self.type, qos=qos)
        self.writer = DataWriter(publisher, topic, qos=qos)
        self.client = DurabilityClient(participant)
        keeps: dict[str, Any] = {name: options[name] for name in KEEPS if name in options}
        if "journal" in options:
            keeps["journal"] = Path(options["journal"])
        self.durable: DurableWriter[Any] | None = None
        if not options.get("plain"):
            self.durable = DurableWriter(self.client, self.writer, **keeps)
        self.names: list[Any] = []

    def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        from ospltool.client import Written

        self.change(command)
        if "matched" in command:
            deadline = time.monotonic() + 20
            while len(self.writer.get_matched_subscriptions()) != command["matched"]:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)
        if "delete" in command:
            self.client.delete_historical_data(*command["delete"])
        nodes = command.get("nodes", 1)
        if "wait" in command:
            return told(self.client.wait_for_durable(self.writer, command["wait"], nodes=nodes))
        if "ask" in command:
            some = tuple(self.names[command["ask"] :])
            asked = Written(self.writer.topic.name, tuple(self.partitions), some)
            return told(self.client.wait_for_durable(asked, command["timeout"], nodes=nodes))
        if self.durable and "flush" in command:
            self.durable.flush(command["flush"])
        if self.durable and "counters" in command:
            return {"counters": dataclasses.asdict(self.durable.counters)}
        if self.durable and "close" in command:
            return {"pending": self.durable.close()}
        return {}

    def change(self, command: dict[str, Any]) -> None:
        target: Any = self.durable or self.writer
        unregister = self.durable.unregister if self.durable else self.writer.unregister_instance
        operations = {"write": target.write, "dispose": target.dispose, "unregister": unregister}
        for name, operation in operations.items():
            first, count = command.get(name, (0, 0))
            for number in range(first, first + count):
                sample = self.make(number)
                if "value" in command:
                    sample.value = command["value"]
                time_ns = (
                    {"timestamp": time.time_ns() - command["age_s"] * 10**9} if "age_s" in command else {}
                )
                written = operation(sample, **time_ns)
                if self.durable:
                    self.names.append(written)
                    say(wrote=written.digest.hex())


def told(stored: Any) -> dict[str, Any]:
    return {"stored": [one.service_name for one in stored], "disk": [one.on_disk for one in stored]}


def keeper(options: dict[str, Any]) -> None:
    """The application around a `Keeper`."""
    from ospltool.client import DurabilityError, NotStored

    made = Keeper(options)
    say(ready=True, recovered=made.durable.counters.recovered if made.durable else 0)
    for command in commands():
        try:
            say(done=made.perform(command))
        except DurabilityError as error:
            missing = error.missing if isinstance(error, NotStored) else ()
            facts = [[one.node, one.reason.name, one.count] for one in missing]
            say(done={"error": type(error).__name__, "text": str(error), "missing": facts})
        except Exception as error:
            say(done={"error": type(error).__name__, "text": str(error)})


class ClientProgram(Program):
    """A child process in a role of this module."""

    module = "tests.client.applications"
    recovered = 0
    """Samples that a `keeper` found in its journal."""


def done(program: ClientProgram, timeout_s: float = 90.0, **command: Any) -> Any:
    """Let a `keeper` carry out a command; what came of it."""
    program.tell(**command)
    return program.answer("done", timeout_s)


if __name__ == "__main__":
    {"client_reader": client_reader, "stream": stream, "keeper": keeper}[sys.argv[1]](json.loads(sys.argv[2]))
