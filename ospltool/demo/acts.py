"""The five acts of the demo, and their player, with or without the console."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from engine.dds.uri import cyclone_uri
from ospltool.demo.stage import NODES, ActFailed, Stage
from ospltool.live.dds import LiveFeed

FIRST: Final = 1000
DISPOSED: Final = 10
MORE: Final = 200
NAME_SPACE: Final = "harbour"


@dataclasses.dataclass(frozen=True, slots=True)
class Act:
    """An act; `caption` announces it."""

    number: int
    caption: str
    perform: Callable[[Stage], str]


def find_each_other(stage: Stage) -> str:
    """Fellows found, name-spaces compared, a master elected, with the reason."""
    stage.start(*NODES)
    took = stage.wait_for("all three nodes are complete and follow one master", stage.all_complete)
    return f"{_master(stage)}; all complete {took:.1f} s after their start"


def capture(stage: Stage) -> str:
    """A plain publisher writes and exits; the nodes have it on disk without knowing the type."""
    said = stage.publish(
        "--count", str(FIRST), "--dispose-every", str(FIRST // DISPOSED), "--nodes", str(len(NODES))
    )
    expected = FIRST + DISPOSED
    took = stage.wait_for(
        f"{expected} samples (with {DISPOSED} disposes) are on the disk of every node",
        lambda: all(stage.stored(name) == expected for name in NODES) and stage.equal(),
    )
    partitions = ", ".join(sorted({group.partition for group in stage.groups(NODES[0])}))
    return f"publisher {said}; partitions {partitions}; on three disks {took:.1f} s after it ended"


def late_joiner(stage: Stage) -> str:
    """A subscriber that starts afterwards gets everything, once, with timestamps and disposes."""
    return _check_tally(stage, FIRST)


def absent_node(stage: Stage) -> str:
    """n3 is killed, misses data, comes back and aligns from the master."""
    stage.kill("n3")
    stage.publish("--first", str(FIRST), "--count", str(MORE))
    stage.start("n3")
    took = stage.wait_for("n3 is complete again and equal to the others", stage.equal)
    count = sum(group.samples for group in stage.groups("n3"))
    if count != FIRST + DISPOSED + MORE:
        raise ActFailed(f"n3 holds {count} samples, expected {FIRST + DISPOSED + MORE}")
    return f"n3 missed {MORE} instances and holds all {count} samples {took:.1f} s after its start"


def all_down(stage: Stage) -> str:
    """All are killed and started again: one injects, everybody is complete, a late joiner gets all."""
    stage.kill(*NODES)
    stage.events.clear()
    stage.start(*NODES)
    took = stage.wait_for("all three nodes are complete and equal", stage.equal)
    injectors = {event.node_name for event in stage.events if event.event == "injection.started"}
    if len(injectors) != 1:
        raise ActFailed(f"exactly one node injects, but these did: {sorted(injectors) or 'none'}")
    tally = _check_tally(stage, FIRST + MORE)
    return f"{injectors.pop()} alone injected, all complete after {took:.1f} s; {tally}"


ACTS: Final = (
    Act(1, "Three nodes start, find each other, compare name-spaces and elect a master.", find_each_other),
    Act(2, f"A publisher that knows nothing of us writes {FIRST} persistent instances and exits.", capture),
    Act(3, "A subscriber starts only now. DDS alone would give it nothing.", late_joiner),
    Act(
        4, "n3 is killed. Data goes on. n3 comes back and takes what it missed from the master.", absent_node
    ),
    Act(5, "All three are killed and started again. One of them brings the data back for all.", all_down),
)


def _master(stage: Stage) -> str:
    shown = stage.snapshots()
    space = next(s for s in shown[NODES[0]].name_spaces if s.name == NAME_SPACE)
    name = next((s.name for s in shown.values() if s.id == space.master), space.master)
    why = next(
        (
            s.why
            for n in shown.values()
            if n.id == space.master
            for s in n.name_spaces
            if s.name == NAME_SPACE
        ),
        "",
    )
    return f"master of '{NAME_SPACE}' is {name}: {why}"


def _check_tally(stage: Stage, expected: int) -> str:
    tally = stage.subscribe("--expect", str(expected))
    wanted = {
        "instances": expected,
        "samples": expected,
        "more_than_once": 0,
        "disposed": DISPOSED,
        "wrong_timestamps": 0,
    }
    seen = {name: tally.get(name) for name in wanted}
    if seen != wanted:
        raise ActFailed(f"the late joiner got {seen}, expected {wanted}")
    return (
        f"late joiner got all {expected} instances once each, original timestamps, {DISPOSED} disposed, "
        f"the last {tally['last_s']:.2f} s after its start"
    )


DOMAINS: Final = range(100, 200)
"""Domains to choose from when none is given, away from where applications usually are."""


@dataclasses.dataclass(frozen=True, slots=True)
class ActResult:
    """The result of an act; `text` says what happened, or why the act does not hold."""

    act: int
    caption: str
    holds: bool
    seconds: float
    text: str


def play(
    domain_id: int | None, directory: pathlib.Path | None, told: Callable[[str | ActResult], None]
) -> list[ActResult]:
    """Play the acts up to the first that does not hold; `told` gets captions and reports at once.

    The nodes get `domain_id`, or one of DOMAINS, and keep their files in a directory, or a temporary one.
    """
    with _stage(domain_id, directory) as (stage, _):
        return list(_play(stage, told))


def play_with_console(domain_id: int | None, directory: pathlib.Path | None) -> list[ActResult]:
    """Play the acts in the background, with the console in the foreground until the user leaves it."""
    from tui.app import run_console

    reports: list[ActResult] = []
    with _stage(domain_id, directory) as (stage, domain):
        shown = LiveFeed(domain, uri=cyclone_uri())

        def tell(news: str | ActResult) -> None:
            if isinstance(news, ActResult):
                reports.append(news)
                shown.say(f"Act {news.act} {'holds' if news.holds else 'DOES NOT HOLD'}: {news.text}")
                pause.wait(READING_S)
            else:
                shown.say(news)

        def perform() -> None:
            done = list(_play(stage, tell))
            holds = all(report.holds for report in done)
            shown.say(
                "All five acts hold. Press q to leave." if holds else f"{done[-1].text} Press q to leave."
            )

        pause = threading.Event()
        player = threading.Thread(target=perform, name="demo", daemon=True)
        player.start()
        run_console(shown, title="ospltool demo")
        pause.set()  # nobody reads captions any more
        stage.close()
        player.join(timeout=10.0)
    return reports


READING_S: Final = 4.0
"""How long a result stays before the next act, so that a person can read it."""


def _play(stage: Stage, told: Callable[[str | ActResult], None]) -> Iterator[ActResult]:
    for act in ACTS:
        told(f"Act {act.number} of {len(ACTS)}: {act.caption}")
        started = time.monotonic()
        try:
            holds, text = True, act.perform(stage)
        except ActFailed as error:
            holds, text = False, str(error)
        report = ActResult(act.number, act.caption, holds, time.monotonic() - started, text)
        told(report)
        yield report
        if not holds:
            return


@contextlib.contextmanager
def _stage(domain_id: int | None, directory: pathlib.Path | None) -> Iterator[tuple[Stage, int]]:
    domain = random.choice(DOMAINS) if domain_id is None else domain_id
    with contextlib.ExitStack() as stack:
        if directory is None:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ospltool-demo-"))
            directory = pathlib.Path(name)
        directory.mkdir(parents=True, exist_ok=True)
        feed = LiveFeed(domain, uri=cyclone_uri())
        stack.callback(feed.close)
        stage = Stage(directory.resolve(), domain, feed)
        stack.callback(stage.close)
        yield stage, domain
