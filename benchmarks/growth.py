"""How the work of health and of metrics grows with the groups of a system."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from prometheus_client.exposition import generate_latest

from benchmarks.rows import Row
from ospltool.health.health import Health
from ospltool.health.prometheus import families
from ospltool.health.system import System
from tests.fake import FakeFeed, ScriptedFeed

NODES: Final = 20
SPACES: Final = 10
GROUPS: Final = (5, 50, 500)
"""Groups of each node; no two nodes have one in common."""
LOOKS: Final = 40
"""Four in a second of the system."""


class _Families:
    """A registry of what was found."""

    def __init__(self, found: Sequence[object]) -> None:
        self._found = found

    def collect(self) -> Sequence[object]:
        return self._found


def rows(area: str, repeat: int) -> list[Row]:
    """Processor time of one second of a system's messages in health, and of one page of metrics."""
    found: list[Row] = []
    for groups in GROUPS:
        looks, pages, sizes = zip(*(_measure(groups) for _ in range(repeat)), strict=True)
        label = f"{NODES} nodes, {NODES * groups:,} groups"
        found += [
            Row(area, f"{label}: a second of health, processor time", "ms", looks),
            Row(area, f"{label}: a page of metrics, processor time", "ms", pages),
            Row(area, f"{label}: a page of metrics", "kB", sizes),
        ]
    return found


def _measure(groups: int) -> tuple[float, float, float]:
    source = FakeFeed(NODES, SPACES, groups, own_groups=True)
    feed = ScriptedFeed([(source.now_ns(), source.poll()) for _ in range(2 * LOOKS)])
    system = System((feed, Health))
    for _ in range(LOOKS):
        system.update()
    began = time.process_time()
    for _ in range(LOOKS):
        system.update()
    looked = time.process_time()
    made = _Families(families([("7", system.health, feed.now_ns())]))
    page = generate_latest(made)  # type: ignore[arg-type]  # it only collects
    ended = time.process_time()
    return 4e3 * (looked - began) / LOOKS, 1e3 * (ended - looked), len(page) / 1e3
