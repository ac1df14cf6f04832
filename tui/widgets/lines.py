"""Lines of spans, drawn in the tones of the theme."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ospltool.views.cells import UNICODE, Glyphs, Line, Span, Tone, fit_line


class Toned(Widget):
    """A widget that draws lines of spans. Text is drawn as it is: no markup is ever interpreted."""

    COMPONENT_CLASSES = {f"tone--{tone}" for tone in Tone}

    @functools.cached_property
    def _tone_styles(self) -> dict[tuple[Tone, str], Style]:
        return {}

    @property
    def glyphs(self) -> Glyphs:
        """The signs of the console."""
        return getattr(self.app, "signs", UNICODE)

    def style_of(self, tone: Tone, overlay: str = "") -> Style:
        """How the theme writes this tone here; `overlay` names a component style for its background."""
        key = (tone, overlay)
        style = self._tone_styles.get(key)
        if style is None:
            style = self.get_component_rich_style(f"tone--{tone}")
            if overlay:
                laid = self.get_component_rich_style(overlay)
                style += Style(bgcolor=laid.bgcolor, reverse=laid.reverse)
            self._tone_styles[key] = style
        return style

    def segments(self, line: Iterable[Span], overlay: str = "") -> list[Segment]:
        """Return the line as Textual draws it, with neighbours of one tone as one piece."""
        found: list[Segment] = []
        text, last = "", None
        for span in line:
            if span.tone is last:
                text += span.text
                continue
            if last is not None:
                found.append(Segment(text, self.style_of(last, overlay)))
            text, last = span
        if last is not None:
            found.append(Segment(text, self.style_of(last, overlay)))
        return found

    def strip(self, line: Line) -> Strip:
        """Return the line as Textual draws it."""
        return Strip(self.segments(line))

    def notify_style_update(self) -> None:
        """Draw the widget again after a change of theme or focus."""
        self._tone_styles.clear()
        super().notify_style_update()


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
        pairs = enumerate(itertools.zip_longest(old, self._lines, fillvalue=()))
        changed = [y for y, (before, after) in pairs if before != after]
        if changed:
            width = self.size.width
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return one line, filled up to the width."""
        line = self._lines[y] if y < len(self._lines) else ()
        return self.strip(fit_line(line, self.size.width, glyphs=self.glyphs))
