"""A late joiner on the host of a node that starts with an empty store, with the shortest timers.

Two hosts (network namespaces) with a node each: the first holds everything, the second starts at the same
time as the reader beside it. The real OpenSplice needed 4.0 s for it on another machine.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.hosts import HOSTS, PATIENCE_S, two_hosts, write
from benchmarks.programs import PARTITION, Program
from benchmarks.rows import Bar, Is, Row
from tests.integration.configurations import Settings, Space
from tests.integration.network import NotPermitted

COUNT: Final = 100_000
SIZE: Final = 92
SHORTEST: Final = Settings(spaces=(Space(elements=(PARTITION,)),), discovery_s=0.1, expiry_s=0.5)
LATE: Final = Bar(Is.AT_MOST, 2.0)


def rows(area: str, repeat: int) -> list[Row]:
    """The row of an area; none where no network namespaces can be made."""
    try:
        found = tuple(_measure() for _ in range(repeat))
    except NotPermitted as reason:
        print(f"area {area}: not measured, no network namespaces here: {reason}", file=sys.stderr)
        return []
    name = f"{COUNT:,} samples, last, from the start of a node with an empty store"
    return [
        Row(area, name, "s", found, bar=LATE, remark="two hosts, shortest timers, the reader's start too")
    ]


def _measure() -> float:
    """Seconds from the start of the second node to its reader's last sample."""
    with two_hosts(dict.fromkeys(HOSTS, SHORTEST)) as (lab, _):
        near = lab.watch_from("n1")
        lab.start("n1")
        near.wait_for("n1 is complete", lambda: near.are_complete("n1"), PATIENCE_S)
        write(lab, "n1", 0, COUNT, SIZE)
        near.wait_for("n1 has it", lambda: near.stored("n1") == COUNT, PATIENCE_S)
        wanted = {"domain": lab.domain, "count": COUNT, "durability": "persistent"}
        joiner = Program("join", wanted, lab.environ, lab.prefixes["n2"])
        lab.start("n2")
        joiner.answer()
        answer = joiner.answer()
        joiner.end()
        return float(answer["ended_ns"] - joiner.began_ns) / 1e9
