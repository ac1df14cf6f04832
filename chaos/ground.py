"""Where a round takes place: hosts, nodes, applications, and the eye that watches and records."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from chaos import checker
from chaos.hosts import Hosts
from engine.dds.uri import cyclone_uri
from ospltool.live.dds import LiveFeed
from ospltool.live.recorder import Recorder
from tests.integration.configurations import Settings, Space
from tests.integration.lab import LEASE_S, Lab
from tests.integration.programs import ROOT, Program
from tests.integration.watching import FeedSource, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from chaos.checker import Held
    from ospltool.live.feed import Update
    from tests.integration.forks import Process

DOMAIN: Final = 42
SPACE: Final = "stock"


class Violation(AssertionError):
    """A promise was broken, or the system did not become what it must within the bound."""


class Application(Program):
    """One of the programs of `chaos.programs`."""

    module = "chaos.programs"


class RecordingFeed(LiveFeed):
    """A feed of which everything is recorded, too."""

    recorder: Recorder | None = None

    def poll(self) -> Update:
        """What came since the last call."""
        update = super().poll()
        if self.recorder is not None:
            self.recorder.write(update, time.time_ns())
        return update


class Ground(Lab):
    """Nodes `n0`, `n1`, ... and hosts for writers, joined by a switch.

    Args:
        directory: for everything that the run leaves behind.
        nodes: how many; the first has the highest masterPriority.
        writers: names of the hosts of applications.
        seed: of the switch.
        multicast: as Cyclone DDS has it by default; else every host is told of all others.
        settings: of the nodes, in place of one name-space with these priorities.
        lease_s: of all participants.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        writers: Sequence[str] = ("w0", "w1", "late"),
        seed: str = "1",
        *,
        multicast: bool = True,
        settings: Settings | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        self.nodes = tuple(f"n{number}" for number in range(nodes))
        self.writers = tuple(writers)
        self.hosts = Hosts((*self.nodes, *self.writers), seed)
        self.supervised: set[str] = set()
        self.shifts: dict[str, int] = {}
        self._applications = 0
        directory.mkdir(parents=True, exist_ok=True)
        uri = cyclone_uri(
            interfaces=["e0"],
            multicast="true" if multicast else "false",
            peers=[] if multicast else self.hosts.addresses.values(),
            max_auto_participant_index=9,
            lease_s=lease_s,
            spdp_interval_ms=500,
            environment={},
        )
        try:
            super().__init__(directory, DOMAIN, "", uri)
        except BaseException:
            self.hosts.close()
            raise
        self.prefixes = {name: self.hosts.on(name) for name in self.hosts.names}
        for number, name in enumerate(self.nodes):
            space = Space(name=SPACE, elements=("stock*",), priority=200 - 10 * number)
            self.configure(name, settings or Settings(spaces=(space,), discovery_s=1.0, expiry_s=2.0))

    def _watch(self) -> Watch:
        feed = RecordingFeed(self.domain, uri=self.uri)
        feed.recorder = Recorder(self.directory / "night.rec", source="chaos", made_by="chaos")
        return Watch(FeedSource(feed))

    # Nodes.

    def configure(self, name: str, settings: Settings) -> Path:
        """Write the configuration of a node, which serves clients, too."""
        path = super().configure(name, settings)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("<Network>", '<ClientDurability enabled="true"/><Network>', 1), "utf-8")
        return path

    def launch(self, name: str, environ: Any = None) -> subprocess.Popen[bytes]:
        """Start a node as users do, in front or under a supervisor, or with a wrong clock."""
        home = self.home(name)
        module: tuple[str, ...] = ("-m", "engine")
        if self.shifts.get(name):
            module = ("-m", "chaos.skewed", str(self.shifts[name]))
        elif name in self.supervised:
            module = ("-m", "ospltool.cli.app", "start", "--foreground")
        with (home / "output.log").open("ab") as output:
            return subprocess.Popen(
                [*self.prefixes[name], sys.executable, *module, str(home / "ospl.xml")],
                cwd=ROOT,
                env={**self.environ, "OSPL_LOGPATH": str(home), **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def process_of(self, name: str) -> Process | None:
        """The living process of a node; the supervisor's where it has one."""
        return self._processes[name] if self.is_running(name) else None

    def release(self, name: str) -> Process | None:
        """The process of a node, living or not, which from now on is the caller's business."""
        return self._processes.pop(name, None)

    def check(self) -> None:
        """Which nodes run is the nemesis' business."""

    def running(self) -> tuple[str, ...]:
        """The nodes whose process lives."""
        return tuple(name for name in self.nodes if self.is_running(name))

    def is_running(self, name: str) -> bool:
        """Whether the process of a node lives."""
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def are_up(self, *names: str) -> bool:
        """Whether these nodes are complete and follow one master; their sets may differ under traffic."""
        shown = [self.seen.node(name) for name in names]
        spaces = [self.seen.space(name, SPACE) for name in names]
        return (
            all(node is not None and node.state == "COMPLETE" for node in shown)
            and all(space is not None and space.complete and space.confirmed for space in spaces)
            and len({space.master for space in spaces if space is not None}) == 1
        )

    def shown_since(self, time_ns: int) -> bool:
        """Whether every node has shown itself after this time."""
        shown = [self.seen.node(name) for name in self.nodes]
        return all(node is not None and node.time_ns > time_ns for node in shown)

    def wait_up(self, *names: str, timeout_s: float = 60.0) -> float:
        """Until these nodes are up; returns the seconds it took."""
        return self.wait_for(f"{names} are complete with one master", lambda: self.are_up(*names), timeout_s)

    def wait_for(self, what: str, condition: Callable[[], object], timeout_s: float) -> float:
        """Wait for something that nodes show; it is asked again at least every half second."""
        try:
            return self.seen.wait_for(what, condition, timeout_s)
        except AssertionError as error:
            raise Violation(str(error)) from error

    def wait_stores(
        self, what: str, holds: Callable[[dict[str, list[Held]]], object], timeout_s: float, *names: str
    ) -> float | None:
        """Until what is on the disks of nodes is right; returns the seconds it took, None if it never was."""
        began = time.monotonic()
        while True:
            if holds({name: self.held(name) for name in names or self.nodes}):
                return time.monotonic() - began
            if time.monotonic() - began > timeout_s:
                return None
            self.seen.wait_for("news", lambda: True, 0)  # the recording goes on
            time.sleep(0.2)  # disks tell nobody

    def held(self, name: str) -> list[Held]:
        """What is in the store of a node now; nothing where it cannot be read."""
        try:
            return checker.read_store(self.home(name) / "store", living=self.is_running(name))
        except (sqlite3.Error, ValueError):
            return []

    def restart(self, name: str) -> None:
        """An orderly stop and start; waits until the node is up."""
        self.stop(name)
        self.start(name)
        self.wait_up(name)

    # Applications.

    def application(self, role: str, host: str, **options: Any) -> Application:
        """Start an application on a host; it is ended with the round."""
        made = Application(role, {"domain": self.domain, **options}, self.environ, self.prefixes[host])
        self._programs.append(made)
        return made

    def writer(self, host: str, topics: Sequence[str], **options: Any) -> Application:
        """A writer with a record."""
        self._applications += 1
        record = self.directory / f"writer{self._applications}.record"
        record.touch()
        return self.application("writer", host, topics=list(topics), record=str(record), **options)

    def records(self) -> checker.Records:
        """What all writers noted so far."""
        return checker.read_records(sorted(self.directory.glob("writer*.record")))

    # The end.

    def close(self) -> None:
        """End everything, also after half a start."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.hosts.close)
            super().close()
