"""How far what a writer wrote has been stored here: the node's part of `wait_for_durable`.

A sample is *captured* when the node has taken it out of its tap. It is *stored* when the node keeps it as its
policy demands: in a complete set, and on the disk where the group is persistent there. Everything is handed
to the disk in order, so what was captured at one moment is stored once the disk has carried out what was
handed over at that moment.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from engine.core.states import Phase
from engine.dds.cdr import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.clients.held import Interest
    from engine.core.namespace import NameSpaceState
    from engine.runtime.runtime import CapturedRun, CapturedSample, Runtime

DRAINS: Final = 8
"""Rounds of draining after which everything that was in a tap before the first one has been taken out."""
MAX_WRITERS: Final = 65_536
"""Writers whose last sample is remembered; of the others only what is still in the set is known."""
_WRITER_BYTES: Final = 16


@dataclasses.dataclass(slots=True)
class StorageQuestion:
    """Is what `writer` wrote up to `until_ns` stored? Without a writer: all that had arrived.

    Attributes:
        drains: rounds still to come until everything that had arrived is captured.
        barrier: what the disk must have carried out, once that is known.
    """

    writer: bytes
    until_ns: int | None
    drains: int = DRAINS
    barrier: int | None = None

    @classmethod
    def parse(cls, values: Any) -> StorageQuestion:
        """From our addition to a state request.

        Raises:
            Malformed: it is not one.
        """
        try:
            writer, until_ns = bytes.fromhex(values["writer"]), values["until_ns"]
        except (TypeError, KeyError, ValueError):
            raise Malformed("our addition asks for no writer") from None
        if len(writer) not in (0, _WRITER_BYTES) or not isinstance(until_ns, int | None):
            raise Malformed("our addition asks for no writer")
        return cls(writer, until_ns)


class Storage:
    """Knows what was captured last of each writer, and how far the disk is."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._newest_ns: dict[bytes, int] = {}
        self._unrouted: set[bytes] = set()
        self.drains = 0

    def captured(
        self, records: Sequence[CapturedSample | CapturedRun], unrouted: Sequence[CapturedSample]
    ) -> None:
        """The node took these out of a tap; of `unrouted` the writer is not known yet."""
        self._unrouted = {record[1] for record in unrouted}
        newest = self._newest_ns
        for record in records:
            if isinstance(record, tuple):
                time_ns, writer, *_ = record
            else:
                time_ns, writer = max(record.times_ns), record.writer
            if newest.get(writer, -1) < time_ns:
                newest[writer] = time_ns
        while len(newest) > MAX_WRITERS:
            del newest[next(iter(newest))]

    def drained(self) -> None:
        """The node looked at all its taps."""
        self.drains += 1

    def must_drain(self, question: StorageQuestion) -> bool:
        """Whether something may still be in the taps that was there when the question came."""
        return self.drains < question.drains

    def required(self, states: list[NameSpaceState]) -> bool:
        """Whether this node must store something of these name-spaces."""
        return any(
            state.phase is not Phase.PASSIVE and state.policy.durability.value not in _NOT_KEPT
            for state in states
        )

    def missing(self, question: StorageQuestion, states: list[NameSpaceState], interest: Interest) -> str:
        """Why the answer is not yes yet; empty when it is. Asked again and again, with the same question."""
        if self.must_drain(question):
            return "what has arrived is being taken in"
        for state in states:
            data = self._runtime.spaces[state.name]
            if state.phase is not Phase.PASSIVE and not (state.complete and data.is_switched):
                return f"name-space '{state.name}' is not complete"
        if question.writer in self._unrouted or (not question.writer and self._unrouted):
            return "a writer is not known yet"
        until_ns = question.until_ns
        if question.barrier is None and until_ns is not None:
            newest_ns = self._newest(question.writer, states, interest)
            if newest_ns < until_ns:
                return f"the newest sample here is of {newest_ns} ns"
        return self._behind_disk(question)

    def _behind_disk(self, question: StorageQuestion) -> str:
        persistence = self._runtime.persistence
        if persistence.problem:
            question.barrier = None
            return f"the disk refuses: {persistence.problem}"
        if persistence.is_overflowed:
            question.barrier = None
            return "the disk is behind"
        if question.barrier is None:
            question.barrier = persistence.handed_over
        return "" if persistence.carried_out >= question.barrier else "the disk is behind"

    def _newest(self, writer: bytes, states: list[NameSpaceState], interest: Interest) -> int:
        """The newest source time of a writer that was captured in this run or is in the sets."""
        newest_ns = self._newest_ns.get(writer, -1) if writer else -1
        if newest_ns >= 0:
            return newest_ns
        for state in states:
            for group, group_set in self._runtime.spaces[state.name].working.groups.items():
                if interest.wants(group):
                    times = (s.source_time_ns for s in group_set.samples() if writer in (b"", s.writer))
                    newest_ns = max(newest_ns, max(times, default=-1))
        return newest_ns


_NOT_KEPT: Final = ("Volatile", "Transient_Local")
