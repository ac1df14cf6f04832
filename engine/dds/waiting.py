"""Waiting without polling: one wait set that readers, taps and other threads wake."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self

import msgspec

from engine.dds import abi
from engine.dds.activity import BEAT_S, ThreadActivities
from engine.dds.errors import check
from engine.dds.participant import NodeParticipant

_FOREVER_SLICE_S = 3600.0
"""Longest wait, for callers without a limit: an hour fits into nanoseconds of 64 bits, infinity does not."""
_BELL: Final = 1
"""Tells a bell from all else in the wait set."""
# A wait set has a bell and a handful of entities; if more ended a wait, it counts as news, not as a bell
# only.
_TOLD: Final = 64
"""Limit for the things of which a wait tells which one ended it."""


class Waker(Protocol):
    """What a queue rings when it is no longer empty, and how its reader waits for that."""

    guard: int
    urgent_guard: int
    """A condition that wakes even those who look by the clock, since a queue is half full."""

    def set(self) -> None:
        """Wake the waiting thread."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait; return False if not in time."""
        ...

    def close(self) -> None:
        """Close it."""


class Signal:
    """A flag that one thread awaits and any thread sets.

    It is a guard condition in a wait set of Cyclone DDS: a wait costs nothing and does not hold the
    interpreter lock; a callback of Cyclone DDS, another thread or a reader with data ends it.
    """

    def __init__(self, participant: NodeParticipant) -> None:
        self._participant = participant
        self._waitset = check(abi.create_waitset(participant.entity), "create a wait set")
        self.guard: int = check(abi.create_guard(participant.entity), "create a guard condition")
        self.urgent_guard = self.guard
        check(abi.waitset_attach(self._waitset, self.guard, 0), "attach a guard condition")
        self._closed = False
        # `close` may come from two threads; only one may delete the entities.
        self._lock = threading.Lock()
        self._ended_by = (ctypes.c_ssize_t * _TOLD)()
        self.is_only_bell = False
        """Whether nothing but a bell ended the last wait."""
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
        woken = abi.waitset_wait(self._waitset, self._ended_by, _TOLD, round(timeout_s * 1e9))
        self.is_only_bell = 0 < woken <= _TOLD and all(what == _BELL for what in self._ended_by[:woken])
        if woken > 0 and not self.is_only_bell:
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

    def bell(self) -> Bell:
        """Make a bell that ends a wait, too."""
        return Bell(self, self._participant, self._waitset)

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


class Bell:
    """A flag of a signal that rings once and then is silent until it is armed again.

    Who has heard it looks by the clock for as long as there is something new; that costs less than being
    woken for each sample. While it is silent the flag is kept, but wakes nobody; only `urgent_guard` wakes.
    One thread calls `take`, one thread `arm`, any thread `set`. `Signal.bell` makes it.

    Args:
        signal: the signal.
        participant: the signal's participant.
        waitset: the signal's wait set.
    """

    def __init__(self, signal: Signal, participant: NodeParticipant, waitset: int) -> None:
        self._signal = signal
        self._waitset = waitset
        self._lock = threading.Lock()  # the pump takes the ring while the node arms the bell
        self._is_armed = True
        self.guard: int = check(abi.create_guard(participant.entity), "create a guard condition")
        self.urgent_guard: int = check(abi.create_guard(participant.entity), "create a guard condition")
        for guard in (self.guard, self.urgent_guard):
            check(abi.waitset_attach(waitset, guard, _BELL), "attach a guard condition")

    @property
    def is_armed(self) -> bool:
        """Whether it wakes the waiting thread."""
        return self._is_armed

    def set(self) -> None:
        """Ring."""
        abi.set_guard(self.guard, True)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the signal; see `Signal.wait`."""
        return self._signal.wait(timeout_s)

    def acknowledge(self) -> bool:
        """Tell whether it rang; then it is silent."""
        is_urgent = _is_set(abi.take_guard, self.urgent_guard)
        with self._lock:
            if not self._is_armed or not _is_set(abi.read_guard, self.guard):
                return is_urgent
            self._is_armed = False
            abi.waitset_detach(self._waitset, self.guard)
            return True

    def forget(self) -> None:
        """While it is silent, forget what it was set for; call it before looking at all that sets it.

        Otherwise the first `arm` afterwards fails for what has been seen. A flag that is set during the look
        stays.
        """
        if not self._is_armed:
            _is_set(abi.take_guard, self.guard)

    def arm(self, has_news: Callable[[], bool]) -> bool:
        """Let it ring again; return False if it would ring at once, so that it stays silent.

        Args:
            has_news: tells whether there is something that nobody has looked at.
        """
        if self._is_armed:
            return True
        if _is_set(abi.take_guard, self.guard) or has_news():
            return False
        with self._lock:
            self._is_armed = True
            abi.waitset_attach(self._waitset, self.guard, _BELL)  # fails at the end of the signal only
        return True

    def close(self) -> None:
        """Do nothing; it ends with its participant."""


def _is_set(look: Callable[..., int], guard: int) -> bool:
    was = ctypes.c_bool()
    look(guard, ctypes.byref(was))
    return was.value


_log: Final = logging.getLogger(__name__)
_ACTIVITY: Final = "AdminEventDispatcher"

Take = Callable[[], Sequence[Any]]
Sink = Callable[[str, Sequence[Any]], object]


class _Source(msgspec.Struct):
    """A source of batches; with a bell, all of it comes after the bell."""

    take: Take
    has_bell: bool


class Pump:
    """Takes batches from its sources as they arrive, and gives them to the sink.

    The sink runs in the pump's thread. A sink that blocks, such as `queue.Queue.put` on a full queue, holds
    the pump; the sources' own bounded queues fill and push back on their writers. For asyncio, let the sink
    call `loop.call_soon_threadsafe`.

    Args:
        participant: the participant of the sources.
        sink: called with the source's name and a batch that is not empty.
        activities: registers the work of the thread for the deadlock watch, which names the source.
    """

    def __init__(
        self, participant: NodeParticipant, sink: Sink, activities: ThreadActivities | None = None
    ) -> None:
        self.signal = Signal(participant)
        self._sink = sink
        self._work = (activities or ThreadActivities()).work(_ACTIVITY)
        self._sources: dict[str, _Source] = {}
        self._lock = threading.Lock()  # sources are added while the pump walks through them
        self._stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dds-pump", daemon=True)

    @property
    def fault(self) -> BaseException | None:
        """The error that ended the thread, or None."""
        return self._failure

    def add(self, name: str, take: Take, *, has_bell: bool = False) -> None:
        """Add a source whose entities use `pump.signal`; sources are served in the order of adding.

        Args:
            name: the source's name for the sink and the deadlock watch.
            take: takes a batch from the source.
            has_bell: a bell of `pump.signal` announces every batch; only such sources are looked at while
                nothing but bells rings.
        """
        with self._lock:
            self._sources[name] = _Source(take, has_bell)
        self.signal.set()

    def remove(self, name: str) -> None:
        """Remove a source; when this returns, the pump no longer takes from it."""
        with self._lock:
            self._sources.pop(name, None)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                # The wait is limited so that a signal that a bug lost costs only a second.
                self.signal.wait(BEAT_S)
                self._work.beat()
                self._round(only_bells=self.signal.is_only_bell)
            self._work.rest()
        except Exception as error:
            _log.exception("the DDS pump stopped")
            self._failure = error

    def _round(self, *, only_bells: bool) -> None:
        with self._lock:
            sources = [each for each in self._sources.items() if each[1].has_bell or not only_bells]
        for name, source in sources:
            self._work.name = f"{_ACTIVITY} ({name})"
            with self._work:
                with self._lock:
                    if name not in self._sources or self._stopping:
                        continue
                    batch = source.take()
                if batch:
                    self._sink(name, batch)
        self._work.name = _ACTIVITY

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread and close the signal. Close the sources afterwards.

        Raises:
            RuntimeError: the thread did not end in time, or it had failed; the cause says why.
        """
        self._stopping = True
        self.signal.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise RuntimeError("the DDS pump is held by its sink")
        self.signal.close()
        if self._failure is not None:
            raise RuntimeError("the DDS pump had failed") from self._failure
