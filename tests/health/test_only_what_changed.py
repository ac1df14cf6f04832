"""A system examined step by step, where only what has changed is looked at again, and examined as a whole."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Final

import msgspec
import pytest

from engine.runtime.monitor import (
    AlignmentView,
    FellowView,
    GroupView,
    NameSpaceView,
    NodeSnapshot,
    StoreStatus,
)
from ospltool.health.health import Health
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.groups import GroupKey
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Fellows, Node, outline
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id

NODES: Final = 5
NAMES: Final = ("Alarms", "Orders", "Telemetry")
OUTLINE: Final = outline
FELLOWS: Final = Fellows
TOPICS: Final = ("Price", "Trade", "Quote")


def system() -> dict[int, NodeSnapshot]:
    fellows = {n: tuple(fake.fellow(f) for f in range(1, NODES + 1) if f != n) for n in range(1, NODES + 1)}
    groups = tuple(group(topic, 10) for topic in TOPICS)
    return {
        n: fake.snapshot(n, *(fake.name_space(name, 1) for name in NAMES), fellows=fellows[n], groups=groups)
        for n in fellows
    }


def group(topic: str, samples: int, lost: int = 0) -> GroupView:
    return GroupView(
        "Orders", "P", topic, "T", "PERSISTENT", samples, 1, 80, f"{samples:x}", START_NS, samples, lost
    )


def changed_space(draw: random.Random, view: NameSpaceView) -> NameSpaceView:
    alignment = AlignmentView("from", node_id(1), draw.randrange(500), 1000, 1, START_NS)
    changes: list[dict[str, Any]] = [
        {"count": draw.randrange(2000)},
        {"digest": draw.choice(("9f3c", "77aa"))},
        {"master": node_id(draw.randint(1, NODES)), "epoch": f"{draw.randrange(9)}/x"},
        {"master": "", "confirmed": False, "why": "nobody"},
        {"complete": False, "phase": "align", "alignments": (alignment,)},
        {"complete": True, "phase": "complete", "alignments": ()},
        {"complete": False, "phase": "part"},
        {"complete": False},
        {"durability": draw.choice(("Persistent", "Transient"))},
        {"merges": draw.choice((("Merge *",), ("Ignore *",)))},
        {"filtered": draw.random() < 0.5},
        {"from_parts": draw.random() < 0.5},
        {"master_priority": draw.choice((0, 100, 255))},
    ]
    return msgspec.structs.replace(view, **draw.choice(changes))


def changed(draw: random.Random, snapshot: NodeSnapshot, now_ns: int) -> NodeSnapshot:
    """The next snapshot of a node, in which nothing or one thing is new."""
    spaces = list(snapshot.name_spaces)
    where = draw.randrange(len(spaces))
    refused = fake.fellow(draw.randint(1, NODES), communication="incompatible", problem="other elements")
    kinds: list[dict[str, Any]] = [
        {},
        {"name_spaces": (*spaces[:where], changed_space(draw, spaces[where]), *spaces[where + 1 :])},
        {"name_spaces": (*spaces[:where], changed_space(draw, spaces[where]), *spaces[where + 1 :])},
        {"name_spaces": (*spaces[:where], changed_space(draw, spaces[where]), *spaces[where + 1 :])},
        {"name_spaces": tuple(spaces[:-1]) if len(spaces) > 1 else tuple(spaces)},
        {"name_spaces": (*(one for one in spaces if one.name != "Late"), fake.name_space("Late", 2))},
        {"state": draw.choice(("COMPLETE", "FETCH_INITIAL"))},
        {"store": StoreStatus("sqlite", "/s", problem=draw.choice(("", "no space left on device")))},
        {"fellows": (refused, *snapshot.fellows[1:])},
        {"fellows": system()[1].fellows},
        {"fellows": changed_fellows(draw, snapshot, now_ns)},
        {"fellows": changed_fellows(draw, snapshot, now_ns)},
        {"groups": tuple(group(one, draw.randrange(5), draw.randrange(2)) for one in some(draw, TOPICS))},
        {"groups": tuple(msgspec.structs.replace(one, samples=9) for one in snapshot.groups)},
    ]
    return msgspec.structs.replace(snapshot, time_ns=now_ns, **draw.choice(kinds))


def some(draw: random.Random, of: tuple[str, ...]) -> list[str]:
    return draw.sample(of, draw.randint(1, len(of)))


def changed_fellows(draw: random.Random, snapshot: NodeSnapshot, now_ns: int) -> tuple[FellowView, ...]:
    """The same fellows with new heartbeats, and perhaps one that is new in another way, or not there."""
    views = [msgspec.structs.replace(one, last_heartbeat_ns=now_ns) for one in snapshot.fellows]
    where = draw.randrange(max(1, len(views)))
    kinds: list[list[FellowView]] = [
        views,
        views[1:],
        [*views, fake.fellow(NODES + 1, 0)],
        [msgspec.structs.replace(one, communication="waiting", last_heartbeat_ns=0) for one in views],
    ]
    for changes in ({"communication": "lost"}, {"communication": "approved"}, {"skew_ns": 2 * SECOND_NS}):
        mixed = [msgspec.structs.replace(one, **changes) for one in views[where : where + 1]]
        kinds.append([*views[:where], *mixed, *views[where + 1 :]])
    return tuple(draw.choice(kinds))


def updates(seed: int, steps: int) -> list[tuple[int, Update]]:
    draw, now_ns, nodes = random.Random(seed), START_NS, system()
    made = [(now_ns, Update(tuple(ReceivedSnapshot(one, now_ns) for one in nodes.values())))]
    for _ in range(steps):
        now_ns += draw.choice((1, 2, 6)) * SECOND_NS // 2
        told = draw.sample(sorted(nodes), draw.randint(1, NODES))
        for number in told:
            nodes[number] = changed(draw, nodes[number], now_ns)
        lost = FeedNotice(NoticeKind.NODE_LOST, now_ns, "its lease expired", node_id(draw.choice(told)))
        notices = (lost,) if draw.random() < 0.1 else ()
        heard = tuple(ReceivedSnapshot(nodes[number], now_ns) for number in told)
        made.append((now_ns, Update(heard, notices=notices)))
    return made


def differing(model: SystemModel, node: Node) -> list[str]:
    """The name-spaces whose digest is not the master's, one by one."""
    found = []
    for name, view in node.name_spaces.items():
        master = model.nodes.get(view.master)
        theirs = master.name_spaces.get(name) if master else None
        if theirs and theirs.digest != view.digest and not (view.filtered or theirs.filtered):
            found.append(name)
    return found


def newest_heartbeat_ns(model: SystemModel, node: Node) -> int:
    """The newest heartbeat of a node that anybody told, by the clock of the feed."""
    told = [
        teller.heard_ns - max(0, teller.snapshot.time_ns - one.last_heartbeat_ns)
        for teller in model.nodes.values()
        for one in teller.snapshot.fellows
        if one.id == node.id and one.last_heartbeat_ns and not teller.gone_ns
    ]
    return max(told, default=node.heard_ns)


def groups(model: SystemModel) -> dict[GroupKey, dict[str, GroupView]]:
    """The groups of all nodes, from their snapshots."""
    found: dict[GroupKey, dict[str, GroupView]] = {}
    for node in model.nodes.values():
        for view in node.snapshot.groups:
            found.setdefault(GroupKey.from_view(view), {})[node.id] = view
    return found


@pytest.mark.parametrize("seed", range(6))
def test_looking_at_what_changed_finds_what_looking_at_all_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, whole = Health(SystemModel()), Health(SystemModel())
    alike = 0
    for now_ns, update in updates(seed, 50):
        before = [node.outline for node in quick.model.nodes.values()]
        monkeypatch.setattr("ospltool.live.model.outline", OUTLINE)
        monkeypatch.setattr("ospltool.live.model.Fellows", FELLOWS)
        quick.model.apply(update, now_ns)
        alike += sum(
            node.outline is one for node, one in zip(quick.model.nodes.values(), before, strict=False)
        )
        monkeypatch.setattr("ospltool.live.model.outline", lambda *_: (object(),))  # nothing is like before
        monkeypatch.setattr("ospltool.live.model.Fellows", lambda views, _: FELLOWS(views))
        whole.model.apply(update, now_ns)
        for health in (quick, whole):
            for _ in health.examine(now_ns):
                pass
        assert quick.redundancies == whole.redundancies
        assert quick.every == whole.every
        assert quick.verdict == whole.verdict
        assert quick.model.masterships == whole.model.masterships
        assert list(quick.model.contested()) == list(whole.model.contested())
        for id_, node in quick.model.nodes.items():
            other = whole.model.nodes[id_]
            assert dataclasses.replace(node, outline=()) == dataclasses.replace(other, outline=())
            assert quick.model.sets.differing(node) == differing(whole.model, other)
            assert quick.heartbeat_ns(node) == newest_heartbeat_ns(whole.model, other)
            rests = all(view.is_at_rest for view in node.snapshot.name_spaces)
            assert node.is_settled is (rests and node.snapshot.state == "COMPLETE")
            gaps = quick.model.series[id_].heartbeat_gaps_s()
            assert gaps == whole.model.series[id_].heartbeat_gaps_s()
        assert quick.model.series.keys() == whole.model.series.keys()
        assert {key: quick.model.groups.views(key) for key in quick.model.groups} == groups(whole.model)
        largest: dict[str, int] = {}
        for node in whole.model.nodes.values():
            for view in node.snapshot.name_spaces:
                largest[view.name] = max(view.count, largest.get(view.name, 0))
        assert quick.model.sets.largest() == largest
    assert alike > 100, "nothing was left out"


MEASURES: Final = frozenset({"count", "digest", "quality_ns", "groups", "alignments"})


@pytest.mark.parametrize("name", NameSpaceView.__struct_fields__)
def test_the_outline_of_name_spaces_has_all_that_is_not_measured(name: str) -> None:
    view = fake.name_space("Orders", 1)
    changes: dict[str, Any] = {name: object()}
    other = msgspec.structs.replace(view, **changes)
    before, after = (outline(fake.snapshot(1, one), ()) for one in (view, other))
    assert (before == after) is (name in MEASURES)


def test_a_set_is_compared_with_that_of_the_master_that_the_node_follows_now() -> None:
    model = SystemModel()
    spaces = {
        n: fake.name_space("Orders", 1, digest=digest) for n, digest in ((1, "aa"), (2, "bb"), (3, "aa"))
    }
    first = tuple(ReceivedSnapshot(fake.snapshot(n, one), START_NS) for n, one in spaces.items())
    model.apply(Update(first), START_NS)
    assert model.sets.differing(model.nodes[node_id(3)]) == []
    other = fake.snapshot(3, fake.name_space("Orders", 2, digest="aa"), time_ns=START_NS + SECOND_NS)
    model.apply(Update((ReceivedSnapshot(other, START_NS + SECOND_NS),)), START_NS + SECOND_NS)
    assert model.sets.differing(model.nodes[node_id(3)]) == ["Orders"]
