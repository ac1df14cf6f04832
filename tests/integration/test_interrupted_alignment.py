from __future__ import annotations

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

OLD, NEW = 500, 40_000


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
