"""A name-space that a node has learned from a fellow is its own from then on (deployment guide 5.2.3.6)."""

from __future__ import annotations

import pytest

from ospltool.trace.meaning.alignments import AlignmentEnd
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.views.conversation import conversation
from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COUNT = 20


def configure(lab: Lab) -> None:
    """Name-space goods is in the configuration of n1 only; n2 learns it."""
    goods = Space("goods", ("goods", "more.T"), priority=200)
    lab.configure("n1", Settings(spaces=(goods, Space())))
    path = lab.configure("n2", Settings())
    learns = '<Policy nameSpace="goods" durability="Persistent" aligner="true" alignee="Initial"/>'
    path.write_text(path.read_text().replace("</NameSpaces>", f"{learns}</NameSpaces>"))


def test_what_a_learner_stored_is_served_after_its_restart(lab: Lab) -> None:
    configure(lab)
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


def test_the_traces_show_how_a_learner_was_aligned(lab: Lab) -> None:
    """Its configuration does not say to which name-space a group belongs: its trace says so later."""
    configure(lab)
    lab.start("n1")
    lab.write({"count": COUNT, "time": 1_000, "partitions": ["goods"]})
    lab.seen.wait_for("n1 has all", lambda: lab.seen.stored("n1") == COUNT)
    for count in (1, 2):  # in its second run the learner remembers the name-space
        lab.start("n2")
        lab.seen.wait_for(
            "n2 has all", lambda: lab.seen.are_complete("n2") and lab.seen.stored("n2") == COUNT
        )
        lab.stop("n2")
        places = [f"{name}={lab.home(name) / 'trace.log'}" for name in ("n1", "n2")]
        talk = conversation(merged(find_sources(places).sources), "goods.Reading")
        assert [(one.alignee, one.aligner, one.end) for one in talk.exchanges] == [
            ("n2", "n1", AlignmentEnd.COMPLETE)
        ] * count
