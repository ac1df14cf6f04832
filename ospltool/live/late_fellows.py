"""Fellows of a snapshot that are made when somebody looks at one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from engine.runtime.monitor import FellowView

FellowCopier = Callable[[FellowView, int], FellowView]
"""Returns a fellow with another `last_heartbeat_ns`."""


class LateFellows(Sequence[FellowView]):
    """The fellows of a former snapshot with new heartbeats. Equal to a tuple of the same fellows.

    Each of 200 nodes reports a heartbeat of all others every time, and hardly anybody reads one.

    Args:
        base: the former fellows.
        heartbeats_ns: `last_heartbeat_ns` of each in turn.
        copied: makes a fellow with its new heartbeat.

    Attributes:
        base: what all but the heartbeats is read from; the same object as before while that stays the same.
        heartbeats_ns: the heartbeats.
    """

    __slots__ = ("_copied", "_views", "base", "heartbeats_ns")

    def __init__(self, base: Sequence[FellowView], heartbeats_ns: list[int], copied: FellowCopier) -> None:
        self.base: Sequence[FellowView] = base.base if isinstance(base, LateFellows) else base
        self.heartbeats_ns = heartbeats_ns
        self._copied = copied
        self._views: tuple[FellowView, ...] | None = None

    @property
    def views(self) -> tuple[FellowView, ...]:
        """The fellows as a tuple."""
        if self._views is None:
            self._views = tuple(map(self._copied, self.base, self.heartbeats_ns))
        return self._views

    def __len__(self) -> int:
        return len(self.base)

    def __iter__(self) -> Iterator[FellowView]:
        return iter(self.views)

    @overload
    def __getitem__(self, index: int) -> FellowView: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FellowView, ...]: ...
    def __getitem__(self, index: int | slice) -> FellowView | tuple[FellowView, ...]:
        return self.views[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LateFellows):
            if other.base is self.base:
                return self.heartbeats_ns == other.heartbeats_ns
            return self.views == other.views
        return isinstance(other, tuple) and self.views == other

    def __hash__(self) -> int:
        return hash(self.views)

    def __repr__(self) -> str:
        return repr(self.views)
