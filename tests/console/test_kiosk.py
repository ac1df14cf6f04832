"""A console on a wall, and one that hears nobody: what people see who press no key, or the first one."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from textual.color import Color
from textual.pilot import Pilot
from textual.widgets import Digits

from ospltool.cli import domains
from ospltool.health.health import Health
from ospltool.live.feed import ReceivedSnapshot, TimeTravel, Update
from tests import fake
from tests.console.test_pictures import empty, quiet, trouble
from tests.fake import SECOND_NS, START_NS, ScriptedFeed
from tui import themes
from tui.app import ConsoleApp
from tui.widgets.kiosk import Kiosk

S = SECOND_NS
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


def figures(app: ConsoleApp) -> list[str]:
    return [one.value for one in app.screen.query(Digits)]


def test_a_wall_shows_large_figures_and_its_pages_in_turn(play: Play, read_screen: Read) -> None:
    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert figures(app) == ["2", "1", "3:5", "0"]
        lines = read_screen(app)
        assert "2 node" not in lines[1], "no tabs: nobody presses keys"
        assert not lines[-1].startswith(" /")
        seen = []
        for _ in range(4):
            app.rotate()
            await pilot.pause()
            seen.append(app.front.heading if app.front else "")
            assert figures(app)[0] == "2", "the figures stand above each page"
        assert seen == ["DUL-NODE-GONE", "name-space Orders", "name-space Telemetry", "overview"]
        await pilot.press("question_mark")
        app.rotate()
        assert app.front is not None
        assert app.front.heading == "overview", "the page below the help stays"

    play(trouble(), look, ticks=2, size=(120, 40), kiosk=True)


@pytest.mark.parametrize(("silent_s", "is_stale"), [(9, False), (11, True)])
@pytest.mark.parametrize("theme", list(themes.OWN))
def test_old_data_on_a_wall_is_no_picture_of_now(
    play: Play, theme: str, silent_s: int, is_stale: bool
) -> None:
    heard = Update((ReceivedSnapshot(fake.snapshot(1, fake.name_space("Orders", 1)), START_NS),))
    feed = ScriptedFeed([(START_NS, heard), (START_NS + silent_s * S, Update())])

    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert figures(app)[3] == str(silent_s)
        assert app.screen.has_class("-stale") is is_stale
        if not themes.OWN[theme].ansi:
            colour = Color.parse(themes.OWN[theme].variables["ops-fault"])
            assert (app.screen.query_one(Kiosk).styles.background == colour) is is_stale

    play(feed, look, ticks=2, theme=theme, kiosk=True)


def test_a_wall_counts_a_node_that_only_its_fellow_knows(play: Play) -> None:
    def heard(second: int) -> tuple[int, Update]:
        now_ns = START_NS + second * S
        silent = fake.fellow(1, START_NS - 10 * S)
        node = fake.snapshot(2, fake.name_space("Orders", 2), time_ns=now_ns, fellows=(silent,))
        return now_ns, Update((ReceivedSnapshot(node, now_ns),))

    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert figures(app)[:3] == ["0", "1", "1:2"]

    play(ScriptedFeed([heard(0), heard(2)]), look, ticks=2, kiosk=True)


def test_a_console_that_hears_nobody_offers_a_simulation(play: Play, read_screen: Read) -> None:
    feed, _ = domains.simulated(domains.DRAWN, 1, "any", None, 1.0)
    assert isinstance(feed, TimeTravel)
    feed.seek(feed.timeline.begin_ns + 5 * S)
    live = empty()
    setattr(live, "where", " on domain 7, interface lo: `ospltool start FILE` starts one")  # noqa: B010 - a feed may have it

    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert any("S shows a simulated system" in line for line in read_screen(app))
        assert "S simulation" in read_screen(app)[-1]
        await pilot.press("S")
        for _ in range(8):  # two seconds
            app.tick()
        await pilot.pause()
        lines = read_screen(app)
        assert "simulation" in lines[0]
        assert any(" n1 " in line for line in lines), "\n".join(lines)
        assert "S simulation" not in lines[-1]
        await pilot.press("d")
        await pilot.pause()
        assert any("no node heard yet" in line for line in read_screen(app))

    play(live, look, simulate=lambda: (feed, functools.partial(Health)))
    feed.close()


def test_a_console_that_hears_somebody_offers_none(play: Play, read_screen: Read) -> None:
    async def look(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert "S simulation" not in read_screen(app)[-1]
        await pilot.press("S")
        assert len(app.systems.all) == 1

    play(quiet(), look, simulate=lambda: pytest.fail("nobody asked for it"))
