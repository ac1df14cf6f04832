"""What the console says of nodes that have been lost a moment ago."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import looked
from tui.cells import UNICODE, Line, plain
from tui.viewmodel import incidents, subject
from tui.viewmodel.base import View

WHY = "highest masterPriority of n1 200, n2 100, n3 50"


def texts(lines: Iterable[Line]) -> list[str]:
    return [plain(line) for line in lines]


@pytest.mark.parametrize(
    ("master", "after_s", "line"),
    [
        (1, 0, f" ★ DefaultRole: n1  {WHY}  1/00000001"),
        (
            2,
            60,
            f" ▲ DefaultRole: n2, which is silent  {WHY}  1/00000002",
        ),
        (0, 0, f" ✖ DefaultRole: no master  {WHY}"),
    ],
)
def test_a_master_has_a_star_while_it_is_there(master: int, after_s: int, line: str) -> None:
    model = SystemModel()
    nodes = (fake.snapshot(number, fake.name_space("Orders", master)) for number in (1, 2))
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in nodes)), START_NS)
    now_ns = START_NS + after_s * SECOND_NS
    view = View(looked(model, now_ns), now_ns, UNICODE)
    assert texts(subject.master_lines(view, "Orders")) == [line]


def test_nothing_is_wrong_only_while_every_node_is_heard() -> None:
    model = SystemModel()
    heard = tuple(
        ReceivedSnapshot(fake.snapshot(n, fake.name_space("Orders", 1)), START_NS) for n in (1, 2, 3)
    )
    model.apply(Update(heard), START_NS)
    assert texts(incidents.none_lines(View(looked(model, START_NS), START_NS, UNICODE)))[0].startswith(
        " nothing is wrong"
    )
    lost = tuple(FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(n)) for n in (2, 3))
    view = View(looked(model, START_NS), START_NS, UNICODE)
    model.apply(Update(notices=lost), START_NS)
    assert texts(incidents.none_lines(view)) == [" no incident yet, but n2 and 1 other node cannot be heard"]


# Conflicts.
