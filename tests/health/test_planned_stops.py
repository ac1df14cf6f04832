"""What is told of a node that is told to stop and does not end by itself, and of its next start."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

import pytest

from engine.supervisor.policy import NodePhase
from engine.supervisor.process_identity import identify
from engine.supervisor.rundir import RunDirectory, RunRecord
from ospltool.health.causes import RootCause
from ospltool.health.codes import Sign
from ospltool.health.effects import described
from ospltool.health.health import Health
from ospltool.health.incidents import Incidents
from ospltool.health.news import IncidentNews
from ospltool.health.presence import HealthInput
from ospltool.health.supervisors import SupervisorWatch
from ospltool.live.feed import FeedNotice, NoticeKind, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.test_alarms import THREE, Watch

HANGS = SupervisorReport("it was stopping", pid=4003)
STARTS = SupervisorReport("", is_starting=True)


Told = tuple[str, str, str]


def ended(watch: Watch) -> SupervisorReport:
    """The supervisor had to kill it: it sent no farewell, and yet somebody had asked for its end."""
    return SupervisorReport("it ended in order", in_order=True, ended_ns=watch.now_ns)


def followed(
    watch: Watch, news: IncidentNews, seconds: int, *heard: int, started_s: int = -600
) -> list[Told]:
    """What is told in some seconds in which these nodes are heard."""
    told = []
    for _ in range(seconds):
        watch.run(1, *heard, started_s=started_s)
        told += [(how, one.code.id, one.who) for how, one in news.changes(watch.health, float(watch.second))]
    return told


@pytest.mark.parametrize("pause_s", [1, 20])
def test_the_start_of_a_node_that_hung_when_it_was_stopped_is_no_second_loss(pause_s: int) -> None:
    watch, news = Watch(THREE), IncidentNews(5.0)
    watch.run(20, 1, 2, 3)
    told = []
    watch.reports = {"n3": HANGS}
    told += followed(watch, news, 10, 1, 2)
    watch.reports = {"n3": ended(watch)}
    told += followed(watch, news, pause_s, 1, 2)
    watch.reports = {"n3": STARTS}
    told += followed(watch, news, 2, 1, 2)
    watch.reports = {}
    told += followed(watch, news, 8, 1, 2, 3, started_s=watch.second)
    loss = [one for one in told if one[1].startswith("DUL-NODE")]
    assert loss[0][0] == "began"
    assert [how for how, *_ in loss].count("began") == 1
    assert [how for how, *_ in loss].count("ended") == 1
    assert {one[1] for one in told} <= {"DUL-NODE-SILENT", "DUL-NODE-GONE"}
    assert watch.open == []


def test_an_incident_that_is_over_stays_over_when_its_cause_returns_with_the_old_beginning() -> None:
    scene = HealthInput(SystemModel(), START_NS)
    found = Incidents()
    cause = RootCause(Sign("DUL-NODE-GONE", "n3", "n3 is gone", START_NS, (node_id(3),)))
    for second in range(40):
        present = [] if 10 <= second < 30 else [cause]
        found.update(present, START_NS + second * S, lambda one: described(scene, one, ""))
    (over,) = found.closed
    (back,) = found.open
    assert over.key != back.key
    assert back.since_ns == over.until_ns


LEFT = {
    "ended in order": SupervisorReport("it ended in order", in_order=True, ended_ns=START_NS - 9_000 * S),
    "failed": SupervisorReport("it failed", is_trouble=True, is_dead=True, ended_ns=START_NS - 9_000 * S),
    "was killed": SupervisorReport("died", is_trouble=True, is_dead=True, started_ns=START_NS - 9_000 * S),
    "was a copy": SupervisorReport(
        "died", is_trouble=True, is_dead=True, started_ns=START_NS, seen_ns=START_NS
    ),
}
"""What the supervisor of a node left on this machine, before the node was moved to another one."""


@pytest.mark.parametrize("how", LEFT)
def test_what_is_left_of_a_node_that_was_moved_to_another_host_says_nothing_of_it(how: str) -> None:
    watch = Watch(THREE, {"n3": LEFT[how]})
    watch.health = Health(watch.model, THREE, reports=lambda: watch.reports, here=("10.0.0.1",))
    watch.run(20, 1, 2, 3)
    watch.run(6, 1, 2, lost=(3,))
    (found,) = watch.health.open
    assert (found.code.id, found.who) == ("DUL-NODE-GONE", "n3")
    assert LEFT[how].text not in found.why
    assert watch.health.verdict.word == "ERROR"


def test_a_node_that_hangs_when_it_is_told_to_stop_is_told_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    directory = RunDirectory(tmp_path).node("n3")
    directory.make()
    me = identify(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as node:
        try:
            node.send_signal(signal.SIGSTOP)
            os.waitpid(node.pid, os.WUNTRACED)
            assert me is not None
            directory.write_record(
                RunRecord(
                    "u", "c", "n3", 7, "r", "", 10.0, NodePhase.STOPPING, "stopped by SIGTERM", 0, False,
                    0, 0, me, identify(node.pid),
                )
            )  # fmt: skip
            seen = SupervisorWatch({"OSPLTOOL_RUNDIR": str(tmp_path)}, 7, lambda: START_NS)
            (found,) = seen.reports().values()
        finally:
            node.kill()
    assert found.text == (
        "seen on its host at 01:03:20 UTC: it was stopping, stopped by SIGTERM, its process was stopped "
        "(SIGSTOP, or a debugger)"
    )
    assert found.next == "Wait: its supervisor ends it by force if it does not end by itself."


def test_a_node_that_was_stopped_and_does_not_start_again_is_told() -> None:
    """As to who looks late. It is over when its supervisor's report is forgotten, or the node is back."""
    watch = Watch(THREE)
    watch.run(20, 1, 2, 3)
    gone = FeedNotice(NoticeKind.NODE_LOST, watch.now_ns, "", node_id(3), in_order=True)
    watch.model.apply(Update(notices=(gone,)), watch.now_ns)
    watch.run(9, 1, 2)
    assert (watch.open, watch.health.verdict.word) == ([], "OK")
    began_ns = watch.now_ns + S
    failed = SupervisorReport(
        "the store is in use", is_trouble=True, is_dead=True, never_ran=True, started_ns=began_ns,
        ended_ns=began_ns + 1,
    )  # fmt: skip
    for reports, heard in (({}, (1, 2)), ({}, (1, 2, 3))):
        watch.reports = {"n3": dataclasses.replace(failed, is_coming=True, failed_ns=began_ns + 1)}
        watch.run(1, 1, 2)
        watch.reports = {"n3": failed}
        watch.run(2, 1, 2)
        (found,) = watch.health.open
        assert (found.code.id, found.who, found.why) == ("DUL-NODE-NOT-STARTED", "n3", "the store is in use")
        assert found.what == "n3 was stopped, and its next start has failed"
        assert found.since_ns >= began_ns
        watch.reports = reports
        watch.run(4, *heard, started_s=watch.second if len(heard) == 3 else -600)
        assert watch.open == []
    assert [one.code.id for one in watch.health.closed] == ["DUL-NODE-NOT-STARTED"] * 2
