"""Nodes to measure: those of the samples and copies of them, on loopback, in a place of their own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import tempfile
import time
from collections.abc import Iterator

from benchmarks.programs import Program
from engine.dds.uri import settings_text
from ospltool.demo.acts import NODES, Stage, samples_directory
from ospltool.live.dds import LiveFeed
from tests.trace_lines import Line, read_line

PATIENCE_S = 120.0
_DOMAINS = range(100, 200)


def sample_uri() -> str:
    """The Cyclone DDS settings of the samples."""
    return settings_text(f"file://{samples_directory() / 'three-nodes' / 'cyclonedds.xml'}")


def environ() -> dict[str, str]:
    """The environment of applications that meet the nodes."""
    return {**os.environ, "CYCLONEDDS_URI": sample_uri()}


class Fleet(Stage):
    """A stage whose nodes after the third are copies of it with another name."""

    def configuration(self, name: str) -> pathlib.Path:
        """Where the configuration of a node is; it is made where the samples have none."""
        last = super().configuration(NODES[-1])
        if name in NODES:
            return last.with_name(f"{name}.xml")
        path = self.directory / name / "ospl.xml"
        text = last.read_text(encoding="utf-8")
        for before, after in ((f"<Name>{NODES[-1]}<", f"<Name>{name}<"), (f"/{NODES[-1]}/", f"/{name}/")):
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")
        return path


@contextlib.contextmanager
def stage(where: pathlib.Path | None = None) -> Iterator[Stage]:
    """A stage; the nodes that run at the end are ended."""
    domain = random.choice(_DOMAINS)
    with contextlib.ExitStack() as stack:
        if where is None:
            where = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ospltool-bench-")))
        feed = LiveFeed(domain, uri=sample_uri())
        stack.callback(feed.close)
        made = Fleet(where, domain, feed)
        stack.callback(made.close)
        yield made


def fill(stage: Stage, name: str, count: int, size: int) -> None:
    """Let a node capture one sample of each of `count` instances, and wait until they are on its disk."""
    options = {"domain": stage.domain_id, "size": size, "count": count, "instances": count}
    publisher = Program("publish", options, environ())
    publisher.answer()
    publisher.end()
    stage.wait_for(f"{count} samples are stored", lambda: stage.stored(name) == count, PATIENCE_S)


def processor_s(pid: int) -> float:
    """Processor time that a process has used, in user and system mode."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """The most memory that a process has had, in megabytes."""
    return _status_mb(pid, "VmHWM")


def memory_mb(pid: int) -> float:
    """The memory that a process has now, in megabytes."""
    return _status_mb(pid, "VmRSS")


def _status_mb(pid: int, key: str) -> float:
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1000


def start_and_wait(stage: Stage, *names: str) -> int:
    """Start nodes and wait until they are complete; returns the wall clock before the start, in ns."""
    for name in names:
        (stage.directory / name / "durability.log").unlink(missing_ok=True)
    began_ns = time.time_ns()
    stage.start(*names)
    wait_complete(stage, *names)
    return began_ns


def wait_complete(stage: Stage, *names: str) -> None:
    """Until these nodes show that they are complete and equal."""

    def complete() -> bool:
        shown = stage.snapshots()
        states = [shown[name].state if name in shown else "" for name in names]
        digests = {space.digest for name in names if name in shown for space in shown[name].name_spaces}
        return set(states) == {"COMPLETE"} and len(digests) == 1

    stage.wait_for(f"{names} are complete", complete, PATIENCE_S)


def trace(stage: Stage, name: str) -> list[Line]:
    """The lines of a node's trace."""
    text = (stage.directory / name / "durability.log").read_text(encoding="utf-8")
    return [line for each in text.splitlines() if (line := read_line(each)) is not None]


def first_time_ns(lines: list[Line], words: str) -> int:
    """When a line with these words was traced first."""
    return next(line.time_ns or 0 for line in lines if words in line.text)
