"""`python -m engine.simulator --seeds 1..100`: a campaign without the command-line tool."""

from __future__ import annotations

import argparse
import sys

from engine.simulator.campaign import ANY, Campaign, summary


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.simulator", description=__doc__)
    parser.add_argument("--seeds", default="1..100")
    parser.add_argument("--faults", default=ANY)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", action="store_true")
    chosen = parser.parse_args()
    first, dots, last = chosen.seeds.partition("..")
    campaign, outcomes = Campaign(chosen.faults), []
    seeds = range(int(first), int(last if dots else first) + 1)
    show = (lambda line: print(line)) if chosen.log else None  # noqa: T201
    source = (
        (campaign.run(seed, show) for seed in seeds) if chosen.log else campaign.run_all(seeds, chosen.jobs)
    )
    for outcome in source:
        outcomes.append(outcome)
        if outcome.violation or chosen.log:
            sys.stdout.write(f"# seed {outcome.seed}: {outcome.violation or 'clean'}\n")
            sys.stdout.flush()
        if len(outcomes) % 100 == 0:
            sys.stderr.write(f"{len(outcomes)} of {len(seeds)}\n")
    sys.stdout.write(summary(outcomes, chosen.jobs) + "\n")
    return any(outcome.violation for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
