"""What nodes remember of the time before a console came, as the model, screens and recordings show it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.runtime import monitor
from engine.runtime.monitor import Masterhood, NodePast, Run
from engine.runtime.past import IN_ORDER, UNKNOWN_END
from ospltool.health import export
from ospltool.health.health import Health
from ospltool.live.dds import MAX_KNOWN, SeenEvents
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.recorder import Recorder
from ospltool.live.replay import ReplayFeed
from ospltool.views import name_space, node
from ospltool.views.cells import UNICODE, plain
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id

S = SECOND_NS
EVENTS = tuple(fake.event(n, 1, START_NS - (9 - n) * 60 * S, f"event {n}") for n in range(1, 4))
RUNS = (
    Run(START_NS - 900 * S, 11, "0.1", START_NS - 800 * S, IN_ORDER),
    Run(START_NS - 700 * S, 12, "0.1", START_NS - 600 * S, UNKNOWN_END),
    Run(START_NS - 500 * S, 13, "0.1"),
)
MASTERS = (
    Masterhood(START_NS - 650 * S, "Orders", "DefaultRole", node_id(2), "1/b", "highest quality"),
    Masterhood(START_NS - 450 * S, "Orders", "DefaultRole", node_id(1), "2/c", "highest masterPriority"),
)
PAST = NodePast(node_id(1), "n1", EVENTS, MASTERS, RUNS)


def test_it_travels_as_it_is() -> None:
    assert monitor.decode(monitor.encode(PAST)) == PAST


def test_events_come_once_whether_told_or_remembered_first() -> None:
    known = SeenEvents()
    assert list(known.new(EVENTS[1])) == [EVENTS[1]]
    assert list(known.new(PAST)) == [EVENTS[0], EVENTS[2], msgspec.structs.replace(PAST, events=())]
    assert list(known.new(EVENTS[2])) == []
    assert list(known.new(PAST)) == [msgspec.structs.replace(PAST, events=())]
    other = fake.event(1, 2, EVENTS[0].time_ns, "event 1")
    assert list(known.new(other)) == [other]
    small = fake.event(9, 1, START_NS, "x", level="FINE")
    assert list(known.new(small)) == list(known.new(small)) == [small]


def test_what_is_known_is_bounded() -> None:
    known = SeenEvents()
    events = [fake.event(n, 1, START_NS + n, "x") for n in range(MAX_KNOWN + 10)]
    for event in events:
        assert list(known.new(event))
    assert not list(known.new(events[-MAX_KNOWN]))
    assert list(known.new(events[0]))


def model_of(*more: Update) -> SystemModel:
    model = SystemModel()
    space = fake.name_space("Orders", 1, epoch="2/c", master_since_ns=START_NS - 450 * S)
    heard = ReceivedSnapshot(fake.snapshot(1, space, started_ns=START_NS - 500 * S, pid=13), START_NS)
    past = msgspec.structs.replace(PAST, events=())
    for update in (Update((heard,), EVENTS, pasts=(past,)), *more):
        model.apply(update, START_NS)
    return model


def test_masters_are_in_the_order_of_time_and_none_twice() -> None:
    model = model_of(Update(pasts=(PAST,)))
    view = View(Health(model), START_NS, UNICODE)
    (history,) = model.masterships.values()
    assert [(one.master, one.since_ns) for one in history] == [(one.master, one.since_ns) for one in MASTERS]
    lines = [plain(line) for line in name_space.history_lines(view, "Orders")]
    assert len(lines) == 2
    assert any("highest quality" in line for line in lines)


def test_the_node_screen_says_how_the_run_before_ended() -> None:
    model = model_of()
    view = View(Health(model), START_NS, UNICODE)
    line = plain(node.card(view, model.nodes[node_id(1)])[-1])
    assert line == f"   2 earlier runs, the last began 2026-11-21 00:51:40 and ended {UNKNOWN_END}"
    assert [run["end"] for run in export.system(Health(model), START_NS)["nodes"][0]["runs"]] == [
        IN_ORDER,
        UNKNOWN_END,
        "",
    ]


def test_a_former_orderly_end_does_not_make_a_node_that_is_killed_one_that_ended_in_order() -> None:
    ending = fake.event(7, 1, START_NS - 800 * S, "Received SIGTERM", state="TERMINATING")
    lost = FeedNotice(NoticeKind.NODE_LOST, START_NS + S, "", node_id(1))
    model = model_of(Update(events=(ending,)), Update(notices=(lost,)))
    assert not model.nodes[node_id(1)].in_order


def test_troubles_of_a_former_run_are_events_and_not_incidents() -> None:
    old = fake.event(
        8, 1, START_NS - 650 * S, "Queue of 10 captured samples is full, writers are held back.",
        event="capture.back-pressure", level="WARNING",
    )  # fmt: skip
    now = msgspec.structs.replace(old, number=9, time_ns=START_NS - 5 * S)
    model = model_of(Update(events=(old,)))
    assert not list(model.remarks.present(node_id(1), START_NS))
    model.apply(Update(events=(now,)), START_NS)
    assert list(model.remarks.present(node_id(1), START_NS))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path, source="test", made_by="test")
    snapshot = fake.snapshot(1, fake.name_space("Orders", 1))
    recorder.write(
        Update(
            (ReceivedSnapshot(snapshot, START_NS),), EVENTS, pasts=(msgspec.structs.replace(PAST, events=()),)
        ),
        START_NS,
    )
    for second in range(1, 200):
        now_ns = START_NS + second * S
        recorder.write(
            Update((ReceivedSnapshot(msgspec.structs.replace(snapshot, time_ns=now_ns), now_ns),)), now_ns
        )
    recorder.close()
    return path


@pytest.mark.parametrize("second", [1, 199])
def test_a_recording_keeps_it_and_repeats_it_below_each_key(recording: Path, second: int) -> None:
    feed = ReplayFeed(recording, paused=True)
    feed.seek(START_NS + second * S)
    model = SystemModel()
    model.apply(feed.poll(), feed.now_ns())
    feed.close()
    assert model.runs == {node_id(1): RUNS}
    assert [event.text for event in model.events] == ["event 1", "event 2", "event 3"]
    assert not model.dropped


RUN_TWO = Run(START_NS - 300 * S, 14, "0.1")


@pytest.mark.parametrize("late_first", [False, True])
def test_a_mastership_in_another_run_of_the_master_is_another_one(late_first: bool) -> None:
    """All nodes were killed, so that the epochs began again with the same number."""
    again = Masterhood(START_NS - 290 * S, "Orders", "DefaultRole", node_id(1), "2/c", "the only candidate")
    followed = msgspec.structs.replace(again, since_ns=START_NS - 280 * S, why="follows n1")
    pasts = [
        NodePast(node_id(1), "n1", (), (MASTERS[1], again), (RUNS[2], RUN_TWO)),
        NodePast(node_id(2), "n2", (), (followed,), ()),
    ]
    model = SystemModel()
    for past in reversed(pasts) if late_first else pasts:
        model.apply(Update(pasts=(past,)), START_NS)
    told = model.masterships["Orders", "DefaultRole"]
    assert [(one.since_ns, one.why) for one in told] == [
        (MASTERS[1].since_ns, MASTERS[1].why),
        (again.since_ns, again.why),
    ]


@pytest.mark.parametrize("own_first", [False, True])
def test_the_reason_of_a_mastership_is_that_of_the_node_that_took_it(own_first: bool) -> None:
    own = NodePast(node_id(1), "n1", (), (MASTERS[1],), ())
    others = msgspec.structs.replace(
        MASTERS[1], since_ns=MASTERS[1].since_ns + S // 2, why="it is the master of n2"
    )
    other = NodePast(node_id(2), "n2", (), (others,), ())
    model = SystemModel()
    for past in (own, other) if own_first else (other, own):
        model.apply(Update(pasts=(past,)), START_NS)
    (told,) = model.masterships["Orders", "DefaultRole"]
    assert (told.since_ns, told.why) == (MASTERS[1].since_ns, MASTERS[1].why)
