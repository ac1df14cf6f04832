"""The store on disk: one SQLite file in write-ahead mode, synchronous FULL, one process at a time.

A call that writes is one transaction and returns when it is on disk. If it fails, it has no effect, and the
store stays usable: the next call may work, for example when a full disk has room again.

Samples are written many with each statement, and SQLite itself splits the columns: a statement gets the bytes
of a block as one value and the source times as a JSON array, and cuts each field out by its position. A value
for each field of each row would cost three times as much processor time, most of it under the interpreter
lock, for which the node's thread waits. Python's sqlite3 also releases that lock at every step of a statement
and waits for it again: one-row statements beside one busy thread reached 1,000 rows a second.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.core.messages import MAX_INCARNATION
from engine.core.name_spaces import Group
from engine.dataset.blocks import Block
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DIGEST_BYTES, LARGE_BYTES, Sample
from engine.dataset.sample_rows import ObjectRows, SampleRows, has_large
from engine.store import tables
from engine.store.catalog import (
    Catalog,
    new_version,
    read_catalog,
    read_fellows,
    read_marks,
    read_node,
    write_fellows,
    write_group,
    write_marks,
    write_version,
    write_watermark,
)
from engine.store.database import check_structure, lost_tail, open_database, put_aside
from engine.store.interface import (
    NO_MARKS,
    NO_ROWS,
    DamageLog,
    GroupRow,
    Marks,
    Net,
    OpenReport,
    RememberedFellow,
    SetState,
    SetVersion,
    SetWriter,
    Soundness,
    Store,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreRefused,
    unfinished,
)
from engine.store.read_only import StoreView, name_spaces
from engine.store.sample_table import COLUMNS, newest_until
from engine.store.store_directory import DATABASE, StorePlace, StoreProgress, has_room_for_copy, room_on_disk

MISSING: Final = "missing"
"""Mark of a name-space whose set was lost with a damaged file and has not been written again."""
_SWEEP_SAMPLES: Final = 4_000
"""Samples of dropped versions that each writing transaction removes, in a few milliseconds."""
# Rewriting takes as long as writing the whole set, and SQLite uses free pages again anyhow. Chosen.
WORTH_REWRITING: Final = 0.25
"""Part of the file that must be free before it is rewritten to free the space."""
# A few statements for its rows in the small tables. Chosen.
_GROUP_COST: Final = 4
"""Cost of removing a group, in samples."""
_MASK: Final = (1 << 128) - 1
# SQLite copies what is bound to a statement: this bounds the memory beside the samples themselves.
_STATEMENT_BYTES: Final = 8 << 20
"""Limit for the payload bytes of one statement, unless a single payload is larger."""
# Chosen: to copy 256 KiB costs less than statements of their own for the large ones among them.
_FEW_BYTES: Final = 1 << 18
"""Payload bytes of samples that one statement adds, however large each of them is."""
MOVED_PAGES: Final = tables.CHECKPOINT_PAGES
"""Size of a file, 64 MiB, up to which its samples are moved for the first large one: that takes a second."""
_TRIES: Final = 3
"""Attempts at that in one run, because the disk may be full."""
_SIGNED_LIMIT: Final = 1 << 63
# 2**64 has 20 digits.
_DIGITS: Final = 20
"""The width of a number in a column of numbers."""
_NUMBER: Final = b"%%%dd" % _DIGITS
_WRITER_BYTES: Final = 16
_DIGEST: Final = f"substr(:digests, key * {DIGEST_BYTES} + 1, {DIGEST_BYTES})"
_SIZES: Final = tuple(1 << power for power in range(10, -1, -1))
"""Numbers of places in a statement: few different sizes, so that few statements are prepared."""

_Statement = tuple[str, dict[str, Any] | list[Any]]
"""SQL and its values."""


def _insertion(group_id: int, block: Block) -> _Statement:
    """Make the statement that adds the missing samples of a block.

    A sequence number beyond SQLite's integers is kept as its signed twin.
    """
    keys, payloads = block.key_texts, block.payload_texts
    values: dict[str, Any] = {"group_id": group_id, "times": f"[{','.join(map(str, block.times_ns()))}]"}
    values |= {"digests": block.digests, "block": block.data, "writers": block.writer_bytes()}
    values["writer_step"] = _WRITER_BYTES if len(values["writers"]) > _WRITER_BYTES else 0
    values |= {"key_begin": keys.begin + 1, "key_size": keys.size}
    values |= {"payload_begin": payloads.begin + 1, "payload_size": payloads.size}
    if block.has_sequences:
        signed = [number - (number >= _SIGNED_LIMIT) * 2 * _SIGNED_LIMIT for number in block.sequences()]
        values["sequences"] = _numbers(signed)
    if not block.is_plain:
        values["statuses"] = _numbers(block.statuses())
    for name, texts in (("key", keys), ("payload", payloads)):
        if texts.size < 0:
            values[f"{name}_ends"] = _numbers(texts.ends)
    columns = frozenset(values.keys() & {"sequences", "statuses", "key_ends", "payload_ends"})
    return _insert(columns), values


_INSERT_LARGE: Final = f"INSERT OR IGNORE INTO sample (sample_group, {COLUMNS}) VALUES (?,?,?,?,?,?,?,?)"  # noqa: S608  # constants


@functools.cache
def _in_places(what: str, count: int) -> str:
    """Begin a statement with `what`, and name that many places by values: JSON takes twice as long."""
    pairs = ",".join(f"(?{2 * number + 2},?{2 * number + 3})" for number in range(count))
    # with IN (VALUES ...) alone SQLite scans the whole group
    places = f"SELECT column1, column2 FROM (VALUES {pairs})"  # noqa: S608  # placeholders only
    return f"{what} FROM sample WHERE sample_group = ?1 AND (source_time_ns, digest) IN ({places})"


def _at_places(what: str, group_id: int, samples: SampleRows) -> Iterator[_Statement]:
    """Yield the statements that do `what` with these samples."""
    for places in samples.places(_SIZES[0]):
        done = 0
        for size in _SIZES:
            while len(places) - done >= size:
                some = places[done : done + size]
                yield _in_places(what, size), [group_id, *itertools.chain.from_iterable(some)]
                done += size


def _numbers(numbers: Iterable[int]) -> bytes:
    """Pack numbers into a column in which each is found by its position."""
    column = tuple(numbers)
    return (_NUMBER * len(column)) % column


@functools.cache
def _insert(columns: frozenset[str]) -> str:
    """Make the statement for a block with these columns; others have equal entries and are not passed."""
    fields = (
        "value",
        f"substr(:writers, key * :writer_step + 1, {_WRITER_BYTES})",
        _number("sequences", "key") if "sequences" in columns else "0",
        _DIGEST,
        _number("statuses", "key") if "statuses" in columns else str(DATA),
        _text("key", varies="key_ends" in columns),
        _text("payload", varies="payload_ends" in columns),
    )
    rows = f"SELECT :group_id, {', '.join(fields)} FROM json_each(:times)"  # noqa: S608  # constants
    return f"INSERT OR IGNORE INTO sample (sample_group, {COLUMNS}) {rows}"


def _number(column: str, place: str) -> str:
    return f"CAST(substr(:{column}, ({place}) * {_DIGITS} + 1, {_DIGITS}) AS INTEGER)"


def _text(name: str, *, varies: bool) -> str:
    if not varies:
        return f"substr(:block, :{name}_begin + key * :{name}_size, :{name}_size)"
    begin, end = _number(f"{name}_ends", "key"), _number(f"{name}_ends", "key + 1")
    return f"substr(:block, {begin} + 1, {end} - {begin})"


class Unexpected(Exception):
    """Samples were present, or missing, against expectation."""


class SqliteStore(Store):
    """A store in a directory; see `engine.store.interface.Store` for the calls."""

    def __init__(self, directory: Path, node: str, new_node_id: Callable[[], str]) -> None:
        """Open a store, or make one.

        Args:
            directory: made if it does not exist.
            node: name of the node, shown to another process that finds the store locked.
            new_node_id: makes 32 hexadecimal characters; called at the first start only.

        Raises:
            LockedStore: another node has it open.
            StoreRefused: a newer format, or a database that is not a store.
            StoreFull: no space to record the opening.
            StoreFailed: the directory cannot be used.
        """
        self._path = directory / DATABASE
        self._place = StorePlace(directory, node)
        with contextlib.ExitStack() as undo:
            undo.callback(self._place.close)
            findings: list[str] = []
            record = self._place.ledger.read()
            self._connection = open_database(self._path, findings)
            undo.callback(lambda: self._connection.close())
            self._commits = 0
            self._may_replace_damaged = True
            try:
                self._begin_run(record, new_node_id, findings)
            except StoreDamaged as damage:
                aside = self._exchange_file()
                findings = [f"the store could not be read ({damage}); it was put aside as {aside}"]
                self._begin_run(record, new_node_id, findings)
            self._place.opened()
            self._release = undo.pop_all()
        self._open = True

    def _exchange_file(self) -> str:
        """Put the database aside and open an empty one; return the former's new name."""
        # The connection to a damaged file may fail to close; the file is put aside in any case.
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        try:
            return put_aside(self._path)
        finally:
            self._connection = open_database(self._path, [])

    def _begin_run(self, last: StoreProgress | None, new_id: Callable[[], str], findings: list[str]) -> None:
        db = self._connection
        self._tries, self._log_pages = _TRIES, 0
        self._node_id, self._incarnation = "", 0
        losses = len(findings)  # the file was put aside
        with self._transaction():
            if not tables.check_format(db, self._path):
                tables.create(db, last.node_id if last else new_id())
            self._node_id, incarnation, self._commits, closed = read_node(db, self._path)
            if last is not None and last.node_id == self._node_id:
                lost = lost_tail(last, self._commits)
                findings += lost
                losses += len(lost)
            elif last is not None:  # the ledger has a check, so its id counts
                findings.append(f"the file says node {self._node_id}, the ledger {last.node_id}, which stays")
                self._node_id = last.node_id
                db.execute("UPDATE node SET id = ?", (self._node_id,))
            self._incarnation = 1 + max(incarnation, last.incarnation if last else 0)
            if self._incarnation > MAX_INCARNATION:
                # Fellows would refuse it, and no run could follow.
                raise StoreRefused(
                    f"{self._path}: it counts {self._incarnation} runs, and no node has more than "
                    f"{MAX_INCARNATION}. Move the directory away and start the node: it gets a new id and "
                    "takes its data from its fellows. `ospltool store export` reads what only this store has"
                )
            if not closed:
                findings += check_structure(db)
            db.execute("UPDATE node SET incarnation = ?, closed = 0", (self._incarnation,))
            catalog = read_catalog(db)
            findings += catalog.findings
            losses += len(catalog.findings)
            self._drop_unusable(catalog)
            for version in catalog.versions.values():
                findings += [f"name-space {version.name_space!r}: {damage}" for damage in version.damage]
                if version.state is SetState.FILLING:
                    findings.append(unfinished(version.name_space, version.stored().count))
            for name_space, key, value, _ in read_marks(db):
                if key == MISSING:
                    findings.append(f"name-space {name_space!r}: its set was lost with {value}")
                    losses += 1
            fellows, damaged = read_fellows(db)
            if damaged:
                findings.append(f"{damaged} remembered fellows have a damaged entry and are forgotten")
        self._versions = catalog.versions
        self._dropped = list(catalog.dropped)
        self.report = OpenReport(
            self._node_id,
            self._incarnation,
            bool(closed),
            tuple(findings),
            fellows,
            losses > 0,
            self._commits,
        )

    def _drop_unusable(self, catalog: Catalog) -> None:
        """Sweep versions with a damaged entry; name-spaces without a complete set are marked as missing."""
        for number in catalog.unusable:
            write_version(self._connection, SetVersion(number, "", SetState.FILLING), tables.DROPPED)
        complete = {one.name_space for one in catalog.versions.values() if one.state is SetState.COMPLETE}
        for space in name_spaces(self._connection, catalog.versions) if catalog.unusable else ():
            if space not in complete:
                write_marks(self._connection, space, {MISSING: "a damaged entry"})

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("UPDATE node SET commits = commits + 1")
            self._place.check()
            room = room_on_disk(self._connection, self._path)
            if not room.is_enough:
                raise StoreFull(f"{self._path}: {room.shortage}")
            self._log_pages = tables.limit_log(self._connection, room.pages, self._log_pages)
            self._connection.execute("COMMIT")
        except BaseException as error:
            # SQLite has rolled back by itself after some errors (a full disk): the cause is what counts.
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            known = tables.typed(error, self._path) if isinstance(error, sqlite3.Error) else None
            if isinstance(known or error, StoreFull):
                self._make_room()
            if known is None:
                raise
            raise known from error
        self._commits += 1
        self._place.ledger.write(StoreProgress(self._node_id, self._incarnation, self._commits))
        if not room.is_ample:
            self._make_room()

    def check_in_place(self) -> None:
        """Raise `StoreDamaged` if a file was removed or replaced."""
        self._place.check()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise tables.typed(error, self._path) or StoreFailed(f"{self._path}: {error}") from error

    def _make_room(self) -> None:
        """Copy the log into the file, so that the next attempt can overwrite it."""
        # Another process may read the old log; then this attempt has no more room than before.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def name_spaces(self) -> tuple[str, ...]:
        """Return the name-spaces with a set or a remembered value."""
        with self._reading():
            return name_spaces(self._connection, self._versions)

    def begin_set(self, name_space: str) -> SetWriter:
        """Begin a new version."""
        former = self._find(name_space, SetState.FILLING)
        with self._transaction():
            if former is not None:
                write_version(self._connection, former, tables.DROPPED)
            version = new_version(self._connection, name_space)
        if former is not None:
            self._forget(former)
        self._versions[version.number] = version
        return SetWriter(version, self._add)

    def _newest_until(self, version: SetVersion, limit_ns: int) -> int:
        return newest_until(self._connection, (row.id for row in version.groups.values()), limit_ns)

    def _switch(
        self,
        version: SetVersion,
        mark: str,
        kept: SetVersion | None,
        kept_mark: str,
        dropped: Sequence[SetVersion],
        marks: Marks,
    ) -> None:
        with self._transaction():
            for one in dropped:
                write_version(self._connection, one, tables.DROPPED)
            if kept is not None:
                write_version(self._connection, kept, SetState.KEPT, kept_mark)
            write_version(self._connection, version, SetState.COMPLETE, mark)
            write_marks(self._connection, version.name_space, {**marks, MISSING: None})

    def _drop(self, version: SetVersion) -> None:
        with self._transaction():
            write_version(self._connection, version, tables.DROPPED)
        self._forget(version)

    def _forget(self, version: SetVersion) -> None:
        del self._versions[version.number]
        self._dropped.extend(row.id for row in version.groups.values())

    def _write(self, version: SetVersion, nets: Mapping[Group, Net], marks: Marks = NO_MARKS) -> None:
        """Write changes as if they had their presumed effect; if not, sort them out and write them again."""
        for is_sorted in (False, True):
            rows: dict[Group, GroupRow] = {}
            try:
                with self._transaction():
                    write_marks(self._connection, version.name_space, marks)
                    for group, net in nets.items():
                        known = version.groups.get(group)
                        if known is None or known.description != net.description:
                            row = write_group(self._connection, version.number, known, net.description)
                        else:
                            row = msgspec.structs.replace(known)
                        self._change(row, net)
                        write_watermark(self._connection, version.number, row)
                        rows[group] = row
                    swept = self._sweep()
                break
            except Unexpected:
                assert not is_sorted, "sorted changes have the effect that is presumed"
                for group, net in nets.items():
                    number = version.groups[group].id if group in version.groups else -1
                    net.sort_out(functools.partial(self._present, number))
        # Only now, as the transaction may fail; then nothing has changed.
        version.groups.update(rows)
        del self._dropped[:swept]

    def _change(self, row: GroupRow, net: Net) -> None:
        """Add and remove samples of a group, and count them in its row.

        Raises:
            Unexpected: one of the samples to add was present, or one of the others was not.
        """
        added = SampleRows((*net.rows.parts, ObjectRows([*net.added.values()])))
        evicted = SampleRows((ObjectRows([*net.evicted.values()]),))
        inserted = self._insert(row.id, added)
        statements = _at_places("DELETE", row.id, evicted)
        deleted = sum(self._connection.execute(*statement).rowcount for statement in statements)
        if inserted != len(added) or deleted != len(evicted):
            raise Unexpected
        if net.passing and self._present(row.id, [*net.passing.values()]):
            raise Unexpected
        stored, digest = row.stored, added.digest_sum() - evicted.digest_sum()
        count = stored.count + len(added) - len(evicted)
        assert count >= 0, "no more samples go than there were"
        newest_ns = max(added.newest_ns(), stored.newest_ns)
        row.stored = Summary(count, (stored.digest + digest) & _MASK, newest_ns)

    def _present(self, group_id: int, samples: Sequence[Sample]) -> set[bytes]:
        """Return the digests of those of some samples that the group has."""
        statements = _at_places("SELECT digest", group_id, SampleRows.coerce(samples))
        return {row[0] for statement in statements for row in self._connection.execute(*statement)}

    def _insert(self, group_id: int, samples: SampleRows) -> int:
        """Add the missing ones of some samples; return how many they were.

        A large one has a statement of its own, which copies its payload less often.
        """
        count, execute, is_large = 0, self._connection.execute, False
        for part in samples.parts:
            if self._tries and has_large(part):
                self._move_apart()
            small, large = SampleRows((part,)), list[tuple[Sample, bytes | memoryview]]()
            if part.payload_bytes >= _FEW_BYTES:
                if isinstance(part, Block) and part.count == 1:
                    small, large = NO_ROWS, [(part.sample_with(0, b""), part.payload_view())]
                else:
                    each = part.samples()
                    small = SampleRows.coerce([one for one in each if len(one.payload) < LARGE_BYTES])
                    large = [(one, one.payload) for one in each if len(one.payload) >= LARGE_BYTES]
            for one, payload in large:
                time_ns, writer, sequence, digest, status, key, _ = one
                signed = sequence - (sequence >= _SIGNED_LIMIT) * 2 * _SIGNED_LIMIT
                values = group_id, time_ns, writer, signed, digest, status, key, payload
                count += execute(_INSERT_LARGE, values).rowcount
                is_large = True
            for block in small.blocks(_STATEMENT_BYTES):
                count += execute(*_insertion(group_id, block)).rowcount
        if is_large:
            # A statement keeps a copy of its last values until it gets others. These are no row.
            execute(_INSERT_LARGE, [None] * _INSERT_LARGE.count("?"))
        return count

    def _move_apart(self) -> None:
        """Keep rows apart from their keys from now on, in the caller's transaction; see `tables.APART`."""
        (how,) = self._connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'sample'").fetchone()
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        if tables.IN_ORDER not in how or pages > MOVED_PAGES:
            self._tries = 0
            return
        self._tries -= 1
        for statement in tables.APART:
            self._connection.execute(statement)

    def _sweep(self) -> int:
        """Remove a piece of the dropped versions, in the caller's transaction; return the finished groups."""
        finished = 0
        room = _SWEEP_SAMPLES
        while room > 0 and finished < len(self._dropped):
            group_id = self._dropped[finished]
            removed = self._connection.execute(
                "DELETE FROM sample WHERE sample_group = ?1 AND (source_time_ns, digest) IN"
                " (SELECT source_time_ns, digest FROM sample WHERE sample_group = ?1 LIMIT ?2)",
                (group_id, room),
            ).rowcount
            if removed == room:
                return finished
            room -= removed + _GROUP_COST
            self._connection.execute("DELETE FROM sample_group WHERE id = ?", (group_id,))
            finished += 1
        if finished and finished == len(self._dropped):
            self._connection.execute(
                "DELETE FROM set_version WHERE state = ?"
                " AND version NOT IN (SELECT version FROM sample_group)",
                (tables.DROPPED,),
            )
            self._connection.execute(
                "DELETE FROM type_description WHERE id NOT IN (SELECT type FROM sample_group)"
            )
        return finished

    def replace_damaged(self) -> str:
        """Put a damaged file aside and continue with an empty one."""
        if not self._may_replace_damaged:
            raise StoreFailed(f"{self._path}: it was replaced once before, and is damaged again")
        self._may_replace_damaged = False
        db = self._connection
        with self._reading():
            marks = [(space, key, value) for space, key, value, is_sound in read_marks(db) if is_sound]
            fellows, _ = read_fellows(db)
        lost = {one.name_space for one in self._versions.values() if one.state is SetState.COMPLETE}
        self._place.renew()
        aside = self._exchange_file()
        self._versions, self._dropped = {}, []
        self._tries, self._log_pages = _TRIES, 0
        with self._transaction():
            tables.create(self._connection, self._node_id)
            self._connection.execute(
                "UPDATE node SET incarnation = ?, commits = ?, closed = 0",
                (self._incarnation, self._commits),
            )
            for space, key, value in [*marks, *((space, MISSING, aside or "the file") for space in lost)]:
                write_marks(self._connection, space, {key: value})
            write_fellows(self._connection, fellows)
        self._place.opened()
        return aside

    def tidy(self) -> bool:
        """Remove a piece of the dropped versions."""
        if self._dropped:
            with self._transaction():
                finished = self._sweep()
            del self._dropped[:finished]
        return bool(self._dropped)

    def optimize(self) -> bool:
        """Rewrite the file without its free pages."""
        with self._reading():
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
            if free < WORTH_REWRITING * pages or not has_room_for_copy(self._path, pages - free):
                return False
            self._connection.execute("VACUUM")
        self._make_room()
        return True

    def _read(
        self, version: SetVersion, damage: DamageLog
    ) -> Iterator[tuple[GroupDescription, Iterator[SampleRows]]]:
        before = damage.count
        with StoreView(self._path) as view:
            for description, blocks in view.load_whole(version.number, damage):
                yield description, (SampleRows((block,)) for block in blocks)
        version.soundness = Soundness.INTACT if damage.count == before else Soundness.DAMAGED

    def remember_fellows(self, name_space: str, fellows: Iterable[RememberedFellow]) -> None:
        """Replace the remembered fellows of a name-space."""
        with self._transaction():
            self._connection.execute("DELETE FROM fellow WHERE name_space = ?", (name_space,))
            write_fellows(self._connection, {name_space: fellows})

    def mark(self, name_space: str, marks: Marks) -> None:
        """Remember values; None forgets one."""
        with self._transaction():
            write_marks(self._connection, name_space, marks)

    @property
    def commits(self) -> int:
        """Transactions so far."""
        return self._commits

    def outlive(self, incarnation: int, commits: int) -> None:
        """Count on from above these numbers."""
        before = self._incarnation, self._commits
        try:
            with self._transaction():
                self._incarnation, self._commits = max(before[0], incarnation), max(before[1], commits)
                counts = self._incarnation, self._commits
                self._connection.execute("UPDATE node SET incarnation = ?, commits = ?", counts)
        except StoreError:
            self._incarnation, self._commits = before
            raise

    def marks(self, name_space: str) -> dict[str, str]:
        """Return the values remembered with `mark`, without damaged ones."""
        with self._reading():
            return {key: value for _, key, value, sound in read_marks(self._connection, name_space) if sound}

    def close(self) -> None:
        """Close the store; if the disk refuses to record it, the end counts as unclean, without loss."""
        if not self._open:
            return
        self._open = False
        try:
            for _ in range(2):  # a full disk may have room once the log is copied
                with contextlib.suppress(StoreError), self._transaction():
                    self._connection.execute("UPDATE node SET closed = 1")
                    break
        finally:
            self._release.close()
