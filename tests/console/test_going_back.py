"""From a live console back into the recording that is being made of its system, and forth again."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.dds.uri import cyclone_uri
from engine.runtime import monitor
from ospltool.health.health import Health
from ospltool.live.dds import LiveFeed
from ospltool.live.feed import FeedNotice, NoticeKind, Update
from ospltool.live.recorder import Recorder
from ospltool.views.cells import Tone
from tests import fake
from tests.console.conftest import screen_text
from tests.console.test_live_dds import DOMAIN, Node
from tests.console.test_replay import S, at, updates
from tests.fake import ScriptedFeed, node_id
from tui import panels
from tui.app import ConsoleApp
from tui.panels import Elsewhere
from tui.widgets.lines import Toned

Play = Callable[..., None]
PATIENCE_S = 60.0


class Recorded:
    """A live system of two nodes, and a recorder of it that goes on as the system does.

    The second node is gone from second 70 to 90; `count` is the second that a console shows.
    """

    def __init__(self, path: Path, seconds: int, title: str = "domain 7") -> None:
        self.path = path
        self._told = updates(400)
        self.feed = ScriptedFeed([], title=title)
        self.recorder = Recorder(path, source=title, made_by="test")
        self.go_on(seconds)

    def go_on(self, seconds: int) -> None:
        told = self._told[:]
        for now_ns, update in told:
            if now_ns >= at(seconds):
                break
            self.feed.add(now_ns, update)
            self.recorder.write(update, now_ns)
            self._told.pop(0)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    made = Recorded(tmp_path / "r.jsonl", 200)
    yield made
    made.recorder.close()


def count(app: ConsoleApp) -> int:
    return app.model.nodes[node_id(1)].name_spaces["A"].count


def settle(app: ConsoleApp, ticks: int = 300) -> None:
    for _ in range(ticks):
        app.tick()


def test_a_minute_back_on_and_live_again(play: Play, recorded: Recorded) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app)
        assert (count(app), app.feed.mode) == (199, "live")
        assert "[ a minute back" in screen_text(app)[-1]
        await pilot.press("left_square_bracket", "p")
        await pilot.pause()
        assert app.feed.mode == "recorded"
        assert 139 <= count(app) <= 141
        assert "back to live" in screen_text(app)[-1]
        recorded.go_on(300)
        settle(app)
        assert 139 <= count(app) <= 141
        assert app.systems.present.feed.now_ns() == at(299)
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert 259 <= count(app) <= 261
        await pilot.press(*["left_square_bracket"] * 4)
        assert 19 <= count(app) <= 21
        await pilot.press("L")
        await pilot.pause()
        assert (count(app), app.feed.mode, app.systems.past) == (299, "live", None)
        assert "[ a minute back" in screen_text(app)[-1]
        assert not any("PAST" in line for line in screen_text(app))

    play(recorded.feed, scenario, size=(140, 40), recordings=(recorded.path,))


def test_the_past_says_so_and_the_present_stays_in_the_first_line(play: Play, recorded: Recorded) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app)
        app.run_command("at -115")
        app.action_pause()
        await pilot.pause()
        first = screen_text(app)[0]
        assert re.search("PAST, 1 min ago", first)  # it plays until it is paused
        assert first.endswith(time.strftime("%H:%M:%S UTC", time.gmtime(app.feed.now_ns() // S)))
        assert "domain 7 now" in first
        assert app.model.nodes[node_id(2)].gone_ns
        assert not app.systems.present.model.nodes[node_id(2)].gone_ns
        assert app.systems.present.health.verdict != app.health.verdict
        fine = dataclasses.replace(app.health.verdict, word="OK", worst=None, errors=0, warnings=0)
        status = dataclasses.replace(app.status(), elsewhere=(Elsewhere("domain 7 now", fine, True),))
        line = panels.header(app.view(), status, "overview", "overview", 140)[0]
        assert "domain 7 now: OK" in "".join(span.text for span in line)

    play(recorded.feed, scenario, size=(140, 40), recordings=(recorded.path,))


def test_what_is_known_now_is_known_in_the_past_and_the_other_way_round(play: Play, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "r.jsonl", 80)

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app)
        (now,) = [one for one in app.health.open if node_id(2) in one.subjects]
        assert app.health.acknowledge(now.key)
        app.systems.go_back().seek(at(77))
        settle(app, 20)
        (then,) = [one for one in app.health.open if node_id(2) in one.subjects]
        assert app.health is not app.systems.present.health
        assert then.acknowledged_ns == at(79)

    play(recorded.feed, scenario, recordings=(recorded.path,))
    recorded.recorder.close()


def test_nothing_of_the_past_is_bright(play: Play, recorded: Recorded) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app)
        for theme in ("ops-dark", "ops-light", "ops-ansi", "ops-mono"):
            app.theme = theme
            await pilot.pause()
            live = _looks(app)
            assert len(live) > 3
            app.run_command("at -115")
            await pilot.pause()
            assert len(_looks(app)) == 1, theme
            app.action_live()
            await pilot.pause()
            assert _looks(app) == live, theme

    play(recorded.feed, scenario, size=(140, 40), recordings=(recorded.path,))


def _looks(app: ConsoleApp) -> set[str]:
    """How tones look in what shows the system."""
    around = ("header", "timebar", "message", "keys")
    parts = [widget for widget in app.screen.query(Toned) if widget.id not in around]
    assert parts
    styles = [part.style_of(tone) for part in parts for tone in Tone]
    return {f"{style.without_color} {style.color}" for style in styles}


def test_only_a_recording_of_the_shown_system_is_taken(
    play: Play, recorded: Recorded, tmp_path: Path
) -> None:
    other = ScriptedFeed([(at(0), Update())], title="domain 8")

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        await pilot.press("left_square_bracket")
        assert (app.feed.title, app.feed.mode) == ("domain 8", "live")
        await pilot.pause()
        assert any("no recording of domain 8 yet" in line for line in screen_text(app))
        app.systems.recordings = (tmp_path / "none",)
        await pilot.press("left_square_bracket")
        await pilot.pause()
        assert any("No such file" in line for line in screen_text(app))

    play(other, scenario, size=(200, 40), recordings=(recorded.path,))


def test_another_domain_is_shown_as_it_is(play: Play, recorded: Recorded) -> None:
    other = ScriptedFeed([(at(0), Update())], title="domain 8")

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app)
        await pilot.press("left_square_bracket")
        assert app.feed.mode == "recorded"
        await pilot.press("d")
        assert (app.feed.title, app.systems.past) == ("domain 8", None)
        await pilot.press("d")
        assert (app.feed.title, count(app)) == ("domain 7", 199)

    play(recorded.feed, scenario, recordings=(recorded.path,), others=((other, Health),))


def test_it_rings_for_the_present_while_the_past_is_shown(play: Play, recorded: Recorded) -> None:
    rung: list[int] = []

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app)
        app.alarm._ring = lambda: rung.append(1)
        app.run_command("at -30")
        settle(app, 3)
        assert not rung
        lost = FeedNotice(NoticeKind.NODE_LOST, at(201), "x", node_id(2))
        recorded.feed.add(at(201), Update(notices=(lost,)))
        for second in range(202, 220):
            recorded.feed.add(at(second), Update())
        settle(app, 30)
        assert app.feed.mode == "recorded"
        assert rung

    play(recorded.feed, scenario, recordings=(recorded.path,))


def test_without_a_recording_there_is_no_way_back(play: Play) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        settle(app, 3)
        await pilot.press("left_square_bracket", "L")
        assert app.systems.past is None
        app.run_command("at -30")
        await pilot.pause()
        assert any("can be wound" in line for line in screen_text(app))
        app.run_command("live")
        await pilot.pause()
        assert any("no command 'live'" in line for line in screen_text(app))

    play(ScriptedFeed(updates(5), title="domain 7"), scenario)


@pytest.mark.dds
@pytest.mark.timeout(300)
def test_back_into_the_file_of_a_real_recorder_that_goes_on(tmp_path: Path) -> None:
    uri = cyclone_uri(tag=f"back-{os.getpid()}-{time.monotonic_ns()}", environment={})
    path = tmp_path / "r.jsonl"
    command = (sys.executable, "-m", "ospltool.cli.app", "record", "-o", str(path), "--domain", str(DOMAIN))
    node, feed = Node(1, uri), LiveFeed(DOMAIN, uri=uri)
    recorder = subprocess.Popen(command, env={**os.environ, "CYCLONEDDS_URI": uri}, stderr=subprocess.DEVNULL)

    async def scenario() -> None:
        app = ConsoleApp(feed, title="ospltool", timer=False, recordings=(path,))
        async with app.run_test(size=(140, 40)) as pilot:
            shown = 0

            async def until(what: Callable[[], bool]) -> None:
                nonlocal shown
                end = time.monotonic() + PATIENCE_S
                while not what():
                    assert time.monotonic() < end, (shown, screen_text(app))
                    shown += 1
                    space = fake.name_space("A", 1, count=shown)
                    snapshot = fake.snapshot(1, space, time_ns=time.time_ns())
                    node.show(payload=monitor.encode(snapshot))
                    await asyncio.sleep(0.25)
                    app.tick()
                    await pilot.pause()

            def size() -> int:
                return sum(one.stat().st_size for one in tmp_path.glob("r.jsonl*"))  # its log grows first

            await until(lambda: size() > 0 and node_id(1) in app.model.nodes and count(app) > 20)
            written, live = size(), count(app)
            app.run_command("at -3")
            await until(lambda: app.feed.mode == "recorded" and not app.model.is_empty)
            assert 0 < count(app) < live
            assert "PAST" in screen_text(app)[0]
            await until(lambda: size() > written and count(app) > live)  # it goes on where the recorder is
            app.action_pause()
            await until(
                lambda: app.systems.present.model.nodes[node_id(1)].name_spaces["A"].count > live + 20
            )
            held = count(app)
            await pilot.press("L")
            await until(lambda: app.feed.mode == "live")
            assert count(app) > held

    try:
        asyncio.run(scenario())
        assert recorder.poll() is None
    finally:
        recorder.terminate()
        assert recorder.wait(30) == 0
        feed.close()
        node.close()
