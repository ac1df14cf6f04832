"""A fixed number of lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip

from tui.cells import Line, fit_line
from tui.widgets.toned import Toned


class Lines(Toned):
    """Shows lines of spans, cut at the right edge; only lines that changed are drawn again."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []

    @property
    def lines(self) -> Sequence[Line]:
        """What is shown."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines instead."""
        old, self._lines = self._lines, list(lines)
        for y in range(max(len(old), len(self._lines))):
            before = old[y] if y < len(old) else ()
            after = self._lines[y] if y < len(self._lines) else ()
            if before != after:
                self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Return one line, filled up to the width."""
        line = self._lines[y] if y < len(self._lines) else ()
        return self.strip(fit_line(line, self.size.width, glyphs=self.glyphs))
