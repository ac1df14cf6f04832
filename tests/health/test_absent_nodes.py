"""What is told of a node that was absent, while it starts, and when it then does not fit."""

from __future__ import annotations

import msgspec

from engine.runtime.monitor import NodeSnapshot
from ospltool.health.incidents import Incident
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.health.test_alarms import Watch

ALL = Expectation(("n1", "n2", "n3"), (ExpectedSpace("Orders", copies=3, on_disk=3),))
PROBLEM = "Orders: {a} and {b}"


def starting() -> Watch:
    """n3 was absent for a minute, and its supervisor has started it."""
    watch = Watch(ALL)
    watch.run(60, 1, 2)
    assert watch.open == [("DUL-NODE-ABSENT", "n3")]
    watch.reports = {
        "n3": SupervisorReport("", is_starting=True, pid=fake.snapshot(3).pid, started_ns=watch.now_ns)
    }
    return watch


def test_a_node_with_a_thread_that_hung_before_this_watch_began_is_stuck() -> None:
    watch = Watch(ALL)
    told = "seen on its host at 01:00:00 UTC: recv of Cyclone DDS did not proceed"
    watch.reports = {"n3": SupervisorReport(told, pid=fake.snapshot(3).pid, stuck="recv of Cyclone DDS")}
    watch.run(10, 1, 2)
    assert watch.open == [("DUL-NODE-STUCK", "n3")]
    assert watch.health.open[0].what == (
        "n3 is expected and was not heard since this watch began, and says on its host: recv of Cyclone DDS "
        "does not proceed"
    )
    watch.reports = {}
    watch.run(12, 1, 2, 3)
    assert watch.open == []


def said(incident: Incident) -> str:
    return f"{incident.what} {incident.why} {incident.next}"


def test_a_node_that_starts_is_named_as_what_is_missing() -> None:
    watch = starting()
    watch.run(3, 1, 2)
    assert {one.code.id for one in watch.health.open} == {"DUL-COPIES-LOW", "DUL-DISK-COPIES-LOW"}
    for one in watch.health.open:
        assert one.why == "n3 is not heard"
        assert "in its configuration" not in said(one)
        assert "StoreDirectory" not in said(one)


def test_what_began_with_an_absent_node_is_no_beginning_of_its_misfit() -> None:
    watch = starting()
    started_ns = watch.now_ns
    watch.run(3, 1, 2)
    watch.reports = {}
    for _ in range(5):
        watch.second += 1
        now_ns = watch.now_ns
        refused = [fake.fellow(n, communication="incompatible", problem=PROBLEM) for n in (1, 2, 3)]
        fits = [fake.fellow(n) for n in (1, 2, 3)]
        heard: list[NodeSnapshot] = [
            fake.snapshot(1, fake.name_space("Orders", 1), fellows=(fits[1], refused[2])),
            fake.snapshot(2, fake.name_space("Orders", 1), fellows=(fits[0], refused[2])),
            fake.snapshot(
                3, fake.name_space("Orders", 3), fellows=(refused[0], refused[1]), started_ns=started_ns
            ),
        ]
        shown = (msgspec.structs.replace(one, time_ns=now_ns) for one in heard)
        watch.model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
        watch.health.update(now_ns)
    (found,) = watch.health.open
    assert (found.code.id, found.who) == ("DUL-INCOMPATIBLE", "n3")
    assert found.since_ns >= started_ns
