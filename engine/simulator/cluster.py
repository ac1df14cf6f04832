"""One run of a simulated system: the phases, with faults and checkers."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.core.messages import Epoch
from engine.core.states import Phase
from engine.simulator.checkers.bounds import Bounds, Traffic
from engine.simulator.checkers.kept_samples import Ended, Invented, KeptSetsChecker, Resurrection
from engine.simulator.checkers.promises import DeliveryChecker, Promised, Repaired
from engine.simulator.checkers.whole_sets import Masters, Sources, Whole
from engine.simulator.fault_injection import FaultInjector
from engine.simulator.options import Fault, SimulationOptions
from engine.simulator.quiet_check import difference, unsettled
from engine.simulator.run_record import RunResult, Violation
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import Checker, SimulatedSystem
from engine.tracing.tracer import Output

CHECKERS: Final[tuple[type[Checker], ...]] = (
    Invented,
    Ended,
    Resurrection,
    KeptSetsChecker,
    Masters,
    Whole,
    Traffic,
    Bounds,
    Sources,
    DeliveryChecker,
    Promised,
    Repaired,
)
"""All rules but I3, which `engine.simulator.quiet_check` decides, and I8, which takes two runs."""
LOOK_S: Final = 10.0
"""Period of complete checks."""
PIECE_S: Final = 0.1
"""Virtual time after which `Cluster.steps` lets others work: a tenth of what a console waits for."""
UNREST_S: Final = 2.0
"""Limit for what happens at the moment at which a quiet system is looked at, virtual seconds."""
STEP_S: Final = 0.25
LAST_WRITES_S: Final = 3.0
"""Time in which applications still write after everything has healed."""
ARRIVES_S: Final = 1.0
"""Time for the last samples to arrive everywhere; sets are compared only after that."""


class Cluster(SimulatedSystem):
    """One run of a system: two phases, faults in the first, and the checkers.

    Args:
        options: what happens.
        show: called with each line of the short log.
        outputs: makes the trace outputs of a node's run; none by default.

    Attributes:
        result: what the run came to; None while it goes on.
    """

    def __init__(
        self,
        options: SimulationOptions,
        show: Callable[[str], None] | None = None,
        outputs: Callable[[SimulatedNode], Sequence[Output]] | None = None,
    ) -> None:
        super().__init__(options, show, outputs)
        self.result: RunResult | None = None
        self._faults = FaultInjector(self, self.rng("faults"))
        self.watchers += [*(kind(self) for kind in CHECKERS), self._faults]

    def run(self) -> RunResult:
        """Run both phases; the result has any violation."""
        for _ in self.steps():
            pass
        assert self.result is not None
        return self.result

    def steps(self) -> Iterator[None]:
        """Run both phases in pieces of `PIECE_S`, after which `result` has what they came to."""
        violation: Violation | None = None
        try:
            yield from self._phases()
        except Violation as found:
            violation = found
        except Exception as error:
            lines = traceback.format_exc().strip().splitlines()
            violation = Violation("fault", f"{type(error).__name__}: {error}\n" + "\n".join(lines[-8:]))
        if violation:
            self.log.line("run", "#", f"VIOLATION {violation}")
        self.statistics.carried = self.network.carried
        self.statistics.steps = self.schedule.done
        self.result = RunResult(self.options, violation, self.schedule.now, self.statistics, self.log.text())

    def _until(self, end_s: float) -> Iterator[None]:
        """Let time pass in pieces."""
        while self.schedule.now < end_s:
            self.schedule.run_until(min(end_s, self.schedule.now + PIECE_S))
            yield

    def _phases(self) -> Iterator[None]:
        options, rng = self.options, self.rng("start")
        self.log.header()
        for node in self.nodes:
            self.schedule.at(rng.uniform(0, options.start_spread_s), node.start)
        for _ in range(options.workload.writers):
            self.schedule.at(rng.uniform(0, options.fault_s / 2), self.start_writer)
        for _ in range(options.workload.readers):
            self.schedule.at(rng.uniform(0, options.fault_s), self._start_reader)
        self.schedule.at(LOOK_S, self._check_again)
        self._faults.begin()
        yield from self._until(options.fault_s)
        self._faults.heal()
        self.log.line("all", "-", "everything heals")
        yield from self._until(options.fault_s + LAST_WRITES_S)
        if Fault.BUSY in options.faults:
            yield from self._settle_busy()
        for writer in self.writers:
            writer.finish()
        yield from self._until(self.schedule.now + ARRIVES_S)
        yield from self._settle(options.fault_s)

    def _settle_busy(self) -> Iterator[None]:
        """Continue, while applications write, until all nodes have the samples from before everything healed.

        Raises:
            Violation: that did not happen in time.
        """
        healed_s = self.options.fault_s
        end = self.schedule.now + self.options.heal_within_s
        reason = self._unsettled(healed_s)
        while reason:
            if self.schedule.now >= end:
                raise Violation("busy", f"after {self.options.heal_within_s} s of writing: {reason}")
            yield from self._until(self.schedule.now + STEP_S)
            reason = self._unsettled(healed_s)
        self.statistics.equal_s = round(self.schedule.now - healed_s, 3)
        self.log.line("all", "-", f"equal {self.statistics.equal_s} s after healing, while writing goes on")

    def _unsettled(self, until_s: float) -> str:
        """Return a difference between nodes, without samples written after `until_s`; empty for none."""
        for node in self.nodes:
            if node.runtime is None:
                return f"{node.name} is down"
            for state in node.runtime.core.name_spaces:
                if not (state.holder or state.phase is Phase.PASSIVE):
                    return f"{node.name} does not hold '{state.name}'"
        return unsettled(self, until_s)

    def settle(self, healed_s: float) -> None:
        """Continue until the system is quiet and equal; check that it stays so and that all checkers agree.

        Args:
            healed_s: when the last fault was over.

        Raises:
            Violation: the system did not settle in time, or a checker objects.
        """
        for _ in self._settle(healed_s):
            pass

    def _settle(self, healed_s: float) -> Iterator[None]:
        end = self.schedule.now + self.options.heal_within_s
        reason = difference(self)
        while reason:
            if self.schedule.now >= end:
                raise Violation("quiet", f"after {self.options.heal_within_s} s: {reason}")
            yield from self._until(self.schedule.now + STEP_S)
            reason = difference(self)
        self.statistics.settled_s = round(self.schedule.now - healed_s, 3)
        self.log.line("all", "-", f"settled {self.statistics.settled_s} s after healing")
        before = self._fingerprint()
        half_s = self.options.quiet_s / 2
        yield from self._until(self.schedule.now + half_s)
        whole = self.whole_sets  # before, nodes may have compared samples that one had just purged
        yield from self._until(self.schedule.now + half_s)
        if self._fingerprint() != before:
            raise Violation("quiet", f"not quiet after it had settled: {before} became {self._fingerprint()}")
        if self.whole_sets != whole:
            raise Violation("quiet", "sets were sent after it had settled")
        reason = difference(self)
        # A part may be asking its aligner at this moment, or the end of a writer that is missed once more be
        # on its way to the disk.
        end = self.schedule.now + UNREST_S
        while reason and self.schedule.now < end:
            yield from self._until(self.schedule.now + STEP_S)
            reason = difference(self)
        if reason:
            raise Violation("quiet", f"unsettled again: {reason}")
        self.check()
        for watcher in self.watchers:
            watcher.settled()
        self.log.line("all", "#", "all checkers agree")

    def _fingerprint(self) -> list[tuple[str, str, Epoch | None, Epoch]]:
        """Return masters and lineages, which do not change in a quiet system."""
        return [
            (node.name, state.name, state.following, state.lineage)
            for node in self.nodes
            if node.runtime
            for state in node.runtime.core.name_spaces
        ]

    def check(self) -> None:
        """Let all checkers check everything."""
        for watcher in self.watchers:
            watcher.looked()

    def _check_again(self) -> None:
        self.check()
        self.schedule.after(LOOK_S, self._check_again)
