"""LIFESPAN of writers: what is over is given to no late joiner, by no node, and stays in all sets."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

HOUR_NS = 3_600 * 10**9
FRESH, OVER, ENDLESS = 3, 5, 2


def counter(lab: Lab, name: str) -> int:
    """How many samples a node has withheld."""
    shown = lab.seen.node(name)
    return shown.counters["expired"] if shown else 0


def check_given(lab: Lab, server: str) -> None:
    """A late joiner and a client get from this node what is not over; it counts and traces the others."""
    withheld, count = counter(lab, server), FRESH + ENDLESS
    reader = lab.reader()
    reader.wait(count, disposed=1)
    assert reader.tally()["arrivals"] == count
    lab.seen.wait_for("it is counted", lambda: counter(lab, server) == withheld + OVER)
    assert sum(int(one["count"]) for one in lab.trace(server, "deliver.expired")) >= OVER
    code, text = lab.ospltool(server, "cat", "Reading", "--timeout", "60s")
    assert code == 0
    samples = [json.loads(line) for line in text.splitlines()]
    assert len([one for one in samples if one["data"]["status"] == "write"]) == count, text
    lab.seen.wait_for("that is counted, too", lambda: counter(lab, server) == withheld + 2 * OVER)
    assert reader.program.end() == 0


def test_samples_whose_lifespan_is_over_are_given_to_no_late_joiner(lab: Lab) -> None:
    """By the node that captured them, one that never saw their writer, and one that was started again."""
    settings = Settings(clients=True)
    lab.start_complete("n1", settings=settings)
    now_ns = time.time_ns()
    old_ns = now_ns - 2 * HOUR_NS
    lab.write(
        {"count": FRESH, "time": now_ns},
        {"first": 100, "count": OVER, "time": old_ns},
        {"first": 100, "count": 1, "op": "dispose", "time": old_ns + HOUR_NS},
        lifespan_ns=HOUR_NS,
    )
    lab.write({"first": 200, "count": ENDLESS, "time": old_ns})
    held = FRESH + OVER + ENDLESS + 1
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == held)
    check_given(lab, "n1")
    lab.start_complete("n2", settings=settings.with_priority(50))
    lab.seen.wait_for("both have all", lambda: lab.seen.stored("n2") == lab.seen.samples("n1") == held)
    lab.stop("n1")
    check_given(lab, "n2")
    lab.kill("n2")
    lab.start_complete("n2")
    assert lab.seen.samples("n2") == held
    check_given(lab, "n2")
