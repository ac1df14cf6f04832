from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.configurations import Settings, Space
from tests.integration.lab import Lab, Reader
from tests.integration.turns import COUNT as READERS_COUNT
from tests.integration.turns import check_readers_in_turn

pytestmark = pytest.mark.dds

COUNT = 200


def check_whole(reader: Reader, count: int, **states: int) -> dict[str, Any]:
    """The reader gets every instance, each sample once, with the timestamps of the writer."""
    reader.wait(count, **states)
    tally = reader.tally(detailed=True)
    assert (tally["arrivals"], tally["instances"], tally["repeated"]) == (count, count, 0)
    for name, samples in tally["samples"].items():
        assert [time for time, _ in samples] == [1_000 + int(name.split()[1])]
    return tally


def deliveries(lab: Lab, *names: str, event: str = "deliver.finished") -> list[tuple[str, str]]:
    """(node, samples) of every delivery of history that the nodes traced."""
    return [(name, found["samples"]) for name in names for found in lab.trace(name, event)]


def test_a_late_reader_gets_all_once_with_timestamps_disposes_and_unregisters(lab: Lab) -> None:
    names = lab.start_three()
    lab.write(
        {"count": COUNT, "time": 1_000},
        {"op": "dispose", "first": 10, "count": 5, "time": 2_000},
        {"op": "unregister", "first": 20, "count": 5, "time": 3_000},
    )
    total = COUNT + 10
    lab.seen.wait_for("it is on three disks", lambda: all(lab.seen.stored(n) == total for n in names))
    tally = check_whole(lab.reader(), COUNT, disposed=5, no_writers=COUNT - 5)
    assert {n for n, state in tally["state_of"].items() if state == "disposed"} == {
        f"Reading {number}" for number in range(10, 15)
    }
    lab.wait_delivered()
    assert deliveries(lab, *names) == [("n1", str(total))]


def test_two_late_readers_are_served_once_each_and_others_get_nothing_twice(lab: Lab) -> None:
    names = lab.start_three()
    early = lab.reader()
    lab.seen.wait_for_tails(1, *names)
    lab.write({"count": COUNT, "time": 1_000}, readers=len(names) + 1)
    early.wait(COUNT)
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(n) == COUNT for n in names))
    late = lab.readers(2)
    for reader in late:
        check_whole(reader, COUNT)
    lab.wait_delivered(2)
    for reader in [early, *late]:
        check_whole(reader, COUNT)
    assert sorted(deliveries(lab, *names)) == [("n1", "0"), ("n1", str(COUNT)), ("n1", str(COUNT))]


def test_a_reader_that_is_there_before_the_nodes_waits_for_complete_and_gets_all_once(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": COUNT, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(n) == COUNT for n in names))
    lab.kill(*names)
    reader = lab.reader()
    began_ns = lab.start_again(*names)
    check_whole(reader, COUNT)
    lab.wait_delivered()
    check_whole(reader, COUNT)
    traced = [
        [found["event"] for found in lab.trace(name, "store.complete", "deliver.started", since_ns=began_ns)]
        for name in names
    ]
    assert sorted(traced) == [["store.complete"], ["store.complete"], ["store.complete", "deliver.started"]]


def test_a_reader_that_joins_while_alignment_runs_gets_all_once(lab: Lab) -> None:
    count = 50_000
    for name in ("n1", "n2"):
        lab.configure(name, Settings().with_priority(200 if name == "n1" else 100))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": count, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == count)
    lab.start("n2")
    lab.seen.wait_for("n2 aligns", lambda: lab.is_aligning("n2"))
    reader = lab.reader()
    reader.wait(count)
    lab.seen.wait_for("n2 complete", lambda: lab.seen.are_complete("n1", "n2"))
    lab.wait_delivered()
    tally = reader.tally()
    assert (tally["arrivals"], tally["instances"], tally["repeated"]) == (count, count, 0)
    assert len(deliveries(lab, "n1", "n2")) == 1


def test_the_successor_of_a_reader_that_died_hardly_gets_what_was_on_its_way_to_it(lab: Lab) -> None:
    """It has the address of the dead one, whose lease goes on for ten seconds: it got nearly all twice."""
    count = 20_000
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": count, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == count)
    dead = lab.reader()
    lab.seen.wait_for("its delivery has begun", lambda: deliveries(lab, "n1", event="deliver.started") != [])
    dead.program.kill()
    successor = lab.reader()
    successor.wait_instances(count)
    lab.wait_delivered(2)
    assert successor.tally()["repeated"] < count / 10


@pytest.mark.parametrize("by_source", [True, False], ids=["by source", "by reception"])
def test_a_reader_that_joins_while_a_writer_writes_misses_nothing(lab: Lab, by_source: bool) -> None:
    count = 30_000
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    steps = [{"count": count, "time": 1_000, "progress": True}]
    writer = lab.program("writer", steps=steps, by_source=by_source)
    writer.expect(lambda line: line.get("progress") == 5_000)
    reader = lab.reader(by_source=by_source)
    writer.answer("done")
    reader.wait_instances(count)
    lab.wait_delivered()
    tally = reader.tally()
    shown = lab.seen.node("n1")
    assert shown is not None
    assert tally["arrivals"] - count == tally["repeated"]
    # What was captured since is counted; how early the reader heard the writer the node cannot know.
    assert bool(shown.counters["repeated"]) is not by_source
    assert not (by_source and tally["repeated"])


def test_a_reader_that_was_served_is_not_served_again_by_who_comes_back(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": COUNT, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(n) == COUNT for n in names))
    reader = lab.reader()
    check_whole(reader, COUNT)
    lab.wait_delivered()
    lab.kill("n1")
    lab.seen.wait_for("n2 is master", lambda: lab.seen.master("n3") == "n2")
    began_ns = lab.start_again("n1")
    lab.seen.wait_for("n1 is back", lambda: lab.seen.are_complete(*names))
    lab.write({"first": COUNT, "count": 1, "time": 1_000 + COUNT}, readers=len(names) + 1)
    check_whole(reader, COUNT + 1)
    assert [name for name in names if lab.trace(name, "deliver.started", since_ns=began_ns)] == []


def test_a_reader_that_asks_more_than_is_offered_gets_nothing_and_both_sides_are_named(lab: Lab) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": 5, "time": 1_000}, by_source=False)
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 5)
    refused = lab.reader(by_source=True)
    willing = lab.reader(by_source=False)
    willing.wait(5)
    lab.wait_delivered(2)
    tally = refused.tally()
    assert tally["arrivals"] == 0
    assert tally["refused"] > 0, "REQUESTED_INCOMPATIBLE_QOS at the application's own reader"
    shown = lab.seen.node("n1")
    assert shown is not None
    problems = [view.problem for view in shown.deliveries if view.problem]
    assert len(problems) == 1
    for text in (problems[0], *(found["cause"] for found in lab.trace("n1", "group.qos-mismatch"))):
        assert "offered BY_RECEPTION" in text
        assert "requested BY_SOURCE" in text
    assert lab.trace("n1", "group.qos-mismatch")


def test_a_writer_that_offers_less_than_is_requested_is_told_and_both_sides_are_named(lab: Lab) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    refused = lab.program("refused_writer")
    assert lab.check_refused(refused, "n1", "RELIABILITY: offered BEST_EFFORT, requested RELIABLE") == 1


@pytest.mark.parametrize("by_source", [True, False], ids=["by source", "by reception"])
def test_a_sample_written_in_two_partitions_reaches_a_reader_of_both_once(lab: Lab, by_source: bool) -> None:
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    both = ["stock_a", "stock_b"]
    lab.write({"count": COUNT, "time": 1_000, "partitions": both}, by_source=by_source)
    lab.seen.wait_for("it is stored in both", lambda: lab.seen.stored("n1") == 2 * COUNT)
    readers = [
        lab.reader(partitions=both, by_source=by_source),
        lab.reader(partitions=["stock*"], by_source=by_source),
        lab.reader(partitions=both[1:], by_source=by_source),
    ]
    for reader in readers:
        reader.wait(COUNT)
    lab.wait_delivered(3)
    for reader in readers:
        check_whole(reader, COUNT)


def test_readers_of_one_process_each_get_what_was_written_before_them(lab: Lab) -> None:
    names = lab.start_three()
    lab.write({"count": READERS_COUNT, "time": 1_000}, readers=len(names))
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(n) == READERS_COUNT for n in names))
    check_readers_in_turn(lab, lab.wait_delivered)


FEDERATION = "6921d070000000{}00000001000001c1"
"""GUIDs of a real federation: its networking service has local id 0x81, its durability service 0x7d."""
BUILTIN = "__BUILT-IN PARTITION__"


def end(guid: str, topic: str, durability: int = 2, partition: str = "stock") -> dict[str, Any]:
    return {"guid": guid, "topic": topic, "durability": durability, "partition": partition}


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(
            [end(FEDERATION.format("7d"), "d_status", 0), end(FEDERATION.format("81"), "Reading")],
            id="a federation of OpenSplice",
        ),
        pytest.param([end(FEDERATION.format("81"), "Reading")], id="its networking service, seen first"),
        pytest.param(
            [end("other", "d_nameSpaces", 0), end("other", "Reading")], id="a service of another make"
        ),
        pytest.param([end("application", "Reading", partition=BUILTIN)], id="a reader of built-in topics"),
    ],
)
def test_history_is_never_given_to_another_durability_service(lab: Lab, ends: list[dict[str, Any]]) -> None:
    """It would take what it is given for new writes, and keep all of it once more."""
    lab.configure("n1", Settings(spaces=(Space(elements=("*",)),)))
    lab.start("n1")
    lab.seen.wait_for("n1 complete", lambda: lab.seen.are_complete("n1"))
    lab.write({"count": COUNT, "time": 1_000, "partitions": ["stock", BUILTIN]})
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 2 * COUNT)
    services = lab.program("services", ends=ends)
    services.answer("ready")
    check_whole(lab.reader(), COUNT)
    check_whole(lab.reader(partitions=["*"]), COUNT)
    lab.wait_delivered(2)
    assert deliveries(lab, "n1") == [("n1", str(COUNT))] * 2
    services.tell(count=True)
    assert services.answer("counts") == [0] * len(ends)


def test_what_a_late_joiner_refuses_because_its_instance_is_written_is_counted(lab: Lab) -> None:
    """Live samples reach a reader by source time before the history of a node that is still starting."""
    lab.configure("n1", Settings())
    lab.start("n1")
    lab.seen.wait_for("n1 is complete", lambda: lab.seen.are_complete("n1"))
    options: dict[str, Any] = {"topic": "Tdeep", "depth": 0, "by_source": True}
    lab.write(*({"count": 1, "time": 1_000 + at} for at in range(5)), **options)
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 5)
    lab.stop("n1")
    lab.configure("n1", Settings(discovery_s=5.0))
    lab.start("n1")
    lab.seen.wait_for("n1 is there", lambda: lab.seen.node("n1"))
    reader = lab.program("timelines", readers=[options])
    reader.answer("ready")
    # By the time a writer matches, and has written another instance, the node has seen the reader.
    writer = lab.program("writer", steps=[{"first": 1, "count": 1, "time": 1_000}], readers=2, **options)
    writer.answer("done")
    now_ns = time.time_ns()
    writer.tell(steps=[{"count": 1, "time": now_ns}])
    writer.answer("done")
    lab.wait_delivered()
    reader.tell(look=True)
    assert reader.answer("timelines")["Tdeep"]["0"]["words"] == [f"S{now_ns}"]
    lab.seen.wait_for(
        "it is counted", lambda: (shown := lab.seen.node("n1")) and shown.counters["refused_older"] == 5
    )
    shown = lab.seen.node("n1")
    assert shown is not None
    assert [one.counts for one in shown.deviations] == [{"refused_older": 5}]
