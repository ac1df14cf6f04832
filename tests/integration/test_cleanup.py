"""When a disposed instance goes: the service's clock counts, not the writer's."""

from __future__ import annotations

import time

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

DELAY_S = 3
SLOW_S, FAST_S = -3600, 30


def test_the_delay_counts_from_when_the_node_found_out(lab: Lab) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    began_s = time.time()
    for number, skew_s in enumerate((SLOW_S, FAST_S)):
        time_ns = int((time.time() + skew_s) * 1e9)
        steps = [
            {"op": op, "first": number, "time": time_ns + place * 1000}
            for place, op in enumerate(("write", "dispose", "unregister"))
        ]
        lab.write(*steps, cleanup_ns=DELAY_S * 10**9)
    lab.seen.wait_for(
        "both are purged",
        lambda: sum(int(each["instances"]) for each in lab.trace("n1", "purge.done")) == 2,
        timeout_s=DELAY_S + FAST_S / 2,
    )
    early_ns = int((began_s + DELAY_S) * 1e9)
    assert len(lab.trace("n1", "purge.done", since_ns=early_ns)) == len(lab.trace("n1", "purge.done"))


def test_a_living_writer_holds_an_instance_that_another_one_wrote_and_disposed(lab: Lab) -> None:
    """Of the living one no sample is kept any more; the instance of the other one alone shows the time."""
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    cleanup_ns = DELAY_S * 10**9
    stays = lab.program("writer", steps=[{"count": 3, "time": 1_000}], cleanup_ns=cleanup_ns)
    stays.answer("done")
    lab.write(
        {"count": 3, "time": 2_000},
        {"op": "dispose", "count": 3, "time": 3_000},
        {"first": 9, "time": 2_000},
        {"op": "dispose", "first": 9, "time": 3_000},
        cleanup_ns=cleanup_ns,
    )

    def purged() -> int:
        return sum(int(each["instances"]) for each in lab.trace("n1", "purge.done"))

    lab.seen.wait_for("the other one's is purged", purged)
    assert purged() == 1
    assert stays.end() == 0
    lab.seen.wait_for("all are purged", lambda: purged() == 4)
