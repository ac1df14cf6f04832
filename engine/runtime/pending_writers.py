"""Durable writers of clients that may still hand over samples, and the tombstones that wait for them.

A sample that is handed over after its instance was disposed and forgotten would count as new. So a durable
writer tells the nodes, again and again, the source time of the earliest sample that it has not handed over
yet, and tombstones of its groups stay from that time on. A writer that falls silent without a good-bye is cut
off, or its application has died; it is waited for as long as it said. Heartbeats tell fellows, which may not
hear it, and the store tells the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine.core.expressions import matches
from engine.core.messages import Pending
from engine.core.name_spaces import Group
from engine.core.purging import FOREVER_NS
from engine.core.settings import PendingWriter
from engine.core.untrusted import json_reader
from engine.runtime.shared_state import SharedState

# Chosen: applications with durable writers are tens. Each message of a stranger could add one.
MAX_WRITERS: Final = 10_000
"""Limit for the known writers; further ones are not waited for."""
# Chosen: each heartbeat carries them, some 60 bytes each.
MAX_TOLD: Final = 50
"""Limit for the writers that a heartbeat names; beyond it one entry stands for all."""
# Ten of its messages, and the default lease of Cyclone DDS.
SILENT_S: Final = 10.0
"""Seconds after which a writer, which tells of itself each second, is silent."""
# Each note is a write to the disk; after a restart the silence counts as shorter by this at most.
STORED_SILENT_S: Final = 600.0
"""Seconds of a writer's silence after which its length is stored again."""
# Any of that size would do: fellows hear of an end within some heartbeats.
MAX_ENDED: Final = 1_000
"""Limit for the ended writers that are remembered; the oldest are forgotten."""
# A write a minute for each writer. A smaller step writes more, a larger one keeps tombstones longer after a
# restart.
STORED_NS: Final = 60_000_000_000
"""Change of a writer's time that is stored; a stored time that is too early keeps tombstones for longer."""
_MARK: Final = "pending "
_read: Final = json_reader(PendingWriter)


def pending_writers(marks: Mapping[str, str]) -> list[PendingWriter]:
    """Return the writers in the marks of a name-space, without damaged ones."""
    found = []
    for name, text in marks.items():
        if name.startswith(_MARK) and text:
            try:
                found.append(_read(text))
            except ValueError:  # a damaged mark: its client tells of itself again
                continue
    return found


class PendingWriters:
    """The durable writers that may still hand over samples.

    Heartbeats tell them to fellows, so that the newest word of a writer counts on all nodes.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        now = shared.clock.monotonic()
        stored = {writer.id: writer for writer in shared.settings.pending}
        self._stored = stored.copy()
        self._known = {name: writer for name, writer in stored.items() if writer.since_ns < FOREVER_NS}
        self._ended = {name: writer for name, writer in stored.items() if writer.since_ns >= FOREVER_NS}
        self._heard_s = {name: now - writer.silent_s for name, writer in self._known.items()}
        self._silent: set[str] = set()

    def heard(self, writer: PendingWriter) -> None:
        """Take what a writer tells of itself."""
        if writer.id not in self._known and len(self._known) >= MAX_WRITERS:
            return
        since_ns = min(writer.since_ns, self._shared.clock.wall_ns())
        self._ended.pop(writer.id, None)
        self._remember(msgspec.structs.replace(writer, since_ns=since_ns))

    def _remember(self, writer: PendingWriter) -> None:
        self._known[writer.id] = writer
        self._heard_s[writer.id] = self._shared.clock.monotonic()
        self._silent.discard(writer.id)
        stored = self._stored.get(writer.id)
        if stored is None or stored.silent_s or not 0 <= writer.since_ns - stored.since_ns < STORED_NS:
            self._store(writer)

    def ended(self, writer: str) -> None:
        """Forget a writer that has nothing to hand over any more, and will not come back.

        Its end is remembered for fellows that are away now.
        """
        known = self._forget(writer)
        if known is not None:
            self._ended[writer] = msgspec.structs.replace(known, since_ns=FOREVER_NS, silent_s=0.0)
            self._store(self._ended[writer])
        while len(self._ended) > MAX_ENDED:
            self._store(self._ended.pop(next(iter(self._ended))), is_kept=False)

    def _forget(self, writer: str) -> PendingWriter | None:
        self._heard_s.pop(writer, None)
        self._silent.discard(writer)
        return self._known.pop(writer, None)

    def _store(self, writer: PendingWriter, *, is_kept: bool = True) -> None:
        """Store what is known of a writer, or remove it from the store."""
        if is_kept:
            self._stored[writer.id] = writer
        else:
            self._stored.pop(writer.id, None)
        value = msgspec.json.encode(writer).decode() if is_kept else None
        states = [
            self._shared.core.name_space_of(Group(partition, writer.topic)) for partition in writer.partitions
        ]
        for name in sorted({state.name for state in states if state is not None} or self._shared.spaces):
            self._shared.store_queue.mark(name, {f"{_MARK}{writer.id}": value})

    def work(self, now: float) -> None:
        """Hear what fellows know, tell of writers that have fallen silent, and give up those long silent."""
        if not self._known:
            return
        for told in self._told_by_fellows():
            known = self._known.get(told.writer)
            if known is not None and told.since_ns >= FOREVER_NS:
                self.ended(told.writer)
            elif known is not None and told.since_ns > known.since_ns:
                self._remember(msgspec.structs.replace(known, since_ns=told.since_ns))
        for name, heard_s in list(self._heard_s.items()):
            self._judge(name, now - heard_s)

    def _judge(self, name: str, silent_s: float) -> None:
        known = self._known[name]
        if silent_s > known.wait_s:
            self._shared.tracer.event("pending.given-up", writer=name, topic=known.topic)
            self._forget(name)
            self._store(known, is_kept=False)
        elif silent_s > SILENT_S and name not in self._silent:
            self._silent.add(name)
            self._shared.tracer.event(
                "pending.silent", writer=name, topic=known.topic, wait_ns=int(known.wait_s * 1e9)
            )
        elif silent_s - self._stored[name].silent_s > STORED_SILENT_S:
            self._store(msgspec.structs.replace(known, silent_s=silent_s))

    def _told_by_fellows(self) -> list[Pending]:
        known = [fellow.status for fellow in self._shared.core.fellows if fellow.status is not None]
        return [pending for status in known for pending in status.pending]

    def for_heartbeat(self) -> tuple[Pending, ...]:
        """Return what heartbeats tell: the known writers, and the end of those that fellows wait for."""
        if not (self._known or self._ended):
            return ()
        if len(self._known) > MAX_TOLD:
            earliest_ns = min(writer.since_ns for writer in self._known.values())
            told = [Pending("*", "*", ("*",), earliest_ns)]
        else:
            told = [
                Pending(one.id, one.topic, one.partitions, one.since_ns)
                for _, one in sorted(self._known.items())
            ]
        awaited = {one.writer for one in self._told_by_fellows() if one.since_ns < FOREVER_NS}
        ended = sorted(awaited & self._ended.keys())[:MAX_TOLD]
        return (*told, *(Pending(name, "", (), FOREVER_NS) for name in ended))

    def since_ns(self, group: Group) -> int:
        """Return the source time from which the tombstones of a group stay, by what all nodes know."""
        newest: dict[str, int] = {}
        for one in (*self._told_by_fellows(), *self.for_heartbeat()):
            is_end = one.since_ns >= FOREVER_NS
            is_of_group = matches(one.topic, group.topic) and any(
                matches(partition, group.partition) for partition in one.partitions
            )
            if one.writer == "*" and is_of_group:
                newest["*"] = min(newest.get("*", FOREVER_NS), one.since_ns)
            elif one.writer not in self._ended and (is_of_group or is_end):
                newest[one.writer] = max(newest.get(one.writer, 0), one.since_ns)
        return min(newest.values(), default=FOREVER_NS)
