"""Copies of a model and its health at bookmarks of a recording, to wind back without reading it all again."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from ospltool.health.acknowledgements import Acknowledgements
from ospltool.health.health import Health
from ospltool.health.mutes import Mutes
from ospltool.live.replay import Bookmark

MAX_BOOKMARKS: Final = 16
"""Copies that are kept; then every other one is dropped, and new ones are made half as often."""

T = TypeVar("T")


class Bookmarks:
    """What was known at some bookmarks, and at the beginning.

    Args:
        health: the health of a model that has heard nothing.
    """

    def __init__(self, health: Health) -> None:
        self._first = forked(health)
        self._kept: dict[Bookmark, Health] = {}
        self._every = 1
        self._passed = 0

    def __iter__(self) -> Iterator[Bookmark]:
        return iter(self._kept)

    def keep(self, bookmark: Bookmark, health: Health) -> None:
        """Keep what is known at a bookmark, if it is its turn."""
        if any(bookmark.place == one.place and bookmark.begun == one.begun for one in self._kept):
            return
        self._passed += 1
        if self._passed % self._every:
            return
        self._kept = {one: kept for one, kept in self._kept.items() if one.begun == bookmark.begun}
        self._kept[bookmark] = forked(health)
        if len(self._kept) > MAX_BOOKMARKS:
            self._kept = {one: self._kept[one] for one in list(self._kept)[1::2]}
            self._every *= 2

    def health_at(self, bookmark: Bookmark | None, before: Health) -> Health:
        """Return what was known at a bookmark, nothing at None; its model counts on from that of `before`."""
        found = forked(self._first if bookmark is None else self._kept[bookmark])
        found.model.follow(before.model)
        found.conclude()
        return found


def forked(value: T) -> T:
    """Return an independent copy of a model, or of health with its model. What never changes is shared.

    Mutes and acknowledgements are shared, too: they are the operator's, and belong to no moment.
    """
    return _Fork().of(value)  # type: ignore[no-any-return]  # it has the type of the value


class _Fork:
    """One copy. `made` has the copy of each object by identity."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SHARED or isinstance(value, tuple):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self.of(value.__self__))
        if isinstance(value, dict):
            return self._values_of(value)
        if isinstance(value, list | collections.deque):
            made = self._made[id(value)] = value.copy()
            for index, one in enumerate(made):
                if type(one) not in _SHARED and not _is_fixed(one):
                    made[index] = self.of(one)
            return made
        if isinstance(value, set):
            return self._made.setdefault(id(value), value.copy())
        if _is_fixed(value):
            return value
        return self._object(value)

    def _values_of(self, value: dict[Any, Any]) -> dict[Any, Any]:
        made = self._made[id(value)] = value.copy()
        made.update({key: self.of(one) for key, one in value.items()})
        return made

    def _object(self, value: Any) -> Any:
        made = self._made[id(value)] = object.__new__(type(value))
        names = dict.fromkeys(getattr(value, "__dict__", ()))
        for each in type(value).__mro__:
            names.update(dict.fromkeys(each.__dict__.get("__slots__", ())))
        for name in names:
            if hasattr(value, name) and name not in ("__weakref__", "__dict__"):
                object.__setattr__(made, name, self.of(getattr(value, name)))
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
