"""An application with the writers and readers that it is told to have: `python -m tests.doctor.ends JSON`.

It says that they are there, and ends with its standard input.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def _history(depth: int) -> Any:
    """A history policy; 0 is KEEP_ALL."""
    from cyclonedds.core import Policy

    return Policy.History.KeepLast(depth) if depth else Policy.History.KeepAll


def main(options: dict[str, Any]) -> None:
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter, Publisher
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    from tests.integration.application_types import TYPES

    participant = DomainParticipant(options["domain"])
    kept: list[Any] = []
    for one in options["ends"]:
        topic = Topic(participant, one["topic"], TYPES["Reading"])
        reliable = one.get("reliable", True)
        policies = [
            getattr(Policy.Durability, one.get("durability", "Transient")),
            Policy.Reliability.Reliable(1_000_000_000) if reliable else Policy.Reliability.BestEffort,
            Policy.WriterDataLifecycle(autodispose=False),
        ]
        if "history" in one:
            policies.append(_history(one["history"]))
        if "service" in one:
            policies.append(Policy.DurabilityService(0, _history(one["service"]), -1, -1, -1))
        if "deadline_s" in one:
            policies.append(Policy.Deadline(duration(seconds=one["deadline_s"])))
        if one.get("exclusive"):
            policies.append(Policy.Ownership.Exclusive)
        if one.get("by_source", True):
            policies.append(Policy.DestinationOrder.BySourceTimestamp)
        partition = Qos(Policy.Partition([one.get("partition", "stock")]))
        if one["is_writer"]:
            kept.append(DataWriter(Publisher(participant, partition), topic, qos=Qos(*policies)))
        else:
            kept.append(DataReader(Subscriber(participant, partition), topic, qos=Qos(*policies)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
