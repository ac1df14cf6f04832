"""What every screen of the console has: a header, perhaps a caption, a filter line and a footer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Input

from tui.filters import Filter
from tui.viewmodel import panels
from tui.viewmodel.base import Status, View
from tui.widgets.lines import Lines


class FilterLine(Input):
    """The line in which a filter is typed; it takes effect with every key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "clear filter", show=False),
    ]

    def action_give_up(self) -> None:
        """Empty the filter and close the line."""
        self.value = ""
        self.display = False
        if isinstance(self.screen, OpsScreen):
            self.screen.focus_body()
            self.screen.refresh_now()


class OpsScreen(Screen[None]):
    """A screen that shows views. Subclasses compose their body and fill it in `show`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "clear", "clear filter", show=False),
    ]
    TITLE_OF_SCREEN: ClassVar[str] = ""
    FILTER_FIELDS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.filter = Filter()
        self.last: tuple[View, Status] | None = None
        self.caption_height = 0

    def compose(self) -> ComposeResult:
        """Header and caption above, filter and footer below."""
        yield Lines(id="header")
        yield Lines(id="caption")
        yield from self.body()
        hint = "words that must match; !word must not"
        filter_line = FilterLine(placeholder=hint, select_on_focus=False, id="filter")
        filter_line.cursor_blink = False
        filter_line.display = False
        yield filter_line
        yield Footer(show_command_palette=False)

    def body(self) -> ComposeResult:
        """What this screen is about."""
        yield from ()

    def show(self, view: View) -> None:
        """Fill the body. Called at most four times a second."""

    def update(self, view: View, status: Status) -> None:
        """Show the system as it is in `view`, with this screen's filter."""
        if not self.is_mounted:
            return
        self.last = view, status
        view = dataclasses.replace(view, filter=self.filter)
        width = self.size.width
        header = self.query_one("#header", Lines)
        header.set_class(status.paused, "-paused")
        header.show([panels.header(view, status, self.TITLE_OF_SCREEN, width)])
        caption = self.query_one("#caption", Lines)
        lines = panels.caption_lines(view, width)
        self.caption_height = len(lines)
        set_height(caption, len(lines))
        caption.show(lines)
        self.show(view)

    @property
    def filter_height(self) -> int:
        """Lines that the filter takes now."""
        return int(self.query_one(FilterLine).display)

    def refresh_now(self) -> None:
        """Show again what was shown last: the filter, the size or the cursor changed."""
        if self.last is not None:
            self.update(*self.last)

    def on_resize(self) -> None:
        """Another size needs another layout."""
        self.refresh_now()

    def on_screen_resume(self) -> None:
        """What came while another screen was shown."""
        self.refresh_now()

    def action_filter(self) -> None:
        """Open the filter line. The focus moves at once, so that nothing typed after it is lost."""
        line = self.query_one(FilterLine)
        line.display = True
        self.set_focus(line)
        self.refresh_now()

    def action_clear(self) -> None:
        """Take the filter away."""
        self.query_one(FilterLine).action_give_up()

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        self.filter = Filter.parse(event.value, self.FILTER_FIELDS)
        self.refresh_now()

    @on(Input.Submitted, "#filter")
    def _filter_done(self, _event: Input.Submitted) -> None:
        line = self.query_one(FilterLine)
        line.display = bool(self.filter)
        self.focus_body()

    def focus_body(self) -> None:
        """Put the focus where the keys of the screen work."""
        self.set_focus(None)


def set_height(widget: Lines, lines: int) -> None:
    """Give the widget this many lines; without any it takes no room."""
    if widget.display != bool(lines):
        widget.display = bool(lines)
    height = widget.styles.height
    if lines and (height is None or height.value != lines):
        widget.styles.height = lines
