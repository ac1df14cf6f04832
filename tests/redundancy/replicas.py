"""Persistence services of one test: real processes, with what they show and what they have on disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from engine.dds.uri import directed_uri, domain_tag
from engine.persistence.core.messages import Saved
from engine.persistence.service import replica_store as rows
from engine.persistence.service.replica_store import DATABASE
from engine.persistence.service.replica_view import ReplicaView, WriterView
from engine.persistence.service.replica_watching import Watching
from tests.integration.forks import Process, begin
from tests.integration.lab import Lab
from tests.integration.programs import Program, end_all

Values = Collection[tuple[int, bytes, int]]
"""Source time, payload and status of last values."""
END_S = 20.0
PATIENCE_S = 60.0
PERIOD_MS = 300
LOOK_S = 0.2
"""How often a file is looked at that nobody tells of."""

XML = """<dds><persistence_service name="{service}">
  <synchronization><data_synchronization>
    <enable>{enable}</enable>
    <remote_provider_selection_period>{period_ms}</remote_provider_selection_period>
    <stable_provider_period_count>{stable}</stable_provider_period_count>
    <max_remote_provider_change_period_count>{bound}</max_remote_provider_change_period_count>
  </data_synchronization>{synchronization}</synchronization>{more}
  <persistence_group name="all" filter="{filter}">
    <datawriter_qos>
      <history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>1</depth></history>
      <destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order>
    </datawriter_qos>
    <datareader_qos>
      <destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order>
    </datareader_qos>
  </persistence_group>
</persistence_service></dds>
"""


class Replicas:
    """The replicas of one domain; the applications are those of the lab.

    Args:
        lab: with the domain.
        watched: see what they show from this process; otherwise only what they have on disk.
        settings: of the configuration, other than the defaults.
    """

    def __init__(self, lab: Lab, *, watched: bool = True, **settings: Any) -> None:
        self.lab = lab
        self._processes: dict[str, Process] = {}
        self.file = lab.directory / "service.xml"
        defaults = {
            "service": "redundant",
            "enable": "true",
            "period_ms": PERIOD_MS,
            "stable": 1,
            "bound": 1,
            "filter": "*",
            "synchronization": "",
            "more": "",
        }
        self.file.write_text(XML.format(**{**defaults, **settings}), encoding="utf-8")
        self._watching = Watching(lab.domain, lab.uri) if watched else None

    @property
    def watching(self) -> Watching:
        assert self._watching is not None
        return self._watching

    # Processes.

    def start(self, *names: str, prefix: Sequence[str] = ()) -> None:
        """Start replicas, and wait until each shows itself and all are connected with each other."""
        for name in names:
            self.launch(name, prefix=prefix)
        self.wait_for("they show themselves", lambda: {*self._processes} <= {*self.shown()})

    def launch(self, name: str, *arguments: str, prefix: Sequence[str] = ()) -> Process:
        """Start the process of a replica."""
        command = [
            sys.executable, "-m", "ospltool.cli.app", "persistence", "run", str(self.file),
            "--name", name, "--store", str(self.home(name)), "--domain", str(self.lab.domain), *arguments,
        ]  # fmt: skip
        with self.log(name).open("ab") as output, Path(os.devnull).open("rb") as nothing:
            self._processes[name] = begin(command, self.lab.environ, (nothing, output, output), prefix)
        return self._processes[name]

    def home(self, name: str) -> Path:
        return self.lab.directory / name

    def log(self, name: str) -> Path:
        return self.lab.directory / f"{name}.log"

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, *names: str) -> None:
        """SIGKILL."""
        for name in names:
            self._processes[name].kill()
        for name in names:
            self._processes.pop(name).wait(END_S)

    def stop(self, *names: str) -> list[int]:
        """SIGTERM; returns the exit codes."""
        for name in names:
            self._processes[name].send_signal(signal.SIGTERM)
        return [self._processes.pop(name).wait(END_S) for name in names]

    def close(self) -> None:
        end_all(self._processes.values(), END_S)
        if self._watching:
            self._watching.__exit__()

    # Applications.

    def writer(self, *names: str, **options: Any) -> Program:
        """A writer that only these replicas can see, and that stays to write; see `write`."""
        self.wait_for("they are there", lambda: {*names} <= {*self.shown()})
        first, *others = [self.watching.addresses[self._processes[name].pid] for name in names]
        uri = directed_uri(first, "lo", self.lab.domain, domain_tag(self.lab.uri), others=others)
        return self.lab.program("writer", environ={"CYCLONEDDS_URI": uri}, readers=len(names), **options)

    # What they show.

    def shown(self) -> dict[str, ReplicaView]:
        """The newest view of each replica whose process is ours and runs."""
        pids = {process.pid for process in self._processes.values()}
        return {view.name: view for view in self.watching.replicas() if view.pid in pids}

    def writers(self, name: str) -> list[WriterView]:
        shown = self.shown().get(name)
        return [each for each in shown.writers if not each.late] if shown else []

    def counter(self, name: str, counter: str) -> int:
        shown = self.shown().get(name)
        return shown.counters.get(counter, 0) if shown else 0

    def wait_for(self, what: str, condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> float:
        """Wait until the condition holds; returns the seconds it took."""
        began = time.monotonic()
        while not self._look(condition):
            for name, process in self._processes.items():
                if process.poll() is not None:
                    text = self.log(name).read_text()[-3000:]
                    raise AssertionError(f"{name} ended with code {process.returncode}: {text}")
            if time.monotonic() - began > timeout_s:
                shown = self.shown() if self._watching else ""
                raise AssertionError(f"not in {timeout_s:g} s: {what}; shown: {shown}")
        return time.monotonic() - began

    def _look(self, condition: Callable[[], object]) -> bool:
        if self._watching is not None:
            return self._watching.wait_for(lambda _: condition(), 1.0)
        time.sleep(LOOK_S)
        return bool(condition())

    def wait_values(self, count: int, *names: str) -> float:
        """Wait until each replica keeps this many instances, all on disk."""

        def have() -> bool:
            shown = self.shown()
            return all(n in shown and shown[n].values == count and not shown[n].unwritten for n in names)

        return self.wait_for(f"{count} values at {', '.join(names)}", have)

    def wait_connected(self, *names: str) -> None:
        """Until each of them is connected with all others."""

        def are_up() -> bool:
            shown = self.shown()
            return all(
                n in shown and {p.name for p in shown[n].peers if p.link == "up"} >= {*names} - {n}
                for n in names
            )

        self.wait_for("all are connected", are_up)

    # What they have.

    def saved(self, name: str) -> Saved:
        """What is on the disk of a replica, from one moment; nothing before it is there."""
        if not (self.home(name) / DATABASE).exists():
            return Saved()
        uri = f"file:{self.home(name) / DATABASE}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as store:
            store.execute("BEGIN")
            if not store.execute("SELECT 1 FROM sqlite_schema WHERE name = 'accounted'").fetchone():
                return Saved()
            saved, damaged = rows.read(store)
        assert damaged == 0
        return saved

    def values(self, name: str) -> dict[bytes, tuple[int, bytes, int]]:
        """Source time, payload and status of every last value on the disk of a replica."""
        return {
            kept.sample.key: (kept.sample.source_time_ns, kept.sample.payload, kept.sample.status)
            for kept in self.saved(name).kept
        }

    def wait_equal(
        self,
        *names: str,
        count: int,
        where: Callable[[Values], bool] = lambda _: True,
        timeout_s: float = PATIENCE_S,
    ) -> float:
        """Wait until all have the same `count` last values on disk, and `where` is true of them.

        All may be equal at an earlier moment, too: what is acknowledged is not yet on disk.
        """

        def are_equal() -> bool:
            first, *others = (self.values(name) for name in names)
            return len(first) == count and all(each == first for each in others) and where(first.values())

        return self.wait_for(f"{', '.join(names)} have the same {count} values", are_equal, timeout_s)


def not_before(time_ns: int) -> Callable[[Values], bool]:
    """Return whether no value has an earlier source time."""
    return lambda values: min(time for time, _, _ in values) >= time_ns


def as_json(text: str) -> Any:
    """The data of a command's answer."""
    document = json.loads(text)
    assert document["format_version"] == 1
    return document["data"]


def write(writer: Program, *steps: dict[str, Any]) -> None:
    """Let a writer that stays carry out steps; all readers have acknowledged when this returns."""
    writer.tell(steps=list(steps))
    writer.answer("done")
