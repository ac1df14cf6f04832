"""What a tired operator does: looks for what is sick, goes there, and comes home."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from textual.pilot import Pilot

from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.views.text import clock
from ospltool.views.view import Subject
from tests import fake
from tests.fake import SECOND_NS, START_NS, ScriptedFeed, node_id
from tui.app import ConsoleApp
from tui.screens.base import OpsScreen
from tui.screens.help import HelpScreen
from tui.screens.overview import OverviewScreen
from tui.widgets.sheet import Sheet

S = SECOND_NS
Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]


def system(nodes: int, *gone: int) -> ScriptedFeed:
    """Those that are gone were due a moment before the others were heard, so they are not all lost."""
    heard = tuple(
        ReceivedSnapshot(
            fake.snapshot(
                n,
                fake.name_space("Orders", 1),
                fake.name_space("Ticks", 1),
                **({"update_period_ns": 0} if n in gone else {}),
            ),
            START_NS - (n in gone),
        )
        for n in range(1, nodes + 1)
    )
    lost = tuple(FeedNotice(NoticeKind.NODE_LOST, START_NS, "", node_id(n)) for n in gone)
    return ScriptedFeed([(START_NS, Update(heard, (), lost))], title="domain 7")


def others(moment_ns: int) -> tuple[ReceivedSnapshot, ...]:
    """What n1 and n3 show after n2 is overdue: it is not all of them that are lost."""
    return tuple(
        ReceivedSnapshot(fake.snapshot(n, fake.name_space("Orders", 1), time_ns=moment_ns), moment_ns)
        for n in (1, 3)
    )


def matrix(app: ConsoleApp) -> Sheet:
    return app.screen.query_one("#matrix", Sheet)


def attention(app: ConsoleApp) -> Sheet:
    return app.screen.query_one("#attention", Sheet)


def name(app: ConsoleApp) -> str:
    assert isinstance(app.screen, OpsScreen)
    return app.screen.NAME


def test_the_sick_come_first_and_the_healthy_that_do_not_fit_are_one_line(
    play: Play, read_screen: Read
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        keys = matrix(app)._table.keys
        assert keys[:2] == (node_id(77), node_id(150))
        assert keys[-1] == "folded"
        shown = len(keys) - 3
        (line,) = [line for line in read_screen(app) if "more healthy" in line]
        assert f"{198 - shown} more healthy" in line
        await pilot.press("tab", "end", "enter")
        assert len(matrix(app)._table.keys) == 200
        await pilot.press("z")
        assert len(matrix(app)._table.keys) == len(keys)

    play(system(200, 150, 77), scenario)


def test_f_shows_faults_only(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("f")
        assert matrix(app)._table.keys == (node_id(3),)
        assert "faults only, 4 nodes hidden" in read_screen(app)[0]
        await pilot.press("f")
        assert len(matrix(app)._table.keys) == 5
        assert "faults only" not in read_screen(app)[0]

    play(system(5, 3), scenario)

    async def none(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("f")
        assert any("no faults: 5 nodes hidden; f shows all" in line for line in read_screen(app))

    play(system(5), none)


def test_the_cursor_begins_on_what_needs_attention_and_enter_opens_it(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert app.focused is attention(app)
        await pilot.press("down", "enter")
        assert name(app) == "incident"
        text = read_screen(app)
        assert "DUL-NODE-GONE" in text[0]
        for label in (" What     n4", " Why ", " Effect ", " Next "):
            assert any(line.startswith(label) for line in text), label
        await pilot.press("n")
        assert "node n4" in read_screen(app)[0]
        await pilot.press("escape", "escape")
        assert name(app) == "overview"
        await pilot.press("down")
        assert app.focused is matrix(app)
        assert matrix(app).row_key == node_id(2)
        await pilot.press("up")
        assert app.focused is attention(app)

    play(system(5, 2, 4), scenario)


def test_the_cursor_is_not_taken_from_a_reader_who_walks_the_matrix(play: Play) -> None:
    """Not even by what is shown before anybody is told that the cursor has moved, as on a busy machine."""
    feed = system(3)
    lost_ns = START_NS + 2 * S
    notice = FeedNotice(NoticeKind.NODE_LOST, lost_ns, "", node_id(2))
    feed.add(lost_ns - S, Update(others(lost_ns - S)))
    feed.add(lost_ns, Update(others(lost_ns), notices=(notice,)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert app.focused is matrix(app)
        app.tick()
        matrix(app).action_move(1, 0)
        app.tick()
        await pilot.pause()
        assert attention(app).display
        assert app.focused is matrix(app)

    play(feed, scenario)


@pytest.mark.parametrize("keys", [["1"], ["escape"] * 6, ["question_mark", "1"]])
def test_one_and_escape_lead_home_from_everywhere(play: Play, keys: list[str]) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for way in (["3", "5", "2"], ["f", "z", "e"], ["7", "slash", "n", "enter"]):
            await pilot.press(*way)
            await pilot.press(*keys)
            await pilot.pause()
            assert name(app) == "overview"
            assert matrix(app).display
            assert len(matrix(app)._table.keys) == 5
            await pilot.press("escape")
            assert name(app) == "overview"

    play(system(5, 2), scenario)


def test_the_console_goes_on_below_the_help(play: Play, read_screen: Read) -> None:
    feed = system(3)
    feed.add(START_NS + 9 * S, Update((ReceivedSnapshot(fake.snapshot(4), START_NS + 9 * S),)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark")
        app.tick()
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        assert "01:03:29 UTC" in read_screen(app)[0]
        await pilot.press("escape")
        assert len(matrix(app)._table.keys) == 4

    play(feed, scenario, size=(120, 50))


@pytest.mark.parametrize(
    ("keys", "copied"),
    [
        (["y"], "1,000"),
        (["Y"], "●\tn1\tcomplete\tnow\t1,000\t1,000"),
        (["2", "y"], "Orders"),
    ],
)
def test_cells_and_rows_are_copied(
    play: Play, monkeypatch: pytest.MonkeyPatch, keys: list[str], copied: str
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", told.append)
        await pilot.press(*keys)
        await pilot.pause()
        assert told == [copied]

    play(system(3), scenario)


def test_nothing_that_a_terminal_obeys_is_copied(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = fake.snapshot(1, fake.name_space("Orders", 1), name="n\x1b]52;c;x\x07\t1")
    feed = ScriptedFeed([(START_NS, Update((ReceivedSnapshot(snapshot, START_NS),)))])

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", told.append)
        await pilot.press("Y")
        await pilot.pause()
        assert told
        assert all(part.isprintable() for part in told[0].split("\t"))

    play(feed, scenario)


def test_a_heading_sorts_and_says_so(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("o")
        assert matrix(app).row_key == node_id(1)
        assert matrix(app).sorting.keys == tuple(node_id(n) for n in (1, 2, 3))
        assert any("↑node" in line for line in read_screen(app))
        await pilot.press("O")
        assert matrix(app).sorting.keys == tuple(node_id(n) for n in (3, 2, 1))
        assert any("↓node" in line for line in read_screen(app))
        await pilot.press("end", "enter")
        assert app.subject.node == node_id(1)

    play(system(3), scenario)

    async def clicked(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.click("#matrix", offset=(5, 0))
        await pilot.click("#matrix", offset=(5, 0))
        assert matrix(app).sorting.keys == tuple(node_id(n) for n in (3, 2, 1))

    play(system(3), clicked)


@pytest.mark.parametrize("way", [[], ["enter"], ["5"]])
def test_an_incident_is_muted_and_acknowledged_where_it_is_shown(
    play: Play, read_screen: Read, way: list[str]
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press(*way, "a")
        (one,) = app.health.open
        assert one.acknowledged_ns
        await pilot.press("m")
        app.tick()
        await pilot.pause()
        assert app.health.open == []
        assert [each.who for each in app.health.muted] == ["n2"]
        await pilot.press("1")
        assert f" · mutes end {clock(app.health.muted[0].muted_until_ns)}" in "\n".join(read_screen(app))
        await pilot.press("5")
        assert "m lift mute" in read_screen(app)[-1]
        until = clock(app.health.muted[0].muted_until_ns)
        assert read_screen(app)[2].startswith(
            f" mute DUL-NODE-GONE:n2 until {until} UTC hides DUL-NODE-GONE n2"
        )
        assert "mute 1 h" not in read_screen(app)[-1]
        await pilot.press("m")
        assert [each.who for each in app.health.open] == ["n2"]

    play(system(5, 2), scenario)


@pytest.mark.parametrize(("below", "next_one"), [(0, "n4"), (1, "n5"), (2, "n4")])
def test_after_a_mute_the_cursor_is_on_the_next_incident(play: Play, below: int, next_one: str) -> None:
    """The muted one leaves the list; the last one leaves the cursor to the one above."""

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        screen = cast("OverviewScreen", app.screen)
        await pilot.press(*["down"] * below)
        muted = screen.incident
        assert muted
        assert muted.who == ("n2", "n4", "n5")[below]
        await pilot.press("m")
        app.tick()
        await pilot.pause()
        assert [each.who for each in app.health.muted] == [muted.who]
        assert screen.focused is screen.query_one("#attention", Sheet)
        assert screen.incident
        assert screen.incident.who == next_one

    play(system(6, 2, 4, 5), scenario)


def test_the_row_of_a_node_mutes_the_incident_of_that_node_and_no_other(
    play: Play, read_screen: Read
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        async def mute(node: int) -> None:
            matrix(app).go_to(node_id(node))
            await pilot.pause()
            await pilot.press("m")
            app.tick()
            await pilot.pause()

        await pilot.press("tab")
        await mute(1)
        assert app.health.muted == []
        await mute(4)
        assert [each.who for each in app.health.muted] == ["n4"]
        assert [each.who for each in app.health.open] == ["n2"]
        await mute(4)
        assert app.health.muted == []

    play(system(5, 2, 4), scenario)


def test_what_is_over_stays_readable_with_its_duration(play: Play, read_screen: Read) -> None:
    feed = system(3, 2)
    back_ns = START_NS + 30 * S
    for second in (30, 31, 32, 33, 40):
        heard = (ReceivedSnapshot(fake.snapshot(2, time_ns=START_NS + second * S), START_NS + second * S),)
        beside = tuple(
            ReceivedSnapshot(fake.snapshot(n, fake.name_space("Orders", 1)), START_NS + second * S)
            for n in (1, 3)
        )
        feed.add(START_NS + second * S, Update((*heard, *beside)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for _ in range(5):
            app.tick()
        await pilot.press("5")
        assert back_ns
        text = "\n".join(read_screen(app))
        assert "over" in text
        assert "DUL-NODE-GONE" in text
        await pilot.press("down", "enter")
        assert name(app) == "incident"

    play(feed, scenario)


def test_an_incident_opens_the_trace_at_its_events(play: Play, read_screen: Read) -> None:
    feed = system(3)
    lost_ns = START_NS + 2 * S
    told = fake.event(5, 1, lost_ns, "Fellow n2 is lost.", level="WARNING")
    notice = FeedNotice(NoticeKind.NODE_LOST, lost_ns, "", node_id(2))
    feed.add(lost_ns - S, Update(others(lost_ns - S)))
    feed.add(lost_ns, Update(others(lost_ns), (told,), (notice,)))

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.tick()
        app.tick()
        await pilot.pause()
        await pilot.press("enter")
        assert any("Fellow n2 is lost." in line for line in read_screen(app))
        await pilot.press("enter")
        assert name(app) == "trace"
        assert any("Fellow n2 is lost." in line for line in read_screen(app))
        await pilot.press("escape", "2")
        assert app.front
        assert (name(app), app.front.heading) == ("node", "node n2"), "not n1, which told of it"

    play(feed, scenario)


def test_a_mute_is_offered_only_where_there_is_an_open_incident(play: Play, read_screen: Read) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        assert "m mute 1 h" in read_screen(app)[-1]
        await pilot.press("tab")
        matrix(app).go_to(node_id(1))
        await pilot.pause()
        assert "mute" not in read_screen(app)[-1]
        matrix(app).go_to(node_id(2))
        await pilot.pause()
        assert "m mute 1 h" in read_screen(app)[-1]

    play(system(5, 2), scenario)


def test_a_fault_that_begins_rings(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = system(3)
    late_ns = START_NS + 9 * S
    feed.add(late_ns, Update(notices=(FeedNotice(NoticeKind.NODE_LOST, late_ns, "", node_id(2)),)))
    feed.add(late_ns + S, Update())

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        rings: list[int] = []
        monkeypatch.setattr(app.alarm, "_ring", lambda: rings.append(1))
        for _ in range(3):
            app.tick()
        assert rings == [1]

    play(feed, scenario)


def test_a_console_that_hears_nobody_says_where_and_what_to_do(play: Play, read_screen: Read) -> None:
    feed = ScriptedFeed([(START_NS, Update(caption=""))], title="domain 7")
    feed.where = " on domain 7, interface lo: `ospltool start FILE` starts one"  # type: ignore[attr-defined]  # as LiveFeed

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        for key in ("1", "2", "3", "6", "8"):
            await pilot.press(key)
            text = "\n".join(read_screen(app))
            assert "no node heard on domain 7, interface lo: `ospltool start FILE` starts one" in text, key

    play(feed, scenario)


@pytest.mark.parametrize(
    ("screen", "line"),
    [
        ("node", " no node is heard, so there are no nodes to show"),
        ("name-space", " no node is heard, so there are no name-spaces to show"),
        ("groups", " no node is heard, so there are no groups to show"),
        ("store", " no node is heard, so there are no stores to show"),
    ],
)
def test_without_a_node_a_screen_has_no_axes_and_no_headings(
    play: Play, read_screen: Read, screen: str, line: str
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.go(screen, Subject())
        await pilot.pause()
        app.tick()
        await pilot.pause()
        body = [text for text in read_screen(app)[2:-1] if text]
        assert [text for text in body if not text.startswith("─")] == [line]

    play(ScriptedFeed([(START_NS, Update())], title="domain 7"), scenario)


def test_incidents_have_room_for_what_was_seen_at_80_cells(play: Play, read_screen: Read) -> None:
    """When it began stands below; how long it lasts, and what it is, is what counts in the list."""

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        app.go("incidents", Subject())
        await pilot.pause()
        (line,) = [text for text in read_screen(app) if "DUL-NODE-GONE" in text and "open" in text]
        assert line.split() == ["✖", "now", "open", "DUL-NODE-GONE", "n3", "n3", "is", "gone"]
        assert all(len(text) <= 80 for text in read_screen(app))

    play(system(5, 3), scenario)
