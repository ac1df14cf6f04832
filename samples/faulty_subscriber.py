"""A reader of what samples/faulty_publisher.py writes, that gets nothing: `ospltool doctor` says why."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from cyclonedds.core import Listener, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration
from observation import PARTITIONS, TOPIC, Observation

QOS = Qos(
    Policy.Durability.Persistent,
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.DestinationOrder.ByReceptionTimestamp,
)


class Refusals(Listener):  # type: ignore[misc]  # the wheel has no types
    """Says that a writer does not match."""

    def on_requested_incompatible_qos(self, reader: Any, status: Any) -> None:
        """Called by Cyclone DDS."""
        print(f"refuses {status.total_count} writers, policy {status.last_policy_id}", flush=True)


def main() -> int:
    """Read until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    options = parser.parse_args()
    participant = DomainParticipant(options.domain)
    topic = Topic(participant, TOPIC, Observation)
    subscriber = Subscriber(participant, Qos(Policy.Partition(list(PARTITIONS[:1]))))
    reader = DataReader(subscriber, topic, qos=QOS, listener=Refusals())
    try:
        while True:
            for sample in reader.take(100):
                print(f"got {sample}", flush=True)
            time.sleep(1.0)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
