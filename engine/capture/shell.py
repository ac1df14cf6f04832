"""The frame of a node or a persistence service: one thread decides, and the others send it tasks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from engine.capture.mailbox import Handler, Mailbox, ignore
from engine.dds.activity import ThreadActivities
from engine.dds.discovery import Discovery, TopicDiscovery
from engine.dds.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dds.participant import NodeParticipant
    from engine.dds.pump import Take
    from engine.dds.waiting import Signal


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
