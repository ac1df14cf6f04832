"""Captured samples whose writer discovery has not reported yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.dataset.captured import CapturedSample

MAX_ORPHANS: Final = 200_000
"""Limit for waiting samples; beyond it all of them are dropped and counted."""

T = TypeVar("T")


class Orphans:
    """Samples that wait for discovery, which reports their writer within moments."""

    def __init__(self) -> None:
        self._waiting: list[CapturedSample] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def before(self, taken: list[T]) -> list[T | CapturedSample]:
        """Take all waiting samples, and put records of a tap behind them."""
        waiting, self._waiting = self._waiting, []
        return [*waiting, *taken]

    def wait(self, samples: Iterable[CapturedSample]) -> None:
        """Add samples of unknown writers."""
        self._waiting += samples

    def drop_surplus(self) -> int:
        """Drop all samples if more than `MAX_ORPHANS` wait; return their number."""
        count = len(self._waiting)
        if count <= MAX_ORPHANS:
            return 0
        self._waiting = []
        return count
