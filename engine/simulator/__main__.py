"""`python -m engine.simulator`: thousands of seeds, each another system with other faults.

A seed that breaks an invariant is printed with the command that replays it; with one seed and `--log`, the
short log of the whole cluster is printed. The exit code is 0 when all seeds are clean, 1 when one is not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from engine.simulator.campaign import ANY, parse_faults, replay_command, run_seeds
from engine.simulator.cluster import Cluster
from engine.simulator.draw import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.simulator.campaign import Outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.simulator", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(1, 101), help="one, or first..last (1..100)")
    parser.add_argument("--faults", default=ANY, help="any (drawn for each seed), all, none, or a list")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--log", action="store_true", help="print the short log of every seed")
    chosen = parser.parse_args(arguments)
    try:
        parse_faults(chosen.faults)
    except ValueError as error:
        parser.error(str(error))
    if chosen.log:
        return _show(chosen.seeds, chosen.faults)
    return _campaign(chosen.seeds, chosen.faults, chosen.jobs)


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last if dots else first) + 1)


def _show(seeds: range, faults: str) -> int:
    bad = 0
    for seed in seeds:
        result = Cluster(draw(seed, parse_faults(faults)), _put).run()
        _put(f"# seed {seed}: {'clean' if result.is_clean else result.violation}, log {result.digest}")
        bad += not result.is_clean
    return 1 if bad else 0


def _campaign(seeds: range, faults: str, jobs: int) -> int:
    started = time.monotonic()
    outcomes: list[Outcome] = []
    bad = 0
    for outcome in run_seeds(seeds, faults, jobs):
        outcomes.append(outcome)
        if outcome.violation:
            bad += 1
            _put(f"seed {outcome.seed}: {outcome.violation}")
            _put(f"  replay: {replay_command(outcome.seed, faults)}")
        if len(outcomes) % 100 == 0:
            _note(f"{len(outcomes)} of {len(seeds)} seeds, {bad} not clean")
    virtual_s = sum(outcome.virtual_s for outcome in outcomes)
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    elapsed_s = time.monotonic() - started
    _put(
        f"{len(outcomes)} seeds, {len(outcomes) - bad} clean, {bad} not; {virtual_s / 3600:.1f} virtual "
        f"hours in {elapsed_s:.0f} s on {jobs} processes, {virtual_s / max(cpu_s, 1e-9):.0f} x for one"
    )
    return 1 if bad else 0


def _put(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
