"""Reading a store beside its node, without writing, leaving files or waiting.

A view is a snapshot without later writes of a running node. While it is open the node's write-ahead log
cannot shrink, so close a view after reading.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from engine.core.name_spaces import Group
from engine.dataset.blocks import Block, SampleColumns
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.store import tables, verification
from engine.store.catalog import read_catalog, read_fellows, read_marks, read_node
from engine.store.database import is_header_damaged, mend_header
from engine.store.interface import (
    DamageLog,
    GroupRow,
    RememberedFellow,
    SetInfo,
    SetVersion,
    StoreError,
    StoreFailed,
    StoreRefused,
)
from engine.store.sample_table import newest_until, read_group
from engine.store.store_directory import DATABASE, LOCK, file_uri, lock_holder
from engine.store.verification import column_pages, compiled_pages, sound_blocks, sound_samples

OneByOne = Callable[[], Iterator[Sample]]
_Blocks = TypeVar("_Blocks")


class StoreView:
    """A read-only snapshot of the store in a directory, or of one database file."""

    def __init__(self, path: Path) -> None:
        """Open the snapshot.

        Args:
            path: a store directory, or the database file itself.

        Raises:
            StoreRefused: there is no ospltool store, or it has a newer format.
            StoreDamaged: it cannot be read.
            StoreFailed: the file cannot be opened.
        """
        self.path = path / DATABASE if path.is_dir() else path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        if not self.path.is_file():
            raise StoreRefused(f"{self.path}: there is no store")
        self._is_mended = False
        try:
            self._open()
        except StoreError:
            if not is_header_damaged(self.path):
                raise
            self._is_mended = True
            # If the mended copy cannot be opened either, the first error is the one to report.
            with contextlib.suppress(StoreError):
                self._open()
                return
            raise

    def _open(self) -> None:
        try:
            self._connection = self._connect()
        except sqlite3.Error as error:
            self._remove_copy()
            raise _unreadable(error, self.path) from error
        try:
            if not tables.check_format(self._connection, self.path):
                raise StoreRefused(
                    f"{self.path}: the store is empty: nothing was written, or its -wal was removed"
                )
            self._connection.execute("BEGIN")
            self._catalog = read_catalog(self._connection)
        except sqlite3.Error as error:
            self.close()
            raise _unreadable(error, self.path) from error
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        log = self.path.with_name(self.path.name + "-wal")
        used = self.path.name == DATABASE and lock_holder(self.path.with_name(LOCK)) is not None
        # While a node has the store open, the log and its index exist anyway: reading leaves no files.
        if used and not self._is_mended:
            return sqlite3.connect(f"{file_uri(self.path)}?mode=ro", uri=True, isolation_level=None)
        has_log = log.exists() and bool(log.stat().st_size)
        if not has_log and not self._is_mended:
            uri = f"{file_uri(self.path)}?mode=ro&immutable=1"
            return sqlite3.connect(uri, uri=True, isolation_level=None)
        self._copy = tempfile.TemporaryDirectory(prefix="ospltool-store-")
        target = Path(self._copy.name) / self.path.name
        try:
            shutil.copyfile(self.path, target)
            if has_log:
                shutil.copyfile(log, target.with_name(log.name))
            if self._is_mended:
                mend_header(target, has_log=has_log)
        except OSError as error:
            self._remove_copy()
            raise StoreFailed(f"{error.filename}: {error.strerror}") from error
        return sqlite3.connect(target, isolation_level=None)

    def close(self) -> None:
        """End the snapshot."""
        self._connection.close()
        self._remove_copy()

    def _remove_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    def __enter__(self) -> StoreView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def findings(self) -> tuple[str, ...]:
        """Problems found in the header and the small tables."""
        mended = (f"{self.path}: its header is damaged; a copy with a new one is read",) * self._is_mended
        return (*mended, *self._catalog.findings)

    def node(self) -> tuple[str, int, bool]:
        """Return the node's id, its incarnation, and whether it closed the store."""
        node_id, incarnation, _, closed = read_node(self._connection, self.path)
        return node_id, incarnation, closed

    def holder(self) -> tuple[int, str, int] | None:
        """Return pid, node name and opening time (ns since 1970 UTC) of the node that has it open."""
        return lock_holder(self.path.with_name(LOCK))

    def name_spaces(self) -> tuple[str, ...]:
        """Return the name-spaces with a set or a remembered value."""
        return name_spaces(self._connection, self._catalog.versions)

    def sets(self, name_space: str | None = None) -> tuple[SetInfo, ...]:
        """Return all versions, oldest first, of one name-space or of all."""
        versions = self._catalog.versions.values()
        return tuple(v.info() for v in versions if name_space is None or v.name_space == name_space)

    def newest_until(self, version: int, limit_ns: int) -> int:
        """Return the newest source time of a version that is not later than the limit; 0 if there is none."""
        rows = self._catalog.versions[version].groups.values()
        return newest_until(self._connection, (row.id for row in rows), limit_ns)

    def marks(self, name_space: str) -> dict[str, str]:
        """Return the remembered values of a name-space."""
        return {key: value for _, key, value, _ in read_marks(self._connection, name_space)}

    def fellows(self) -> dict[str, tuple[RememberedFellow, ...]]:
        """Return the remembered fellows, by name-space."""
        return read_fellows(self._connection)[0]

    def load(self, version: int, damage: DamageLog) -> Iterator[tuple[GroupDescription, Iterator[Sample]]]:
        """Read and verify one version; see `engine.store.interface.Store.load`.

        Raises:
            LookupError: there is no such version.
        """
        # Not by blocks: of large samples, one at a time needs less memory than the few of a block.
        return self._in_blocks(version, damage, lambda _, one_by_one: one_by_one())

    def load_blocks(
        self, version: int, damage: DamageLog
    ) -> Iterator[tuple[GroupDescription, Iterator[tuple[SampleColumns, Block]]]]:
        """Read and verify like `load`, with many samples at once: in columns, and as a block of the same.

        Raises:
            LookupError: there is no such version.
        """

        def blocks_of(row: GroupRow, one_by_one: OneByOne) -> Iterator[tuple[SampleColumns, Block]]:
            return sound_blocks(column_pages(self._connection, row.id), row.stored, one_by_one)

        return self._in_blocks(version, damage, blocks_of)

    def load_whole(
        self, version: int, damage: DamageLog
    ) -> Iterator[tuple[GroupDescription, Iterator[Block]]]:
        """Read and verify like `load`, in blocks; only for the one that has the store open, meanwhile idle.

        Raises:
            LookupError: there is no such version.
        """
        _, _, commits, _ = read_node(self._connection, self.path)
        can_compile = verification.is_available() and self._copy is None

        def blocks_of(row: GroupRow, one_by_one: OneByOne) -> Iterator[Block]:
            pages: Iterator[tuple[SampleColumns | None, Block]]
            if can_compile and row.stored.count >= verification.MIN_ROWS:
                pages = compiled_pages(self.path, row.id, commits)
            else:
                pages = column_pages(self._connection, row.id)
            return (block for _, block in sound_blocks(pages, row.stored, one_by_one))

        return self._in_blocks(version, damage, blocks_of)

    def _in_blocks(
        self, version: int, damage: DamageLog, blocks_of: Callable[[GroupRow, OneByOne], Iterator[_Blocks]]
    ) -> Iterator[tuple[GroupDescription, Iterator[_Blocks]]]:
        chosen = self._catalog.versions.get(version)
        if chosen is None:
            raise LookupError(f"{self.path}: there is no set version {version}")
        for place, reason in chosen.damage:
            damage.add(place, reason)
        for key in sorted(chosen.groups):
            row = chosen.groups[key]
            blocks = blocks_of(row, functools.partial(self._sound, key, row, damage))
            yield row.description, blocks
            skipped = sum(1 for _ in blocks)
            assert not skipped, "a group's samples must be used up before the next group is asked for"

    def _sound(self, key: Group, row: GroupRow, damage: DamageLog) -> Iterator[Sample]:
        raw = read_group(self._connection, row.id, row.stored.count, f"group {key}", damage)
        return sound_samples(key, row.stored, raw, damage)


def name_spaces(connection: sqlite3.Connection, versions: dict[int, SetVersion]) -> tuple[str, ...]:
    """Return the name-spaces with a set or a remembered value."""
    named = {version.name_space for version in versions.values()}
    marked = {space for space, _, _, is_sound in read_marks(connection) if is_sound}
    return tuple(sorted(named | marked | read_fellows(connection)[0].keys()))


def _unreadable(error: sqlite3.Error, path: Path) -> Exception:
    return tables.typed(error, path) or StoreFailed(f"{path}: {error}")
