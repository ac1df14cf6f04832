"""Room on the disk for the content of the write-ahead log.

Committed data must fit into the database file at any time. If the log filled the disk, it could not be copied
into the file any more, and dropping data from the file would not free space.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

from engine.store.schema import PAGE_BYTES

RESERVE_BYTES: Final = 1 << 20
"""Space that a transaction that lets the file grow leaves for those that remove something."""


class Room(NamedTuple):
    """The growth that the file still needs, with the open transaction, and the free space."""

    growth_bytes: int
    free_bytes: int

    @property
    def is_enough(self) -> bool:
        """Whether the open transaction may be committed: it goes to the log now and to the file later."""
        return not self.growth_bytes or self.free_bytes >= 2 * self.growth_bytes + RESERVE_BYTES

    @property
    def is_ample(self) -> bool:
        """Whether the log need not be copied into the file now."""
        return self.free_bytes >= 4 * self.growth_bytes + 2 * RESERVE_BYTES


AMPLE: Final = Room(0, 1 << 62)


def room_on_disk(connection: sqlite3.Connection, path: Path) -> Room:
    """Return the room for a transaction that is about to be committed; ample if it cannot be found out."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    try:
        disk = os.statvfs(path.parent)
        growth = pages * PAGE_BYTES - path.stat().st_size
    except OSError:
        return AMPLE
    return Room(max(0, growth), disk.f_bavail * disk.f_frsize)


def has_room_for_copy(path: Path, pages: int) -> bool:
    """Tell whether the disk has room for `pages` twice: in a temporary file and in the log."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= 2 * pages * PAGE_BYTES + RESERVE_BYTES
