"""The deadlock watch: what is stuck is said, and the lease is withheld only where that is configured."""

from __future__ import annotations

import threading

import pytest

from engine.capture.shell import Watchdog
from engine.dds.activity import IDLE_BEATS, ThreadActivities, Workers, moved
from engine.tracing.tracer import Tracer
from tests.unit.node.test_pulse import SOON_S, await_that

PERIOD_S = 1.0


class Watched:
    """A watch over activities that have no patience unless they ask for some."""

    def __init__(self, *, detects: bool = True, lease_s: float = 60.0, patience_s: float = -1.0) -> None:
        self.activities = ThreadActivities(patience_s)
        self.tracer = Tracer(lambda: 0)
        self.renewed = 0
        self.now_s = 1_000.0
        self.watch = Watchdog(
            self.activities,
            self.tracer.event,
            self.renew,
            PERIOD_S,
            detects=detects,
            lease_s=lease_s,
            clock=lambda: self.now_s,
        )

    def renew(self) -> None:
        self.renewed += 1

    def look(self, times: int = 3) -> tuple[int, list[str]]:
        """How often the lease was renewed in some looks, and what was traced."""
        before = self.renewed, len(self.tracer.recent())
        for _ in range(times):
            self.watch.check()
            self.now_s += PERIOD_S
        events = [record.event.id for record in self.tracer.recent()[before[1] :]]
        return self.renewed - before[0], events


def test_idle_activity_is_never_stuck() -> None:
    watched = Watched()
    watched.activities.work("persistentDataListener")
    assert watched.look() == (3, [])


def test_busy_activity_within_its_patience_is_not_stuck() -> None:
    watched = Watched()
    with watched.activities.work("persistentDataListener", patience_s=60.0):
        assert watched.look() == (3, [])


@pytest.mark.parametrize(
    ("detects", "renewals", "events"),
    [
        (True, 0, ["watch.progress-lost", "watch.lease-withheld"]),
        (False, 3, ["watch.progress-lost"]),
    ],
)
def test_stuck_activity_is_said_once_and_withholds_the_lease_where_configured(
    detects: bool, renewals: int, events: list[str]
) -> None:
    watched = Watched(detects=detects)
    with watched.activities.work("persistentDataListener"):
        assert watched.look() == (renewals, events)


def test_an_activity_for_which_nobody_waits_is_named_and_withholds_nothing() -> None:
    watched = Watched()
    with watched.activities.work("past", withholds=False):
        assert watched.look() == (3, ["watch.progress-lost"])
        assert watched.watch.stuck == ("past",)
        with watched.activities.work("store"):
            assert watched.look() == (0, ["watch.progress-lost", "watch.lease-withheld"])
        assert watched.tracer.recent()[-1].fields["activities"] == "store"


def test_idle_activity_that_beats_no_more_is_stuck() -> None:
    watched = Watched()
    idle = watched.activities.work("persistentDataListener", idle_s=5.0)
    for _ in range(10):
        idle.beat()
        assert watched.look(5) == (5, [])
    assert watched.look(2)[1] == ["watch.progress-lost", "watch.lease-withheld"]
    idle.beat()
    assert watched.look(1) == (1, ["watch.progress-back"])
    idle.rest()
    assert watched.look(20) == (20, [])
    for _ in range(20):  # it beats once in each look
        idle.beat()
        assert watched.look(1) == (1, [])
        idle.rest()


def test_time_in_which_the_watch_stood_still_itself_does_not_count() -> None:
    """A stopped process, a suspended machine: no thread of it hangs."""
    watched = Watched()
    watched.activities.work("store", idle_s=5.0).beat()
    with watched.activities.work("turn", patience_s=5.0):
        for _ in range(2):
            assert watched.look(1) == (1, [])
            watched.now_s += 3_600.0
        assert watched.look(1) == (1, [])


@pytest.mark.parametrize(
    ("patience_s", "lease_s", "quiet"),
    [(-1.0, 60.0, IDLE_BEATS), (10.0, 60.0, 10), (10.0, 10.0, 5), (10.0, 2.0, 3)],
)
def test_the_watch_is_watched_by_the_thread_that_it_watches(
    patience_s: float, lease_s: float, quiet: int
) -> None:
    """It is named before the lease is lost that only it renews."""
    watched = Watched(patience_s=patience_s, lease_s=lease_s)
    watched.look(1)

    def watch_back(seconds: int) -> list[str]:
        before = len(watched.tracer.recent())
        for _ in range(seconds):
            watched.now_s += 1.0
            watched.watch.watch_back()
        return [str(record.fields["activity"]) for record in watched.tracer.recent()[before:]]

    assert watch_back(quiet) == []
    assert watch_back(3) == ["watch"]
    assert [*watched.watch.stuck] == ["watch"]
    watched.look(1)
    assert watch_back(1) == ["watch"]
    assert not watched.watch.stuck


def test_workers_are_alive_while_they_wait_and_survive_what_a_task_does() -> None:
    activities = ThreadActivities()
    workers, done = Workers(activities, 2, "worker"), threading.Barrier(3)

    def meet() -> None:
        done.wait(SOON_S)

    for _ in range(2):
        workers.submit(meet)
    done.wait(SOON_S)
    problem = ValueError("unexpected")

    def fail() -> None:
        raise problem

    workers.submit(fail)
    await_that(lambda: workers.fault is problem)
    await_that(lambda: len(activities.all()) == 2 and all(one.is_beating for one in activities.all()))
    assert sorted(one.name for one in activities.all()) == ["worker_0", "worker_1"]
    before = [one.progress for one in activities.all()]
    await_that(lambda: all(one.progress != was for one, was in zip(activities.all(), before, strict=True)))
    workers.close(SOON_S)
    workers.submit(fail)
    assert activities.all() == []


def test_activity_that_moves_again_gets_the_lease_renewed() -> None:
    watched = Watched()
    with watched.activities.work("a"):
        watched.look(1)
    assert watched.look(1) == (1, ["watch.progress-back"])


def test_each_activity_that_stands_still_is_named_with_its_thread() -> None:
    watched = Watched()
    with watched.activities.work("a") as a, watched.activities.job("b") as b:
        watched.look(1)
        assert watched.watch.stuck == ("a", "b")
        told = {record.fields["activity"]: record.fields["tid"] for record in watched.tracer.recent()[:2]}
    assert told == {"a": a.tid, "b": b.tid}
    assert a.tid


def test_a_job_is_watched_until_it_is_over_and_has_its_time_anew_when_it_moves() -> None:
    watched = Watched()
    with watched.activities.job("stream", patience_s=5.0):
        assert watched.look(5) == (5, [])
        assert watched.look(1) == (0, ["watch.progress-lost", "watch.lease-withheld"])
        moved()
        assert watched.look(1) == (1, ["watch.progress-back"])
    assert watched.activities.all() == []
    moved()  # outside of jobs it says nothing
