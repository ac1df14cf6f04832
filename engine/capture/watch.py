"""The deadlock watch: it finds activities that take too long for one piece of work.

The watch's own thread renews the lease towards the supervisor. It reports an activity that exceeds its limit
(see `engine.dds.activity`); with //DurabilityService/Watchdog/deadlockDetection it then withholds the lease
until the activity moves again, and the supervisor applies the FailureAction (deployment guide 5.5.1).
Activities without `withholds` are only reported: ending the process would do more harm than they do.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dds.activity import ThreadActivities, Work


class Watchdog:
    """Checks all activities and renews the lease.

    Args:
        activities: the activities of the process.
        tell: takes an event of the trace and its fields, as `engine.tracing.tracer.Tracer.event` does.
        renew: renews the lease.
        period_s: time from one check to the next.
        detects: whether a stuck activity withholds the lease.
    """

    def __init__(
        self,
        activities: ThreadActivities,
        tell: Callable[..., None],
        renew: Callable[[], None],
        period_s: float,
        *,
        detects: bool,
    ) -> None:
        self._activities = activities
        self._tell = tell
        self._renew = renew
        self._period_s = period_s
        self._detects = detects
        self._stuck: dict[Work, int] = {}
        self._is_withheld = False
        self._verdict = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching and renewing the lease."""
        self._ended.set()
        self._thread.join(timeout=2 * self._period_s)

    def _run(self) -> None:
        while True:
            self.look()
            if self._ended.wait(self._period_s):
                return

    def look(self) -> None:
        """Check once: report changes, and renew the lease unless it must be withheld."""
        now = time.monotonic()
        stuck = {work: work.done for work in self._activities.all() if work.is_stuck(now)}
        for work in stuck.keys() - self._stuck:
            self._tell_progress("watch.progress-lost", work, work.done)
        for work in self._stuck.keys() - stuck:
            self._tell_progress("watch.progress-back", work, self._stuck[work])
        self._stuck = {**stuck, **{work: done for work, done in self._stuck.items() if work in stuck}}
        verdict = "NOK" if stuck else "OK"
        if verdict != self._verdict:
            self._verdict = verdict
            counts = ", ".join(f"{work.name} {work.done}" for work in self._activities.all())
            self._tell("watch.threads", activities=counts, verdict=verdict)
        withholding = [work.name for work in self._stuck if work.withholds]
        if withholding and self._detects:
            if not self._is_withheld:
                names = ", ".join(sorted(withholding))
                self._tell("watch.lease-withheld", activities=names)
            self._is_withheld = True
            return
        self._is_withheld = False
        self._renew()

    @property
    def stuck(self) -> tuple[str, ...]:
        """Names of the activities that were stuck at the last check."""
        return tuple(sorted(work.name for work in self._stuck))

    def _tell_progress(self, event: str, work: Work, before: int) -> None:
        self._tell(event, activity=work.name, tid=work.tid, before=before, after=work.done)
