"""Copies that are missing: no verdict calls that OK, and a split that heals is one incident."""

from __future__ import annotations

from typing import Any

import pytest

from ospltool.health.health import Health
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.console.watched import S
from tests.fake import START_NS
from tests.health.test_alarms import THREE, Watch
from tests.health.test_incidents import STEP_S, Ward, apart, healed, incompatible

ON_ALL_DISKS = Expectation(("n1", "n2", "n3"), (ExpectedSpace("ns1", copies=3, on_disk=3),))


class DeafWard(Ward):
    """A ward that does not hear some nodes while its watch is on the other side of a split."""

    def __init__(self) -> None:
        super().__init__(expected=ON_ALL_DISKS)
        self.unheard: tuple[str, ...] = ()
        self.lines: list[str] = []
        tell = self.watched.tell

        def tell_heard(update: Update) -> None:
            away = {self.watched.node(name) for name in self.unheard}
            heard = tuple(one for one in update.snapshots if one.snapshot.id not in away)
            tell(Update(heard, tuple(one for one in update.events if one.node not in away), update.notices))

        self.watched.tell = tell_heard  # type: ignore[method-assign]  # what is told passes here first

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            super().run(STEP_S)
            self.lines.append(self.health.verdict.text)


def test_a_split_that_heals_leaves_no_incident_of_copies() -> None:
    for unheard in (("n3",), ("n1", "n2")):
        ward = DeafWard()
        ward.start()
        ward.scenario.write("n1", 1, 2, 3)
        ward.run(2)
        ward.unheard = unheard
        apart(ward.scenario)
        ward.run(3)
        ward.scenario.write("n1", 4, 5)
        ward.scenario.write("n3", 100, 101, 102)
        ward.run(30)
        assert {one.code.id for one in ward.health.open} == {"DUL-NODE-GONE"}
        ward.unheard = ()
        ward.run(1)
        healed(ward.scenario)
        ward.run(10)
        ward.check()
        assert not [one for one in ward.told.values() if "COPIES" in one.code.id]


def test_what_is_missing_for_another_reason_than_lost_nodes_begins_when_they_are_heard() -> None:
    """The link is still cut when the watch hears both sides, which tell when they parted."""
    ward = DeafWard()
    ward.start()
    ward.unheard = ("n3",)
    apart(ward.scenario)
    ward.run(3)
    ward.scenario.write("n1", 4, 5)
    ward.scenario.write("n3", 100, 101, 102)
    ward.run(30)
    heard_ns = ward.watched.now_ns
    ward.unheard = ()
    ward.run(15)
    (found,) = ward.health.open
    assert found.code.id == "DUL-PARTIAL-MESH"
    assert found.since_ns < heard_ns - 30 * S
    assert not [one for one in ward.told.values() if "COPIES" in one.code.id]


@pytest.mark.parametrize("changes", [{"complete": False, "phase": "merge"}, {"filtered": True}])
def test_the_verdict_is_not_ok_while_a_copy_is_missing_although_all_nodes_are_in_state_complete(
    changes: dict[str, Any],
) -> None:
    """A node merges, or the copy that is missing is not yet an incident."""
    everybody = tuple(map(fake.fellow, (1, 2, 3)))
    model = SystemModel()
    health = Health(model, Expectation(("n1", "n2", "n3"), (ExpectedSpace("Orders", copies=3),)))
    said = []
    for second in range(24):
        now_ns = START_NS + second * S
        spaces = [
            fake.name_space("Orders", 1, **(changes if n == 3 and 12 <= second < 15 else {}))
            for n in (1, 2, 3)
        ]
        nodes = [fake.snapshot(n, one, time_ns=now_ns, fellows=everybody) for n, one in enumerate(spaces, 1)]
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in nodes)), now_ns)
        health.update(now_ns)
        said.append(health.verdict.text)
    complete = 3 if changes.get("complete", True) else 2
    text = f"STARTING · {complete} of 3 nodes complete · redundancy left 1 (Orders: 2 of 3 copies"
    assert said[13].startswith(text)
    assert said[10].startswith("OK · 3 of 3")
    assert said[-1].startswith("OK · 3 of 3")


def test_the_verdict_is_starting_while_nodes_may_come_back_after_the_loss_of_all() -> None:
    ward = DeafWard()
    ward.start()
    ward.scenario.kill("n1", "n2", "n3")
    ward.run(60)
    assert ward.health.verdict.word == "ERROR"
    ward.lines.clear()
    ward.scenario.start("n1", "n3")
    ward.run(40)
    assert ("DUL-NODE-GONE", "n2") in [(one.code.id, one.who) for one in ward.health.open]
    assert [line for line in ward.lines if line.startswith("OK")] == []
    assert [line for line in ward.lines if line.startswith("STARTING")]


def test_the_verdict_is_ok_again_if_what_is_missing_is_muted_or_stopped_in_order() -> None:
    ward = DeafWard()
    ward.start()
    ward.scenario.kill("n3")
    ward.run(6)
    ward.health.mute("DUL-NODE-GONE", "n3", 3600 * S)
    ward.run(10)
    assert ward.health.verdict.text.startswith("OK · 1 muted · 2 of 3 nodes complete")
    ward = DeafWard()
    ward.start()
    ward.scenario.stop("n3")
    ward.lines.clear()
    ward.run(10)
    assert ward.lines[-1].startswith("OK · 2 of 3 nodes complete")


def test_a_muted_node_that_was_never_heard_is_not_waited_for() -> None:
    """As soon as its incident begins: who looks once looks no longer than that."""
    dead = SupervisorReport("it had died", is_trouble=True, is_dead=True)
    watch = Watch(THREE, {"n3": dead})
    watch.run(1, 1, 2)
    watch.health.mute("DUL-NODE-GONE", "n3", 3600 * S)
    while watch.health.is_waiting:
        watch.run(1, 1, 2)
    assert watch.health.verdict.text.startswith("OK · 1 muted · 2 of 3 nodes complete")


def test_the_verdict_is_ok_again_if_the_node_that_does_not_fit_is_muted() -> None:
    plans = [incompatible(f"n{n}", "ns1.*") for n in (1, 2)]
    ward = Ward(*plans, incompatible("n3", "ns1.Reading"))
    ward.scenario.start()
    ward.run(12)
    ward.health.mute("DUL-INCOMPATIBLE", "n3", 3600 * S)
    ward.run(2)
    assert ward.health.verdict.text.startswith("OK · 1 muted · 3 of 3 nodes complete"), ward.health.verdict


def test_a_copy_that_nobody_has_is_missing_as_before_when_a_lost_node_is_back() -> None:
    """It is told at once again, with the beginning that it had."""
    ward = Ward(expected=Expectation(("n1", "n2", "n3"), (ExpectedSpace("ns1", copies=4),)))
    ward.scenario.start()
    ward.run(12)
    ward.check(("DUL-COPIES-LOW", "ns1"))
    began_ns = ward.health.open[0].since_ns
    ward.scenario.kill("n3")
    ward.run(20)
    ward.scenario.start("n3")
    ward.run(20)
    found = [one for one in ward.health.open if one.code.id == "DUL-COPIES-LOW"]
    assert [one.since_ns for one in found] == [began_ns]


@pytest.mark.parametrize(("starting", "word"), [("n2", "STARTING"), ("n1", "OK")])
def test_a_node_that_starts_again_after_an_orderly_stop_is_not_there_yet(starting: str, word: str) -> None:
    """Its fellow runs and misses it, and the supervisor of this machine knows that it comes."""
    model = SystemModel()
    heard = [ReceivedSnapshot(fake.snapshot(1, fake.name_space("ns1", 1), name="n1"), START_NS)]
    model.apply(Update(tuple(heard)), START_NS)
    reports = {starting: SupervisorReport("", is_starting=True, started_ns=START_NS)}
    health = Health(model, reports=lambda: reports)
    health.update(START_NS)
    assert health.verdict.word == word
