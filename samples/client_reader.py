"""A subscriber with the client library: it knows when it has everything, and gets nothing twice.

    python samples/client_reader.py

The nodes must serve clients: `<ClientDurability enabled="true"/>` in their configuration, inside
`<DurabilityService>`. The reader asks for the complete history, prints how many samples it has, and then
prints what is written from now on until the time is over. The last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from observation import PARTITIONS, TOPIC, Observation

from ospltool.client import DurabilityClient, DurabilityTimeout, DurableReader, InstanceState


def main() -> int:
    """Get the history, then what comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds to wait for the history")
    parser.add_argument("--follow", type=float, default=0.0, help="seconds to read live samples afterwards")
    options = parser.parse_args()

    started = time.monotonic()
    with DurabilityClient(options.domain) as client:
        reader = DurableReader(client, TOPIC, Observation, PARTITIONS)
        try:
            reader.wait_for_historical_data(options.timeout)
        except DurabilityTimeout as error:
            print(f"client_reader: {error}", file=sys.stderr)
            return 1
        complete_s = time.monotonic() - started
        samples = reader.take()
        historical = len(samples)
        disposed = {one.key for one in samples if one.instance_state is InstanceState.NOT_ALIVE_DISPOSED}
        print(f"the history is complete: {historical} samples, {len(disposed)} instances are disposed")
        end = time.monotonic() + options.follow
        while (left := end - time.monotonic()) > 0:
            reader.wait(left)
            for one in reader.take():
                samples.append(one)
                if one.data is not None:
                    print(f"station {one.data.station} saw {one.data.value}")
        print(
            json.dumps(
                {
                    "historical": historical,
                    "live": len(samples) - historical,
                    "instances": len({one.key for one in samples}),
                    "repeated": reader.counters.repeated,
                    "complete_s": round(complete_s, 3),
                }
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
