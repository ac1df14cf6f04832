"""Reads damaged files and messages for a while: `python -m tests.fuzz --seconds 60`.

Each reader gets an equal share of the time, until it has had as many inputs as are enough for it. One input
is made again with `--target`, `--seed` and `--count 1`. With `--tally FILE` a run goes on where the last one
with that file ended. Prints how many inputs each reader has had, and ends with 1 if one was a fault.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time
import warnings
from typing import TYPE_CHECKING, Final

from tests.check import fuzz_check
from tests.client import fuzz_client
from tests.forensics import fuzz_forensics
from tests.fuzzing import attempt
from tests.health import fuzz_watch
from tests.property import fuzz_messages
from tests.stores import fuzz_stores
from tests.trace import fuzz_trace
from tests.unit import fuzz_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.fuzzing import Target

IN_MEMORY: Final = pathlib.Path("/dev/shm")
"""Where files take no disk: a node that opens its store waits for one, ten times as long as it reads."""

MAX_KEPT: Final = 20
"""Faults of one reader that are kept; further ones are counted."""
SLICE_S: Final = 30.0
"""Longest time without a note in the tally."""


@dataclasses.dataclass
class Count:
    """What one reader has had: inputs (of the seeds from the first one on), seconds, and faults."""

    inputs: int = 0
    seconds: float = 0.0
    faults: int = 0
    seeds: list[int] = dataclasses.field(default_factory=list)


def all_targets(scratch: pathlib.Path) -> list[Target]:
    """Every reader of foreign bytes; files that they need are made in `scratch`."""
    return [
        *fuzz_messages.targets(),
        *fuzz_client.targets(scratch),
        *fuzz_files.targets(scratch),
        *fuzz_check.targets(),
        *fuzz_trace.targets(),
        *fuzz_stores.targets(scratch),
        *fuzz_forensics.targets(),
        *fuzz_watch.targets(),
    ]


class Tally:
    """The counts of all readers, and the file that keeps them for the next run."""

    def __init__(self, path: pathlib.Path | None, first_seed: int) -> None:
        self._path = path
        self.seed = first_seed
        self.counts: dict[str, Count] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text("utf-8"))
            self.seed = kept["seed"]
            self.counts = {name: Count(**each) for name, each in kept["readers"].items()}

    def of(self, target: Target) -> Count:
        """The count of one reader."""
        return self.counts.setdefault(target.name, Count())

    def save(self) -> None:
        """Write the file, if there is one."""
        if self._path is not None:
            readers = {name: dataclasses.asdict(each) for name, each in self.counts.items()}
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps({"seed": self.seed, "readers": readers}, indent=1) + "\n", "utf-8")
            new.replace(self._path)

    def lines(self, targets: Iterable[Target]) -> Iterable[str]:
        """One line for each reader."""
        yield f"{'READER':<30}{'INPUTS':>10}{'ENOUGH':>10}{'PER S':>9}{'FAULTS':>8}"
        for target in targets:
            count = self.of(target)
            rate = count.inputs / count.seconds if count.seconds else 0.0
            yield f"{target.name:<30}{count.inputs:>10}{target.goal:>10}{rate:>9.0f}{count.faults:>8}"


def run(targets: Sequence[Target], tally: Tally, seconds: float, count: int | None) -> int:
    """Try the readers in turn until the time is over or each has had enough; return the number of faults."""
    before = sum(each.faults for each in tally.counts.values())
    end = time.monotonic() + seconds
    left = [target for target in targets if count or tally.of(target).inputs < target.goal]
    while left and (count or time.monotonic() < end):
        share_s = min(SLICE_S, max(0.0, end - time.monotonic()) / len(left))
        for target in left:
            _try(target, tally, share_s, count)
            tally.save()
        left = [] if count else [target for target in left if tally.of(target).inputs < target.goal]
    return sum(each.faults for each in tally.counts.values()) - before


def _try(target: Target, tally: Tally, share_s: float, count: int | None) -> None:
    """Give one reader its next inputs: `count` of them, or as many as the time allows and it needs."""
    done = tally.of(target)
    most = count or target.goal - done.inputs
    began = time.monotonic()
    for _ in range(most):
        seed = tally.seed + done.inputs
        fault = attempt(target, seed)
        done.inputs += 1
        if fault is not None:
            done.faults += 1
            if len(done.seeds) < MAX_KEPT:
                done.seeds.append(seed)
                sys.stdout.write(f"{target.name}, seed {seed}:\n{fault.what}\n")
                sys.stdout.flush()
        if not count and time.monotonic() - began > share_s:
            break
    done.seconds += time.monotonic() - began


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="how long, for all readers together")
    options.add_argument("--seed", type=int, default=1, help="the first seed")
    options.add_argument("--count", type=int, help="inputs for each reader, however long it takes")
    options.add_argument("--target", action="append", help="only this reader; may be repeated")
    options.add_argument("--tally", type=pathlib.Path, help="go on where the last run with this file ended")
    chosen = options.parse_args()
    warnings.simplefilter("error")
    if os.access(IN_MEMORY, os.W_OK):
        tempfile.tempdir = str(IN_MEMORY)  # for the readers, too, which make directories of their own
    with tempfile.TemporaryDirectory() as scratch:
        targets = all_targets(pathlib.Path(scratch))
        names = {target.name for target in targets}
        if unknown := set(chosen.target or ()) - names:
            options.error(
                f"there is no reader {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}"
            )
        targets = [one for one in targets if not chosen.target or one.name in chosen.target]
        tally = Tally(chosen.tally, chosen.seed)
        found = run(targets, tally, chosen.seconds, chosen.count)
        sys.stdout.write("".join(f"{line}\n" for line in tally.lines(targets)))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
