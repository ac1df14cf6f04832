"""The frame of a node or a persistence service: one thread decides, and the others send it tasks."""

from __future__ import annotations

import contextlib
import ctypes
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from engine.dds.activity import BEAT_S, ThreadActivities
from engine.dds.discovery import Discovery, TopicDiscovery
from engine.dds.library_threads import LibraryThreads
from engine.dds.uri import announcement_period_s
from engine.dds.waiting import Pump

if TYPE_CHECKING:
    from engine.dds.activity import Work
    from engine.dds.participant import NodeParticipant
    from engine.dds.waiting import Signal, Take

Handler = Callable[[Sequence[Any]], None]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
# Between the batches of a stream (up to 1 MiB, which are used again) and large samples: below it each batch
# would cost a system call and page faults; above it freed large samples would stay with the process.
_OWN_MAPPING_BYTES: Final = 4 << 20
"""Pieces of memory from this size on are mappings of their own, which go back as soon as they are freed."""
# Several batches. Less gives back what the next batch asks for again; more is memory that an idle node
# holds in each arena.
_KEPT_BYTES: Final = 16 << 20
"""Free memory that an arena keeps at its end: batches of samples need it again at once."""

# Chosen: a batch is what one source had at one look, so a thousand are long work. The bound keeps a flood
# in the windows of DDS, where the sender feels it, instead of in our memory.
MAX_WAITING: Final = 1000
"""Limit for waiting batches of a pump; at the limit the pump waits, and DDS makes senders wait."""


class Mailbox:
    """Tasks from any thread, which the owning thread carries out in order."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Only batches of the pump take room: tasks of the node's own thread must never wait for it.
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
            # Nothing came in time: that is what the caller sees from the missing first task.
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
        # Only those that were there at the start: a task may post another, and the turn must end.
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
        watch: the deadlock watch, from `begin_watch` on.
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
        self.watch: Watchdog | None = None
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
        self._uri = participant.uri
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

    def begin_watch(
        self,
        trace: Callable[..., None],
        renew: Callable[[], None],
        period_s: float,
        *,
        detects: bool,
        lease_s: float = math.inf,
        hear: Callable[[], None] = lambda: None,
    ) -> Watchdog:
        """Begin to watch all threads of the process, and those of Cyclone DDS.

        Args:
            trace: see `Watchdog`, as for the next three.
            renew: renews the lease.
            period_s: time from one check to the next.
            detects: whether a stuck activity withholds the lease.
            lease_s: see `Watchdog`.
            hear: called before each look, to take in signs of life of others.
        """
        library = LibraryThreads(self.activities, announcement_period_s(self._uri))

        def sample() -> None:
            library.sample()
            hear()

        self.watch = Watchdog(
            self.activities, trace, renew, period_s, detects=detects, lease_s=lease_s, sample=sample
        )
        self.stack.callback(self.watch.close)
        self.watch.start()
        return self.watch

    def wait(self, timeout_s: float) -> None:
        """Wait for a task, for at most `timeout_s` or a beat, and watch the deadlock watch meanwhile."""
        self.mailbox.wait(min(timeout_s, BEAT_S))
        self.work.beat()
        if self.watch is not None:
            self.watch.watch_back()

    def _from_pump(self, source: str, batch: Sequence[Any]) -> None:
        self.mailbox.post_batch(self._handlers[source], batch)


# One period passes anyhow, the second allows for a late wake-up. More would blame the node for the time in
# which the whole process was stopped.
_LONGEST_GAP: Final = 2
"""Periods that count, at most, from one check to the next: in a longer gap the watch stood still itself."""
_WATCH: Final = "watch"
"""Name of the watch's own thread."""


class Watchdog:
    """The deadlock watch: it finds activities that take too long for one piece of work, and renews the lease.

    Its thread reports an activity that exceeds its limit (see `engine.dds.activity`); with
    //DurabilityService/Watchdog/deadlockDetection it then withholds the lease towards the supervisor until
    the activity moves again, and the supervisor applies the FailureAction (deployment guide 5.5.1).
    Activities without `withholds` are only reported: ending the process would do more harm than they do.

    It counts only time in which it looked itself: while the whole process stood still, or its machine slept,
    every thread stood still, and none of them hangs. The process's own thread watches this one in return
    (`watch_back`): without it nobody renews the lease, so it is reported after half of that.

    Args:
        activities: the activities of the process.
        trace: takes an event of the trace and its fields, as `engine.tracing.tracer.Tracer.event` does.
        renew: renews the lease.
        period_s: time from one check to the next.
        detects: whether a stuck activity withholds the lease.
        lease_s: time after which the lease is lost that is not renewed.
        sample: called before each check; it lets activities beat that do not do so by themselves.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        activities: ThreadActivities,
        trace: Callable[..., None],
        renew: Callable[[], None],
        period_s: float,
        *,
        detects: bool,
        lease_s: float = math.inf,
        sample: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sample = sample
        self._clock = clock
        self._quiet: dict[Work, _Quiet] = {}
        self._looks = 0
        self._back = _Quiet()
        self._is_back_told = False
        self._activities = activities
        self._trace = trace
        self._renew = renew
        self._period_s = period_s
        self._detects = detects
        self._lease_s = lease_s
        self._stuck: dict[Work, _Stuck] = {}
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
        # The thread ends within a period; with a second one for a loaded machine. It is a daemon, so one
        # that hangs does not keep the process.
        self._thread.join(timeout=2 * self._period_s)

    def _run(self) -> None:
        while True:
            self.check()
            if self._ended.wait(self._period_s):
                return

    def check(self) -> None:
        """Check once: report changes, and renew the lease unless it must be withheld."""
        self._looks += 1
        self._sample()
        now, longest_s = self._clock(), _LONGEST_GAP * self._period_s
        works = self._activities.all()
        self._quiet = {work: self._quiet.get(work) or _Quiet() for work in works}
        stuck: dict[Work, _Stuck] = {}
        for work in works:
            quiet_s = self._quiet[work].since(work.progress, now, longest_s)
            limit_s = work.limit_s
            if limit_s is not None and quiet_s >= limit_s:
                stuck[work] = self._stuck.get(work) or _Stuck(work.name, work.done)
        for work in stuck.keys() - self._stuck:
            self._tell_progress("watch.progress-lost", work, stuck[work])
        for work in self._stuck.keys() - stuck:
            self._tell_progress("watch.progress-back", work, self._stuck[work])
        self._stuck = stuck
        verdict = "NOK" if stuck else "OK"
        if verdict != self._verdict:
            self._verdict = verdict
            counts = ", ".join(f"{work.name} {work.done}" for work in works)
            self._trace("watch.threads", activities=counts, verdict=verdict)
        withholding = [one.name for work, one in self._stuck.items() if work.withholds]
        if withholding and self._detects:
            if not self._is_withheld:
                names = ", ".join(sorted(withholding))
                self._trace("watch.lease-withheld", activities=names)
            self._is_withheld = True
            return
        self._is_withheld = False
        self._renew()

    @property
    def stuck(self) -> tuple[str, ...]:
        """Names of the activities that were stuck at the last check."""
        watch = (_WATCH,) if self._is_back_told else ()
        return tuple(sorted((*(one.name for one in self._stuck.values()), *watch)))

    def quiet_s(self, work: Work) -> float:
        """Return for how long an activity had shown no progress at the last check."""
        quiet = self._quiet.get(work)
        return quiet.lasted_s if quiet else 0.0

    def watch_back(self) -> None:
        """Report that the watch itself stands still, or is back. The process's own thread calls this."""
        looks, longest_s = self._looks, max(BEAT_S, _LONGEST_GAP * self._period_s)
        quiet_s = self._back.since(looks, self._clock(), longest_s)
        # After a gap, in which all stood still, the watch has the time of a beat to show that it goes on.
        limit_s = max(longest_s + BEAT_S, min(self._activities.idle_s, self._lease_s / 2))
        if (quiet_s > limit_s) != self._is_back_told:
            self._is_back_told = not self._is_back_told
            event = "watch.progress-lost" if self._is_back_told else "watch.progress-back"
            self._trace(event, activity=_WATCH, tid=self._thread.native_id or 0, before=looks, after=looks)

    def _tell_progress(self, event: str, work: Work, stuck: _Stuck) -> None:
        self._trace(event, activity=stuck.name, tid=work.tid, before=stuck.done, after=work.done)


class _Stuck(NamedTuple):
    """An activity when it was found to be stuck; the name of one may change with what it does."""

    name: str
    done: int


class _Quiet:
    """For how long something has shown no progress, in time in which somebody looked."""

    def __init__(self) -> None:
        self._progress: object = None
        self._looked_s: float | None = None
        self.lasted_s = 0.0

    def since(self, progress: object, now_s: float, longest_s: float) -> float:
        """Take in a look; return the time without progress. A gap of more than `longest_s` counts as that."""
        if self._looked_s is None or progress != self._progress:
            self.lasted_s = 0.0
        else:
            self.lasted_s += min(now_s - self._looked_s, longest_s)
        self._progress, self._looked_s = progress, now_s
        return self.lasted_s
