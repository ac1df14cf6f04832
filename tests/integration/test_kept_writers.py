"""Nothing durable is silently not kept: each writer is kept, or the node says that it is not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.configurations import Settings, Space

if TYPE_CHECKING:
    from engine.runtime.monitor import NodeSnapshot
    from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

COUNT = 20


@pytest.fixture
def started(lab: Lab) -> Lab:
    lab.configure("n1", Settings(spaces=(Space(elements=("*",)),)))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    return lab


def node_of(lab: Lab) -> NodeSnapshot:
    shown = lab.seen.node("n1")
    assert shown is not None
    return shown


@pytest.mark.parametrize(
    ("options", "partitions", "reads"),
    [
        ({"latency_budget_ns": 500_000_000}, ["stock"], ["stock"]),
        ({"latency_budget_ns": (1 << 63) - 1}, ["stock"], ["stock"]),
        ({}, ["st*"], ["stock"]),
        ({}, ["st?ck"], ["stock"]),
        ({}, ["*"], [""]),
        ({}, ["st*", "depot"], ["depot"]),
    ],
    ids=["latency budget", "infinite latency budget", "A*", "A?B", "*", "A* and B"],
)
def test_what_is_legal_is_kept(
    started: Lab, options: dict[str, Any], partitions: list[str], reads: list[str]
) -> None:
    """Whatever the writer offers beyond the usual, a late reader that matches it gets everything once."""
    step = {"count": COUNT, "time": 1_000, "partitions": partitions}
    started.write(step, **options)
    reader = started.reader(partitions=reads)
    reader.wait(COUNT)
    assert (reader.tally()["arrivals"], reader.tally()["repeated"]) == (COUNT, 0)
    assert node_of(started).unkept == ()


def test_two_expressions_do_not_meet(started: Lab) -> None:
    """A reader in `s*` does not match a writer in `st*` while it lives, and gets nothing of it later."""
    started.write({"count": COUNT, "time": 1_000, "partitions": ["st*"]})
    reader = started.reader(partitions=["s*"])
    other = started.reader(partitions=["stock"])
    other.wait(COUNT)
    assert reader.tally()["arrivals"] == 0


@pytest.mark.parametrize(("keyed", "why"), [(True, "untyped-keyed"), (False, "untyped-keyless")])
def test_a_writer_without_type_information_is_named(started: Lab, keyed: bool, why: str) -> None:
    """With a code: in the counters, the trace, ospl-info.log and what consoles see, until it is gone."""
    program = started.program("untyped", topic="Bare", keyed=keyed, count=COUNT)
    guid = program.answer("guid")
    started.seen.wait_for("it is shown", lambda: bool(node_of(started).unkept))
    (unkept,) = node_of(started).unkept
    assert (unkept.writer, unkept.topic, unkept.why) == (guid, "Bare", why)
    assert node_of(started).counters["unkept_writers"] == 1
    (event,) = started.trace("n1", "group.not-kept")
    assert (event["writer"], event["topic"]) == (guid, "Bare")
    assert f"Writer {guid} of topic Bare" in started.information("n1")
    assert why in started.information("n1")
    assert program.end() == 0
    started.seen.wait_for("it is not shown any more", lambda: not node_of(started).unkept)


def test_a_best_effort_writer_is_named(started: Lab) -> None:
    program = started.program("refused_writer", durability=2)
    started.check_refused(program, "n1", "RELIABILITY: offered BEST_EFFORT, requested RELIABLE")
    started.seen.wait_for("it is gone", lambda: not node_of(started).unkept)
    assert node_of(started).counters["unkept_writers"] == 1
