from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.monitor import AlignmentView, GroupView, NodeSnapshot
from ospltool.health.health import Health
from ospltool.health.presence import Presence, observed
from ospltool.live import model as model_module
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id


def after(*steps: tuple[float, NodeSnapshot | FeedNotice]) -> SystemModel:
    """A model that heard each snapshot or notice so many seconds after the start."""
    model = SystemModel()
    for seconds, item in steps:
        now_ns = START_NS + int(seconds * SECOND_NS)
        if isinstance(item, FeedNotice):
            model.apply(Update(notices=(item,)), now_ns)
        else:
            model.apply(Update(snapshots=(ReceivedSnapshot(item, now_ns),)), now_ns)
    return model


def at(seconds: float) -> int:
    return START_NS + int(seconds * SECOND_NS)


def test_a_node_is_stale_after_two_periods_and_keeps_its_last_snapshot() -> None:
    model = after((0, fake.snapshot(1, update_period_ns=3 * SECOND_NS)))
    node = model.nodes[node_id(1)]
    assert observed(node, at(6)) is Presence.HEARD
    assert observed(node, at(6.1)) is Presence.SILENT
    assert node.snapshot.name == "n1"


def test_a_lost_node_is_stale_at_once_and_a_found_one_is_not() -> None:
    lost = FeedNotice(NoticeKind.NODE_LOST, at(1), "", node_id(1))
    found = FeedNotice(NoticeKind.NODE_FOUND, at(2), "", node_id(1))
    gone = after((0, fake.snapshot(1)), (1, lost)).nodes[node_id(1)]
    assert observed(gone, at(1)) is Presence.GONE
    back = after((0, fake.snapshot(1)), (1, lost), (1.5, found)).nodes[node_id(1)]
    assert observed(back, at(1.5)) is Presence.HEARD
    assert not after((0, fake.snapshot(1)), (1, lost), (2, fake.snapshot(1))).nodes[node_id(1)].gone_ns


def test_a_loss_that_is_older_than_the_last_snapshot_does_not_count() -> None:
    lost = FeedNotice(NoticeKind.NODE_LOST, at(1), "", node_id(1))
    model = SystemModel()
    model.apply(Update(snapshots=(ReceivedSnapshot(fake.snapshot(1), at(2)),), notices=(lost,)), at(2))
    assert not model.nodes[node_id(1)].gone_ns


@pytest.mark.parametrize("is_heard_first", [False, True])
def test_a_node_with_a_new_identity_replaces_the_one_that_left(is_heard_first: bool) -> None:
    space = fake.name_space("Orders", 2)
    old = fake.snapshot(2, space, fake.name_space("Old", 2))
    new = fake.snapshot(9, space, name="n2", started_ns=at(2))
    lost = FeedNotice(NoticeKind.NODE_LOST, at(3), "", node_id(2), in_order=True)
    steps: list[tuple[float, NodeSnapshot | FeedNotice]] = [(3, lost), (4, new)]
    model = after((0, fake.snapshot(1, space)), (0, old), *(steps[::-1] if is_heard_first else steps))
    assert node_id(2) in model.nodes, "that a node says this name of itself is not enough"
    met = fake.snapshot(1, space, fellows=(fake.fellow(9),))
    model.apply(Update(snapshots=(ReceivedSnapshot(met, at(5)),)), at(5))
    model.apply(Update(snapshots=(ReceivedSnapshot(old, at(5)),)), at(5))  # as the keys of recordings do
    assert [node.id for node in model.ordered_nodes()] == [node_id(1), node_id(9)]
    assert model.name_space_names() == ["Orders"]
    assert model.name_of(node_id(2)) == "n2"
    again = msgspec.structs.replace(old, time_ns=at(6), started_ns=at(6))
    model.apply(Update(snapshots=(ReceivedSnapshot(again, at(6)),)), at(6))
    assert len(model.nodes) == 3


def test_heartbeat_age_is_what_a_fellow_saw_whatever_its_clock_says() -> None:
    wrong_clock_ns = 10**9
    teller = fake.snapshot(
        2, time_ns=wrong_clock_ns, fellows=(fake.fellow(1, heartbeat_ns=wrong_clock_ns - 4 * SECOND_NS),)
    )
    model = after((0, fake.snapshot(1)), (10, teller))
    assert Health(model).heartbeat_ns(model.nodes[node_id(1)]) == at(6)


def test_heartbeats_told_by_a_lost_fellow_do_not_count() -> None:
    teller = fake.snapshot(2, fellows=(fake.fellow(1, heartbeat_ns=START_NS - 50 * SECOND_NS),))
    model = after(
        (0, teller), (3, fake.snapshot(1)), (4, FeedNotice(NoticeKind.NODE_LOST, at(4), "", node_id(2)))
    )
    assert Health(model).heartbeat_ns(model.nodes[node_id(1)]) == at(3)


@pytest.mark.parametrize(
    ("digests", "now", "differs"),
    [
        ([("a", "a")], 100, False),
        ([("a", "b")], 2, False),
        ([("a", "b")], 100, True),
        ([("a", "b"), ("c", "b")], 3.5, False),
        ([("a", "b"), ("b", "b")], 100, False),
    ],
    ids=["equal", "just heard", "settled", "still being written", "became equal"],
)
def test_a_set_differs_only_when_both_stand_still(
    digests: list[tuple[str, str]], now: float, differs: bool
) -> None:
    steps: list[tuple[float, NodeSnapshot]] = []
    for moment, (mine, masters) in enumerate(digests):
        steps.append((moment * 3, fake.snapshot(1, fake.name_space("Orders", 1, digest=masters))))
        steps.append((moment * 3, fake.snapshot(2, fake.name_space("Orders", 1, digest=mine))))
    last = len(digests) * 3 + 1  # both say once more what they hold
    steps += [(last, one) for _, one in steps[-2:]]
    model = after(*steps)
    assert bool(model.sets.differs_since(model.nodes[node_id(2)], "Orders", at(now))) is differs


def test_a_set_does_not_differ_from_what_a_busy_master_said_before_it_changed() -> None:
    """The node has taken in more since; the master has too, and is too busy to say so."""
    model = after(
        (0, fake.snapshot(1, fake.name_space("Orders", 1, digest="old"))),
        *(
            (second, fake.snapshot(2, fake.name_space("Orders", 1, digest="new")))
            for second in (0.3, 1, 2, 3)
        ),
    )
    assert not model.sets.differs_since(model.nodes[node_id(2)], "Orders", at(3))


def test_masters_are_remembered_in_order_once_each() -> None:
    first = fake.name_space("Orders", 1, epoch="1/a")
    second = fake.name_space("Orders", 2, epoch="2/b")
    model = after(
        (0, fake.snapshot(1, first)),
        (1, fake.snapshot(2, first)),
        (2, fake.snapshot(1, second)),
        (3, fake.snapshot(2, fake.name_space("Orders", 3, epoch="3/c", confirmed=False))),
    )
    history = model.masterships["Orders", "DefaultRole"]
    assert [(m.master, m.since_ns) for m in history] == [(node_id(1), at(0)), (node_id(2), at(2))]


def test_names_with_numbers_sort_as_people_count() -> None:
    model = after(*((0, fake.snapshot(n, fake.name_space(f"s{n}", 1))) for n in (10, 2, 1)))
    assert [node.snapshot.name for node in model.ordered_nodes()] == ["n1", "n2", "n10"]
    assert model.name_space_names() == ["s1", "s2", "s10"]


def aligning(samples: int, started_ns: int = START_NS) -> NodeSnapshot:
    alignment = AlignmentView("from", node_id(1), samples, 1000, 0, started_ns)
    return fake.snapshot(2, fake.name_space("Orders", 1, complete=False, alignments=(alignment,)))


def test_progress_has_rate_and_time_left() -> None:
    model = after((0, aligning(0)), (2, aligning(200)), (4, aligning(400)))
    ((view, progress),) = model.progress(model.nodes[node_id(2)])
    assert (view.name, progress.fraction, progress.rate_per_s, progress.left_s) == ("Orders", 0.4, 100.0, 6.0)
    assert model.history(node_id(2), "Orders", node_id(1), "from") == [(at(0), 0), (at(2), 200), (at(4), 400)]


def test_the_rate_of_an_alignment_is_that_of_the_last_ten_seconds() -> None:
    model = after((0, aligning(0)), (9, aligning(10)), (10, aligning(100)), (20, aligning(600)))
    ((_, progress),) = model.progress(model.nodes[node_id(2)])
    assert (progress.rate_per_s, progress.left_s) == (50.0, 8.0)


def test_a_new_alignment_starts_from_nothing() -> None:
    model = after((0, aligning(900)), (1, aligning(10, started_ns=at(1))))
    ((_, progress),) = model.progress(model.nodes[node_id(2)])
    assert (progress.rate_per_s, progress.left_s, progress.moved_ns) == (0.0, None, at(1))


def test_a_finished_alignment_is_forgotten() -> None:
    model = after((0, aligning(900)), (1, fake.snapshot(2, fake.name_space("Orders", 1))))
    assert not list(model.progress(model.nodes[node_id(2)]))
    assert not model.history(node_id(2), "Orders", node_id(1), "from")


def test_everything_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "MAX_NODES", 2)
    model = after(*((n, fake.snapshot(n)) for n in range(1, 5)))
    assert (len(model.nodes), model.nodes_left_out) == (2, 2)
    most = model_module.MAX_EVENTS + model_module.EVENTS_SLACK
    many = tuple(fake.event(i, 1, START_NS + i, "x") for i in range(most + 1))
    model.apply(Update(events=many, dropped=3), START_NS)
    assert len(model.events) == model_module.MAX_EVENTS
    assert model.events_left_out == model_module.EVENTS_SLACK + 1
    assert model.events[-1].number == most
    assert model.dropped == 3


def test_a_node_that_comes_under_new_ids_leaves_little_behind() -> None:
    """As one that has lost its store each time; what it told of a hundred fellows went with its id."""
    model = SystemModel()
    fellows = tuple(fake.fellow(n) for n in range(2, 102))
    spaces = [fake.name_space(f"space-{n}", 1) for n in range(50)]

    def come(first: int, last: int) -> int:
        for n in range(first, last):
            now_ns = at(10 * n)
            shown = fake.snapshot(
                1_000 + n,
                *spaces,
                fellows=fellows,
                time_ns=now_ns,
                started_ns=now_ns,
                name="n1",
            )
            model.apply(Update((ReceivedSnapshot(shown, now_ns),)), now_ns)
            assert model.sets.differing(model.nodes[shown.id]) == []
            lost = FeedNotice(NoticeKind.NODE_LOST, at(10 * n + 5), "", shown.id)
            model.apply(Update(notices=(lost,)), at(10 * n + 5))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before, after_it = come(0, 50), come(50, 150)
    finally:
        tracemalloc.stop()
    assert len(model.nodes) == 1
    assert after_it - before < 100 * 6_000


@given(st.lists(st.lists(st.integers(0, 50), max_size=8), max_size=8))
def test_events_stand_in_the_order_of_their_times_whatever_the_order_of_arrival(
    batches: list[list[int]],
) -> None:
    model = SystemModel()
    for batch in batches:
        model.apply(Update(events=tuple(fake.event(1, 1, t, "x") for t in batch)), START_NS)
    times = [event.time_ns for event in model.events]
    assert times == sorted(time for batch in batches for time in batch)


def counting(seconds: int, **counters: int) -> tuple[float, NodeSnapshot]:
    return seconds, fake.snapshot(1, counters=counters)


def test_counters_have_rates() -> None:
    model = after(counting(0, stored=0), counting(2, stored=100), counting(4, stored=500))
    series = model.series[node_id(1)]
    assert series.rate_per_s("stored") == 125.0
    assert series.rates("stored") == [(at(2), 50.0), (at(4), 200.0)]
    assert series.rate_per_s("captured") == 0.0


def test_counters_that_went_back_belong_to_a_new_run() -> None:
    model = after(counting(0, captured=900), counting(2, captured=5))
    assert model.series[node_id(1)].rate_per_s("captured") is None
    assert model.series[node_id(1)].rates("captured") == []


def test_gaps_between_heartbeats_are_what_each_fellow_received() -> None:
    def told(seconds: float) -> NodeSnapshot:
        return fake.snapshot(2, time_ns=at(seconds), fellows=(fake.fellow(1, heartbeat_ns=at(seconds)),))

    model = after((0, fake.snapshot(1)), (0, told(0)), (1, told(1)), (1.2, told(1)), (4, told(3.5)))
    assert model.series[node_id(1)].heartbeat_gaps_s() == [(at(1), 1.0), (at(4), 2.5)]


def group(topic: str, **changes: object) -> GroupView:
    view = GroupView("Orders", "Orders", topic, "T", "Persistent", 1, 1, 1, "d", START_NS, 1, 0)
    return msgspec.structs.replace(view, **changes)


def test_groups_of_all_nodes_stand_side_by_side() -> None:
    model = after(
        (0, fake.snapshot(1, groups=(group("A"), group("B")))),
        (1, fake.snapshot(2, groups=(group("A", samples=7),))),
    )
    key = next(key for key in model.groups if key.topic == "A")
    assert {node: view.samples for node, view in model.groups.views(key).items()} == {
        node_id(1): 1,
        node_id(2): 7,
    }
    model.apply(Update(snapshots=(ReceivedSnapshot(fake.snapshot(1, groups=(group("B"),)), at(2)),)), at(2))
    assert list(model.groups.views(key)) == [node_id(2)]
    model.apply(Update(snapshots=(ReceivedSnapshot(fake.snapshot(2), at(3)),)), at(3))
    assert [key.topic for key in model.groups] == ["B"]


def test_a_restart_forgets_everything_but_counts_on() -> None:
    model = after((0, fake.snapshot(1)), (1, FeedNotice(NoticeKind.DOMAIN_LOST, at(1), "")))
    revision = model.revision
    model.apply(Update(restart=True, snapshots=(ReceivedSnapshot(fake.snapshot(2), at(0)),)), at(0))
    assert list(model.nodes) == [node_id(2)]
    assert model.domain_lost_ns == 0
    assert model.revision > revision
