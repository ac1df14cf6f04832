"""The bases of all screens: header, caption, message, filter, command line, keys and jumps; one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Input

from engine.runtime.monitor import NodeEvent
from ospltool.views.cells import ASCII, Line, Rows, more_line
from ospltool.views.events import lines_of_events, newest_of
from ospltool.views.text import visible
from ospltool.views.view import Filter, Subject, View
from tui import commands, panels
from tui.console import Console
from tui.panels import ConsoleStatus
from tui.widgets.bottom import CommandLine, Entry, FilterLine, KeyBar
from tui.widgets.kiosk import Kiosk, is_stale
from tui.widgets.lines import Lines, Toned
from tui.widgets.sheet import HEADER, Sheet


def neighbour_keys(name: str) -> list[BindingType]:
    """Return the keys to the subjects before and after the one that is shown."""
    return [
        Binding("less_than_sign", "neighbour(-1)", f"{name} before", key_display="<", show=False),
        Binding("greater_than_sign", "neighbour(1)", f"next {name}", key_display=">", show=False),
    ]


def _is_roomy(size: Size) -> bool:
    return size.width >= ROOMY_WIDTH and size.height >= ROOMY_HEIGHT


class OpsScreen(Screen[None]):
    """A screen that shows views. Subclasses compose their body and fill it in `show`.

    `NAME` is its name in commands and in `go`, `TITLE_OF_SCREEN` its name for people.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("colon", "command", "command", key_display=":"),
        Binding("n", "jump('node')", "its node", show=False),
        Binding("s", "jump('name-space')", "its name-space", show=False),
        Binding("t", "jump('trace')", "its trace", show=False),
        Binding("y", "copy_name", "copy", show=False),
        Binding("c", "copy_page", "copy as a command", show=False),
        Binding("x", "export", "export the page", show=False),
        Binding("escape", "back", "back, or clear filter", show=False),
    ]
    NAME: ClassVar[str] = ""
    TITLE_OF_SCREEN: ClassVar[str] = ""
    FILTER_FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.filter = Filter()
        self.last: tuple[View, ConsoleStatus] | None = None
        self.heading = self.TITLE_OF_SCREEN
        self._filter_to_set = ""
        self._look = ""
        self._moment: tuple[bool, bool] | None = None
        self._titles: dict[str, str] = {}
        self._preview: list[Line] = []

    @property
    def console(self) -> Console:
        """The console that this screen belongs to."""
        return cast("Console", self.app)

    def compose(self) -> ComposeResult:
        """Yield header and caption above, message, filter, command line and keys below."""
        self.set_class(
            _is_roomy(self.app.size), "-roomy"
        )  # its own size comes later: all would be styled twice
        yield Lines(id="header")
        yield Kiosk()
        yield Lines(id="timebar")
        yield Lines(id="caption")
        yield from self.body()
        yield Lines(id="message")
        yield FilterLine(self.FILTER_FIELDS)
        yield CommandLine()
        yield KeyBar()

    def body(self) -> ComposeResult:
        """Yield the widgets of the body."""
        yield from ()

    def show(self, view: View) -> None:
        """Fill the body. Called at most four times a second."""

    def here(self) -> Subject:
        """Return the subject under the cursor, for jumps."""
        return self.console.subject

    @property
    def named(self) -> str:
        """The name of what is shown, as `ospltool show` takes it; empty where all is shown."""
        return ""

    def moment_ns(self) -> int:
        """Return the moment under the cursor, for jumps into the trace; 0 if there is none."""
        return 0

    @property
    def is_roomy(self) -> bool:
        """Whether panels are boxes, and not only rules with a title."""
        return _is_roomy(self.size)

    @property
    def frame(self) -> int:
        """Lines of the edge of a panel."""
        return 2 if self.is_roomy else 1

    @property
    def inner(self) -> int:
        """Cells within a panel over the whole width."""
        return max(0, self.size.width - 2 * self.is_roomy)

    @property
    def room(self) -> int:
        """Lines that are left for the body."""
        around = (w for w in self.children if isinstance(w, Lines | Entry) and w.id in _AROUND and w.display)
        kiosk = 3 + self.frame if self.has_class("-kiosk") else 1  # in the place of the keys
        return max(0, self.size.height - kiosk - sum(_height(widget) for widget in around))

    def update(self, view: View, status: ConsoleStatus) -> None:
        """Show the system as it is in `view`, with this screen's filter."""
        if not self.is_mounted:
            return
        self.last = view, status
        view = dataclasses.replace(view, filter=self.filter)
        width = self.size.width
        is_past = status.ago_ns is not None
        if self._moment != (status.paused, is_past):
            self._moment = status.paused, is_past
            self.query_one("#header", Lines).set_class(status.paused or is_past, "-paused")
            for widget in self.query(Toned):
                widget.set_class(is_past and widget.id not in _OF_THE_PRESENT, PAST)
        self.set_class(self.is_roomy, "-roomy")
        self.set_class(view.glyphs is ASCII, "-ascii")
        self.set_class(status.is_kiosk, "-kiosk")
        self.set_class(status.is_kiosk and is_stale(view), "-stale")
        if status.is_kiosk:
            self.query_one(Kiosk).show(view)
        self._show_header(view, status)
        self.fill("#timebar", panels.timebar_lines(view, status, width))
        self.fill("#caption", panels.caption_lines(view, width))
        self.fill("#message", self._preview or self.console.message_lines())
        before = self.heading
        self.show(view)
        if self.heading != before:
            self._show_header(view, status)
        self._keep_focus()

    def _show_header(self, view: View, status: ConsoleStatus) -> None:
        lines = panels.header(view, status, self.NAME, self.heading, self.size.width)
        has_tabs = self.size.height >= LEAST_FOR_TABS and not status.is_kiosk
        self.fill("#header", lines if has_tabs else lines[:1])

    def _keep_focus(self) -> None:
        """Move the focus to a table with rows, if there is one."""
        here = self.focused
        if isinstance(here, Sheet) and not (here.display and here.row_key):
            others = (sheet for sheet in self.query(Sheet) if sheet.display and sheet.row_key)
            self.set_focus(next(others, here))

    def fill(self, selector: str, lines: list[Line], height: int | None = None) -> None:
        """Show lines in the part of this screen at `selector`, as high as they are, or as `height` says."""
        widget = self.query_one(selector, Lines)
        set_height(widget, len(lines) if height is None else height)
        widget.show(lines)

    def panel(self, selector: str, title: str, height: int, lines: list[Line] | None = None) -> None:
        """Give a panel its title and `height` lines within its edge; without any it takes no room.

        Args:
            selector: the panel, a table or lines.
            title: as text: what comes from the network is neither markup nor control characters.
            height: lines within the edge.
            lines: what it shows; None for a table, which is filled by itself.
        """
        widget = self.query_one(selector, Toned)
        set_height(widget, height + self.frame if height > 0 else 0)
        if title and not self.is_roomy:
            title = f" {title} "  # a box sets its title off from the edge by itself
        if self._titles.get(selector) != title:  # a new title draws the whole panel again
            self._titles[selector] = title
            widget.border_title = Content(visible(title, ascii_only=widget.glyphs is ASCII))
        if lines is not None and isinstance(widget, Lines):
            widget.show(lines[:height])

    def show_events(self, view: View, told: Callable[[NodeEvent], bool], room: int) -> None:
        """Show the newest of these events in panel `#told`, in at most `room` lines with its edge."""
        height = room - self.frame
        newest = (event for event in reversed(view.model.events) if told(event))
        found = newest_of(view, newest, height) if height >= LEAST_TOLD else []
        self.panel("#told", "events", len(found), lines_of_events(view, found, self.inner))

    def refresh_now(self) -> None:
        """Show the last view again after a change of filter, size or cursor."""
        if self.last is not None:
            self.update(*self.last)

    def set_filter(self, text: str) -> None:
        """Filter as if the text had been typed; an empty text removes the filter."""
        self._filter_to_set = text
        if self.is_mounted:
            self.query_one(FilterLine).put(text)

    def on_mount(self) -> None:
        """Let the arrow keys move over the body."""
        self.query_one(FilterLine).put(self._filter_to_set)
        self.focus_body()

    def on_resize(self) -> None:
        """Lay the screen out for its new size."""
        self.refresh_now()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Show updates that came while another screen was shown.

        Styles are as they were unless another theme was chosen meanwhile; Textual would apply all again.
        """
        event.refresh_styles = event.refresh_styles and self._look != self.app.theme
        self._look = self.app.theme
        self.console.show()

    def on_click(self, event: events.Click) -> None:
        """Show the screen of a clicked tab."""
        header = self.query_one("#header", Lines)
        if event.widget is not header or self.last is None or event.y != 1 or len(header.lines) < 2:
            return
        screen = panels.tab_at(header.lines[1], event.x, self.last[1].screens)
        if screen:
            event.stop()
            self.console.action_screen(screen)

    def focus_body(self) -> None:
        """Put the focus where the keys of the screen work: where it was, else on the first table."""
        if not isinstance(self.focused, Sheet):
            sheets = list(self.query(Sheet))
            self.set_focus(next((sheet for sheet in sheets if sheet.row_key), next(iter(sheets), None)))

    def action_filter(self) -> None:
        """Open the filter line."""
        self.query_one(FilterLine).open()

    def action_command(self, text: str = "") -> None:
        """Open the command line, perhaps with some text."""
        line = self.query_one(CommandLine)
        line.suggest(list(commands.suggestions(self.console)))
        line.open(text)

    def action_back(self) -> None:
        """Remove the filter; without one, go back to the previous screen, and at last home."""
        line = self.query_one(FilterLine)
        if line.display:
            line.shut()
        else:
            self.console.go_back()

    @on(Sheet.Left)
    def _left(self, event: Sheet.Left) -> None:
        """Move the cursor into the next table, or the previous one."""
        sheets = [sheet for sheet in self.query(Sheet) if sheet.display and sheet.row_key]
        index = sheets.index(event.sheet) + event.direction if event.sheet in sheets else -1
        if 0 <= index < len(sheets):
            self.set_focus(sheets[index])
            sheets[index].action_edge(-event.direction)

    @on(Sheet.Copied)
    def _copied(self, event: Sheet.Copied) -> None:
        self.console.copy(event.value)

    def action_copy_name(self) -> None:
        """Copy what is shown, where no table has the cursor."""
        self.console.copy(self.named or self.heading)

    def action_copy_page(self) -> None:
        """Copy the line of the shell that says what this screen does."""
        self.console.copy(commands.page_line(self.console))

    def action_export(self) -> None:
        """Write what this screen shows to new files."""
        self.console.run_command("export page")

    @on(CommandLine.CopyWanted)
    def _copy_command(self) -> None:
        line = commands.line_of(self.console, self.query_one(CommandLine).value)
        if line:
            self.console.copy(line)
        else:
            self.console.show_message("only the console can do this")

    def action_jump(self, screen: str) -> None:
        """Show what is under the cursor on another screen."""
        self.console.go(screen, self.here(), self.moment_ns())

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        self.filter = Filter.parse(event.value, self.FILTER_FIELDS)
        self.refresh_now()

    @on(Entry.Shut)
    def _entry_shut(self) -> None:
        self.set_focus(None)
        self.focus_body()
        self.refresh_now()

    @on(Entry.Opened)
    def _entry_opened(self) -> None:
        self.refresh_now()

    @on(Input.Submitted, "#command")
    def _command_given(self, event: Input.Submitted) -> None:
        self.query_one(CommandLine).shut()
        self._entry_shut()  # the keys are those of the screen again: help shows them
        # The first refresh lays the screen out without the line, the second draws it: no picture has it.
        self.call_after_refresh(self.call_after_refresh, self.console.run_command, event.value)

    @on(Input.Changed, "#command")
    def _command_changed(self, event: Input.Changed) -> None:
        """Show what the commands do that begin like this."""
        self._preview = commands.preview(self.console, event.value) if event.value else []
        self.refresh_now()


# With less, the edges would take more than a sixth of the lines.
ROOMY_WIDTH: Final = 100
ROOMY_HEIGHT: Final = 34
"""Cells and lines from which panels are boxes."""

# Header, a few rows and the keys need these.
LEAST_TOLD: Final = 3
"""With fewer lines events are not worth a panel."""

LEAST_FOR_TABS = 12
"""With fewer lines the header has only its first."""

PAST: Final = "-past"
"""Class of what shows the past of a live system: nothing in it is bright."""

_OF_THE_PRESENT = frozenset({"header", "timebar", "message", "keys"})

_AROUND = frozenset({"header", "timebar", "caption", "message", "filter", "command"})


def _height(widget: Lines | Entry) -> int:
    height = widget.styles.height
    return int(height.value) if height is not None else 1


def set_height(widget: Toned, lines: int) -> None:
    """Give the widget this many lines; without any it takes no room."""
    if widget.display != bool(lines):
        widget.display = bool(lines)
    height = widget.styles.height
    if lines and (height is None or height.value != lines):
        widget.styles.height = lines


def share(wanted: list[int], room: int) -> list[int]:
    """Return the lines of each part: two at least while there is room, then one after the other in turns."""
    given = [0] * len(wanted)
    for least in (2, *range(3, max(wanted, default=0) + 1)):
        for index, want in enumerate(wanted):
            more = min(want, least) - given[index]
            given[index] += max(0, min(more, room - sum(given)))
        if sum(given) >= room:
            break
    return given


class TableScreen(OpsScreen):
    """Subclasses give the table, its title and the lines about a row."""

    # Chosen by eye, as in the other screens.
    ABOUT_LINES: ClassVar[int] = 8
    """The most lines for what is under the cursor: a third of the screen, or what the table leaves free."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows[Any] | None = None
        self.shown: View | None = None
        self._notes: list[Line] = []

    def body(self) -> ComposeResult:
        """Yield notes, table, and lines about the row under the cursor."""
        yield Lines(id="notes", classes="free")
        yield Sheet(id="table", classes="panel")
        yield Lines(id="about", classes="panel")

    def table(self, view: View, width: int) -> Rows[Any]:
        """Return the table."""
        raise NotImplementedError

    def table_title(self, view: View, rows: Rows[Any]) -> str:
        """Return the title of the table."""
        return self.TITLE_OF_SCREEN

    def about(self, view: View, row: Any, width: int) -> list[Line]:
        """Return the row under the cursor in full."""
        return []

    def notes(self, view: View, width: int) -> list[Line]:
        """Return lines above the table, whatever that has."""
        return []

    def instead(self, view: View) -> list[Line]:
        """Return the lines below an empty table."""
        return panels.nothing_lines(view, f"{self.TITLE_OF_SCREEN.removesuffix('s')}s")

    @property
    def row(self) -> Any:
        """The value under the cursor; None when the table is empty."""
        return self.rows.item(self.query_one("#table", Sheet).row) if self.rows else None

    def show(self, view: View) -> None:
        """Fill table and lines, and share the height."""
        self.shown = view
        width = self.inner
        rows = self.rows = self.table(view, width)
        self.query_one("#table", Sheet).show(rows)
        self._notes = self.notes(view, width)
        self.fill("#notes", self._notes)
        self.show_about()

    def show_about(self) -> None:
        """Show the lines about the row under the cursor below the table."""
        if self.shown is None or self.rows is None:
            return
        view, width, row = self.shown, self.inner, self.row
        title = self.table_title(view, self.rows)
        lines = self.about(view, row, width) if row is not None else self.instead(view)
        room = max(0, self.room - self.frame - len(self._notes))
        if row is None:
            self.panel("#table", "", 0)
            self.panel("#about", title, room, lines)
            return
        room -= self.frame if lines else 0
        free = room - HEADER - len(self.rows.keys)
        most = max(0, min(self.ABOUT_LINES, max(room // 3, free)))
        if len(lines) > most > 0:
            lines = [*lines[: most - 1], more_line(len(lines) - most + 1)]
        self.panel("#about", "", min(len(lines), most), lines)
        self.panel("#table", title, max(2, room - min(len(lines), most)))

    @on(Sheet.Moved)
    def _moved(self) -> None:
        self.show_about()
