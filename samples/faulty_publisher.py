"""A publisher with faults, for `ospltool doctor` to find: docs/doctor.md shows what it says.

python samples/faulty_publisher.py      # and samples/faulty_subscriber.py beside it; Ctrl-C ends them

Its data is meant to be kept, and is BEST_EFFORT: no durability service can capture it, and no reliable reader
gets it. Its samples are ordered by reception, so that two readers may take different ones for the latest.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from cyclonedds.core import Listener, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic
from observation import PARTITIONS, TOPIC, Observation

QOS = Qos(
    Policy.Durability.Persistent,
    Policy.Reliability.BestEffort,
    Policy.DestinationOrder.ByReceptionTimestamp,
    Policy.WriterDataLifecycle(autodispose=False),
)


class Refusals(Listener):  # type: ignore[misc]  # the wheel has no types
    """Says that a reader does not match, as Cyclone DDS tells it: which policy, and nothing more."""

    def on_offered_incompatible_qos(self, writer: Any, status: Any) -> None:
        """Called by Cyclone DDS."""
        print(f"refused by {status.total_count} readers, policy {status.last_policy_id}", flush=True)


def main() -> int:
    """Write a sample a second until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    options = parser.parse_args()
    participant = DomainParticipant(options.domain)
    topic = Topic(participant, TOPIC, Observation)
    publisher = Publisher(participant, Qos(Policy.Partition(list(PARTITIONS[:1]))))
    writer = DataWriter(publisher, topic, qos=QOS, listener=Refusals())
    number = 0
    try:
        while True:
            writer.write(Observation(number % 10, number, time.time_ns(), "lost"))
            number += 1
            time.sleep(1.0)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
