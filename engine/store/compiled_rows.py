"""The rows of large groups, verified, as blocks that the compiled library makes on a thread of its own.

A row becomes a part of a block in 0.7 us of processor time there, half of it in SQLite, and in 2 in Python.
The functions of SQLite come from the library that Python uses itself. A Python that has it inside shows none
of them; there, rows are read in Python.
"""

from __future__ import annotations

import ctypes
import functools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine import native
from engine.dataset.blocks import Block
from engine.dataset.sample import DATA, DIGEST_BYTES, DISPOSE, UNREGISTER
from engine.store.sample_table import FORWARD
from engine.store.store_directory import file_uri

MIN_ROWS: Final = 4_096
"""Rows of a group below which a thread and a connection of its own do not pay."""
_VALID: Final = DATA | DISPOSE | UNREGISTER
_FUNCTIONS: Final = (
    *("open_v2", "prepare_v2", "bind_int64", "step"),
    *("column_type", "column_int64", "column_blob", "column_bytes", "finalize", "close"),
)
"""Those of SQLite that rows.c calls, in the order of its `struct sqlite`."""
_SERIALIZED: Final = 3
"""`sqlite3.threadsafety` of a SQLite that may be used on threads that Python does not know."""


class _Page(ctypes.Structure):
    """`struct page` of rows.c."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("count", "size")),
        *((name, ctypes.c_void_p) for name in ("data", "digests")),
        *((name, ctypes.c_int64) for name in ("oldest", "newest")),
        ("sum", ctypes.c_uint64 * 2),
        ("is_whole", ctypes.c_uint64),
    ]


_Functions = ctypes.c_void_p * len(_FUNCTIONS)


@functools.cache
def functions_of_sqlite() -> ctypes.Array[ctypes.c_void_p] | None:
    """Return the addresses of SQLite's functions; None if Python's SQLite does not show them."""
    import _sqlite3

    path = getattr(_sqlite3, "__file__", None)
    if path is None or sqlite3.threadsafety != _SERIALIZED:
        return None
    try:
        library = ctypes.CDLL(path)
        library.sqlite3_libversion.restype = ctypes.c_char_p
        if library.sqlite3_libversion().decode() != sqlite3.sqlite_version:
            return None
        found = [getattr(library, f"sqlite3_{name}") for name in _FUNCTIONS]
    except (OSError, AttributeError):  # SQLite is inside Python's own file
        return None
    return _Functions(*[ctypes.cast(function, ctypes.c_void_p).value for function in found])


@functools.cache
def _library() -> ctypes.CDLL:
    library = native.unlocked()  # it waits for the disk
    library.rows_open.restype = ctypes.c_void_p
    library.rows_open.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p),
        *(ctypes.c_int64, ctypes.c_int64, ctypes.c_uint8),
    ]
    library.rows_next.restype = ctypes.POINTER(_Page)
    library.rows_next.argtypes = [ctypes.c_void_p]
    library.rows_close.restype = None
    library.rows_close.argtypes = [ctypes.c_void_p]
    return library


def is_available() -> bool:
    """Whether rows can be read this way in this process."""
    return functions_of_sqlite() is not None


class CompiledRows:
    """The rows of one group, oldest first.

    Attributes:
        is_whole: after the last block: all rows were read, with the right digests.
        passed: rows in the blocks so far.
        digest_sum: sum of their digests.
        newest_ns: newest source time of them; 0 for none.
    """

    def __init__(self, path: Path, group_id: int, commits: int) -> None:
        """Take a group of an open store.

        Args:
            path: the file, which somebody has open, so that its log and index exist.
            group_id: number of the group in the file.
            commits: transactions in the file; with another number it is another state, and nothing is read.
        """
        self._uri = f"{file_uri(path)}?mode=ro"
        self._group_id = group_id
        self._commits = commits
        self.is_whole = False
        self.passed = 0
        self.digest_sum = 0
        self.newest_ns = 0

    def blocks(self) -> Iterator[Block]:
        """Yield the rows up to the first one that is not as expected."""
        library = _library()
        number = (self._group_id, self._commits, _VALID)
        reading = library.rows_open(functions_of_sqlite(), self._uri.encode(), FORWARD.encode(), *number)
        if not reading:
            return
        try:
            while (page := library.rows_next(reading).contents).count:
                data = ctypes.string_at(page.data, page.size)
                span_ns = (page.oldest, page.newest)
                digest_sum = (page.sum[0] << 64) + page.sum[1]
                digests = ctypes.string_at(page.digests, DIGEST_BYTES * page.count)
                block = Block(data, digests, span_ns, digest_sum)
                self.passed += block.count
                self.digest_sum += block.digest_sum()
                self.newest_ns = max(self.newest_ns, page.newest)
                yield block
            self.is_whole = bool(page.is_whole)
        finally:
            library.rows_close(reading)
