"""A split of two nodes that hold much, new data on both sides, and how soon both hold everything again.

Each node is on a host of its own, with a link to cut; that takes permission to make network namespaces. The
octets are held against those that the second node took when it came with an empty store.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.programs import PARTITION, Program
from benchmarks.rows import Bar, Is, Row
from engine.dds.uri import cyclone_uri
from tests.integration.configurations import Settings, Space
from tests.integration.lab import LEASE_S, Lab
from tests.integration.network import Network, NotPermitted

if TYPE_CHECKING:
    from tests.integration.watching import Watch

AREA: Final = "merge"
COMMON: Final = 100_000
NEW: Final = 1_000
SIZE: Final = 100
HOSTS: Final = {"n1": "a", "n2": "b"}
PATIENCE_S: Final = 60.0
SENT: Final = Bar(Is.AT_MOST, 0.1, of_ratio=True)
_DOMAIN: Final = 77


def run(repeat: int) -> list[Row]:
    """Time and octets of the merge, and octets of sending everything."""
    runs: list[dict[str, float]] = []
    for _ in range(min(repeat, 3)):
        try:
            network = Network(tuple(HOSTS.values()))
        except NotPermitted as reason:
            print(f"area {AREA}: not measured, no network namespaces here: {reason}", file=sys.stderr)
            return []
        try:
            with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
                runs.append(_measure(Path(directory), network))
        finally:
            network.close()
    label = f"{NEW:,} new on each side of {COMMON:,}"
    columns = {what: tuple(one[what] for one in runs) for what in runs[0]}
    whole = Row(AREA, "the whole set to an empty node, octets", "B", columns["whole"])
    sent = Row(AREA, f"{label}, octets sent to merge", "B", columns["sent"])
    return [
        Row(AREA, f"{label}, from the link to equal sets", "s", columns["equal"]),
        Row(AREA, f"{label}, of that from hearing each other", "s", columns["merge"]),
        whole,
        sent.against(whole, SENT),
    ]


def _measure(directory: Path, network: Network) -> dict[str, float]:
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
    lab.prefixes = {name: network.on(host) for name, host in HOSTS.items()}
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings(spaces=(Space(elements=(PARTITION,), priority=priority),)))
    try:
        return _split_and_merge(lab, network)
    finally:
        lab.close()


def _split_and_merge(lab: Lab, network: Network) -> dict[str, float]:
    near, far = lab.watch_from("n1"), lab.watch_from("n2")
    lab.start("n1")
    near.wait_for("n1 is complete", lambda: _is_complete(near, "n1"), PATIENCE_S)
    _write(lab, "n1", 0, COMMON)
    near.wait_for("n1 has it", lambda: near.stored("n1") == COMMON, PATIENCE_S)
    lab.start("n2")
    far.wait_for("n2 has it", lambda: far.stored("n2") == COMMON, PATIENCE_S)
    _wait_news(near, far)
    whole = _sent(near, "n1")
    far.wait_for("they know each other", lambda: far.fellows("n2", "approved") == {"n1"}, PATIENCE_S)
    network.cut("b")
    near.wait_for("n1 is alone", lambda: not near.fellows("n1", "approved"), PATIENCE_S)
    far.wait_for("n2 leads", lambda: far.master("n2") == "n2", PATIENCE_S)
    _write(lab, "n1", COMMON, NEW)
    _write(lab, "n2", COMMON + NEW, NEW)
    _wait_samples(near, "n1", COMMON + NEW)
    _wait_samples(far, "n2", COMMON + NEW)
    before = _sent(near, "n1") + _sent(far, "n2")
    network.heal("b")
    began = time.monotonic()
    near.wait_for("they meet", lambda: near.fellows("n1", "approved") == {"n2"}, PATIENCE_S)
    met = time.monotonic()
    for name, view in (("n1", near), ("n2", far)):
        _wait_samples(view, name, COMMON + 2 * NEW)
    ended = time.monotonic()
    _wait_news(near, far)
    sent = _sent(near, "n1") + _sent(far, "n2") - before
    return {"equal": ended - began, "merge": ended - met, "whole": whole, "sent": sent}


def _is_complete(view: Watch, name: str) -> bool:
    space = view.space(name)
    return space is not None and space.complete


def _wait_samples(view: Watch, name: str, count: int) -> None:
    view.wait_for(f"{name} has {count}", lambda: view.samples(name) == count, PATIENCE_S)


def _wait_news(near: Watch, far: Watch) -> None:
    """Until both show what they have sent by now."""
    since_ns = time.time_ns()
    for name, view in (("n1", near), ("n2", far)):
        view.wait_for("it says more", functools.partial(_is_newer, view, name, since_ns), PATIENCE_S)


def _is_newer(view: Watch, name: str, since_ns: int) -> bool:
    shown = view.node(name)
    return shown is not None and shown.time_ns > since_ns


def _sent(view: Watch, name: str) -> float:
    """Octets of streams and notes that a node has sent."""
    shown = view.node(name)
    counters = shown.counters if shown else {}
    return float(counters["stream_bytes_sent"] + counters["comparison_bytes_sent"])


def _write(lab: Lab, name: str, first: int, count: int) -> None:
    options = {"domain": lab.domain, "size": SIZE, "first": first, "count": count, "instances": count}
    publisher = Program("publish", options, lab.environ, lab.prefixes[name])
    publisher.answer()
    publisher.end()
