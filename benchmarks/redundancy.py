"""Persistence services that keep the same: how often a sample arrives twice, and how fast all have it.

Real replicas on loopback. A writer is connected with one of them, or with all; in the course of it nothing
happens, or the replica from which others take is killed, or one is killed and starts again with its store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row
from engine.dds.uri import directed_uri
from engine.persistence.service import replica_store as rows
from engine.persistence.service.replica_store import DATABASE
from engine.persistence.service.replica_watching import Watching
from ospltool.demo.acts import samples_directory

AREA: Final = "redundancy"
SAMPLES: Final = 20_000
DDS_INSTANCES: Final = 1_000
SIZE: Final = 100
RATE: Final = 2_500
"""Samples in a second: slow enough that most arrive when providers have been chosen."""
PERIOD_MS: Final = 500
PATIENCE_S: Final = 120.0
FAULTS: Final = ("nothing", "the provider is lost", "one starts again")


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What one run counted, over all replicas that were there at the end."""

    arrivals: int
    repeated: int
    between: int
    seconds: float


def run(repeat: int) -> list[Row]:
    """Each number of replicas with each fault; a run takes long, so at most two of each."""
    made: list[Row] = []
    for count in (2, 3, 5):
        for reach in ("one", "all"):
            for fault in FAULTS:
                if reach == "all" and fault == FAULTS[1]:
                    continue  # nobody takes from another
                outcomes = [_measure(count, reach, fault) for _ in range(min(repeat, 2))]
                made += _rows(f"{count} replicas, writer connected with {reach}, {fault}", fault, outcomes)
    return made


def _rows(name: str, fault: str, outcomes: list[Outcome]) -> list[Row]:
    twice = tuple(100 * one.repeated / one.arrivals for one in outcomes)
    bar = Bar(Is.AT_MOST, 1) if fault == FAULTS[0] else None
    remark = f"of {outcomes[0].arrivals:,} arrivals, {outcomes[0].between:,} from other replicas"
    return [
        Row(AREA, f"{name}: arrived twice", "%", twice, bar=bar, remark=remark),
        Row(AREA, f"{name}: all equal on disk after", "s", tuple(one.seconds for one in outcomes)),
    ]


class _Cluster:
    """Replicas of one run."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.domain = random.choice(range(100, 200))
        self._environ = {**stages.environ(), "SELECTION_PERIOD": str(PERIOD_MS)}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.watching = Watching(self.domain, stages.sample_uri())

    def start(self, name: str) -> None:
        file = samples_directory() / "redundant-persistence" / "service.xml"
        where = ["--store", str(self.directory / name), "--domain", str(self.domain)]
        command = [sys.executable, "-m", "ospltool.cli.app", "persistence", "run", str(file)]
        self._processes[name] = subprocess.Popen(
            [*command, "--name", name, *where, "--json"],
            env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def wait_connected(self) -> None:
        """All show themselves and are connected with all."""
        count = len(self._processes)
        pids = {process.pid for process in self._processes.values()}

        def are_connected() -> bool:
            shown = [each for each in self.watching.replicas() if each.pid in pids]
            links = [sum(peer.link == "up" for peer in each.peers) for each in shown]
            return len(shown) == count and min(links) == count - 1

        self.wait("all are connected", are_connected)

    def wait_equal(self) -> None:
        """All have the same on disk."""

        def are_equal() -> bool:
            found = [self._values(name) for name in self._processes]
            return len(found[0]) == DDS_INSTANCES and all(each == found[0] for each in found)

        self.wait("all are equal", are_equal)

    def _values(self, name: str) -> dict[bytes, int]:
        uri = f"file:{self.directory / name / DATABASE}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as store:
            return {kept.sample.key: kept.sample.sequence for kept in rows.read(store)[0].kept}

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.watching.wait_for(lambda _: condition(), 0.2):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not in {PATIENCE_S:g} s: {what}")

    def publisher(self, *names: str) -> Program:
        """Writes as fast as they take; without names for all."""
        environ = stages.environ()
        if names:
            first, *others = [self.watching.addresses[self._processes[name].pid] for name in names]
            environ["CYCLONEDDS_URI"] = directed_uri(first, "lo", self.domain, others=others)
        options = {
            "domain": self.domain,
            "size": SIZE,
            "count": SAMPLES,
            "instances": DDS_INSTANCES,
            "rate": RATE,
        }
        return Program("publish", options, environ)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.communicate()

    def provider(self, name: str) -> str:
        """From whom a replica takes; empty while from nobody."""
        pid = self._processes[name].pid
        for each in self.watching.replicas():
            if each.pid == pid:
                return next((writer.provider for writer in each.writers if writer.path), "")
        return ""

    def end(self) -> list[dict[str, int]]:
        """What each counted."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        texts = [process.communicate(timeout=30)[0] for process in self._processes.values()]
        return [json.loads(text)["data"]["counters"] for text in texts]


@contextlib.contextmanager
def _cluster() -> Iterator[_Cluster]:
    with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
        made = _Cluster(pathlib.Path(directory))
        try:
            yield made
        finally:
            for process in made._processes.values():
                process.kill()
            made.watching.__exit__()


def _measure(count: int, reach: str, fault: str) -> Outcome:
    with _cluster() as cluster:
        names = "abcde"[:count]
        for name in names:
            cluster.start(name)
        cluster.wait_connected()
        seen_by = () if reach == "all" else ("a", "b") if fault == FAULTS[1] else ("a",)
        publisher = cluster.publisher(*seen_by)
        began = time.monotonic()
        if fault == FAULTS[0]:
            publisher.answer()
        else:
            _break(cluster, fault, names, publisher)
        cluster.wait_equal()
        seconds = time.monotonic() - began
        publisher.end()
        counters = cluster.end()
    captured, received, repeated = (
        sum(each.get(what, 0) for each in counters) for what in ("captured", "received", "repeated")
    )
    return Outcome(captured + received, repeated, received, seconds)


def _break(cluster: _Cluster, fault: str, names: str, publisher: Program) -> None:
    """While the writer writes."""
    cluster.wait("a provider is chosen", lambda: bool(cluster.provider(names[-1])))
    time.sleep(1.0)  # it is in the middle of its samples
    if fault == FAULTS[1]:
        cluster.kill("a" if len(names) == 2 else cluster.provider(names[-1]))
        publisher.answer()
    else:
        cluster.kill(names[-1])
        publisher.answer()
        cluster.start(names[-1])
        cluster.wait_connected()
