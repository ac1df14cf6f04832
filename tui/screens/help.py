"""The keys of a screen, made from its bindings."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tui.cells import Line, Span, Tone
from tui.glyphs import Glyphs
from tui.widgets.lines import Lines


class HelpScreen(ModalScreen[None]):
    """Every key that works on the screen below, and what the signs mean."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "close", "close", show=False),
    ]

    def __init__(self, keys: list[tuple[str, str]], glyphs: Glyphs, title: str) -> None:
        super().__init__()
        self._keys = keys
        self._glyphs = glyphs
        self._title = title

    def compose(self) -> ComposeResult:
        """One block of text."""
        yield Lines()

    def on_mount(self) -> None:
        """As high as the text."""
        lines = help_lines(self._keys, self._glyphs, self._title)
        widget = self.query_one(Lines)
        widget.styles.height = len(lines) + 2
        widget.show(lines)

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss()


def help_lines(keys: list[tuple[str, str]], glyphs: Glyphs, title: str) -> list[Line]:
    """Keys in two columns, then the signs."""
    lines: list[Line] = [(Span(f"keys of the {title} screen", Tone.STRONG),), ()]
    half = (len(keys) + 1) // 2
    for index in range(half):
        row: Line = ()
        for key, meaning in keys[index::half]:
            row = (*row, Span(f"{key:>10}  ", Tone.ACCENT), Span(f"{meaning:<22}"))
        lines.append(row)
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
    lines += [(), (Span("signs", Tone.STRONG),), ()]
    for left, right in zip(signs[::2], signs[1::2], strict=True):
        cells = [Span(f"{sign:>10}  {meaning:<22}") for sign, meaning in (left, right)]
        lines.append(tuple(cells))
    return lines
