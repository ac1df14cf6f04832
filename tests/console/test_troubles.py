"""What is said to be wrong now: it is so, it is all, it comes first what matters most, and it ends."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.core.name_spaces import MergeType, NameSpace
from engine.runtime.monitor import GroupView
from engine.simulator.options import NodePlan
from ospltool.health import export
from ospltool.health.health import Health
from ospltool.live.conflicts import ReportedConflict
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder
from ospltool.live.replay import ReplayFeed
from ospltool.views import name_space
from ospltool.views.cells import plain
from ospltool.views.incidents import summary
from ospltool.views.overview import Overview
from tests import fake
from tests.console.watched import S, Watched
from tests.fake import START_NS, node_id
from tests.health.looking import incidents
from tests.simulation.scenarios import SLOW, Scenario, node
from tui.screens import findings


def started(*plans: NodePlan, **options: Any) -> Watched:
    scenario = Scenario(*(plans or (node("n1"), node("n2"), node("n3"))), **options)
    watched = Watched(scenario)
    scenario.start()
    scenario.until(lambda: all(map(scenario.is_operational, scenario.names)))
    return watched


def texts(watched: Watched) -> list[str]:
    watched.take()
    return [one.what for one in incidents(watched.model, watched.now_ns)]


def conflicts(watched: Watched) -> list[ReportedConflict]:
    watched.take()
    found = watched.model.conflicts.every(watched.model.nodes)
    shown = export.system(Health(watched.model), watched.now_ns)["conflicts"]
    assert shown == [dataclasses.asdict(one) for one in found]
    return found


def still_open(watched: Watched) -> list[ReportedConflict]:
    return [one for one in conflicts(watched) if not one.ended_ns]


# Conflicts and merges.


def parted(**options: Any) -> Watched:
    """Two nodes that were apart, each with samples that the other lacks; they reach each other again."""
    watched = started(node("n1"), node("n2"), network=SLOW, **options)
    scenario = watched.scenario
    scenario.write("n1", *range(40), size=100)
    scenario.run(5)
    scenario.split("n1", "n2")
    scenario.write("n1", *range(40, 43), size=100)
    scenario.write("n2", *range(100, 106), size=100)
    scenario.heal()
    return watched


def test_nobody_is_troubled_by_a_healthy_start_and_an_orderly_stop() -> None:
    scenario = Scenario(*(node(name) for name in ("n1", "n2", "n3")))
    watched = Watched(scenario)
    health = Health(watched.model)
    seen: set[str] = set()

    def look() -> None:
        scenario.run(0.1)
        watched.take()
        health.update(watched.now_ns)
        seen.update(one.what for one in health.open)

    for name in scenario.names:
        scenario.start(name)
        for _ in range(20):
            look()
    scenario.until(scenario.complete)
    for name in scenario.names[:2]:
        scenario.stop(name)
        for _ in range(60):
            look()
    assert seen == set()
    assert not still_open(watched)
    view = watched.view()
    told = " ● OK · 1 of 1 node complete · redundancy left 0: the last copy (ns1: 1 copy, 1 on disk)"
    assert plain(summary(view, 200)) == f"{told} · 1 name-space · 0 samples"


def test_a_merge_is_named_while_it_lasts_and_its_master_is_not_empty() -> None:
    watched = parted()
    scenario = watched.scenario
    merging: set[str] = set()
    said: set[str] = set()
    for _ in range(100):
        scenario.run(0.1)
        view = watched.view()
        found = incidents(view.model, view.now_ns)
        if still_open(watched):
            assert any("n1 and n2" in one.what or "n2 and n1" in one.what for one in found)
            said.update(sign for one in found if one.code.cause == "conflict" for sign in one.signs)
            overview = Overview(view, 90)
            for row in range(2):
                if not scenario.complete(overview.name(row)):
                    merging.add(plain(overview.cell(row, overview.fixed)).split(" ", 1)[1].strip())
    assert len(merging) > 1, "there was time to look"
    assert not any(cell.endswith(" 0 %") for cell in merging), merging
    assert any("set with another history" in text for text in said)
    assert any("merging by Merge" in text for text in said)
    assert scenario.is_settled()
    assert texts(watched) == []
    assert {one.node_name: one.outcome for one in conflicts(watched)} == {
        "n1": "merge: 6 samples moved",
        "n2": "collect: 3 samples moved",
    }


@pytest.mark.parametrize("who", ["n1", "n2"])
@pytest.mark.parametrize("in_order", [True, False])
def test_no_conflict_stays_open_with_a_node_that_is_not_there(who: str, in_order: bool) -> None:
    watched = parted()
    scenario = watched.scenario
    scenario.until(lambda: bool(still_open(watched)))
    (scenario.stop if in_order else scenario.kill)(who)
    scenario.run(8)
    assert still_open(watched) == []
    assert conflicts(watched)
    mine = [one.outcome for one in conflicts(watched) if one.node_name == who]
    assert set(mine) <= {f"{who} has ended in order" if in_order else f"{who} is gone"}
    assert texts(watched) == ([] if in_order else [f"{who} is gone"])


def test_sets_that_stay_apart_by_policy_are_no_open_conflict() -> None:
    ignore = {"*": MergeType.IGNORE}
    watched = started(node("n1", role="A", merges=ignore), node("n2", role="B", merges=ignore))
    scenario = watched.scenario
    scenario.write("n1", 1, 2)
    scenario.split("n1", "n2")
    scenario.write("n2", 5, 6)
    scenario.heal()
    scenario.run(8)
    assert [one for one in conflicts(watched) if one.cause == "set of another role, not merged yet"]
    assert still_open(watched) == []


def incompatible(name: str, *topics: str) -> NodePlan:
    plan = node(name)
    spaces = (NameSpace.parse("ns1", *topics),)
    return msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, name_spaces=spaces))


def test_a_standing_incompatibility_is_on_a_console_that_comes_later_and_ends_with_the_fellow() -> None:
    watched = started(incompatible("n1", "ns1.*"), incompatible("n2", "ns1.Reading"))
    scenario = watched.scenario
    scenario.run(5)
    assert {(one.node_name, one.fellow) for one in still_open(watched)} == {("n1", "n2"), ("n2", "n1")}
    later = SystemModel()
    newest = {heard.snapshot.id: heard for _, update in watched.updates for heard in update.snapshots}
    later.apply(Update(tuple(newest.values())), watched.now_ns)
    assert {
        (one.node_name, one.fellow, one.cause)
        for one in later.conflicts.every(later.nodes)
        if not one.ended_ns
    } == {
        ("n1", "n2", "name-spaces overlap without being equal"),
        ("n2", "n1", "name-spaces overlap without being equal"),
    }
    shown = export.system(Health(later), watched.now_ns)["conflicts"]
    assert [one["fellow"] for one in shown] == ["n2", "n1"] or [one["fellow"] for one in shown] == [
        "n1",
        "n2",
    ]

    scenario.stop("n2")
    scenario.run(6)
    assert still_open(watched) == []
    assert {one.outcome for one in conflicts(watched)} == {"n2 left", "n2 has ended in order"}
    assert texts(watched) == []


# Recordings.


def test_a_node_that_ended_in_order_has_done_so_wherever_a_recording_is_read(tmp_path: Path) -> None:
    watched = started()
    watched.scenario.run(10)
    watched.scenario.stop("n3")
    stopped_ns = watched.now_ns
    watched.scenario.run(150)
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path, source="test", made_by="test")
    for now_ns, update in watched.updates:
        recorder.write(update, now_ns)
    recorder.close()
    clock = [0]
    feed = ReplayFeed(path, clock=lambda: clock[0])
    model = SystemModel()

    def check(moment_ns: int) -> None:
        node = model.nodes[watched.node("n3")]
        assert (node.in_order, node.gone_ns > 0) == (True, True)
        assert incidents(model, moment_ns) == []

    try:
        feed.seek(stopped_ns + 2 * S)
        model.apply(feed.poll(), feed.now_ns())
        check(feed.now_ns())
        for _ in range(28):  # on through two keys
            clock[0] += 5 * S
            model.apply(feed.poll(), feed.now_ns())
            check(feed.now_ns())
        feed.seek(stopped_ns + 148 * S)
        model.apply(feed.poll(), feed.now_ns())
        check(feed.now_ns())
    finally:
        feed.close()


def test_a_key_alone_says_that_a_node_ended_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.live.recorder.BLOCK_BYTES", 1)
    test_a_node_that_ended_in_order_has_done_so_wherever_a_recording_is_read(tmp_path)


def test_a_recording_without_that_word_is_not_taken_for_a_fault_when_a_key_repeats_a_node() -> None:
    model = SystemModel()
    snapshot = ReceivedSnapshot(fake.snapshot(1), START_NS)
    ends = fake.event(1, 1, START_NS + S, "bye", state="TERMINATING")
    lost = FeedNotice(NoticeKind.NODE_LOST, START_NS + 2 * S, "x", node_id(1))
    model.apply(Update((snapshot,), (ends,), (lost,)), START_NS + 2 * S)
    model.apply(Update((snapshot,), (), (lost,)), START_NS + 60 * S)
    assert incidents(model, START_NS + 60 * S) == []
    again = ReceivedSnapshot(fake.snapshot(1, time_ns=START_NS + 61 * S), START_NS + 61 * S)
    lost = dataclasses.replace(lost, time_ns=START_NS + 62 * S)
    model.apply(Update((again,), (), (lost,)), START_NS + 62 * S)
    assert [one.what for one in incidents(model, START_NS + 62 * S)] == ["n1 is gone"]


# Losses.

GROUP = GroupView("Orders", "Orders", "Trade", "T", "Persistent", 5, 1, 1, "d", START_NS, 1, 0)


def losing(number: int, lost: int, digest: str = "d") -> Any:
    group = msgspec.structs.replace(GROUP, lost=lost, digest=digest)
    return fake.snapshot(number, fake.name_space("Orders", 1), groups=(group,))


def after(*steps: tuple[float, Any]) -> list[str]:
    """The incidents after snapshots that were heard so many seconds after the start."""
    model = SystemModel()
    now_ns = START_NS
    for seconds, snapshot in steps:
        now_ns = START_NS + int(seconds * S)
        model.apply(Update((ReceivedSnapshot(snapshot, now_ns),)), now_ns)
    return [one.what for one in incidents(model, now_ns)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0, losing(1, 3))], ["n1 lost 3 samples"]),
        ([(0, losing(1, 3)), (1, losing(2, 0))], []),
        ([(0, losing(1, 3, "x")), (1, losing(2, 0))], ["n1 lost 3 samples"]),
        ([(0, losing(1, 3, "x")), (1, losing(2, 0)), (1.5, losing(1, 3)), (1.6, losing(2, 0))], []),
        ([(0, losing(1, 3)), (1, losing(2, 0)), (1.5, losing(1, 3, "x"))], []),
        ([(0, losing(1, 3)), (1, losing(2, 0)), (1.5, losing(1, 4, "x"))], ["n1 lost 4 samples"]),
        ([(0, losing(2, 0)), (1, losing(1, 3))], ["n1 lost 3 samples"]),
        ([(0, losing(1, 3)), (1, losing(2, 2)), (2, losing(1, 3))], []),
        (
            [(0, losing(3, 0, "x")), (0, losing(1, 3)), (1, losing(2, 2)), (1, losing(3, 0, "x"))],
            ["n1", "n2"],
        ),
    ],
    ids=[
        *("alone", "equal", "different", "repaired", "repaired once", "lost again"),
        *("the other was heard before", "both lost, all equal", "both lost, another differs"),
    ],
)
def test_a_loss_is_over_when_another_node_has_the_same_set(
    steps: list[tuple[float, Any]], expected: list[str]
) -> None:
    found = [text for text in after(*steps) if "lost" in text]
    assert [text[: len(wanted)] for text, wanted in zip(found, expected, strict=True)] == expected


# Order.


def test_the_domain_comes_before_the_nodes_that_are_lost_with_it() -> None:
    watched = started()
    watched.scenario.kill("n1", "n2", "n3")
    watched.scenario.run(1)
    lost = FeedNotice(NoticeKind.DOMAIN_LOST, watched.now_ns, "nobody is in reach")
    watched.tell(Update(notices=(lost,)))
    assert texts(watched)[0] == "this watch hears no node any more"
    view = watched.view()
    assert findings.title(view, (), 0, running=False) == "no node is heard, so nothing can be compared"


def test_a_domain_whose_nodes_have_ended_in_order_is_not_at_fault() -> None:
    watched = started()
    assert findings.title(watched.view(), (), 0, running=False).startswith("no findings: what 3 nodes")
    watched.scenario.stop("n1", "n2", "n3")
    watched.scenario.run(5)
    watched.tell(Update(notices=(FeedNotice(NoticeKind.DOMAIN_LOST, watched.now_ns, "nobody is in reach"),)))
    assert incidents(watched.model, watched.now_ns) == []


# Masterships.


def test_a_mastership_is_dated_by_its_node_not_by_the_console() -> None:
    watched = started()
    scenario = watched.scenario
    began = scenario.now
    scenario.run(100)
    watched.model = SystemModel()  # of a console that comes now
    scenario.run(2)
    view = watched.view()
    (history,) = watched.model.masterships.values()
    (mastership,) = history
    assert mastership.is_exact
    assert (watched.now_ns - mastership.since_ns) / S == pytest.approx(scenario.now - began, abs=1.5)
    (line,) = name_space.history_lines(view, "ns1")
    assert "  1 min ago  " in plain(line)


def test_a_node_that_does_not_say_since_when_it_follows_is_no_older_than_known() -> None:
    model = SystemModel()
    model.apply(
        Update((ReceivedSnapshot(fake.snapshot(1, fake.name_space("Orders", 1)), START_NS),)), START_NS
    )
    (mastership,) = model.masterships["Orders", "DefaultRole"]
    assert (mastership.is_exact, mastership.since_ns) == (False, START_NS)
    told = fake.name_space("Orders", 1, master_since_ns=START_NS - 50 * S)
    model.apply(Update((ReceivedSnapshot(fake.snapshot(2, told), START_NS + S),)), START_NS + S)
    (mastership,) = model.masterships["Orders", "DefaultRole"]
    assert (mastership.is_exact, mastership.since_ns) == (True, START_NS - 49 * S)
