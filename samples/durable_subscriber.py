"""A subscriber with a durable subscription: what is written while it is away is kept until it has it.

    python samples/durable_subscriber.py --name logger

A persistence service must run (`ospltool persistence run samples/redundant-persistence/service.xml`). Stop
this program as you like, start it again: it goes on where it was. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from observation import PARTITIONS, TOPIC, Observation

from ospltool.client import DurabilityTimeout, DurableReader


def main() -> int:
    """Take what is pending, then what comes; acknowledge each part when it is done with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--name", default="logger", help="of the durable subscription")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds to wait for what is pending")
    parser.add_argument("--follow", type=float, default=0.0, help="seconds to read live samples afterwards")
    options = parser.parse_args()

    with DurableReader(
        options.domain,
        TOPIC,
        Observation,
        PARTITIONS,
        durable_subscription=options.name,
        acknowledges_on_take=False,
    ) as reader:
        try:
            reader.wait_for_historical_data(options.timeout)
            taken = 0
            end = time.monotonic() + options.follow
            while samples := reader.take():
                for one in samples:
                    if one.data is not None:
                        print(f"station {one.data.station} saw {one.data.value}")
                reader.acknowledge(samples)  # not before it is done with
                taken += len(samples)
                reader.wait(max(0.0, end - time.monotonic()))
            reader.wait_for_acknowledgments(options.timeout)
        except DurabilityTimeout as error:
            print(f"durable_subscriber: {error}", file=sys.stderr)
            return 1
        print(json.dumps({"taken": taken, "repeated": reader.counters.repeated}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
