"""The header of a database, which is equal in all stores but for counters, so it can be replaced.

SQLite refuses a file whose first bytes are damaged, although all samples may be sound. A command that only
reads a store then uses a copy with a new header. For the layout see the SQLite file format, section 1.3.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from engine.store.schema import APPLICATION_ID, FORMAT_VERSION, PAGE_BYTES

BYTES: Final = 100
_LAYOUT: Final = struct.Struct(">16sHBBBBBB12I20x2I")
_MAGIC: Final = b"SQLite format 3\0"
_FRACTIONS: Final = (64, 32, 32)
_SCHEMA_FORMAT: Final = 4
_UTF_8: Final = 1
_ROLLBACK, _LOG = 1, 2


def is_damaged(path: Path) -> bool:
    """Tell whether the constant part of the header differs."""
    with path.open("rb") as file:
        content = file.read(BYTES)
    if len(content) < BYTES:
        return False
    magic, page, _, _, *reserved = _LAYOUT.unpack(content)[:8]
    numbers = _LAYOUT.unpack(content)[8:]
    expected = (_MAGIC, PAGE_BYTES, [0, *_FRACTIONS], _SCHEMA_FORMAT, _UTF_8)
    return (magic, page, reserved, numbers[5], numbers[8]) != expected


def mend(path: Path, *, has_log: bool) -> None:
    """Write a new header into a copy of a store; if there is a log, a header in it takes precedence."""
    with path.open("r+b") as file:
        pages = file.seek(0, 2) // PAGE_BYTES
        how = _LOG if has_log else _ROLLBACK
        counter = 1
        numbers = (counter, pages, 0, 0, 1, _SCHEMA_FORMAT, 0, 0, _UTF_8, FORMAT_VERSION, 0, APPLICATION_ID)
        header = _LAYOUT.pack(_MAGIC, PAGE_BYTES, how, how, 0, *_FRACTIONS, *numbers, counter, 0)
        file.seek(0)
        file.write(header)
