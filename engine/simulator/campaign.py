"""Runs of many seeds, on all cores."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from engine.config import Configuration
from engine.simulator.cluster import Cluster
from engine.simulator.options import Fault, SimulationOptions, deployed, draw
from engine.simulator.run_record import Statistics
from engine.workers import WorkerProcesses

ANY: Final = "any"
CLASSIC: Final = "classic"
"""Draw only faults of nodes, hosts and disks: writers reach all nodes, and stop before the end."""
# Chosen: small, so that the last pieces keep all workers busy; a seed takes seconds.
CHUNK: Final = 8
"""Seeds of one piece of a worker's work."""
YOUNG_OBJECTS: Final = 100_000
"""New objects after which Python looks for cycles among them; its default is 700."""


class SeedOutcome(msgspec.Struct, frozen=True):
    """The result of one seed.

    Attributes:
        seed: the seed.
        violation: the violated rule; empty for none.
        digest: digest of the short log; runs with the same digest were equal.
        virtual_s: simulated time.
        cpu_s: processor time.
        statistics: figures of the run.
        replay: the command that runs it again.
    """

    seed: int
    violation: str
    digest: str
    virtual_s: float
    cpu_s: float
    statistics: Statistics
    replay: str

    @property
    def about(self) -> str:
        """A summary in one line."""
        stats = self.statistics
        return (
            f"{stats.written} samples written, {stats.crashes} crashes, {stats.pauses} pauses, {stats.cuts} "
            f"cuts, {stats.disk_faults} disk faults, {stats.rotten} flipped bits, {stats.masters} changes of "
            f"master, {stats.streams} sets of {stats.stream_bytes} bytes sent, "
            f"settled {stats.settled_s:g} s after healing; "
            f"{self.virtual_s:.0f} s in {self.cpu_s:.2f} s, log {self.digest}"
        )

    def to_plain(self) -> dict[str, object]:
        """Convert to plain values."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found


def parse_faults(text: str) -> tuple[Fault, ...] | None:
    """Parse kinds of faults such as `crash,partition`; `all`, `none`; None for `any` and `classic`.

    Raises:
        ValueError: a kind is unknown; the message lists the known ones.
    """
    if text in (ANY, CLASSIC):
        return None
    if text in ("all", "none"):
        return tuple(Fault) if text == "all" else ()
    known = {fault.value: fault for fault in Fault}
    wanted = [part.strip() for part in text.split(",")]
    strange = [part for part in wanted if part not in known]
    if strange:
        there_are = ", ".join((ANY, CLASSIC, "all", "none", *known))
        raise ValueError(f"no such fault: {', '.join(strange)}; there are {there_are}")
    return tuple(known[part] for part in wanted)


class Campaign(msgspec.Struct, frozen=True):
    """The parameters of the run of each seed.

    Attributes:
        faults: as `parse_faults` reads them.
        minutes: duration of the phase with faults; None lets the seed draw it.
        nodes: number of nodes of a drawn system; None lets the seed draw it.
        configurations: the nodes' configurations, by name; none lets the seed draw the whole system.
        deployment: the argument for the configurations in the command that replays a run.
    """

    faults: str = ANY
    minutes: float | None = None
    configurations: Mapping[str, Configuration] = msgspec.field(default_factory=dict)
    deployment: str = ""
    nodes: int | None = None

    def options(self, seed: int) -> SimulationOptions:
        """Return the options of a seed.

        Raises:
            ValueError: the configurations cannot be simulated.
        """
        faults, is_classic = parse_faults(self.faults), self.faults == CLASSIC
        if self.configurations:
            return deployed(self.configurations, seed, faults, minutes=self.minutes, is_classic=is_classic)
        return draw(seed, faults, nodes=self.nodes, minutes=self.minutes, is_classic=is_classic)

    def run(self, seed: int, show: Callable[[str], None] | None = None) -> SeedOutcome:
        """Run a seed; `show` is called with each line of the short log."""
        started = time.process_time()
        result = Cluster(self.options(seed), show).run()
        return SeedOutcome(
            seed,
            str(result.violation or ""),
            result.digest,
            result.virtual_s,
            time.process_time() - started,
            result.statistics,
            self.replay_command(seed),
        )

    def run_all(self, seeds: Sequence[int], jobs: int = 1) -> Iterator[SeedOutcome]:
        """Run many seeds; return their outcomes in order."""
        if jobs <= 1:
            with _seldom_collecting():
                yield from map(self.run, seeds)
            return
        context = multiprocessing.get_context("spawn")  # equal on all systems, without inherited state
        with WorkerProcesses(jobs, mp_context=context, initializer=_collect_seldom) as workers:
            pieces = [seeds[begin : begin + CHUNK] for begin in range(0, len(seeds), CHUNK)]
            for outcomes in [workers.submit(self._run_each, piece) for piece in pieces]:
                yield from outcomes.result()

    def _run_each(self, seeds: Sequence[int]) -> list[SeedOutcome]:
        return [self.run(seed) for seed in seeds]

    def replay_command(self, seed: int) -> str:
        """Return the command that replays a seed."""
        deployment = f" {shlex.quote(self.deployment)}" if self.deployment else ""
        minutes = f" --minutes {self.minutes:g}" if self.minutes else ""
        nodes = f" --nodes {self.nodes}" if self.nodes else ""
        return f"ospltool simulate{deployment} --seed {seed} --faults {self.faults}{minutes}{nodes}"


def _collect_seldom() -> None:
    """Look for cycles rarely: a run makes few, and looking takes a tenth of its time."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextlib.contextmanager
def _seldom_collecting() -> Iterator[None]:
    before = gc.get_threshold()
    _collect_seldom()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def summary(outcomes: Sequence[SeedOutcome], jobs: int, elapsed_s: float) -> str:
    """Summarise a campaign, which took `elapsed_s` seconds of real time, in one line.

    `jobs` is the number of processes that shared the seeds.
    """
    bad = sum(bool(outcome.violation) for outcome in outcomes)
    virtual_s = sum(outcome.virtual_s for outcome in outcomes)
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    return (
        f"{len(outcomes)} seeds, {len(outcomes) - bad} clean, {bad} not; "
        f"{virtual_s / 3600:.1f} virtual hours in {elapsed_s:.0f} s, {virtual_s / elapsed_s:.0f} times as "
        f"fast as real time; {virtual_s / max(cpu_s, 1e-9):.0f} times for each of {jobs} processes by its "
        "processor time"
    )
