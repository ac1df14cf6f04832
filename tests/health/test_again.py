"""A trouble that comes back after its end was told: another incident, with a beginning of its own."""

from __future__ import annotations

import dataclasses
import re

from ospltool.cli.health import heading
from ospltool.diagnostics.model import Severity
from ospltool.health import export
from ospltool.health.incidents import Incident
from ospltool.health.news import IncidentNews
from ospltool.views import incidents
from ospltool.views.cells import UNICODE, plain
from ospltool.views.view import View
from tests.health.test_alarms import THREE, Watch
from tests.health.test_mutes import Case
from tests.health.test_supervised_nodes import comes

NODES = (1, 2, 3)


def told_twice() -> tuple[Case, list[tuple[str, Incident]]]:
    """n2 is silent, is heard again for four seconds, and is silent again."""
    case, news = Case(), IncidentNews(5.0)
    told: list[tuple[str, Incident]] = []
    for second in range(30):
        heard = (1, 3) if 5 <= second < 12 or second >= 17 else NODES
        case.hear(*heard, seconds=1)
        told += news.changes(case.health, float(second))
    return case, told


def test_a_trouble_that_comes_back_is_another_incident_with_its_own_beginning() -> None:
    case, told = told_twice()
    assert [(what, one.times) for what, one in told] == [("began", 1), ("ended", 1), ("began", 2)]
    (first, ended, second) = (one for _, one in told)
    assert first.key == ended.key != second.key
    assert second.since_ns > ended.until_ns > first.since_ns
    exported = export.health(case.health, case.now_ns)
    assert [one["since_ns"] for one in exported["incidents"]] == [second.since_ns]
    assert [(one["since_ns"], one["until_ns"]) for one in exported["closed"]] == [
        (ended.since_ns, ended.until_ns)
    ]


def test_an_acknowledged_trouble_that_comes_back_is_known_and_does_not_ring() -> None:
    case, _ = told_twice()
    assert case.health.acknowledge(case.health.open[0].key)
    before = case.health.open[0]
    case.hear(*NODES, seconds=1)
    for _ in range(4):
        case.hear(*NODES, seconds=1)
    assert not case.health.open
    for _ in range(5):
        case.hear(1, 3, seconds=1)
    (again,) = case.health.open
    assert again.acknowledged_ns == before.acknowledged_ns
    assert (again.origin, again.rises, again.times) == (before.origin, before.rises, 3)


def test_an_incident_of_less_than_a_second_has_one_time_and_a_duration() -> None:
    case, _ = told_twice()
    (one,) = case.health.closed
    short = dataclasses.replace(one, until_ns=one.since_ns + 700_000_000)
    assert re.search(r"at worst \(2\S+ \S+ UTC, 0\.7 s\)$", heading(short, case.now_ns))
    case.health.closed, case.health.open = [short], []
    view = View(case.health, case.now_ns, UNICODE)
    rows = incidents.incidents(view, 120)
    assert [rows.value(0, column) for column in (1, 2)][1] == "0.7 s"
    assert ", 0.7 s, over" in plain(incidents.head(view, short, 200))


def test_a_return_that_is_less_grave_was_never_as_grave_as_what_was_before() -> None:
    """A node is gone, and a moment after its return it fails, and its supervisor starts it again."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(6, 1, 2, lost=(3,))
    watch.run(4, 1, 2, 3)
    watch.reports = {"n3": comes(watch)}
    watch.run(4, 1, 2, lost=(3,))
    watch.reports = {}
    watch.run(6, 1, 2, 3)
    again, gone = watch.health.closed
    assert [one.code.id for one in (gone, again)] == ["DUL-NODE-GONE", "DUL-NODE-SILENT"]
    assert again.times == 2
    assert (gone.severity, again.severity) == (Severity.ERROR, Severity.WARNING)
