"""An application on another implementation of DDS: `foreign_peer PEER writer|reader DOMAIN READERS`.

`make foreign` runs it in the environment of the peer, without the rest of the project. It speaks the lines
of tests/integration/programs.py: each line makes a writer write the next number, once that many readers
match, and a reader answer with the numbers that it got so far. All are TRANSIENT and reliable, but for rclpy,
which has no such durability.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator

TRANSIENT, RELIABLE, KEEP_ALL = "Transient", "Reliable", "KeepAll"
Writes = tuple[Callable[[int], None], Callable[[int], bool]]
"""What writes a number, and what tells whether so many readers match."""
Reads = Callable[[], Iterator[int]]


@dataclasses.dataclass
class Data:
    """The type of dust-dds, whose Python package has no keys."""

    number: int


def dust(role: str, domain: int) -> Writes | Reads:
    import dust_dds

    Data.__annotations__["number"] = dust_dds.TypeKind.uint32
    participant = dust_dds.DomainParticipantFactory.get_instance().create_participant(domain_id=domain)
    topic = participant.create_topic(topic_name="Bare", type_=Data)
    kinds = dust_dds.DurabilityQosPolicyKind
    policies = {
        "durability": dust_dds.DurabilityQosPolicy(kinds.Transient),
        "reliability": dust_dds.ReliabilityQosPolicy(
            dust_dds.ReliabilityQosPolicyKind.Reliable, dust_dds.DurationKind.Finite(dust_dds.Duration(1, 0))
        ),
        "history": dust_dds.HistoryQosPolicy(dust_dds.HistoryQosPolicyKind.KeepAll()),
    }
    if role == "writer":
        writer = participant.create_publisher().create_datawriter(
            topic, qos=dust_dds.DataWriterQos(**policies)
        )
        return (
            lambda number: writer.write(Data(number)),
            lambda readers: writer.get_publication_matched_status().get_current_count() >= readers,
        )
    reader = participant.create_subscriber().create_datareader(topic, qos=dust_dds.DataReaderQos(**policies))

    def read() -> Iterator[int]:
        try:
            samples = reader.take(max_samples=100)
        except Exception:  # it has no other way to say that there is nothing
            return
        for sample in samples:
            yield sample.get_data().number

    return read


def zero(role: str, domain: int, *, keyed: bool = False) -> Writes | Reads:
    import zerodds

    participant = zerodds.DomainParticipantFactory.instance().create_participant(domain)
    kind = "shape" if keyed else "bytes"
    topic = getattr(participant, f"create_{kind}_topic")("Bare")
    qos = zerodds.DataWriterQos() if role == "writer" else zerodds.DataReaderQos()
    qos.set_durability(TRANSIENT)
    qos.set_reliability(RELIABLE, 1.0)
    qos.set_history(KEEP_ALL, 0)
    if role == "writer":
        qos.set_writer_data_lifecycle(False)
        writer = getattr(participant.create_publisher(), f"create_{kind}_writer_with_qos")(topic, qos)

        def write(number: int) -> None:
            writer.write(zerodds.Shape("RED", number, 0) if keyed else bytes([number]))

        def has(readers: int) -> bool:
            try:
                writer.wait_for_matched_subscription(readers, 0.1)
            except Exception:  # of a class of its own
                return False
            return True

        return write, has
    reader = getattr(participant.create_subscriber(), f"create_{kind}_reader_with_qos")(topic, qos)
    return lambda: ((one.x if keyed else one[0]) for one in reader.take())


def ros(role: str, _domain: int) -> Writes | Reads:
    import rclpy
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from std_msgs.msg import UInt8

    rclpy.init()
    node = rclpy.create_node(role)
    qos = QoSProfile(
        depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL, reliability=ReliabilityPolicy.RELIABLE
    )
    if role == "writer":
        publisher = node.create_publisher(UInt8, "/bare", qos)
        return (
            lambda number: publisher.publish(UInt8(data=number)),
            lambda readers: publisher.get_subscription_count() >= readers,
        )
    got: list[int] = []
    node.create_subscription(UInt8, "/bare", lambda message: got.append(message.data), qos)

    def read() -> Iterator[int]:
        for _ in range(20):
            rclpy.spin_once(node, timeout_sec=0.01)
        while got:
            yield got.pop(0)

    return read


PEERS: dict[str, Callable[[str, int], Writes | Reads]] = {
    "dust-dds": dust,
    "zerodds": zero,
    "zerodds-keyed": lambda role, domain: zero(role, domain, keyed=True),
    "rclpy": ros,
}


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main(peer: str, role: str, domain: str, readers: str) -> None:
    made = PEERS[peer](role, int(domain))
    say(ready=True)
    numbers: list[int] = []
    for number, _ in enumerate(sys.stdin):
        if isinstance(made, tuple):
            write, has = made
            while not has(int(readers)):
                time.sleep(0.01)
            write(number)
            say(wrote=number)
        else:
            numbers += made()
            say(numbers=numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
