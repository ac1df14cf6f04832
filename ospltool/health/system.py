"""A watched system: its feed, model and health."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ospltool.health.bookmarks import Bookmarks
from ospltool.health.health import Health
from ospltool.health.own_pauses import OwnPauses
from ospltool.live.feed import Feed, NoticeKind, Update
from ospltool.live.model import SystemModel
from ospltool.live.replay import ReplayFeed

STEP: Final = 10
"""Lines of a recording that are taken in at once."""

Source = tuple[Feed, Callable[[SystemModel], Health]]
"""A feed, and a function that makes the health of its model."""


class System:
    """A watched system.

    Attributes:
        pauses: when the watcher stood still itself; until it hears the nodes again nothing is examined.
    """

    def __init__(self, source: Source) -> None:
        self.feed, watch_health = source
        self.health = watch_health(SystemModel())
        self.pauses = OwnPauses()
        self._bookmarks = Bookmarks(self.health) if isinstance(self.feed, ReplayFeed) else None

    @property
    def model(self) -> SystemModel:
        """The model. Winding a recording back puts another one, and other health, in its place."""
        return self.health.model

    def update(self) -> None:
        """Take in an update of the feed and examine the model."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Do what `update` does, in steps of a few milliseconds."""
        if isinstance(self.feed, ReplayFeed):
            yield from self._replay(self.feed)
            return
        update = self.feed.poll()
        now_ns = self.feed.now_ns()
        is_back = any(one.kind is NoticeKind.WATCH_BACK for one in update.notices)
        if is_back or not self.model.watch_failed:  # the time in which the feed failed is a pause, too
            self.pauses.note_update(self.model, now_ns)
        yield
        yield from self._taking(update, now_ns)
        was_away = self.pauses.is_recent
        if self.model.watch_failed or self.pauses.is_over(self.model):
            if was_away and not self.model.watch_failed:
                self.health.resume(now_ns)
            yield from self._examining(self.health.steps(now_ns))

    def _taking(self, update: Update, moment_ns: int) -> Iterator[None]:
        """Take in an update; what is wrong with it is counted, and ends no watch."""
        try:
            yield from self.model.steps(update, moment_ns)
        except Exception:  # of any class: what was received may be of anybody
            self.model.note_fault(moment_ns)

    def _examining(self, steps: Iterator[None]) -> Iterator[None]:
        """Examine the model; if that fails, the verdict says so, as what it said before may be wrong."""
        try:
            yield from steps
        except Exception as error:  # likewise
            self.health.fail(error)

    def _replay(self, feed: ReplayFeed) -> Iterator[None]:
        """Come to the moment that a recording shows, and examine the model at the moments that it names."""
        assert self._bookmarks is not None
        if feed.must_wind_back():
            self.health = self._bookmarks.health_at(feed.wind_back(iter(self._bookmarks)), self.health)
        for index, played in enumerate(feed.played(), 1):
            if played.update is not None:
                yield from self._taking(played.update, played.moment_ns)
            elif played.is_resumed:
                self.health.resume(played.moment_ns)
            elif played.bookmark is not None:
                self._bookmarks.keep(played.bookmark, self.health)
            else:
                yield from self._examining(self.health.looks(played.moment_ns))
            if index % STEP == 0:
                yield

    def is_settled(self) -> bool:
        """Return whether nobody is awaited any more, and no incident may begin or end by itself."""
        is_lasting = self.health.is_of_one_moment and not self.health.is_waiting
        return is_lasting and not self.awaited and not self.pauses.is_recent

    @property
    def awaited(self) -> list[str]:
        """The nodes that were never heard, have not ended in order, and of which no incident tells."""
        unheard = self.health.unheard.items()
        return [
            name
            for name, report in unheard
            if not (report and report.in_order) and not self.health.tells_of(name)
        ]
