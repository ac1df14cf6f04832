"""The screen of one name-space."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from ospltool.output.text import plural
from ospltool.views.cells import Rows, table_title
from ospltool.views.name_space import (
    definition_lines,
    history_lines,
    holders,
    master_lines,
    subject_name_space,
    trouble_lines,
)
from ospltool.views.overview import hour_lines, hour_title
from ospltool.views.view import (
    Subject,
    View,
)
from tui import panels
from tui.screens.base import OpsScreen, neighbour_keys
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

MOST_HOUR: Final = 5
"""Lines for masters over time: roles, marks, and times of day."""
LEAST_HISTORY: Final = 4


class NameSpaceScreen(OpsScreen):
    """A name-space: definitions of the nodes, present masters with reasons, and former masters."""

    BINDINGS: ClassVar[list[BindingType]] = neighbour_keys("name-space")
    NAME = "name-space"
    TITLE_OF_SCREEN = "name-space"
    FILTER_FIELDS = ("node", "role", "state")

    def __init__(self) -> None:
        super().__init__()
        self._space = ""
        self._rows: Rows[Any] | None = None

    @property
    def named(self) -> str:
        """The name-space."""
        return self._space

    def body(self) -> ComposeResult:
        """Yield definition, masters, nodes, trouble and history."""
        yield Lines(id="definition", classes="free")
        yield Lines(id="masters", classes="free")
        yield Sheet(id="nodes", classes="panel")
        yield Lines(id="trouble", classes="panel")
        yield Lines(id="hour", classes="panel")
        yield Lines(id="history", classes="panel")
        yield Lines(id="told", classes="panel")

    def show(self, view: View) -> None:
        """Fill all parts and share the height."""
        width = self.inner
        name = self._space = subject_name_space(view)
        self.heading = f"name-space {name}" if name else "name-space"
        rows = self._rows = holders(view, name, width)
        masters = master_lines(view, name)
        trouble = trouble_lines(view, name, view.health.open)
        history = history_lines(view, name)
        nothing = panels.nothing_lines(view, "name-spaces")
        definition = definition_lines(view, name) if name else nothing
        room = self.room
        definition, masters = definition[: max(1, room // 5)], masters[: max(1, room // 5)]
        title = table_title([plural(len(rows.keys), "node")], rows.hidden)
        self.fill("#definition", definition)
        self.fill("#masters", masters)
        frame = self.frame
        left = max(0, room - len(definition) - len(masters) - frame)
        for_trouble = min(len(trouble), max(0, left // 4 - frame)) if trouble else 0
        left -= for_trouble + frame if for_trouble else 0
        for_nodes = min(len(rows.keys) + 1, max(2, left - 3))
        self.query_one("#nodes", Sheet).show(rows)
        self.panel("#nodes", title, for_nodes if name else 0)
        self.panel("#trouble", panels.counted("attention", trouble, for_trouble), for_trouble, trouble)
        rest = max(0, left - for_nodes - frame) if name else 0
        hour = hour_lines(view, width, MOST_HOUR, name) if rest >= MOST_HOUR + frame + LEAST_HISTORY else []
        self.panel("#hour", hour_title(view, name), len(hour), hour)
        rest -= len(hour) + frame if hour else 0
        for_history = min(len(history), rest if rest <= LEAST_HISTORY else max(LEAST_HISTORY, rest // 2))
        self.panel("#history", panels.counted("masters", history, for_history), for_history, history)
        self.show_events(view, lambda event: f"'{name}'" in event.text, rest - for_history)

    def here(self) -> Subject:
        """Return the node under the cursor, with this name-space."""
        return Subject(self.query_one("#nodes", Sheet).row_key, self._space)

    def action_neighbour(self, step: int) -> None:
        """Show the next name-space, or the one before."""
        names = self.console.model.name_space_names()
        if self._space in names:
            name = names[(names.index(self._space) + step) % len(names)]
            self.console.look_at(Subject(self.console.subject.node, name))

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
