"""A system examined step by step, where only what has changed is looked at again, and examined as a whole."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Final

import pytest

from engine.runtime.monitor import AlignmentView, NameSpaceView, NodeSnapshot, StoreStatus
from ospltool.health.health import Health
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node, outline
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id

NODES: Final = 5
NAMES: Final = ("Alarms", "Orders", "Telemetry")
OUTLINE: Final = outline


def system() -> dict[int, NodeSnapshot]:
    fellows = {n: tuple(fake.fellow(f) for f in range(1, NODES + 1) if f != n) for n in range(1, NODES + 1)}
    return {
        n: fake.snapshot(n, *(fake.name_space(name, 1) for name in NAMES), fellows=fellows[n])
        for n in fellows
    }


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
    return dataclasses.replace(view, **draw.choice(changes))


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
    ]
    return dataclasses.replace(snapshot, time_ns=now_ns, **draw.choice(kinds))


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


@pytest.mark.parametrize("seed", range(6))
def test_looking_at_what_changed_finds_what_looking_at_all_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, whole = Health(SystemModel()), Health(SystemModel())
    alike = 0
    for now_ns, update in updates(seed, 50):
        before = [node.outline for node in quick.model.nodes.values()]
        monkeypatch.setattr("ospltool.live.model.outline", OUTLINE)
        quick.model.apply(update, now_ns)
        alike += sum(
            node.outline is one for node, one in zip(quick.model.nodes.values(), before, strict=False)
        )
        monkeypatch.setattr("ospltool.live.model.outline", lambda *_: (object(),))  # nothing is like before
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
        largest: dict[str, int] = {}
        for node in whole.model.nodes.values():
            for view in node.snapshot.name_spaces:
                largest[view.name] = max(view.count, largest.get(view.name, 0))
        assert quick.model.sets.largest() == largest
    assert alike > 100, "nothing was left out"
