"""One decision on the presence of a node, which screens, files, metrics and incidents tell alike."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Final

import pytest

from ospltool.health import export
from ospltool.health.health import Health
from ospltool.health.prometheus import families
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from ospltool.views import name_space, node
from ospltool.views.cells import UNICODE, plain
from ospltool.views.overview import FIELDS, Overview, detail
from ospltool.views.view import Filter, View, ranks
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id

WATCHED_S: Final = 11.0
STEP_S: Final = 0.25


@dataclasses.dataclass(frozen=True)
class Loss:
    """How n2 is lost, which is heard until 0 s; moments in seconds.

    Attributes:
        report: what its supervisor tells from 0.5 s on.
        lease_s: when its lease ends for this watch.
        removed_s: when its fellows remove it.
        is_heard: whether they hear it all the time.
        is_waiting: whether all that they tell is a heartbeat of a moment ago, and never one that is late.
        deaf: fellows that do not hear it although the others do.
        ends: (from when, presence) of everybody who tells of it.
    """

    ends: tuple[tuple[float, str], ...]
    report: SupervisorReport | None = None
    lease_s: float = 10.0
    removed_s: float = 99.0
    is_heard: bool = False
    is_waiting: bool = False
    deaf: frozenset[int] = frozenset()


DEAD = SupervisorReport("its supervisor says: killed", is_trouble=True, is_dead=True)
COMES = dataclasses.replace(DEAD, is_coming=True, failed_ns=START_NS)
STOPPED = SupervisorReport("", in_order=True)

LOSSES = {
    "its supervisor says that it is dead": Loss(((0, "heard"), (2.25, "gone")), DEAD),
    "its supervisor starts it again": Loss(((0, "heard"), (2, "silent"), (10, "gone")), COMES, 0.5),
    "its supervisor says that it ended in order": Loss(((0, "heard"), (2.25, "stopped")), STOPPED, 10.0, 1.0),
    "its fellows have removed it": Loss(((0, "heard"), (2.75, "silent"), (6, "gone")), None, 10.0, 6.0),
    "only this watch has lost it": Loss(((0, "heard"), (2.75, "silent")), None, 4.0, is_heard=True),
    "only this watch has lost it, of a short lease": Loss(
        ((0, "heard"), (3, "silent")), None, 1.5, is_heard=True
    ),
    "only this watch and one of its fellows have lost it": Loss(
        ((0, "heard"), (3, "silent")), None, 1.5, is_heard=True, deaf=frozenset({3})
    ),
    "its lease has ended": Loss(((0, "heard"), (2.75, "silent"), (5, "gone")), None, 5.0),
    "its short lease has ended": Loss(((0, "heard"), (3, "gone")), None, 2.5),
    "its lease has ended, and its fellows tell nothing": Loss(
        ((0, "heard"), (3.75, "gone")), None, 1.5, is_waiting=True
    ),
}


def tellers(view: View) -> dict[str, str]:
    """What each screen, file and command tells of n2."""
    model, now_ns = view.model, view.now_ns
    two = model.nodes[node_id(2)]
    words = ("heard", "complete", "silent", "gone", "stopped")
    by_filter = [
        word
        for word in words
        if node_id(2)
        in Overview(dataclasses.replace(view, filter=Filter.parse(f"state:{word}", FIELDS)), 100).keys
    ]
    overview = Overview(view, 100)
    row = overview.keys.index(node_id(2))
    (csv_row,) = [
        one for one in csv.DictReader(io.StringIO(export.as_csv(view.health))) if one["node"] == "n2"
    ]
    (shown,) = [one for one in export.system(view.health, now_ns)["nodes"] if one["name"] == "n2"]
    up = {
        one.labels["node"]: one.value
        for family in families([("7", view.health, now_ns)])
        for one in family.samples
        if one.name == "ospltool_node_up"
    }
    card = " ".join(plain(line) for line in node.card(view, two))
    return {
        "row": plain(overview.cell(row, 2)).strip(),
        "filter": " ".join(by_filter),
        "card": next(word for word in words if f" {word} " in card.replace("heard ", "")),
        "detail": plain(detail(view, two, "Orders")[0]),
        "master": plain(name_space.master_lines(view, "Orders")[0]),
        "json": shown["presence"],
        "away": str(view.health.is_away(two)),
        "csv": csv_row["node_state"],
        "up": str(int(up["n2"])),
        "rank": ranks(view, ())[node_id(2)].name,
    }


def told_of(word: str) -> dict[str, str]:
    """What they tell if they agree."""
    is_heard = word == "heard"
    shown = "complete" if is_heard else word
    rank = {"heard": "CALM", "silent": "WARNING", "gone": "ERROR", "stopped": "STOPPED"}
    return {
        "row": shown,
        "filter": shown,
        "card": shown,
        "json": word,
        "away": str(word in ("gone", "stopped")),
        "csv": "COMPLETE" if is_heard else word,
        "up": "1" if is_heard else "0",
        "rank": rank[word],
    }


CODES = {"silent": "DUL-NODE-SILENT", "gone": "DUL-NODE-GONE"}


@pytest.mark.parametrize("name", LOSSES)
def test_everybody_tells_the_same_of_a_node_at_each_moment(name: str) -> None:
    loss = LOSSES[name]
    reports: dict[str, SupervisorReport] = {}
    model = SystemModel()
    health = Health(model, reports=lambda: reports)
    for step in range(-4, round(WATCHED_S / STEP_S)):
        at_s = step * STEP_S
        now_ns = START_NS + round(at_s * S)
        if step % 4 == 0:
            heard = [1, 3] if at_s > 0 else [1, 2, 3]
            model.apply(Update(tuple(told(n, at_s, loss) for n in heard)), now_ns)
        if at_s == loss.lease_s:
            model.apply(Update(notices=(FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(2)),)), now_ns)
        if at_s >= 0.5 and loss.report is not None:
            reports["n2"] = loss.report
        health.update(now_ns)
        view = View(health, now_ns, UNICODE)
        examined_s = (view.examined_ns - START_NS) / S
        word = next((word for from_s, word in reversed(loss.ends) if examined_s >= from_s), "heard")
        found, expected = tellers(view), told_of(word)
        assert {teller: found[teller] for teller in expected} == expected, (at_s, word)
        is_told = word in ("silent", "gone")
        assert [one.code.id for one in health.open if one.who == "n2"] == (
            [CODES[word]] if is_told else []
        ), at_s
        assert (f", which is {word}" in found["master"]) is (word != "heard"), at_s
        assert (f"{word}, said last" in found["detail"]) is (word != "heard"), at_s


def told(number: int, at_s: float, loss: Loss) -> ReceivedSnapshot:
    """What a node shows at a moment: n2 is the master, and a fellow until it is removed."""
    moment_ns = START_NS + round(at_s * S)
    heartbeat_ns = moment_ns if loss.is_heard else START_NS
    if loss.is_waiting:
        heartbeat_ns = min(moment_ns, START_NS + 2 * S)
    away = {2} if at_s >= loss.removed_s or (at_s > 0 and number in loss.deaf) else set()
    fellows = tuple(
        fake.fellow(n, min(moment_ns, heartbeat_ns) if n == 2 else moment_ns)
        for n in {1, 2, 3} - {number} - away
    )
    view = fake.name_space("Orders", 2)
    return ReceivedSnapshot(fake.snapshot(number, view, time_ns=moment_ns, fellows=fellows), moment_ns)
