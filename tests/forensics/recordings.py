"""Recordings, made up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engine.runtime.monitor import GroupView
from ospltool.live.recording import Item, Key, RecordingHeader, created, encoded
from tests import fake

SECOND_NS = 1_000_000_000
GROUP = GroupView("A", "p", "T", "depot::Item", "PERSISTENT", 0, 0, 0, "ab", 99, 0, 0)


def write_lines(path: Path, lines: Iterable[tuple[int, Item]]) -> None:
    """Make a recording of these lines."""
    path.touch()
    file = created(path)
    for heard_ns, item in lines:
        file.execute("INSERT INTO line (heard_ns, kind, data) VALUES (?, ?, ?)", (heard_ns, *encoded(item)))
    file.execute("PRAGMA journal_mode = DELETE")
    file.close()


def recording(sizes: list[int]) -> bytes:
    """Return a recording of one node whose set has these sizes, each two seconds later."""
    shown = [
        fake.snapshot(
            1,
            fake.name_space("A", 1),
            groups=(msgspec.structs.replace(GROUP, samples=size, instances=size),),
        )
        for size in sizes
    ]
    items: list[Item] = [RecordingHeader("domain 7", "test"), Key(), *shown]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "night.rec"
        write_lines(path, ((fake.START_NS + n * 2 * SECOND_NS, item) for n, item in enumerate(items)))
        return path.read_bytes()
