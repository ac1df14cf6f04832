"""A plain publisher: only `cyclonedds`, nothing of ospltool. It writes persistent data and exits.

python samples/publisher.py --first 0 --count 1000 --dispose-every 100
"""

from __future__ import annotations

import argparse
import sys
import time

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic
from cyclonedds.util import duration
from kept import wait_until_kept
from observation import PARTITIONS, TOPIC, Observation

QOS = Qos(
    Policy.Durability.Persistent,
    Policy.DurabilityService(
        cleanup_delay=duration(infinite=True),
        history=Policy.History.KeepLast(1),
        max_samples=-1,
        max_instances=-1,
        max_samples_per_instance=-1,
    ),
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.History.KeepAll,
    Policy.DestinationOrder.BySourceTimestamp,
    # Without this, a writer that ends disposes everything that it wrote, and there would be nothing left to
    # keep: the default of DDS is autodispose_unregistered_instances = TRUE.
    Policy.WriterDataLifecycle(autodispose=False),
)


def main() -> int:
    """Write, and exit once all readers have acknowledged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first station")
    parser.add_argument("--count", type=int, default=1000, help="stations, shared among the partitions")
    parser.add_argument("--dispose-every", type=int, default=0, help="dispose every n-th station again")
    parser.add_argument("--nodes", type=int, default=1, help="nodes that must keep it from the first sample")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds to wait for them")
    options = parser.parse_args()

    participant = DomainParticipant(options.domain)
    topic = Topic(participant, TOPIC, Observation, qos=QOS)
    writers = [
        DataWriter(Publisher(participant, Qos(Policy.Partition([name]))), topic, qos=QOS)
        for name in PARTITIONS
    ]
    # Cyclone DDS keeps nothing for readers that come later than a sample, nodes included. What no node has
    # captured is lost all the same, for example while a link is down; `durable_publisher.py` keeps it itself.
    for name, writer in zip(PARTITIONS, writers, strict=True):
        if not wait_until_kept(writer, options.nodes, options.timeout):
            wanted = "no node keeps" if options.nodes == 1 else f"fewer than {options.nodes} nodes keep"
            print(f"{wanted} partition '{name}' of domain {options.domain}", file=sys.stderr)
            return 1
    disposed = 0
    for number in range(options.count):
        station, now = options.first + number, time.time_ns()
        writer = writers[number % len(writers)]
        sample = Observation(station, number, now, f"station {station}")
        writer.write(sample, timestamp=now)
        if options.dispose_every and number % options.dispose_every == 0:
            writer.dispose(sample, timestamp=now + 1)
            disposed += 1
    try:
        for writer in writers:
            writer.wait_for_acks(duration(seconds=options.timeout))
    except AttributeError:  # how cyclonedds 11.0.1 says that the time is over
        print(f"not everything was acknowledged in {options.timeout:g} s", file=sys.stderr)
        return 1
    print(f"wrote {options.count} instances, disposed {disposed}, and exits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
