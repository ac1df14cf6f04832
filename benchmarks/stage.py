"""Nodes to measure: the three of the samples, on loopback, in a directory and a domain of their own."""

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
from engine.tracing.formats import Line, read_line
from ospltool.demo.stage import Stage, samples_directory
from ospltool.live.dds import LiveFeed

PATIENCE_S = 120.0
_DOMAINS = range(100, 200)


def sample_uri() -> str:
    """The Cyclone DDS settings of the samples."""
    return settings_text(f"file://{samples_directory() / 'three-nodes' / 'cyclonedds.xml'}")


def environ() -> dict[str, str]:
    """The environment of applications that meet the nodes."""
    return {**os.environ, "CYCLONEDDS_URI": sample_uri()}


@contextlib.contextmanager
def stage(where: pathlib.Path | None = None) -> Iterator[Stage]:
    """A stage; the nodes that run at the end are ended."""
    domain = random.choice(_DOMAINS)
    with contextlib.ExitStack() as stack:
        if where is None:
            where = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ospltool-bench-")))
        feed = LiveFeed(domain, uri=sample_uri())
        stack.callback(feed.close)
        made = Stage(where, domain, feed)
        stack.callback(made.close)
        yield made


def fill(stage: Stage, name: str, count: int, size: int) -> None:
    """Let a node capture one sample of each of `count` instances, and wait until they are on its disk."""
    options = {"domain": stage.domain_id, "size": size, "count": count, "instances": count}
    publisher = Program("publish", options, environ())
    publisher.answer()
    publisher.end()
    stage.wait_for(f"{count} samples are stored", lambda: stage.stored(name) == count, PATIENCE_S)


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
