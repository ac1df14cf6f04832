"""Nodes that should be there and were never heard by a console that came late: rows of the overview."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from textual.pilot import Pilot

from ospltool.health.health import Health
from ospltool.live.expectation import Expectation
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from ospltool.views import incidents
from ospltool.views.cells import UNICODE, plain
from ospltool.views.overview import FIELDS, Overview
from ospltool.views.view import Filter, View
from tests import fake
from tests.fake import SECOND_NS, START_NS, ScriptedFeed, node_id
from tests.health.looking import looked
from tui.app import ConsoleApp
from tui.screens.base import OpsScreen
from tui.widgets.sheet import Sheet

EXPECTED = Expectation(("n1", "n2", "n10"))
LATER_NS = START_NS + 20 * SECOND_NS


def heard(moment_ns: int) -> Update:
    return Update((ReceivedSnapshot(fake.snapshot(1, fake.name_space("Orders", 1)), moment_ns),))


def health_of(reports: Mapping[str, SupervisorReport], *, lasted: bool = True) -> Health:
    """n1 is heard, since long or for the first time, and n2 and n10 are not."""
    model = SystemModel()
    if not lasted:
        health = Health(model, EXPECTED, reports=lambda: reports)
        model.apply(heard(START_NS), START_NS)
        health.update(START_NS)
        return health
    for moment_ns in (START_NS, LATER_NS):
        model.apply(heard(moment_ns), moment_ns)
    return looked(model, LATER_NS, EXPECTED, reports)


def rows(health: Health, moment_ns: int, text: str = "") -> list[list[str]]:
    view = View(health, moment_ns, UNICODE, Filter.parse(text, FIELDS))
    shown = Overview(view, 80, health.open)
    return [[plain(shown.cell(row, column)).strip() for column in range(3)] for row in range(len(shown.keys))]


@pytest.mark.parametrize(
    ("reports", "first"),
    [
        ({}, ["✖", "n2", "never heard"]),
        (
            {"n2": SupervisorReport("its supervisor says: died", is_dead=True, is_trouble=True)},
            ["✖", "n2", "gone"],
        ),
        (
            {"n2": SupervisorReport("it cannot run", is_dead=True, is_trouble=True, never_ran=True)},
            ["✖", "n2", "did not start"],
        ),
    ],
)
def test_an_expected_node_that_was_never_heard_has_a_row(
    reports: dict[str, SupervisorReport], first: list[str]
) -> None:
    assert rows(health_of(reports), LATER_NS) == [
        first,
        ["✖", "n10", "never heard"],
        ["●", "n1", "complete"],
    ]


def test_a_stopped_or_starting_node_is_not_in_trouble() -> None:
    reports = {
        "n2": SupervisorReport("", in_order=True),
        "n10": SupervisorReport("", is_starting=True),
    }
    assert rows(health_of(reports), LATER_NS) == [
        ["◐", "n10", "starting"],
        ["●", "n1", "complete"],
        ["○", "n2", "stopped"],
    ]


def test_filters_find_it_by_name_and_shown_state() -> None:
    health = health_of({})
    assert [row[1] for row in rows(health, LATER_NS, "state:never")] == ["n2", "n10"]
    assert [row[1] for row in rows(health, LATER_NS, "node:n10")] == ["n10"]


def test_nothing_is_called_right_while_an_expected_node_was_not_heard_yet() -> None:
    health = health_of({}, lasted=False)
    assert rows(health, START_NS)[:2] == [["◐", "n2", "not heard yet"], ["◐", "n10", "not heard yet"]]
    (line,) = incidents.none_lines(View(health, START_NS, UNICODE))
    assert plain(line) == " no incident yet, but n2 and 1 other node cannot be heard"


def test_enter_on_its_row_opens_its_incident(
    play: Callable[..., None], read_screen: Callable[[ConsoleApp], list[str]]
) -> None:
    steps = [(START_NS + second * SECOND_NS, heard(START_NS + second * SECOND_NS)) for second in range(21)]

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert app.screen.query_one("#matrix", Sheet)._table.keys == ("unheard n2", "unheard n10", node_id(1))
        await pilot.press("tab", "enter")
        assert isinstance(app.screen, OpsScreen)
        assert app.screen.NAME == "incident"
        text = read_screen(app)
        assert "DUL-NODE-ABSENT" in text[0]
        assert any("n2 is expected and was not heard since this watch began" in line for line in text)

    feed = ScriptedFeed(steps, title="domain 7")
    play(feed, scenario, ticks=22, watch_health=lambda model: Health(model, EXPECTED))
