"""One run of a simulated system: the phases, the faults of the first one, and the checkers."""

from __future__ import annotations

import copy
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.core.messages import Epoch
from engine.core.states import Phase, ServiceState
from engine.simulator.checkers.bounds import Bounds, Traffic
from engine.simulator.checkers.kept_samples import Ended, Invented, KeptSetsChecker, Resurrection
from engine.simulator.checkers.promises import DeliveryChecker, Promised, Repaired
from engine.simulator.checkers.whole_sets import Masters, Sources, Whole
from engine.simulator.options import Fault, SimulationOptions
from engine.simulator.quiet_check import difference, unsettled
from engine.simulator.run_record import RunResult, Violation
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import Checker, SimulatedSystem, Standing, Watcher
from engine.store.interface import SetState
from engine.store.memory import Medium
from engine.tracing.tracer import Output

# Below a heartbeat, up to an expiry, beyond all expiries: each makes other code run.
DURATIONS: Final = ((0.01, 0.5), (0.5, 4.0), (4.0, 25.0))
"""Ranges for the duration of faults, equally likely."""
LONGEST_DELAY_S: Final = 0.2
"""Limit for the mean delay of a troubled network; a delay by a whole lease is another fault."""
# Chosen: more, and few steps are ever completed; fewer, and hardly any seed breaks off one.
CRASH_IN_STEP: Final = 0.04
"""Chance that a node or its aligner dies right after a delicate step."""
# Longer than a node without faults takes to complete; what another fault holds up must not stop the roll.
ROLL_PATIENCE_S: Final = 15.0
"""Time after which a rolling restart continues although the node is not complete again."""
_DELICATE: Final = (Phase.INJECT, Phase.COLLECT, Phase.ALIGN, Phase.MERGE, Phase.COMPLETE)


class FaultInjector(Watcher):
    """Chooses faults at random and carries them out."""

    def __init__(self, cluster: SimulatedSystem, rng: random.Random) -> None:
        super().__init__(cluster)
        self._rng = rng
        self._hosts = [node.name for node in cluster.nodes]
        self._is_over = False
        kinds: dict[Fault, Callable[[], None]] = {
            Fault.CRASH: self._crash,
            Fault.STOP: self._stop,
            Fault.PARTITION: self._partition,
            Fault.LINK: self._cut_links,
            Fault.CLOG: self._clog,
            Fault.PAUSE: self._pause,
            Fault.SLOW: self._slow,
            Fault.NETWORK: self._trouble,
            Fault.SKEW: self._jump,
            Fault.DISK: self._disk,
            Fault.ROT: self._rot,
            Fault.WRITER: self._cut_writer,
            Fault.ROLL: self._roll,
            Fault.STALE: self._stale,
            Fault.LOSS: self._lose,
            Fault.RESTORE: self._copy,
        }
        self._kinds = [kinds[fault] for fault in cluster.options.faults if fault in kinds]
        """The others last as long as the run."""

    def begin(self) -> None:
        """Plan the next fault, if there are any."""
        if self._kinds:
            pause = self._rng.expovariate(1.0) * self.cluster.options.fault_pause_s
            self._after(pause, self._strike)

    def _strike(self) -> None:
        self._rng.choice(self._kinds)()
        self.begin()

    def _after(self, delay_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Plan an action of the first phase."""

        def act() -> None:
            if not self._is_over:
                action(*arguments)

        self.cluster.schedule.after(delay_s, act)

    def _duration(self) -> float:
        return self._rng.uniform(*self._rng.choice(DURATIONS))

    def _line(self, who: str, text: str, sign: str = "!") -> None:
        self.cluster.log.line(who, sign, text)

    def _any_up(self) -> SimulatedNode | None:
        up = self.cluster.up()
        return self._rng.choice(up) if up else None

    # Nodes.

    def _crash(self) -> None:
        if self._rng.random() < 0.15:
            self._replace_writer()
        elif node := self._any_up():
            self._kill(node)

    def _kill(self, node: SimulatedNode) -> None:
        if self._is_over or not node.is_up:
            return
        torn = self._rng.random() < 0.5
        node.crash(torn=torn)
        self.cluster.statistics.crashes += 1
        self._line(node.name, "is killed" + (" in a transaction" if torn else ""), "v")
        self._after(self._duration(), node.start)

    def _stop(self) -> None:
        if node := self._any_up():
            self._end(node, in_order=True)
            self._after(self._duration(), node.start)

    def _replace_writer(self) -> None:
        living = [writer for writer in self.cluster.writers if writer.participant.is_alive]
        if living:
            writer = self._rng.choice(living)
            writer.end(in_order=self._rng.random() < 0.5)
            self._line(writer.name, "ends", "v")
            self._after(self._duration(), self.cluster.start_writer)

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Kill a node, by chance, after a delicate step."""
        if self._is_over or Fault.CRASH not in self.cluster.options.faults or now.phase not in _DELICATE:
            return
        if (before is None or before.phase is not now.phase) and self._rng.random() < CRASH_IN_STEP:
            victim = node
            if now.following and self._rng.random() < 0.5:
                master = [other for other in self.cluster.nodes if other.id == now.following.node]
                victim = master[0] if master else node
            self._after(self._rng.choice((0.0, self._rng.uniform(0, 0.02))), self._kill, victim)

    def _end(self, node: SimulatedNode, *, in_order: bool) -> None:
        """End a node, which stays down."""
        if not node.is_up:
            return
        if in_order:
            node.stop()
            self.cluster.statistics.stops += 1
        else:
            node.crash(torn=self._rng.random() < 0.5)
            self.cluster.statistics.crashes += 1
        self._line(node.name, "ends in order" if in_order else "is killed", "v")

    def _roll(self) -> None:
        """Restart the nodes one by one: each as soon as the previous one is up, or complete, again."""
        nodes = self._rng.sample(self.cluster.nodes, len(self.cluster.nodes))
        self._line("all", "the nodes are restarted one after the other")
        self._roll_on(nodes, in_order=self._rng.random() < 0.5, is_patient=self._rng.random() < 0.7)

    def _roll_on(self, nodes: list[SimulatedNode], *, in_order: bool, is_patient: bool) -> None:
        def next_one() -> None:
            if not (nodes and not self._is_over):
                return
            node = nodes.pop()
            self._end(node, in_order=in_order)
            self._after(self._rng.uniform(0.05, 3.0), restart, node)

        def restart(node: SimulatedNode) -> None:
            node.start()
            wait(node, self.cluster.schedule.now + ROLL_PATIENCE_S)

        def wait(node: SimulatedNode, until_s: float) -> None:
            now = self.cluster.schedule.now
            runtime = node.runtime
            is_back = runtime is not None and runtime.state is ServiceState.COMPLETE
            if is_back or not is_patient or now >= until_s:
                self._after(self._rng.uniform(0.0, 0.5), next_one)
            else:
                self._after(0.1, wait, node, until_s)

        next_one()

    def _stale(self) -> None:
        """Stop one node for long; then all others lose power, and it starts before them."""
        node = self._any_up()
        if node is None:
            return
        self._end(node, in_order=self._rng.random() < 0.5)
        self._after(self._rng.uniform(3.0, 20.0), self._stale_first, node)

    def _stale_first(self, stale: SimulatedNode) -> None:
        others = [node for node in self.cluster.nodes if node is not stale]
        for node in others:
            self._end(node, in_order=False)
        self._line(stale.name, "starts first, the others have lost power")
        stale.start()
        alone_s = self._rng.uniform(0.5, 15.0)
        for node in others:
            self._after(alone_s + self._rng.uniform(0.0, 2.0), node.start)

    def _lose(self) -> None:
        """Kill a node with its disk; it comes back empty."""
        node = self._any_up()
        if node is not None and node.plan.has_disk:
            node.lose_disk()
            self.cluster.statistics.crashes += 1
            self._line(node.name, "is killed, and its disk is lost", "v")
            self._after(self._duration(), node.start)

    def _copy(self) -> None:
        """Copy the disks of one or two nodes; put the copies back later, sometimes while they are cut off."""
        nodes = [node for node in self.cluster.nodes if node.plan.has_disk and node.run]
        chosen = self._rng.sample(nodes, min(len(nodes), self._rng.choice((1, 1, 2))))
        copies = [(node, node.id, copy.deepcopy(node.medium)) for node in chosen]
        age_s = self._rng.choice((self._duration(), self._rng.uniform(0.0, 60.0)))
        self._after(age_s, self._put_back, copies, self.cluster.schedule.now)

    def _put_back(self, copies: list[tuple[SimulatedNode, str, Medium]], made_s: float) -> None:
        is_cut_off = self._rng.random() < 0.3
        for node, node_id, medium in copies:
            if node.id != node_id:
                continue  # its disk was lost since, and it is another node
            node.put_back(medium)
            for name_space, digest in sorted(medium.rotten):
                self.cluster.rotted(node, name_space, digest)
            self.cluster.statistics.crashes += 1
            self._line(node.name, f"is killed, and a copy of its disk of {made_s:.3f} s is put back", "v")
            if is_cut_off:
                self._cut(_both_ways(node.name, self._hosts), f"cuts {node.name} off", self._duration())
            self._after(self._duration(), node.start)

    def _pause(self) -> None:
        node = self._any_up()
        if node is None or node.is_stalled or node.participant.is_frozen:
            return
        is_process = self._rng.random() < 0.5
        if is_process:
            self.cluster.network.freeze(node.participant)
        else:
            node.is_stalled = True
            self.cluster.network.disturb()
        self.cluster.statistics.pauses += 1
        self._line(node.name, "the process stands still" if is_process else "the main thread stands still")
        self._after(self._duration(), self._resume, node, node.run)

    def _resume(self, node: SimulatedNode, run: int) -> None:
        if node.is_up and node.run == run and (node.is_stalled or node.participant.is_frozen):
            node.is_stalled = False
            self.cluster.network.disturb()
            if node.participant.is_frozen:
                self.cluster.network.thaw(node.participant)
            self._line(node.name, "goes on", "-")
            node.go_on()

    def _slow(self) -> None:
        if node := self._any_up():
            node.cost_s = self._rng.uniform(0.001, 0.1)
            self._line(node.name, f"needs {node.cost_s * 1000:.0f} ms for each input")
            self._after(self._duration(), self._hurry, node, node.run)

    def _hurry(self, node: SimulatedNode, run: int) -> None:
        if node.run == run:
            node.cost_s = 0.0
            self.cluster.network.disturb()

    # Links.

    def _cut_writer(self) -> None:
        """Cut the links between one application and some nodes."""
        remote = [
            writer.host
            for writer in self.cluster.writers
            if writer.participant.is_alive and writer.host not in self._hosts
        ]
        if not remote:
            return
        host = self._rng.choice(remote)
        nodes = self._rng.sample(self._hosts, self._rng.randint(1, len(self._hosts)))
        self._cut(_both_ways(host, nodes), f"cuts the {host} from {' '.join(nodes)}", self._duration())

    def _partition(self) -> None:
        hosts = self._hosts
        parts = self._rng.choice((2, 2, 2, 3))
        side = {host: self._rng.randrange(parts) for host in hosts}
        links = [(a, b) for a in hosts for b in hosts if side[a] != side[b]]
        texts = (" ".join(h for h in hosts if side[h] == part) or "-" for part in range(parts))
        self._cut(links, "parts: " + " | ".join(texts), self._duration())

    def _cut_links(self) -> None:
        pairs = [(a, b) for a in self._hosts for b in self._hosts if a < b]
        if not pairs:
            return
        chosen = self._rng.sample(pairs, self._rng.randint(1, max(1, len(pairs) // 2)))
        links: list[tuple[str, str]] = []
        for a, b in chosen:
            links += self._rng.choice(([(a, b)], [(b, a)], [(a, b), (b, a)]))
        self._cut(links, "cut " + " ".join(f"{a}>{b}" for a, b in links), self._duration())

    def _cut(self, links: list[tuple[str, str]], text: str, duration_s: float) -> None:
        cut = [link for link in links if self.cluster.network.cut(*link)]
        if cut:
            self.cluster.statistics.cuts += 1
            self._line("net", text, "~")
            self._after(duration_s, self._restore, cut)

    def _restore(self, links: list[tuple[str, str]]) -> None:
        for link in links:
            self.cluster.network.restore(*link)
        self._line("net", f"{len(links)} links are back", "-")

    def _clog(self) -> None:
        """Cut hosts off one by one, and reconnect them in another order (as FoundationDB does)."""
        chosen = self._rng.sample(self._hosts, self._rng.randint(1, len(self._hosts)))
        delay = 0.0
        for host in chosen:
            links = _both_ways(host, self._hosts)
            self._after(delay, self._cut, links, f"clogs {host}", 1e9)
            self._after(delay + self._duration(), self._restore, links)
            delay += self._rng.uniform(0, 2.0)

    def _trouble(self) -> None:
        rng, network, plan = self._rng, self.cluster.network, self.cluster.options.network
        network.loss = rng.choice((0.0, 0.05, 0.2, 0.5))
        network.duplication = rng.choice((0.0, 0.1, 0.3))
        network.delay_mean_s = min(plan.delay_mean_s * rng.choice((1, 10, 100)), LONGEST_DELAY_S)
        network.disturb()
        text = f"loses {network.loss:.0%}, repeats {network.duplication:.0%}"
        self._line("net", f"{text}, delays {network.delay_mean_s * 1000:.0f} ms", "~")
        self._after(self._duration(), self._calm)

    def _calm(self) -> None:
        network, plan = self.cluster.network, self.cluster.options.network
        network.loss, network.duplication = plan.loss, plan.duplication
        network.delay_mean_s = plan.delay_mean_s
        network.disturb()

    # Clocks and disks.

    def _jump(self) -> None:
        host = self._rng.choice(self._hosts)
        skew_s = self.cluster.options.skew_s
        offset_s = self._rng.uniform(-skew_s, skew_s)
        self.cluster.clocks[host].offset_ns = int(offset_s * 1e9)
        self.cluster.statistics.jumps += 1
        self._line(host, f"its wall clock jumps to {offset_s:+.3f} s")

    def _disk(self) -> None:
        node = self._rng.choice(self.cluster.nodes)
        kind = self._rng.choice(("full", "failing", "slow"))
        if kind == "full":
            node.medium.capacity_bytes = node.medium.used_bytes + self._rng.randrange(500)
        elif kind == "failing":
            node.medium.failing = True
        elif node.is_up:
            node.disk.slowness = self._rng.choice((20.0, 200.0))
        self.cluster.statistics.disk_faults += 1
        self._line(node.name, f"its disk is {kind}")
        self._after(self._duration(), self._mend, node)

    def _mend(self, node: SimulatedNode) -> None:
        node.medium.capacity_bytes = None
        node.medium.failing = False
        if node.is_up:
            node.disk.slowness = 1.0

    def _rot(self) -> None:
        node = self._rng.choice(self.cluster.nodes)
        stored = [
            (version.name_space, digest)
            for version in node.medium.versions.values()
            if version.state is SetState.COMPLETE
            for group in version.groups.values()
            for digest in group.rows
        ]
        if stored:
            name_space, digest = self._rng.choice(stored)
            if node.medium.flip(name_space, digest):
                self.cluster.statistics.rotten += 1
                self._line(node.name, f"a stored sample of {name_space} rots")
                self.cluster.rotted(node, name_space, digest)

    # The end of the first phase.

    def heal(self) -> None:
        """Repair everything, and start all nodes that are down."""
        self._is_over = True
        for link in self.cluster.network.cuts():
            self.cluster.network.restore(*link)
        self._calm()
        for node in self.cluster.nodes:
            self._mend(node)
            if node.is_up:
                node.cost_s = 0.0
                self._resume(node, node.run)
            else:
                node.start()


def _both_ways(host: str, others: Sequence[str]) -> list[tuple[str, str]]:
    """Return the links between a host and others, in both directions."""
    return [link for other in others if other != host for link in ((host, other), (other, host))]


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
# Complete checks compare all sets with all entries: more often they would take most of a run.
LOOK_S: Final = 10.0
"""Period of complete checks."""
PIECE_S: Final = 0.1
"""Virtual time after which `Cluster.steps` lets others work: a tenth of what a console waits for."""
# A few heartbeat periods: what the look itself started has ended by then.
UNREST_S: Final = 2.0
"""Limit for what happens at the moment at which a quiet system is looked at, virtual seconds."""
STEP_S: Final = 0.25
"""Period at which it is looked whether the system is quiet: the precision of `settled_s`."""
# Some heartbeats: settled parts must be compared once while data is written.
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
        except Exception as error:  # of any class: a fault of the code is found by a run, too
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
