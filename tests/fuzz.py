"""Reads damaged files for a while: `python -m tests.fuzz --seconds 60`.

One input is made again with `--target`, `--seed` and `--count 1`. Prints how many inputs each reader had, and
ends with 1 if one of them was a fault.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import time

from tests.forensics import fuzz_forensics
from tests.fuzzing import Fault, attempt
from tests.stores import fuzz_stores
from tests.trace import fuzz_trace


def main() -> int:
    """Tries the readers in turn until the time is over."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="how long, for all readers together")
    options.add_argument("--seed", type=int, default=1, help="the first seed")
    options.add_argument("--count", type=int, help="inputs for each reader, however long it takes")
    options.add_argument("--target", action="append", help="only this reader; may be repeated")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        targets = [
            *fuzz_trace.targets(),
            *fuzz_stores.targets(pathlib.Path(scratch)),
            *fuzz_forensics.targets(),
        ]
        targets = [one for one in targets if not chosen.target or one.name in chosen.target]
        found: list[Fault] = []
        for target in targets:
            until = time.monotonic() + chosen.seconds / len(targets)
            seed = chosen.seed
            while seed < chosen.seed + chosen.count if chosen.count else time.monotonic() < until:
                fault = attempt(target, seed)
                if fault is not None:
                    found.append(fault)
                seed += 1
            faults = [one for one in found if one.target == target.name]
            sys.stdout.write(f"{target.name:<30}{seed - chosen.seed:>9} inputs {len(faults):>5} faults\n")
            for one in faults[:3]:
                sys.stdout.write(f"  seed {one.seed}:\n{one.what}\n")
            sys.stdout.flush()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
