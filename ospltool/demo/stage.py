"""The stage of the acts: node processes, sample programs, and a feed with the snapshots of the nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Final

import ospltool
from ospltool.live.model import SystemModel

if TYPE_CHECKING:
    from engine.runtime.monitor import GroupView, NodeEvent, NodeSnapshot
    from ospltool.live.dds import LiveFeed

NODES: Final = ("n1", "n2", "n3")
_PROGRAM_TIMEOUT_S: Final = 60.0
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
        with contextlib.suppress(OSError), (self.directory / name / "output.log").open("rb") as output:
            return _tail(output) or "it said nothing"
        return "it said nothing"


def _tail(file: IO[bytes], limit: int = 2000) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - limit))
    return file.read().decode(errors="replace").strip()
