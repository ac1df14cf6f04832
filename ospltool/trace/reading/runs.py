"""How often a service was started in one file: releases append to the trace of the run before."""

from __future__ import annotations

from typing import Final

FIRST_STATE: Final = "INIT"
FIRST_MESSAGE: Final = "Configuration:"


class RunCounter:
    """Counts runs.

    A run begins with the first record in state INIT after another state, or with the report of the
    configuration when the run before ended in INIT. Records before the first start are of run 0.
    """

    def __init__(self) -> None:
        self.run = 0
        self._state = ""

    def seen(self, state: str, text: str) -> int:
        """The run of a record; `state` is empty for records without one."""
        if state == FIRST_STATE and (self._state != FIRST_STATE or text.startswith(FIRST_MESSAGE)):
            self.run += 1
        if state:
            self._state = state
        return self.run
