"""The watcher's own pauses: while it stood still it heard nobody, and that is no silence of the nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ospltool.health.codes import SECOND_NS
from ospltool.live.arrival_times import boot_s
from ospltool.live.model import SystemModel
from ospltool.live.remarks import clock

PAUSE_S: Final = 2.0
"""Time without a look at the system after which the watcher counts as having stood still."""

MEETING_S: Final = 3.0
"""Time after a pause in which Cyclone DDS gives what came before, and then may lose and meet all again."""

HEARING_S: Final = 5.0
"""Time after a pause in which those that were there before are awaited; who is silent then, is silent."""


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
        self._untold = ""

    def news(self) -> str:
        """Return a sentence about a pause that was not told yet; empty without one."""
        told, self._untold = self._untold, ""
        return told

    def note_update(self, model: SystemModel, now_ns: int) -> None:
        """Take in that the watcher looks at the system now; call it before each update of the model.

        Args:
            model: the system as it was seen last.
            now_ns: this moment, by the feed's clock.
        """
        before_s, self._looked_s = self._looked_s, self._clock()
        if self._resumed_s is None and before_s is not None and self._looked_s - before_s > PAUSE_S:
            lasted_s, self._resumed_s = self._looked_s - before_s, self._looked_s
            when = f"from {clock(now_ns - round(lasted_s * SECOND_NS))} to {clock(now_ns)} UTC"
            self._untold = (
                f"this watch did not look {when} ({lasted_s:.1f} s); silence in that time does not count"
            )
            self._awaited = {node.id: node.heard_ns for node in model.nodes.values() if not node.gone_ns}

    @property
    def is_recent(self) -> bool:
        """Whether the watcher stood still, and nothing was examined since."""
        return self._resumed_s is not None

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
