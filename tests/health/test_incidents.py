"""Incidents of simulated systems from beginning to end: none is missed, none is told twice, all end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from engine.core.name_spaces import NameSpace
from engine.simulator.options import NodePlan
from ospltool.health.codes import STILL_STOPPED
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.console.watched import S, Watched
from tests.fake import START_NS, node_id
from tests.health.looking import looked
from tests.simulation.scenarios import Scenario, node

THREE = Expectation(("n1", "n2", "n3"), (ExpectedSpace("ns1", copies=3, on_disk=2),))
STEP_S = 0.25
ENDS_S = 10.0


class Ward:
    """A simulated system whose health is looked at four times a second; `told` has every incident."""

    def __init__(self, *plans: NodePlan, expected: Expectation = THREE) -> None:
        self.scenario = Scenario(*(plans or (node("n1"), node("n2"), node("n3"))))
        self.watched = Watched(self.scenario)
        self.health = Health(self.watched.model, expected)
        self.told: dict[str, Incident] = {}
        self.seen: set[tuple[str, str]] = set()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.scenario.run(STEP_S)
            self.watched.take()
            self.health.update(self.watched.now_ns)
            for one in (*self.health.open, *self.health.closed):
                self.told[one.key] = one
                self.seen.add((one.code.id, one.who))

    def start(self) -> None:
        self.scenario.start()
        self.run(8)
        self.check()

    def check(self, *expected: tuple[str, str]) -> None:
        """These are open now, and nothing else."""
        assert [(one.code.id, one.who) for one in self.health.open] == list(expected)

    def check_over(self, *expected: str) -> None:
        """In all there were incidents of these subjects, each once, and all have ended."""
        self.check()
        assert sorted(one.who for one in self.told.values()) == sorted(expected)
        assert all(one.until_ns > one.since_ns for one in self.told.values())


def test_healthy_starts_and_orderly_stops_are_no_incidents() -> None:
    ward = Ward()
    ward.start()
    for name in ("n1", "n2", "n3"):
        ward.scenario.stop(name)
        ward.run(5)
        ward.scenario.start(name)
        ward.run(8)
    ward.check_over()


def killed(scenario: Scenario) -> None:
    scenario.kill("n2")


def restarted(scenario: Scenario) -> None:
    scenario.start("n2")


def cut(scenario: Scenario) -> None:
    scenario.cut("n1", "n2")


def apart(scenario: Scenario) -> None:
    for other in ("n1", "n2"):
        scenario.cut(other, "n3")


def healed(scenario: Scenario) -> None:
    scenario.heal()


FAULTS: dict[str, tuple[Callable[[Scenario], None], Callable[[Scenario], None], str, str]] = {
    "a node is killed": (killed, restarted, "DUL-NODE-GONE", "n2"),
    "two of three do not hear each other": (cut, healed, "DUL-PARTIAL-MESH", "n1 and n2"),
    "one is cut off": (apart, healed, "DUL-PARTIAL-MESH", "n3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_incident_from_its_beginning_to_its_end(name: str) -> None:
    begin, end, code, who = FAULTS[name]
    ward = Ward()
    ward.start()
    ward.scenario.write("n1", 1, 2, 3)
    ward.run(3)
    begin(ward.scenario)
    ward.run(6)
    ward.check((code, who))
    (found,) = ward.health.open
    assert found.why
    assert found.next
    assert found.since_ns <= ward.watched.now_ns - 2 * S
    assert ward.health.events(found)
    ward.run(10)
    ward.check((code, who))
    end(ward.scenario)
    ward.run(ENDS_S)
    ward.check()
    kinds = {one.code.cause for one in ward.told.values()}
    assert kinds - {"conflict"} == {found.code.cause}
    assert sum(one.code.cause == found.code.cause for one in ward.told.values()) == 1


def test_what_a_lost_node_costs_is_said() -> None:
    ward = Ward()
    ward.start()
    ward.scenario.write("n1", 1, 2, 3)
    ward.run(3)
    master = ward.scenario.master("n1")
    ward.scenario.kill(master)
    ward.run(6)
    (found,) = ward.health.open
    others = [name for name in ("n1", "n2", "n3") if name != master]
    assert found.effect.startswith("ns1: 2 of 3 copies, 2 of 2 on disk, ")
    assert any(f"{name} is master, nothing lost" in found.effect for name in others)
    assert ward.health.verdict.text.startswith(
        "ERROR · 1 error · 2 of 3 nodes complete · redundancy left 1 ("
    )


def test_a_second_lost_node_is_another_incident_and_the_last_copy_is_named() -> None:
    ward = Ward()
    ward.start()
    ward.scenario.kill("n3")
    ward.run(4)
    ward.scenario.kill("n2")
    ward.run(4)
    ward.check(("DUL-NODE-GONE", "n3"), ("DUL-NODE-GONE", "n2"))
    first, second = (one.effect for one in ward.health.open)
    assert "1 of 3 copies, 1 of 2 on disk, the last copy" in first
    assert second == "ns1: nothing lost; copies and masters as in DUL-NODE-GONE n3"
    assert " · redundancy left 0: the last copy (ns1: 1 of 3 copies" in ward.health.verdict.text
    ward.scenario.start("n2", "n3")
    ward.run(12)
    ward.check_over("n2", "n3")


def test_a_node_that_is_killed_again_as_soon_as_it_is_back_is_lost_since_then() -> None:
    """Its return is told for five seconds."""
    ward = Ward()
    ward.start()
    ward.scenario.kill("n1", "n2")
    ward.run(6)
    ward.scenario.start("n1")
    ward.run(3)
    (back,) = [one for one in ward.health.open if one.who == "n1"]
    killed_ns = ward.watched.now_ns
    ward.scenario.kill("n1")
    ward.run(6)
    (again,) = [one for one in ward.health.open if one.who == "n1"]
    (ended,) = [one for one in ward.health.closed if one.who == "n1"]
    assert [one.code.id for one in (back, again)] == ["DUL-NODE-RESTARTED", "DUL-NODE-GONE"]
    assert abs(again.since_ns - killed_ns) < S
    assert (ended.key, ended.until_ns, again.times) == (back.key, again.since_ns, 2)


def incompatible(name: str, *elements: str) -> NodePlan:
    plan = node(name)
    spaces = (NameSpace.parse("ns1", *elements),)
    return msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, name_spaces=spaces))


@pytest.mark.parametrize("elements", ["ns1.Reading", "other.*"])
def test_the_copy_that_a_node_with_wrong_name_spaces_lacks_is_part_of_its_incident(elements: str) -> None:
    plans = [incompatible(f"n{n}", "ns1.*") for n in (1, 2)]
    ward = Ward(*plans, incompatible("n3", elements), expected=THREE)
    ward.scenario.start()
    ward.run(12)
    assert set(ward.seen) <= {("DUL-INCOMPATIBLE", "n3"), ("DUL-INCOMPATIBLE", "n1 and n3")}
    ward.check(("DUL-INCOMPATIBLE", "n3"))
    (found,) = ward.health.open
    assert "2 of 3 copies" in found.effect
    assert "no further node" not in found.why


def test_one_node_with_wrong_name_spaces_is_one_incident_about_that_node() -> None:
    plans = [incompatible(f"n{n}", "ns1.*") for n in (1, 2, 4)]
    ward = Ward(*plans, incompatible("n3", "ns1.Reading"), expected=Expectation())
    ward.scenario.start()
    ward.run(12)
    ward.check(("DUL-INCOMPATIBLE", "n3"))
    (found,) = ward.health.open
    assert found.what.startswith("n3 does not communicate with n1, n2 and n4: ")
    definitions = {"n3": "ns1.Reading", **dict.fromkeys(("n1", "n2", "n4"), "ns1.*")}
    told = found.what.partition(": ")[2]
    said = re.fullmatch(r"(n\d) defines name-space 'ns1' as (\S+), (n\d) as (\S+)", told)
    assert said
    assert definitions[said[1]] == said[2]
    assert definitions[said[3]] == said[4]
    assert found.why == "the configuration of n3 defines name-spaces in another way than n1, n2 and n4"
    assert [ward.watched.model.name_of(one) for one in found.subjects] == ["n3"]
    assert len(found.nodes) > 1
    ward.scenario.stop("n3")
    ward.run(ENDS_S)
    ward.check_over("n3")


def test_nobody_may_be_master_is_one_incident_until_somebody_may() -> None:
    ward = Ward(node("n1"), node("n2", priority=0), node("n3", priority=0), expected=Expectation())
    ward.scenario.start("n2", "n3")
    ward.run(5)
    ward.check(("DUL-MASTER-IMPOSSIBLE", "ns1"))
    ward.scenario.start("n1")
    ward.run(ENDS_S)
    ward.check_over("ns1")


def test_an_expected_node_that_is_not_there_is_absent_until_it_comes() -> None:
    ward = Ward()
    ward.scenario.start("n1", "n2")
    ward.run(5)
    ward.check()
    ward.run(6)
    ward.check(("DUL-NODE-ABSENT", "n3"))
    assert ward.health.open[0].effect == "ns1: 2 of 3 copies, 2 of 2 on disk, n2 is master"
    ward.scenario.start("n3")
    ward.run(ENDS_S)
    ward.check_over("n3")


def test_nobody_of_those_expected_is_one_incident() -> None:
    ward = Ward()
    ward.run(5)
    ward.check(("DUL-DOMAIN-LOST", "domain"))


def test_a_power_failure_is_one_incident_and_a_stop_of_all_is_none() -> None:
    for stops in (True, False):
        ward = Ward()
        ward.start()
        (ward.scenario.stop if stops else ward.scenario.kill)("n1", "n2", "n3")
        ward.run(1)
        ward.watched.tell(Update(notices=(FeedNotice(NoticeKind.DOMAIN_LOST, ward.watched.now_ns, ""),)))
        ward.run(4)
        ward.check(*(() if stops else (("DUL-DOMAIN-LOST", "domain"),)))
        assert ward.health.verdict.word == ("UNKNOWN" if stops else "ERROR")
        assert " · no copy in reach (ns1: 0 of 3 copies, 0 of 2 on disk)" in ward.health.verdict.text


# Bounds, times and places.


def silent_then_heard(*moments: float) -> tuple[SystemModel, Health]:
    """A node that is heard at these moments only."""
    model = SystemModel()
    health = Health(model)
    for tenth in range(round(moments[-1] * 10) + 1):
        now_ns = START_NS + tenth * S // 10
        heard = [moment for moment in moments if round(moment * 10) == tenth]
        update = Update((ReceivedSnapshot(fake.snapshot(1, time_ns=now_ns), now_ns),)) if heard else Update()
        model.apply(update, now_ns)
        health.update(now_ns)
    return model, health


def test_what_comes_back_soon_is_another_incident_that_counts_the_one_before() -> None:
    _, health = silent_then_heard(0, 5, 6, 7, 8, 13, 14, 15, 16, 17)
    found = [(one.code.id, one.times, one.since_ns) for one in health.closed]
    assert found == [("DUL-NODE-SILENT", 2, START_NS + 8 * S), ("DUL-NODE-SILENT", 1, START_NS)]
    _, health = silent_then_heard(0, 5, *range(6, 30), 35, 36, 37, 38, 39)
    assert [one.times for one in health.closed] == [1, 1]


def test_each_return_of_a_node_that_is_heard_now_and_then_has_its_own_beginning() -> None:
    _, health = silent_then_heard(0, 5, 8.5, 12)
    (found,) = health.open
    assert (found.times, found.since_ns) == (3, START_NS + 17 * S // 2)
    assert [one.since_ns for one in health.closed] == [START_NS + 5 * S, START_NS]


def test_an_acknowledged_incident_stays_until_it_gets_worse() -> None:
    model = SystemModel()
    model.apply(Update((ReceivedSnapshot(fake.snapshot(1), START_NS),)), START_NS)
    health = looked(model, START_NS + 3 * S)
    (found,) = health.open
    assert health.acknowledge(found.key)
    assert not health.acknowledge("nothing")
    health.update(START_NS + 4 * S)
    assert health.open[0].acknowledged_ns == START_NS + 3 * S
    model.apply(Update(notices=(FeedNotice(NoticeKind.NODE_LOST, START_NS + 5 * S, "", node_id(1)),)), 0)
    health.update(START_NS + 5 * S)
    (found,) = health.open
    assert (found.code.id, found.acknowledged_ns) == ("DUL-NODE-GONE", 0)


def test_what_is_over_is_as_grave_as_it_was_at_its_worst() -> None:
    model = SystemModel()
    health = Health(model)
    for second in range(30):
        now_ns = START_NS + second * S
        heard = fake.snapshot(1, time_ns=now_ns, started_ns=START_NS + (10 * S if second > 9 else 0))
        gone = (FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(1)),) if second == 5 else ()
        alive = (ReceivedSnapshot(heard, now_ns),) if not 2 < second < 10 else ()
        model.apply(Update(alive, notices=gone), now_ns)
        health.update(now_ns)
    assert [(one.who, one.severity.name) for one in health.closed] == [("n1", "ERROR")]


@pytest.mark.parametrize("is_told", [False, True])
def test_a_known_cause_stays_when_a_gone_node_is_back_in_a_new_process(is_told: bool) -> None:
    """The new supervisor does not know why the last run failed; the watcher does."""
    model = SystemModel()
    reports: dict[str, SupervisorReport] = {}
    health = Health(model, reports=lambda: reports)
    for second in range(20):
        now_ns = START_NS + second * S
        is_back = second > 9
        reports = (
            {"n1": SupervisorReport("seen on its host: has died", next="Start it.")}
            if 2 < second < 10
            else {}
        )
        if is_told and is_back:
            reports = {"n1": SupervisorReport("", failure="its supervisor saw at 01:03:28 UTC: a crash")}
        heard = fake.snapshot(1, time_ns=now_ns, pid=1 + is_back, started_ns=START_NS + 10 * S * is_back)
        gone = (FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(1)),) if second == 5 else ()
        alive = (ReceivedSnapshot(heard, now_ns),) if not 2 < second < 10 else ()
        model.apply(Update(alive, notices=gone), now_ns)
        health.update(now_ns)
        if second == 8:
            assert [(one.code.id, one.next) for one in health.open] == [("DUL-NODE-GONE", "Start it.")]
    (found,) = health.every
    more = "; its supervisor saw at 01:03:28 UTC: a crash" if is_told else ""
    assert (found.code.id, found.why) == ("DUL-NODE-RESTARTED", f"seen on its host: has died{more}")


def test_a_known_cause_stays_while_the_node_starts_and_its_new_supervisor_knows_of_none() -> None:
    """While the new process is not heard yet, silence beside a fellow on its host tells less than before."""
    model = SystemModel()
    reports: dict[str, SupervisorReport] = {}
    health = Health(model, reports=lambda: reports)
    died = SupervisorReport("seen on its host: has died", is_trouble=True, is_dead=True)
    for second in range(20):
        now_ns = START_NS + second * S
        is_back = second > 12
        reports = {"n1": died if 2 < second < 10 else SupervisorReport("", is_starting=9 < second < 13)}
        fellow = fake.snapshot(2, time_ns=now_ns, host="vm")
        began_ns = START_NS + 13 * S * is_back
        heard = fake.snapshot(1, time_ns=now_ns, pid=1 + is_back, started_ns=began_ns, host="vm")
        gone = (FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(1)),) if second == 5 else ()
        alive = (heard, fellow) if not 2 < second < 13 else (fellow,)
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in alive), notices=gone), now_ns)
        health.update(now_ns)
    (found,) = [one for one in health.every if one.who == "n1"]
    assert (found.code.id, found.why) == ("DUL-NODE-RESTARTED", "seen on its host: has died")
    assert found.next.startswith("Read its ospl-error.log: ")


FOUND_STOPPED = "Find out who stopped its process."
CONTINUED = f"{FOUND_STOPPED} {STILL_STOPPED.format('77')}"


def watched_until_silent(second_s: int, silent: range, *, stalled_s: int = -1) -> Health:
    """The health at `second_s` of a node that its supervisor knows to be stopped while it is silent."""
    model = SystemModel()
    words: dict[str, SupervisorReport] = {}
    health = Health(model, reports=lambda: words)
    text = (
        "This node stood still for 4.573252969 seconds; the silence of its "
        "fellows in that time does not count."
    )
    for second in range(second_s + 1):
        now_ns = START_NS + second * S
        words = (
            {"n1": SupervisorReport("its supervisor says: stopped by SIGSTOP", next=CONTINUED)}
            if second in silent
            else {}
        )
        told = fake.event(1, 1, now_ns, text, event="watch.stalled", level="WARNING")
        heard = fake.snapshot(1, time_ns=now_ns)
        alive = (ReceivedSnapshot(heard, now_ns),) if second not in silent else ()
        model.apply(Update(alive, (told,) if second == stalled_s else ()), now_ns)
        health.update(now_ns)
    return health


def test_a_node_that_was_silent_and_stood_still_is_one_incident_with_the_known_cause() -> None:
    health = watched_until_silent(11, range(5, 10), stalled_s=10)
    (found,) = health.open
    assert (found.code.id, found.why, health.closed) == (
        "DUL-NODE-STALLED",
        "its supervisor says: stopped by SIGSTOP",
        [],
    )
    assert "stood still for 4.6 seconds;" in found.what
    assert found.next == FOUND_STOPPED
    for second in (9, 10):
        (found,) = watched_until_silent(second, range(5, 10)).open
        assert found.next == (CONTINUED if second == 9 else FOUND_STOPPED), "it runs, and has not told more"


def test_the_known_causes_of_its_nodes_are_those_of_a_lost_domain() -> None:
    model = SystemModel()
    model.apply(
        Update(tuple(ReceivedSnapshot(fake.snapshot(number), START_NS) for number in (1, 2, 3))), START_NS
    )
    gone = tuple(FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(number)) for number in (1, 2, 3))
    model.apply(Update(notices=(*gone, FeedNotice(NoticeKind.DOMAIN_LOST, START_NS, ""))), START_NS)
    reports = {name: SupervisorReport("seen on its host: has died") for name in ("n1", "n2")}
    (found,) = looked(model, START_NS + 3 * S, reports=reports).open
    assert (found.code.id, found.why) == ("DUL-DOMAIN-LOST", "n1 and n2: seen on its host: has died")


def test_a_recording_that_is_wound_back_begins_anew() -> None:
    model = SystemModel()
    model.apply(Update((ReceivedSnapshot(fake.snapshot(1), START_NS),)), START_NS)
    health = looked(model, START_NS + 3 * S)
    assert health.open
    model.apply(Update((ReceivedSnapshot(fake.snapshot(1), START_NS),), restart=True), START_NS)
    health.update(START_NS)
    assert (health.open, health.closed) == ([], [])


def test_a_recording_that_is_wound_on_keeps_the_incidents_that_were_seen() -> None:
    """Those that have not begun at the moment that it is wound back to are forgotten."""
    model = SystemModel()
    model.apply(Update((ReceivedSnapshot(fake.snapshot(1), START_NS),)), START_NS)
    health = looked(model, START_NS + 3 * S)
    (seen,) = health.open
    for moment_s, closed in ((600, [seen.key]), (0, [])):
        now_ns = START_NS + moment_s * S
        update = Update((ReceivedSnapshot(fake.snapshot(1, time_ns=now_ns), now_ns),), restart=True)
        model.apply(update, now_ns)
        health.update(now_ns)
        assert [one.key for one in health.closed] == closed
        assert health.open == []


def many(count: int) -> Any:
    """A lot of nodes that are silent, each of its own."""
    everybody = tuple(fake.fellow(n) for n in range(1, count + 1))
    return tuple(ReceivedSnapshot(fake.snapshot(n, fellows=everybody), START_NS) for n in range(1, count + 1))


def test_open_incidents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.health.incidents.MAX_OPEN", 3)
    model = SystemModel()
    model.apply(Update(many(5)), START_NS)
    model.apply(Update((ReceivedSnapshot(fake.snapshot(6), START_NS + 2 * S),)), START_NS + 2 * S)
    health = looked(model, START_NS + 3 * S)
    assert len(health.open) == 3
