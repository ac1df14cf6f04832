"""Lines to type in, at the bottom of a screen: the filter and the command line."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input


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

    def __init__(self) -> None:
        super().__init__("a command, the right arrow completes it; :help lists them", id="command")

    def suggest(self, commands: list[str]) -> None:
        """Offer these to be completed with the right arrow."""
        self.suggester = SuggestFromList(commands, case_sensitive=False)
