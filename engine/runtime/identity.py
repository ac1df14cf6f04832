"""Telling that another process has the id of this node, as after copying its store to another machine."""

from __future__ import annotations

from engine.core.messages import Message, Status
from engine.core.states import ServiceState
from engine.tracing.tracer import Tracer

_ENDING = (ServiceState.TERMINATING, ServiceState.TERMINATED)


class SharedIdentity:
    """Reports processes that send messages in the name of this node.

    A process that ends may still send when the next one on its store has started; it says that it ends.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._told: set[int] = set()

    def heard(self, message: Message) -> None:
        """Take a message of another participant that has this node's id; heartbeats show that it lives."""
        if not isinstance(message, Status) or message.state in _ENDING or message.incarnation in self._told:
            return
        self._told.add(message.incarnation)
        self._tracer.event("identity.shared", fellow=message.name, host=message.host)

    def ended(self) -> None:
        """Note that the last participant that had this node's id is gone."""
        if self._told:
            self._told.clear()
            self._tracer.event("identity.unique")
