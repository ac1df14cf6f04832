"""The watcher's own pauses: while it stood still it heard nobody, and that is no silence of the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ospltool.live.model import SystemModel

PAUSE_S: Final = 2.0
"""Time without a look at the system after which the watcher counts as having stood still."""

MEETING_S: Final = 3.0
"""Time after a pause in which Cyclone DDS gives what came before, and then may lose and meet all again."""

HEARING_S: Final = 10.0
"""Time after a pause in which those that were there before are awaited; who is silent then, is silent."""


def boot_s() -> float:
    """Return the time in seconds since the machine started, the time in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class OwnPauses:
    """Notices when the watcher itself stood still: it was stopped, starved, or its machine slept.

    Args:
        clock: returns seconds that go on in a pause.
    """

    def __init__(self, clock: Callable[[], float] = boot_s) -> None:
        self._clock = clock
        self._looked_s: float | None = None
        self._resumed_s: float | None = None
        self._awaited: dict[str, int] = {}
        self._untold_s = 0.0

    def news(self) -> str:
        """Return a sentence about a pause that was not told yet; empty without one."""
        lasted_s, self._untold_s = self._untold_s, 0.0
        if not lasted_s:
            return ""
        return f"this watch did not look for {lasted_s:.1f} s; silence in that time does not count"

    def look(self, model: SystemModel) -> None:
        """Take in that the watcher looks at the system now; call it before each update of the model."""
        before_s, self._looked_s = self._looked_s, self._clock()
        if self._resumed_s is None and before_s is not None and self._looked_s - before_s > PAUSE_S:
            self._untold_s = self._looked_s - before_s
            self._resumed_s = self._looked_s
            self._awaited = {node.id: node.heard_ns for node in model.nodes.values() if not node.gone_ns}

    def is_over(self, model: SystemModel) -> bool:
        """Return whether the silence of nodes counts: all were heard since the last pause, or had time."""
        if self._resumed_s is None:
            return True
        elapsed_s = self._clock() - self._resumed_s
        if elapsed_s < (MEETING_S if self._are_heard(model) else HEARING_S):
            return False
        self._resumed_s = None
        return True

    def _are_heard(self, model: SystemModel) -> bool:
        found = ((model.nodes.get(one), last) for one, last in self._awaited.items())
        return all(node is None or (not node.gone_ns and node.heard_ns > last) for node, last in found)
