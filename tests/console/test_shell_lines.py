"""What the console shows and does, as lines for the shell and as files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ospltool.cli import app as commands
from ospltool.live.recorder import Recorder
from ospltool.views.pages import PAGES
from ospltool.views.view import Subject
from tests.console.test_operate import operator_of, status
from tests.console.test_pictures import busy, trouble
from tests.fake import node_id
from tui.app import SCREENS, ConsoleApp
from tui.commands import SHOWN
from tui.console import ShellSource
from tui.widgets.bottom import CommandLine

Play = Callable[..., None]
Read = Callable[[ConsoleApp], list[str]]
SOURCE = ShellSource("my fleet.toml", ("--domain=7",))
HERE = "'my fleet.toml' --domain=7"
LINES = {
    "overview": f"ospltool show {HERE}",
    "node": f"ospltool show nodes n1 {HERE}",
    "name-space": f"ospltool show name-spaces Orders {HERE}",
    "alignment": f"ospltool show alignment {HERE}",
    "groups": f"ospltool show groups {HERE}",
    "topic": f"ospltool show topics Trade {HERE}",
    "trace": f"ospltool show events {HERE}",
    "store": "ospltool top 'my fleet.toml' --json --screen store --domain=7",
    "conflicts": "ospltool top 'my fleet.toml' --json --screen conflicts --domain=7",
}
TYPED = {
    "node n2": f"ospltool show nodes n2 {HERE}",
    "nodes -n2": "ospltool show --domain=7 -- nodes -n2 'my fleet.toml'",
    "groups Trade !n3": f"ospltool show groups {HERE} '--filter=Trade !n3'",
    "overview n1": f"ospltool show nodes {HERE} --filter=n1",
    "export page": f"ospltool show {HERE}",
    "stop n1": "ospltool stop n1",
    "theme nord": "",
    "nosuch": "",
}


def written(directory: Path) -> list[Path]:
    return sorted(directory.iterdir(), key=lambda path: path.suffix, reverse=True)


def copies(app: ConsoleApp, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(app, "copy_to_clipboard", told.append)
    return told


def test_each_screen_is_copied_as_the_command_that_says_the_same(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told = copies(app, monkeypatch)
        for screen in SCREENS:
            app.go(screen, Subject(node_id(1), "Orders", topic="Trade"))
            await pilot.pause()
            await pilot.press("c")
            words = shlex.split(told[-1])
            assert LINES.get(screen, told[-1]) == told[-1]
            assert words[1] == "top" or words[2] in PAGES or screen == "overview"
        app.go("groups", Subject())
        app.set_filter("Tra de")
        await pilot.pause()
        await pilot.press("c")
        assert told[-1] == f"ospltool show groups {HERE} '--filter=Tra de'"

    play(busy(), scenario, ticks=3, source=SOURCE)


def test_a_command_is_copied_while_it_is_typed_and_shows_the_line(
    play: Play, read_screen: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told = copies(app, monkeypatch)
        for typed, line in TYPED.items():
            await pilot.press("colon")
            app.screen.query_one(CommandLine).value = typed
            await pilot.pause()
            assert any(line in one for one in read_screen(app)), typed
            await pilot.press("ctrl+y")
            await pilot.pause()
            assert told == ([line] if line else []), typed
            told.clear()
            await pilot.press("escape")

    play(busy(), scenario, ticks=3, source=SOURCE, operator=operator_of(status()), size=(120, 24))


def test_a_question_says_when_and_for_whom_and_its_line_is_copied(
    play: Play, read_screen: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told = copies(app, monkeypatch)
        app.run_command("stop n1")
        await pilot.pause()
        shown = " ".join("\n".join(read_screen(app)).split())
        assert "now, after your answer" in shown
        assert "It serves 1 late joiner now; another node begins again" in shown
        await pilot.press("c")
        assert told == ["ospltool stop n1"]
        await pilot.press("n")

    play(busy(), scenario, ticks=3, operator=operator_of(status()))


def test_a_page_is_written_as_text_and_json_and_never_over_a_file(
    play: Play, read_screen: Read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        worst = app.view().health.open[0]
        app.go("incident", Subject(incident=worst.key))
        await pilot.pause()
        await pilot.press("x")
        await pilot.pause()
        text, rows = written(tmp_path)
        assert all(word in text.read_text("utf-8") for word in ("What", "Why", "Effect", "Next"))
        document = json.loads(rows.read_text("utf-8"))
        assert document["kind"] == "incidents"
        assert {one["who"] for one in document["data"]} == {worst.who}
        before = text.read_bytes()
        await pilot.press("x")
        await pilot.pause()
        assert any("exists already" in line for line in read_screen(app))
        assert text.read_bytes() == before
        for screen in SHOWN:
            app.go(screen, Subject(node_id(1), "Orders", incident=worst.key))
            await pilot.pause()
            app.run_command(f"export page {tmp_path}/{screen}")
            assert (tmp_path / f"{screen}.txt").stat().st_size, screen
            assert json.loads((tmp_path / f"{screen}.json").read_text("utf-8"))["data"] is not None
        app.go("store", Subject())
        app.run_command("export page")
        await pilot.pause()
        assert any("has no such page" in line for line in read_screen(app))

    play(trouble(), scenario, ticks=2)


def test_what_is_shown_is_copied_where_no_table_has_the_cursor(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told = copies(app, monkeypatch)
        app.go("node", Subject(node_id(1)))
        await pilot.pause()
        app.screen.set_focus(None)
        await pilot.press("y")
        assert told == ["n1"]

    play(busy(), scenario, ticks=3)


def test_the_lines_are_commands_that_print_what_the_screens_show(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder, feed, lines = Recorder(tmp_path / "night", source="domain 7", made_by="test"), busy(), []
    while update := feed.poll():
        recorder.write(update, feed.now_ns())
    recorder.close()

    async def scenario(app: ConsoleApp, pilot: Pilot[int]) -> None:
        told = copies(app, monkeypatch)
        for screen in SCREENS:
            app.go(screen, Subject(node_id(1), "Orders", topic="Trade"))
            await pilot.pause()
            await pilot.press("c")
        lines.extend(told)

    play(busy(), scenario, ticks=3, source=ShellSource("", (f"--replay={tmp_path / 'night'}",)))
    assert len(lines) == len(SCREENS)
    for line in lines:
        capfd.readouterr()
        code = commands.main(shlex.split(line)[1:])
        out, err = capfd.readouterr()
        assert (code in {0, 1, 2}, bool(out), err) == (True, True, ""), line
