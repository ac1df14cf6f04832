"""The frame of a node or a persistence service: one thread decides, and the others send it tasks."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from engine.dds.activity import ThreadActivities
from engine.dds.discovery import Discovery, TopicDiscovery
from engine.dds.waiting import Pump

if TYPE_CHECKING:
    from engine.dds.activity import Work
    from engine.dds.participant import NodeParticipant
    from engine.dds.waiting import Signal, Take

Handler = Callable[[Sequence[Any]], None]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_OWN_MAPPING_BYTES: Final = 4 << 20
_KEPT_BYTES: Final = 16 << 20

MAX_WAITING: Final = 1000
"""Limit for waiting batches of a pump; at the limit the pump waits, and DDS makes senders wait."""


class Mailbox:
    """Tasks from any thread, which the owning thread carries out in order."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(MAX_WAITING)
        self._first: Callable[[], None] | None = None

    def post(self, task: Callable[[], None]) -> None:
        """Add a task."""
        self._tasks.put(task)

    def wake(self) -> None:
        """Wake the owner."""
        self.post(_nothing)

    def post_batch(self, handler: Handler, batch: Sequence[Any]) -> None:
        """Add a batch of a pump for its handler; block while `MAX_WAITING` batches wait."""

        def handle() -> None:
            self._room.release()
            handler(batch)

        self._room.acquire()
        self.post(handle)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a task, for at most `timeout_s`."""
        if self._first is None and timeout_s > 0:
            with contextlib.suppress(queue.Empty):
                self._first = self._tasks.get(timeout=timeout_s)

    @property
    def is_empty(self) -> bool:
        """Whether no task waits."""
        return self._first is None and self._tasks.empty()

    def carry_out(self) -> None:
        """Carry out the tasks that wait now. If a task raises, the error passes on and later tasks stay."""
        count = self._tasks.qsize()
        first, self._first = self._first, None
        if first is not None:
            first()
        for _ in range(count):
            self._tasks.get_nowait()()


def give_memory_back() -> None:
    """Let the C library return the memory of large samples to the system as soon as they are freed.

    By default it gets used to large pieces, and then keeps up to 64 MiB of free memory in each of its arenas.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def ignore(batch: Sequence[Any]) -> None:
    """Do nothing: the handler of a source that only wakes the owner."""


def _nothing() -> None:
    """Do nothing: the task that only wakes the owner."""


class ThreadedPart(Protocol):
    """A part with its own thread, which may fail."""

    @property
    def fault(self) -> BaseException | None:
        """The error that ended the thread, or None."""


class Shell:
    """The frame of one process.

    Args:
        name: name of its thread's work for the deadlock watch.
        what: noun for the process in error messages.
        fault: exception class for the end of a part.

    Attributes:
        mailbox: tasks for its own thread.
        activities: the work of all threads, for the deadlock watch.
        work: the work of its own thread.
        stack: closes everything at the end.
        stop_reason: reason for the requested end, or None.
        pump, discovery, topics: those of the participant in the domain.
    """

    pump: Pump
    discovery: Discovery
    topics: TopicDiscovery

    def __init__(self, name: str, what: str, fault: type[Exception]) -> None:
        self.mailbox = Mailbox()
        self.activities = ThreadActivities()
        self.work = self.activities.work(name)
        self.stack = contextlib.ExitStack()
        self.stop_reason: str | None = None
        self._what = what
        self._fault = fault
        self._handlers: dict[str, Handler] = {}
        self._parts: list[ThreadedPart] = []

    def request_stop(self, reason: str) -> None:
        """Request an orderly end. Any thread and a signal handler may call this."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.mailbox.wake()

    def join(self, participant: NodeParticipant) -> NodeParticipant:
        """Join the domain with a participant; make its pump and discovery, and close them with `stack`."""
        self.stack.enter_context(participant)
        self.pump = Pump(participant, self._from_pump, self.activities)
        self.stack.callback(self.pump.stop)
        self.discovery = Discovery(participant, self.signal)
        self.topics = TopicDiscovery(participant, self.signal)
        self.rely_on(self.pump)
        return participant

    @property
    def signal(self) -> Signal:
        """The signal that wakes the pump."""
        return self.pump.signal

    def listen(self, name: str, take: Take, handler: Handler = ignore, *, has_bell: bool = False) -> None:
        """Add a source whose batches the process's own thread handles.

        Args:
            name: the source's name for the deadlock watch.
            take: takes a batch, on the pump's thread.
            handler: handles it, on the process's thread.
            has_bell: see `Pump.add`.
        """
        self._handlers[name] = handler
        self.pump.add(name, take, has_bell=has_bell)

    def rely_on(self, *parts: ThreadedPart) -> None:
        """Make the process end if one of these parts fails."""
        self._parts += parts

    def carry_out(self) -> None:
        """Carry out the tasks that wait now.

        Raises:
            Exception: of class `fault`: a part has failed.
        """
        self.mailbox.carry_out()
        for part in self._parts:
            if part.fault is not None:
                raise self._fault(f"a thread of the {self._what} ended: {part.fault!r}") from part.fault

    def _from_pump(self, source: str, batch: Sequence[Any]) -> None:
        self.mailbox.post_batch(self._handlers[source], batch)


class Watchdog:
    """The deadlock watch: it finds activities that take too long for one piece of work, and renews the lease.

    Its thread reports an activity that exceeds its limit (see `engine.dds.activity`); with
    //DurabilityService/Watchdog/deadlockDetection it then withholds the lease towards the supervisor until
    the activity moves again, and the supervisor applies the FailureAction (deployment guide 5.5.1).
    Activities without `withholds` are only reported: ending the process would do more harm than they do.

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
