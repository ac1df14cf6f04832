"""What applications write, from the taps into the runtime, no faster than the disk takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.capture.orphans import Orphans

if TYPE_CHECKING:
    from engine.capture.neighbourhood import Neighbourhood
    from engine.capture.tap_registry import TapRegistry
    from engine.client_service.service import ClientService
    from engine.dds.waiting import Bell
    from engine.node.keeping import Keeping
    from engine.runtime.ports import Clock
    from engine.runtime.runtime import Runtime
    from engine.runtime.store_queue import StoreQueue

MAX_BACKLOG: Final = 200_000
"""Samples that may wait for the disk before capture pauses and writers are held back, if not configured."""
DRAIN: Final = 20_000
BUSY: Final = 500
"""Samples in one go from which on there is a pause before the next, so that there are more in one go."""
DRAIN_PAUSE_S: Final = 0.05
ROOMY: Final = 0.25
"""A tap that was fuller than this makes the pause shorter, so that writers are not held back."""
TICK_S: Final = 0.005
GATHER_S: Final = 0.02
"""Time that a sample may wait in a tap for others: draining all taps costs more than one sample."""


class CaptureDrain:
    """Drains the taps of a node. All methods are called on the node's thread.

    Args:
        taps: what is captured.
        neighbourhood: knows the groups of every writer.
        runtime: takes the samples.
        store_queue: says how many wait for the disk.
        clients: the service for clients, which looks at the same samples; None without one.
        keeping: hears which instances writers unregister.
        clock: the node's.
        bell: rings when a tap has something.
        max_waiting: samples that may wait for the disk (Persistent/QueueSize); 0 for `MAX_BACKLOG`.
    """

    def __init__(
        self,
        taps: TapRegistry,
        neighbourhood: Neighbourhood,
        runtime: Runtime,
        store_queue: StoreQueue,
        clients: ClientService | None,
        keeping: Keeping,
        clock: Clock,
        *,
        max_waiting: int = 0,
        bell: Bell,
    ) -> None:
        self._bell = bell
        self._look_s = 0.0
        self._max_waiting = max_waiting or MAX_BACKLOG
        self._taps = taps
        self._neighbourhood = neighbourhood
        self._runtime = runtime
        self._store_queue = store_queue
        self._clients = clients
        self._keeping = keeping
        self._clock = clock
        self._orphans = Orphans()
        self._due_s = 0.0
        self._held_since_ns: int | None = None

    def patience_s(self, now: float) -> float:
        """Seconds from now until the taps must be looked at although they did not ask; may be infinite."""
        patience_s = self._taps.patience_s
        if self._store_queue.queued_changes >= self._max_waiting:
            patience_s = min(patience_s, TICK_S)  # taps wait for the disk; look again soon
        if not self._bell.is_armed:
            patience_s = min(patience_s, max(0.0, max(self._look_s, self._due_s) - now))
        elif self._due_s > now:
            patience_s = min(patience_s, self._due_s - now)
        return patience_s

    def found_nothing(self, now: float) -> bool:
        """Look at the taps, if that is all that is due; return whether they have nothing.

        While samples come, the taps are looked at every `GATHER_S`. Once they have nothing, their bell rings
        for the next sample.
        """
        if self._bell.is_armed or now < max(self._look_s, self._due_s) or self._taps.is_moving:
            return False
        is_full = self._store_queue.queued_changes >= self._max_waiting
        return not is_full and self._bell.arm(self._taps.has_news)

    def turn(self) -> None:
        """Drain the taps, unless it is too early for that."""
        if self._clock.monotonic() >= self._due_s:
            self.drain()

    def drain(self) -> None:
        """Take from every tap what it has, up to a bound, unless too much waits for the disk."""
        tracer = self._runtime.shared.tracer
        room = self._max_waiting - self._store_queue.queued_changes
        if self._store_queue.problem:
            room = DRAIN  # what the disk does not take stays in memory and is written later
        if room <= 0:
            self._runtime.shared.is_behind = True
            if self._held_since_ns is None:
                self._held_since_ns = self._clock.wall_ns()
                tracer.event("capture.back-pressure", samples=self._store_queue.queued_changes)
            return
        if self._held_since_ns is not None:
            elapsed_ns, self._held_since_ns = self._clock.wall_ns() - self._held_since_ns, None
            tracer.event("capture.relieved", elapsed_ns=elapsed_ns)
        most = min(DRAIN, room)
        routes = self._neighbourhood.routes
        count, fill, is_behind = 0, ROOMY, False
        for tap in self._taps:
            fill = max(fill, tap.fill)
            some, drained = tap.drain_runs(most)
            count += some
            is_behind = is_behind or some >= most
            taken = self._orphans.before(drained)
            unrouted = self._runtime.capture(taken, routes) if taken else []
            self._keeping.unregistered(taken)
            if self._clients:
                self._clients.captured(taken, unrouted, routes)
            self._orphans.wait(unrouted)
            if dropped := self._orphans.drop_surplus():
                self._runtime.count_unrouted(dropped)
        self._runtime.shared.is_behind = is_behind or bool(self._orphans)
        pause_s = 0.0 if count < BUSY or self._runtime.serving.tails else DRAIN_PAUSE_S * ROOMY / fill
        now = self._clock.monotonic()
        self._due_s = now + pause_s
        if count:
            self._look_s = now + GATHER_S * ROOMY / fill
