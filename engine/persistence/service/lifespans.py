"""LIFESPAN (DDS 1.4, 2.2.3.16): a sample that is older than its lifespan is given to no reader.

It is a policy of writers. A replica may have a sample of a writer that it never saw, so replicas tell each
other the lifespans, and their stores remember them. Of two values for one writer the smaller counts.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.dataset.sample import DATA
from engine.persistence.core.replica_codec import MessageFault
from engine.persistence.core.replica_messages import OriginalSample
from engine.persistence.service.kept_groups import WriterName
from engine.persistence.service.service_part import ServicePart, Write

LIFESPANS: Final = "lifespans"
MAX_WRITERS: Final = 100_000
"""Writers with a lifespan that are remembered; samples of more never expire, which is counted."""
_GUID: Final = re.compile(r"[0-9a-f]{32}")
_LARGEST_NS: Final = (1 << 63) - 1


class Lifespans(ServicePart):
    """The writers whose samples expire. Its messages are sent before the samples of these writers.

    Attributes:
        refused: writers beyond the bound.
    """

    tables = (
        "CREATE TABLE IF NOT EXISTS lifespan (writer TEXT PRIMARY KEY, ns INTEGER NOT NULL) WITHOUT ROWID;"
    )
    kinds = frozenset((LIFESPANS,))

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._unsaved: dict[str, int] = {}
        self._peers: set[str] = set()
        self._outbox: list[tuple[str, str, bytes]] = []
        self.refused = 0

    def learn(self, writer: bytes, lifespan_ns: int) -> None:
        """Note the lifespan of a writer's samples."""
        self._take({writer.hex(): lifespan_ns}, "")

    def is_expired(self, sample: OriginalSample, now_ns: int) -> bool:
        """Whether a sample has expired at this wall clock time; a dispose never expires."""
        name = WriterName.of(sample.writer)
        lifespan_ns = self._known.get(name.guid.hex()) if name else None
        return (
            lifespan_ns is not None
            and bool(sample.status & DATA)
            and sample.source_time_ns + lifespan_ns <= now_ns
        )

    def _take(self, lifespans: Mapping[str, int], source: str) -> None:
        news: dict[str, int] = {}
        for writer, lifespan_ns in lifespans.items():
            known = self._known.get(writer)
            if known is None and len(self._known) >= MAX_WRITERS:
                self.refused += 1
            elif known is None or lifespan_ns < known:
                self._known[writer] = news[writer] = lifespan_ns
        self._unsaved |= news
        self._tell(sorted(self._peers - {source}), news)

    def _tell(self, peers: Iterable[str], lifespans: Mapping[str, int]) -> None:
        if lifespans:
            body = json.dumps(lifespans).encode()
            self._outbox += [(peer, LIFESPANS, body) for peer in peers]

    # Others, and the store.

    def connected(self, peer: str) -> None:
        """Tell a replica all lifespans."""
        self._peers.add(peer)
        self._tell([peer], self._known)

    def disconnected(self, peer: str) -> None:
        """Forget a replica; it hears all lifespans when it comes back."""
        self._peers.discard(peer)

    def receive(self, peer: str, kind: str, body: bytes) -> None:
        """Take lifespans that another replica tells."""
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise MessageFault("not lifespans") from error
        if not isinstance(found, dict) or not all(map(_is_lifespan, found.items())):
            raise MessageFault("not lifespans")
        self._take(found, peer)

    def messages(self) -> Sequence[tuple[str, str, bytes]]:
        """Take new lifespans, for all other replicas."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the lifespans."""
        self._known = dict(store.execute("SELECT writer, ns FROM lifespan"))

    def changes(self) -> Write | None:
        """Take new lifespans, for the store."""
        if not self._unsaved:
            return None
        rows, self._unsaved = list(self._unsaved.items()), {}
        return lambda store: _write(store, rows)


def _write(store: sqlite3.Connection, rows: list[tuple[str, int]]) -> None:
    store.executemany("INSERT OR REPLACE INTO lifespan VALUES (?, ?)", rows)


def _is_lifespan(item: tuple[str, object]) -> bool:
    writer, lifespan_ns = item
    return bool(_GUID.fullmatch(writer)) and type(lifespan_ns) is int and 0 <= lifespan_ns <= _LARGEST_NS
