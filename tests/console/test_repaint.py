"""A table that changes is drawn again, also after its screen was away for a while."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from tests.fake import FakeFeed
from tui import themes
from tui.app import ConsoleApp
from tui.widgets.sheet import Sheet

Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


@pytest.mark.parametrize("key", "1234568")
def test_a_screen_that_was_left_shows_what_changes_after_its_return(
    play: Play, read_screen: Read, key: str
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press(key)
        before = read_screen(app)
        await pilot.press("9", key)
        for _ in range(12):
            app.tick()
            await pilot.pause()
        shown = read_screen(app)
        assert shown != before
        for sheet in app.screen.query(Sheet):
            sheet.redraw()
        await pilot.pause()
        assert shown == read_screen(app)

    play(FakeFeed(3, 2), scenario, size=(120, 40), ticks=8)


def test_a_screen_that_was_away_has_the_theme_that_was_chosen_meanwhile(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("2", "1", "2")
        app.theme = themes.LIGHT.name
        await pilot.press("1")
        await pilot.pause()
        strip = app.screen.query_one("#matrix", Sheet).render_line(1)
        looks = {segment.style.bgcolor.name for segment in strip if segment.style and segment.style.bgcolor}
        assert themes.LIGHT.background in looks

    play(FakeFeed(3, 2), scenario, size=(120, 40), ticks=8)


def test_every_row_is_right_wherever_a_table_was_scrolled(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("6")
        for key in ("pagedown", "down", "down", "pageup", "end", "up", "pageup", "o", "pagedown", "home"):
            await pilot.press(key)
            shown = read_screen(app)
            app.screen.query_one("#table", Sheet).redraw()
            await pilot.pause()
            assert shown == read_screen(app), key

    play(FakeFeed(3, 2, 100), scenario, size=(80, 24), ticks=8)
