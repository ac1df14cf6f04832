from __future__ import annotations

import pytest

from engine.runtime.monitor import AlignmentView, NodeSnapshot
from ospltool.live import fake
from ospltool.live import model as model_module
from ospltool.live.fake import SECOND_NS, START_NS, node_id
from ospltool.live.feed import Heard, Notice, NoticeKind, Update
from ospltool.live.model import SystemModel


def after(*steps: tuple[float, NodeSnapshot | Notice]) -> SystemModel:
    """A model that heard each snapshot or notice so many seconds after the start."""
    model = SystemModel()
    for seconds, item in steps:
        now_ns = START_NS + int(seconds * SECOND_NS)
        if isinstance(item, Notice):
            model.apply(Update(notices=(item,)), now_ns)
        else:
            model.apply(Update(snapshots=(Heard(item, now_ns),)), now_ns)
    return model


def at(seconds: float) -> int:
    return START_NS + int(seconds * SECOND_NS)


def test_a_node_is_stale_after_two_periods_and_keeps_its_last_snapshot() -> None:
    model = after((0, fake.snapshot(1, update_period_ns=3 * SECOND_NS)))
    node = model.nodes[node_id(1)]
    assert not node.is_stale(at(6))
    assert node.is_stale(at(6.1))
    assert node.snapshot.name == "n1"


def test_a_lost_node_is_stale_at_once_and_a_found_one_is_not() -> None:
    lost = Notice(NoticeKind.NODE_LOST, at(1), "", node_id(1))
    found = Notice(NoticeKind.NODE_FOUND, at(2), "", node_id(1))
    assert after((0, fake.snapshot(1)), (1, lost)).nodes[node_id(1)].is_stale(at(1))
    assert not after((0, fake.snapshot(1)), (1, lost), (1.5, found)).nodes[node_id(1)].is_stale(at(1.5))
    assert not after((0, fake.snapshot(1)), (1, lost), (2, fake.snapshot(1))).nodes[node_id(1)].gone_ns


def test_a_loss_that_is_older_than_the_last_snapshot_does_not_count() -> None:
    lost = Notice(NoticeKind.NODE_LOST, at(1), "", node_id(1))
    model = SystemModel()
    model.apply(Update(snapshots=(Heard(fake.snapshot(1), at(2)),), notices=(lost,)), at(2))
    assert not model.nodes[node_id(1)].gone_ns


def test_heartbeat_age_is_what_a_fellow_saw_whatever_its_clock_says() -> None:
    wrong_clock_ns = 10**9
    teller = fake.snapshot(
        2, time_ns=wrong_clock_ns, fellows=(fake.fellow(1, heartbeat_ns=wrong_clock_ns - 4 * SECOND_NS),)
    )
    model = after((0, fake.snapshot(1)), (10, teller))
    assert model.heartbeat_ns(model.nodes[node_id(1)]) == at(6)


def test_heartbeats_told_by_a_lost_fellow_do_not_count() -> None:
    teller = fake.snapshot(2, fellows=(fake.fellow(1, heartbeat_ns=START_NS - 50 * SECOND_NS),))
    model = after(
        (0, teller), (3, fake.snapshot(1)), (4, Notice(NoticeKind.NODE_LOST, at(4), "", node_id(2)))
    )
    assert model.heartbeat_ns(model.nodes[node_id(1)]) == at(3)


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
    model = after(*steps)
    assert bool(model.differs_since(model.nodes[node_id(2)], "Orders", at(now))) is differs


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
    many = tuple(fake.event(i, 1, START_NS, "x") for i in range(model_module.MAX_EVENTS + 7))
    model.apply(Update(events=many, dropped=3), START_NS)
    assert (len(model.events), model.events_left_out, model.dropped) == (model_module.MAX_EVENTS, 7, 3)


def test_a_restart_forgets_everything_but_counts_on() -> None:
    model = after((0, fake.snapshot(1)), (1, Notice(NoticeKind.DOMAIN_LOST, at(1), "")))
    revision = model.revision
    model.apply(Update(restart=True, snapshots=(Heard(fake.snapshot(2), at(0)),)), at(0))
    assert list(model.nodes) == [node_id(2)]
    assert model.domain_lost_ns == 0
    assert model.revision > revision
