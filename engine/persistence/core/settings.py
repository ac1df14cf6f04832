"""The settings of data synchronization, with the meanings and defaults of persistence services."""

from __future__ import annotations

import dataclasses
from typing import Final

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
