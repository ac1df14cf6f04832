"""The page about the console says what the console does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from engine.simulator.options import draw
from ospltool.live.feed import Feed
from ospltool.live.simulated import SimulatedFeed
from ospltool.views.view import Subject
from tests.console.test_pictures import trouble
from tui import themes
from tui.app import SCREENS, TABS, ConsoleApp
from tui.commands import OPERATIONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "console.md").read_text(encoding="utf-8")
KEYS = (DOCS / "console-keys.md").read_text(encoding="utf-8")
Play = Callable[..., None]
Keys = dict[tuple[str, str], set[str]]
TRAVEL = "recordings, simulations"


def keys_of(play: Play, feed: Feed) -> Keys:
    """(keys, meaning) and the screens on which they work."""
    found: Keys = {}

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for name in SCREENS:
            worst = next(iter(app.view().health.open), None)
            app.go(name, Subject(incident=worst.key if worst else ""))
            await pilot.pause()
            for row in app._keys():
                found.setdefault(row, set()).add(name)

    play(feed, scenario)
    return found


def test_the_page_has_every_key_of_every_screen_and_no_other(play: Play) -> None:
    told = {
        (keys, meaning): where.strip()
        for keys, meaning, where in re.findall(r"^\| `([^`]+)` \| ([^|]+) \|([^|]*)\|$", KEYS, re.MULTILINE)
    }
    live = keys_of(play, trouble())  # an incident can be muted
    feed = SimulatedFeed(draw(1, (), minutes=0.1), title="simulation")
    simulated = keys_of(play, feed)
    feed.close()
    expected = {}
    for row, screens in {**live, **simulated}.items():
        everywhere = "" if screens == set(SCREENS) else ", ".join(sorted(screens))
        expected[row] = everywhere if row in live else TRAVEL
    assert told == expected


def test_the_page_names_every_screen_theme_and_operation() -> None:
    for number, name in enumerate(TABS, 1):
        assert f"| `{number % 10}` | {name} | " in PAGE
    for theme in themes.OWN:
        assert f"`{theme}`" in PAGE
    for operation in OPERATIONS:
        assert f"`:{operation.name}`" in PAGE


def test_the_page_names_every_option_that_an_operator_needs() -> None:
    for option in (
        "--replay",
        "--simulate",
        "--seed",
        "--faults",
        "--minutes",
        "--operate",
        "--serve",
        "--json",
    ):
        assert option in PAGE
