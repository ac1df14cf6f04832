"""A node that comes back finds a set of its own lineage that somebody else continued meanwhile."""

from __future__ import annotations

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COMMON, ALONE = 200, 21


@pytest.mark.parametrize(
    ("policy", "partition"), [("Replace", "stock"), ("Merge", "stock new")], ids=["known topic", "new topic"]
)
def test_what_a_killed_node_stored_alone_is_not_lost(lab: Lab, policy: str, partition: str) -> None:
    for name in ("n1", "n2"):
        lab.configure(name, Settings(spaces=(Space(merge=((policy, "*"),)),)))
    lab.start("n1", "n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.write({"count": COMMON, "time": 1_000})
    lab.seen.wait_for("both have it", lambda: [lab.seen.stored(n) for n in ("n1", "n2")] == [COMMON] * 2)
    lab.stop("n2")
    lab.write({"first": COMMON, "count": ALONE, "time": 2_000, "partitions": [partition]})
    lab.seen.wait_for("n1 stored it", lambda: lab.seen.stored("n1") == COMMON + ALONE)
    lab.kill("n1")
    lab.seen.forget("n1", "n2")
    lab.start("n2")
    lab.seen.wait_for("n2 is complete", lambda: lab.seen.are_complete("n2"))
    lab.write({"first": COMMON + ALONE, "count": 1, "time": 3_000})
    lab.seen.wait_for("n2 has it", lambda: lab.seen.stored("n2") == COMMON + 1)
    lab.start("n1")
    lab.seen.wait_for("both are complete again", lambda: lab.seen.are_complete("n1", "n2"))
    lab.seen.wait_for(
        "nothing is lost", lambda: [lab.seen.samples(n) for n in ("n1", "n2")] == [COMMON + ALONE + 1] * 2
    )
