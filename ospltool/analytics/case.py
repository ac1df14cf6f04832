"""A case on disk: its layout, writing its Parquet files, and opening it again."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import secrets
import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.core.untrusted import words_of
from engine.files import open_private
from ospltool.analytics.contract import (
    FORMAT_VERSION,
    META_FILE,
    Detail,
    Table,
    day_of,
)
from ospltool.output.locations import is_remote, of_arrow, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

FILE_SUFFIXES: Final = (".duckdb", ".db")
"""Suffixes of a case that is one DuckDB file."""

COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 4
TEXT_LEVEL: Final = 6
"""For texts and fields, which come in the order of their templates: a third smaller than at level 4."""
QUICK_LEVEL: Final = 1
"""For a case without templates, in whose order higher levels gain little."""
ROWS_TOGETHER: Final = 16_384
"""Rows of a group. They come in the order of their templates, so a query by template reads few groups."""
OPEN_FILES: Final = 4
"""Number of days that a writer keeps open; threads write out of order, so a day may come back."""

_REPEATED: Final = [
    "kind", "file", "clock", "state", "thread", "level", "template", "event", "fellow", "namespace",
    "group_name", "fields.key_value.key",
]  # fmt: skip
_NUMBERS: Final = dict.fromkeys(["off", "length"], "DELTA_BINARY_PACKED")
_TEXTS: Final = frozenset(["text", "fields.key_value.key", "fields.key_value.value"])
_WITH_STATISTICS: Final = [
    "off", "time_ns", "state", "thread", "edge", "telling", "level", "template", "event",
]  # fmt: skip


VERSIONS: Final = "versions"
CHECKPOINTS: Final = "checkpoints"
LOCK_FILE: Final = ".lock"
WRITERS: Final = "writers"
"""Where a writer says that it is there, on a file system without locks."""
RENEWED_S: Final = 3.0
LEASE_S: Final = 15.0
"""Seconds after which a writer that has not said so again is taken for killed: some times as many."""
KEPT_S: Final = 60.0
"""Seconds for which a writer leaves what it replaced to those who read the version before."""

_PART_NAME: Final = re.compile(r"part-[0-9a-f]{16}")
_CHECKPOINT: Final = re.compile(r"[0-9a-f]{0,16}")
_DATA_FILE: Final = re.compile(r"[a-z]+/(?:[^/\0]+/)*part-[0-9a-f]{16}(?:-\d+)?\.parquet")


class CaseError(Exception):
    """A case that cannot be read or written; the message names it and says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class _LoadedPart:
    """What a case says of a part of a file; `name` begins the names of its Parquet files."""

    name: str
    start: int
    counts: tuple[int, int, int, int]
    times: tuple[int | None, int | None, bool, bool, bool]

    def __post_init__(self) -> None:
        """Refuse a name that leads elsewhere: a case may come from anybody."""
        if not _PART_NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a part")


@dataclasses.dataclass(frozen=True, slots=True)
class _LoadedFile:
    """What a case says of a file that was loaded into it."""

    domain: str
    node: str
    file: str
    format: str
    origin: str
    size: int
    digest: str
    parts: tuple[_LoadedPart, ...]
    untimed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """What is in a case, as one of its versions says.

    Attributes:
        files: what was loaded of each file, by its key.
        tables: the Parquet files of each table, from the directory of the case.
        stream: name of the checkpoint of the query that fed the case last; empty if a command did.
        batch: number of the last batch of that query.
    """

    files: dict[str, Any] = dataclasses.field(default_factory=dict)
    tables: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    stream: str = ""
    batch: int = -1

    def __post_init__(self) -> None:
        """Refuse what leads out of the case, which may come from anybody."""
        msgspec.convert(self.files, dict[str, _LoadedFile])
        if not _CHECKPOINT.fullmatch(self.stream):
            raise ValueError(f"{self.stream!r} is no name of a checkpoint")
        for table, paths in self.tables.items():
            for path in paths:
                parts = path.split("/")
                if parts[0] != table or not _DATA_FILE.fullmatch(path) or {".", ".."} & {*parts}:
                    raise ValueError(f"{path!r} is no file of the table {table}")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A case, in the version that was the newest when it was opened.

    Attributes:
        path: a directory of Parquet files, or a DuckDB file.
        detail: what was loaded.
        contents: what is in it; of a DuckDB file, nothing is said.
    """

    path: pathlib.Path
    detail: Detail
    contents: Contents = dataclasses.field(default_factory=Contents)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory of Parquet files, else a DuckDB file."""
        return self.path.is_dir()

    def files(self, table: Table) -> list[pathlib.Path]:
        """Return the Parquet files of a table."""
        return [self.path / path for path in self.contents.tables.get(table, ())]


def keep_private(directory: pathlib.Path) -> None:
    """Make the files of a case readable by their owner only, if only the owner can enter its directory."""
    if not is_remote(directory) and directory.is_dir() and not directory.stat().st_mode & 0o077:
        for path in directory.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a running query renews its checkpoint
                path.chmod(0o700 if path.is_dir() else 0o600)


def is_case_directory(path: pathlib.Path) -> bool:
    """Tell whether a path is a case of Parquet files."""
    try:
        return path.is_dir() and (path / META_FILE).is_file()
    except PermissionError:  # the readers of other kinds of files report it
        return False


def _require_database(path: pathlib.Path) -> None:
    """Require a file of DuckDB, which has "DUCK" after a check sum."""
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except OSError as cause:
        raise CaseError(f"{path}: {cause.strerror}") from None
    if head[8:] != b"DUCK":
        raise CaseError(f"{path}: no case: neither a directory of tables nor a DuckDB file")


def open_case(path: pathlib.Path) -> Case:
    """Open the case at a path.

    Raises:
        CaseError: there is no case, or its version is unknown.
    """
    if not path.exists():
        raise CaseError(f"{path}: no such case")
    if path.is_file():
        _require_database(path)
        return Case(path, Detail.FULL)
    refuse_links(path)
    meta = path / META_FILE
    try:
        described = json.loads(meta.read_text(encoding="utf-8"))
        version, data = described["format_version"], described["data"]
        detail: Detail = Detail(data["detail"])
    except FileNotFoundError:
        raise CaseError(
            f"{path}: no case, it has no {META_FILE}; make one with `ospltool trace load`"
        ) from None
    except OSError as cause:
        raise CaseError(f"{meta}: {cause.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise CaseError(f"{meta}: {words_of(cause)}") from None
    if version != FORMAT_VERSION:
        raise CaseError(
            f"{meta}: format version {version}, this release reads {FORMAT_VERSION}; load the traces again"
        )
    return Case(path, detail, newest(path)[1])


def _versions(path: pathlib.Path) -> list[int]:
    """Return the numbers of the versions of a case, the newest first."""
    there = (path / VERSIONS).iterdir()
    return sorted((int(one.stem) for one in there if one.name == _version_name(one.stem)), reverse=True)


def _version_name(number: int | str) -> str:
    return f"{int(number):012}.json" if str(number).isdecimal() else ""


def newest(path: pathlib.Path) -> tuple[int, Contents]:
    """Return the newest whole version of a case and its number.

    Where a file is seen before all of it is written, the newest one may not be whole yet.

    Raises:
        CaseError: there is none.
    """
    problem = f"{path / VERSIONS}: no version of the case is there"
    try:
        for number in _versions(path):
            version = path / VERSIONS / _version_name(number)
            try:
                return number, Contents(**json.loads(version.read_text(encoding="utf-8"))["data"])
            except FileNotFoundError:  # a writer has replaced it meanwhile
                return newest(path)
            except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as cause:
                problem = f"{version}: {words_of(cause)}"
    except FileNotFoundError:
        pass
    except OSError as cause:
        problem = f"{cause.filename or path}: {cause.strerror or cause}"
    raise CaseError(problem)


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Give a place to write a file; at the end it takes the place of `path` whole."""
    written = path.with_name(f".{path.name}.new")
    written.unlink(missing_ok=True)
    yield written
    written.replace(path)


def refuse_links(directory: pathlib.Path) -> None:
    """Refuse a case with symbolic links, which lead elsewhere: nothing is read or written through one.

    Raises:
        CaseError: there is one.
    """
    for path in directory.rglob("*") if not is_remote(directory) else ():
        if path.is_symlink():
            raise CaseError(f"{path}: a symbolic link in a case, which is not followed")


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Lock a case against other commands.

    Raises:
        CaseError: another command has locked it, or it has symbolic links.
    """
    if is_remote(path):
        with _leased(path / WRITERS):
            yield
        return
    refuse_links(path)
    descriptor = open_private(path / LOCK_FILE, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CaseError(f"{path}: is being written by another command") from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _leased(directory: pathlib.Path) -> Iterator[None]:
    """Lock a case on a file system without locks.

    A writer puts a file of its own in place and only then looks for others: of two that begin at once, one
    sees the other. While it lives, it renews its file; one that is not renewed was left by a killed command.
    """
    own = directory / secrets.token_hex(8)
    over = threading.Event()

    def renew() -> None:
        for number in itertools.count():
            if over.wait(RENEWED_S):
                return
            with contextlib.suppress(OSError):  # it is tried again before the others give it up
                own.write_text(str(number))

    directory.mkdir(mode=0o700, exist_ok=True)
    own.write_text("new")
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        others = _renewals(directory, own)
        until = time.monotonic() + LEASE_S
        while others and time.monotonic() < until:
            time.sleep(1)
            if any(others.get(one) != said for one, said in _renewals(directory, own).items()):
                raise CaseError(f"{directory.parent}: is being written by another command")
        for one in others:
            one.unlink(missing_ok=True)
        yield
    finally:
        over.set()
        thread.join()
        own.unlink(missing_ok=True)


def _renewals(directory: pathlib.Path, own: pathlib.Path) -> dict[pathlib.Path, str]:
    """Return the files of other writers with what each says."""
    found = {}
    for one in directory.iterdir():
        if one != own:
            with contextlib.suppress(FileNotFoundError):
                found[one] = one.read_text()
    return found


@contextlib.contextmanager
def writing(path: pathlib.Path, detail: Detail, *, is_shared: bool = False) -> Iterator[CaseWriter]:
    """Lock a case for writing, and remove what a killed command left; make an empty one if there is none.

    After an error, a case that was made here and is empty goes, too.

    Args:
        path: directory of the case.
        detail: the columns that are filled.
        is_shared: other users write the rows, too, as executors of a cluster do. Otherwise only its owner
            can look into a new case.

    Raises:
        CaseError: the path leads to something else, or the case has another detail or another writer, or
            cannot be written.
    """
    is_new = not is_case_directory(path)
    try:
        if is_new:
            _make_room(path, is_shared=is_shared)
        with locked(path):
            if is_new:
                CaseWriter(path, detail, 0, Contents()).commit(Contents())
                described = {
                    "format_version": FORMAT_VERSION,
                    "kind": "case",
                    "data": {"detail": detail.value},
                }
                _put(path / META_FILE, f"{json.dumps(described)}\n")  # from here on, it is a case
            case = open_case(path)
            if case.detail is not detail:
                raise CaseError(f"{path}: was loaded with detail {case.detail}, not {detail}; load it alike")
            writer = CaseWriter(path, detail, *newest(path))
            writer.sweep()
            try:
                yield writer
            except BaseException:
                if is_new and not newest(path)[1].files:
                    remove_tree(path)
                else:
                    writer.sweep()
                raise
            writer.sweep()
    except OSError as cause:
        raise CaseError(f"{cause.filename or path}: {cause.strerror or cause}") from None


def _make_room(path: pathlib.Path, *, is_shared: bool) -> None:
    """Make the directory of a new case, or take that of one whose first writer was killed."""
    own = {LOCK_FILE, WRITERS, VERSIONS, f".{META_FILE}.new"}
    if path.exists() and not (path.is_dir() and {one.name for one in path.iterdir()} <= own):
        raise CaseError(f"{path}: exists already")
    path.mkdir(mode=0o777 if is_shared else 0o700, parents=True, exist_ok=True)


def write_rows(directory: pathlib.Path, under: str, rows: pa.Table) -> str:
    """Write a small file of a table, which its name tells from others; return its place in the case.

    Args:
        directory: directory of the case.
        under: the directories of the file in it, the table first.
        rows: its rows.
    """
    import pyarrow.parquet as pq  # only where tables are written

    sink = io.BytesIO()
    pq.write_table(rows, sink, compression=COMPRESSION, store_schema=False)
    data = sink.getvalue()
    place = f"{under}/part-{hashlib.blake2b(data, digest_size=8).hexdigest()}.parquet"
    path = directory / place
    # Of the same size, it is the same: an earlier attempt wrote it. One that was killed leaves less.
    if not path.exists() or path.stat().st_size != len(data):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
    return place


class CaseWriter:
    """The one writer of a case.

    Data files lie under names of their own from the beginning, and none is changed. The next version names
    those that count, and is put in place whole. So neither a reader nor a killed writer needs more of a
    file system than that a file that was closed is there for all, and nothing is ever renamed.

    Args:
        path: directory of the case.
        detail: the columns that are filled.
        number: number of its newest version.
        contents: what that says.
    """

    def __init__(self, path: pathlib.Path, detail: Detail, number: int, contents: Contents) -> None:
        self.path = path
        self.detail = detail
        self.contents = contents
        self._number = number
        self._replaced: dict[str, float] = {}
        """Files that no longer count, with when they were replaced."""

    def write(self, table: Table, rows: pa.Table) -> str:
        """Write a small table, which its name tells from others; return its place for the next version."""
        return write_rows(self.path, str(table), rows)

    def commit(self, contents: Contents) -> None:
        """Make these contents the newest version."""
        version = _version_name(self._number + 1)
        (self.path / VERSIONS).mkdir(mode=0o700, exist_ok=True)
        _put(
            self.path / VERSIONS / version,
            json.dumps({"kind": "case-version", "data": dataclasses.asdict(contents)}),
        )
        now = time.monotonic()
        old, new = _places(self.contents), _places(contents)
        if self._number:
            self._replaced[f"{VERSIONS}/{_version_name(self._number)}"] = now
        self._replaced |= dict.fromkeys(old - new, now)
        self._number += 1
        self.contents = contents
        for place in [one for one, since in self._replaced.items() if since <= now - KEPT_S or one in new]:
            del self._replaced[place]
            if place not in new:
                (self.path / place).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what the newest version does not name: what it replaced, and what a killed command left."""
        self._number, self.contents = newest(self.path)
        named = {self.path / place for place in _places(self.contents)}
        for table in Table:
            for path in (self.path / table).rglob("*.parquet"):
                if path not in named:
                    path.unlink(missing_ok=True)
        for number in _versions(self.path)[1:]:
            (self.path / VERSIONS / _version_name(number)).unlink(missing_ok=True)
        there = self.path / CHECKPOINTS
        for path in there.iterdir() if there.is_dir() else ():
            if path.name != self.contents.stream:
                remove_tree(path)
        self._replaced.clear()


def _places(contents: Contents) -> set[str]:
    return {place for places in contents.tables.values() for place in places}


def _put(path: pathlib.Path, text: str) -> None:
    """Put a new file in place, whole where the file system can.

    Where it cannot, a number that another writer has taken meanwhile shows that this one is not the only one.
    """
    if is_remote(path):
        if path.exists():
            raise CaseError(f"{path}: another command has written it meanwhile")
        path.write_text(text)
        return
    with replacing(path) as written:
        written.write_text(text, encoding="utf-8")


def new_name() -> str:
    """Return what the names of Parquet files of a bundle begin with; no other bundle has it.

    So two attempts at a task of a cluster never write the same file.
    """
    return f"part-{secrets.token_hex(8)}"


def bundle_of(place: str) -> str:
    """Return the name of the bundle that a file of records belongs to."""
    return place.rpartition("/")[2].rpartition("-")[0]


def under_day(table: Table, domain: str, day: str) -> str:
    """Return the directories of a table's rows, from that of the case.

    Args:
        table: the table.
        domain: the domain of the rows.
        day: their day, as `day_of` gives it.
    """
    return f"{table}/domain={urllib.parse.quote(domain, safe=' ')}/day={day}"


def domain_in(place: str) -> str:
    """Return the domain of a file below `under_day`."""
    return urllib.parse.unquote(place.split("/")[1].partition("=")[2])


def partition(domain: str, day: int, node: str) -> str:
    """Return the directories of records, with escaped names.

    Engines undo the escapes of a partition's value, `%3A` for `:`.

    Args:
        domain: the domain of the node.
        day: the day of the records since 1970; -1 for no absolute time.
        node: the node.
    """
    domain, node = (urllib.parse.quote(one, safe=" ") for one in (domain, node))
    return f"domain={domain}/day={day_of(day)}/node={node}"


class RecordWriter:
    """Writes records of one node as Parquet, each day in its directory.

    Args:
        directory: the case.
        domain: the domain of the node.
        node: the node.
        name: what its files begin with; no two writers of a case share it.
        detail: the columns that are filled.
    """

    def __init__(
        self, directory: pathlib.Path, domain: str, node: str, name: str, detail: Detail = Detail.FULL
    ) -> None:
        self._directory = directory
        self._domain = domain
        self._node = node
        self._name = name
        self._detail = detail
        self.places: list[str] = []
        """The files that it began, from the directory of the case."""
        self._open: collections.OrderedDict[tuple[int, pa.Schema], pq.ParquetWriter] = (
            collections.OrderedDict()
        )

    def write(self, table: pa.Table, days: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Write rows of the contract's columns, with the day of each, the telling ones first."""
        if not len(days):
            return
        if days[0] == days[-1] and (days == days[0]).all():
            self._write(int(days[0]), table)
            return
        table = _with_own_text(table)
        for day in sorted(set(days.tolist())):
            self._write(day, table.filter(days == day))

    def _write(self, day: int, table: pa.Table) -> None:
        """Write rows of one day; groups without a telling row are not read where only such rows are."""
        telling = sum(chunk.true_count for chunk in table.column("telling").chunks)
        for rows in (table.slice(0, telling), table.slice(telling)):
            if rows.num_rows:
                self._writer(day, table.schema).write_table(rows, row_group_size=ROWS_TOGETHER)

    def _writer(self, day: int, schema: pa.Schema) -> pq.ParquetWriter:
        key = (day, schema)  # texts may come as views or not; a file has one kind of columns
        writer = self._open.get(key)
        if writer is None:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            where = partition(self._domain, day, self._node)
            place = f"{Table.RECORDS}/{where}/{self._name}-{len(self.places)}.parquet"
            (self._directory / place).parent.mkdir(parents=True, exist_ok=True)
            writer = records_file(self._directory / place, schema, self._detail)
            self.places.append(place)
            self._open[key] = writer
        self._open.move_to_end(key)
        return writer

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()


def records_file(path: pathlib.Path, schema: pa.Schema, detail: Detail = Detail.FULL) -> pq.ParquetWriter:
    """Open a new file of the table of records for writing.

    Args:
        path: the file.
        schema: its columns.
        detail: those that are filled.
    """
    import pyarrow.parquet as pq  # only where tables are written

    place, system = of_arrow(path)
    return pq.ParquetWriter(
        place,
        schema,
        filesystem=system,
        compression=COMPRESSION,
        compression_level=_levels(schema, detail),
        use_dictionary=_REPEATED,
        column_encoding=_NUMBERS,
        write_statistics=_WITH_STATISTICS,
        store_schema=False,
    )


def _levels(schema: pa.Schema, detail: Detail) -> dict[str, int]:
    """Return the level of compression of each column of a file, by its path in Parquet."""
    usual, texts = (COMPRESSION_LEVEL, TEXT_LEVEL) if detail is Detail.FULL else (QUICK_LEVEL, QUICK_LEVEL)
    names = {name for name in schema.names if name != "fields"} | _TEXTS
    return {name: texts if name in _TEXTS else usual for name in names}


def _with_own_text(table: pa.Table) -> pa.Table:
    """Copy the texts of a table, as Arrow cannot filter views into other memory."""
    import pyarrow as pa  # only where tables are written

    for place, field in enumerate(table.schema):
        if field.type == pa.string_view():
            table = table.set_column(place, field.name, table.column(place).cast(pa.string()))
    return table
