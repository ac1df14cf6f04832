"""The keys of a screen, made from its bindings, the signs, and the commands."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input

from ospltool.views.cells import Glyphs, Line, Span, Tone, plain
from tui.widgets.bottom import Entry
from tui.widgets.lines import Lines

# Fits into a terminal of 80 with the frame.
WIDTH = 72
GROUPS: Final = ("screens", "moving", "what is under the cursor, and the system", "this screen")
"""Digits choose a screen, letters act, and punctuation is for what is shown."""


class HelpScreen(ModalScreen[None]):
    """Every key that works on the screen below, what the signs mean, and the commands; scrolls.

    The title is that of the screen below.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "close", "close", show=False),
        Binding("1", "home", "overview", show=False),
        Binding("slash", "search", "search", show=False),
    ]

    def __init__(
        self, keys: list[tuple[str, str]], commands: list[tuple[str, str]], glyphs: Glyphs, title: str
    ) -> None:
        super().__init__()
        self._keys = keys
        self._commands = commands
        self._glyphs = glyphs
        self._title = title

    def compose(self) -> ComposeResult:
        """Return one block of text that scrolls when it is higher than the screen."""
        with VerticalScroll():
            yield Entry("words that must be in a line; escape shows all again", id="search")
            yield Lines()

    def on_mount(self) -> None:
        """Fit the height to the text."""
        self._fill("")
        self.query_one(VerticalScroll).focus()

    def _fill(self, wanted: str) -> None:
        """Show all, or the lines that have these words."""
        lines = [
            *key_lines(self._keys, self._title),
            *sign_lines(self._glyphs),
            *command_lines(self._commands),
        ]
        words = wanted.casefold().split()
        if words:
            lines = [line for line in lines if all(word in plain(line).casefold() for word in words)]
            lines = lines or [(Span("no key and no command has these words", Tone.DIM),)]
        widget = self.query_one(Lines)
        widget.styles.height = len(lines)
        widget.show(lines)

    def action_search(self) -> None:
        """Open the line to search in."""
        self.query_one(Entry).open()

    @on(Input.Changed, "#search")
    def _searched(self, event: Input.Changed) -> None:
        self._fill(event.value)

    @on(Entry.Shut)
    def _shut(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_home(self) -> None:
        """Close, and show the overview."""
        self.dismiss()
        self.app.call_later(self.app.run_action, "screen('overview')")

    def action_close(self) -> None:
        """Return to the screen below."""
        self.dismiss()


def group_of(key: str, meaning: str) -> str:
    """Return the group of a key, by the rule of the console."""
    first = key.split()[0]
    if first.isdigit():
        return GROUPS[0]
    if meaning.startswith(("row", "column", "page", "first", "last", "focus")):
        return GROUPS[1]
    return GROUPS[2] if (first.isalpha() and len(first) == 1) or first == "⏎" else GROUPS[3]


def key_lines(keys: list[tuple[str, str]], title: str) -> list[Line]:
    """Return the keys by group, in two columns."""
    lines: list[Line] = [(Span(f"keys of the {title} screen", Tone.STRONG), Span("   / searches", Tone.DIM))]
    longest = max((len(key) for key, _ in keys), default=0)
    widest = max((len(meaning) for _, meaning in keys), default=0)
    for group in GROUPS:
        found = [one for one in keys if group_of(*one) == group]
        half = (len(found) + 1) // 2
        lines += [(), (Span(group, Tone.STRONG),)] if found else []
        for index in range(half):
            row: Line = ()
            for key, meaning in found[index::half]:
                row = (*row, Span(f"{key:>{longest}}  ", Tone.ACCENT), Span(f"{meaning:<{widest}}  "))
            lines.append(row)
    return lines


def sign_lines(glyphs: Glyphs) -> list[Line]:
    """Return the meanings of the signs, in two columns."""
    signs = [
        (glyphs.master, "master"),
        (glyphs.unconfirmed, "master, unconfirmed"),
        (glyphs.busy, "aligning, or starting"),
        (glyphs.idle, "not complete"),
        (glyphs.warn, "needs a look"),
        (glyphs.fault, "needs action"),
        (glyphs.conflict, "facts that contradict"),
        (glyphs.nothing, "not on this node"),
    ]
    lines: list[Line] = [(), (Span("signs", Tone.STRONG),), ()]
    for left, right in zip(signs[::2], signs[1::2], strict=True):
        lines.append(tuple(Span(f"{sign:>10}  {meaning:<22}") for sign, meaning in (left, right)))
    return lines


def command_lines(commands: list[tuple[str, str]]) -> list[Line]:
    """Return the commands of the `:` line, one below the other."""
    lines: list[Line] = [(), (Span("commands, after : or with ctrl+p", Tone.STRONG),), ()]
    lines += [(Span(f" {usage:<22} ", Tone.ACCENT), Span(meaning)) for usage, meaning in commands]
    return lines
