"""What is told of nodes whose supervisors are killed, start them, or start them again."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.supervisor.node_status import Condition, NodeStatus
from engine.supervisor.policy import NodePhase
from engine.supervisor.process_identity import identify
from engine.supervisor.rundir import NodeDirectory, RunDirectory, RunRecord
from ospltool.diagnostics.model import Severity
from ospltool.health.presence import Presence
from ospltool.health.supervisors import SupervisorWatch, report
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.supervision import SupervisorReport
from ospltool.views import incidents
from ospltool.views.cells import UNICODE, plain
from ospltool.views.view import View, node_state
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.test_alarms import THREE, Watch
from tui import panels

FELLOWS = (fake.fellow(1), fake.fellow(2))
ORPHANED = "Splicedaemon has gone away without stopping this service, terminating durability now..."
FAILED = "its supervisor saw at 01:03:21 UTC: the node ended unexpectedly (killed by signal 9) (restart 1)"


def test_the_end_of_a_node_whose_supervisor_was_killed_is_no_planned_stop() -> None:
    """It announces its end as at a stop that somebody asked for; the first event tells why."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    told = (
        fake.event(1, 3, watch.now_ns, ORPHANED, event="lifecycle.daemon-lost", level="WARNING"),
        fake.event(2, 3, watch.now_ns, "----ENTERING STATE----", state="TERMINATED"),
    )
    gone = FeedNotice(NoticeKind.NODE_LOST, watch.now_ns, "", node_id(3), in_order=True)
    watch.model.apply(Update(events=told, notices=(gone,)), watch.now_ns)
    watch.run(5, 1, 2)
    assert watch.open == [("DUL-NODE-GONE", "n3")]
    assert "its supervisor was killed" in watch.health.open[0].why
    assert watch.health.verdict.word == "ERROR"
    assert len(watch.rung) == 1
    assert watch.health.presence(watch.model.nodes[node_id(3)]) is Presence.GONE
    watch.run(20, 1, 2, 3, started_s=26)
    stops = fake.event(9, 3, watch.now_ns, "----ENTERING STATE----", state="TERMINATED")
    gone = dataclasses.replace(gone, time_ns=watch.now_ns)
    watch.model.apply(Update(events=(stops,), notices=(gone,)), watch.now_ns)
    watch.run(5, 1, 2)
    assert watch.open == []


def test_a_start_is_no_error_for_a_watch_that_was_there_first() -> None:
    """The supervisor of the first node is known a moment before the node is heard, and before the others."""
    watch = Watch(THREE)
    watch.run(50)
    assert watch.open == [("DUL-DOMAIN-LOST", "domain")]
    watch.reports = {"n1": SupervisorReport("", is_starting=True, started_ns=watch.now_ns, pid=1)}
    watch.run(2)
    watch.reports = {}
    watch.run(2, 1, started_s=50)
    watch.run(10, 1, 2, 3, started_s=50)
    assert {one.code.id for one in watch.health.every} == {"DUL-DOMAIN-LOST"}


def test_nodes_are_absent_when_the_first_one_does_not_come_in_its_time() -> None:
    watch = Watch(THREE)
    watch.run(50)
    watch.reports = {"n1": SupervisorReport("", is_starting=True, started_ns=watch.now_ns, pid=1)}
    watch.run(15)
    assert watch.open == [("DUL-NODE-ABSENT", "n2"), ("DUL-NODE-ABSENT", "n3")]


def comes(watch: Watch) -> SupervisorReport:
    return SupervisorReport(
        FAILED, is_trouble=True, is_dead=True, is_coming=True, failed_ns=watch.now_ns, failure=FAILED
    )


def runs(failed_ns: int) -> SupervisorReport:
    return SupervisorReport("", pid=7, failed_ns=failed_ns, failure=FAILED)


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "late caller"])
def test_a_node_that_its_supervisor_starts_again_is_silent_and_not_gone(is_watched: bool) -> None:
    watch = Watch(THREE)
    if is_watched:
        watch.run(20, 1, 2, 3)
    failed_ns = watch.now_ns
    watch.reports = {"n3": comes(watch)}
    watch.run(6, 1, 2, lost=(3,))
    (found,) = watch.health.open
    assert (found.code.id, found.who, found.severity) == ("DUL-NODE-SILENT", "n3", Severity.WARNING)
    watch.reports = {"n3": runs(failed_ns)}
    watch.run(2, 1, 2)
    assert [one.code.id for one in watch.health.every] == ["DUL-NODE-SILENT"]
    assert watch.rung == {}
    watch.run(4, 1, 2)
    assert watch.open == [("DUL-NODE-GONE" if is_watched else "DUL-NODE-ABSENT", "n3")]


def test_a_late_caller_is_told_of_a_restart_as_is_one_who_watched_it() -> None:
    watch = Watch(THREE)
    failed_ns = START_NS - 4 * S
    watch.reports = {"n3": dataclasses.replace(runs(failed_ns), pid=fake.snapshot(3).pid)}
    watch.run(3, 1, 2, 3, started_s=-1)
    (found,) = watch.health.open
    assert (found.code.id, found.who, found.why) == ("DUL-NODE-RESTARTED", "n3", FAILED)
    assert (found.severity, found.since_ns) == (Severity.WARNING, failed_ns)
    watch.run(6, 1, 2, 3, started_s=-1)
    assert watch.open == []


def test_what_a_supervisor_saw_is_told_once_and_is_no_cause_of_a_later_trouble() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    failed_ns = watch.now_ns
    watch.reports = {"n3": comes(watch)}
    watch.run(3, 1, 2, lost=(3,))
    watch.reports = {"n3": runs(failed_ns)}
    watch.run(3, 1, 2, 3, started_s=23)
    (found,) = watch.health.every
    assert found.why == FAILED
    watch.run(20, 1, 2, 3, started_s=23)
    watch.run(3, 1, 2)
    (found,) = watch.health.open
    assert found.who == "n3"
    assert FAILED not in found.why


def test_what_is_seen_of_a_node_is_dated_from_when_it_was_seen_first(tmp_path: Path) -> None:
    now_ns = START_NS
    seen = SupervisorWatch({"OSPLTOOL_RUNDIR": str(tmp_path)}, 7, lambda: now_ns)
    tmp_path.chmod(0o700)
    directory = RunDirectory(tmp_path).node("n1")
    directory.make()
    me = identify(os.getpid())
    assert me is not None
    failure = "the node ended unexpectedly (killed by signal 9)"
    record = RunRecord(
        "u", "c", "n1", 7, "r", "", 10.0, NodePhase.RESTARTING, failure, 1, False, 0, 0,
        supervisor=me, failure=failure, failed_ns=START_NS,
    )  # fmt: skip
    told = f"its supervisor saw at 01:03:20 UTC: {failure} (restart 1)"
    runs = msgspec.structs.replace(record, node=me, phase=NodePhase.RUNNING, reason="")
    for one, text in ((record, told), (runs, "")):
        directory.write_record(one)
        assert (seen.reports()["n1"].text, seen.reports()["n1"].failure) == (text, told)
    left_alone = msgspec.structs.replace(
        runs, restarts=0
    )  # FailureAction skip: it goes on in the same process
    for one, is_again in ((record, True), (runs, True), (left_alone, False)):
        directory.write_record(one)
        assert seen.reports()["n1"].restarts(START_NS + S) is is_again
    orphaned = msgspec.structs.replace(runs, node=None, supervisor=msgspec.structs.replace(me, start_ticks=1))
    directory.write_record(orphaned)
    for later_s in (4, 9):
        now_ns = START_NS + later_s * S
        found = seen.reports()["n1"].text
        assert found == "seen on its host at 01:03:24 UTC: it had died, its supervisor was killed"


def test_a_node_that_waits_for_room_is_not_to_be_started_but_to_be_given_room(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    directory = RunDirectory(tmp_path).node("n3")
    directory.make()
    me = identify(os.getpid())
    assert me is not None
    directory.write_record(
        RunRecord("u", "c", "n3", 7, "r", "/data/n3", 10.0, NodePhase.STARTING, "", 0, False, 0, 0, me, me)
    )
    problem = "/data/n3: no space left on device"
    state = {"pid": me.pid, "state": "INIT", "time_ns": 1, "problem": problem}
    (directory.path / "state.json").write_text(json.dumps(state), "utf-8")
    watch = Watch(THREE, SupervisorWatch({"OSPLTOOL_RUNDIR": str(tmp_path)}, 7, lambda: START_NS).reports())
    watch.run(20, 1, 2)
    (found,) = watch.health.open
    assert (found.code.id, found.what) == (
        "DUL-NODE-ABSENT",
        "n3 runs, waits for room to open its store, and was not heard since this watch began",
    )
    assert found.why == f"seen on its host at 01:03:20 UTC: it waited for room to open its store: {problem}"
    assert found.next == "Make room on the disk of /data/n3. The node goes on by itself."


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "late caller"])
def test_a_slow_start_begins_when_the_node_is_heard_if_it_was_awaited(is_watched: bool) -> None:
    """Before, it may have waited for room. Who comes late cannot know that."""
    watch = Watch(THREE)
    watch.run(20 if is_watched else 1, 1, 2)
    came_ns, started_ns = watch.now_ns + S, START_NS - 90 * S
    for _ in range(4):
        watch.run(1, 1, 2, fellows=(1, 2, 3))
        slow = fake.snapshot(
            3, state="FETCH_INITIAL", started_ns=started_ns, time_ns=watch.now_ns, fellows=FELLOWS
        )
        watch.model.apply(Update((ReceivedSnapshot(slow, watch.now_ns),)), watch.now_ns)
        watch.health.update(watch.now_ns)
    (found,) = [one for one in watch.health.open if one.code.id == "DUL-NOT-COMPLETE"]
    assert found.since_ns == (came_ns if is_watched else started_ns)


@pytest.mark.parametrize("which", ["process", "supervisor", "process and its supervisor"])
def test_the_next_step_about_a_process_that_is_stopped_is_to_continue_it(which: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    directory = RunDirectory(tmp_path).node("n1")
    directory.make()
    with subprocess.Popen(["sleep", "60"]) as node, subprocess.Popen(["sleep", "60"]) as supervisor:
        stopped = [
            one for one, name in ((node, "process"), (supervisor, "supervisor")) if name in which.split()
        ]
        try:
            for one in stopped:
                one.send_signal(signal.SIGSTOP)
                os.waitpid(one.pid, os.WUNTRACED)
            watcher, watched = identify(supervisor.pid), identify(node.pid)
            assert watcher is not None
            record = RunRecord(
                "u", "c", "n1", 7, "r", "", 10.0, NodePhase.RUNNING, "", 0, False, 0, 0, watcher, watched
            )
            directory.write_record(record)
            (found,) = SupervisorWatch({"OSPLTOOL_RUNDIR": str(tmp_path)}, 7).reports().values()
        finally:
            node.kill()
            supervisor.kill()
    assert f"`kill -CONT {' '.join(str(one.pid) for one in stopped)}`" in found.next
    assert found.stopped == tuple(one.pid for one in stopped)
    assert f"who stopped its {which}" in found.next
    assert f"{which.removeprefix('process and ')} {'are' if len(stopped) > 1 else 'is'} stopped" in found.text
    unwatched = "UTC: its supervisor was stopped (SIGSTOP, or a debugger)"
    assert found.unwatched.endswith(unwatched if supervisor in stopped else "")
    assert bool(found.unwatched) == (supervisor in stopped)


UNWATCHED = SupervisorReport(
    "it did not respond", is_trouble=True, pid=fake.snapshot(3).pid, unwatched="its supervisor was stopped",
    next="continue it",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, [("DUL-NODE-UNSUPERVISED", "n3")]),
        ({"pid": 1}, []),  # of another run: this one was started alone
        ({"unwatched": ""}, []),
    ],
    ids=["stopped", "another process", "watched"],
)
def test_a_node_that_nobody_watches_is_told_until_its_supervisor_goes_on(
    changes: dict[str, Any], told: list[tuple[str, str]]
) -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n3": dataclasses.replace(UNWATCHED, **changes)}
    watch.run(1, 1, 2, 3)
    assert watch.open == []
    watch.run(2, 1, 2, 3)
    assert watch.open == told
    for found in watch.health.open:
        assert (found.why, found.next) == ("its supervisor was stopped", "continue it")
        assert (found.severity, watch.health.verdict.word) == (Severity.WARNING, "WARNING")
    watch.reports = {}
    watch.run(3, 1, 2, 3)
    assert watch.open == []


def test_a_node_that_is_not_heard_and_names_a_thread_on_its_host_is_not_silent() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n3": SupervisorReport("", pid=fake.snapshot(3).pid, stuck="statusThread")}
    watch.run(12, 1, 2)
    assert [code for code, who in watch.open if who == "n3"] == ["DUL-NODE-STUCK"]
    (found,) = (one for one in watch.health.open if one.who == "n3")
    assert found.what == "n3 is not heard, and says on its host: statusThread does not proceed"
    watch.reports = {}
    watch.run(12, 1, 2, 3)
    assert watch.open == []


def test_a_node_that_ends_because_its_supervisor_was_killed_is_not_told_twice() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n3": UNWATCHED}
    watch.run(1, 1, 2, 3)
    dead = SupervisorReport("it had died", is_trouble=True, is_dead=True)
    watch.reports = {"n3": dead}
    watch.run(8, 1, 2, lost=(3,))
    assert [one.code.id for one in watch.health.every] == ["DUL-NODE-GONE"]


def row(watch: Watch, number: int, now_ns: int) -> str:
    """The state in the row of a node."""
    return node_state(View(watch.health, now_ns, UNICODE), watch.model.nodes[node_id(number)]).text


def test_the_verdict_changes_together_with_the_row_of_a_node() -> None:
    """However short the last examination is ago."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.run(2, 1, 2, fellows=(1, 2, 3))
    heard_ns = watch.model.nodes[node_id(3)].heard_ns
    watch.reports = {"n3": SupervisorReport("it had died", is_trouble=True, is_dead=True)}
    for late_ns, told in ((0, "OK"), (1, "ERROR")):
        now_ns = heard_ns + 2 * S + late_ns
        watch.health.update(now_ns)
        assert watch.health.verdict.word == told
        assert (row(watch, 3, now_ns) == "gone") is (late_ns > 0)


def test_the_row_of_a_node_says_what_its_incident_says() -> None:
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    watch.reports = {"n3": comes(watch)}
    watch.run(3, 1, 2, lost=(3,))
    assert (watch.open, row(watch, 3, watch.now_ns)) == ([("DUL-NODE-SILENT", "n3")], "silent")
    watch.reports = {}
    watch.run(1, 1, 2)
    assert (watch.open, row(watch, 3, watch.now_ns)) == ([("DUL-NODE-GONE", "n3")], "gone")


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "late caller"])
def test_nobody_is_heard_after_an_orderly_stop_for_a_reason_and_with_a_next_step(is_watched: bool) -> None:
    watch = Watch(dataclasses.replace(THREE, file="my fleet.toml"))
    if is_watched:
        watch.run(9, 1, 2, 3)
        ends = tuple(
            FeedNotice(NoticeKind.NODE_LOST, watch.now_ns, "", node_id(n), in_order=True) for n in (1, 2, 3)
        )
        watch.model.apply(Update(notices=ends), watch.now_ns)
    else:
        ended = SupervisorReport("it ended in order", in_order=True, ended_ns=START_NS + 9 * S)
        watch.reports = dict.fromkeys(("n1", "n2", "n3"), ended)
    watch.run(6)
    verdict = watch.health.verdict
    assert (verdict.word, watch.open) == ("UNKNOWN", [])
    assert verdict.why == "n1, n2 and n3 ended in order, the last at 01:03:29 UTC"
    assert verdict.next == "Start them again with `ospltool start 'my fleet.toml'`."
    view = View(watch.health, watch.now_ns, UNICODE)
    assert verdict.why in " ".join(plain(line) for line in panels.caption_lines(view, 200))
    assert verdict.why in plain(incidents.none_lines(view)[0])
    watch.run(2, 1, 2, 3, started_s=16)
    assert (watch.health.verdict.why, watch.health.verdict.next) == ("", "")


def status(condition: Condition, problem: str = "", *, runs: bool = True) -> NodeStatus:
    """The status of a node that has been started and, unless it `runs`, was killed since."""
    me = identify(os.getpid())
    assert me is not None
    node = me if runs else msgspec.structs.replace(me, start_ticks=1)
    record = RunRecord(
        "n1.xml", "/n1.xml", "n1", 0, "Depot", "/store", 10.0, NodePhase.RUNNING, "", 0,
        is_unresponsive=False, started_ns=START_NS, changed_ns=START_NS, supervisor=me, node=node,
    )  # fmt: skip
    return NodeStatus(
        NodeDirectory(Path("/run/n1")), record, condition, "COMPLETE", 1, "", store_problem=problem
    )


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (Condition.OPERATIONAL, ""),
        (Condition.UNRESPONSIVE, "it did not respond, its store refused: no space left"),
    ],
)
def test_a_store_that_refuses_is_no_cause_of_the_loss_of_a_node_that_runs(
    condition: Condition, told: str
) -> None:
    """As of one that was stopped, and runs, and is not heard yet."""
    found = report(status(condition, "no space left"), START_NS)
    assert found.text == (f"seen on its host at 01:03:20 UTC: {told}" if told else "")
    assert not found.is_dead


def test_a_node_that_died_while_its_supervisor_was_stopped_is_dead_and_did_not_only_not_respond() -> None:
    found = report(status(Condition.UNRESPONSIVE, runs=False), START_NS)
    assert found.text == "seen on its host at 01:03:20 UTC: its process had ended"
    assert (found.is_dead, found.pid, found.ended_ns) == (True, 0, 0)
