"""Both steps of choosing providers: selecting the best set, and deciding when to use it.

"Remote Provider Selection": a change is considered when the current provider lags in sequence numbers, or a
candidate has a shorter replication path. "Remote Provider Change": it is made only when the choice was the
same for stable_provider_period_count periods, or when it did not become stable for
max_remote_provider_change_period_count periods. The first choice replaces nothing, and is used at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from engine.persistence.core.sequences import Sequences

# The default of the attributes (docs/redundant-persistence.md).
DEFAULT_PERIOD_MS: Final = 5_000


@dataclasses.dataclass(frozen=True, slots=True)
class SynchronizationSettings:
    """Settings of data_synchronization ("Synchronizing of Persistence Service Instances").

    Attributes:
        enable: data_synchronization/enable.
        period_ms: remote_provider_selection_period, the interval of evaluations of providers.
        stable_periods: stable_provider_period_count, the evaluations in a row that must choose the same
            set before it is used; 1 uses it at once.
        max_change_periods: max_remote_provider_change_period_count, the evaluations without a stable
            choice after which the last one is used. Not below `stable_periods`.
        synchronize_durable_subscriptions: whether states of durable subscriptions are exchanged.
        subscription_period_ms: durable_subscription_synchronization_period.

    Raises:
        ValueError: a period or count below 1, or a bound below the count.
    """

    enable: bool = False
    period_ms: int = DEFAULT_PERIOD_MS
    stable_periods: int = 1
    max_change_periods: int = 1
    synchronize_durable_subscriptions: bool = False
    subscription_period_ms: int = DEFAULT_PERIOD_MS

    def __post_init__(self) -> None:
        if min(self.period_ms, self.subscription_period_ms, self.stable_periods) < 1:
            raise ValueError("periods and counts are at least 1")
        if self.max_change_periods < self.stable_periods:
            raise ValueError(
                f"max_remote_provider_change_period_count ({self.max_change_periods}) is less than "
                f"stable_provider_period_count ({self.stable_periods})"
            )


ORIGINAL: Final = "*"
"""Stands for the original writer as the provider of its own samples."""

MAX_LAG_PERIODS: Final = 2
"""Periods of source time that a provider with progress may be behind before it counts as lagging.

Its numbers come from its last announcement, which may be a period old.
"""

# Chosen: a path has a step for each replica that passed the samples on.
MAX_PATH: Final = 16
"""Longest replication path that is followed."""

# Chosen: with one, a provider that lacks the same would delay the samples by a period.
MAX_FILLING: Final = 3
"""Most providers at one time for samples that the live provider does not give."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """Another replica as a provider of one writer's samples.

    Attributes:
        had: the numbers that it has.
        path: see `WriterState.path`.
        advanced: whether its highest number has grown since the last period.
    """

    had: Sequences
    path: tuple[str, ...] | None
    advanced: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Providers:
    """The remote providers of one (reader, original writer) pair.

    Attributes:
        live: the provider of new samples: `ORIGINAL`, a replica, or None.
        filling: the replicas that give older samples, which `live` does not give.
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
    """Select the best providers of one writer's samples ("Remote Provider Selection").

    Args:
        own: the name of this replica.
        had: the numbers that it has.
        candidates: the other replicas that are connected, by name.
        is_direct: whether this replica is connected to the original writer, which then is its provider.
        advanced: whether its highest number has grown since the last period.
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
    """Return the numbers that others have and this replica lacks, without those that may be on their way.

    Samples of one writer arrive in order, so those below the highest number will not come by themselves.
    Those above it may be on their way, unless nothing arrived for a period.

    Args:
        had: the numbers of this replica.
        candidates: the other replicas, by name.
        advanced: whether something arrived in the last period.
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
    fresh = {
        name: each
        for name, each in able.items()
        if frontier - each.had.highest <= (max_lag if each.advanced else 0)
    } or able
    return min(fresh, key=lambda name: (_length(fresh[name]), name != current, name))


def _length(candidate: Candidate) -> int:
    return MAX_PATH + 1 if candidate.path is None else len(candidate.path)


class Stability:
    """Decides when a choice is used ("Remote Provider Change").

    Args:
        stable_periods: periods in a row with the same choice before it is used.
        max_change_periods: periods without a stable choice after which the last one is used.

    Attributes:
        applied: the providers in use.
        selected: the last choice.
        unchanged: periods in a row with that choice.
        unsettled: periods without a stable choice.
        forced: choices that were used without being stable.
    """

    def __init__(self, stable_periods: int, max_change_periods: int) -> None:
        self._stable_periods = stable_periods
        self._max_change_periods = max_change_periods
        self.applied = Providers()
        self.selected = Providers()
        self.unchanged = 0
        self.unsettled = 0
        self.forced = 0
        self._has_chosen = False

    def use(self, providers: Providers) -> None:
        """Put providers into use at once, where no choice has to be made between them and others."""
        self.applied = self.selected = providers
        self.unchanged, self.unsettled = self._stable_periods, 0
        self._has_chosen = True

    def period(self, selected: Providers) -> bool:
        """Take the choice of a period; return whether `applied` changes."""
        if not self._has_chosen and selected != Providers():
            self.use(selected)
            return True
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
        assert self.unsettled == 0, "what is used is settled"
        return True
