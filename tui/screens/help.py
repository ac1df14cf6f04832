"""The keys of a screen, made from its bindings, the signs, and the commands."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from ospltool.views.cells import Glyphs, Line, Span, Tone
from tui.widgets.lines import Lines

# Fits into a terminal of 80 with the frame.
WIDTH = 72


class HelpScreen(ModalScreen[None]):
    """Every key that works on the screen below, what the signs mean, and the commands; scrolls.

    The title is that of the screen below.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "close", "close", show=False),
        Binding("1", "home", "overview", show=False),
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
            yield Lines()

    def on_mount(self) -> None:
        """Fit the height to the text."""
        lines = [
            *key_lines(self._keys, self._title),
            *sign_lines(self._glyphs),
            *command_lines(self._commands),
        ]
        widget = self.query_one(Lines)
        widget.styles.height = len(lines)
        widget.show(lines)
        self.query_one(VerticalScroll).focus()

    def action_home(self) -> None:
        """Close, and show the overview."""
        self.dismiss()
        self.app.call_later(self.app.run_action, "screen('overview')")

    def action_close(self) -> None:
        """Return to the screen below."""
        self.dismiss()


def key_lines(keys: list[tuple[str, str]], title: str) -> list[Line]:
    """Return the keys in two columns."""
    lines: list[Line] = [(Span(f"keys of the {title} screen", Tone.STRONG),), ()]
    half = (len(keys) + 1) // 2
    longest = max((len(key) for key, _ in keys), default=0)
    widest = max((len(meaning) for _, meaning in keys[:half]), default=0)
    for index in range(half):
        row: Line = ()
        for key, meaning in keys[index::half]:
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
