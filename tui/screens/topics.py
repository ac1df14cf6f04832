"""The screens of all topics and of one: what nodes hold, who writes and reads it, and its newest values."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ospltool.live.topics import InstanceValue
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.applications import (
    USE_FIELDS,
    Use,
    lacking_lines,
    unknown_lines,
    use_rows,
    use_title,
    uses,
)
from ospltool.views.cells import Line, Rows, Span, Tone, table_title
from ospltool.views.topics import (
    TOPIC_FIELDS,
    VALUE_FIELDS,
    TopicUses,
    by_topic,
    samples_held,
    topic_lines,
    topic_names,
    topics,
    value_lines,
    value_rows,
)
from ospltool.views.view import Subject, View
from tui import panels
from tui.screens.base import OpsScreen, TableScreen, neighbour_keys, share
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

if TYPE_CHECKING:
    from ospltool.live.samples import LatestValues

# A late joiner is given all samples: of more, each key that opens the page would load the nodes.
MOST_READ: Final = 100_000
"""Samples of a topic whose values are read."""
MOST_WHOLE: Final = 6
"""Lines for the value under the cursor in full."""


class TopicsScreen(TableScreen):
    """Every topic: what the nodes hold of it, and who writes and reads it."""

    NAME = "topics"
    TITLE_OF_SCREEN = "topics"
    FILTER_FIELDS = TOPIC_FIELDS
    # Chosen by eye, as in the other screens.
    ABOUT_LINES: ClassVar[int] = 12

    def table(self, view: View, width: int) -> Rows[TopicUses]:
        """Return the topics."""
        return topics(view, width)

    def table_title(self, view: View, rows: Rows[TopicUses]) -> str:
        """Return the title of the table."""
        return table_title([plural(len(rows.keys), "topic")], rows.hidden)

    def about(self, view: View, row: TopicUses, width: int) -> list[Line]:
        """Return the groups on each node, and who lacks something."""
        lacking = [
            (Span(f" {one.application.title}: {one.why or one.state}", Tone.WARN),) for one in row.lacking
        ]
        return [*lacking, *topic_lines(view, row.name), *unknown_lines(view)]

    def here(self) -> Subject:
        """Return the topic under the cursor, with its first name-space."""
        if self.row is None:
            return super().here()
        space = next((key.name_space for key in self.row.groups), self.console.subject.name_space)
        return Subject(self.console.subject.node, space, topic=self.row.name)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("topic")


class TopicScreen(OpsScreen):
    """One topic: its groups, its readers and writers, and, on demand, its newest values."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *neighbour_keys("topic"),
        Binding("v", "values", "values"),
    ]
    NAME = "topic"
    TITLE_OF_SCREEN = "topic"
    FILTER_FIELDS = (*USE_FIELDS, *VALUE_FIELDS)

    def __init__(self) -> None:
        super().__init__()
        self._topic = ""
        self._uses: Rows[Use] | None = None
        self._values: Rows[InstanceValue] | None = None
        self._reader: LatestValues | None = None

    @property
    def named(self) -> str:
        """The topic."""
        return self._topic

    def body(self) -> ComposeResult:
        """Yield what nodes hold, readers and writers, values, and the one under the cursor."""
        yield Lines(id="groups", classes="free")
        yield Sheet(id="uses", classes="panel")
        yield Sheet(id="values", classes="panel")
        yield Lines(id="whole", classes="panel")
        yield Lines(id="hint", classes="free")

    def show(self, view: View) -> None:
        """Fill all parts and share the height."""
        width = self.inner
        topic = view.subject.topic or next((one.name for one in by_topic(view)), "")
        if self._reader is not None and self._reader.topic != topic:
            self._end_reading()
        self._topic = topic
        self.heading = f"topic {topic}" if topic else "topic"
        groups = topic_lines(view, topic) if topic else panels.nothing_lines(view, "topics")
        groups = groups[: max(1, self.room // 4)]
        hint = [*unknown_lines(view), *self._hint()] if topic else []
        self.fill("#groups", groups)
        self.fill("#hint", hint)
        used = uses(view, topic) if topic else []
        rows = self._uses = use_rows(view, used, width)
        values = self._reader.values() if self._reader is not None else []
        shown = self._values = value_rows(view, values, width)
        title, whole = self._under_cursor(width)
        room = self.room - len(groups) - len(hint) - self.frame
        room -= self.frame if self._reader is not None else 0
        room -= len(whole) + self.frame if whole else 0
        wanted = [len(rows.keys) + 1] if topic else [0]
        wanted += [max(2, len(shown.keys) + 1)] if self._reader is not None else []
        heights = share(wanted, max(0, room))
        self.query_one("#uses", Sheet).show(rows)
        self.panel("#uses", table_title([use_title(used)], rows.hidden), heights[0])
        table = self.query_one("#values", Sheet)
        table.show(shown)
        if shown.keys and not table.is_touched:  # the first values came in any order
            table.go_to(shown.keys[0])
        left_out = self._reader.left_out if self._reader is not None else 0
        parts = [
            f"newest values of {plural(len(shown.keys), 'instance')}",
            f"{plural(left_out, 'sample')} of others left out" if left_out else "",
        ]
        self.panel("#values", table_title(parts, shown.hidden), sum(heights[1:]))
        self.panel("#whole", title, len(whole), whole)

    def _hint(self) -> list[Line]:
        """Return what there is to say of values: how to see them, or why there are none."""
        if self._reader is None:
            return [(Span(" v reads the newest value of each instance, as a late joiner does", Tone.DIM),)]
        if self._reader.problem:
            return [(Span(f" values: {self._reader.problem}", Tone.WARN),)]
        return []

    def _under_cursor(self, width: int) -> tuple[str, list[Line]]:
        """Return the value under the cursor in full, or why a reader or writer lacks something."""
        table = self.focused
        if isinstance(table, Sheet) and table.id == "values" and self._values is not None:
            value = self._values.item(table.row)
            return "value", value_lines(value, width, MOST_WHOLE) if value is not None else []
        use = self._uses.item(self.query_one("#uses", Sheet).row) if self._uses is not None else None
        return "why", lacking_lines([use], width) if use is not None else []

    @on(Sheet.Moved)
    def _moved(self) -> None:
        self.refresh_now()

    def action_values(self) -> None:
        """Read the newest values, or stop."""
        if self._reader is not None:
            self._end_reading()
            self.refresh_now()
            return
        # Only a console that watches a live domain has DDS, which takes long to import.
        from ospltool.live.samples import latest_values

        held = samples_held(self.console.view(), self._topic)
        if held > MOST_READ:
            told = f"{text.count(held)} samples are too many to read here"
            self.console.show_message(f"{told}: `ospltool cat {self._topic}` prints them")
        elif self._topic:
            self._reader = latest_values(self.console.feed, self._topic)
            if self._reader is None:
                self.console.show_message("values are read from a live domain only")
            self.refresh_now()

    def _end_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def on_screen_suspend(self, _event: events.ScreenSuspend) -> None:
        """Stop reading once another screen is shown; help and questions are in front of this one only."""
        if isinstance(self.app.screen, OpsScreen):
            self._end_reading()

    def on_unmount(self) -> None:
        """Stop reading with the console."""
        self._end_reading()

    def here(self) -> Subject:
        """Return this topic, with the application under the cursor."""
        table, subject = self.query_one("#uses", Sheet), self.console.subject
        one = self._uses.item(table.row) if self._uses and self.focused is table else None
        application = one.application.key if one else subject.application
        return Subject(subject.node, subject.name_space, topic=self._topic, application=application)

    def action_neighbour(self, step: int) -> None:
        """Show the next topic, or the one before."""
        names = topic_names(self.console.view())
        if self._topic in names:
            name = names[(names.index(self._topic) + step) % len(names)]
            self.console.look_at(Subject(self.console.subject.node, topic=name))

    @on(Sheet.Chosen, "#uses")
    def _chosen(self) -> None:
        self.action_jump("application")
