"""A plain subscriber: only `cyclonedds`, nothing of ospltool. It starts late and still gets everything.

    python samples/subscriber.py --expect 1000

It ends when it has the expected number of instances, or at the time-out, and then waits a little for what
must not come: a second copy. The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time

from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic
from cyclonedds.util import duration
from observation import PARTITIONS, TOPIC, Observation

DURABILITY = {"transient": Policy.Durability.Transient, "persistent": Policy.Durability.Persistent}
NOT_ALIVE_DISPOSED = 32


class Tally:
    """What has arrived."""

    def __init__(self) -> None:
        self.arrivals: collections.Counter[int] = collections.Counter()
        self.disposed: set[int] = set()
        self.wrong_times = 0
        self.first_s = 0.0
        self.last_s = 0.0

    def count(self, reader: DataReader, started: float) -> None:
        """Take whatever the reader has."""
        for sample in reader.take(5000):
            now = time.monotonic() - started
            self.first_s = self.first_s or now
            self.last_s = now
            if not sample.sample_info.valid_data:  # the dispose itself, with the key only
                if sample.sample_info.instance_state == NOT_ALIVE_DISPOSED:
                    self.disposed.add(sample.key_sample.station)
                continue
            self.arrivals[sample.station] += 1
            self.wrong_times += sample.sample_info.source_timestamp != sample.time_ns
            if sample.sample_info.instance_state == NOT_ALIVE_DISPOSED:
                self.disposed.add(sample.station)

    def result(self) -> dict[str, object]:
        """The tally as plain values."""
        return {
            "instances": len(self.arrivals),
            "samples": sum(self.arrivals.values()),
            "more_than_once": sum(count > 1 for count in self.arrivals.values()),
            "disposed": len(self.disposed),
            "wrong_timestamps": self.wrong_times,
            "first_s": round(self.first_s, 3),
            "last_s": round(self.last_s, 3),
        }


def main() -> int:
    """Read until complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--durability", choices=sorted(DURABILITY), default="persistent")
    parser.add_argument("--expect", type=int, default=1000, help="instances to wait for")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds")
    parser.add_argument("--linger", type=float, default=1.0, help="seconds to wait for second copies")
    options = parser.parse_args()

    qos = Qos(
        DURABILITY[options.durability],
        Policy.Reliability.Reliable(duration(seconds=10)),
        Policy.History.KeepAll,
        Policy.DestinationOrder.BySourceTimestamp,
    )
    started = time.monotonic()
    participant = DomainParticipant(options.domain)
    subscriber = Subscriber(participant, Qos(Policy.Partition(list(PARTITIONS))))
    reader = DataReader(subscriber, Topic(participant, TOPIC, Observation, qos=qos), qos=qos)
    waitset = WaitSet(participant)
    waitset.attach(ReadCondition(reader, SampleState.Any | ViewState.Any | InstanceState.Any))
    tally, deadline = Tally(), started + options.timeout
    while (left := deadline - time.monotonic()) > 0:
        waitset.wait(duration(seconds=left))
        tally.count(reader, started)
        if len(tally.arrivals) >= options.expect:
            deadline = min(deadline, time.monotonic() + options.linger)
    print(json.dumps(tally.result()))
    return 0 if len(tally.arrivals) == options.expect else 1


if __name__ == "__main__":
    sys.exit(main())
