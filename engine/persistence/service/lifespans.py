"""The lifespans of writers that replicas tell each other and store; see `engine.dataset.lifespans`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from engine.dataset.lifespans import LifespanTable
from engine.persistence.core.messages import OriginalSample, WriterLifespans
from engine.persistence.service.kept_groups import WriterName
from engine.persistence.service.service_part import ServicePart, Write


class Lifespans(ServicePart):
    """The writers whose samples expire. Its messages are sent before the samples of these writers."""

    tables = (
        "CREATE TABLE IF NOT EXISTS lifespan (writer TEXT PRIMARY KEY, ns INTEGER NOT NULL) WITHOUT ROWID;"
    )
    kinds = (WriterLifespans,)

    def __init__(self) -> None:
        super().__init__()
        self._table = LifespanTable()
        self._unsaved: dict[str, int] = {}

    @property
    def refused(self) -> int:
        """Number of writers beyond the bound."""
        return self._table.refused

    def learn(self, writer: bytes, lifespan_ns: int) -> None:
        """Note the lifespan of a writer's samples."""
        self._learn([(writer, lifespan_ns)], "")

    def is_expired(self, sample: OriginalSample, now_ns: int) -> bool:
        """Whether a sample has expired at this wall clock time; a dispose never expires."""
        name = WriterName.of(sample.writer)
        return name is not None and self._table.is_expired(
            name.guid, sample.status, sample.source_time_ns, now_ns
        )

    def _learn(self, lifespans: Iterable[tuple[bytes, int]], source: str) -> None:
        news = {writer.hex(): ns for writer, ns in self._table.learn(lifespans).items()}
        self._unsaved |= news
        if news:
            self.send(self.peers - {source}, WriterLifespans(news))

    # Others, and the store.

    def connected(self, peer: str) -> None:
        """Tell a replica all lifespans."""
        super().connected(peer)
        if self._table.known:
            self.send([peer], WriterLifespans({writer.hex(): ns for writer, ns in self._table.known.items()}))

    def receive(self, peer: str, message: WriterLifespans) -> None:
        """Take lifespans that another replica tells."""
        self._learn(((bytes.fromhex(writer), ns) for writer, ns in message.lifespans.items()), peer)

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the lifespans."""
        rows = store.execute("SELECT writer, ns FROM lifespan")
        self._table.known = {bytes.fromhex(writer): ns for writer, ns in rows}

    def changes(self) -> Write | None:
        """Take new lifespans, for the store."""
        if not self._unsaved:
            return None
        rows, self._unsaved = [*self._unsaved.items()], {}

        def write(store: sqlite3.Connection) -> None:
            store.executemany("INSERT OR REPLACE INTO lifespan VALUES (?, ?)", rows)

        return write
