"""A name-space that a node has learned from a fellow is its own from then on (deployment guide 5.2.3.6)."""

from __future__ import annotations

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COUNT = 20


def test_what_a_learner_stored_is_served_after_its_restart(lab: Lab) -> None:
    lab.configure("n1", Settings(spaces=(Space("goods", ("goods",), priority=200), Space())))
    path = lab.configure("n2", Settings())
    learns = '<Policy nameSpace="goods" durability="Persistent" aligner="true" alignee="Initial"/>'
    path.write_text(path.read_text().replace("</NameSpaces>", f"{learns}</NameSpaces>"))
    lab.start("n1", "n2")
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.seen.wait_for("goods is learned", lambda: lab.seen.space("n2", "goods"))
    lab.write({"count": COUNT, "time": 1_000, "partitions": ["goods"]})
    lab.seen.wait_for("all is on the learner's disk", lambda: lab.seen.stored("n2") == COUNT)
    lab.stop("n1", "n2")
    lab.start("n2")
    lab.seen.wait_for("n2 complete", lambda: lab.seen.are_complete("n2"))
    reader = lab.reader(partitions=["goods"])
    reader.wait_instances(COUNT)
