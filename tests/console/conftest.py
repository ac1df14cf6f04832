from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual._context import active_app
from textual.pilot import Pilot

from ospltool.health.system import OwnPauses
from ospltool.live.feed import Feed
from tui.app import ConsoleApp

Scenario = Callable[[ConsoleApp, Pilot[int]], Awaitable[None]]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the terminal of the developer says must not change what the tests see."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "COLORTERM", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


async def _until_nothing_is_ready(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Wait until no task of the console could go on: exactly, where Textual's own wait sleeps and guesses."""
    loop: Any = asyncio.get_running_loop()
    app = active_app.get()
    for _ in range(3):
        for _ in range(10_000):
            await asyncio.sleep(0)
            if not loop._ready:
                break
        if app.is_running and app._screen_stack:
            app.screen._on_timer_update()  # what the refresh timer does 60 times a second


@pytest.fixture(autouse=True)
def exact_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and pauses of a Pilot last as long as the work that they cause."""
    monkeypatch.setattr("textual.pilot.wait_for_idle", _until_nothing_is_ready)
    monkeypatch.setattr("textual.app.wait_for_idle", _until_nothing_is_ready)


@pytest.fixture
def play() -> Callable[..., None]:
    """Run a console over a feed without a terminal and without a clock, and a scenario on it."""

    def run(
        feed: Feed, scenario: Scenario, *, size: tuple[int, int] = (80, 24), ticks: int = 1, **options: Any
    ) -> None:
        async def session() -> None:
            app = ConsoleApp(feed, title="ospltool", timer=False, **options)
            app.systems.present.pauses = OwnPauses(lambda: 0.0)  # a busy machine is none here
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                for _ in range(ticks):
                    app.tick()
                await pilot.pause()
                await scenario(app, pilot)

        asyncio.run(session())

    return run


def screen_text(app: ConsoleApp) -> list[str]:
    """The screen as lines of text, as a person would read it."""
    width, height = app.size
    strips = app.screen._compositor.render_strips(app.size)
    assert len(strips) == height
    return ["".join(segment.text for segment in strip)[:width].rstrip() for strip in strips]


@pytest.fixture
def read_screen() -> Callable[[ConsoleApp], list[str]]:
    return screen_text
