"""What an operator sees at three in the morning, on real states: what, why, effect and what next."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.simulator.options import TopicPlan
from tests.console.watched import Watched
from tests.fake import ScriptedFeed
from tests.simulation.scenarios import Scenario, node
from tui.app import ConsoleApp

Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]
SPACES = ("harbour", "radar")
SMALL, USUAL = (80, 24), (120, 40)


def night(what: str) -> ScriptedFeed:
    """Three nodes: all is well, or n2 was killed, or n3 is cut off; then both sides go on."""
    scenario = Scenario(
        *(node(name, spaces=SPACES, priority=200 - index) for index, name in enumerate(("n1", "n2", "n3"))),
        topics=(TopicPlan("harbour", "Berth"), TopicPlan("radar", "Track")),
    )
    watched = Watched(scenario)
    scenario.start()
    scenario.run(6)
    scenario.write("n1", *range(40))
    if what == "dead":
        scenario.kill("n2")
    if what == "split":
        scenario.cut("n1 n2", "n3")
    if what != "well":
        scenario.run(3)
        scenario.write("n1", *range(40, 60))
        scenario.run(6)
    watched.take()
    return ScriptedFeed(watched.updates, title="domain 7")


def check(play: Play, what: str, scenario: Any, size: tuple[int, int]) -> None:
    feed = night(what)
    play(feed, scenario, size=size, ticks=len(feed._steps) + 2)


def starting(lines: list[str], word: str) -> str:
    (found,) = [line for line in lines if re.match(rf" +{word}  ", line)]
    return found


@pytest.mark.parametrize("size", [SMALL, USUAL])
def test_the_overview_says_why_what_it_does_to_the_data_and_what_to_do(
    play: Play, read_screen: Read, size: tuple[int, int]
) -> None:
    async def dead(app: ConsoleApp, pilot: Pilot[int]) -> None:
        lines = read_screen(app)
        assert any(re.search("DUL-NODE-GONE  n2 is gone", line) for line in lines)
        assert starting(lines, "Why")
        effect = "harbour and radar: 2 copies, 2 on disk, n1 is master, nothing lost"
        assert effect in starting(lines, "Effect")
        assert "Look at the host n2 first" in starting(lines, "Next")

    check(play, "dead", dead, size)


@pytest.mark.parametrize("size", [SMALL, USUAL])
def test_a_split_says_that_the_sets_drift_apart_and_marks_the_node_that_is_cut_off(
    play: Play, read_screen: Read, size: tuple[int, int]
) -> None:
    async def split(app: ConsoleApp, pilot: Pilot[int]) -> None:
        lines = read_screen(app)
        assert "harbour: n1 and n3 are masters, their sets drift apart" in starting(lines, "Effect")
        rows = (line.strip("│").split() for line in lines if re.match(r"│? \S n\d  ", line))
        marks = {row[1]: row[0] for row in rows}
        assert marks == {"n1": "●", "n2": "●", "n3": "✖"}

    check(play, "split", split, size)


def test_the_explanation_follows_the_cursor_and_gives_way_to_a_small_terminal(
    play: Play, read_screen: Read
) -> None:
    async def small(app: ConsoleApp, pilot: Pilot[int]) -> None:
        lines = read_screen(app)
        assert not [line for line in lines if line.startswith(" Why ")]
        assert any("n2 is gone" in line for line in lines)

    check(play, "dead", small, (60, 15))


def test_without_an_incident_nothing_is_explained_and_nothing_is_cut(play: Play, read_screen: Read) -> None:
    async def well(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for way in ("1", "5"):
            await pilot.press(way)
            lines = read_screen(app)
            assert not [line for line in lines if line.startswith((" Why ", " Next "))]
        assert "nothing is wrong, nor was since this watch began" in lines[3]
        assert "…" not in lines[3]
        await pilot.press("9")
        await app.workers.wait_for_complete()
        await pilot.pause()
        lines = read_screen(app)
        assert "no findings: what 3 nodes" in lines[2]
        assert not [line for line in lines if "yet" in line or "…" in line]
        assert any("ospltool check" in line for line in lines)

    check(play, "well", well, SMALL)


def test_the_first_line_of_an_incident_is_whole(play: Play, read_screen: Read) -> None:
    async def narrow(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("enter")
        assert re.search(r"Two nodes do not hear each other  since .* UTC, \d+ s, open$", read_screen(app)[3])
        assert "mute 1 h" in read_screen(app)[-1]

    check(play, "split", narrow, SMALL)


@pytest.mark.parametrize("size", [SMALL, USUAL])
def test_the_columns_of_the_help_are_aligned_and_nothing_shows_beside_it(
    play: Play, read_screen: Read, size: tuple[int, int]
) -> None:
    async def helped(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark")
        lines = read_screen(app)
        screens = re.compile(r"\d  (overview|node|name-space|alignment|trace|store)\b")
        places = [place.start() for line in lines for place in screens.finditer(line)]
        assert (len(places), len(set(places))) == (6, 2)  # in two columns
        if size == SMALL:
            assert not any(line[:1].strip() for line in lines)

    check(play, "well", helped, size)
