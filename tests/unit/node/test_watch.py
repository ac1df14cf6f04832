"""The deadlock watch: what is stuck is said, and the lease is withheld only where that is configured."""

from __future__ import annotations

import pytest

from engine.capture.shell import Watchdog
from engine.dds.activity import ThreadActivities, moved
from engine.tracing.tracer import Tracer


class Watched:
    """A watch over activities that have no patience unless they ask for some."""

    def __init__(self, *, detects: bool = True) -> None:
        self.activities = ThreadActivities(patience_s=-1.0)
        self.tracer = Tracer(lambda: 0)
        self.renewed = 0
        self.watch = Watchdog(self.activities, self.tracer.event, self.renew, 1.0, detects=detects)

    def renew(self) -> None:
        self.renewed += 1

    def look(self, times: int = 3) -> tuple[int, list[str]]:
        """How often the lease was renewed in some looks, and what was traced."""
        before = self.renewed, len(self.tracer.recent())
        for _ in range(times):
            self.watch.look()
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
    with watched.activities.job("stream", patience_s=60.0) as job:
        assert job.since_s is not None
        job.since_s -= 61.0
        assert watched.look(1)[1] == ["watch.progress-lost", "watch.lease-withheld"]
        moved()
        assert watched.look(1) == (1, ["watch.progress-back"])
    assert watched.activities.all() == []
    moved()  # outside of jobs it says nothing
