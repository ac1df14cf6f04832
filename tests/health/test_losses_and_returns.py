"""What is told of lost nodes while their fellows come back, are started again, or are lost as well."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import msgspec
import pytest

from engine.runtime.monitor import NodeEvent, NodePast, Run
from engine.runtime.past import IN_ORDER, UNKNOWN_END
from engine.supervisor.policy import NodePhase
from engine.supervisor.process_identity import identify
from engine.supervisor.rundir import RunDirectory, RunRecord
from ospltool.health.news import IncidentNews
from ospltool.health.supervisors import SupervisorWatch
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.supervision import SupervisorReport
from ospltool.views.cells import UNICODE, plain
from ospltool.views.node import card
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.test_alarms import THREE, Watch
from tests.health.test_causes_of_losses import FAR, HERE, THERE, Ward

KILLED = "seen on its host at 01:03:41 UTC: it had died, its supervisor was killed"
DEAD = SupervisorReport(KILLED, is_trouble=True, is_dead=True, started_ns=START_NS - 600 * S)
OVERDUE = "Removing confirmed fellow n2. Reason: its heartbeat is overdue."
CUT = "the network between it and this watch is cut"


def started(watch: Watch) -> SupervisorReport:
    return SupervisorReport("", is_starting=True, pid=77, started_ns=watch.now_ns)


def test_a_restart_that_fellows_see_first_is_no_cut_link() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n2": DEAD}
    watch.run(1, 1, 3, lost=(2,))
    watch.run(16, 1, 3)
    assert [one.why for one in watch.health.open] == [KILLED]
    watch.reports = {"n2": started(watch)}
    watch.run(1, 1, 3)
    watch.run(2, 1, 3, fellows=(1, 2, 3))
    assert [one.why for one in watch.health.open] == [KILLED]
    assert CUT not in str([*watch.told.values()])


@pytest.mark.parametrize("seconds", [2, 6])
def test_a_node_that_fellows_hear_anew_is_out_of_reach_after_the_time_of_a_meeting(seconds: int) -> None:
    """On another host, of which no supervisor tells: the fellows had lost the node, too."""
    ward = Ward({1: HERE, 2: FAR, 3: HERE})
    ward.run(17, 1, 3)
    ward.run(seconds, 1, 3, hearing={1: (2,), 3: (2,)})
    found = ward.of("n2")
    assert found.why.startswith(CUT) is (seconds == 6)
    assert found.code.id == ("DUL-NODE-SILENT" if seconds == 6 else "DUL-NODE-GONE")


@pytest.mark.parametrize(
    ("losing", "hearing", "is_cut"),
    [((1, 3), (1, 3), False), ((1,), (1,), False), ((1,), (1, 3), True), ((), (1, 3), True)],
)
def test_what_fellows_hear_soon_after_they_lost_a_node_is_another_run(
    losing: tuple[int, ...], hearing: tuple[int, ...], *, is_cut: bool
) -> None:
    """A supervisor on another host replaced it. One who has heard it all the time knows of a cut link."""
    ward = Ward({1: HERE, 2: FAR, 3: HERE})
    ward.run(3, 1, 3)
    told = tuple(fake.event(n, n, START_NS + 7 * S, OVERDUE, event="fellow.disconnected") for n in losing)
    ward.model.apply(Update(events=told), START_NS + ward.second * S)
    ward.run(1, 1, 3, hearing=dict.fromkeys(hearing, (2,)))
    assert ward.of("n2").why.startswith(CUT) is is_cut
    ward.restarted_s[2] = ward.second
    ward.run(1, 1, 2, 3)
    again = ward.of("n2")
    assert (again.code.id, again.why.startswith(CUT)) == ("DUL-NODE-RESTARTED", is_cut)


@pytest.mark.parametrize(("away", "others"), [(3, 2), (4, 3), (6, 3), (8, 5)])
def test_a_node_that_goes_on_after_others_were_replaced_is_not_gone_since_then(
    away: int, others: int
) -> None:
    """All were stopped. The fellows, in new processes, hear it a moment before this watch does."""
    ward = Ward({1: HERE, 2: THERE, 3: FAR}, ())
    ward.run(away)
    ward.restarted_s |= dict.fromkeys((1, 3), ward.second)
    ward.run(others, 1, 3)
    before = [one.since_ns for one in ward.health.open if one.who == "n2"]
    ward.run(2, 1, 3, hearing={1: (2,), 3: (2,)})
    assert [one.since_ns for one in ward.health.open if one.who == "n2"] == before
    ward.run(6, 1, 2, 3)
    assert "n2" not in [one.who for one in ward.health.open]


@pytest.mark.parametrize(("shown", "missed"), [(2, 1), (3, 0), (3, 1)])
def test_heartbeats_that_a_node_reads_late_do_not_begin_a_partial_mesh(shown: int, missed: int) -> None:
    """All were stopped; n1 goes on and reads what n3 sent before, which goes on last and has to meet n2."""
    ward = Ward({1: HERE, 2: THERE, 3: FAR}, ())
    ward.run(6)
    ward.last_s[3] = ward.second + 1
    ward.run(shown, 1, 2, hearing={1: (3,)})
    ward.run(missed, 1, 2)
    ward.last_s, ward.waiting, ward.heard_s[3] = {}, (2,), 0
    ward.run(1, 1, 2, 3)
    assert "DUL-PARTIAL-MESH" not in [one.code.id for one in ward.health.every]
    ward.run(2, 1, 2, 3)
    assert "DUL-PARTIAL-MESH" not in [one.code.id for one in ward.health.every]


def test_the_last_words_on_a_lost_domain_are_those_while_it_stood() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = dict.fromkeys(("n1", "n2", "n3"), DEAD)
    watch.run(1, lost=(1, 2, 3))
    watch.run(9)
    (before,) = watch.health.open
    assert before.why == f"n1, n2 and n3: {KILLED}"
    assert before.effect.startswith("all copies in memory are lost")
    watch.reports |= {"n1": started(watch), "n3": started(watch)}
    watch.run(2)
    (told,) = watch.health.open
    assert (told.why, told.effect) == (before.why, before.effect)
    assert told.next.startswith("Wait for n1 and n3: the supervisors start them again. Start n2 again")
    watch.run(4, 1, 3, started_s=31)
    (over,) = watch.health.closed
    assert (over.why, over.effect) == (before.why, before.effect)
    watch.reports |= {"n2": started(watch)}
    watch.run(8, 1, 3, started_s=31)
    assert {one.who: one.why for one in watch.health.open}["n2"] == KILLED


def test_losses_long_before_that_of_the_domain_stay_in_the_history() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(51, 2, lost=(1, 3))
    gone = {one.key for one in watch.health.open if one.code.id == "DUL-NODE-GONE"}
    assert len(gone) == 2
    news = IncidentNews(5.0)
    news.changes(watch.health, 0.0)
    watch.run(5, lost=(2,))
    assert watch.open == [("DUL-DOMAIN-LOST", "domain")]
    told = {(how, one.who) for how, one in news.changes(watch.health, 5.0) if one.code.cause != "copies"}
    assert told >= {("began", "domain"), ("joined", "n1"), ("joined", "n3")}
    assert ("ended", "n1") not in told
    found = [one for one in watch.health.closed if one.key in gone]
    assert sorted(one.what for one in found) == [
        f"{name} is gone, then part of the loss of the domain" for name in ("n1", "n3")
    ]
    assert {one.until_ns for one in found} == {START_NS + 71 * S}


@pytest.mark.parametrize("is_told", [True, False])
def test_a_late_caller_knows_from_fellows_when_a_node_ended_whose_supervisor_was_killed(
    is_told: bool,
) -> None:
    """The node ends by itself, in order; a farewell of a former run does not count."""
    watch = Watch(THREE, {"n2": DEAD})
    ended_ns = START_NS - (9 if is_told else 900) * S
    text = "Removing confirmed fellow n2. Reason: it is terminating."
    event = fake.event(1, 1, ended_ns, text, event="fellow.disconnected")
    watch.model.apply(Update(events=(event,)), START_NS)
    watch.run(6, 1, 3)
    (found,) = [one for one in watch.health.open if one.code.id == "DUL-NODE-GONE"]
    assert (found.who, found.why) == ("n2", KILLED)
    assert (found.since_ns == ended_ns) is is_told


def test_a_known_cause_of_a_supervisor_is_kept_when_a_link_is_cut_after_the_restart() -> None:
    """The run that this watch lost was ended by that; the new one is out of reach."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n2": DEAD}
    watch.run(5, 1, 3, lost=(2,))
    watch.reports = {"n2": dataclasses.replace(started(watch), is_starting=False)}
    watch.run(9, 1, 3, fellows=(1, 2, 3))
    (found,) = [one for one in watch.health.open if one.who == "n2"]
    assert (found.code.id, found.why) == ("DUL-NODE-SILENT", KILLED)


def test_a_restart_that_is_faster_than_a_silence_is_no_cut_link() -> None:
    """The fellows have not missed the node, but its supervisor on this machine tells of a newer run."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(2, 1, 3, fellows=(1, 2, 3))
    watch.reports = {"n2": dataclasses.replace(started(watch), is_starting=False)}
    watch.run(2, 1, 3, fellows=(1, 2, 3), lost=(2,))
    assert CUT not in str([*watch.told.values()])


def test_the_end_of_an_unsupervised_node_is_dated_by_its_own_last_state(tmp_path: Path) -> None:
    me = identify(os.getpid())
    assert me is not None
    tmp_path.chmod(0o700)
    directory = RunDirectory(tmp_path).node("n1")
    directory.make()
    record = RunRecord(
        "u", "c", "n1", 7, "r", "", 10.0, NodePhase.RUNNING, "", 0, False, START_NS, START_NS,
        supervisor=msgspec.structs.replace(me, start_ticks=1),
    )  # fmt: skip
    directory.write_record(record)
    for ended_ns, told_ns in ((START_NS + S, START_NS + S), (START_NS - S, 0)):
        (directory.path / "state.json").write_text(json.dumps({"state": "TERMINATED", "time_ns": ended_ns}))
        found = SupervisorWatch({"OSPLTOOL_RUNDIR": str(tmp_path)}, 7).reports()["n1"]
        assert (found.is_dead, found.ended_ns) == (True, told_ns)


def test_the_end_of_a_run_whose_supervisor_was_killed_is_no_planned_one() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    run = Run(START_NS - 900 * S, 7, "1", START_NS - 700 * S, IN_ORDER)
    orphaned = fake.event(1, 2, START_NS - 701 * S, "", event="lifecycle.daemon-lost", level="WARNING")
    for events, told in (((), "in order"), ((orphaned,), "by itself: its supervisor was killed")):
        past = NodePast(node_id(2), "n2", events, (), (run,))
        watch.model.apply(Update(pasts=(past,), events=events), watch.now_ns)
        lines = card(View(watch.health, watch.now_ns, UNICODE), watch.model.nodes[node_id(2)])
        assert plain(lines[-1]).endswith(f" {told}")


def test_the_cause_that_a_node_of_another_host_told_is_kept_when_its_next_run_is_out_of_reach() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    orphaned = fake.event(1, 2, watch.now_ns, "", event="lifecycle.daemon-lost", level="WARNING")
    watch.model.apply(Update(events=(orphaned,)), watch.now_ns)
    watch.run(12, 1, 3, lost=(2,))
    watch.run(9, 1, 3, fellows=(1, 2, 3))
    (found,) = [one for one in watch.health.open if one.who == "n2"]
    told = "its supervisor was killed, and the node ended by itself"
    assert (found.what, found.why) == ("n2 is out of reach of this watch", told)


LAST_WORDS = fake.event(9, 2, START_NS + 20 * S + 1, "Durability destroyed", state="TERMINATED")

ORPHANED = msgspec.structs.replace(LAST_WORDS, event="lifecycle.daemon-lost", state="COMPLETE")


@pytest.mark.parametrize(
    ("events", "end", "late", "is_failure"),
    [
        ((LAST_WORDS,), "", 0, False),
        ((), IN_ORDER, 0, False),
        ((), IN_ORDER, 1, False),
        ((), UNKNOWN_END, 0, True),
        ((), "", 0, True),
        ((msgspec.structs.replace(LAST_WORDS, time_ns=START_NS + 19 * S),), "", 0, True),
        ((ORPHANED, LAST_WORDS), IN_ORDER, 0, True),
        ((ORPHANED, LAST_WORDS), IN_ORDER, 1, True),
    ],
)
def test_a_node_that_ended_in_order_did_not_fail_although_its_last_state_was_missed(
    events: tuple[NodeEvent, ...], end: str, late: int, *, is_failure: bool
) -> None:
    """Its next process shows itself within the same look of the watch, or the link was cut meanwhile."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.second += 1
    again = fake.snapshot(2, fake.name_space("Orders", 1), time_ns=watch.now_ns, started_ns=watch.now_ns - 1)
    heard = ReceivedSnapshot(msgspec.structs.replace(again, pid=77), watch.now_ns)
    runs = (Run(START_NS - 600 * S, 4002, "1", START_NS + 20 * S + 2, end), Run(watch.now_ns - 1, 77, "1"))
    pasts = (NodePast(node_id(2), "n2", (), (), runs),) if end else ()
    told = (
        [Update((heard,), events, pasts=pasts)]
        if not late
        else [Update((heard,), events), Update(pasts=pasts)]
    )
    for update in told:
        watch.model.apply(update, watch.now_ns)
    watch.health.update(watch.now_ns)
    assert watch.open == [("DUL-NODE-RESTARTED", "n2")] * is_failure
