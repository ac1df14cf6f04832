"""What a topic asks of its writers, where topic discovery tells it (DDS 1.4, 2.2.3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain, topic_discovery
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

VOLATILE, _, TRANSIENT, PERSISTENT = range(4)
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
