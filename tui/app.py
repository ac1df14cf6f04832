"""The console: polls a feed, keeps the model, and shows it on screens. It reads and changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ospltool.live.feed import Feed
from ospltool.live.model import SystemModel
from tui import glyphs, themes
from tui.glyphs import Glyphs
from tui.screens.base import OpsScreen
from tui.screens.help import HelpScreen
from tui.screens.overview import OverviewScreen
from tui.viewmodel.base import Status, View

TICK_S: Final = 0.25
"""The feed is polled, and the screen changes, at most this often."""

SECOND_NS: Final = 1_000_000_000


class ConsoleApp(App[int]):
    """The console over one feed.

    `on_idle` is called at every tick in the thread of the console; when it returns False the console ends.
    Without `timer`, nothing moves until `tick` is called: tests decide what time it is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit_console", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("p", "pause", "pause"),
    ]
    CSS_PATH = "ops.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        feed: Feed,
        *,
        title: str,
        signs: Glyphs = glyphs.UNICODE,
        theme: str = themes.DARK.name,
        on_idle: Callable[[], bool | None] | None = None,
        timer: bool = True,
    ) -> None:
        super().__init__()
        self.title = title
        self.feed = feed
        self.model = SystemModel()
        self.signs = signs
        self.paused_ns = 0
        self._every_tick = on_idle
        self._ticking = timer
        self._shown_second = 0
        for look in themes.ALL.values():
            self.register_theme(look)
        self.theme = theme

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own names, so that the style sheet can be read before a theme of ours is chosen."""
        return dict(themes.DARK.variables)

    def on_mount(self) -> None:
        """Open the overview and begin."""
        self.animation_level = "none"
        self.push_screen(OverviewScreen())
        if self._ticking:
            self.set_interval(TICK_S, self.tick)

    def tick(self) -> None:
        """Poll once and show what changed; ages move on once a second."""
        if self._every_tick is not None and self._every_tick() is False:
            self.exit(0)
            return
        if not self.paused_ns:
            update = self.feed.poll()
            now_ns = self.feed.now_ns()
            self.model.apply(update, now_ns)
            if not update and now_ns // SECOND_NS == self._shown_second:
                return
            self._shown_second = now_ns // SECOND_NS
        self.show()

    def show(self) -> None:
        """Show the model on the screen in front."""
        if isinstance(self.screen, OpsScreen):
            self.screen.update(self.view(), self.status())

    def view(self) -> View:
        """What the screens are computed from; time stands still while paused."""
        return View(self.model, self.paused_ns or self.feed.now_ns(), self.signs)

    def status(self) -> Status:
        """What the header says of the console itself."""
        now_ns = self.feed.now_ns()
        behind_ns = now_ns - self.paused_ns if self.paused_ns else 0
        return Status(self.title, self.feed.title, self.feed.mode, bool(self.paused_ns), behind_ns)

    def on_key(self, event: events.Key) -> None:
        """Give the filter line what was typed in one go with `/`.

        Keys travel from the widget that had the focus when they were typed, and may arrive here after the
        focus moved; as commands they would surprise.
        """
        if isinstance(self.focused, Input) and event.is_printable and event.character:
            self.focused.insert_text_at_cursor(event.character)
            event.prevent_default()

    def action_pause(self) -> None:
        """Freeze the picture, or go on. What comes meanwhile waits in the feed, within its bounds."""
        self.paused_ns = 0 if self.paused_ns else self.feed.now_ns()
        self._shown_second = 0
        self.tick()

    def action_help(self) -> None:
        """Show the keys of this screen."""
        screen = self.screen
        title = screen.TITLE_OF_SCREEN if isinstance(screen, OpsScreen) else ""
        self.push_screen(HelpScreen(self._keys(), self.signs, title))

    def action_quit_console(self) -> None:
        """Leave. The system goes on without us."""
        self.exit(0)

    def _keys(self) -> list[tuple[str, str]]:
        """(key, meaning) of every binding that works here, each meaning once."""
        meanings: dict[str, list[str]] = {}
        for active in self.screen.active_bindings.values():
            if not active.binding.system and active.binding.description:
                key = self.get_key_display(active.binding)
                meanings.setdefault(active.binding.description.lower(), []).append(key)
        return [(" ".join(keys), meaning) for meaning, keys in meanings.items()]


def run_console(
    feed: Feed,
    *,
    title: str,
    on_idle: Callable[[], bool | None] | None = None,
    theme: str | None = None,
    ascii_only: bool = False,
) -> int:
    """Show `feed` until the reader leaves, and close it. Returns 0, or 130 when interrupted.

    `on_idle` is called about four times a second, in the thread of the console; returning False ends the
    console. NO_COLOR, the terminal's name and its encoding choose theme and signs where the caller did not.
    """
    no_color = bool(os.environ.get("NO_COLOR"))
    look = themes.choose(theme, no_color=no_color, term=os.environ.get("TERM", ""))
    signs = glyphs.choose(sys.stdout.encoding, ascii_only=ascii_only)
    app = ConsoleApp(feed, title=title, signs=signs, theme=look, on_idle=on_idle)
    try:
        result = app.run()
    finally:
        feed.close()
    return app.return_code or 0 if result is None else result
