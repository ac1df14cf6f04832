"""The systems that a console watches: one domain mostly, all domains of a fleet where it has several."""

from __future__ import annotations

from collections.abc import Sequence

from ospltool.health.system import Source, System
from tui.viewmodel.base import Elsewhere


class Systems:
    """All that are watched, of which one is shown: `shown`.

    Args:
        sources: of all of them, one at least; the first is shown.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.all = tuple(map(System, sources))
        self.shown = self.all[0]

    @property
    def elsewhere(self) -> tuple[Elsewhere, ...]:
        """State of the systems that are not shown."""
        return tuple(
            Elsewhere(one.feed.title, one.health.verdict) for one in self.all if one is not self.shown
        )

    def turn(self, steps: int) -> None:
        """Show the next one, or the one before; after the last comes the first."""
        self.shown = self.all[(self.all.index(self.shown) + steps) % len(self.all)]

    def show(self, title: str) -> bool:
        """Show the one with this title, or with this number of a domain; False when there is none."""
        found = [one for one in self.all if title in (one.feed.title, one.feed.title.rpartition(" ")[2])]
        if found:
            self.shown = found[0]
        return bool(found)
