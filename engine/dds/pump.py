"""One thread that waits for Cyclone DDS and passes on the samples that arrive."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.dds.activity import ThreadActivities, Work
from engine.dds.participant import NodeParticipant
from engine.dds.waiting import Signal

_log: Final = logging.getLogger(__name__)
_LONGEST_WAIT_S: Final = 1.0

Take = Callable[[], Sequence[Any]]
Sink = Callable[[str, Sequence[Any]], object]


@dataclasses.dataclass(slots=True)
class _Source:
    """A source of batches; with a bell, all of it comes after the bell."""

    take: Take
    work: Work
    has_bell: bool


class Pump:
    """Takes batches from its sources as they arrive, and gives them to the sink.

    The sink runs in the pump's thread. A sink that blocks, such as `queue.Queue.put` on a full queue, holds
    the pump; the sources' own bounded queues fill and push back on their writers. For asyncio, let the sink
    call `loop.call_soon_threadsafe`.

    Args:
        participant: the participant of the sources.
        sink: called with the source's name and a batch that is not empty.
        activities: registers the work of each source for the deadlock watch.
    """

    def __init__(
        self, participant: NodeParticipant, sink: Sink, activities: ThreadActivities | None = None
    ) -> None:
        self.signal = Signal(participant)
        self._sink = sink
        self._activities = activities or ThreadActivities()
        self._sources: dict[str, _Source] = {}
        self._lock = threading.Lock()
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
        work = self._activities.work(f"AdminEventDispatcher ({name})")
        with self._lock:
            self._sources[name] = _Source(take, work, has_bell)
        self.signal.set()

    def remove(self, name: str) -> None:
        """Remove a source; when this returns, the pump no longer takes from it."""
        with self._lock:
            source = self._sources.pop(name, None)
        if source is not None:
            self._activities.end(source.work)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                # The wait is limited so that a signal that a bug lost costs only a second.
                self.signal.wait(_LONGEST_WAIT_S)
                self._round(only_bells=self.signal.is_only_bell)
        except Exception as error:
            _log.exception("the DDS pump stopped")
            self._failure = error

    def _round(self, *, only_bells: bool) -> None:
        with self._lock:
            sources = [each for each in self._sources.items() if each[1].has_bell or not only_bells]
        for name, source in sources:
            with source.work:
                with self._lock:
                    if name not in self._sources or self._stopping:
                        continue
                    batch = source.take()
                if batch:
                    self._sink(name, batch)

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
