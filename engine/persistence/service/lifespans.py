"""The lifespans of writers that replicas tell each other and store; see `engine.dataset.lifespans`."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.dataset.lifespans import MAX_LIFESPAN_NS, LifespanTable
from engine.persistence.core.replica_codec import MessageFault
from engine.persistence.core.replica_messages import OriginalSample
from engine.persistence.service.kept_groups import WriterName
from engine.persistence.service.service_part import ServicePart, Write

LIFESPANS: Final = "lifespans"
_GUID: Final = re.compile(r"[0-9a-f]{32}")


class Lifespans(ServicePart):
    """The writers whose samples expire. Its messages are sent before the samples of these writers."""

    tables = (
        "CREATE TABLE IF NOT EXISTS lifespan (writer TEXT PRIMARY KEY, ns INTEGER NOT NULL) WITHOUT ROWID;"
    )
    kinds = frozenset((LIFESPANS,))

    def __init__(self) -> None:
        self._table = LifespanTable()
        self._unsaved: dict[bytes, int] = {}
        self._peers: set[str] = set()
        self._outbox: list[tuple[str, str, bytes]] = []

    @property
    def refused(self) -> int:
        """Number of writers beyond the bound."""
        return self._table.refused

    def learn(self, writer: bytes, lifespan_ns: int) -> None:
        """Note the lifespan of a writer's samples."""
        self._take({writer: lifespan_ns}, "")

    def is_expired(self, sample: OriginalSample, now_ns: int) -> bool:
        """Whether a sample has expired at this wall clock time; a dispose never expires."""
        name = WriterName.of(sample.writer)
        return name is not None and self._table.is_expired(
            name.guid, sample.status, sample.source_time_ns, now_ns
        )

    def _take(self, lifespans: Mapping[bytes, int], source: str) -> None:
        news = self._table.learn(lifespans.items())
        self._unsaved |= news
        self._tell(sorted(self._peers - {source}), news)

    def _tell(self, peers: Iterable[str], lifespans: Mapping[bytes, int]) -> None:
        if lifespans:
            body = json.dumps({writer.hex(): ns for writer, ns in lifespans.items()}).encode()
            self._outbox += [(peer, LIFESPANS, body) for peer in peers]

    # Others, and the store.

    def connected(self, peer: str) -> None:
        """Tell a replica all lifespans."""
        self._peers.add(peer)
        self._tell([peer], self._table.known)

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
        self._take({bytes.fromhex(writer): ns for writer, ns in found.items()}, peer)

    def messages(self) -> Sequence[tuple[str, str, bytes]]:
        """Take new lifespans, for all other replicas."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the lifespans."""
        rows = store.execute("SELECT writer, ns FROM lifespan")
        self._table.known = {bytes.fromhex(writer): ns for writer, ns in rows}

    def changes(self) -> Write | None:
        """Take new lifespans, for the store."""
        if not self._unsaved:
            return None
        rows, self._unsaved = [(writer.hex(), ns) for writer, ns in self._unsaved.items()], {}
        return lambda store: _write(store, rows)


def _write(store: sqlite3.Connection, rows: list[tuple[str, int]]) -> None:
    store.executemany("INSERT OR REPLACE INTO lifespan VALUES (?, ?)", rows)


def _is_lifespan(item: tuple[str, object]) -> bool:
    writer, lifespan_ns = item
    return bool(_GUID.fullmatch(writer)) and type(lifespan_ns) is int and 0 <= lifespan_ns <= MAX_LIFESPAN_NS
