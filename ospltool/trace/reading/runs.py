"""Counts the runs of a service in one file, to which each run appends its trace."""

from __future__ import annotations

from typing import Final

FIRST_STATE: Final = "INIT"
FIRST_MESSAGE: Final = "Configuration:"


class RunCounter:
    """A counter of runs.

    A run begins with the first record in state INIT after another state, or with the report of the
    configuration if the previous run ended in INIT. Records before the first start belong to run 0.
    """

    def __init__(self) -> None:
        self.run = 0
        self._state = ""

    def seen(self, state: str, text: str) -> int:
        """Return the run of a record; `state` is empty for records without one."""
        if state == FIRST_STATE and (self._state != FIRST_STATE or text.startswith(FIRST_MESSAGE)):
            self.run += 1
        if state:
            self._state = state
        return self.run
