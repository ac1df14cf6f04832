from __future__ import annotations

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

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
