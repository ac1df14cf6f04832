"""Applications of these tests in processes of their own: `python -m tests.client.applications ROLE JSON`."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from tests.integration.applications import commands, say
from tests.integration.programs import Program


def client_reader(options: dict[str, Any]) -> None:
    """A durable reader, or none before the first history with `later`.

    Commands: `history` waits, `want` waits for so many samples; then the tally.
    """
    from ospltool.client import DurabilityClient, DurableReader
    from tests.integration import application_types as types

    with DurabilityClient(options["domain"]) as client:

        def make() -> DurableReader[Any]:
            return DurableReader(client, "Reading", types.Reading, options.get("partitions", ["stock"]))

        reader = None if options.get("later") else make()
        got: list[Any] = []
        say(ready=True)
        for command in commands():
            reader = reader or make()
            if "history" in command:
                reader.wait_for_historical_data(command["history"])
                say(history=True)
            deadline = time.monotonic() + 30
            got += reader.take()
            while len(got) < command.get("want", 0) and time.monotonic() < deadline:
                reader.wait(deadline - time.monotonic())
                got += reader.take()
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


class ClientProgram(Program):
    """A child process in a role of this module."""

    module = "tests.client.applications"


if __name__ == "__main__":
    {"client_reader": client_reader, "stream": stream}[sys.argv[1]](json.loads(sys.argv[2]))
