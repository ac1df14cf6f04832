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
