"""The last copy is an error as soon as it is known, and no sooner."""

from __future__ import annotations

from typing import Any

import pytest

from ospltool.health.news import IncidentNews
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.supervision import SupervisorReport
from tests.health.test_alarms import THREE, Watch
from tests.health.test_incidents import Ward

TWO = Expectation(("n1", "n2"), (ExpectedSpace("Orders", copies=2, on_disk=2),))


class Heard(Watch):
    """A watch that notes (second, severity, effect) of what is told of lost nodes."""

    def __init__(self, expected: Expectation = THREE, reports: Any = None) -> None:
        super().__init__(expected, reports)
        self.lines: list[tuple[int, str, str]] = []

    def run(self, seconds: int, *nodes: int, **more: Any) -> None:
        for _ in range(seconds):
            super().run(1, *nodes, **more)
            more.pop("lost", None)
            self.lines += [
                (self.second, one.severity.label, one.effect)
                for one in self.health.open
                if one.code.id in ("DUL-NODE-SILENT", "DUL-NODE-GONE")
            ]


@pytest.mark.parametrize(
    ("expected", "away"), [(THREE, (2, 3)), (TWO, (2,))], ids=["two of three", "one of two"]
)
def test_the_last_copy_is_told_as_an_error_at_once(expected: Expectation, away: tuple[int, ...]) -> None:
    """Their leases last, so they are silent and not gone; their fellow does not hear them either."""
    watch = Heard(expected)
    watch.run(20, 1, *away)
    watch.run(8, 1, missed=away)
    assert [one.code.id for one in watch.health.open] == ["DUL-NODE-SILENT"] * len(away)
    assert {severity for *_, severity, effect in watch.lines if "the last copy, " in effect} == {"error"}
    seconds = {severity: second for second, severity, _ in reversed(watch.lines)}
    assert seconds["error"] <= min(seconds.values()) + 1, (
        "a fellow tells a moment later that it misses them, too"
    )


def test_copies_that_only_the_fellows_of_a_watch_reach_are_no_error() -> None:
    """The watch has lost two of three, which the third one hears: it runs, and so does its copy."""
    watch = Heard()
    watch.run(20, 1, 2, 3)
    watch.run(12, 1, fellows=(1, 2, 3))
    assert watch.lines
    assert {severity for _, severity, _ in watch.lines} == {"warning"}
    assert "the last copy in reach, " in watch.health.open[0].effect


def test_one_who_looks_late_tells_copies_that_only_fellows_reach_as_one_who_watched() -> None:
    watch = Watch(THREE)
    watch.run(8, 1, fellows=(1, 2, 3))
    absent = [one for one in watch.health.open if one.code.id == "DUL-NODE-ABSENT"]
    assert [(one.who, one.severity.label) for one in absent] == [("n2", "warning"), ("n3", "warning")]
    assert "the last copy in reach, " in absent[0].effect
    watch.run(8, 1, missed=(2, 3))
    assert "the last copy, " in next(one for one in watch.health.open if one.who == "n2").effect


def test_a_node_that_its_supervisor_starts_again_at_once_is_no_error() -> None:
    watch = Heard(TWO)
    watch.run(20, 1, 2)
    watch.reports = {
        "n2": SupervisorReport(
            "killed", is_trouble=True, is_dead=True, is_coming=True, failed_ns=watch.now_ns
        )
    }
    watch.run(3, 1, lost=(2,))
    watch.run(5, 1, 2, started_s=22)
    assert [severity for _, severity, _ in watch.lines if severity == "error"] == []
    assert [one.severity.label for one in watch.health.closed if one.code.cause == "copies"] == []


def test_nobody_takes_nodes_that_stopped_in_order_for_copies_in_reach() -> None:
    ward = Ward()
    ward.scenario.start()
    ward.run(12)
    ward.scenario.stop("n2", "n3")
    said = set()
    for _ in range(24):
        ward.run(0.25)
        said |= {one.warning for one in ward.health.redundancies if one.held and not one.left}
    assert said == {"the last copy"}


def test_fewer_copies_are_told_at_once_of_an_incident_that_was_told() -> None:
    """Two nodes are lost one after the other; the incident of the first one tells the copies."""
    watch, news = Watch(THREE), IncidentNews(5.0)
    watch.run(20, 1, 2, 3)
    told = []
    for nodes, seconds in (((1, 3), 4), ((1,), 12), ((1, 3), 8)):
        for _ in range(seconds):
            watch.run(1, *nodes)
            told += [(watch.second, how, one) for how, one in news.changes(watch.health, float(watch.second))]
    (first_s,) = [second for second, how, one in told if (how, one.who) == ("began", "n3")]
    effects = {one.who: one.effect for second, _, one in told if second <= first_s}
    assert "1 of 3 copies, 1 of 2 on disk, the last copy, " in effects["n2"]
    over_s = next(second for second, how, one in told if (how, one.who) == ("ended", "n3"))
    last = [one.effect for second, _, one in told if second <= over_s and one.who == "n2"][-1]
    assert "2 of 3 copies" in last
