"""What a DurableWriter tells the nodes, so that they do not forget disposed instances too early."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from engine.dds.errors import DdsTimeout
from ospltool.client.asking import state_request
from ospltool.client.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospltool.client.session import Session

PENDING_S: Final = 1.0
"""Seconds between two notices while something is pending."""
IDLE_S: Final = 5.0
"""Seconds between two notices while nothing is."""
JOURNAL_WAIT_S: Final = 86_400.0
"""Seconds for which nodes wait for a silent writer that has a journal."""
MEMORY_WAIT_S: Final = 600.0
"""Seconds for which nodes wait for a silent writer without a journal, which may be cut off."""


class PendingNotice:
    """Tells all nodes, again and again, since when samples of a writer may still be handed over.

    Args:
        session: the client's session.
        topic: name of the writer's topic.
        partitions: its partitions.
        identity: names the writer, or its journal in every run.
        wait_s: seconds for which nodes wait for the writer when it is silent.
    """

    def __init__(
        self, session: Session, topic: str, partitions: Sequence[str], identity: str, wait_s: float
    ) -> None:
        self._session = session
        self._topic = topic
        self._partitions = tuple(partitions)
        self._values = {"id": identity, "wait_s": wait_s}
        self._due_s = 0.0
        self._told: frozenset[bytes] = frozenset()

    @property
    def left_s(self) -> float:
        """Seconds until it is due."""
        return self._due_s - time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether to tell again: some time has passed, or there is a new node."""
        return self.left_s <= 0 or not self._session.state_services() <= self._told

    def tell(self, since_ns: int | None, *, is_idle: bool = False) -> None:
        """Tell the nodes.

        Args:
            since_ns: source time of the earliest sample that may be handed over, nanoseconds since 1970 UTC;
                None if there will be no more.
            is_idle: nothing is pending now.
        """
        values = {"pending": {**self._values, "since_ns": since_ns}}
        with self._session.lock, contextlib.suppress(DdsTimeout):  # a service that accepts nothing vanishes
            self._session.check()
            self._told = self._session.state_services()
            self._due_s = time.monotonic() + (IDLE_S if is_idle else PENDING_S)
            make = state_request(self._topic, self._partitions, values=values)
            self._session.forget(self._session.ask(make))

    def end(self) -> None:
        """Tell the nodes that nothing will be handed over any more, if they can be reached."""
        with contextlib.suppress(Closed):
            self.tell(None)
