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
STATES: dict[int, str] = {16: "alive", 32: "disposed", 64: "without writers"}


def main(role: str, options: dict[str, Any]) -> None:
    """A writer does what it is told and ends; a reader says each value and state that it gets."""
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter, Publisher
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    type_ = VERSIONS[options["version"]]
    is_by_reception = options.get("by_reception", False)
    order = Policy.DestinationOrder
    qos = Qos(
        Policy.Durability.Persistent,
        Policy.Reliability.Reliable(10_000_000_000),
        Policy.History.KeepLast(1) if is_by_reception else Policy.History.KeepAll,
        order.ByReceptionTimestamp if is_by_reception else order.BySourceTimestamp,
        Policy.WriterDataLifecycle(autodispose=False),
    )
    where = Qos(Policy.Partition(options.get("partitions", ["stock"])))
    participant = DomainParticipant(options["domain"])
    topic = Topic(participant, "Evolving", type_, qos=qos)
    if role == "writer":
        writer = DataWriter(Publisher(participant, where), topic, qos=qos)
        while len(writer.get_matched_subscriptions()) < options["readers"]:
            time.sleep(0.01)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            write(writer, type_, **json.loads(line))
            print(json.dumps({"done": True}), flush=True)
        return
    reader = DataReader(Subscriber(participant, where), topic, qos=qos)
    print(json.dumps({"ready": True}), flush=True)
    watch(reader, type_)


def write(writer: Any, type_: Any, values: dict[str, int | None], time: int) -> None:
    """Write values, and dispose instances without one; return when all readers have them."""
    for number, value in values.items():
        extra = (value or 0,) if type_ is New else ()
        sample = type_(int(number), value or 0, *extra)
        (writer.dispose if value is None else writer.write)(sample, time)
    writer.wait_for_acks(10_000_000_000)


def watch(reader: Any, type_: Any) -> None:
    """Say the newest value, and the state, of each instance until the standard input ends."""
    latest: dict[int, int] = {}
    states: dict[int, str] = {}
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    while not ended.wait(0.02):
        for sample in reader.take(100):
            shown = sample if isinstance(sample, type_) else sample.key_sample
            number = shown.number
            if sample.sample_info.valid_data:
                latest[number] = sample.value
            states[number] = STATES[sample.sample_info.instance_state]
            print(json.dumps({"latest": latest, "states": states}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
