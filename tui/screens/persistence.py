"""Redundant persistence services."""

from __future__ import annotations

from typing import Any

from textual import on
from textual.app import ComposeResult

from ospltool.live.persistence import WatchedReplica
from tui.cells import Rows
from tui.screens.base import OpsScreen, set_height, share
from tui.viewmodel import panels
from tui.viewmodel import persistence as views
from tui.viewmodel.base import View
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

PARTS = ("replicas", "streams", "subscriptions")


class PersistenceScreen(OpsScreen):
    """Each persistence service, the providers of the one under the cursor, and its durable subscriptions."""

    NAME = "persistence"
    TITLE_OF_SCREEN = "persistence"
    FILTER_FIELDS = views.FIELDS

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Rows[Any]] = {}

    def body(self) -> ComposeResult:
        """Three tables under their titles; below the first, the replica under the cursor."""
        yield Lines(id="replicas-title")
        yield Sheet(id="replicas")
        yield Lines(id="about")
        for part in PARTS[1:]:
            yield Lines(id=f"{part}-title")
            yield Sheet(id=part)

    def show(self, view: View) -> None:
        """Fill all parts and share the height."""
        width = self.size.width
        rows = views.replicas(view, width)
        self._rows = {"replicas": rows}
        self.query_one("#replicas", Sheet).show(rows)
        one = self._replica
        if one is None:
            self._show_none(view)
            return
        about = views.replica_lines(view, one, width)
        titles = {
            "replicas": views.title(view, rows),
        }
        self._rows["streams"] = views.streams(view, one, width)
        titles["streams"] = views.streams_title(one, self._rows["streams"])
        if one.view.subscriptions:
            self._rows["subscriptions"] = views.subscriptions(view, one, width)
            titles["subscriptions"] = views.subscriptions_title(view, one, self._rows["subscriptions"])
        room = max(0, self.room - len(titles))
        most = max(2, room // 3)
        if len(about) > most:
            about = [*about[: most - 1], panels.more_line(len(about) - most + 1)]
        self.fill("#about", about)
        parts = [part for part in PARTS if part in titles]
        wanted = [len(self._rows[part].keys) + bool(self._rows[part].keys) for part in parts]
        heights = dict(zip(parts, share(wanted, room - len(about)), strict=True))
        for part in PARTS:
            lines = [panels.rule_line(view, titles[part], width)] if part in titles else []
            self._show_part(part, lines, heights.get(part, 0))

    def _show_none(self, view: View) -> None:
        width = self.size.width
        title = views.title(view, self._rows["replicas"])
        self.fill("#about", views.none_lines(view, self.console.feed.mode, width))
        for part in PARTS:
            lines = [panels.rule_line(view, title, width)] if part == "replicas" else []
            self._show_part(part, lines, 0)

    def _show_part(self, part: str, title: list[Any], height: int) -> None:
        self.fill(f"#{part}-title", title)
        grid = self.query_one(f"#{part}", Sheet)
        set_height(grid, height)
        if part in self._rows and part != "replicas":
            grid.show(self._rows[part])

    @property
    def _replica(self) -> WatchedReplica | None:
        """The replica under the cursor of the first table."""
        rows: Rows[WatchedReplica] = self._rows["replicas"]
        return rows.item(self.query_one("#replicas", Sheet).row)

    @on(Sheet.Moved, "#replicas")
    def _moved(self) -> None:
        self.refresh_now()

    @on(Sheet.Chosen)
    def _chosen(self, event: Sheet.Chosen) -> None:
        """From a replica to its writers, and from a writer to the replica that gives its samples."""
        if event.sheet.id == "replicas":
            self.set_focus(self.query_one("#streams", Sheet))
        elif event.sheet.id == "streams":
            stream = self._rows["streams"].item(event.sheet.row)
            here = self._replica
            if stream is not None and here is not None:
                self._go_to(here.view.service, stream.view.provider)

    def _go_to(self, service: str, name: str) -> None:
        found = [
            one.id
            for one in self.console.model.persistence.ordered()
            if (one.view.service, one.view.name) == (service, name)
        ]
        grid = self.query_one("#replicas", Sheet)
        if found and found[0] in self._rows["replicas"].keys:
            grid.go_to(found[0])
            self.set_focus(grid)
