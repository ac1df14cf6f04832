"""The frame of a node or a persistence service: one thread decides, and the others bring it news."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from engine.capture.mailbox import Handler, Mailbox, ignore
from engine.dds.activity import Activities
from engine.dds.discovery import Discovery, TopicDiscovery
from engine.dds.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dds.participant import NodeParticipant
    from engine.dds.pump import Take
    from engine.dds.waiting import Signal


class Part(Protocol):
    """Something with a thread of its own, which may end."""

    @property
    def fault(self) -> BaseException | None:
        """What ended it, None while it runs."""


class Shell:
    """The frame of one process.

    Args:
        name: of its own thread, for the deadlock watch.
        what: what it is called when a part of it ends.
        fault: what is raised then.

    Attributes:
        mailbox: tasks for its own thread.
        activities: where threads say what they are busy with.
        work: what its own thread is busy with.
        stack: what is to be closed in the end.
        stop_reason: why it is to end, None while it is not.
        pump, discovery, topics: of the participant with which it has joined the domain.
    """

    pump: Pump
    discovery: Discovery
    topics: TopicDiscovery

    def __init__(self, name: str, what: str, fault: type[Exception]) -> None:
        self.mailbox = Mailbox()
        self.activities = Activities()
        self.work = self.activities.work(name)
        self.stack = contextlib.ExitStack()
        self.stop_reason: str | None = None
        self._what = what
        self._fault = fault
        self._handlers: dict[str, Handler] = {}
        self._parts: list[Part] = []

    def request_stop(self, reason: str) -> None:
        """End in order. May be called from a signal handler and from any thread."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.mailbox.wake()

    def join(self, participant: NodeParticipant) -> NodeParticipant:
        """Have a participant, its pump and its discovery; they are closed with the rest."""
        self.stack.enter_context(participant)
        self.pump = Pump(participant, self._from_pump, self.activities)
        self.stack.callback(self.pump.stop)
        self.discovery = Discovery(participant, self.signal)
        self.topics = TopicDiscovery(participant, self.signal)
        self.rely_on(self.pump)
        return participant

    @property
    def signal(self) -> Signal:
        """What wakes the pump."""
        return self.pump.signal

    def listen(self, name: str, take: Take, handler: Handler = ignore, every_s: float = 0.0) -> None:
        """Have what `take` has handled on the process's own thread; see `Pump.add`."""
        self._handlers[name] = handler
        self.pump.add(name, take, every_s)

    def rely_on(self, *parts: Part) -> None:
        """The process ends where one of these ends by itself."""
        self._parts += parts

    def carry_out(self) -> None:
        """Carry out what waits now.

        Raises:
            Exception: what was given as `fault`: a part has ended.
        """
        self.mailbox.carry_out()
        for part in self._parts:
            if part.fault is not None:
                raise self._fault(f"a thread of the {self._what} ended: {part.fault!r}") from part.fault

    def _from_pump(self, source: str, batch: Sequence[Any]) -> None:
        self.mailbox.post_batch(self._handlers[source], batch)
