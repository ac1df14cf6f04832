"""The last lines of a screen: those to type a filter or command in, and the keys."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.suggester import SuggestFromList
from textual.widgets import Input

from ospltool.views.cells import Line, Span, Tone
from tui.widgets.lines import Lines


class Entry(Input):
    """A line to type in that is there only while it is needed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "shut", "give up", show=False),
    ]

    class Shut(Message):
        """The line went away."""

    class Opened(Message):
        """The line came up."""

    def __init__(self, hint: str, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(placeholder=hint, select_on_focus=False, id=id)
        self.cursor_blink = False
        self.display = False
        self.styles.height = 1

    def open(self, text: str | None = None) -> None:
        """Come up and take the keys at once, so that nothing typed next is lost."""
        if text is not None:
            self.value = text
            self.cursor_position = len(text)
        self.display = True
        self.screen.set_focus(self)
        self.post_message(self.Opened())

    def shut(self) -> None:
        """Forget what was typed and go away."""
        self.value = ""
        self.display = False
        self.post_message(self.Shut())

    def action_shut(self) -> None:
        """Escape was pressed."""
        self.shut()


class FilterLine(Entry):
    """The line in which a filter is typed; it takes effect with every key and stays while there is one."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        named = f"; {fields[0]}:word looks in one field" if fields else ""
        super().__init__(f"words that must match; !word must not{named}", id="filter")

    def put(self, text: str) -> None:
        """Filter by this text without taking the keys."""
        self.value = text
        self.display = bool(text)

    async def action_submit(self) -> None:
        """Keep the filter and give the keys back; an empty one goes away."""
        if not self.value.strip():
            self.shut()
        else:
            self.post_message(self.Shut())


class CommandLine(Entry):
    """The line after `:`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+y", "copy_line", "copy as a command", show=False),
    ]

    class CopyWanted(Message):
        """The line is to be copied as one for the shell."""

    def action_copy_line(self) -> None:
        """Ask for the line of the shell that does the same."""
        self.post_message(self.CopyWanted())

    def __init__(self) -> None:
        super().__init__("a command, the right arrow completes it; :help lists them", id="command")

    def suggest(self, commands: list[str]) -> None:
        """Offer these to be completed with the right arrow."""
        self.suggester = SuggestFromList(commands, case_sensitive=False)


# A line of 100 cells.
MOST_KEYS: Final = 8


class KeyBar(Lines):
    """A line with the keys that work now; a click presses one.

    Textual's footer has a widget for each key, which it recreates whenever the focus moves; this is a line of
    text.
    """

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._places: list[tuple[int, str]] = []

    def on_mount(self) -> None:
        """Follow what the screen's keys are."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)
        self._changed(self.screen)

    def on_click(self, event: events.Click) -> None:
        """Press the key under the mouse."""
        pressed = [key for x, key in self._places if x <= event.x]
        if pressed:
            self.app.simulate_key(pressed[-1])

    def _changed(self, screen: Screen[object]) -> None:
        if not self.is_attached or screen is not self.screen:
            return
        bindings = [active.binding for active in screen.active_bindings.values()]
        spans: list[Span] = []
        self._places = []
        x = 1
        for binding in _shown(bindings):
            key = self.app.get_key_display(binding)
            self._places.append((x, binding.key))
            spans += [Span(f" {key}", Tone.ACCENT), Span(f" {binding.description} ", Tone.DIM)]
            x += len(key) + len(binding.description) + 3
        line: Line = tuple(spans)
        self.show([line])


def _shown(bindings: list[Binding]) -> list[Binding]:
    """Those to show, each action once, and no more than a reader takes in."""
    actions: dict[str, Binding] = {}
    for binding in bindings:
        if binding.show and binding.description:
            actions.setdefault(binding.action, binding)
    return list(actions.values())[:MOST_KEYS]
