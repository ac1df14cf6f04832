"""The five acts of the demo, their player, with or without the console, and their stage.

The stage has node processes, sample programs, and a feed with the snapshots of the nodes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final

import ospltool
from engine.dds.uri import cyclone_uri
from ospltool.live.dds import LiveFeed
from ospltool.live.model import SystemModel

if TYPE_CHECKING:
    from engine.runtime.monitor import GroupView, NodeEvent, NodeSnapshot

NODES: Final = ("n1", "n2", "n3")
# They take seconds; a loaded machine has ten times that.
_PROGRAM_TIMEOUT_S: Final = 60.0
# As the ServiceTerminatePeriod of the nodes; then they are killed.
_END_TIMEOUT_S: Final = 10.0


class ActFailed(Exception):
    """An act does not hold; the message says what was expected and what was seen."""


def samples_directory() -> pathlib.Path:
    """Return the directory of the samples: beside the packages in a checkout, else inside the package."""
    package = pathlib.Path(ospltool.__path__[0])
    for candidate in (package / "samples", package.parent / "samples"):
        if (candidate / "three-nodes").is_dir():
            return candidate
    raise ActFailed(f"the samples are neither in {package} nor beside it")


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """The output and exit code of a sample program."""

    exit_code: int
    output: str
    errors: str


class Stage:
    """Three nodes in a directory and a domain of their own, and a feed that watches them.

    Args:
        directory: where nodes keep traces and stores; the caller removes it.
        domain_id: the DDS domain.
        feed: watches that domain.
    """

    def __init__(self, directory: pathlib.Path, domain_id: int, feed: LiveFeed) -> None:
        self.directory = directory
        self.domain_id = domain_id
        self.model = SystemModel()
        self.events: list[NodeEvent] = []
        self._feed = feed
        self._samples = samples_directory()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environ = {
            **os.environ,
            "OSPLTOOL_DEMO_DIR": str(directory),
            "OSPLTOOL_DEMO_DOMAIN": str(domain_id),
            "OSPL_LOGPATH": str(directory),
            "CYCLONEDDS_URI": f"file://{self._samples / 'three-nodes' / 'cyclonedds.xml'}",
        }

    def start(self, *names: str) -> None:
        """Start node processes."""
        for name in names:
            home = self.directory / name
            home.mkdir(parents=True, exist_ok=True)
            configuration = self.configuration(name)
            with (home / "output.log").open("ab") as output:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "engine", str(configuration)],
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )

    def configuration(self, name: str) -> pathlib.Path:
        """Return the path of the configuration of a node."""
        return self._samples / "three-nodes" / f"{name}.xml"

    def kill(self, *names: str) -> None:
        """Kill a node with SIGKILL, so that it cannot tidy up."""
        for name in names:
            self._processes[name].send_signal(signal.SIGKILL)
        for name in names:
            self._processes.pop(name).wait(_END_TIMEOUT_S)

    def end(self, name: str) -> None:
        """Stop a node."""
        process = self._processes.pop(name)
        process.terminate()
        process.wait(_END_TIMEOUT_S)

    def pid(self, name: str) -> int:
        """Return the process id of a running node."""
        return self._processes[name].pid

    def close(self) -> None:
        """Stop the nodes that still run."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def run(self, program: str, *arguments: str) -> ProgramOutcome:
        """Run a sample program to its end."""
        command = [sys.executable, str(self._samples / program), "--domain", str(self.domain_id), *arguments]
        try:
            done = subprocess.run(
                command,
                env=self._environ,
                capture_output=True,
                text=True,
                timeout=_PROGRAM_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ActFailed(f"{program} did not end within {_PROGRAM_TIMEOUT_S:.0f} s") from error
        return ProgramOutcome(done.returncode, done.stdout.strip(), done.stderr.strip())

    def publish(self, *arguments: str) -> str:
        """Run the publisher; it must succeed."""
        outcome = self.run("publisher.py", *arguments)
        if outcome.exit_code:
            raise ActFailed(f"the publisher failed: {outcome.errors or outcome.output}")
        return outcome.output

    def subscribe(self, *arguments: str) -> dict[str, Any]:
        """Run the subscriber and return its tally."""
        outcome = self.run("subscriber.py", *arguments)
        try:
            tally: dict[str, Any] = json.loads(outcome.output)
        except ValueError as error:
            raise ActFailed(f"the subscriber failed: {outcome.errors or outcome.output}") from error
        return tally

    def wait_for(self, what: str, condition: Callable[[], bool], timeout_s: float = 30.0) -> float:
        """Wait until the nodes' own snapshots show that `condition` holds; returns the seconds it took.

        `what` is for the error.

        Raises:
            ActFailed: not in time, or a node ended by itself.
        """
        started = time.monotonic()
        while True:
            update = self._feed.poll()
            self.model.apply(update, self._feed.now_ns())
            self.events += update.events
            if condition():
                return time.monotonic() - started
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ActFailed(f"{name} ended with code {process.returncode}: {self._last_words(name)}")
            if time.monotonic() - started > timeout_s:
                raise ActFailed(f"after {timeout_s:.0f} s: {what} does not hold")
            self._feed.wait(0.5)

    def snapshots(self) -> dict[str, NodeSnapshot]:
        """Return the latest snapshot of each running node, by name."""
        pids = {process.pid for process in self._processes.values()}
        nodes = [node.snapshot for node in self.model.ordered_nodes()]
        return {snapshot.name: snapshot for snapshot in nodes if snapshot.pid in pids}

    def all_complete(self) -> bool:
        """Tell whether every running node is complete, and all follow one master."""
        shown = self.snapshots()
        if set(shown) != set(self._processes):
            return False
        spaces = [space for snapshot in shown.values() for space in snapshot.name_spaces]
        return all(space.complete for space in spaces) and len({space.master for space in spaces}) == 1

    def equal(self) -> bool:
        """Tell whether all running nodes hold equal sets."""
        shown = self.snapshots()
        digests = {space.digest for snapshot in shown.values() for space in snapshot.name_spaces}
        return self.all_complete() and len(digests) == 1

    def groups(self, name: str) -> tuple[GroupView, ...]:
        """Return the groups of a node."""
        snapshot = self.snapshots().get(name)
        return snapshot.groups if snapshot else ()

    def stored(self, name: str) -> int:
        """Count the samples that a node has on its disk."""
        return sum(group.stored for group in self.groups(name))

    def _last_words(self, name: str) -> str:
        # A node that could not even be started has no log.
        with contextlib.suppress(OSError), (self.directory / name / "output.log").open("rb") as output:
            return _tail(output) or "it said nothing"
        return "it said nothing"


def _tail(file: IO[bytes], limit: int = 2000) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - limit))
    return file.read().decode(errors="replace").strip()


# Enough to be seen on the console, few enough that each act takes a second or two.
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

        def show(news: str | ActResult) -> None:
            if isinstance(news, ActResult):
                reports.append(news)
                shown.set_caption(f"Act {news.act} {'holds' if news.holds else 'DOES NOT HOLD'}: {news.text}")
                pause.wait(READING_S)
            else:
                shown.set_caption(news)

        def perform() -> None:
            done = list(_play(stage, show))
            holds = all(report.holds for report in done)
            shown.set_caption(
                "All five acts hold. Press q to leave." if holds else f"{done[-1].text} Press q to leave."
            )

        pause = threading.Event()
        player = threading.Thread(target=perform, name="demo", daemon=True)
        player.start()
        run_console(shown, title="ospltool demo")
        pause.set()  # nobody reads captions any more
        stage.close()
        # The stage is closed, so the act that runs fails soon; it is a daemon if it does not.
        player.join(timeout=10.0)
    return reports


# A sentence and some figures.
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
