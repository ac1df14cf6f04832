"""The writers with autodispose of one name-space, and which of those that nodes have lost have ended.

An autodispose writer (DDS 1.4, 2.2.3.21 WRITER_DATA_LIFECYCLE) that is deleted says so, and each node that
hears it knows the end. One that dies, or is deleted while no node listens, is only *missed*: it may be cut
off. All nodes know the autodispose writers of a name-space, so that any of them can miss one, and the store
remembers them. A node tells a new fellow of them at once, and tells of all that it knows before it gives a
set: otherwise nodes could have samples of a writer that none of them knows, and would never find its end.
While a node misses some for longer than it must wait, it tells so with each heartbeat. Once every node that
the master talks to misses a writer, the master says that it has ended. If the master is wrong because it was
cut off from a node that still had the writer, that node revives the instances afterwards
(`engine.runtime.writer_ends`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from engine.core.messages import AutodisposeWriter, WriterView

# Chosen: each is some hundred bytes, and a fellow may name any number.
MAX_WRITERS: Final = 100_000
"""Limit for the writers of a name-space; one more takes the place of one that is missed, whose data stays."""
# As the default lease of Cyclone DDS: a writer behind a cut of that length is not ended by the others.
PATIENCE_S: Final = 10.0
"""Time for which nodes must miss a writer before it counts as ended, or service_cleanup_delay if longer."""
FOREVER_S: Final = 1e12
"""Patience where service_cleanup_delay is infinite: the end of a lost writer stays each node's own view."""
# Some tens of kilobytes a message.
MAX_TOLD: Final = 1_000
"""Limit for the writers in one message; the others follow with the next ones."""
# Discovery takes a second or two with default settings; too short, and a writer that lives would count as
# missed, which is corrected when it is discovered.
DISCOVERED_S: Final = 3.0
"""Time for which a writer of which a fellow tells may be there, but not discovered yet."""
# Several expiry times: by then every fellow has heard of the end, or left.
ENDED_S: Final = 30.0
"""Time after the end of a writer in which a fellow may tell of it because it has not heard of the end yet."""
_GUID_BYTES: Final = 16


class _Entry(msgspec.Struct):
    """A writer, and since when this node has not had it; None while it has it.

    What a fellow tells of may be discovered within moments; what the store knows counts as missed until then.
    """

    patience_s: float
    missed_since_s: float | None
    is_stored: bool = False


class AutodisposeWriters:
    """The autodispose writers of a name-space that have not ended.

    Args:
        stored: those of the last run, none of which is here yet.
        now: monotonic time, seconds.
    """

    def __init__(self, stored: Iterable[AutodisposeWriter], now: float) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._ended_s: dict[bytes, float] = {}
        self._untold: dict[bytes, None] = {}
        self._views: dict[str, tuple[float, frozenset[bytes]]] = {}
        for one in self._add(stored, now):
            self._entries[one.writer].is_stored = True
        self._told_missed = False

    def __contains__(self, writer: bytes) -> bool:
        return writer in self._entries

    def missed(self, now: float) -> frozenset[bytes]:
        """Return the writers that are not here."""
        return frozenset(
            writer
            for writer, entry in self._entries.items()
            if entry.missed_since_s is not None
            and (entry.is_stored or now - entry.missed_since_s >= DISCOVERED_S)
        )

    @property
    def writers(self) -> frozenset[bytes]:
        """All of them."""
        return frozenset(self._entries)

    def waits_for(self, writer: bytes) -> bool:
        """Tell whether a writer is known and will count as ended if it stays away."""
        entry = self._entries.get(writer)
        return entry is not None and entry.patience_s < FOREVER_S

    def met(self, writer: AutodisposeWriter) -> bool:
        """Note that this node has a writer; True if it was not known."""
        entry = self._entries.get(writer.writer)
        self._ended_s.pop(writer.writer, None)
        if entry is not None:
            entry.missed_since_s = None
            entry.is_stored = False
            return False
        if not self._has_room():
            return False
        self._entries[writer.writer] = _Entry(writer.patience_s, None)
        self._untold[writer.writer] = None
        return True

    def lost(self, writer: bytes, now: float) -> None:
        """Note that this node does not have a writer any more."""
        entry = self._entries.get(writer)
        if entry is not None and entry.missed_since_s is None:
            entry.missed_since_s = now

    def ended(self, writers: Iterable[bytes], now: float) -> None:
        """Forget writers that have ended, also if a fellow tells of them soon."""
        writers = tuple(writers)
        self.forget(writers)
        self._ended_s.update(dict.fromkeys(writers, now))

    def forget(self, writers: Iterable[bytes]) -> None:
        """Forget writers until a fellow tells of them."""
        for writer in writers:
            self._entries.pop(writer, None)
            self._untold.pop(writer, None)

    def heard(self, view: WriterView, sender: str, now: float) -> list[AutodisposeWriter]:
        """Take what a fellow tells; return the writers that were not known."""
        self._views[sender] = now, frozenset(one.writer for one in view.missed)
        for one in view.present:
            self._ended_s.pop(one.writer, None)  # it has come back there
        told = (*view.present, *view.known, *view.missed)
        new = [one for one in told if len(one.writer) == _GUID_BYTES]
        return self._add(new, now)

    def _add(self, writers: Iterable[AutodisposeWriter], now: float) -> list[AutodisposeWriter]:
        """Note writers that this node has not met yet; return those that were not known."""
        added = []
        for one in writers:
            is_known = one.writer in self._entries or one.writer in self._ended_s
            if not is_known and self._has_room():
                self._entries[one.writer] = _Entry(max(PATIENCE_S, one.patience_s), now)
                assert len(self._entries) <= MAX_WRITERS
                added.append(one)
        return added

    def _has_room(self) -> bool:
        """Whether there is room for one more writer, if need be in place of the one that was missed first."""
        if len(self._entries) < MAX_WRITERS:
            return True
        missed = (one for one, entry in self._entries.items() if entry.missed_since_s is not None)
        oldest = next(missed, None)
        if oldest is not None:
            del self._entries[oldest]
            self._untold.pop(oldest, None)
        return oldest is not None

    def tell_all(self) -> None:
        """Tell of all writers once more: a fellow that has just come knows nothing."""
        self._untold = dict.fromkeys(self._entries)

    def view(self, name_space: str, fellows: Collection[str], now: float) -> WriterView | None:
        """Return what to tell now; None if that is nothing.

        Args:
            name_space: its name.
            fellows: the approved fellows.
            now: monotonic time, seconds.
        """
        self._ended_s = {one: s for one, s in self._ended_s.items() if now - s < ENDED_S}
        self._views = {node: view for node, view in self._views.items() if node in fellows}
        missed = self._missed_for_long(now)[:MAX_TOLD]
        untold = list(self._untold)[:MAX_TOLD] if fellows else []
        for writer in untold:
            del self._untold[writer]
        present = [writer for writer in untold if self._entries[writer].missed_since_s is None]
        known = [writer for writer in untold if self._entries[writer].missed_since_s is not None]
        # One view without missed writers follows the last with some, because views count for a while.
        if not (untold or missed or self._told_missed):
            return None
        self._told_missed = bool(missed)
        return WriterView(name_space, *map(self._described, (present, known, missed)))

    def _described(self, writers: Iterable[bytes]) -> tuple[AutodisposeWriter, ...]:
        return tuple(AutodisposeWriter(one, self._entries[one].patience_s) for one in writers)

    def _missed_for_long(self, now: float) -> list[bytes]:
        """Return what is missed for longer than it must be waited for, in an order that all nodes share."""
        return sorted(
            writer
            for writer, entry in self._entries.items()
            if entry.missed_since_s is not None and now - entry.missed_since_s >= entry.patience_s
        )

    def decide(self, fellows: Iterable[str], fresh_s: float, now: float) -> tuple[bytes, ...]:
        """Return the writers that this node and all these fellows miss, and ended ones that a fellow misses.

        A fellow may have the end in its set and still miss the writer, if it restarted, or heard of the
        writer from others, after the decision. Only a repeated decision lets it forget the writer.

        Args:
            fellows: the nodes that must miss a writer.
            fresh_s: age in seconds up to which their views count.
            now: monotonic time, seconds.
        """
        nothing = -math.inf, frozenset[bytes]()
        views = [self._views.get(node, nothing) for node in fellows]
        fresh = [theirs if now - heard_s <= fresh_s else nothing[1] for heard_s, theirs in views]
        missed = frozenset(self._missed_for_long(now)[:MAX_TOLD]).intersection(*fresh)
        still = self._ended_s.keys() & nothing[1].union(*fresh)
        return (*sorted(missed), *sorted(still))
