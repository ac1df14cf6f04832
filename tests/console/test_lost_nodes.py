"""What the console says of nodes that have been lost a moment ago."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ospltool.health.health import Health
from ospltool.live.expectation import Expectation
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.views import incidents, name_space
from ospltool.views.cells import UNICODE, Line, plain
from ospltool.views.view import View
from tests import fake
from tests.fake import SECOND_NS, START_NS, node_id
from tests.health.looking import looked
from tui import panels
from tui.panels import ConsoleStatus

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
    assert texts(name_space.master_lines(view, "Orders")) == [line]


def test_a_mastership_has_one_reason_that_of_the_master_itself() -> None:
    """Nodes that follow say why they follow; screens and history do not give several reasons for one."""
    model = SystemModel()
    nodes = (
        fake.snapshot(1, fake.name_space("Orders", 2, why="follows n2, which holds the set")),
        fake.snapshot(2, fake.name_space("Orders", 2, why=WHY)),
        fake.snapshot(3, fake.name_space("Orders", 2, why="follows n2, which said so")),
    )
    for number, each in enumerate(nodes):
        model.apply(Update((ReceivedSnapshot(each, START_NS + number),)), START_NS + number)
    view = View(looked(model, START_NS), START_NS, UNICODE)
    assert texts(name_space.master_lines(view, "Orders")) == [f" ★ DefaultRole: n2  {WHY}  1/00000002"]
    (line,) = texts(name_space.history_lines(view, "Orders"))
    assert line.endswith(f"n2 for DefaultRole  1/00000002  {WHY}")


def test_header_and_incident_have_one_beginning_of_a_lost_domain() -> None:
    """The incident goes on that of the node that was lost first."""
    model = SystemModel()
    health = Health(model)
    heard = tuple(ReceivedSnapshot(fake.snapshot(n, fellows=(fake.fellow(3 - n),)), START_NS) for n in (1, 2))
    model.apply(Update(heard), START_NS)
    gone = FeedNotice(NoticeKind.NODE_LOST, START_NS + SECOND_NS, "", node_id(1))
    model.apply(Update(notices=(gone,)), START_NS + SECOND_NS)
    health.update(START_NS + SECOND_NS)
    lost = FeedNotice(NoticeKind.DOMAIN_LOST, START_NS + 9 * SECOND_NS, "")
    model.apply(Update(notices=(lost,)), START_NS + 9 * SECOND_NS)
    now_ns = START_NS + 20 * SECOND_NS
    health.update(now_ns)
    (one,) = health.open
    assert one.code.id == "DUL-DOMAIN-LOST"
    status = ConsoleStatus("console", "domain 7", "live")
    shown = plain(panels.header(View(health, now_ns, UNICODE), status, "overview", "overview", 120)[0])
    age_s = (now_ns - one.since_ns) // SECOND_NS
    assert f"DOMAIN LOST {age_s} s ago" in shown


def test_expected_nodes_are_named_while_nobody_is_heard() -> None:
    model = SystemModel()
    health = Health(model, Expectation(("n1", "n2")))
    model.apply(Update(), START_NS)
    health.update(START_NS)
    view = View(health, START_NS, UNICODE, where=" on domain 7")
    assert texts(panels.caption_lines(view, 120)) == [" ▌ no node heard on domain 7; expected: n1 and n2"]


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
