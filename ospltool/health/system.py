"""A watched system: its feed, model and health, pauses of the watch, and what it is wound back to."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ospltool.health.acknowledgements import Acknowledgements
from ospltool.health.codes import SECOND_NS
from ospltool.health.health import Health
from ospltool.health.mutes import Mutes
from ospltool.live.arrival_times import boot_s
from ospltool.live.feed import Feed, NoticeKind, Update
from ospltool.live.model import SystemModel
from ospltool.live.remarks import clock
from ospltool.live.replay import Bookmark, ReplayFeed

_T = TypeVar("_T")

# A watch looks four times a second; a garbage collection or a slow terminal takes a fraction of this.
PAUSE_S: Final = 2.0
"""Time without a look at the system after which the watcher counts as having stood still."""

# Chosen: `health.presence.MEETING_NS`, and some room.
MEETING_S: Final = 3.0
"""Time after a pause in which Cyclone DDS gives what came before, and then may lose and meet all again."""

# Chosen: two snapshots of the slowest, and some room.
HEARING_S: Final = 5.0
"""Time after a pause in which those that were there before are awaited; who is silent then, is silent."""


class OwnPauses:
    """Notices when the watcher itself stood still: it was stopped, starved, or its machine slept.

    Args:
        clock: returns seconds that go on in a pause.
    """

    def __init__(self, clock: Callable[[], float] = boot_s) -> None:
        self._clock = clock
        self._looked_s: float | None = None
        self._resumed_s: float | None = None
        self._awaited: dict[str, int] = {}
        self._untold = ""

    def news(self) -> str:
        """Return a sentence about a pause that was not told yet; empty without one."""
        told, self._untold = self._untold, ""
        return told

    def note_update(self, model: SystemModel, now_ns: int) -> None:
        """Take in that the watcher looks at the system now; call it before each update of the model.

        Args:
            model: the system as it was seen last.
            now_ns: this moment, by the feed's clock.
        """
        before_s, self._looked_s = self._looked_s, self._clock()
        if self._resumed_s is None and before_s is not None and self._looked_s - before_s > PAUSE_S:
            lasted_s, self._resumed_s = self._looked_s - before_s, self._looked_s
            when = f"from {clock(now_ns - round(lasted_s * SECOND_NS))} to {clock(now_ns)} UTC"
            self._untold = (
                f"this watch did not look {when} ({lasted_s:.1f} s); silence in that time does not count"
            )
            self._awaited = {node.id: node.heard_ns for node in model.nodes.values() if not node.gone_ns}

    @property
    def is_recent(self) -> bool:
        """Whether the watcher stood still, and nothing was examined since."""
        return self._resumed_s is not None

    def is_over(self, model: SystemModel) -> bool:
        """Return whether the silence of nodes counts: all were heard since the last pause, or had time."""
        if self._resumed_s is None:
            return True
        elapsed_s = self._clock() - self._resumed_s
        if elapsed_s < (MEETING_S if self._are_heard(model) else HEARING_S):
            return False
        self._resumed_s = None
        return True

    def _are_heard(self, model: SystemModel) -> bool:
        found = ((model.nodes.get(one), last) for one, last in self._awaited.items())
        return all(node is None or (not node.gone_ns and node.heard_ns > last) for node, last in found)


def _forked(value: _T) -> _T:
    """Return an independent copy of a model, or of health with its model. What never changes is shared.

    Mutes and acknowledgements are shared, too: they are the operator's, and belong to no moment.
    """
    return _Fork().copied(value)  # type: ignore[no-any-return]  # it has the type of the value


class _Fork:
    """One copy. `made` has the copy of each object by identity."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def copied(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SHARED or isinstance(value, tuple):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self.copied(value.__self__))
        if isinstance(value, dict):
            return self._values_of(value)
        if isinstance(value, list | collections.deque):
            made = self._made[id(value)] = value.copy()
            for index, one in enumerate(made):
                if type(one) not in _SHARED and not _is_fixed(one):
                    made[index] = self.copied(one)
            return made
        if isinstance(value, set):
            return self._made.setdefault(id(value), value.copy())
        if _is_fixed(value):
            return value
        return self._object(value)

    def _values_of(self, value: dict[Any, Any]) -> dict[Any, Any]:
        made = self._made[id(value)] = value.copy()
        made.update({key: self.copied(one) for key, one in value.items()})
        return made

    def _object(self, value: Any) -> Any:
        made = self._made[id(value)] = object.__new__(type(value))
        names = dict.fromkeys(getattr(value, "__dict__", ()))
        for each in type(value).__mro__:
            names.update(dict.fromkeys(each.__dict__.get("__slots__", ())))
        for name in names:
            if hasattr(value, name) and name not in ("__weakref__", "__dict__"):
                object.__setattr__(made, name, self.copied(getattr(value, name)))
        return made


_SHARED: Final = frozenset(
    {int, str, float, bool, bytes, type(None), tuple, frozenset, Acknowledgements, Mutes}
)
_CHANGING: Final = ("ospltool.live.", "ospltool.health.")
"""Packages whose objects change, unless they are frozen."""


def _is_fixed(value: Any) -> bool:
    """Return whether an object is one of those that never change."""
    if isinstance(value, tuple | frozenset | enum.Enum):
        return True
    if isinstance(value, dict | list | set | collections.deque | types.MethodType):
        return False
    parameters = getattr(value, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        return True
    return isinstance(value, type) or not type(value).__module__.startswith(_CHANGING)


# Each is a copy of the health of a system; between two the recording is read again.
MAX_BOOKMARKS: Final = 16
"""Copies that are kept; then every other one is dropped, and new ones are made half as often."""


class Bookmarks:
    """What was known at some bookmarks, and at the beginning.

    Args:
        health: the health of a model that has heard nothing.
    """

    def __init__(self, health: Health) -> None:
        self._first = _forked(health)
        self._kept: dict[Bookmark, Health] = {}
        self._every = 1
        self._passed = 0

    def __iter__(self) -> Iterator[Bookmark]:
        return iter(self._kept)

    def add(self, bookmark: Bookmark, health: Health) -> None:
        """Keep what is known at a bookmark, if it is its turn."""
        if any(bookmark.place == one.place and bookmark.begun == one.begun for one in self._kept):
            return
        self._passed += 1
        if self._passed % self._every:
            return
        self._kept = {one: kept for one, kept in self._kept.items() if one.begun == bookmark.begun}
        self._kept[bookmark] = _forked(health)
        if len(self._kept) > MAX_BOOKMARKS:
            self._kept = {one: self._kept[one] for one in list(self._kept)[1::2]}
            self._every *= 2

    def health_at(self, bookmark: Bookmark | None, before: Health) -> Health:
        """Return what was known at a bookmark, nothing at None; its model counts on from that of `before`."""
        found = _forked(self._first if bookmark is None else self._kept[bookmark])
        found.model.follow(before.model)
        found.conclude()
        return found


# Some milliseconds, so that keys of the console are answered in between.
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

    def examine(self) -> None:
        """Examine the model as the last update left it, however short the last examination is ago."""
        if not self.model.watch_failed and not self.pauses.is_recent:
            for _ in self._examining(self.health.examine(self.feed.now_ns())):
                pass

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
                self._bookmarks.add(played.bookmark, self.health)
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
