"""A value over time: a plot, or one line of blocks on terminals without UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical

from ospltool.views.cells import ASCII, UNICODE, Glyphs, Line, Span, Tone
from tui.widgets.lines import Lines

if TYPE_CHECKING:
    from textual_plot import PlotWidget

    from ospltool.live.series import Point

LEAST_HEIGHT = 10
"""With fewer lines a plot shows nothing that figures do not show better."""


class Curve(Vertical, can_focus=False):
    """Points over the seconds before now, with a title that says the newest value."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._shown: tuple[object, ...] = ()

    @property
    def _glyphs(self) -> Glyphs:
        glyphs: Glyphs = getattr(self.app, "signs", UNICODE)
        return glyphs

    def compose(self) -> ComposeResult:
        """Title, and plot or blocks."""
        yield Lines(classes="curve-title")
        if self._glyphs is ASCII:
            yield Lines(classes="curve-blocks")
            return
        from textual_plot import PlotWidget  # it brings numpy: 0.1 s that only who looks at a plot waits

        plot = PlotWidget(allow_pan_and_zoom=False)
        plot.can_focus = False
        yield plot

    def show(self, title: str, points: Sequence[Point], now_ns: int) -> None:
        """Show these points under a title; nothing is drawn again when nothing moved."""
        second = now_ns // 1_000_000_000
        if not self.is_mounted or self._shown == (title, second, len(points)):
            return
        self._shown = (title, second, len(points))
        self.query_one(".curve-title", Lines).show([(Span(f" {title}", Tone.DIM),)])
        if self._glyphs is ASCII:
            blocks = self.query_one(".curve-blocks", Lines)
            blocks.show([spark_line([value for _, value in points], self.size.width, self._glyphs)])
            return
        from textual_plot import HiResMode, PlotWidget

        plot = self.query_one(PlotWidget)
        if not plot.children:  # not composed yet: next time
            self.forget()
            return
        plot.margin_left = 8
        plot.margin_bottom = 3
        plot.set_xlabel("seconds before now")
        plot.margin_top = 0
        plot.clear()
        plot.visible = bool(points)  # else the title says it all
        if plot.visible:
            self._draw(plot, points, now_ns, HiResMode.BRAILLE)
        plot.refresh()

    def _draw(self, plot: PlotWidget, points: Sequence[Point], now_ns: int, mode: object) -> None:
        from textual_plot import HiResMode

        assert isinstance(mode, HiResMode)
        xs = [(time_ns - now_ns) / 1e9 for time_ns, _ in points]
        ys = [value for _, value in points]
        colour = self.query_one(".curve-title", Lines).style_of(Tone.ACCENT).color
        style = colour.name if colour is not None else "default"
        plot.plot(xs, ys, line_style=style, hires_mode=mode)
        plot.set_xlimits(min(xs[0], -10.0), 0.0)
        plot.set_ylimits(0.0, max(1.0, 1.1 * max(ys)))

    def forget(self) -> None:
        """Draw again next time: the theme or the size changed."""
        self._shown = ()

    def on_resize(self) -> None:
        """Another size needs another drawing."""
        self.forget()


def spark_line(values: Sequence[float], width: int, glyphs: Glyphs) -> Line:
    """Return the newest values as blocks of eight heights, scaled to the largest."""
    newest = list(values)[-max(1, width - 2) :]
    most = max(newest, default=0.0)
    if most <= 0:
        return (Span(" " + glyphs.blocks[0] * len(newest), Tone.DIM),)
    top = len(glyphs.blocks) - 1
    return (Span(" " + "".join(glyphs.blocks[round(max(0.0, value) / most * top)] for value in newest)),)
