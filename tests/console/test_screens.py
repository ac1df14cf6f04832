"""Every key of every screen, on a system that has something for each of them to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.binding import Binding
from textual.pilot import Pilot

from engine.runtime.monitor import AlignmentView, DeliveryView, GroupView
from engine.tracing.catalogue import catalogue
from ospltool.live.feed import HeardReplica, ReceivedSnapshot, Update
from ospltool.views.view import Subject
from tests import fake
from tests.fake import SECOND_NS, START_NS, ScriptedFeed, node_id
from tui.app import SCREENS, ConsoleApp
from tui.screens.base import OpsScreen
from tui.screens.trace import TraceScreen
from tui.widgets.bottom import Entry, FilterLine
from tui.widgets.sheet import Sheet

S = SECOND_NS
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]
NODES = 12


def event(number: int, name: str, node: int = 1, **fields: Any) -> Any:
    text = catalogue()[name].text.format(**fields)
    return fake.event(number, node, START_NS - (100 - number) * S, text, event=name)


def system(**changes: Any) -> ScriptedFeed:
    """Twelve nodes and twelve persistence services with everything in it that a screen can show."""
    heard = []
    for n in range(1, NODES + 1):
        alignment = AlignmentView("from", node_id(1), 10 * n, 1000, 100, START_NS - S)
        spaces = [fake.name_space(f"s{i}", 1, master_priority=0) for i in range(1, 9)]
        spaces[0] = msgspec.structs.replace(
            spaces[0], complete=n == 1, alignments=(alignment,) if n > 1 else ()
        )
        snapshot = fake.snapshot(
            n,
            *spaces,
            fellows=tuple(fake.fellow(f) for f in range(1, NODES + 1) if f != n),
            groups=tuple(
                GroupView("s1", "P", f"T{i}", "Type", "PERSISTENT", i, i, i, "d", START_NS, i, 0)
                for i in range(14)
            ),
            deliveries=tuple(
                DeliveryView(f"p{i}", "T", "P", "done", i, START_NS - i * S, START_NS - i * S + S)
                for i in range(8)
            ),
            **changes,
        )
        heard.append(ReceivedSnapshot(snapshot, START_NS))
    conflicts = [
        event(i, "conflict.native-state", namespace=f"s{i % 8 + 1}", fellow=f"n{i}", conflict=str(i))
        for i in range(14)
    ]
    services = tuple(
        HeardReplica(
            fake.replica(
                f"i{n}",
                fake.provided(1, provider="i1"),
                *(fake.provided(w, provider="original") for w in range(2, 15)),
                subscriptions=tuple(fake.subscription(f"s{i}") for i in range(4)),
            ),
            START_NS,
        )
        for n in range(NODES)
    )
    update = Update(tuple(heard), tuple(conflicts), replicas=services)
    return ScriptedFeed([(START_NS, update)], title="domain 7")


def fingerprint(app: ConsoleApp, read: Read) -> tuple[Any, ...]:
    """Everything that a key can change."""
    screen = app.screen
    focus = app.focused.id if app.focused else None
    grids = tuple((g.row_key, g.column_key, g._first, g.scroll_y) for g in screen.query(Sheet))
    return (type(screen), focus, grids, app.subject, app.paused_ns, tuple(read(app)))


def keys_of(app: ConsoleApp) -> dict[str, Binding]:
    return {
        key: active.binding
        for key, active in app.screen.active_bindings.items()
        if active.binding.description and not active.binding.system
    }


NOTHING_TO_DO = {
    "overview": {"1", "z"},
    "node": {"2", "left", "h", "right", "l"},
    "name-space": {"3", "tab", "shift+tab", "left", "h", "right", "l"},
    "alignment": {"4", "left", "h", "right", "l"},
    "incidents": {"5", "tab", "shift+tab", "left", "h", "right", "l"},
    "conflicts": {"tab", "shift+tab", "left", "h", "right", "l"},
    "groups": {"6", "tab", "shift+tab", "left", "h", "right", "l"},
    "topics": {"T", "tab", "shift+tab", "left", "h", "right", "l"},
    "topic": {"tab", "shift+tab", "left", "h", "right", "l"},
    "applications": {"A", "tab", "shift+tab", "left", "h", "right", "l"},
    "application": {"tab", "shift+tab", "left", "h", "right", "l"},
    "trace": {"7", "tab", "shift+tab", "left", "h", "right", "l", "end", "G"},
    "store": {"8", "tab", "shift+tab", "left", "h", "right", "l"},
    "findings": {"9", "tab", "shift+tab", "left", "h", "right", "l"},
    "persistence": {"0", "left", "h", "right", "l"},
}
"""The screen's own number; tab where there is one table; sideways where all columns are in view;
folding where every node fits."""

ALWAYS_LEFT_OUT = {"ctrl+c", "super+c"}
"""Copies what was selected with the mouse."""


@pytest.mark.parametrize("name", sorted(SCREENS.keys() - {"incident"}))
def test_every_key_of_every_screen_does_something(
    play: Play, read_screen: Read, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a key writes files
    tried: set[str] = set()
    subject = Subject(node_id(7), "s2")
    exits: list[object] = []

    async def open_screen(app: ConsoleApp, pilot: Pilot[int]) -> None:
        while not isinstance(app.screen, OpsScreen):
            await pilot.press("escape")
        app.paused_ns = 0
        for entry in app.screen.query(Entry):
            if entry.display:
                entry.shut()
        if (app.screen.NAME, app.subject) != (name, subject):
            app.go(name, subject)
            await pilot.pause()
            if name == "findings":
                await pilot.app.workers.wait_for_complete()
                await pilot.pause()
        app._history[:] = [("overview" if name != "overview" else "node", Subject())]
        assert isinstance(app.screen, OpsScreen)
        app.screen.set_focus(None)
        app.screen.focus_body()
        if name == "overview":
            app.screen.set_focus(app.screen.query_one("#matrix", Sheet))
        grid = app.focused
        assert isinstance(grid, Sheet), "the arrow keys must work at once"
        grid.go_to(grid._table.keys[min(2, len(grid._table.keys) - 1)])
        if grid._cells:
            grid.go_to(grid.row_key, grid._table.columns[grid._table.fixed + 1].key)
        await pilot.pause()

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.exit = lambda *_args, **_more: exits.append(1)  # type: ignore[method-assign]  # goes on after q
        await open_screen(app, pilot)
        for key in keys_of(app):
            await open_screen(app, pilot)
            before = fingerprint(app, read_screen), len(exits)
            await pilot.press(key)
            await pilot.pause()
            if key not in ALWAYS_LEFT_OUT | NOTHING_TO_DO[name]:
                after = fingerprint(app, read_screen), len(exits)
                assert after != before, f"{key} does nothing on {name}"
                tried.add(key)

    play(system(), scenario, size=(150, 40))
    assert {"slash", "colon", "question_mark", "p", "q", "enter", "down", "n", "s", "t"} <= tried


JUMPS = [
    ("overview", "enter", "incident"),
    ("incidents", "enter", "incident"),
    ("incidents", "n", "node"),
    ("incidents", "t", "trace"),
    ("node", "enter", "node"),
    ("name-space", "enter", "node"),
    ("alignment", "enter", "name-space"),
    ("conflicts", "enter", "trace"),
    ("groups", "enter", "topic"),
    ("topics", "enter", "topic"),
    ("topic", "enter", "application"),
    ("applications", "enter", "application"),
    ("application", "enter", "topic"),
    ("trace", "enter", "node"),
    ("store", "enter", "node"),
    ("findings", "enter", "node"),
    ("groups", "s", "name-space"),
    ("store", "n", "node"),
    ("conflicts", "t", "trace"),
    ("conflicts", "s", "name-space"),
]


@pytest.mark.parametrize(("start", "key", "end"), JUMPS, ids=[f"{a}-{k}" for a, k, _ in JUMPS])
def test_jumps_lead_to_what_is_under_the_cursor_and_back(play: Play, start: str, key: str, end: str) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.go(start, Subject(node_id(7), "s2"))
        await pilot.pause()
        if start == "findings":
            await pilot.app.workers.wait_for_complete()
        await pilot.press("down")
        await pilot.pause()
        assert isinstance(app.screen, OpsScreen)
        here = app.screen.here()
        moment_ns = app.screen.moment_ns()
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, OpsScreen)
        assert str(end) == app.screen.NAME
        assert app.subject == here
        if isinstance(app.screen, TraceScreen):
            assert app.screen.moment_ns() == moment_ns
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, OpsScreen)
        assert str(start) == app.screen.NAME

    play(system(), scenario, size=(150, 40))


def test_a_filter_stays_with_its_screen(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("6", "slash", *"t3", "enter")
        await pilot.press("8")
        await pilot.pause()
        assert not app.screen.query_one(FilterLine).display
        await pilot.press("6")
        await pilot.pause()
        assert app.screen.query_one(FilterLine).value == "t3"
        assert isinstance(app.screen, OpsScreen)
        assert app.screen.filter.text == "t3"

    play(system(), scenario)


def test_the_trace_follows_until_the_reader_looks_elsewhere(play: Play) -> None:
    feed = system()
    for second in (1, 2):
        moment_ns = START_NS + second * S
        feed.add(moment_ns, Update(events=(fake.event(100 + second, 1, moment_ns, f"new {second}"),)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("7")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, TraceScreen)
        app.tick()
        await pilot.pause()
        assert screen.row.text == "new 1"
        await pilot.press("up", "up")
        await pilot.pause()
        assert not screen.following
        row = screen.row
        app.tick()
        await pilot.pause()
        assert screen.row == row
        await pilot.press("f")
        await pilot.pause()
        assert screen.row.text == "new 2"
        await pilot.press("up", "end")
        await pilot.pause()
        assert screen.following

    play(feed, scenario)


def test_a_node_that_was_started_again_does_not_confuse_the_trace(play: Play) -> None:
    """It counts its events from 1 again."""
    first = tuple(fake.event(n, 1, START_NS - 9 * S + n, f"first run {n}") for n in range(1, 6))
    second = tuple(fake.event(n, 1, START_NS - 5 * S + n, f"second run {n}") for n in range(1, 6))
    feed = ScriptedFeed(
        [(START_NS, Update((ReceivedSnapshot(fake.snapshot(1), START_NS),), (*first, *second)))]
    )

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("7")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, TraceScreen)
        assert screen.row.text == "second run 5"
        await pilot.press("up")
        assert screen.row.text == "second run 4"

    play(feed, scenario)


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "full"])
def test_every_screen_survives_any_size_and_an_empty_system(
    play: Play, read_screen: Read, name: str, is_empty: bool
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for size in ((40, 8), (80, 24), (200, 60)):
            await pilot.resize_terminal(*size)
            app.go(name, Subject())
            await pilot.pause()
            await pilot.press(
                "down", "enter", "n", "s", "t", "less_than_sign", "G", "question_mark", "escape"
            )
            await pilot.pause()
            assert all(len(line) <= size[0] for line in read_screen(app))
            assert app.is_running

    play(ScriptedFeed([(START_NS, Update())]) if is_empty else system(), scenario)


@pytest.mark.parametrize("name", SCREENS)
def test_no_screen_obeys_text_from_the_network(play: Play, read_screen: Read, name: str) -> None:
    bad = "[red]\x1b[31m\u202e[/]"
    group = GroupView(bad, bad, bad, bad, bad, 1, 1, 1, bad, START_NS, 1, 1)
    snapshot = fake.snapshot(
        1,
        fake.name_space(
            bad,
            0,
            elements=(bad,),
            alignee=bad,
            durability=bad,
            merges=(bad,),
            phase=bad,
            epoch=bad,
            why=bad,
            digest=bad,
        ),
        name=bad,
        role=bad,
        host=bad,
        configuration=bad,
        version=bad,
        state=bad,
        fellows=(fake.fellow(2, name=bad, role=bad, state=bad, communication="incompatible", problem=bad),),
        groups=(group,),
        deliveries=(DeliveryView(bad, bad, bad, bad, 1, START_NS, 0, bad),),
        counters={bad: 1},
    )
    told = fake.event(
        1, 1, START_NS, bad, node_name=bad, state=bad, thread=bad, level=bad, event="conflict.native-state"
    )
    feed = ScriptedFeed([(START_NS, Update((ReceivedSnapshot(snapshot, START_NS),), (told,)))], title=bad)

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.go(name, Subject())
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        text = read_screen(app)
        assert all(line.isprintable() for line in text)
        if name != "findings":
            assert any("[red]\\x1b" in line for line in text)

    play(feed, scenario, size=(160, 40))


@pytest.mark.parametrize("points", [2, 5])
def test_a_curve_of_zeros_has_its_axis(play: Play, read_screen: Read, points: int) -> None:
    idle = [fake.snapshot(1, time_ns=START_NS + n * S, counters={"stored": 7}) for n in range(points)]
    steps = [(one.time_ns, Update((ReceivedSnapshot(one, one.time_ns),))) for one in idle]

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.go("node", Subject(node_id(1)))
        await pilot.pause()
        app.show()
        await pilot.pause()
        screen = "\n".join(read_screen(app))
        assert "samples stored per second: 0" in screen
        assert screen.count("s ago") == 1  # no fellow has told of its heartbeats

    play(ScriptedFeed(steps), scenario, size=(120, 40), ticks=points)
