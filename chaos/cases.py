"""Named scenarios: what the promise means, in figures. `python -m chaos --case NAME`."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from typing import TYPE_CHECKING, Final

from chaos import checker
from chaos.ground import SPACE, Ground, Violation
from tests.integration.configurations import Settings, Space

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from chaos.checker import Held, Write
    from chaos.ground import Application

TOPICS: Final = 12
AT_ONCE: Final = 20
BUSY_RATE: Final = 1_000
CUT_S: Final = 4.0
MERGE_S: Final = 60.0


@dataclasses.dataclass
class Result:
    """What a case measured, and which of its bars it missed."""

    figures: dict[str, object] = dataclasses.field(default_factory=dict)
    missed: list[str] = dataclasses.field(default_factory=list)

    def bar(self, name: str, value: object, holds: object, wanted: str) -> None:
        """Note a figure that has a bar."""
        self.figures[name] = round(value, 2) if isinstance(value, float) else value
        if not holds:
            self.missed.append(f"{name} is {self.figures[name]}, wanted {wanted}")

    def within(self, name: str, seconds: float | None, most: int) -> None:
        """Note a time that has a bar; None stands for never."""
        self.bar(
            name,
            "never" if seconds is None else seconds,
            seconds is not None and seconds <= most,
            f"<= {most}",
        )

    def line(self) -> str:
        """All of it, in one line."""
        return "  ".join(f"{name}: {value}" for name, value in self.figures.items())


def busy_writer(ground: Ground, host: str) -> Application:
    """A writer that never rests, in the same name-space."""
    busy = ground.writer(host, ["Busy"], readers=len(ground.nodes), size=100)
    busy.answer("ready", 60)
    busy.tell(rate=BUSY_RATE, stations=200)
    busy.answer("rate")
    return busy


def promised(ground: Ground, prefix: str) -> list[Write]:
    """What was confirmed of topics with this prefix."""
    return [one.write for one in ground.records().confirmed if one.write.topic.startswith(prefix)]


def kept(ground: Ground, wanted: list[Write]) -> list[int]:
    """How many of these each node has on its disk."""
    return [len(wanted) - len(checker.lost(ground.held(name), wanted)) for name in ground.nodes]


def wait_kept(ground: Ground, wanted: list[Write], timeout_s: float) -> float | None:
    """Seconds until every node has all of it on its disk; None if that is not so in time."""

    def whole(sets: dict[str, list[Held]]) -> bool:
        return not any(checker.lost(held, wanted) for held in sets.values())

    return ground.wait_stores("every node has it", whole, timeout_s)


def rolling_restart(ground: Ground) -> Result:
    """12 new topics, 20 confirmed samples each, a busy name-space, and each node once stopped and started."""
    result = Result()
    ground.start(*ground.nodes)
    ground.wait_up(*ground.nodes)
    busy_writer(ground, "w1")
    topics = [f"New{number}" for number in range(TOPICS)]
    writer = ground.writer("w0", topics, at_once=AT_ONCE, readers=1)
    writer.answer("ready", 60)
    wanted = promised(ground, "New")
    count = TOPICS * AT_ONCE
    result.bar("confirmed", len(wanted), len(wanted) == count, str(count))
    result.figures["at first"] = kept(ground, wanted)
    seconds = wait_kept(ground, wanted, 20.0)
    result.within("repaired s", seconds, 5)
    _restart(ground, ground.nodes, wanted, result)
    return result


def cut_from_master(ground: Ground) -> Result:
    """A writer loses its link to the master for 4 s and writes 100 samples; then the others restart."""
    result = Result()
    ground.start(*ground.nodes)
    ground.wait_up(*ground.nodes)
    busy_writer(ground, "w1")
    writer = ground.writer("w0", ["Cut"], readers=len(ground.nodes))
    writer.answer("ready", 60)
    writer.tell(write=[1_000, 1])
    writer.answer("done", 60)
    master = ground.seen.master(ground.nodes[0])
    ground.hosts.add(("w0",), (master,))
    began = time.monotonic()
    writer.tell(write=[0, 100])
    writer.answer("done", 60)
    wanted = [write for write in promised(ground, "Cut") if write.station < 100]
    ground.wait_for("the cut has lasted", lambda: time.monotonic() - began >= CUT_S, CUT_S + 5)
    result.bar("confirmed", len(wanted), len(wanted) == 100, "100")
    result.figures["at first"] = kept(ground, wanted)
    ground.hosts.heal()
    seconds = wait_kept(ground, wanted, 20.0)
    result.within("repaired s", seconds, 5)
    _restart(ground, [name for name in ground.nodes if name != master], wanted, result)
    return result


def _restart(ground: Ground, names: Iterable[str], wanted: list[Write], result: Result) -> None:
    for name in names:
        ground.restart(name)
    wait_kept(ground, wanted, 10.0)
    after = kept(ground, wanted)
    result.bar("kept", after, set(after) == {len(wanted)}, f"{len(wanted)} each")


def stale_first(ground: Ground, first: int) -> Result:
    """A node is off while others take 500 samples and 100 disposes; all lose power, and one starts first."""
    result = Result()
    ground.start(*ground.nodes)
    ground.wait_up(*ground.nodes)
    writer = ground.writer("w0", ["Stale"], readers=len(ground.nodes))
    writer.answer("ready", 60)
    writer.tell(write=[0, 200])
    writer.answer("done", 60)
    if wait_kept(ground, promised(ground, "Stale"), 20.0) is None:
        raise Violation("the first 200 samples are not on every disk")
    ground.stop("n2")
    for command in ({"write": [200, 500]}, {"dispose": [0, 100]}):
        writer.tell(**command)
        writer.answer("done", 60)
    wanted = promised(ground, "Stale")
    fresh = ("n0", "n1")
    for name in fresh:
        stored = ground.wait_stores(
            "it is on disk",
            lambda sets: not any(checker.lost(h, wanted) for h in sets.values()),
            20.0,
            name,
        )
        if stored is None:
            raise Violation(f"{name} does not store what it acknowledged")
    writer.end()
    ground.kill(*fresh)
    ground.start(ground.nodes[first])
    ground.wait_up(ground.nodes[first])
    ground.start(*(name for name in ground.nodes if name != ground.nodes[first]))
    ground.wait_up(*ground.nodes)
    writes = [write for write in wanted if not write.disposes]
    disposes = [write for write in wanted if write.disposes]
    wait_kept(ground, wanted, 20.0)
    after = kept(ground, writes)
    back = [len(checker.resurrected(ground.held(name), disposes)) for name in ground.nodes]
    result.bar("kept", after, set(after) == {700}, "700 each")
    result.bar("resurrected", back, not any(back), "0 each")
    return result


def damaged_store(ground: Ground) -> Result:
    """The database of a killed node loses its end but not its log; its disk must have everything again."""
    result = Result()
    ground.start(*ground.nodes)
    ground.wait_up(*ground.nodes)
    writer = ground.writer("w0", ["Damaged", "DamagedAll"], readers=len(ground.nodes))
    writer.answer("ready", 60)
    writer.tell(write=[0, 1_000])
    writer.answer("done", 60)
    wanted = promised(ground, "Damaged")
    if wait_kept(ground, wanted, 20.0) is None:
        raise Violation("the samples are not on every disk")
    ground.restart("n2")  # the log is carried over to the database; what follows stays in the log
    writer.tell(write=[1_000, 200])
    writer.answer("done", 60)
    wanted = promised(ground, "Damaged")
    if wait_kept(ground, wanted, 20.0) is None:
        raise Violation("the samples are not on every disk")
    ground.kill("n2")
    database = ground.home("n2") / "store" / "store.sqlite"
    os.truncate(database, database.stat().st_size * 6 // 10)
    ground.start("n2")
    ground.wait_up(*ground.nodes)
    writer.tell(write=[1_200, 200])
    writer.answer("done", 60)
    wanted = promised(ground, "Damaged")
    seconds = wait_kept(ground, wanted, 30.0)
    result.within("repaired s", seconds, 30)
    after = kept(ground, wanted)
    result.bar("kept", after, set(after) == {len(wanted)}, f"{len(wanted)} each")
    return result


def busy_merge(ground: Ground, count: int, burners: int) -> Result:
    """2 x 5,000 new samples on a common set are merged while other processes keep the cores busy."""
    result = Result()
    near, far = ground.nodes
    ground.start(near, far)
    ground.wait_up(near, far)
    common = ground.writer("w0", ["Merge"], readers=2)
    common.answer("ready", 60)
    for first in range(0, count, 20_000):
        common.tell(write=[first, min(20_000, count - first)])
        common.answer("done", 300)
    ground.wait_for("both have it", lambda: {ground.seen.samples(n) for n in (near, far)} == {count}, 120)
    left, right = (ground.writer(host, ["Merge"], readers=2) for host in ("w0", "w1"))
    for one in (left, right):
        one.answer("ready", 60)
    ground.hosts.add((near, "w0"), (far, "w1"))
    ground.wait_for("they are apart", lambda: not ground.seen.fellows(near, "approved"), 30)
    for one, first in ((left, count), (right, count + 5_000)):
        one.tell(write=[first, 5_000])
    for one in (left, right):
        one.answer("done", 120)
    ground.wait_for(
        "both sides have theirs", lambda: {ground.seen.samples(n) for n in (near, far)} == {count + 5_000}, 60
    )
    for _ in range(burners):
        ground.application("burner", "w0").answer("ready")
    healed_ns = time.time_ns()
    ground.hosts.heal()
    ground.wait_for("they meet", lambda: ground.seen.fellows(near, "approved"), 60)
    met_s = time.time_ns() / 1e9
    merged = True
    try:
        ground.wait_for(
            "both hold everything", functools.partial(_both_hold, ground, count + 10_000), MERGE_S
        )
    except Violation:
        merged = False
    seconds = time.time_ns() / 1e9 - met_s
    result.within("merged s", seconds if merged else None, 3)
    gone = [
        line for name in (near, far) for line in ground.trace(name, "fellow.disconnected", since_ns=healed_ns)
    ]
    again = [
        line for name in (near, far) for line in ground.trace(name, "fellow.reconnected", since_ns=healed_ns)
    ]
    result.bar("lost although there", len(gone), not gone, "0")
    result.bar("reconnections that were none", max(0, len(again) - 2), len(again) <= 2, "0")
    return result


def _both_hold(ground: Ground, count: int) -> bool:
    return {ground.seen.samples(name) for name in ground.nodes} == {count}


def run_case(directory: Path, options: argparse.Namespace) -> Result:
    """Run the case of these options on a ground of its own.

    Raises:
        Violation: the system did not even come to where the case measures.
    """
    cases: dict[str, Callable[[Ground], Result]] = {
        "rolling-restart": rolling_restart,
        "stale-first": functools.partial(stale_first, first=options.first),
        "cut-from-master": cut_from_master,
        "damaged-store": damaged_store,
        "busy-merge": functools.partial(busy_merge, count=options.samples, burners=options.burners),
    }
    settings = None
    if options.case == "busy-merge":
        settings = Settings(spaces=(Space(name=SPACE),), discovery_s=1.0, expiry_s=0.5)
    nodes = 3 if settings is None else 2
    ground = Ground(directory, nodes, seed=options.case, multicast=not options.unicast, settings=settings)
    try:
        return cases[options.case](ground)
    finally:
        ground.close()
