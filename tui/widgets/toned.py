"""Drawing spans in the tones of the theme."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.cells import Line, Tone
from tui.glyphs import UNICODE, Glyphs


class Toned(Widget):
    """A widget that draws lines of spans. Text is drawn as it is: no markup is ever interpreted."""

    COMPONENT_CLASSES = {f"tone--{tone}" for tone in Tone}

    @property
    def glyphs(self) -> Glyphs:
        """The signs of the console."""
        return getattr(self.app, "signs", UNICODE)

    def tone(self, tone: Tone) -> Style:
        """How the theme writes this tone, on this widget's background."""
        return self.get_component_rich_style(f"tone--{tone}")

    def strip(self, line: Line, overlay: Style | None = None) -> Strip:
        """The line as Textual draws it; `overlay` is laid over every span."""
        segments = []
        for span in line:
            style = self.tone(span.tone)
            segments.append(Segment(span.text, style + overlay if overlay else style))
        return Strip(segments)
