"""The console as its screens and commands see it: what is shown, and what they may ask of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual.screen import Screen

from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.health.system import Source, System
from ospltool.live.feed import Feed, TimeTravel
from ospltool.live.model import SystemModel
from ospltool.live.recording import RecordingFault, header_of
from ospltool.live.replay import ReplayFeed
from ospltool.views.cells import Line
from ospltool.views.view import Filter, Subject, View
from tui.alarm import Alarm
from tui.operator import Operator
from tui.panels import Elsewhere

if TYPE_CHECKING:
    from tui.trace_lines import TraceFiles


class CommandError(Exception):
    """A command that cannot be carried out; the text is for the user."""


class Systems:
    """All that are watched, of which one is shown: as it is, or `past`, as a recording shows it.

    Args:
        sources: of all of them, one at least; the first is shown.
        recordings: files of recorders of these systems, which may still be written.
    """

    def __init__(self, sources: Sequence[Source], recordings: Sequence[Path] = ()) -> None:
        self.all = tuple(map(System, sources))
        self.present = self.all[0]
        self.past: System | None = None
        self.recording: Path | None = None
        self.recordings = tuple(recordings)

    @property
    def shown(self) -> System:
        """The shown one."""
        return self.past or self.present

    @property
    def moving(self) -> tuple[System, ...]:
        """All that go on, whether they are shown or not."""
        return (*self.all, self.past) if self.past else self.all

    @property
    def verdicts(self) -> str:
        """The verdicts of all in one line: that of the shown one, then the words of the others."""
        others = (f"{one.title}: {one.verdict.word}" for one in self.elsewhere)
        return "; ".join((f"{self.shown.feed.title}: {self.shown.health.verdict.text}", *others))

    @property
    def elsewhere(self) -> tuple[Elsewhere, ...]:
        """State of the systems that are not shown; beside its past, that of the shown one now."""
        others = (one for one in self.all if one is not self.shown)
        return tuple(
            Elsewhere(f"{one.feed.title} now", one.health.verdict, is_present=True)
            if one is self.present
            else Elsewhere(one.feed.title, one.health.verdict)
            for one in others
        )

    def go_back(self) -> TimeTravel:
        """Show the past of the shown system; return what moves in it.

        Raises:
            CommandError: no recording of it can be read.
        """
        title, told = self.present.feed.title, []
        for path in self.recordings:
            try:
                header = header_of(path)
                if header is None or header.source != title:
                    continue
                feed = ReplayFeed(path, follow=True)
            except RecordingFault as fault:
                told.append(str(fault))
                continue
            self.past, self.recording = System((feed, self._health)), path
            return feed
        raise CommandError("; ".join(told) or f"no recording of {title} yet: `ospltool record` makes one")

    def _health(self, model: SystemModel) -> Health:
        """Judge the past by what is expected; mutes and supervisors speak of now.

        What the operator knows is known there, too.
        """
        now = self.present.health
        return Health(model, now.expected, acknowledged=now.acknowledged)

    def return_to_present(self) -> None:
        """Show the system as it is, and close its recording."""
        if self.past is not None:
            self.past.feed.close()
        self.past = None

    def turn_to_trouble(self) -> bool:
        """Show the one in the worst trouble, if none as bad or the past is shown; return whether it did."""
        worst = min(self.all, key=_trouble)
        if self.past or _trouble(worst) >= _trouble(self.present):
            return False
        self.present = worst
        return True

    def turn(self, steps: int) -> None:
        """Show the next one, or the one before; after the last comes the first."""
        self.return_to_present()
        self.present = self.all[(self.all.index(self.present) + steps) % len(self.all)]

    def show(self, title: str) -> bool:
        """Show the one with this title, or with this number of a domain; False when there is none."""
        found = [one for one in self.all if title in (one.feed.title, one.feed.title.rpartition(" ")[2])]
        if found:
            self.return_to_present()
            self.present = found[0]
        return bool(found)

    def add(self, source: Source) -> None:
        """Watch another one, too, and show it."""
        self.return_to_present()
        self.present = System(source)
        self.all = (*self.all, self.present)

    def close(self) -> None:
        """Close all feeds."""
        self.return_to_present()
        for one in self.all:
            one.feed.close()


def _trouble(one: System) -> int:
    """Return the worst severity of a system's incidents, as a number that grows with health."""
    worst = one.health.verdict.worst
    return Severity.NOTICE if worst is None else worst


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command: `arguments` is how they are written in help; `run` gets the words after the name."""

    name: str
    arguments: str
    help: str
    run: Callable[[Console, list[str]], None]
    aliases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ShellSource:
    """How a command of the shell names what this console was opened on: a file, and options."""

    uri: str = ""
    options: tuple[str, ...] = ()


class OpsPage(Protocol):
    """What commands use of a screen, `tui.screens.base.OpsScreen`, which imports them."""

    NAME: ClassVar[str]
    filter: Filter

    @property
    def named(self) -> str:
        """The name of what it shows, as `ospltool show` takes it; empty where it shows all."""


class Console(Protocol):
    """What screens and commands use of the console, `tui.app.ConsoleApp`, which imports them.

    Attributes:
        subject: what the screens are about.
        operator: carries out commands on nodes; None for a console that only watches.
        commands: the commands of the `:` line.
        title: the console's title.
        theme: name of its theme, one of `themes.ALL`.
        source: what it was opened on.
    """

    alarm: Alarm
    systems: Systems
    subject: Subject
    operator: Operator | None
    trace_files: TraceFiles | None
    commands: tuple[Command, ...]
    title: str
    theme: str
    source: ShellSource

    @property
    def feed(self) -> Feed:
        """The feed of the shown system."""

    @property
    def model(self) -> SystemModel:
        """The model of the shown system."""

    @property
    def health(self) -> Health:
        """The health of the shown system."""

    @property
    def travel(self) -> TimeTravel | None:
        """The feed, if the console controls its time."""

    def view(self) -> View:
        """Return the input of all screens; its time stands still while paused."""

    def show(self) -> None:
        """Show the model on the screen in front."""

    def go(self, screen: str, subject: Subject, moment_ns: int = 0) -> None:
        """Show a screen about a subject; the trace begins at a moment, unless that is 0."""

    def go_back(self) -> None:
        """Show the previous screen, or the overview without one."""

    @property
    def front(self) -> OpsPage | None:
        """The screen in front, or the one below help or a question."""

    def look_at(self, subject: Subject) -> None:
        """Show another subject on the same screen."""

    def show_system(self) -> None:
        """Show the newly selected system, without the subject of the former one."""

    def under_cursor(self) -> Subject:
        """Return the subject under the cursor, on the screen in front or below a question."""

    def set_filter(self, text: str) -> None:
        """Filter the screen in front; an empty text removes the filter."""

    def run_command(self, line: str) -> None:
        """Carry out a line of the command line."""

    def show_message(self, text: str) -> None:
        """Show a message at the bottom for a while."""

    def message_lines(self) -> list[Line]:
        """Return the lines of the shown message; [] without one."""

    def copy(self, value: str) -> None:
        """Copy a text, without control characters, to the clipboard of the terminal (OSC 52)."""

    def wind_to(self, moment_ns: int) -> None:
        """Show the recording or simulation, or the past of a live system, at a moment."""

    def action_live(self) -> None:
        """Return from the past of a system to the system as it is."""

    def refresh_all(self) -> None:
        """Poll and show the system at once."""

    def action_screen(self, name: str) -> None:
        """Show a screen about the subject under the cursor; the overview is home."""

    def action_pause(self) -> None:
        """Freeze the picture, or continue. Updates wait in the feed, within its bounds."""

    def action_help(self) -> None:
        """Show the keys of this screen."""

    def action_quit_console(self) -> None:
        """Leave the console; the system is not affected."""

    # Methods of Textual's App that commands use.

    def push_screen(self, screen: Screen[bool], callback: Callable[[bool | None], None]) -> object:
        """Show a question over the screen in front; `callback` gets the answer, None without one."""

    def run_worker(self, work: Callable[[], None], *, thread: bool, exit_on_error: bool) -> object:
        """Run `work`, with `thread` in its own thread; with `exit_on_error` its error ends the console."""

    def call_from_thread(self, callback: Callable[[str], None], text: str) -> None:
        """Call `callback` in the thread of the console, and wait for it."""

    def export_screenshot(self, *, title: str | None, simplify: bool) -> str:
        """Return the screen in front as SVG."""
