"""Verified samples of a store: one by one, in columns, or as blocks of the compiled library.

Columns are for callers that read many and need no objects: twice as fast. The compiled library reads the rows
of large groups on a thread of its own: a row becomes part of a block in 0.7 us of processor time there, half
of it in SQLite, and in 2 in Python. The functions of SQLite come from the library that Python uses itself. A
Python that has it inside shows none of them; there, rows are read in Python.

At the first damage, the rest of the group is read and verified one by one, so that all ways find the same.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from engine import native
from engine.core.name_spaces import Group
from engine.dataset.blocks import Block, SampleColumns, pack
from engine.dataset.group_set import Summary
from engine.dataset.sample import DATA, DIGEST_BYTES, DISPOSE, UNREGISTER, Sample, digest_of
from engine.store.interface import DamageLog
from engine.store.sample_table import FORWARD, raw_pages
from engine.store.store_directory import file_uri

# Chosen: these are read in some milliseconds.
MIN_ROWS: Final = 4_096
"""Rows of a group below which a thread and a connection of its own do not pay."""
_VALID: Final = DATA | DISPOSE | UNREGISTER
_FUNCTIONS: Final = (
    *("open_v2", "prepare_v2", "bind_int64", "step"),
    *("column_type", "column_int64", "column_blob", "column_bytes", "finalize", "close"),
)
"""Those of SQLite that rows.c calls, in the order of its `struct sqlite`."""
# DB-API: 3 is "threads may share connections" (Python 3.11 on).
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


class Unsound(Exception):
    """Rows are damaged, or not those that were expected; reading one by one finds out which."""


def compiled_pages(path: Path, group_id: int, commits: int) -> Iterator[tuple[None, Block]]:
    """Yield the rows of one group, oldest first, up to the first one that is not as expected.

    Args:
        path: the file, which somebody has open, so that its log and index exist.
        group_id: number of the group in the file.
        commits: transactions in the file; with another number it is another state, and nothing is read.

    Raises:
        Unsound: these were not all rows.
    """
    library, uri = _library(), f"{file_uri(path)}?mode=ro".encode()
    reading = library.rows_open(functions_of_sqlite(), uri, FORWARD.encode(), group_id, commits, _VALID)
    if not reading:
        raise Unsound
    try:
        while (page := library.rows_next(reading).contents).count:
            data = ctypes.string_at(page.data, page.size)
            digests = ctypes.string_at(page.digests, DIGEST_BYTES * page.count)
            digest_sum = (page.sum[0] << 64) + page.sum[1]
            yield None, Block(data, digests, (page.oldest, page.newest), digest_sum)
        if not page.is_whole:
            raise Unsound
    finally:
        library.rows_close(reading)


def column_pages(connection: sqlite3.Connection, group_id: int) -> Iterator[tuple[SampleColumns, Block]]:
    """Yield the rows of one group in columns, and as a block of the same samples, as `compiled_pages`."""
    for rows in raw_pages(connection, group_id, ROWS):
        columns = SampleColumns(*zip(*rows, strict=True))
        block = pack(columns)
        # A block gives each digest and writer its size, so another one would be found as another sample.
        sizes = {*map(len, columns.digests), *map(len, set(columns.writers))}
        if sizes != {DIGEST_BYTES} or block.digests != block.computed_digests():
            raise Unsound
        yield columns, block


_MASK: Final = (1 << 128) - 1
_UNFIT: Final = (TypeError, ValueError, OverflowError, struct.error)
"""Exceptions of `digest_of` for a field of a wrong type or range."""


def sound_samples(
    group: Group, expected: Summary, rows: Iterable[Sample], damage: DamageLog
) -> Iterator[Sample]:
    """Pass on the samples with the right digest, and compare the whole group with its watermark.

    The digest of a sample does not tell its group. Where there are more samples than were stored, or others,
    some may be of another group, and nothing tells which: the group is noted as `strange`.

    Args:
        group: the group, named in `damage`.
        expected: its watermark.
        rows: its stored samples.
        damage: collects damage.
    """
    count = bad = digest_sum = newest_ns = 0
    for sample in rows:
        time_ns, writer, sequence, digest, status, key, payload = sample
        try:
            right = digest_of(time_ns, writer, sequence, status, key, payload) == digest
        except _UNFIT:
            right = False
        if not right:
            bad += 1
            damage.add(f"group {group}, sample {_name(digest)}", "the content does not match its digest")
            continue
        count += 1
        digest_sum += int.from_bytes(digest)
        newest_ns = max(newest_ns, time_ns)
        yield sample
    if count + bad != expected.count:
        damage.add(f"group {group}", f"{expected.count} samples were stored, {count + bad} are there")
    elif not bad and digest_sum & _MASK != expected.digest:
        damage.strange.add(group)
        damage.add(f"group {group}", "the samples are sound but not the ones that were stored")
    if count + bad > expected.count or newest_ns > expected.newest_ns:
        damage.strange.add(group)
    if newest_ns > expected.newest_ns:
        damage.add(f"group {group}", "a sample is newer than the newest that was stored")


def _name(digest: object) -> str:
    return digest.hex() if isinstance(digest, bytes) else repr(digest)


ROWS: Final = 1024
"""Samples in memory at once; more would not fit into the processor's cache."""


def in_columns(samples: Iterable[Sample]) -> Iterator[SampleColumns]:
    """Put samples into columns."""
    left = iter(samples)
    while rows := list(itertools.islice(left, ROWS)):
        yield SampleColumns(*zip(*rows, strict=True))


_Columns = TypeVar("_Columns")


def sound_blocks(
    pages: Iterator[tuple[_Columns, Block]], expected: Summary, one_by_one: Callable[[], Iterator[Sample]]
) -> Iterator[tuple[_Columns | SampleColumns, Block]]:
    """Pass on the sound samples of a group, many at once.

    Args:
        pages: its rows, as `column_pages` or `compiled_pages` yields them.
        expected: the group's watermark.
        one_by_one: verifies the rows of the group one by one, and notes damage.
    """
    passed = digest_sum = newest_ns = 0
    try:
        for columns, block in pages:
            passed += block.count
            digest_sum += block.digest_sum()
            newest_ns = max(newest_ns, block.newest_ns())
            yield columns, block
        are_all = (passed, digest_sum & _MASK) == (expected.count, expected.digest)
        if are_all and newest_ns <= expected.newest_ns:
            return
    except (Unsound, sqlite3.DatabaseError, *_UNFIT):
        pass  # reading one by one notes the damage
    for rest in in_columns(itertools.islice(one_by_one(), passed, None)):
        yield rest, pack(rest)
