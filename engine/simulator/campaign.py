"""Many seeds, on all cores."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import time
from typing import TYPE_CHECKING, Final

from engine.simulator.cluster import Cluster
from engine.simulator.draw import draw
from engine.simulator.options import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.simulator.result import Statistics

ANY: Final = "any"
CHUNK: Final = 8
"""Seeds that a worker takes at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One seed: `violation` is empty when no checker objected; `digest` is that of the short log."""

    seed: int
    violation: str
    digest: str
    virtual_s: float
    cpu_s: float
    statistics: Statistics


def parse_faults(text: str) -> tuple[Fault, ...] | None:
    """The kinds of faults in a text such as `crash,partition`; `all`, `none`, or None for `any`.

    Raises:
        ValueError: one of them is not known; the message lists those that are.
    """
    if text == ANY:
        return None
    if text in ("all", "none"):
        return tuple(Fault) if text == "all" else ()
    known = {fault.value: fault for fault in Fault}
    wanted = [part.strip() for part in text.split(",")]
    strange = [part for part in wanted if part not in known]
    if strange:
        raise ValueError(f"no such fault: {', '.join(strange)}; there are any, all, none, {', '.join(known)}")
    return tuple(known[part] for part in wanted)


def run_seed(seed: int, faults: str = ANY) -> Outcome:
    """Draw the options of a seed, and run them."""
    started = time.process_time()
    result = Cluster(draw(seed, parse_faults(faults))).run()
    return Outcome(
        seed,
        str(result.violation or ""),
        result.digest,
        result.virtual_s,
        time.process_time() - started,
        result.statistics,
    )


def run_seeds(seeds: Sequence[int], faults: str = ANY, jobs: int = 1) -> Iterator[Outcome]:
    """The outcomes of many seeds, in their order."""
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(seed, faults)
        return
    context = multiprocessing.get_context("spawn")  # the same on all systems, and nothing is inherited
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(run_seed, seeds, [faults] * len(seeds), chunksize=CHUNK)


def replay_command(seed: int, faults: str) -> str:
    """What replays a seed."""
    return f"python -m engine.simulator --seeds {seed} --faults {faults} --log"
