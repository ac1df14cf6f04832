from __future__ import annotations

import dataclasses

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.machine import peak_bytes

pytestmark = pytest.mark.dds


@pytest.mark.parametrize("size", [100_000, 2_000_000, 20_000_000])
def test_a_large_sample_is_captured_aligned_stored_and_delivered(lab: Lab, size: int) -> None:
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, Settings().with_priority(priority))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": 3, "time": 1_000, "text_bytes": size})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 3)
    lab.start("n2")
    lab.seen.wait_for("n2 has it", lambda: lab.seen.are_complete("n1", "n2") and lab.seen.stored("n2") == 3)
    lab.kill("n1")
    lab.seen.wait_for("n2 is master", lambda: lab.seen.master("n2") == "n2")
    reader = lab.reader()
    reader.wait(3)
    lab.wait_delivered()
    tally = reader.tally()
    assert (tally["arrivals"], tally["repeated"]) == (3, 0)
    assert tally["bytes"] >= 3 * size


HUGE = 300_000_000


def limited_to(size: str) -> Settings:
    """A node that keeps samples of up to this size."""
    internal = f"<Internal><MaxSampleSize>{size}</MaxSampleSize></Internal>"
    return dataclasses.replace(Settings(), network=f'<DDSI2Service name="ddsi2">{internal}</DDSI2Service>')


def test_300_mb_are_kept_where_the_setting_allows_it(lab: Lab) -> None:
    for name, priority in (("n1", 200), ("n2", 100)):
        lab.configure(name, limited_to("400 MB").with_priority(priority))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": 1, "time": 1_000, "text_bytes": HUGE})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 1)
    lab.start("n2")
    lab.seen.wait_for("n2 has it", lambda: lab.seen.are_complete("n1", "n2") and lab.seen.stored("n2") == 1)
    peaks = [peak_bytes(lab.pid(name)) for name in ("n1", "n2")]
    assert max(peaks) < 4 * HUGE + 150_000_000, peaks  # the set, and three samples in flight
    lab.kill("n1")
    lab.seen.wait_for("n2 is master", lambda: lab.seen.master("n2") == "n2")
    reader = lab.reader()
    reader.wait(1)
    lab.wait_delivered()
    tally = reader.tally()
    assert (tally["arrivals"], tally["repeated"]) == (1, 0)
    assert tally["bytes"] >= HUGE


def test_a_sample_above_the_limit_is_told_and_kept_if_a_fellow_has_it(lab: Lab) -> None:
    """The limit is one of capturing: what a fellow with a higher limit captured is aligned."""
    lab.configure("n1", limited_to("1 MB"))
    lab.configure("n2", limited_to("4 MB").with_priority(200))
    for name in ("n1", "n2"):
        lab.start(name)
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"count": 3, "time": 1_000, "text_bytes": 2_000_000})
    lab.write({"count": 1, "time": 2_000, "text_bytes": 1_000})
    lab.seen.wait_for("n2 keeps all", lambda: lab.seen.stored("n2") == 3)
    lab.seen.wait_for("n1 has them from n2", lambda: lab.seen.stored("n1") == 3)
    shown = lab.seen.node("n1")
    assert shown is not None
    assert shown.counters["too_large"] == 3
    assert [one.too_large for one in shown.groups if one.too_large] == [3]
    (told,) = lab.trace("n1", "capture.too-large")
    assert told["limit"] == "1048576"
    assert "not captured here" in lab.information("n1")
    assert "only if a fellow sends it" in lab.information("n1")
