"""The tracer: it takes events from every part of a node and passes them to outputs and subscribers.

Messages of others can cause some events any number of times. Of these (`EventType.burst`) the logs contain
the first ones, then LINES_A_MINUTE, and once a minute the number of those left out: nobody can fill a disk
from outside, or hide other events. Subscribers, which have bounds of their own, get all.

An unwanted event costs one dictionary lookup. Tracing never stops a node: the tracer counts lines that it
cannot write, and reports them in the same trace once it can write again.
"""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from engine.tracing.catalogue import catalogue
from engine.tracing.escaping import escape
from engine.tracing.levels import Level
from engine.tracing.record import EventRecord, TextFormat, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.tracing.catalogue import EventType
    from engine.tracing.record import Format
    from engine.tracing.sinks import Sink

    Subscriber = Callable[[EventRecord], None]

INITIAL_STATE: Final = "INIT"
# With some 200 characters each a stranger adds 3 MB a day to the trace for each kind of event.
LINES_A_MINUTE: Final = 10
"""Lines of an event that others can cause, after the first ones."""
_MINUTE_NS: Final = 60_000_000_000
# Chosen: some minutes of a busy node at INFO, about a megabyte.
RECENT_RECORDS: Final = 2000
"""Default number of the last records that a tracer keeps in memory."""


class Output(msgspec.Struct):
    """A sink with the format and the verbosity of its lines.

    Attributes:
        lost: number of lines lost since the last one that was written.
        cause: the error of the last lost line.
    """

    sink: Sink
    verbosity: Level = Level.INFO
    format: Format = msgspec.field(default_factory=TextFormat)
    lost: int = 0
    cause: str = ""


class _Bound(msgspec.Struct):
    """How many lines of an event may still be written, and how many were withheld since the last report."""

    left: int
    filled_ns: int
    withheld: int = 0

    def admits(self, burst: int, now_ns: int) -> bool:
        """Count one more line; return whether it may be written."""
        minutes = abs(now_ns - self.filled_ns) // _MINUTE_NS  # a clock may be set back
        if minutes:
            self.left, self.filled_ns = min(burst, self.left + minutes * LINES_A_MINUTE), now_ns
        is_admitted = self.left > 0
        self.left -= is_admitted
        self.withheld += not is_admitted
        assert 0 <= self.left <= burst
        return is_admitted


class Tracer:
    """The trace of one node.

    Safe to call from any thread. Outputs and the memory of recent records get all events in one order.
    Subscribers are called on the thread that traced, outside the lock, and must not block: events of two
    threads may reach them in another order than that of `EventRecord.sequence`.

    Args:
        clock: wall clock, nanoseconds since 1970 UTC.
        outputs: the sinks of lines.
        recent_level: records of this level and above are kept in memory, independent of the outputs.
        recent_limit: number of records to keep in memory.
        state: the service state before the first change.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        outputs: Iterable[Output] = (),
        *,
        recent_level: Level = Level.FINE,
        recent_limit: int = RECENT_RECORDS,
        state: str = INITIAL_STATE,
    ) -> None:
        self._clock = clock
        self._outputs = tuple(outputs)
        self._recent_level = recent_level
        self._recent: collections.deque[EventRecord] = collections.deque(maxlen=recent_limit)
        self._state = state
        self._sequence = 0
        # Any thread traces; the number and the time of an event must have the same order on every output.
        self._lock = threading.RLock()
        self._subscribers: dict[object, tuple[Subscriber, Callable[[EventType], bool]]] = {}
        self._catalogue = catalogue()
        self._wanted: dict[str, EventType] = {}
        self._closed = False
        self._bounds: dict[str, _Bound] = {}
        self._withheld_ns: int | None = None
        """When the first line was withheld of those that have not been reported."""
        self._refresh_wanted()

    @property
    def state(self) -> str:
        """The service state in the STATE column."""
        return self._state

    def enter(self, state: str) -> None:
        """Change the service state, and trace leaving and entering, as OpenSplice does."""
        if state == self._state:  # as with nearly every turn of a node
            return
        with self._lock:
            # Two blank lines separate the states in OpenSplice's traces, and its tools expect them.
            self.event_with_lines("lifecycle.leaving-state", ("", ""))
            self._state = state
            self.event("lifecycle.entering-state")

    def event(self, event_id: str, /, **fields: object) -> None:
        """Trace an event of the catalogue with the values of its fields.

        Raises:
            UnknownEventError: the catalogue has no such event.
            EventFieldsError: the fields are not those of the event (only found if the event is wanted; a
                test of the whole source finds it always).
        """
        kind = self._wanted.get(event_id)
        if kind is not None:
            self._publish(kind, fields, ())
        else:
            _ = self._catalogue[event_id]  # an unknown event is a bug, whether it is wanted or not

    def event_with_lines(self, event_id: str, lines: Iterable[str], /, **fields: object) -> None:
        """Trace an event with continuation lines, such as the configuration at the start.

        `event_id` names an event of the catalogue, `fields` are those of its text.
        """
        kind = self._wanted.get(event_id)
        if kind is not None:
            self._publish(kind, fields, tuple(map(escape, lines)))
        else:
            _ = self._catalogue[event_id]

    def wants(self, event_id: str) -> bool:
        """Tell whether this event is wanted now, for callers whose fields are costly to compute."""
        return event_id in self._wanted

    def subscribe(
        self, callback: Subscriber, wanted: Level | Callable[[EventType], bool] = Level.INFO
    ) -> Callable[[], None]:
        """Call `callback` with every record of a level and above, or of chosen events.

        A callback that raises is removed, and that is traced. Return the call that ends the subscription.
        """
        token, level = object(), wanted
        choice = (lambda kind: kind.level >= level) if isinstance(level, Level) else level
        with self._lock:
            self._subscribers[token] = callback, choice
            self._refresh_wanted()
        return lambda: self._unsubscribe(token)

    def recent(self) -> tuple[EventRecord, ...]:
        """Return the last records, oldest first."""
        with self._lock:
            return tuple(self._recent)

    def close(self) -> None:
        """Close the outputs; later events are kept in memory only. Idempotent."""
        self._report_withheld()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._refresh_wanted()
            for output in self._outputs:
                try:
                    output.sink.close()
                except OSError as error:
                    output.cause = str(error)

    def _unsubscribe(self, token: object) -> None:
        with self._lock:
            self._subscribers.pop(token, None)
            self._refresh_wanted()

    def _refresh_wanted(self) -> None:
        outputs = () if self._closed else self._outputs
        lowest = min((self._recent_level, *(output.verbosity for output in outputs)))
        choices = [choice for _, choice in self._subscribers.values()]
        self._wanted = {
            kind.id: kind
            for kind in self._catalogue.values()
            if kind.level >= lowest or any(choice(kind) for choice in choices)
        }

    def _publish(self, kind: EventType, fields: dict[str, object], lines: tuple[str, ...]) -> None:
        text = message(kind, fields)
        with self._lock:
            self._sequence += 1
            now_ns = self._clock()
            bound = self._bounds.setdefault(kind.id, _Bound(kind.burst, now_ns)) if kind.burst else None
            is_withheld = bound is not None and not bound.admits(kind.burst, now_ns)
            if is_withheld and self._withheld_ns is None:
                self._withheld_ns = now_ns
            record = EventRecord(self._sequence, now_ns, self._state, kind, fields, text, lines, is_withheld)
            if kind.level >= self._recent_level:
                self._recent.append(record)
            if not self._closed and not is_withheld:
                for output in self._outputs:
                    if kind.level >= output.verbosity:
                        self._write(output, record)
            subscribers = tuple(self._subscribers.items()) if self._subscribers else ()
        for token, (callback, choice) in subscribers:
            if not choice(kind):
                continue
            try:
                callback(record)
            except Exception as error:  # of any class: a fault of a subscriber must not end the node
                self._unsubscribe(token)
                self.event("trace.subscriber-failed", cause=f"{type(error).__name__}: {error}")
        if self._withheld_ns is not None and abs(now_ns - self._withheld_ns) >= _MINUTE_NS:
            self._report_withheld()

    def _report_withheld(self) -> None:
        """Trace how many lines of each event were withheld since the last report."""
        with self._lock:
            self._withheld_ns = None
            counts = {event: bound.withheld for event, bound in self._bounds.items() if bound.withheld}
            for event in counts:
                self._bounds[event].withheld = 0
        for event, count in counts.items():
            self.event("trace.withheld", kind=event, count=count)

    def _write(self, output: Output, record: EventRecord) -> None:
        try:
            if output.lost:
                kind, fields = self._catalogue["trace.lost"], {"count": output.lost, "cause": output.cause}
                loss = msgspec.structs.replace(
                    record, event=kind, fields=fields, text=message(kind, fields), lines=()
                )
                output.sink.write(output.format(loss))
                output.lost = 0
            output.sink.write(output.format(record))
        except OSError as error:
            output.lost += 1
            output.cause = str(error)
