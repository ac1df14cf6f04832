"""The most important keys of a screen, on its last line."""

from __future__ import annotations

from typing import Final

from textual import events
from textual.binding import Binding
from textual.screen import Screen

from tui.cells import Line, Span, Tone
from tui.widgets.lines import Lines

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
