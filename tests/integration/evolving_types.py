"""Two versions of an appendable type, and applications with them: `python -m ... ROLE JSON`.

Annotations are real here: cyclonedds reads them, so there is no `from __future__ import annotations`.
"""

# The base class comes without types.
# mypy: disable-error-code="misc,call-arg"

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import appendable, key
from cyclonedds.idl.types import int32


@dataclass
@appendable
class Old(IdlStruct, typename="evolving.Reading"):
    """The first version."""

    number: int32
    key("number")
    value: int32


@dataclass
@appendable
class New(IdlStruct, typename="evolving.Reading"):
    """The second version, with one member more at the end."""

    number: int32
    key("number")
    value: int32
    more: int32


VERSIONS: dict[str, Any] = {"old": Old, "new": New}


def main(role: str, options: dict[str, Any]) -> None:
    """A writer writes `values` to one instance each and ends; a reader says each value that it gets."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter, Publisher
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    type_ = VERSIONS[options["version"]]
    qos = Qos(
        Policy.Durability.Persistent,
        Policy.Reliability.Reliable(10_000_000_000),
        Policy.History.KeepAll,
        Policy.DestinationOrder.BySourceTimestamp,
        Policy.WriterDataLifecycle(autodispose=False),
    )
    where = Qos(Policy.Partition(["stock"]))
    participant = DomainParticipant(options["domain"])
    topic = Topic(participant, "Evolving", type_, qos=qos)
    if role == "writer":
        writer = DataWriter(Publisher(participant, where), topic, qos=qos)
        while len(writer.get_matched_subscriptions()) < options["readers"]:
            time.sleep(0.01)
        for number, value in options["values"].items():
            extra = (value,) if type_ is New else ()
            writer.write(type_(int(number), value, *extra), options["time"])
        writer.wait_for_acks(10_000_000_000)
        print(json.dumps({"done": True}), flush=True)
        sys.stdin.read()
        return
    reader = DataReader(Subscriber(participant, where), topic, qos=qos)
    print(json.dumps({"ready": True}), flush=True)
    latest: dict[int, int] = {}
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    while not ended.wait(0.02):
        for sample in reader.take(100):
            if isinstance(sample, type_):
                latest[sample.number] = sample.value
                print(json.dumps({"latest": latest}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
