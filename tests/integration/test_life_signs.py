"""Heartbeats and what is concluded from them, on nodes that are stopped, blocked or starved."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import merge
from engine.dds.uri import cyclone_uri
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain
from tests.integration.lab import Lab
from tests.integration.network import NotPermitted

pytestmark = pytest.mark.dds

EXPIRY_S = 1.0
LONG_LEASE_S = 20.0
NODES = ("n1", "n2")
DISTURBANCES = ("fellow.reconnected", "merge.started")
_PIPE_BYTES = 4096


@pytest.fixture(params=[LONG_LEASE_S])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """Two nodes that hold the same; Cyclone DDS takes longer to notice a loss than they do."""
    domain, tag = own_domain()
    uri = cyclone_uri(tag=tag, lease_s=request.param, spdp_interval_ms=200, environment={})
    lab = Lab(tmp_path, domain, tag, uri)
    try:
        for name, priority in zip(NODES, (200, 100), strict=True):
            lab.configure(name, Settings(expiry_s=EXPIRY_S).with_priority(priority))
        yield lab
    finally:
        lab.close()


def start(lab: Lab) -> None:
    lab.start(*NODES)
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete(*NODES))
    lab.write({"count": 20, "time": 1_000}, readers=2)
    lab.seen.wait_for("both have it", lambda: [lab.seen.samples(name) for name in NODES] == [20, 20])


def stand_still(lab: Lab, name: str, seconds: float) -> None:
    """Stop a process; nothing can be awaited of one that stands still."""
    os.kill(lab.pid(name), signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(lab.pid(name), signal.SIGCONT)


def stalls(lab: Lab, name: str) -> int:
    shown = lab.seen.node(name)
    return shown.counters["stalls"] if shown else 0


@pytest.mark.parametrize("name", NODES)
def test_process_that_stands_still_for_less_than_the_expiry_is_not_noticed(pair: Lab, name: str) -> None:
    start(pair)
    before, stalled = time.time_ns(), stalls(pair, name)
    stand_still(pair, name, 0.6 * EXPIRY_S)
    pair.seen.wait_for("it shows the stall", lambda: stalls(pair, name) > stalled)
    pair.seen.wait_for("both are complete", lambda: pair.seen.are_complete(*NODES))
    for each in NODES:
        assert not pair.trace(each, "fellow.disconnected", *DISTURBANCES, since_ns=before)


@pytest.mark.parametrize("name", NODES)
def test_process_that_stands_still_while_it_stays_connected_is_silent_but_not_reconnected(
    pair: Lab, name: str
) -> None:
    start(pair)
    other = "n1" if name == "n2" else "n2"
    before, stalled = time.time_ns(), stalls(pair, name)
    stand_still(pair, name, 2.5 * EXPIRY_S)
    pair.seen.wait_for("it shows the stall", lambda: stalls(pair, name) > stalled)
    pair.seen.wait_for("it is heard again", lambda: pair.trace(other, "fellow.resumed", since_ns=before))
    pair.seen.wait_for("both are complete", lambda: pair.seen.are_complete(*NODES))
    assert pair.trace(other, "fellow.disconnected", since_ns=before)
    lost = pair.trace(name, "fellow.disconnected", since_ns=before)
    assert {found["reason"] for found in lost} <= {"it does not hear us"}, "it lost nobody by its own fault"
    for each in NODES:
        assert not pair.trace(each, *DISTURBANCES, since_ns=before)
    (found,) = pair.trace(name, "watch.stalled", since_ns=before)
    assert EXPIRY_S < float(found["elapsed_ns"]) < 30


@pytest.mark.parametrize("pair", [1.5], indirect=True)
def test_process_that_stands_still_for_longer_than_the_lease_is_reconnected(pair: Lab) -> None:
    start(pair)
    before = time.time_ns()
    stand_still(pair, "n2", 4.0)
    pair.seen.wait_for("it is back", lambda: pair.trace("n1", "fellow.reconnected", since_ns=before))
    pair.seen.wait_for("both are complete", lambda: pair.seen.are_complete(*NODES))


class Pipe:
    """The trace of a node as a pipe; while nobody reads, whoever traces waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.text = b""
        self._path = path
        self._reads = threading.Event()
        self._reads.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY)
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        while data := os.read(descriptor, _PIPE_BYTES):
            self.text += data
            self._reads.wait()
        os.close(descriptor)

    def hold(self) -> None:
        self._reads.clear()

    def release(self) -> None:
        self._reads.set()


def test_node_whose_thread_is_blocked_goes_on_sending_heartbeats(pair: Lab) -> None:
    pipe = Pipe(pair.home("n2") / "trace.log")
    start(pair)
    before = time.time_ns()

    def is_blocked() -> bool:
        shown = pair.seen.node("n2")
        return shown is not None and time.time_ns() - shown.time_ns > 4 * EXPIRY_S * 1e9

    pipe.hold()
    many = [f"stock{number}" for number in range(60)]  # each is a group, of which much is to be traced
    writer = pair.program("writer", steps=[{"partitions": many, "time": 2_000}])
    try:
        pair.seen.wait_for("n2 has shown nothing for four times the expiry", is_blocked)
        shown = pair.seen.node("n1")
        assert shown is not None
        assert [(fellow.name, fellow.communication) for fellow in shown.fellows] == [("n2", "approved")]
    finally:
        pipe.release()
    writer.answer("done")
    pair.seen.wait_for("n2 is back", lambda: not is_blocked() and pair.seen.are_complete(*NODES))
    assert not pair.trace("n1", "fellow.disconnected", *DISTURBANCES, since_ns=before)
    assert b"its heartbeat is overdue" not in pipe.text
    assert stalls(pair, "n2")


@pytest.mark.netns
@pytest.mark.parametrize("expiry_s", [0.5])
def test_merge_of_much_on_a_busy_machine_is_one_return_and_one_merge(expiry_s: float) -> None:
    """Six processes for two cores: each node has a quarter of one, for all that it does."""
    try:
        found = merge.measure(merge.BUSY_COMMON, merge.BUSY_NEW, 6, expiry_s)
    except NotPermitted as reason:
        pytest.skip(f"no network namespaces here: {reason}")
    counted = {what: found[what] for what in ("returns", "losses", "merges")}
    assert counted == {"returns": 2, "losses": 0, "merges": 1}
