"""QoS of topics and writers that a persistence service must respect, between real processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.dataset.groups import DurabilityKind
from tests.integration.conftest import own_domain, topic_discovery
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas, write

pytestmark = pytest.mark.dds

TRANSIENT, PERSISTENT = DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT
COUNT = 5


def test_a_writer_that_offers_less_than_its_topic_says_is_not_captured(tmp_path: Path) -> None:
    domain, tag = own_domain()
    lab = Lab(tmp_path, domain, tag, topic_discovery(tag), watched=False)
    replicas = Replicas(lab)
    try:
        replicas.start("a")
        answer = lab.writer_below_its_topic().line(30)
        assert answer["refused"], "OFFERED_INCOMPATIBLE_QOS at the application's own writer"
        replicas.wait_for("it is counted", lambda: replicas.counter("a", "refused_writers") == 1)
        said = replicas.log("a").read_text()
        assert answer["guid"] in said
        assert "DURABILITY: offered TRANSIENT, requested PERSISTENT" in said
        lab.write({"count": COUNT, "time": 1_000}, durability=PERSISTENT)
        replicas.wait_values(COUNT, "a")
    finally:
        replicas.close()
        lab.close()


def test_a_topic_that_is_told_after_its_writers_counts_from_then_on(tmp_path: Path) -> None:
    """The writer below it is not captured any more; of the other one nothing is lost or comes twice."""
    domain, tag = own_domain()
    lab = Lab(tmp_path, domain, tag, topic_discovery(tag), watched=False)
    replicas = Replicas(lab)
    try:
        replicas.start("a")
        lower = lab.writer_before_its_topic(TRANSIENT, COUNT)
        replicas.wait_values(COUNT, "a")
        upper = lab.program("writer", durability=PERSISTENT)
        upper.answer("done")
        lower.tell(topic=PERSISTENT)
        lower.answer("told")
        written = after = 0
        while after < 3:
            write(upper, {"first": 100 + written, "count": 500, "time": 1_000})
            written += 500
            after += "another built-in reader" in replicas.log("a").read_text()
        write(lower, {"first": COUNT, "count": COUNT, "time": 2_000})
        lower.tell(refused=True)
        answer = lower.line(30)
        assert answer["refused"], "OFFERED_INCOMPATIBLE_QOS at the application's own writer"
        replicas.wait_values(COUNT + written, "a")
        assert replicas.counter("a", "captured") == COUNT + written
        assert replicas.counter("a", "refused_writers") == 1
        said = replicas.log("a").read_text()
        assert answer["guid"] in said
        assert "DURABILITY: offered TRANSIENT, requested PERSISTENT" in said
    finally:
        replicas.close()
        lab.close()


HOUR_NS = 3_600_000_000_000


def test_what_has_expired_is_given_to_nobody_who_comes_late(lab: Lab, replicas: Replicas) -> None:
    """By the source timestamp; also at a replica that never saw the writer, and after a restart."""
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    writer = replicas.writer("b", lifespan_ns=HOUR_NS)
    writer.answer("done")
    now_ns = time.time_ns()
    write(writer, {"count": COUNT, "time": now_ns})
    write(writer, {"first": 100, "count": COUNT, "time": now_ns - 2 * HOUR_NS})
    write(writer, {"op": "dispose", "first": 100, "count": 1, "time": now_ns - HOUR_NS - 1})
    replicas.wait_values(2 * COUNT, "a", "b")
    assert writer.end() == 0
    lab.write({"first": 300, "count": COUNT, "time": 1_000}, readers=2)
    replicas.wait_values(3 * COUNT, "a", "b")
    for is_first in (True, False):
        reader = lab.reader()
        reader.wait(2 * COUNT, disposed=1)
        replicas.wait_for("that is all", lambda: replicas.counter("a", "deliveries") == 1)
        assert reader.tally()["arrivals"] == 2 * COUNT
        assert replicas.counter("a", "expired") == COUNT - 1
        assert reader.program.end() == 0
        if is_first:
            replicas.kill("a", "b")
            replicas.start("a")


def test_only_what_the_owner_of_an_exclusive_replica_writes_counts(replicas: Replicas) -> None:
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    weak, strong = (replicas.writer("a", "b", exclusive=True, strength=each) for each in (3, 7))
    for writer in (weak, strong):
        writer.answer("done")

    def wait_times(what: str, *times: int) -> None:
        def are_there() -> bool:
            return all(
                sorted(time_ns for time_ns, _, _ in replicas.values(name).values()) == sorted(times)
                for name in "ab"
            )

        replicas.wait_for(what, are_there)

    write(weak, {"count": 2, "time": 1_000})
    write(strong, {"count": 1, "time": 2_000})
    wait_times("the stronger one owns the first instance", 2_000, 1_001)
    write(weak, {"count": 2, "time": 3_000})
    wait_times("the weaker one still owns the second", 2_000, 3_001)
    replicas.wait_for("both counted", lambda: all(replicas.counter(n, "not_owner") == 1 for n in "ab"))
    write(strong, {"op": "unregister", "count": 1, "time": 4_000})
    write(weak, {"count": 2, "time": 5_000})
    wait_times("nobody owned the first", 5_000, 5_001)
    write(strong, {"count": 2, "time": 6_000})
    wait_times("the stronger one owns both", 6_000, 6_001)
    strong.kill()
    replicas.wait_for(
        "it is gone", lambda: all(sum(w.direct for w in replicas.writers(n)) == 1 for n in "ab")
    )
    write(weak, {"count": 2, "time": 7_000})
    wait_times("the other one takes over", 7_000, 7_001)
