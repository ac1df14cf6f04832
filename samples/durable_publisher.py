"""A publisher that loses nothing once `write` has returned, whichever nodes die, and even if it dies itself.

    python samples/durable_publisher.py --journal ships.journal --nodes 2

The nodes must serve clients: `<ClientDurability enabled="true"/>` in their configuration, inside
`<DurabilityService>`. The publisher does not wait for a node before it writes. It keeps what it writes in
the journal until as many nodes as wanted have stored it, and hands nodes what they missed. Kill it and start
it again with the same journal: what was left is handed over first, with its original times.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic
from observation import PARTITIONS, TOPIC, Observation
from publisher import QOS

from ospltool.client import DurabilityClient, DurableWriter, JournalError, NotStored, WriterFull


def open_writer(
    client: DurabilityClient, plain: DataWriter[Observation], options: argparse.Namespace
) -> DurableWriter[Observation]:
    """The durable writer around a plain one."""
    return DurableWriter(client, plain, nodes=options.nodes, journal=options.journal)


def main() -> int:
    """Write, and exit once everything is stored; what is not stays in the journal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first station")
    parser.add_argument("--count", type=int, default=1000, help="stations to write")
    parser.add_argument("--nodes", type=int, default=1, help="nodes that must store each sample")
    parser.add_argument("--journal", type=Path, help="file to keep what is not stored yet (default: memory)")
    parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds to wait for the nodes at the end"
    )
    options = parser.parse_args()

    participant = DomainParticipant(options.domain)
    topic = Topic(participant, TOPIC, Observation, qos=QOS)
    publisher = Publisher(participant, Qos(Policy.Partition([PARTITIONS[0]])))
    plain = DataWriter(publisher, topic, qos=QOS)
    try:
        with DurabilityClient(participant) as client, open_writer(client, plain, options) as writer:
            if writer.recovery.samples:
                print(f"{writer.recovery.samples} samples were left in the journal")
            for station in range(options.first, options.first + options.count):
                writer.write(Observation(station, 0, time.time_ns(), f"station {station}"))
            writer.flush(options.timeout)
            counters = writer.counters
    except (JournalError, NotStored, WriterFull) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{counters.stored} samples are stored; {counters.handed_over} of them were handed over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
