from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from engine.store.interface import SetState, StoreError
from engine.store.read_only import StoreView
from tests.integration.configurations import Settings
from tests.integration.lab import LEASE_S, Lab

pytestmark = pytest.mark.dds

OLD, NEW = 500, 40_000
LARGE = 100_000
PART = 20_000
GO_S = 0.02
COMBINE_S = 4.0


@pytest.fixture
def aligning(lab: Lab) -> Lab:
    """n1 holds much; n2 holds an old set of it and has just begun to align."""
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start("n1", "n2")
    lab.seen.wait_for("both complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"count": OLD, "time": 1_000}, readers=2)
    lab.seen.wait_for("both have it", lambda: {lab.seen.stored(name) for name in ("n1", "n2")} == {OLD})
    lab.stop("n2")
    lab.write({"first": OLD, "count": NEW - OLD, "time": 1_000 + OLD})
    lab.seen.wait_for("n1 has more", lambda: lab.seen.stored("n1") == NEW)
    lab.start("n2")
    lab.seen.wait_for("n2 aligns", lambda: lab.is_aligning("n2"))
    return lab


def stored_count(lab: Lab, name: str) -> int:
    return sum(map(len, lab.on_disk(name).values()))


def test_an_alignee_that_is_killed_has_a_whole_set_and_aligns_at_its_next_start(aligning: Lab) -> None:
    lab = aligning
    lab.kill("n2")
    assert stored_count(lab, "n2") in (OLD, NEW), "the old set or the new one, never a mixture"
    lab.start("n2")
    lab.seen.wait_for("both are equal", lambda: lab.seen.are_complete("n1", "n2"))
    lab.seen.wait_for("n2 has all on disk", lambda: lab.seen.stored("n2") == NEW)
    lab.kill("n2")
    assert stored_count(lab, "n2") == NEW


def test_an_alignee_whose_aligner_is_killed_goes_on_with_a_whole_set(aligning: Lab) -> None:
    lab = aligning
    lab.kill("n1")
    lab.seen.wait_for("n2 is complete alone", lambda: lab.seen.are_complete("n2"))
    assert lab.seen.master("n2") == "n2"
    count = lab.seen.samples("n2")
    assert count in (OLD, NEW), "the old set or the new one, never a mixture"
    reader = lab.reader()
    reader.wait(count)
    lab.wait_delivered()
    assert reader.tally()["arrivals"] == count


@pytest.fixture
def full(lab: Lab) -> Lab:
    """n1 and n3 hold much; n2 is configured, and empty."""
    for name, priority in (("n1", 200), ("n2", 50), ("n3", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start("n1", "n3")
    lab.seen.wait_for("both complete", lambda: lab.seen.are_complete("n1", "n3"))
    lab.write({"count": LARGE, "time": 1_000}, readers=2)
    lab.seen.wait_for("both have it", lambda: {lab.seen.stored(name) for name in ("n1", "n3")} == {LARGE})
    return lab


def part_on_disk(lab: Lab, name: str) -> int:
    """Samples of a set that is still arriving."""
    try:
        with StoreView(lab.home(name) / "store") as view:
            return sum(info.stored.count for info in view.sets("stock") if info.state is SetState.FILLING)
    except StoreError:
        return 0  # not made yet


def start_and_hold_at_a_part(lab: Lab) -> None:
    """n2 aligns, and stands still with a part of the set on its disk: a late look misses nothing."""
    lab.start("n2")
    process = lab.process("n2")
    until = time.monotonic() + 60
    while True:
        process.send_signal(signal.SIGSTOP)
        if part_on_disk(lab, "n2") >= PART:
            return
        process.send_signal(signal.SIGCONT)
        lab.check()
        assert time.monotonic() < until, "nothing arrives"
        time.sleep(0.005)


def check_rest_arrives(lab: Lab, *fellows: str, received: int) -> None:
    """n2 comes to the whole set, and gets less of it than a whole set."""
    lab.seen.wait_for("all are equal", lambda: lab.seen.are_complete("n2", *fellows))
    lab.seen.wait_for("n2 has all on disk", lambda: lab.seen.stored("n2") == LARGE)
    assert lab.seen.samples("n2") == LARGE
    assert stored_count(lab, "n2") == LARGE
    assert part_on_disk(lab, "n2") == 0
    assert received < 0.95 * whole_bytes(lab)


def whole_bytes(lab: Lab) -> int:
    """What a node that has nothing receives."""
    lab.configure("n4", Settings().with_priority(40))
    lab.start("n4")
    lab.seen.wait_for("n4 has everything", lambda: lab.seen.samples("n4") == LARGE)
    return received_by(lab, "n4")


def received_by(lab: Lab, name: str) -> int:
    lab.seen.wait_for(f"{name} is shown", lambda: lab.seen.node(name) is not None)
    shown = lab.seen.node(name)
    assert shown is not None
    return shown.counters["stream_bytes_received"]


def test_an_alignee_that_is_killed_in_the_middle_gets_only_the_rest(full: Lab) -> None:
    lab = full
    start_and_hold_at_a_part(lab)
    lab.kill("n2")
    assert PART <= part_on_disk(lab, "n2") < LARGE
    assert stored_count(lab, "n2") == 0
    lab.start("n2")
    lab.seen.wait_for("n2 is complete", lambda: lab.seen.are_complete("n1", "n2", "n3"))
    check_rest_arrives(lab, "n1", "n3", received=received_by(lab, "n2"))


def test_an_alignee_whose_aligner_is_killed_in_the_middle_gets_the_rest_from_another(full: Lab) -> None:
    lab = full
    start_and_hold_at_a_part(lab)
    lab.kill("n1")
    lab.process("n2").send_signal(signal.SIGCONT)
    lab.seen.wait_for("n2 is complete", lambda: lab.seen.are_complete("n2", "n3"))
    shown = lab.seen.node("n3")
    assert shown is not None
    check_rest_arrives(lab, "n3", received=shown.counters["stream_bytes_sent"])


@contextlib.contextmanager
def slowed(lab: Lab, name: str) -> Iterator[None]:
    """The node's process stands still nearly all the time, but never for as long as its lease."""
    process, done = lab.process(name), threading.Event()

    def stop_and_go() -> None:
        while not done.wait(GO_S):
            process.send_signal(signal.SIGSTOP)
            done.wait(LEASE_S / 2)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_slow_alignee_slows_neither_another_nor_capture(full: Lab) -> None:
    """Both ask at the same time, and are answered with one stream at first."""
    lab, more = full, 1_000
    lab.stop("n1")
    lab.configure("n1", Settings(combine_s=COMBINE_S).with_priority(200))
    lab.configure("n4", Settings().with_priority(40))
    lab.start("n1")
    lab.seen.wait_for("n1 is back", lambda: lab.seen.are_complete("n1", "n3"))
    lab.seen.wait_for("n1 leads", lambda: lab.seen.master("n3") == "n1")
    lab.start("n2", "n4")
    lab.seen.wait_for("n2 aligns", lambda: lab.is_aligning("n2"))
    with slowed(lab, "n2"):
        lab.seen.wait_for("n4 has everything", lambda: lab.seen.samples("n4") == LARGE)
        lab.write({"first": LARGE, "count": more, "time": 9_000_000})
        lab.seen.wait_for("n1 has more", lambda: lab.seen.stored("n1") == LARGE + more)
        assert lab.seen.stored("n2") < LARGE, "it was not slow"
    lab.seen.wait_for("n2 has everything", lambda: lab.seen.stored("n2") == LARGE + more, 60)
    assert [sent for sent in lab.trace("n1", "align.sending") if sent["count"] == "2"]
