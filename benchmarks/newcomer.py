"""A late joiner on the host of a node that starts with an empty store, with the shortest timers.

Two hosts (network namespaces) with a node each: the first holds everything, the second starts at the same
time as the reader beside it. The real OpenSplice needed 4.0 s for it on another machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.programs import PARTITION, Program
from benchmarks.rows import Bar, Is, Row
from engine.dds.uri import cyclone_uri
from tests.integration.configurations import Settings, Space
from tests.integration.lab import LEASE_S, Lab
from tests.integration.network import Network, NotPermitted

COUNT: Final = 100_000
SIZE: Final = 92
SHORTEST: Final = Settings(spaces=(Space(elements=(PARTITION,)),), discovery_s=0.1, expiry_s=0.5)
LATE: Final = Bar(Is.AT_MOST, 2.0)
_HOSTS: Final = {"n1": "a", "n2": "b"}
_DOMAIN: Final = 78
_PATIENCE_S: Final = 60.0


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
    network = Network(tuple(_HOSTS.values()))
    try:
        with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
            return _join(Path(directory), network)
    finally:
        network.close()


def _join(directory: Path, network: Network) -> float:
    uri = cyclone_uri(
        interfaces=["e0"],
        multicast="spdp",
        peers=[],
        max_auto_participant_index=20,
        lease_s=LEASE_S,
        spdp_interval_ms=500,
        tag="benchmark",
        environment={},
    )
    lab = Lab(directory, _DOMAIN, "benchmark", uri, watched=False)
    lab.prefixes = {name: network.on(host) for name, host in _HOSTS.items()}
    for name in _HOSTS:
        lab.configure(name, SHORTEST)
    try:
        near = lab.watch_from("n1")
        lab.start("n1")
        near.wait_for("n1 is complete", lambda: near.are_complete("n1"), _PATIENCE_S)
        options = {"domain": _DOMAIN, "size": SIZE, "count": COUNT, "instances": COUNT}
        publisher = Program("publish", options, lab.environ, lab.prefixes["n1"])
        publisher.answer()
        publisher.end()
        near.wait_for("n1 has it", lambda: near.stored("n1") == COUNT, _PATIENCE_S)
        wanted = {"domain": _DOMAIN, "count": COUNT, "durability": "persistent"}
        joiner = Program("join", wanted, lab.environ, lab.prefixes["n2"])
        lab.start("n2")
        joiner.answer()
        answer = joiner.answer()
        joiner.end()
        return float(answer["ended_ns"] - joiner.began_ns) / 1e9
    finally:
        lab.close()
