"""Finds durable writers that a tap should capture and does not match, whatever the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.capture.neighbourhood import Neighbourhood, Offer
    from engine.capture.tap_registry import TapRegistry
    from engine.capture.unkept import Unkept

MATCH_S: Final = 5.0
"""Time for a writer to match its tap. Cyclone DDS matches both at once when it knows both."""
LOOK_S: Final = 1.0
"""Pause between two looks."""
TIRED: Final = 2
"""Looks in succession that must find no match: a writer that has just ended may still be known here."""


class MatchWatch:
    """Watches writers until their taps match them.

    Args:
        taps: says whether a writer is matched.
        neighbourhood: knows the writers, and remembers those that are not kept.
    """

    def __init__(self, taps: TapRegistry, neighbourhood: Neighbourhood) -> None:
        self._taps = taps
        self._neighbourhood = neighbourhood
        self._new: list[bytes] = []
        self._due_s: dict[bytes, float] = {}
        self._misses: dict[bytes, int] = {}
        self._next_s = 0.0

    def watch(self, offers: Iterable[Offer]) -> None:
        """Look at these writers once they have had time to match."""
        self._new += (offer.endpoint.guid for offer in offers if offer.endpoint.handle)

    def turn(self, now_s: float) -> list[Unkept]:
        """Look at the writers that are due; return those that do not match, each once."""
        if self._new:
            self._due_s.update(dict.fromkeys(self._new, now_s + MATCH_S))
            self._new.clear()
        if not self._due_s or now_s < self._next_s:
            return []
        self._next_s = now_s + LOOK_S
        due = [writer for writer, due_s in self._due_s.items() if due_s <= now_s]
        looks = [self._look(writer, now_s) for writer in due]
        return [unkept for unkept in looks if unkept is not None]

    def _look(self, writer: bytes, now_s: float) -> Unkept | None:
        misses = self._misses.pop(writer, 0)
        del self._due_s[writer]
        offer = self._neighbourhood.offer_of(writer)
        if offer is None:
            return None
        if self._taps.is_matched(offer.groups[0], offer.endpoint.handle) is not False:
            return self._neighbourhood.unmatched(offer, is_so=False) if misses else None
        self._misses[writer] = min(misses + 1, TIRED)
        self._due_s[writer] = now_s + LOOK_S
        return self._neighbourhood.unmatched(offer, is_so=True) if misses + 1 >= TIRED else None
