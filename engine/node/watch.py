"""The deadlock watch: every activity says since when it has been busy with one thing.

A thread of its own renews the lease towards the supervisor. An activity that is busy with one piece of work
for longer than `PATIENCE_S` is reported; with //DurabilityService/Watchdog/deadlockDetection the lease is
then withheld until it moves again, and the supervisor applies the FailureAction (deployment guide 5.5.1).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.tracing.tracer import Tracer

PATIENCE_S: Final = 10.0


class Work:
    """What an activity is busy with: `with work:` around one piece of it."""

    __slots__ = ("done", "since_s")

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.done = 0

    def __enter__(self) -> None:
        self.since_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.since_s = None
        self.done += 1


class Watch:
    """Looks at all activities and renews the lease.

    Args:
        activities: by their names in the trace.
        renew: renews the lease; called every `period_s`.
        detects: whether a stuck activity withholds the lease.
    """

    def __init__(
        self,
        activities: dict[str, Work],
        tracer: Tracer,
        renew: Callable[[], None],
        period_s: float,
        *,
        detects: bool,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._activities = activities
        self._tracer = tracer
        self._renew = renew
        self._period_s = period_s
        self._detects = detects
        self._patience_s = patience_s
        self._stuck: set[str] = set()
        self._is_withheld = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching; the lease is not renewed any more."""
        self._ended.set()
        self._thread.join(timeout=2 * self._period_s)

    def _run(self) -> None:
        while True:
            self.look()
            if self._ended.wait(self._period_s):
                return

    def look(self) -> None:
        """Look once: report what changed, and renew the lease unless it must be withheld."""
        now = time.monotonic()
        for name, work in self._activities.items():
            since = work.since_s
            is_stuck = since is not None and now - since > self._patience_s
            if is_stuck != (name in self._stuck):
                (self._stuck.add if is_stuck else self._stuck.discard)(name)
                event = "watch.progress-lost" if is_stuck else "watch.progress-back"
                self._tracer.event(event, activity=name, tid=0, before=work.done, after=work.done)
        if self._stuck and self._detects:
            if not self._is_withheld:
                self._tracer.event("watch.lease-withheld", activities=", ".join(sorted(self._stuck)))
            self._is_withheld = True
            return
        self._is_withheld = False
        self._renew()
