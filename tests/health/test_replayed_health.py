"""A recording tells the same incidents as the watch that was live while it was made."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.system import System
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder
from ospltool.live.replay import ReplayFeed
from ospltool.live.supervision import LocalView, SupervisorReport
from ospltool.views.cells import UNICODE, plain
from ospltool.views.view import View, node_state
from tests import fake
from tests.console.watched import Watched
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, FakeFeed, node_id
from tests.health.test_incidents import THREE
from tests.simulation.scenarios import Scenario, node
from tui import panels
from tui.panels import ConsoleStatus

STATUS = ConsoleStatus("console", "recording", "recorded")
POLL_S = 0.25
APART_S = 0.6
"""Live, one looks each quarter of a second and examines each second time, a replay at other moments."""


class Told(NamedTuple):
    """An incident as it is at the end."""

    code: str
    who: str
    severity: str
    times: int
    since_s: float
    until_s: float


def told(every: list[Incident], began_ns: int) -> list[Told]:
    return sorted(
        Told(
            one.code.id, one.who, one.severity.label, one.times,
            (one.since_ns - began_ns) / S, (one.until_ns - began_ns) / S if one.until_ns else 0.0,
        )
        for one in every
    )  # fmt: skip


class Recorded:
    """A simulated system that is watched and recorded at the same time."""

    def __init__(self, path: Path) -> None:
        self.scenario = Scenario(node("n1"), node("n2"), node("n3"))
        self.watched = Watched(self.scenario)
        self.health = Health(SystemModel(), THREE)
        self.recorder = Recorder(path, source="simulated", made_by="test", expected=THREE)
        self.began_ns = self.watched.now_ns
        self.poll()

    def poll(self) -> None:
        now_ns = self.watched.now_ns
        updates, self.watched.updates[:] = list(self.watched.updates), []
        update = Update(
            tuple({one.snapshot.id: one for _, each in updates for one in each.snapshots}.values()),
            tuple(one for _, each in updates for one in each.events),
            tuple(one for _, each in updates for one in each.notices),
        )
        self.recorder.write(update, now_ns)
        self.health.model.apply(update, now_ns)
        self.health.update(now_ns)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / POLL_S)):
            self.scenario.run(POLL_S)
            self.poll()


def replayed(path: Path, expected: Expectation, moment_ns: int = 0) -> Health:
    """The health of a recording at a moment, or at its end."""
    feed = ReplayFeed(path, clock=lambda: 0, paused=True)
    system = System((feed, lambda model: Health(model, expected)))
    feed.end_ns = max(feed.end_ns, moment_ns)  # it was watched on without anything to record
    feed.seek(moment_ns or feed.end_ns)
    system.update()
    while feed.is_winding:
        system.update()
    feed.close()
    return system.health


def test_a_replay_of_simulated_nodes_tells_what_the_live_watch_told(tmp_path: Path) -> None:
    """A link flaps: the incident returns, with consequences that come and go."""
    made = Recorded(tmp_path / "r.jsonl")
    made.scenario.start()
    made.run(6)
    for _ in range(2):
        made.scenario.cut("n1", "n2")
        made.run(7)
        made.scenario.heal()
        made.run(3)
    made.run(4)
    made.recorder.close()
    live = made.health.every
    check_alike(live, replayed(tmp_path / "r.jsonl", THREE).every, made.began_ns)
    assert [one.times for one in live if one.code.id == "DUL-PARTIAL-MESH"] == [2, 1]


def check_alike(live: list[Incident], after: list[Incident], began_ns: int) -> None:
    expected, found = told(live, began_ns), told(after, began_ns)
    assert [one[:4] for one in found] == [one[:4] for one in expected]
    for one, other in zip(expected, found, strict=True):
        assert other.since_s == pytest.approx(one.since_s, abs=APART_S), (one, other)
        assert other.until_s == pytest.approx(one.until_s, abs=APART_S), (one, other)
    assert [one.why for one in after] == [one.why for one in live]


class Course(NamedTuple):
    """What invented nodes show.

    Attributes:
        incidents: code and severity of each incident, in the order of their beginnings.
        heard_s: when n2 is heard.
        notices: what the feed tells, by moment.
        reports: what the supervisor of n2 tells, by moment.
        others: nodes that are heard each second beside n2.
        lasts_s: seconds that are watched.
    """

    incidents: tuple[tuple[str, str], ...]
    heard_s: tuple[float, ...]
    notices: Mapping[float, NoticeKind] = {}
    reports: Mapping[float, SupervisorReport] = {}
    others: tuple[int, ...] = (1, 3)
    lasts_s: int = 14


BEFORE = tuple(float(second) for second in range(5))
GONE = (("DUL-NODE-GONE", "error"),)
DEAD = SupervisorReport("its supervisor says: killed", is_trouble=True, is_dead=True)

COURSES = {
    "snapshots come too early and too late": Course((), (0, 0.98, 2.3, 3.28, 4.6, 5.58), lasts_s=7),
    "the last of frequent snapshots": Course((), (0, 0.4, 0.8, 1.2, 1.6, 3.4, 4.4), lasts_s=5),
    "lost in the same moment as it was heard": Course(GONE, (*BEFORE, 5.2), {5.25: NoticeKind.NODE_LOST}),
    "killed, as its supervisor says": Course(GONE, BEFORE, {}, {4.5: DEAD}),
    "silent twice": Course((("DUL-NODE-SILENT", "warning"),) * 2, (0, 1, 4, 5, 6, 7, 10, 11, 12, 13)),
    "the only node, lost long ago": Course(
        (("DUL-DOMAIN-LOST", "error"),), BEFORE,
        {5.0: NoticeKind.NODE_LOST, 5.25: NoticeKind.DOMAIN_LOST}, others=(), lasts_s=140,
    ),
    "its link is cut": Course(
        (("DUL-DOMAIN-LOST", "error"),), BEFORE, {4.75: NoticeKind.LINK_LOST}, others=(), lasts_s=140
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COURSES)
def test_a_replay_tells_what_the_live_watch_told(tmp_path: Path, name: str) -> None:
    course, path, reports = COURSES[name], tmp_path / "r.jsonl", dict[str, SupervisorReport]()
    recorder = Recorder(path, source="invented", made_by="test")
    model = SystemModel()
    health = Health(model, reports=lambda: reports)
    for step in range(round(course.lasts_s / POLL_S)):
        at_s = step * POLL_S
        now_ns = START_NS + round(at_s * S)
        moments = [one for one in course.heard_s if at_s - POLL_S < one <= at_s]
        heard = [shown(2, one, course.others) for one in moments]
        heard += [shown(n, at_s, (2, *course.others)) for n in course.others if step % 4 == 0]
        notices = []
        if at_s in course.notices:
            notices.append(FeedNotice(course.notices[at_s], now_ns, "interface e0 is down", node_id(2)))
        local = None
        if at_s in course.reports:
            reports["n2"] = course.reports[at_s]
            local = LocalView(dict(reports))
        update = Update(tuple(heard), notices=tuple(notices), local=local)
        recorder.write(update, now_ns)
        model.apply(dataclasses.replace(update, local=None), now_ns)
        health.update(now_ns)
    recorder.close()
    after = replayed(path, NOTHING, START_NS + round((course.lasts_s - POLL_S) * S))
    live = sorted(health.every, key=since)
    assert [(one.code.id, one.severity.label) for one in live] == list(course.incidents)
    check_alike(live, sorted(after.every, key=since), START_NS)
    assert after.verdict.text == health.verdict.text


def since(one: Incident) -> int:
    return one.since_ns


def shown(number: int, at_s: float, others: tuple[int, ...]) -> ReceivedSnapshot:
    moment_ns = START_NS + round(at_s * S)
    fellows = tuple(fake.fellow(n) for n in others if n != number)
    return ReceivedSnapshot(
        fake.snapshot(number, fake.name_space("Orders", 1), time_ns=moment_ns, fellows=fellows), moment_ns
    )


MANY = 12


def test_header_and_rows_agree_at_each_moment_of_a_replay_of_the_loss_of_all(tmp_path: Path) -> None:
    feed = FakeFeed(MANY, 1)
    recorder = Recorder(tmp_path / "r.jsonl", source="invented", made_by="test")
    for _ in range(12):
        update = feed.poll()
        recorder.write(update, feed.now_ns())
    lost_ns = feed.now_ns() + 10 * S
    for moment_ns in range(feed.now_ns() + S, lost_ns, S):  # it goes on to look
        recorder.write(Update(), moment_ns)
    recorder.write(Update(notices=(FeedNotice(NoticeKind.DOMAIN_LOST, lost_ns, ""),)), lost_ns)
    recorder.close()
    clock = [0]
    begun_ns = feed.now_ns() - 3 * S
    replay = ReplayFeed(tmp_path / "r.jsonl", clock=lambda: clock[0])
    system = System((replay, Health))
    words = set()
    while replay.now_ns() < replay.end_ns:
        clock[0] += S // 10
        system.update()
        view = View(system.health, replay.now_ns(), UNICODE)
        rows = [node_state(view, one).text for one in system.model.ordered_nodes()]
        said = re.search(r"(\d*) ?of \d+ nodes complete", system.health.verdict.text)
        if said and len(rows) == MANY and view.now_ns > begun_ns + 5 * S // 2:
            assert int(said[1] or 0) == rows.count("complete"), (view.now_ns - replay.begin_ns) / S
        line = plain(panels.header(view, STATUS, "overview", "overview", 120)[0])
        is_open = any(one.code.id == "DUL-DOMAIN-LOST" for one in system.health.open)
        assert ("DOMAIN LOST" in line) is is_open
        assert not (is_open and {"complete", "aligning"} & {*rows})
        words |= set(rows)
    words.discard("aligning")
    assert words == {"complete", "silent", "gone"} or words == {"complete", "silent"}
    replay.close()


GAP_S = 20.0


@pytest.mark.parametrize("is_killed", [False, True], ids=["nothing happened", "a node was killed meanwhile"])
@pytest.mark.parametrize("how", ["stopped", "the disk was full", "begun anew"])
def test_a_gap_of_the_recording_is_no_silence_of_the_nodes(
    tmp_path: Path, how: str, *, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Recorded(tmp_path / "r.jsonl")
    made.scenario.start()
    made.run(8)
    if how == "the disk was full":
        monkeypatch.setattr(Recorder, "_flush", refuse)
    elif how == "begun anew":
        made.recorder.close()
    began_ns = made.watched.now_ns
    made.scenario.run(GAP_S / 2)
    if is_killed:
        made.scenario.kill("n3")
    if how == "the disk was full":
        made.poll()
        monkeypatch.undo()
    made.scenario.run(GAP_S / 2)
    if how == "begun anew":
        made.recorder = Recorder(tmp_path / "r.jsonl", source="simulated", made_by="test", expected=THREE)
    made.run(15)
    made.recorder.close()
    for moment_ns in (began_ns + round(GAP_S) * S // 2, 0):
        health = replayed(tmp_path / "r.jsonl", THREE, moment_ns)
        lost = [(one.code.id, one.who) for one in health.every if one.severity is Severity.ERROR]
        assert lost == ([("DUL-NODE-GONE", "n3")] if is_killed and not moment_ns else [])
    for one in health.open:
        assert began_ns - S <= one.since_ns <= began_ns + GAP_S * S + S


def refuse(_: Recorder) -> None:
    """What a full disk does."""
    raise sqlite3.OperationalError("database or disk is full")
