"""One round: a system, writers that never rest, faults alone and in twos and threes, and what must hold."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import random
import re
import signal
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from chaos import capsule, checker
from chaos.ground import SPACE, Ground, Violation
from chaos.nemesis import faults
from chaos.scene import Scene
from tests.integration.configurations import Settings, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from chaos.checker import Held

QUIET_S: Final = 90.0
"""After the last fault all nodes are complete, with one master and equal sets, within this time."""
DELIVERED_S: Final = 30.0
"""A late joiner has everything within this time."""
HAS_DURABLE: Final = importlib.util.find_spec("ospltool.client.durable") is not None
"""Whether the client library has a DurableWriter."""
_BAD: Final = re.compile(r"Traceback|AssertionError|Fatal Python error|Segmentation fault")
_DISPOSED: Final = 32
_OFTEN: Final = frozenset({"rolling_restart", "stale_first", "power_cut", "cut_writer", "new_topics"})
_NOT_SHORT: Final = frozenset({"rolling-restart", "wrong-clock", "power-cut", "stale-first"})


@dataclasses.dataclass
class Report:
    """What a round did and found."""

    seed: int
    system: str = ""
    steps: list[str] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    violations: list[str] = dataclasses.field(default_factory=list)
    attempted: int = 0
    confirmed: int = 0
    promised: int = 0
    quiet_s: float = 0.0
    seconds: float = 0.0

    def line(self) -> str:
        """All of it in a line."""
        return (
            f"round {self.seed}: {'VIOLATED' if self.violations else 'ok'}  {self.system}: "
            f"{'; '.join(self.steps)}  ({self.confirmed} of {self.attempted} confirmed, {self.promised} "
            f"promised, quiet in {self.quiet_s:.1f} s, {self.seconds:.0f} s in all)"
        )


def run_round(
    seed: int, directory: Path, names: Iterable[str] = (), promise: str = "", *, short: bool = False
) -> Report:
    """Run one round; everything that it leaves is in the directory, and nothing of it runs any more.

    Args:
        seed: draws the system and the faults.
        directory: an empty one.
        names: of the faults that may be drawn; all of them if there are none.
        promise: of the writers, `plain` or `durable`; drawn unless given.
        short: three nodes, one step, and no fault that takes long.
    """
    chance = random.Random(seed)
    report = Report(seed)
    began = time.monotonic()
    known = faults()
    drawn = sorted(names) or sorted(known.keys() - (_NOT_SHORT if short else set()))
    scene = _draw_scene(seed, chance, directory, promise, report, short=short)
    with _noting(report):
        _begin(scene)
        for _ in range(1 if short else chance.randint(2, 4)):
            _step(scene, chance, [known[name] for name in drawn], report)
        _check(scene, report)
    with _noting(report):
        scene.ground.close()
        _check_gone()
        scene.save_disks()
    report.seconds = time.monotonic() - began
    return report


def _draw_scene(
    seed: int, chance: random.Random, directory: Path, promise: str, report: Report, *, short: bool
) -> Scene:
    """The system of a seed."""
    nodes = 3 if short else chance.choice((3, 3, 3, 4, 5))
    multicast = chance.random() < 0.8
    promise = promise or chance.choice(("plain", "durable") if HAS_DURABLE else ("plain", "plain"))
    report.system = f"{nodes} nodes, {'multicast' if multicast else 'unicast'}, {promise}"
    ground = Ground(directory, nodes, seed=str(seed), multicast=multicast)
    for number, name in enumerate(ground.nodes):
        space = Space(name=SPACE, elements=("stock*",), priority=chance.choice((100, 200 - 10 * number)))
        ground.configure(name, Settings(spaces=(space,), discovery_s=1.0, failure_action="restart"))
    ground.supervised = {name for name in ground.nodes if chance.random() < 0.3}
    return Scene(ground, rate=60, promise=promise)


@contextlib.contextmanager
def _noting(report: Report) -> Iterator[None]:
    """Whatever goes wrong in here is a violation."""
    try:
        yield
    except (Violation, AssertionError) as error:
        report.violations.append(str(error))
    except Exception as error:  # the harness stumbled: a round that proves nothing must not look clean
        traceback.print_exc()
        report.violations.append(f"the round broke off: {error!r}")


def _begin(scene: Scene) -> None:
    """Start nodes and writers at the same time."""
    for name in scene.nodes:
        scene.start(name)
    for host in scene.writers:
        scene.add_writer(host, ["Shared", "SharedAll", f"Own{host}", "SharedEnding", f"Ending{host}"])
    scene.ground.wait_up(*scene.nodes)


def _step(scene: Scene, chance: random.Random, drawn: list[Callable[..., Any]], report: Report) -> None:
    """One to three faults at the same time; half of the steps are followed by the next without any quiet."""
    often = [one for one in drawn if one.__name__ in _OFTEN]  # what once broke promises comes twice as often
    chosen = list(
        dict.fromkeys(chance.sample(drawn + often, min(len(drawn), chance.choice((1, 1, 2, 2, 3)))))
    )
    running = [(one, one(scene, random.Random(chance.getrandbits(64)))) for one in chosen]
    lasts_s = chance.uniform(1, 5)
    words = []
    report.steps.append("")
    for one, fault in running:
        name = one.__name__.replace("_", "-")
        report.faults.append(name)
        words.append(f"{name}({next(fault)})")
        report.steps[-1] = " + ".join(words)
    scene.pass_time(lasts_s)
    for _, fault in running:
        for _ in fault:  # to its end
            pass
    if chance.random() < 0.5:
        for name in scene.nodes:
            scene.start(name)
        with contextlib.suppress(Violation):
            scene.ground.wait_up(*scene.nodes, timeout_s=20)


# What must hold.


def _check(scene: Scene, report: Report) -> None:
    """Quiet, then everything that was promised."""
    ground = scene.ground
    scene.end_writers()
    for name in scene.nodes:
        scene.start(name)
    since_ns = time.time_ns()
    try:
        report.quiet_s = ground.wait_for(
            "all are complete, with one master and equal sets",
            lambda: ground.shown_since(since_ns) and ground.seen.are_complete(*scene.nodes),
            QUIET_S,
        )
    except Violation as violation:
        report.violations.append(str(violation))
    sets: dict[str, list[Held]] = {}

    def are_equal(found: dict[str, list[Held]]) -> bool:
        sets.update(found)
        return not (checker.unequal(found) or _alive(found))

    if ground.wait_stores("stores are equal", are_equal, QUIET_S) is None:
        report.violations.append(f"stores are not equal: {checker.unequal(sets)}, alive: {_alive(sets)[:3]}")
    records = ground.records()
    promised = [one for one in scene.promised(records) if "Ending" not in one.topic]
    report.attempted, report.confirmed = len(records.attempted), len(records.confirmed)
    report.promised = len(promised)
    if not promised:
        report.violations.append("nothing was promised: such a round shows nothing")
    for name, held in sets.items():
        _note(report, f"{name}", "untrue", checker.untrue(held, records))
        _note(report, f"{name}", "lost", checker.lost(held, promised))
        _note(report, f"{name}", "resurrected", checker.resurrected(held, promised))
    _check_late_joiners(scene, sets[scene.nodes[0]], report)
    for name in scene.nodes:
        _check_logs(ground.home(name), report)


def _alive(sets: Mapping[str, list[Held]]) -> list[Held]:
    """What is alive on a node, by autodispose writers, when all writers have ended."""
    return [
        one
        for held in sets.values()
        for one in checker.newest_of(held).values()
        if "Ending" in one.topic and not one.disposes
    ]


def _note(report: Report, place: str, what: str, found: list[Any]) -> None:
    if found:
        report.violations.append(f"{place}: {len(found)} {what}, for example {found[0]}")


def _check_late_joiners(scene: Scene, held: list[Held], report: Report) -> None:
    """Readers that come when all writers are gone get exactly what the nodes hold."""
    ground = scene.ground
    reader = ground.application("reader", ground.writers[-1], topics=sorted(scene.topics))
    reader.answer("ready", 60)
    wanted = {topic: late_set([one for one in held if one.topic == topic]) for topic in scene.topics}
    until = time.monotonic() + DELIVERED_S
    while True:
        reader.tell(tally=True)
        tally = reader.answer("tally", 60)
        wrong = [
            topic
            for topic in sorted(scene.topics)
            if (_living(tally[topic]) if "Ending" in topic else _got(tally[topic]) != wanted[topic])
        ]
        if not wrong:
            return
        if time.monotonic() > until:
            break
        scene.pass_time(0.5)
    for topic in wrong:
        samples, dead = _got(tally[topic])
        want, want_dead = wanted[topic]
        report.violations.append(
            f"a late joiner of {topic} has {len(samples)} samples of {len(want)} and {len(dead)} disposed "
            f"instances of {len(want_dead)}; too much: {[s for s in samples if s not in want][:2]}, "
            f"missing: {[s for s in want if s not in samples][:2]}"
        )


def late_set(held: list[Held]) -> tuple[list[tuple[int, int, int]], set[int]]:
    """What a late joiner of a topic must have: station, value, time of its samples; disposed stations."""
    writes = [(one.station, one.value, one.time_ns) for one in held if not one.disposes]
    last: dict[int, Held] = {}
    for one in held:
        if one.station not in last or checker.order(last[one.station]) < checker.order(one):
            last[one.station] = one
    stations = {station for station, _, _ in writes}
    return sorted(writes), {s for s, one in last.items() if one.disposes and s in stations}


def _got(tally: dict[str, Any]) -> tuple[list[tuple[int, int, int]], set[int]]:
    samples = sorted((station, value, time_ns) for station, value, time_ns, _ in tally["samples"])
    stations = {station for station, _, _ in samples}
    states = {int(station): state for station, state in tally["states"].items()}
    return samples, {s for s, state in states.items() if state == _DISPOSED and s in stations}


def _living(tally: dict[str, Any]) -> set[int]:
    """The instances that a late joiner does not see disposed."""
    return {int(station) for station, state in tally["states"].items() if state != _DISPOSED}


def _check_logs(home: Path, report: Report) -> None:
    for path in sorted(home.glob("*.log")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if found := _BAD.search(text):
            report.violations.append(f"{path.parent.name}/{path.name}: {text[found.start() :][:1500]}")


def _check_gone() -> None:
    """Nothing that was started lives on; what does is ended, for the next round's sake."""
    left = capsule.others()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if left:
        raise Violation(f"processes are left: {'; '.join(left.values())}")
