"""Step one and step two of choosing providers: which set would be best, and when it is used.

"Remote Provider Selection": a change is considered when the current provider lags in sequence numbers, or a
candidate has a shorter replication path. "Remote Provider Change": it is made only when the choice was the
same for stable_provider_period_count periods, or when it did not become stable for
max_remote_provider_change_period_count periods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from engine.persistence.core.sequences import Sequences

ORIGINAL: Final = "*"
"""Stands for the original writer as the provider of its own samples."""

MAX_LAG_PERIODS: Final = 2
"""A provider that makes progress may be so many periods of source time behind before it counts as lagging.

What it has is known from its last announcement, which may be a period old.
"""

MAX_PATH: Final = 16
"""Longest replication path that is followed."""

MAX_FILLING: Final = 3
"""Most providers at one time for samples that the first provider does not give."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """Another replica as a provider of one writer's samples.

    Attributes:
        had: what it has.
        path: see `WriterState.path`.
        advanced: its highest number has grown since the last period.
    """

    had: Sequences
    path: tuple[str, ...] | None
    advanced: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Providers:
    """The remote providers of one (reader, original writer) pair.

    Attributes:
        live: who gives what is written now: `ORIGINAL`, a replica, or None for nobody.
        filling: replicas that give what `live` does not have or never will give.
    """

    live: str | None = None
    filling: frozenset[str] = frozenset()

    def __contains__(self, provider: str) -> bool:
        return provider == self.live or provider in self.filling


def choose(
    own: str,
    had: Sequences,
    candidates: Mapping[str, Candidate],
    *,
    is_direct: bool,
    advanced: bool,
    current: Providers,
    max_lag: int = 0,
) -> Providers:
    """The best providers of one writer's samples.

    Args:
        own: the name of this replica.
        had: what it has.
        candidates: the other replicas that are connected, by name.
        is_direct: whether this replica is connected with the original writer, which then is its provider.
        advanced: whether our highest number has grown since the last period.
        current: the providers in use.
        max_lag: numbers that a provider that makes progress may be behind.
    """
    live = ORIGINAL if is_direct else _live(own, candidates, current.live, max_lag)
    missing = due(had, candidates, advanced=advanced and live is not None)
    if live is not None and live != ORIGINAL:
        missing -= candidates[live].had  # its catch-up brings them
    filling: set[str] = set()
    while missing and len(filling) < MAX_FILLING:
        ranked = sorted(
            (-(each.had & missing).count, name not in current, _length(each), name)
            for name, each in candidates.items()
        )
        covered, *_, best = ranked[0]
        if not covered:
            break
        filling.add(best)
        missing -= candidates[best].had
    return Providers(live, frozenset(filling))


def due(had: Sequences, candidates: Mapping[str, Candidate], *, advanced: bool) -> Sequences:
    """What others have and we lack, without what is only on its way.

    Samples of one writer arrive in order, so what is below our highest number will not come by itself. What
    is above it may be on its way, unless nothing arrived for a period.
    """
    there = Sequences()
    for each in candidates.values():
        there |= each.had
    missing = there - had
    return missing.below(had.highest) if advanced else missing


def _live(own: str, candidates: Mapping[str, Candidate], current: str | None, max_lag: int) -> str | None:
    """The replica with the shortest path among those that do not lag; the current one among equals."""
    able = {
        name: each
        for name, each in candidates.items()
        if each.path is not None and own not in each.path and len(each.path) <= MAX_PATH
    }
    if not able:
        return None
    frontier = max(each.had.highest for each in able.values())
    fresh = {name: each for name, each in able.items() if not _lags(each, frontier, max_lag)} or able
    return min(fresh, key=lambda name: (_length(fresh[name]), name != current, name))


def _lags(candidate: Candidate, frontier: int, max_lag: int) -> bool:
    behind = frontier - candidate.had.highest
    return behind > (max_lag if candidate.advanced else 0)


def _length(candidate: Candidate) -> int:
    return MAX_PATH + 1 if candidate.path is None else len(candidate.path)


class Stability:
    """When a choice is used.

    Args:
        stable_periods: periods in a row with the same choice.
        max_change_periods: periods without that, after which the last choice is used all the same.
    """

    def __init__(self, stable_periods: int, max_change_periods: int) -> None:
        self._stable_periods = stable_periods
        self._max_change_periods = max_change_periods
        self.applied = Providers()
        self.selected = Providers()
        self.unchanged = 0
        self.unsettled = 0
        self.forced = 0

    def period(self, selected: Providers) -> bool:
        """One period has chosen; whether `applied` changes with it."""
        self.unchanged = self.unchanged + 1 if selected == self.selected else 1
        self.selected = selected
        if self.unchanged >= self._stable_periods:
            self.unsettled = 0
        else:
            self.unsettled += 1
            if self.unsettled < self._max_change_periods:
                return False
            self.unsettled = 0
            self.forced += selected != self.applied
        if selected == self.applied:
            return False
        self.applied = selected
        return True
