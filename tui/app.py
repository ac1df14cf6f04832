"""The console: polls a feed, keeps the model, and shows it on screens. Without an operator it only reads."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widgets import Input

from ospltool.health.health import Health
from ospltool.health.system import Source, System
from ospltool.live.feed import Feed, TimeTravel
from ospltool.live.model import SystemModel
from ospltool.output import libraries
from ospltool.views import cells
from ospltool.views.cells import Glyphs, Line, Span, Tone
from ospltool.views.incidents import severe
from ospltool.views.text import visible
from ospltool.views.view import Subject, View
from tui import commands, themes
from tui.alarm import GRACE_NS, Alarm
from tui.background import BackgroundWork, look_for_garbage_less_often
from tui.console import CommandError, ShellSource, Systems
from tui.operator import Operator
from tui.panels import ConsoleStatus
from tui.screens.alignment import AlignmentScreen
from tui.screens.applications import ApplicationScreen, ApplicationsScreen
from tui.screens.base import OpsScreen
from tui.screens.conflicts import ConflictsScreen
from tui.screens.findings import FindingsScreen
from tui.screens.groups import GroupsScreen
from tui.screens.help import HelpScreen
from tui.screens.incidents import IncidentScreen, IncidentsScreen
from tui.screens.name_space import NameSpaceScreen
from tui.screens.node import NodeScreen
from tui.screens.overview import OverviewScreen
from tui.screens.persistence import PersistenceScreen
from tui.screens.stores import StoreScreen
from tui.screens.topics import TopicScreen, TopicsScreen
from tui.screens.trace import TraceScreen
from tui.widgets.kiosk import ROTATE_S, pages

if TYPE_CHECKING:
    from textual.driver import Driver

    from tui.trace_lines import TraceFiles

# A title of a terminal; it may have a name from the network.
MOST_CHARACTERS: Final = 200
_KEEP: Final = "\x1b[22;2t"
_GIVE_BACK: Final = "\x1b[23;2t"


# The terminal: standard error elsewhere, the title of the window.


class StandardOutputDriver(LinuxDriver):
    """The driver of a Linux terminal that draws on standard output."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__


def drawing(driver: type[Driver]) -> type[Driver]:
    """Return the driver in place of Textual's choice: another one only if standard error is no terminal."""
    stderr = sys.__stderr__
    is_away = stderr is None or stderr.closed or not stderr.isatty()
    return StandardOutputDriver if driver is LinuxDriver and is_away else driver


class WindowTitle:
    """The title of the window tells the verdict also while the console is out of view.

    It is set when it changes, and given back at the end.

    `write` sends control codes to the terminal.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._shown = ""

    def show(self, text: str) -> None:
        """Set the title, if it is another one."""
        title = visible(text)[:MOST_CHARACTERS]
        if title != self._shown:
            self._write(f"{'' if self._shown else _KEEP}\x1b]2;{title}\x1b\\")
            self._shown = title

    def close(self) -> None:
        """Let the terminal have the title that it had before."""
        if self._shown:
            self._write(_GIVE_BACK)
            self._shown = ""


# People see no more, and each picture costs milliseconds, on the machine that is watched.
TICK_S: Final = 0.25
"""The feed is polled, and the screen changes, at most this often."""

SECOND_NS: Final = 1_000_000_000

# Up to 30 nodes a picture costs less than a tick leaves. Chosen.
SMALL: Final = 30
"""Nodes that are shown at every tick."""
# Chosen so that the console stays below a few per cent of a core with 200 nodes (`make bench
# AREA=console`).
NODE_NS: Final = 9_000_000
"""Delay of the next picture for each node above SMALL, unless the verdict changes: 1.5 s with 200 nodes.
Keys are answered at once."""

MAX_HISTORY: Final = 50
"""Screens that `back` remembers."""

_WEB_FONTS: Final = re.compile(r"\s*@font-face {.*?}", re.DOTALL)

TRAVEL_ACTIONS: Final = frozenset({"step", "wind", "faster", "mark", "next_mark"})
"""Actions of a recording or simulation, and of the past of a live system."""

# Long enough to read two lines.
MESSAGE_TICKS: Final = 40
"""A message stays for ten seconds, or until the next key."""


SCREENS: Final[dict[str, Callable[[], Screen[Any]]]] = {
    screen.NAME: screen
    for screen in (
        OverviewScreen,
        NodeScreen,
        NameSpaceScreen,
        AlignmentScreen,
        IncidentsScreen,
        GroupsScreen,
        TraceScreen,
        StoreScreen,
        FindingsScreen,
        PersistenceScreen,
        IncidentScreen,
        ConflictsScreen,
        TopicsScreen,
        TopicScreen,
        ApplicationsScreen,
        ApplicationScreen,
    )
}
"""Every screen by its name. The first ten have a tab and, in this order, a number key; the tenth has 0."""

TABS: Final = tuple(SCREENS)[:10]


class ConsoleApp(App[int]):
    """The console over one feed.

    `on_idle` is called at every tick in the thread of the console; when it returns False the console ends.
    Without `timer`, nothing moves until `tick` is called: tests decide what time it is. `title` is that of
    the console, `theme` a name of `themes.ALL`, and `notify` a command that runs for every new severe
    incident; empty for none. `recordings` are files of recorders of the shown systems, to go back in time.
    With `kiosk` it hangs on a wall. `simulate` opens a simulated system, offered while nobody is heard.
    `source` is how a command of the shell names what is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("L", "live", "back to live"),
        Binding("S", "simulate", "simulation"),
        Binding("left_square_bracket", "past(-60)", "a minute back", key_display="["),
        Binding("q", "quit_console", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("p", "pause", "pause"),
        *(
            Binding(str(number % 10), f"screen('{name}')", name, show=False)
            for number, name in enumerate(TABS, 1)
        ),
        Binding("T", "screen('topics')", "topics", show=False),
        Binding("A", "screen('applications')", "applications", show=False),
        Binding("d", "system(1)", "next domain"),
        Binding("D", "system(-1)", "domain before", show=False),
        Binding("full_stop", "step(1)", "step", key_display="."),
        Binding("comma", "step(-1)", "step back", key_display=",", show=False),
        Binding("right_square_bracket", "wind(60)", "a minute on", key_display="]", show=False),
        Binding("left_square_bracket", "wind(-60)", "a minute back", key_display="[", show=False),
        Binding("plus", "faster(2)", "faster", key_display="+", show=False),
        Binding("minus", "faster(0.5)", "slower", key_display="-", show=False),
        Binding("m", "mark", "mark", show=False),
        Binding("apostrophe", "next_mark", "next mark", key_display="'", show=False),
    ]
    CSS_PATH = "ops.tcss"
    COMMANDS: ClassVar = {commands.ConsoleCommands}
    SCREENS: ClassVar = SCREENS

    def __init__(
        self,
        feed: Feed,
        *,
        title: str,
        signs: Glyphs = cells.UNICODE,
        theme: str = themes.DARK.name,
        on_idle: Callable[[], bool | None] | None = None,
        trace_files: TraceFiles | None = None,
        operator: Operator | None = None,
        notify: str = "",
        timer: bool = True,
        watch_health: Callable[[SystemModel], Health] = Health,
        others: Sequence[Source] = (),
        recordings: Sequence[Path] = (),
        kiosk: bool = False,
        simulate: Callable[[], Source] | None = None,
        source: ShellSource | None = None,
    ) -> None:
        super().__init__()
        self.source = source or ShellSource()
        self.alarm = Alarm(self.bell, notify, self.show_message)
        self.title = title
        self._is_kiosk, self._page = kiosk, 0
        self._simulate = simulate
        self.systems = Systems(((feed, watch_health), *others), recordings)
        self.signs = signs
        self.trace_files = trace_files
        self.paused_ns = 0
        self.subject = Subject()
        self.operator = operator
        back = commands.RETURN if recordings else ()
        operations = commands.OPERATIONS if operator else ()
        self.commands = (*commands.COMMANDS, *back, *commands.EXPORT, *operations)
        self._history: list[tuple[str, Subject]] = []
        self._message = ""
        self._message_ticks = 0
        self._every_tick = on_idle
        self._ticking = timer
        self._taken_ns = 0
        self._shown_ns = 0
        self._is_behind = False
        self._is_touched = False
        self._began_ns = 0
        self._window = WindowTitle(self._write)
        self._background = BackgroundWork()
        for look in themes.ALL.values():
            self.register_theme(look)
        self.theme = theme

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver, or one that draws on standard output if standard error is a file."""
        return drawing(super().get_driver_class())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the console's variables, so that the style sheet is readable before a theme is chosen."""
        return dict(themes.DARK.variables)

    async def on_mount(self) -> None:
        """Open the overview and begin."""
        self.animation_level = "none"
        await self.push_screen("overview")
        if self._ticking:
            self._background.begin(self._steps)  # what was heard while this console was made, at once
            self.set_interval(TICK_S, lambda: self._background.begin(self._steps))
            if self._is_kiosk:
                self.set_interval(ROTATE_S, self.rotate)

    def on_unmount(self) -> None:
        """End the work in the background, and let go of a recording."""
        self._background.end()
        self.systems.return_to_present()
        self._window.close()

    def tick(self) -> None:
        """Poll once and show what changed, a large system less often; ages move on once a second."""
        for work in (self._background.work, self._steps()):
            for _ in work:
                pass

    def _steps(self) -> Iterator[None]:
        """Do what `tick` does, in steps of a few milliseconds."""
        if self._every_tick is not None and self._every_tick() is False:
            self.exit(0)
            return
        if self._message_ticks:
            self._message_ticks -= 1
            if not self._message_ticks:
                self._message = ""
        if not self.paused_ns:
            verdicts = [one.health.verdict for one in self.systems.moving]
            revisions = [one.model.revision for one in self.systems.moving]
            for one in self.systems.moving:
                yield from one.steps()
                if news := one.pauses.news():
                    self.show_message(news)
            is_new = revisions != [one.model.revision for one in self.systems.moving]
            before_ns, now_ns = self._taken_ns, self.feed.now_ns()
            self._taken_ns = now_ns
            self._alarm()
            self._open_on_trouble(now_ns)
            self._window.show(visible(self.systems.verdicts, ascii_only=self.signs is not cells.UNICODE))
            self._is_behind = self._is_behind or is_new or now_ns // SECOND_NS != before_ns // SECOND_NS
            is_early = 0 <= now_ns - self._shown_ns < NODE_NS * (len(self.model.nodes) - SMALL)
            is_urgent = verdicts != [one.health.verdict for one in self.systems.moving]
            if not self._is_behind or (is_early and not is_urgent):
                return
            self._shown_ns, self._is_behind = now_ns, False
            yield
        self.show()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Return the screen in front as SVG, with the fonts of the machine that shows it.

        Textual's picture names a font on another host, which a browser would fetch. `title` is that of the
        console by default; with `simplify` neighbours of one style are one text.
        """
        return _WEB_FONTS.sub("", super().export_screenshot(title=title, simplify=simplify))

    async def on_event(self, event: events.Event) -> None:
        """Answer what the user does before the system is examined further."""
        if isinstance(event, events.InputEvent):
            self._is_touched = self._is_touched or isinstance(event, events.Key | events.MouseDown)
            self._background.rest()
        await super().on_event(event)

    def _open_on_trouble(self, now_ns: int) -> None:
        """Until the user does something, show the domain in the worst trouble of the first seconds."""
        self._began_ns = self._began_ns or now_ns
        if (
            not self._is_touched
            and 0 <= now_ns - self._began_ns < GRACE_NS
            and self.systems.turn_to_trouble()
        ):
            self.show_system()

    def _write(self, codes: str) -> None:
        """Send control codes to the terminal, if there is one with windows."""
        if self._driver is not None and not self.is_web and os.environ.get("TERM") != "linux":
            self._driver.write(codes)

    def _alarm(self) -> None:
        """Report severe incidents of all live systems."""
        if self.systems.present.feed.mode == "live":
            errors: dict[str, tuple[str, ...]] = {}
            for one in self.systems.all:
                found = severe(self._view_of(one))
                errors.update({f"{one.feed.title} {key}": said for key, said in found.items()})
            self.alarm.update(errors, self.systems.present.feed.now_ns())

    def show(self) -> None:
        """Show the model on the screen in front."""
        front = self.front
        if front is not None:
            front.update(self.view(), self.status())

    @property
    def front(self) -> OpsScreen | None:
        """The screen in front, or the one below help or a question: it goes on."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, OpsScreen)), None)

    def view(self) -> View:
        """Return the input of all screens; its time stands still while paused."""
        return self._view_of(self.systems.shown)

    def _view_of(self, one: System) -> View:
        now_ns, where = self.paused_ns or one.feed.now_ns(), getattr(one.feed, "where", "")
        return View(one.health, now_ns, self.signs, subject=self.subject, where=where)

    def status(self) -> ConsoleStatus:
        """Return the console's own state for the header."""
        now_ns = self.feed.now_ns()
        behind_ns = now_ns - self.paused_ns if self.paused_ns else 0
        return ConsoleStatus(
            title=self.title,
            source=self.feed.title,
            mode=self.feed.mode,
            paused=bool(self.paused_ns),
            behind_ns=behind_ns,
            screens=TABS,
            timeline=self.travel.timeline if self.travel else None,
            operates=self.operator is not None,
            elsewhere=self.systems.elsewhere,
            is_kiosk=self._is_kiosk,
            ago_ns=max(0, self.systems.present.feed.now_ns() - now_ns) if self.systems.past else None,
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

    def under_cursor(self) -> Subject:
        """Return the subject under the cursor, on the screen in front or below a question."""
        return self.front.here() if self.front else self.subject

    def go_back(self) -> None:
        """Show the previous screen, or the overview without one."""
        if self._history:
            self._show_screen(*self._history.pop())
        else:
            self.go_home()

    def rotate(self) -> None:
        """Show the next page of a console on a wall, unless a question or the help is in front."""
        if isinstance(self.screen, OpsScreen):
            every = pages(self.view())
            self._page = (self._page + 1) % len(every)
            self._show_screen(*every[self._page])

    def action_simulate(self) -> None:
        """Show a simulated system beside the live ones, of which nobody is heard yet."""
        if self._simulate is not None:
            self.systems.add(self._simulate())
            self.show_system()

    def go_home(self) -> None:
        """Show the overview as at the console's start, and forget the previous screens."""
        self._history.clear()
        overview = self.get_screen("overview", OverviewScreen)
        overview.go_home()
        self._show_screen("overview", self.subject)

    def copy(self, value: str) -> None:
        """Copy a text, without control characters, to the clipboard of the terminal (OSC 52)."""
        shown = "\t".join(map(visible, value.split("\t")))
        self.copy_to_clipboard(shown)
        self.show_message(f"copied: {shown.expandtabs(1)}" if shown else "nothing to copy here")

    def look_at(self, subject: Subject) -> None:
        """Show another subject on the same screen."""
        self.subject = subject
        self.show()

    def _here(self) -> tuple[str, Subject]:
        name = self.screen.NAME if isinstance(self.screen, OpsScreen) else "overview"
        return name, self.subject

    def _show_screen(self, screen: str, subject: Subject) -> None:
        self.subject = subject
        if self._here()[0] != screen:
            self.switch_screen(screen)  # it shows the system when it comes to the front
        else:
            self.show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow the keys for other domains, for winding and for the past only where there are some."""
        if action == "system":
            return len(self.systems.all) > 1
        if action in TRAVEL_ACTIONS:
            return self.travel is not None
        if action == "past":
            return self.travel is None and bool(self.systems.recordings)
        if action == "simulate":
            return self._simulate is not None and len(self.systems.all) == 1 and self.model.is_empty
        if action == "live":
            return self.systems.past is not None
        return super().check_action(action, parameters)

    def action_system(self, steps: int) -> None:
        """Show the next domain, or the one before, on the same screen."""
        self.systems.turn(steps)
        self.show_system()

    def show_system(self) -> None:
        """Show the newly selected system, without the subject of the former one."""
        self._history.clear()
        self.refresh_bindings()
        screen = self._here()[0]
        self._show_screen(screen if screen in TABS else "overview", Subject())

    # Which moment is shown.

    @property
    def feed(self) -> Feed:
        """The feed of the shown system."""
        return self.systems.shown.feed

    @property
    def model(self) -> SystemModel:
        """The model of the shown system."""
        return self.systems.shown.model

    @property
    def health(self) -> Health:
        """The health of the shown system."""
        return self.systems.shown.health

    @property
    def travel(self) -> TimeTravel | None:
        """The feed, if the console controls its time."""
        return self.feed if isinstance(self.feed, TimeTravel) else None

    def action_pause(self) -> None:
        """Freeze the picture, or continue. Updates wait in the feed, within its bounds."""
        if self.travel is not None:
            self.travel.pause(paused=not self.travel.timeline.paused)
        else:
            self.paused_ns = 0 if self.paused_ns else self.feed.now_ns()
        self.refresh_all()

    def wind_to(self, moment_ns: int) -> None:
        """Show the recording or simulation, or the past of a live system, at a moment."""
        if self.travel is None and self.systems.recordings:
            try:
                self.systems.go_back()
            except CommandError as fault:
                self.show_message(str(fault))
                return
            self._turn_time()
        if self.travel is not None:
            self.travel.seek(moment_ns)
            self.refresh_all()

    def action_past(self, seconds: int) -> None:
        """Show the system as a recording has it, `seconds` from now; they are negative."""
        self.wind_to((self.paused_ns or self.feed.now_ns()) + seconds * SECOND_NS)

    def action_live(self) -> None:
        """Return from the past of a system to the system as it is."""
        self.systems.return_to_present()
        self._turn_time()
        self.refresh_all()

    def _turn_time(self) -> None:
        self.paused_ns = 0
        self.refresh_bindings()

    def action_wind(self, seconds: int) -> None:
        """Wind forward or back, from the target of an earlier key."""
        if self.travel is not None:
            self.wind_to(self.travel.timeline.now_ns + seconds * SECOND_NS)

    def action_step(self, direction: int) -> None:
        """Pause at the next event, or the previous one."""
        if self.travel is not None:
            if not self.travel.step(direction):
                self.show_message(
                    "no event after this moment" if direction > 0 else "no event before this moment"
                )
            self.refresh_all()

    def action_faster(self, factor: float) -> None:
        """Play faster or slower, between a tenth and a thousand times."""
        if self.travel is not None:
            self.travel.set_speed(min(max(self.travel.timeline.speed * factor, 0.1), 1000.0))
            self.refresh_all()

    def action_mark(self) -> None:
        """Mark this moment; a note may follow."""
        if isinstance(self.screen, OpsScreen):
            self.screen.action_command("mark ")

    def action_next_mark(self) -> None:
        """Pause at the next mark; after the last comes the first."""
        if self.travel is not None:
            marks = [moment_ns for moment_ns, _ in self.travel.notes()]
            later = [moment_ns for moment_ns in marks if moment_ns > self.feed.now_ns()]
            if marks:
                moment_ns = later[0] if later else marks[0]
                self.travel.pause(paused=True)
                self.wind_to(moment_ns)
                self.show_message(f"mark: {dict(self.travel.notes())[moment_ns] or 'without a note'}")
            else:
                self.show_message("no marks yet; m makes one")

    # Messages and commands.

    def show_message(self, text: str) -> None:
        """Show a message at the bottom for a while."""
        self._message = text
        self._message_ticks = MESSAGE_TICKS
        self.show()

    def message_lines(self) -> list[Line]:
        """Return the lines of the shown message; [] without one."""
        return [(Span(f" {self._message}", Tone.STRONG),)] if self._message else []

    def set_filter(self, text: str) -> None:
        """Filter the screen in front; an empty text removes the filter."""
        if isinstance(self.screen, OpsScreen):
            self.screen.set_filter(text)

    def run_command(self, line: str) -> None:
        """Carry out a line of the command line."""
        try:
            commands.run(self, line)
        except CommandError as fault:
            self.show_message(str(fault))

    def on_key(self, event: events.Key) -> None:
        """Insert keys typed right after `/` or `:` into the open line, and remove a message.

        Keys travel from the widget that had the focus when they were typed, and may arrive here after the
        focus moved; as commands they would surprise.
        """
        self._message = ""
        if isinstance(self.focused, Input) and event.is_printable and event.character:
            self.focused.insert_text_at_cursor(event.character)
            event.prevent_default()

    def action_screen(self, name: str) -> None:
        """Show a screen about the subject under the cursor; the overview is home."""
        if name == "overview":
            self.go_home()
        else:
            self.go(name, self.under_cursor())

    def refresh_all(self) -> None:
        """Poll and show the system at once."""
        self._shown_ns, self._is_behind = 0, True
        self.tick()

    def action_help(self) -> None:
        """Show the keys of this screen."""
        screen = self.screen
        title = screen.TITLE_OF_SCREEN if isinstance(screen, OpsScreen) else ""
        usages = [(f"{one.name} {one.arguments}".strip(), one.help) for one in self.commands]
        self.push_screen(HelpScreen(self._keys(), usages, self.signs, title))

    def action_help_quit(self) -> None:
        """Name the key that quits, at Ctrl-C: Textual names its own."""
        self.notify("Press q to quit", title="Ctrl-C does not end the console")

    def action_quit_console(self) -> None:
        """Leave the console; the system is not affected."""
        self.exit(0)

    def _keys(self) -> list[tuple[str, str]]:
        """Return (keys, meaning) of every binding that works here."""
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
    trace_files: TraceFiles | None = None,
    operator: Operator | None = None,
    notify: str = "",
    watch_health: Callable[[SystemModel], Health] = Health,
    others: Sequence[Source] = (),
    recordings: Sequence[Path] = (),
    kiosk: bool = False,
    simulate: Callable[[], Source] | None = None,
    source: ShellSource | None = None,
) -> int:
    """Show `feed` until the user leaves, and close it. Return 0, or 130 after an interrupt.

    NO_COLOR, the terminal's name and its encoding choose theme and signs unless the caller did.

    Args:
        feed: the shown system.
        title: title of the console.
        on_idle: called about four times a second in the console's thread; False ends the console.
        theme: name of a theme; None chooses one.
        ascii_only: use signs of ASCII only.
        trace_files: trace files to follow; they are closed, too.
        operator: carries out commands on nodes; None for a console that only watches.
        notify: command that runs for every new severe incident; empty for none.
        watch_health: makes the health of the model, with its expectation.
        others: sources of further domains.
        recordings: files of recorders of these domains, to go back in time.
        kiosk: the console hangs on a wall: large figures, and pages in turn.
        simulate: opens a simulated system, which is offered while nobody is heard; None for a recording.
        source: how a command of the shell names what is shown.

    Raises:
        AlarmError: the command is malformed.
    """
    look = themes.choose(theme, no_color=bool(os.environ.get("NO_COLOR")), term=os.environ.get("TERM", ""))
    encoding = "utf-8" if "TEXTUAL_DRIVER" in os.environ else sys.stdout.encoding  # a browser has no other
    app = ConsoleApp(
        feed,
        title=title,
        signs=cells.choose(encoding, ascii_only=ascii_only),
        theme=look,
        on_idle=on_idle,
        trace_files=trace_files,
        operator=operator,
        notify=notify,
        watch_health=watch_health,
        others=others,
        recordings=recordings,
        kiosk=kiosk,
        simulate=simulate,
        source=source,
    )
    look_for_garbage_less_often()
    try:
        with libraries.kept_for_the_end():
            result = app.run()
    finally:
        app.systems.close()
        if trace_files is not None:
            trace_files.close()
    return app.return_code or 0 if result is None else result
