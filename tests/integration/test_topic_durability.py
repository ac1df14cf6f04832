"""What a topic asks of its writers, where topic discovery tells it (DDS 1.4, 2.2.3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.dataset.groups import DurabilityKind
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain, topic_discovery
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

VOLATILE, _, TRANSIENT, PERSISTENT = DurabilityKind
COUNT = 5


@pytest.fixture
def discovering(tmp_path: Path) -> Iterator[Lab]:
    domain, tag = own_domain()
    made = Lab(tmp_path, domain, tag, topic_discovery(tag))
    yield made
    made.close()


def start(lab: Lab) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))


def check_refused(lab: Lab) -> None:
    """A TRANSIENT writer of a PERSISTENT topic is told, counted and named."""
    program = lab.writer_below_its_topic()
    lab.check_refused(program, "n1", "DURABILITY: offered TRANSIENT, requested PERSISTENT")


def test_a_writer_that_offers_less_than_its_topic_says_is_not_captured(discovering: Lab) -> None:
    start(discovering)
    check_refused(discovering)
    discovering.write({"count": COUNT, "time": 1_000}, durability=PERSISTENT)
    discovering.seen.wait_for("the other is", lambda: discovering.seen.stored("n1") == COUNT)
    discovering.kill("n1")
    discovering.start("n1")
    discovering.seen.wait_for("n1 complete again", lambda: discovering.seen.are_complete("n1"))
    assert discovering.seen.samples("n1") == COUNT
    check_refused(discovering)  # the store remembers what the topic says


@pytest.mark.parametrize(
    "topic_durability", [VOLATILE, TRANSIENT, PERSISTENT], ids=["volatile", "transient", "persistent"]
)
def test_without_a_word_of_the_topic_every_durable_writer_is_captured(
    lab: Lab, discovering: Lab, topic_durability: int
) -> None:
    """Also after one that offers more; and a topic that is not durable itself asks nothing."""
    system = discovering if topic_durability < PERSISTENT else lab
    start(system)
    for number, durability in enumerate((PERSISTENT, TRANSIENT)):
        step = {"first": number * COUNT, "count": COUNT, "time": 1_000}
        system.write(step, durability=durability, topic_durability=topic_durability)
    system.seen.wait_for("both are captured", lambda: system.seen.samples("n1") == 2 * COUNT)
    shown = system.seen.node("n1")
    assert shown is not None
    assert not shown.counters.get("refused_writers")


def test_a_persistent_writer_after_a_transient_one_is_kept_on_disk(lab: Lab) -> None:
    """No topic says which it is, so the higher one counts: for late readers, and for the disk."""
    names = ("n1", "n2")
    lab.start_complete(*names, settings=Settings())
    for number, durability in enumerate((TRANSIENT, PERSISTENT)):
        step = {"first": number * COUNT, "count": COUNT, "time": 1_000}
        lab.write(step, durability=durability, topic_durability=VOLATILE, readers=2, depth=number + 1)
    lab.reader(durability=PERSISTENT).wait(2 * COUNT)
    lab.seen.wait_for(
        "all is on disk", lambda: {lab.seen.stored(name) for name in names} == {2 * COUNT}, timeout_s=20
    )
    assert "is PERSISTENT from now on, as one of its writers is; it was TRANSIENT." in lab.information("n1")
    for name in names:  # whichever of them saw the writer first
        (event,) = lab.trace(name, "group.deepened")
        assert event["differences"] == "history KEEP_LAST 2 (it was KEEP_LAST 1)"
    lab.kill(*names)
    assert {name: sum(map(len, lab.on_disk(name).values())) for name in names} == dict.fromkeys(names, 10)


def have_moved(lab: Lab, *names: str) -> bool:
    return all(lab.trace(name, "capture.moved") for name in names)


def test_a_topic_that_is_told_after_its_writers_counts_from_then_on(discovering: Lab) -> None:
    """What was captured before stays. Of the writer that offers enough nothing is lost or comes twice.

    The second node is not told of topics; the first one tells it.
    """
    lab, names = discovering, ("n1", "n2")
    for name in names:
        lab.configure(name, Settings())
    lab.start("n1")
    told = "<EnableTopicDiscoveryEndpoints>{}</EnableTopicDiscoveryEndpoints>"
    uri = lab.uri.replace(told.format("true"), told.format("false"))
    assert uri != lab.uri
    lab.start("n2", environ={"CYCLONEDDS_URI": uri})
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete(*names))
    lower = lab.writer_before_its_topic(TRANSIENT, COUNT, len(names))
    upper = lab.writer_before_its_topic(PERSISTENT, COUNT, len(names))
    lower.tell(topic=PERSISTENT)
    lower.answer("told")
    written = after = 0
    while after < 3:  # several rounds with the new one only
        upper.tell(steps=[{"first": 100 + written, "count": 500, "time": 2_000}])
        upper.answer("done")
        written += 500
        after += have_moved(lab, *names)
    lower.tell(steps=[{"first": COUNT, "count": COUNT, "time": 2_000}])
    lower.answer("done")
    lower.tell(refused=True)
    lab.check_refused(lower, "n1", "DURABILITY: offered TRANSIENT, requested PERSISTENT")
    # The group is one of a PERSISTENT topic now: all of it goes to disk, and nothing of the refused writer.
    total = COUNT + written
    lab.seen.wait_for("all is on disk", lambda: {lab.seen.stored(name) for name in names} == {total})
    for name in names:
        shown = lab.seen.node(name)
        assert shown is not None
        assert shown.counters["captured"] == total + COUNT
        assert shown.counters["refused_writers"] == 1
        moving, moved = lab.trace(name, "capture.moving", "capture.moved")
        assert (moving["event"], moving["before"]) == ("capture.moving", "VOLATILE")
        assert (moved["topic"], moved["requested"]) == ("Reading", "PERSISTENT")
    lab.kill(*names)
    assert all(sum(map(len, lab.on_disk(name).values())) == total for name in names)
