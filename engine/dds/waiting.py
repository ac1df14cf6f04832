"""Waiting without polling: one wait set that readers, taps and other threads wake."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Self

from engine.dds import abi
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant

_FOREVER_SLICE_S = 3600.0


class Signal:
    """A flag that one thread awaits and any thread sets.

    It is a guard condition in a wait set of Cyclone DDS: a wait costs nothing and does not hold the
    interpreter lock; a callback of Cyclone DDS, another thread or a reader with data ends it.
    """

    def __init__(self, participant: NodeParticipant) -> None:
        self._participant = participant
        self._waitset = check(abi.create_waitset(participant.entity), "create a wait set")
        self.guard: int = check(abi.create_guard(participant.entity), "create a guard condition")
        check(abi.waitset_attach(self._waitset, self.guard, 0), "attach a guard condition")
        self._closed = False
        self._lock = threading.Lock()
        participant.adopt(self._waitset, self)

    def attach(self, entity: int, statuses: int = abi.DATA_AVAILABLE) -> None:
        """Make statuses of a reader or writer set the flag, too; the default is data of a reader.

        While a status or data are not taken, `wait` returns at once.
        """
        check(abi.set_status_mask(entity, statuses), "watch an entity")
        check(abi.waitset_attach(self._waitset, entity, 0), "attach an entity")

    def detach(self, entity: int) -> None:
        """Undo `attach`; harmless if the entity was deleted."""
        abi.waitset_detach(self._waitset, entity)

    def set(self) -> None:
        """Wake the waiting thread, or make its next wait return at once."""
        if not self._closed:
            abi.set_guard(self.guard, True)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the flag is set or a reader has data, and clear the flag; return False if not in time.

        Without `timeout_s` it waits for an hour.
        """
        timeout_s = _FOREVER_SLICE_S if timeout_s is None else max(0.0, timeout_s)
        woken = abi.waitset_wait(self._waitset, None, 0, round(timeout_s * 1e9))
        if woken > 0:
            was = ctypes.c_bool()
            abi.take_guard(self.guard, ctypes.byref(was))
        return bool(woken > 0)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds, checking it after each wake; return False if not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or self._closed:
                return False
            self.wait(left)
        return True

    def close(self) -> None:
        """Close the signal; a waiting thread returns. Idempotent."""
        with self._lock:
            if self._closed:
                return
            abi.set_guard(self.guard, True)
            self._closed = True
        abi.delete(self._waitset)
        abi.delete(self.guard)
        self._participant.disown(self._waitset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
