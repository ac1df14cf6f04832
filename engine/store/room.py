"""Room on the disk for what is in the write-ahead log only.

What was committed must fit into the database file at any time. A log that filled the disk could not be
carried over any more, and nothing that is dropped from the file would give its space back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.store.schema import PAGE_BYTES

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

RESERVE_BYTES: Final = 1 << 20
"""What a transaction that lets the file grow leaves free, for those that remove something."""


class Room(NamedTuple):
    """What the file still has to grow by, with the open transaction, and what is free."""

    growth_bytes: int
    free_bytes: int

    @property
    def is_enough(self) -> bool:
        """Whether the open transaction may be committed: it goes to the log now and to the file later."""
        return not self.growth_bytes or self.free_bytes >= 2 * self.growth_bytes + RESERVE_BYTES

    @property
    def is_ample(self) -> bool:
        """Whether there is so much that the log need not be carried over now."""
        return self.free_bytes >= 4 * self.growth_bytes + 2 * RESERVE_BYTES


AMPLE: Final = Room(0, 1 << 62)


def room_on_disk(connection: sqlite3.Connection, path: Path) -> Room:
    """The room for a transaction that is about to be committed; ample where nobody can tell."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    try:
        disk = os.statvfs(path.parent)
        growth = pages * PAGE_BYTES - path.stat().st_size
    except OSError:
        return AMPLE
    return Room(max(0, growth), disk.f_bavail * disk.f_frsize)


def has_room_for_copy(path: Path, pages: int) -> bool:
    """Whether the disk can hold so many pages twice more: in a temporary file and in the log."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= 2 * pages * PAGE_BYTES + RESERVE_BYTES
