"""Durable writers of clients that may still hand over samples, and the tombstones that wait for them.

A sample that is handed over after its instance was disposed and forgotten would count as new. So a durable
writer tells the nodes, again and again, the source time of the earliest sample that it has not handed over
yet, and tombstones of its groups stay from that time on. A writer that falls silent without a good-bye is cut
off, or its application has died; it is waited for as long as it said. Heartbeats tell fellows, which may not
hear it, and the store tells the next run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from engine.core import plain
from engine.core.expressions import matches
from engine.core.messages import Pending
from engine.core.name_spaces import Group
from engine.core.purging import FOREVER_NS
from engine.core.settings import PendingWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.runtime.shared import SharedState

MAX_WRITERS: Final = 10_000
"""Limit for the known writers; further ones are not waited for."""
MAX_TOLD: Final = 50
"""Limit for the groups that a heartbeat names; beyond it one entry stands for all."""
SILENT_S: Final = 10.0
"""Seconds after which a writer, which tells of itself each second, is silent."""
STORED_NS: Final = 60_000_000_000
"""Change of a writer's time that is stored; a stored time that is too early keeps tombstones for longer."""
_MARK: Final = "pending "


def pending_writers(marks: Mapping[str, str]) -> list[PendingWriter]:
    """Return the writers in the marks of a name-space, without damaged ones."""
    found = []
    for name, text in marks.items():
        if name.startswith(_MARK) and text:
            try:
                found.append(plain.from_json(PendingWriter, text))
            except ValueError:
                continue
    return found


class PendingWriters:
    """The durable writers that may still hand over samples."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        now = shared.clock.monotonic()
        self._known = {writer.id: writer for writer in shared.settings.pending}
        self._stored = dict(self._known)
        self._heard_s = dict.fromkeys(self._known, now)
        self._silent: set[str] = set()

    def heard(self, writer: PendingWriter) -> None:
        """Take what a writer tells of itself."""
        if writer.id not in self._known and len(self._known) >= MAX_WRITERS:
            return
        self._known[writer.id] = writer
        self._heard_s[writer.id] = self._shared.clock.monotonic()
        self._silent.discard(writer.id)
        stored = self._stored.get(writer.id)
        if stored is None or not 0 <= writer.since_ns - stored.since_ns < STORED_NS:
            self._store(writer, json.dumps(plain.to_plain(writer)))
            self._stored[writer.id] = writer

    def ended(self, writer: str) -> None:
        """Forget a writer that has nothing to hand over any more."""
        known = self._known.pop(writer, None)
        self._heard_s.pop(writer, None)
        self._silent.discard(writer)
        if known is not None and self._stored.pop(writer, None) is not None:
            self._store(known, None)

    def _store(self, writer: PendingWriter, text: str | None) -> None:
        states = [
            self._shared.core.name_space_of(Group(partition, writer.topic)) for partition in writer.partitions
        ]
        for name in sorted({state.name for state in states if state is not None}):
            self._shared.persistence.mark(name, {f"{_MARK}{writer.id}": text})

    def work(self, now: float) -> None:
        """Tell of writers that have fallen silent, and give up those that were silent for too long."""
        for writer, heard_s in list(self._heard_s.items()):
            known, silent_s = self._known[writer], now - heard_s
            if silent_s > known.wait_s:
                self._shared.tracer.event("pending.given-up", writer=writer, topic=known.topic)
                self.ended(writer)
            elif silent_s > SILENT_S and writer not in self._silent:
                self._silent.add(writer)
                self._shared.tracer.event(
                    "pending.silent", writer=writer, topic=known.topic, wait_ns=int(known.wait_s * 1e9)
                )

    def told(self) -> tuple[Pending, ...]:
        """Return what heartbeats tell of them."""
        earliest: dict[tuple[str, str], int] = {}
        for writer in self._known.values():
            for partition in writer.partitions:
                known_ns = earliest.get((partition, writer.topic), FOREVER_NS)
                earliest[partition, writer.topic] = min(known_ns, writer.since_ns)
        if len(earliest) > MAX_TOLD:
            return (Pending("*", "*", min(earliest.values())),)
        return tuple(Pending(*where, since_ns) for where, since_ns in sorted(earliest.items()))

    def since_ns(self, group: Group) -> int:
        """Return the source time from which the tombstones of a group stay, by what all nodes know."""
        fellows = [fellow.status for fellow in self._shared.core.fellows if fellow.status is not None]
        told = [pending for status in fellows for pending in status.pending]
        times = [
            one.since_ns
            for one in (*told, *self.told())
            if matches(one.partition, group.partition) and matches(one.topic, group.topic)
        ]
        return min(times, default=FOREVER_NS)
