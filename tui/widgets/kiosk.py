"""The figures above the screens of a console on a wall, to be read from across the room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Digits

from ospltool.views.view import Subject, View

STALE_NS: Final = 10_000_000_000
"""Time without a word of any node after which what is shown counts as old."""
ROTATE_S: Final = 15.0
"""Time for which each page is shown, long enough to read its lines."""
MOST_PAGES: Final = 8
"""Name-spaces that have a page of their own."""
FIGURES: Final = {
    "errors": "errors",
    "warnings": "warnings",
    "nodes": "nodes complete : all",
    "heard": "seconds since a node was heard",
}
"""The title of each figure by its name."""


def heard_ns(view: View) -> int:
    """Return when a node was heard last; without any, when the watch began."""
    return max((node.heard_ns for node in view.model.nodes.values()), default=view.model.began_ns)


def is_stale(view: View) -> bool:
    """Return whether nobody has said anything for so long that what is shown may be wrong."""
    return view.now_ns - heard_ns(view) >= STALE_NS


def pages(view: View) -> list[tuple[str, Subject]]:
    """Return the pages to show in turn: the overview, the worst incident, alignments, and name-spaces."""
    found = [("overview", Subject())]
    found += [("incident", Subject(incident=one.key)) for one in view.health.open[:1]]
    if any(node.aligning for node in view.model.nodes.values()):
        found.append(("alignment", Subject()))
    names = view.model.name_space_names()[:MOST_PAGES]
    return found + [("name-space", Subject(name_space=name)) for name in names]


class Kiosk(Horizontal, can_focus=False):
    """The numbers of errors, warnings and complete nodes, and how long ago a node was heard."""

    def compose(self) -> ComposeResult:
        """Yield a panel for each figure."""
        for name, title in FIGURES.items():
            figure = Digits(id=name, classes="panel")
            figure.border_title = Content(title)
            yield figure

    def show(self, view: View) -> None:
        """Show the figures; a tone for those that are not 0."""
        verdict, nodes = view.health.verdict, view.model.nodes.values()
        complete = sum(not view.is_stale(node) and node.is_settled for node in nodes)
        awaited = view.health.unheard.values()
        every = len(nodes) + sum(not (report and report.in_order) for report in awaited)
        old_s = max(0, view.now_ns - heard_ns(view)) // 1_000_000_000
        figures: Mapping[str, tuple[str, str]] = {
            "errors": (str(verdict.errors), "-fault" if verdict.errors else ""),
            "warnings": (str(verdict.warnings), "-warn" if verdict.warnings else ""),
            "nodes": (f"{complete}:{every}", "" if complete == every else "-warn"),
            "heard": (str(old_s), "-fault" if is_stale(view) else ""),
        }
        for name, (figure, tone) in figures.items():
            widget = self.query_one(f"#{name}", Digits)
            widget.update(figure)
            widget.set_classes(f"panel {tone}")
