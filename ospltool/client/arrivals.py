"""What writers send to a reader, held back while what was written before is still on its way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from engine.dataset.sample import make_sample
from engine.dds.captured import AUTODISPOSE
from engine.dds.tap import WRITER_GONE
from ospltool.client.session import PREFIX_BYTES

if TYPE_CHECKING:
    from engine.dataset.sample import Sample
    from engine.dds.tap import CaptureReader
    from ospltool.client.cache import SampleCache
    from ospltool.client.session import Session
    from ospltool.client.subscribing import Subscription

HOLD_BACK_S: Final = 30.0
"""How long live samples are held back for the history at most; then they are given first."""
DRAIN: Final = 10_000


class Arrivals:
    """Puts samples from writers into the cache, after what is older. Called under the session's lock.

    Args:
        session: knows who delivers history to ordinary readers.
        live: the reader of what writers send.
        cache: where the application takes samples.
        subscription: the durable subscription of the reader; what persistence services give for it waits
            with the rest.
        max_samples: samples that may wait for the application; then writers are held back.
        holds: whether something is on its way from the start.
    """

    def __init__(
        self,
        session: Session,
        live: CaptureReader,
        cache: SampleCache,
        subscription: Subscription | None,
        max_samples: int,
        *,
        holds: bool,
    ) -> None:
        self._session = session
        self._live = live
        self._cache = cache
        self._subscription = subscription
        self._max_samples = max_samples
        self._held: list[Sample] = []
        self._given: list[Sample] = []
        self._hold_until_s = time.monotonic() + HOLD_BACK_S if holds else 0.0

    @property
    def due_s(self) -> float | None:
        """When `turn` is due even if nothing arrives."""
        dues = [self._hold_until_s if self._is_holding else None]
        if self._subscription is not None:
            dues.append(self._subscription.due_s)
        return min((due for due in dues if due is not None), default=None)

    @property
    def _is_holding(self) -> bool:
        return self._hold_until_s > 0

    def take_live(self) -> None:
        """Take what writers sent."""
        live = self._drain()
        self._session.discovered()
        for sample in live:
            self._arrived(sample)

    def turn(self, now: float) -> None:
        """Take what persistence services gave, and see whether anything is still waited for."""
        counters = self._cache.counters
        if self._subscription is not None:
            self._given += self._subscription.hear(now)
            counters.missed = self._subscription.deciding.missed
            counters.malformed += self._subscription.take_malformed()
            if self._subscription.deciding.is_complete or not self._is_holding:
                self.release()
        if self._is_holding and now >= self._hold_until_s:
            self.release()

    def _drain(self) -> list[Sample]:
        room = self._max_samples - self._cache.count - len(self._held)
        if room <= 0:
            return []  # the queue fills, and writers are held back until the application takes
        taken = self._live.drain(min(DRAIN, room))
        for record in taken:
            if record.status & WRITER_GONE and record.payload == AUTODISPOSE:
                self._cache.autodisposed(record.writer)
        return [make_sample(*record) for record in taken if not record.status & WRITER_GONE]

    def _arrived(self, sample: Sample) -> None:
        if sample.writer[:PREFIX_BYTES] in self._session.deliverers:
            self._cache.counters.deliveries += 1  # meant for ordinary readers of this process
        elif self._subscription is not None and not self._subscription.is_new(sample):
            self._cache.counters.repeated += 1
        elif self._is_holding:
            self._held.append(sample)
        else:
            self._cache.add(sample, is_historical=False)

    def release(self) -> None:
        """Give the application what was held back."""
        self._hold_until_s = 0.0
        given, self._given = self._given, []
        for sample in given:
            self._cache.add(sample, is_historical=True, outdates=False)
        held, self._held = self._held, []
        for sample in held:
            self._cache.add(sample, is_historical=False)
