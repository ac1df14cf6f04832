"""Recordings of the console, made up."""

from __future__ import annotations

import dataclasses
import itertools

from engine.core import plain
from engine.runtime.monitor import GroupView
from ospltool.live.patches import difference
from ospltool.live.record_file import (
    Delta,
    Item,
    Key,
    RecordedState,
    RecordingHeader,
    encode_line,
)
from tests import fake

SECOND_NS = 1_000_000_000
GROUP = GroupView("A", "p", "T", "depot::Item", "PERSISTENT", 0, 0, 0, "ab", 99, 0, 0)


def recording(sizes: list[int]) -> bytes:
    """One node whose set has these sizes, each two seconds later."""
    states = [
        plain.to_plain(
            fake.snapshot(
                1,
                fake.name_space("A", 1),
                groups=(dataclasses.replace(GROUP, samples=size, instances=size),),
            )
        )
        for size in sizes
    ]
    items: list[Item] = [RecordingHeader("domain 7", "test"), Key(1), RecordedState(states[0])]
    for before, after in itertools.pairwise(states):
        items.append(Delta(after["id"], difference(before, after) or {}))
    return b"".join(encode_line(fake.START_NS + n * 2 * SECOND_NS, item) for n, item in enumerate(items))
