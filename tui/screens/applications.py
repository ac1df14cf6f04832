"""The screens of all applications and of one: what becomes of what they write, and what they are given."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import BindingType

from ospltool.output.text import plural
from ospltool.views.applications import (
    APPLICATION_FIELDS,
    USE_FIELDS,
    ApplicationUses,
    Use,
    applications,
    by_application,
    lacking_lines,
    unknown_lines,
    use_rows,
    use_title,
)
from ospltool.views.cells import Line, Rows, table_title
from ospltool.views.view import Subject, View
from tui import panels
from tui.screens.base import TableScreen, neighbour_keys
from tui.widgets.sheet import Sheet


class ApplicationsScreen(TableScreen):
    """Every process with readers or writers."""

    NAME = "applications"
    TITLE_OF_SCREEN = "applications"
    FILTER_FIELDS = APPLICATION_FIELDS

    def table(self, view: View, width: int) -> Rows[ApplicationUses]:
        """Return the applications."""
        return applications(view, width)

    def table_title(self, view: View, rows: Rows[ApplicationUses]) -> str:
        """Return the title of the table."""
        return table_title([plural(len(rows.keys), "application")], rows.hidden)

    def about(self, view: View, row: ApplicationUses, width: int) -> list[Line]:
        """Return what it lacks, and why."""
        return [*lacking_lines(row.uses, width), *unknown_lines(view)]

    def instead(self, view: View) -> list[Line]:
        """Return the lines below an empty table."""
        return [*panels.nothing_lines(view, "applications"), *unknown_lines(view)]

    def here(self) -> Subject:
        """Return the application under the cursor."""
        if self.row is None:
            return super().here()
        subject = self.console.subject
        return Subject(subject.node, subject.name_space, application=self.row.application.key)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("application")


class ApplicationScreen(TableScreen):
    """The readers and writers of one process."""

    BINDINGS: ClassVar[list[BindingType]] = neighbour_keys("application")
    NAME = "application"
    TITLE_OF_SCREEN = "application"
    FILTER_FIELDS = USE_FIELDS

    def __init__(self) -> None:
        super().__init__()
        self._shown: ApplicationUses | None = None

    @property
    def named(self) -> str:
        """The process."""
        return self._shown.application.key if self._shown else ""

    def table(self, view: View, width: int) -> Rows[Use]:
        """Return its readers and writers."""
        every = by_application(view)
        wanted = view.subject.application
        found = (one for one in every if wanted in ("", one.application.key))
        self._shown = next(found, None)
        self.heading = f"application {self._shown.application.title}" if self._shown else "application"
        return use_rows(view, self._shown.uses if self._shown else (), width, has_topic=True)

    def table_title(self, view: View, rows: Rows[Use]) -> str:
        """Return the title of the table."""
        if self._shown is None:
            return "no application" if not view.subject.application else "this application has left"
        title = f"{self._shown.application.place}: {use_title(self._shown.uses)}"
        return table_title([title], rows.hidden)

    def about(self, view: View, row: Use, width: int) -> list[Line]:
        """Return why the reader or writer under the cursor lacks something."""
        return [*lacking_lines([row], width), *unknown_lines(view)]

    def here(self) -> Subject:
        """Return the topic under the cursor, with the first node that keeps or serves it."""
        subject = self.console.subject
        key = self._shown.application.key if self._shown else subject.application
        if self.row is None:
            return Subject(subject.node, subject.name_space, application=key)
        nodes = self.console.model.ordered_nodes()
        node = next((one.id for one in nodes if one.snapshot.name in self.row.nodes), subject.node)
        return Subject(node, subject.name_space, topic=self.row.topic, application=key)

    def action_neighbour(self, step: int) -> None:
        """Show the next application, or the one before."""
        keys = sorted(one.application.key for one in by_application(self.console.view()))
        if self._shown and self._shown.application.key in keys:
            key = keys[(keys.index(self._shown.application.key) + step) % len(keys)]
            self.console.look_at(Subject(self.console.subject.node, application=key))

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("topic")
