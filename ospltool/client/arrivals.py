"""Live samples of a reader, held back while its history is on the way."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataset.sample import make_sample
from engine.dds import abi
from engine.dds.writer_names import AUTODISPOSE, WRITER_GONE
from ospltool.client.presence import MAX_GONE
from ospltool.client.session import PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.dataset.captured import CapturedSample
    from engine.dataset.sample import Sample
    from engine.dds.capture_reader import CaptureReader
    from ospltool.client.cache import SampleCache
    from ospltool.client.session import Session
    from ospltool.client.subscribing import ReaderSubscription

HOLD_BACK_S: Final = 30.0
"""Most seconds that live samples are held back for the history; then they are given first."""
DRAIN: Final = 10_000
LOOK_AGAIN_S: Final = 1.0
"""Seconds between two checks of the living writers without news."""
RETURN_S: Final = 1.0
"""Seconds after a writer's return in which a reader may miss samples that services have."""
EXPECTED_S: Final = 10.0
"""Seconds that a writer counts as living on the word of a service, before it is discovered."""


class _Expected(NamedTuple):
    """A writer that a service knows: when the service was asked, and how long the writer counts as living."""

    asked_s: float
    until_s: float


class Arrivals:
    """Puts live samples into the cache, after the older history, and tells it which writers live.

    Called under the session's lock.

    Args:
        session: knows the participants that deliver history to ordinary readers.
        live: reader of live samples.
        cache: the application takes samples from it.
        subscription: durable subscription of the reader, if it has one; its samples wait with the others.
        max_samples: samples that may wait for the application; then writers are held back.
        holds: hold live samples back from the start.
    """

    def __init__(
        self,
        session: Session,
        live: CaptureReader,
        cache: SampleCache,
        subscription: ReaderSubscription | None,
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
        self._seen = -1
        self._look_again_s = 0.0
        self._autodispose: dict[bytes, bool] = {}
        self._expected: dict[bytes, _Expected] = {}
        self._found_s: dict[bytes, float] = {}
        self._unmatched: dict[bytes, None] = {}
        session.signal.attach(live.entity, abi.SUBSCRIPTION_MATCHED)
        self._hold_until_s = time.monotonic() + HOLD_BACK_S if holds else 0.0
        self._return_s = 0.0

    @property
    def due_s(self) -> float | None:
        """Time at which `turn` is due even if nothing arrives."""
        dues = [self._hold_until_s if self._is_holding else None, self._return_s or None]
        if self._subscription is not None:
            dues.append(self._subscription.due_s)
        return min((due for due in dues if due is not None), default=None)

    @property
    def _is_holding(self) -> bool:
        return self._hold_until_s > 0

    def take_live(self, now: float) -> None:
        """Take live samples, and update the living writers."""
        status = ctypes.c_uint32()
        abi.take_status(self._live.entity, ctypes.byref(status), abi.SUBSCRIPTION_MATCHED)
        records, is_drained = self._drain()
        self._session.discovered()
        batch: list[Sample] = []
        for record in records:
            if record.status & WRITER_GONE:
                self._arrived(batch)
                batch = []
                self._unmatched[record.writer] = None
                self._lost(record.writer, autodispose=record.payload == AUTODISPOSE)
            else:
                batch.append(make_sample(*record))
        self._arrived(batch)
        is_changed = bool(status.value) or self._session.writers_seen != self._seen
        if is_drained and (is_changed or now >= self._look_again_s):
            self._seen = self._session.writers_seen
            self._look_again_s = now + LOOK_AGAIN_S
            self._look(now)

    def _look(self, now: float) -> None:
        """Tell the cache which writers live: matched and discovered ones."""
        writers = self._cache.writers
        matched = self._live.matched_writers().keys()
        there = self._session.writers.get(self._live.topic.name, {})
        for writer in matched:
            self._unmatched.pop(writer, None)
        known = matched | (there.keys() - self._unmatched.keys())
        for writer in known & self._expected.keys():
            self._look_for_gap(now, self._expected.pop(writer).asked_s, now)
            self._found_s[writer] = now
        self._expected = {one: each for one, each in self._expected.items() if now < each.until_s}
        living = known | self._expected.keys()
        for writer in writers.living - living:
            self._lost(writer, autodispose=self._autodispose.pop(writer, False))
        self._autodispose.update(there)
        for writer in living - writers.living:
            self._found(writer, now)
        for writer in self._autodispose.keys() - living:
            del self._autodispose[writer]
        while len(self._unmatched) > MAX_GONE:
            del self._unmatched[next(iter(self._unmatched))]

    def _found(self, writer: bytes, now: float) -> None:
        if self._cache.writers.was_lost(writer):
            self._return_s = now + RETURN_S
        self._found_s[writer] = now
        self._cache.found(writer)

    def _look_for_gap(self, found_s: float, asked_s: float, now: float) -> None:
        """Note that samples may be missing if a writer was found long after services were asked."""
        if found_s > asked_s + RETURN_S:
            self._return_s = now + RETURN_S

    def is_missing(self, now: float) -> bool:
        """Return, once, whether samples of writers that came back may be missing."""
        if not self._return_s or now < self._return_s:
            return False
        self._return_s = 0.0
        return True

    def _lost(self, writer: bytes, *, autodispose: bool) -> None:
        self._expected.pop(writer, None)
        self._found_s.pop(writer, None)
        if writer in self._cache.writers.living:
            self._cache.lost(writer, time.time_ns(), autodispose=autodispose)

    def expect(
        self, writers: Iterable[bytes], disposing: Iterable[bytes], asked_s: float, now: float
    ) -> None:
        """Let writers that a service knows count as living until they are discovered, for a while.

        Args:
            writers: the living writers.
            disposing: the lost writers with autodispose.
            asked_s: when the service was asked; its answer describes a moment after that.
            now: monotonic time, seconds.
        """
        self._look(now)
        for writer in disposing:
            if writer not in self._cache.writers.living:
                self._cache.lost(writer, time.time_ns(), autodispose=True)
        for writer in writers:
            if writer in self._cache.writers.living:
                self._look_for_gap(self._found_s.get(writer, asked_s), asked_s, now)
            elif writer not in self._unmatched:
                self._expected[writer] = _Expected(asked_s, now + EXPECTED_S)
        self._look(now)

    def turn(self, now: float) -> None:
        """Take samples from persistence services, and release live samples when the history is complete."""
        counters = self._cache.counters
        if self._subscription is not None:
            self._given += self._subscription.hear(now)
            counters.missed = self._subscription.deciding.missed
            counters.malformed += self._subscription.take_malformed()
            if self._subscription.deciding.is_complete or not self._is_holding:
                self.release()
        if self._is_holding and now >= self._hold_until_s:
            self.release()

    def _drain(self) -> tuple[list[CapturedSample], bool]:
        """Return the arrived samples that find room, and whether these were all."""
        room = self._max_samples - self._cache.count - len(self._held)
        if room <= 0 or self._cache.is_full:
            return [], False  # the queue fills, and writers block until the application takes samples
        most = min(DRAIN, room)
        taken = self._live.drain(most)
        return taken, len(taken) < most

    def _arrived(self, samples: list[Sample]) -> None:
        counters, ours = self._cache.counters, []
        for sample in samples:
            if sample.writer[:PREFIX_BYTES] in self._session.deliverers:
                counters.deliveries += 1  # for ordinary readers of this process
            elif self._subscription is not None and not self._subscription.is_new(sample):
                counters.repeated += 1
            else:
                ours.append(sample)
        if self._is_holding:
            self._held += ours
            return
        for writer in dict.fromkeys(sample.writer for sample in ours):
            if writer not in self._cache.writers.living:
                self._found(writer, time.monotonic())
        self._cache.add(ours, is_historical=False)

    def release(self) -> None:
        """Give the held samples to the application."""
        self._hold_until_s = 0.0
        given, self._given = self._given, []
        self._cache.add(given, is_historical=True, outdates=False)
        held, self._held = self._held, []
        self._cache.add(held, is_historical=False)
