"""A split of two nodes that hold much, new data on both sides, and how soon both hold everything again.

Each node is on a host of its own, with a link to cut; that takes permission to make network namespaces. The
bytes are held against those that the second node took when it came with an empty store. Then the same with
more data, while other processes keep the processors busy: nobody may be taken for lost because of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.hosts import HOSTS, PATIENCE_S, two_hosts, write
from benchmarks.programs import PARTITION
from benchmarks.rows import Bar, Is, Row
from tests.integration.configurations import Settings, Space
from tests.integration.network import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.lab import Lab
    from tests.integration.network import Network
    from tests.integration.watching import Watch

AREA: Final = "merge"
COMMON: Final = 100_000
NEW: Final = 1_000
BUSY_COMMON: Final = 200_000
BUSY_NEW: Final = 5_000
SIZE: Final = 100
SENT: Final = Bar(Is.AT_MOST, 0.1, of_ratio=True)
BUSY_EQUAL: Final = Bar(Is.AT_MOST, 3.0)
NO_MORE: Final = Bar(Is.AT_MOST, 0.0)
MERGE_EVENTS: Final = ("fellow.reconnected", "fellow.disconnected", "fellow.resumed", "merge.started")


def run(repeat: int) -> list[Row]:
    """Time and bytes of the merge, and bytes of sending everything."""
    try:
        runs = [measure(COMMON, NEW, 0) for _ in range(min(repeat, 3))]
        cores = os.cpu_count() or 1
        busy = [measure(BUSY_COMMON, BUSY_NEW, cores) for _ in range(min(repeat, 3))]
    except NotPermitted as reason:
        print(f"area {AREA}: not measured, no network namespaces here: {reason}", file=sys.stderr)
        return []
    busy_label = f"{BUSY_NEW:,} new on each side of {BUSY_COMMON:,}, {cores} cores busy"
    needless = tuple(one["returns"] - len(HOSTS) for one in busy)
    label = f"{NEW:,} new on each side of {COMMON:,}"
    columns = {what: tuple(one[what] for one in runs) for what in runs[0]}
    whole = Row(AREA, "the whole set to an empty node, bytes", "B", columns["whole"])
    sent = Row(AREA, f"{label}, bytes sent to merge", "B", columns["sent"])
    return [
        Row(AREA, f"{label}, from the link to equal sets", "s", columns["equal"]),
        Row(AREA, f"{label}, of that from hearing each other", "s", columns["merge"]),
        whole,
        sent.against(whole, SENT),
        Row(AREA, f"{busy_label}, equal", "s", tuple(one["equal"] for one in busy), bar=BUSY_EQUAL),
        Row(AREA, f"{busy_label}, reconnections that were none", "", needless, bar=NO_MORE),
    ]


def measure(common: int, new: int, burners: int, expiry_s: float = 2.0) -> dict[str, float]:
    """Split and merge once, the merge beside `burners` processes that only compute.

    Returns seconds `equal` from the link to equal sets and `merge` from hearing each other, bytes `whole`
    and `sent`, and `returns`, `losses` and `merges` that both nodes traced after the link was back. A fellow
    returns as reconnected, or as resumed where the whole split was shorter than the lease of Cyclone DDS.

    Raises:
        NotPermitted: no network namespaces can be made here.
    """
    settings = Settings(spaces=(Space(elements=(PARTITION,)),), expiry_s=expiry_s)
    with two_hosts({"n1": settings.with_priority(200), "n2": settings.with_priority(100)}) as (lab, network):
        return _split_and_merge(lab, network, common, new, burners)


@contextlib.contextmanager
def _busy(burners: int) -> Iterator[None]:
    """N processes compute meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(burners)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _split_and_merge(lab: Lab, network: Network, common: int, new: int, burners: int) -> dict[str, float]:
    near, far = lab.watch_from("n1"), lab.watch_from("n2")
    lab.start("n1")
    near.wait_for("n1 is complete", lambda: _is_complete(near, "n1"), PATIENCE_S)
    write(lab, "n1", 0, common, SIZE)
    near.wait_for("n1 has it", lambda: near.stored("n1") == common, PATIENCE_S)
    lab.start("n2")
    far.wait_for("n2 has it", lambda: far.stored("n2") == common, PATIENCE_S)
    _wait_news(near, far)
    whole = _sent(near, "n1")
    far.wait_for("they know each other", lambda: far.fellows("n2", "approved") == {"n1"}, PATIENCE_S)
    network.cut("b")
    near.wait_for("n1 is alone", lambda: not near.fellows("n1", "approved"), PATIENCE_S)
    far.wait_for("n2 leads", lambda: far.master("n2") == "n2", PATIENCE_S)
    write(lab, "n1", common, new, SIZE)
    write(lab, "n2", common + new, new, SIZE)
    _wait_samples(near, "n1", common + new)
    _wait_samples(far, "n2", common + new)
    before, before_ns = _sent(near, "n1") + _sent(far, "n2"), time.time_ns()
    with _busy(burners):
        network.heal("b")
        began = time.monotonic()
        near.wait_for("they meet", lambda: near.fellows("n1", "approved") == {"n2"}, PATIENCE_S)
        met = time.monotonic()
        for name, view in (("n1", near), ("n2", far)):
            _wait_samples(view, name, common + 2 * new)
        ended = time.monotonic()
        _wait_news(near, far)
    sent = _sent(near, "n1") + _sent(far, "n2") - before
    found = [each["event"] for name in HOSTS for each in lab.trace(name, *MERGE_EVENTS, since_ns=before_ns)]
    return {
        "equal": ended - began,
        "merge": ended - met,
        "whole": whole,
        "sent": sent,
        "returns": found.count("fellow.reconnected") + found.count("fellow.resumed"),
        "losses": found.count("fellow.disconnected"),
        "merges": found.count("merge.started"),
    }


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
    """Bytes of streams and notes that a node has sent."""
    shown = view.node(name)
    counters = shown.counters if shown else {}
    return float(counters["stream_bytes_sent"] + counters["comparison_bytes_sent"])
