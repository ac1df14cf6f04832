from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from engine.simulator.options import draw
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.simulated import SimulatedFeed
from ospltool.views.cells import ASCII
from ospltool.views.view import Subject
from tests import fake
from tests.fake import SECOND_NS, START_NS, FakeFeed, ScriptedFeed, node_id
from tui.app import ConsoleApp
from tui.screens.help import HelpScreen
from tui.screens.overview import OverviewScreen
from tui.widgets.bottom import CommandLine
from tui.widgets.sheet import Sheet

S = SECOND_NS
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


def system(nodes: int = 3, spaces: int = 2) -> ScriptedFeed:
    names = [f"space-{i}" for i in range(1, spaces + 1)]
    heard = tuple(
        ReceivedSnapshot(fake.snapshot(n, *(fake.name_space(name, 1) for name in names)), START_NS)
        for n in range(1, nodes + 1)
    )
    events = tuple(fake.event(i, 1, START_NS, f"event {i}") for i in range(40))
    return ScriptedFeed([(START_NS, Update(heard, events))], title="domain 7")


def grid_of(app: ConsoleApp) -> Sheet:
    return app.screen.query_one("#matrix", Sheet)


def check_screen(
    play: Play, feed: ScriptedFeed, keys: list[str], look: Callable[[ConsoleApp], None], **options: Any
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        look(app)

    play(feed, scenario, **options)


def test_q_ends_the_console_with_success(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert [one.message for one in app._notifications] == ["Press q to quit"], "as the line of keys says"
        assert not app._exit
        await pilot.press("q")
        assert app.return_code == 0
        assert app._exit

    play(system(), scenario)


def test_question_mark_shows_every_key_and_closes_again(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        bindings = [active.binding for active in app.screen.active_bindings.values()]
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        assert len(bindings) > 20
        text = "\n".join(read_screen(app))
        for binding in bindings:
            if binding.description and not binding.system and binding.description != "screen":
                assert binding.description.lower() in text
        for close in ("question_mark", "escape", "q"):
            await pilot.press(close)
            assert isinstance(app.screen, OverviewScreen)
            await pilot.press("question_mark")

    play(system(), scenario, size=(120, 70))


def test_p_freezes_the_picture_and_says_how_far_it_is_behind(play: Play, read_screen: Read) -> None:
    feed = system()
    feed.add(START_NS + 9 * S, Update((ReceivedSnapshot(fake.snapshot(4), START_NS + 9 * S),)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("p")
        app.tick()
        await pilot.pause()
        assert node_id(4) not in app.model.nodes
        assert "PAUSED" in read_screen(app)[0]
        feed._now_ns += 7 * S
        app.tick()
        await pilot.pause()
        assert "PAUSED, 7 s behind  01:03:20 UTC" in read_screen(app)[0]
        await pilot.press("p")
        await pilot.pause()
        assert node_id(4) in app.model.nodes
        assert "live" in read_screen(app)[0]

    play(feed, scenario)


def test_slash_filters_while_typing_and_escape_takes_it_away(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", "n", "2")
        await pilot.pause()
        assert grid_of(app)._table.keys == (node_id(2),)
        assert any("n2" in line for line in read_screen(app)[-3:])
        await pilot.press("enter")
        assert app.focused is grid_of(app)
        assert grid_of(app)._table.keys == (node_id(2),)
        await pilot.press("escape")
        await pilot.pause()
        assert len(grid_of(app)._table.keys) == 3
        assert not app.screen.query_one(Input).display
        await pilot.press("slash", "x", "escape")
        assert len(grid_of(app)._table.keys) == 3
        assert app.focused is grid_of(app)

    play(system(), scenario)


def test_what_is_typed_in_one_go_arrives_in_the_filter(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for key, character in (("slash", "/"), ("q", "q"), ("n", "n"), ("2", "2")):
            app.post_message(Key(key, character))
        await pilot.pause()
        await pilot.pause()
        assert app.screen.query_one(Input).value == "qn2"
        assert app.is_running

    play(system(), scenario)


def test_while_a_filter_is_typed_letters_are_no_commands(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", "q", "p", "e")
        assert app.screen.query_one(Input).value == "qpe"
        assert not app.paused_ns

    play(system(), scenario)


def test_e_gives_the_page_to_the_events_and_back(play: Play, read_screen: Read) -> None:
    def events(app: ConsoleApp) -> int:
        return sum("event " in line for line in read_screen(app))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        before = events(app)
        await pilot.press("e")
        await pilot.pause()
        assert events(app) >= 19 > before
        assert not grid_of(app).display
        await pilot.press("e")
        await pilot.pause()
        assert events(app) == before

    play(system(), scenario)


@pytest.mark.parametrize(
    ("keys", "row", "column"),
    [
        ([], 1, 1),
        (["down"], 2, 1),
        (["j", "j", "k"], 2, 1),
        (["up"], 1, 1),
        (["right"], 1, 2),
        (["l", "l", "h"], 1, 1),
        (["left"], 1, 1),
        (["end"], 40, 1),
        (["G", "g"], 1, 1),
        (["G", "home"], 1, 1),
        (["pagedown", "pagedown", "pageup"], None, 1),
    ],
)
def test_the_cursor_walks_over_the_matrix(play: Play, keys: list[str], row: int | None, column: int) -> None:
    def look(app: ConsoleApp) -> None:
        grid = grid_of(app)
        assert grid.column_key == f"ns space-{column}"
        if row is None:
            assert grid.row_key not in (node_id(1), node_id(40))
        else:
            assert grid.row_key == node_id(row)

    check_screen(play, system(40), ["z", *keys], look)


def test_the_detail_follows_the_cursor(play: Play, read_screen: Read) -> None:
    def look(app: ConsoleApp) -> None:
        assert any("space-2 on n2  master n1: highest masterPriority" in line for line in read_screen(app))

    check_screen(play, system(), ["down", "right"], look)


def test_columns_out_of_view_are_counted_and_come_with_the_cursor(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        header = next(line for line in read_screen(app) if "heard" in line)
        assert header.endswith("44>")
        await pilot.press(*["right"] * 49)
        await pilot.pause()
        header = next(line for line in read_screen(app) if "heard" in line)
        assert grid_of(app).column_key == "ns space-50"
        assert header.rstrip().endswith("<44")
        await pilot.press(*["left"] * 49)
        assert grid_of(app).column_key == "ns space-1"

    play(system(3, 50), scenario)


def test_a_click_moves_the_cursor(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.click("#matrix", offset=(60, 2))
        assert (grid_of(app).row_key, grid_of(app).column_key) == (node_id(2), "ns space-2")

    play(system(), scenario)


def test_the_cursor_stays_on_its_node_when_nodes_come_before_it(play: Play) -> None:
    feed = system(3)
    newcomer = fake.snapshot(9, fake.name_space("space-1", 1), name="a-first")
    feed.add(START_NS, Update((ReceivedSnapshot(newcomer, START_NS),)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("down")
        app.tick()
        await pilot.pause()
        assert grid_of(app).row_key == node_id(2)
        assert grid_of(app).row == 2

    play(feed, scenario)


def test_the_footer_has_at_most_eight_keys(play: Play) -> None:
    def look(app: ConsoleApp) -> None:
        shown = [active for active in app.screen.active_bindings.values() if active.binding.show]
        assert 4 <= len(shown) <= 8

    check_screen(play, system(), [], look)


def test_text_from_the_network_is_shown_and_never_obeyed(play: Play, read_screen: Read) -> None:
    name = "[red]n\x1b[31m"
    snapshot = fake.snapshot(1, fake.name_space("[b]\x9bX[/b]", 1, why="\x1b]0;owned\x07[link=x]"), name=name)
    event = fake.event(1, 1, START_NS, "[/red] \x1b[2J [blink]", node_name=name)
    feed = ScriptedFeed(
        [(START_NS, Update((ReceivedSnapshot(snapshot, START_NS),), (event,), caption="\x1b[1mAct[/]"))]
    )

    def look(app: ConsoleApp) -> None:
        text = "\n".join(read_screen(app))
        assert all(line.isprintable() for line in read_screen(app))
        for shown in (
            "[/red] \\x1b[2J [blink]",
            "[b]\\x9bX[/b]",
            "\\x1b]0;owned\\x07[link=x]",
            "\\x1b[1mAct[/]",
        ):
            assert shown in text

    check_screen(play, feed, [], look, size=(120, 30))


def test_without_utf_8_every_sign_is_ascii(play: Play, read_screen: Read) -> None:
    def look(app: ConsoleApp) -> None:
        text = "\n".join(read_screen(app)[:-1])
        assert text.isascii()

    check_screen(play, system(), [], look, signs=ASCII)


KEYS = "down right e enter escape tab pagedown end y o o O s t question_mark escape slash x escape"


@pytest.mark.parametrize(
    ("size", "theme", "no_color"),
    [((20, 5), "ops-dark", ""), ((40, 10), "ops-ansi", "1"), ((80, 24), "ops-mono", "1")],
)
def test_every_key_on_every_screen_is_survived_at_any_size_and_without_colours(
    play: Play, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], theme: str, no_color: str
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.resize_terminal(*size)
        for screen in map(str, range(10)):
            await pilot.press(screen, *KEYS.split())
            app.tick()
            assert app.is_running

    play(FakeFeed(3, 2), scenario, ticks=12, theme=theme)


def test_a_large_terminal_is_survived(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.resize_terminal(300, 100)
        await pilot.press("down", "right", "e", "e", "question_mark", "escape")
        assert app.is_running

    play(system(), scenario)


def test_an_idle_call_that_says_no_ends_the_console(play: Play) -> None:
    calls = []

    def idle() -> bool:
        calls.append(1)
        return len(calls) < 3

    async def scenario(app: ConsoleApp, _pilot: Pilot[int]) -> None:
        assert not app._exit
        app.tick()
        app.tick()
        assert app._exit

    play(system(), scenario, on_idle=idle)


def test_a_feed_that_moves_is_shown_at_each_tick(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        first = read_screen(app)
        for _ in range(8):
            app.tick()
        await pilot.pause()
        assert read_screen(app) != first

    play(FakeFeed(3, 2), scenario)


@pytest.mark.parametrize("width", [80, 150])
def test_a_click_on_a_tab_shows_its_screen(play: Play, read_screen: Read, width: int) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for number, name in ((3, "name-space"), (8, "store"), (1, "overview")):
            tabs = read_screen(app)[1]
            await pilot.click("#header", offset=(tabs.index(f" {number} ") + 1, 1))
            await pilot.pause()
            assert getattr(app.screen, "NAME", "") == name
        await pilot.click("#header", offset=(2, 0))
        await pilot.pause()
        assert getattr(app.screen, "NAME", "") == "overview"

    play(system(), scenario, size=(width, 24))


def test_the_cursor_stays_in_the_table_that_tab_has_led_to(play: Play) -> None:
    """An update must not give the cursor back to the incidents, which have it at first."""

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert app.focused is app.screen.query_one("#attention", Sheet)
        await pilot.press("tab")
        for _ in range(4):
            app.tick()
            await pilot.pause()
            assert app.focused is grid_of(app)

    play(FakeFeed(3, 3), scenario, size=(120, 40), ticks=12)


def test_help_after_a_colon_shows_the_keys_of_the_screen(play: Play, read_screen: Read) -> None:
    shown: dict[str, list[str]] = {}

    for keys in (["question_mark", "down"], [":", *"help", "enter", "down"]):

        def look(app: ConsoleApp, by: str = keys[0]) -> None:
            assert isinstance(app.screen, HelpScreen)
            shown[by] = read_screen(app)

        check_screen(play, system(), keys, look, size=(100, 70))
    first, second = shown.values()
    assert "\n".join(second) == "\n".join(first)


def test_m_marks_the_moment_of_a_recording_and_mutes_nothing(play: Play, read_screen: Read) -> None:
    """What is muted in a recording would be muted for nobody, and its time is another one."""
    feed = SimulatedFeed(draw(1, (), minutes=0.1), title="simulation")

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for screen in ("overview", "incidents"):
            app.go(screen, Subject())
            await pilot.pause()
            await pilot.press("m")
            await pilot.pause()
            line = app.screen.query_one(CommandLine)
            assert (line.display, line.value) == (True, "mark ")
            await pilot.press("escape")
        assert not app.health.mutes.all

    try:
        play(feed, scenario)
    finally:
        feed.close()


def test_a_command_says_what_it_does_while_it_is_typed_and_is_in_no_picture(
    play: Play, read_screen: Read, tmp_path: Path
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("colon", *"ti")
        await pilot.pause()
        assert any("time local|utc" in line and "this machine's zone" in line for line in read_screen(app))
        await pilot.press("escape", "colon", *f"export svg {tmp_path}/one.svg", "enter")
        await pilot.pause()
        picture = (tmp_path / "one.svg").read_text("utf-8").replace("&#160;", " ")
        assert "space-1 on n1" in picture
        assert "export" not in picture
        assert "completes it" not in picture
        assert any("written to" in line for line in read_screen(app))

    play(system(), scenario)


def test_times_are_those_of_the_nodes_or_of_this_machine(
    play: Play, read_screen: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "XYZ-2")
    time.tzset()

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.run_command("time local")
        assert "03:03:20 XYZ" in read_screen(app)[0]
        app.run_command("time utc")
        assert "01:03:20 UTC" in read_screen(app)[0]
        app.run_command("time here")
        await pilot.pause()
        assert any("say `time local`" in line for line in read_screen(app))

    play(system(), scenario)
    monkeypatch.undo()
    time.tzset()


def test_help_is_searched(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark", "slash", *"theme")
        await pilot.pause()
        shown = "\n".join(read_screen(app))
        assert "theme [NAME]" in shown
        assert "row up" not in shown
        await pilot.press("escape")
        await pilot.pause()
        assert "row up" in "\n".join(read_screen(app))
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.front

    play(system(), scenario, size=(80, 40))
