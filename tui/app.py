"""The console: polls a feed, keeps the model, and shows it on screens. It reads and changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ospltool.live.feed import Feed
from ospltool.live.model import SystemModel
from tui import commands, glyphs, themes
from tui.cells import Line, Span, Tone
from tui.glyphs import Glyphs
from tui.screens.base import OpsScreen
from tui.screens.help import HelpScreen
from tui.screens.names import SCREENS
from tui.screens.trace import TraceScreen
from tui.sources.lines import TraceFiles
from tui.viewmodel.base import Status, Subject, View

TICK_S: Final = 0.25
"""The feed is polled, and the screen changes, at most this often."""

SECOND_NS: Final = 1_000_000_000
MAX_HISTORY: Final = 50
"""Screens that `back` remembers."""

MESSAGE_TICKS: Final = 40
"""A message stays for ten seconds, or until the next key."""


class ConsoleApp(App[int]):
    """The console over one feed.

    `on_idle` is called at every tick in the thread of the console; when it returns False the console ends.
    Without `timer`, nothing moves until `tick` is called: tests decide what time it is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit_console", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("p", "pause", "pause"),
        *(
            Binding(str(number), f"screen('{name}')", name, show=False)
            for number, name in enumerate(SCREENS, 1)
        ),
    ]
    CSS_PATH = "ops.tcss"
    COMMANDS: ClassVar = {commands.ConsoleCommands}
    SCREENS: ClassVar = SCREENS

    def __init__(
        self,
        feed: Feed,
        *,
        title: str,
        signs: Glyphs = glyphs.UNICODE,
        theme: str = themes.DARK.name,
        on_idle: Callable[[], bool | None] | None = None,
        trace_files: TraceFiles | None = None,
        timer: bool = True,
    ) -> None:
        super().__init__()
        self.title = title
        self.feed = feed
        self.model = SystemModel()
        self.signs = signs
        self.trace_files = trace_files
        self.paused_ns = 0
        self.subject = Subject()
        self.commands = commands.COMMANDS
        self._history: list[tuple[str, Subject]] = []
        self._message = ""
        self._message_ticks = 0
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
        self.push_screen("overview")
        if self._ticking:
            self.set_interval(TICK_S, self.tick)

    def tick(self) -> None:
        """Poll once and show what changed; ages move on once a second."""
        if self._every_tick is not None and self._every_tick() is False:
            self.exit(0)
            return
        if self._message_ticks:
            self._message_ticks -= 1
            if not self._message_ticks:
                self._message = ""
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
        return View(self.model, self.paused_ns or self.feed.now_ns(), self.signs, subject=self.subject)

    def status(self) -> Status:
        """What the header says of the console itself."""
        now_ns = self.feed.now_ns()
        behind_ns = now_ns - self.paused_ns if self.paused_ns else 0
        return Status(
            title=self.title,
            source=self.feed.title,
            mode=self.feed.mode,
            paused=bool(self.paused_ns),
            behind_ns=behind_ns,
            screens=tuple(SCREENS),
        )

    # Where we are.

    def go(self, screen: str, subject: Subject, moment_ns: int = 0) -> None:
        """Show a screen about a subject; the trace begins at a moment, unless that is 0."""
        here = self._here()
        if here != (screen, subject):
            self._history.append(here)
            del self._history[:-MAX_HISTORY]
        self._show_screen(screen, subject)
        if moment_ns and isinstance(self.screen, TraceScreen):
            self.screen.go_to_moment(moment_ns)

    def go_back(self) -> None:
        """Show the screen before."""
        if self._history:
            self._show_screen(*self._history.pop())

    def look_at(self, subject: Subject) -> None:
        """Another subject on the same screen."""
        self.subject = subject
        self.show()

    def _here(self) -> tuple[str, Subject]:
        name = self.screen.NAME if isinstance(self.screen, OpsScreen) else "overview"
        return name, self.subject

    def _show_screen(self, screen: str, subject: Subject) -> None:
        self.subject = subject
        if self._here()[0] != screen:
            self.switch_screen(screen)
        self.show()

    # What the reader says to us, and we to the reader.

    def say(self, text: str) -> None:
        """Show a message at the bottom for a while."""
        self._message = text
        self._message_ticks = MESSAGE_TICKS
        self.show()

    def message_lines(self) -> list[Line]:
        """The message that is shown; none when there is none."""
        return [(Span(f" {self._message}", Tone.STRONG),)] if self._message else []

    def set_filter(self, text: str) -> None:
        """Filter the screen in front; an empty text takes the filter away."""
        if isinstance(self.screen, OpsScreen):
            self.screen.set_filter(text)

    def run_command(self, line: str) -> None:
        """Carry out a line of the command line."""
        try:
            commands.run(self, line)
        except commands.CommandFault as fault:
            self.say(str(fault))

    def on_key(self, event: events.Key) -> None:
        """Give the line that is open what was typed in one go with `/` or `:`, and take a message away.

        Keys travel from the widget that had the focus when they were typed, and may arrive here after the
        focus moved; as commands they would surprise.
        """
        self._message = ""
        if isinstance(self.focused, Input) and event.is_printable and event.character:
            self.focused.insert_text_at_cursor(event.character)
            event.prevent_default()

    def action_screen(self, name: str) -> None:
        """Show a screen about what is under the cursor."""
        here = self.screen.here() if isinstance(self.screen, OpsScreen) else self.subject
        self.go(name, here)

    def action_pause(self) -> None:
        """Freeze the picture, or go on. What comes meanwhile waits in the feed, within its bounds."""
        self.paused_ns = 0 if self.paused_ns else self.feed.now_ns()
        self._shown_second = 0
        self.tick()

    def action_help(self) -> None:
        """Show the keys of this screen."""
        screen = self.screen
        title = screen.TITLE_OF_SCREEN if isinstance(screen, OpsScreen) else ""
        usages = [(f"{one.name} {one.arguments}".strip(), one.help) for one in self.commands]
        self.push_screen(HelpScreen(self._keys(), usages, self.signs, title))

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
    traces: Sequence[str] = (),
) -> int:
    """Show `feed` until the reader leaves, and close it. Returns 0, or 130 when interrupted.

    `on_idle` is called about four times a second, in the thread of the console; returning False ends the
    console. NO_COLOR, the terminal's name and its encoding choose theme and signs where the caller did not.
    `traces` are trace files or directories to follow, as `ospltool trace` takes them.

    Raises:
        SourceError: a trace file can not be read.
    """
    files = TraceFiles(traces) if traces else None
    no_color = bool(os.environ.get("NO_COLOR"))
    look = themes.choose(theme, no_color=no_color, term=os.environ.get("TERM", ""))
    signs = glyphs.choose(sys.stdout.encoding, ascii_only=ascii_only)
    app = ConsoleApp(feed, title=title, signs=signs, theme=look, on_idle=on_idle, trace_files=files)
    try:
        result = app.run()
    finally:
        feed.close()
        if files is not None:
            files.close()
    return app.return_code or 0 if result is None else result
