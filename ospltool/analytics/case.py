"""A case on disk: its layout, writing its Parquet files, and opening it again."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import pathlib
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.core.untrusted import words_of
from ospltool.analytics.contract import (
    FORMAT_VERSION,
    META_FILE,
    Detail,
    Table,
    day_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_WITH_STATISTICS: Final = ["off", "time_ns", "state", "thread", "edge", "level", "template", "event"]


_PART_NAME: Final = re.compile(r"part-\d{1,9}")


class CaseError(Exception):
    """A case that cannot be read or written; the message names it and says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A case.

    Attributes:
        path: a directory of Parquet files, or a DuckDB file.
        detail: what was loaded.
    """

    path: pathlib.Path
    detail: Detail

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory of Parquet files, else a DuckDB file."""
        return self.path.is_dir()

    def files(self, table: Table) -> str:
        """Return a glob pattern for the Parquet files of a table."""
        return f"{self.path}/{table}/**/*.parquet"


def keep_private(directory: pathlib.Path) -> None:
    """Make the files of a case readable by their owner only, if only the owner can enter its directory."""
    if directory.is_dir() and not directory.stat().st_mode & 0o077:
        for path in directory.rglob("*"):
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
    return Case(path, detail)


def write_meta(directory: pathlib.Path, detail: Detail, files: dict[str, Any] | None = None) -> None:
    """Write the description of a case; a directory without it is not a case yet.

    Args:
        directory: the case.
        detail: what was loaded.
        files: description of the loaded files, so that more can be added.
    """
    data = {"detail": detail.value, "files": files or {}}
    described = {"format_version": FORMAT_VERSION, "kind": "case", "data": data}
    with replacing(directory / META_FILE) as written:
        written.write_text(json.dumps(described) + "\n", encoding="utf-8")


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
    for path in directory.rglob("*"):
        if path.is_symlink():
            raise CaseError(f"{path}: a symbolic link in a case, which is not followed")


def leftovers(directory: pathlib.Path, known: Mapping[str, Any]) -> list[pathlib.Path]:
    """Return the files of records that a case does not name: replaced ones, and those of a killed command.

    Args:
        directory: the case.
        known: entries of its files (see `files_of`).
    """
    try:
        names = {part["name"] for entry in known.values() for part in entry["parts"]}
    except (KeyError, TypeError):  # damaged
        return []
    return [
        path
        for path in (directory / Table.RECORDS).rglob("part-*.parquet")
        if path.name.rpartition("-")[0] not in names
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _LoadedPart:
    """What a case says of a part of a file.

    `name` begins the names of its Parquet files; it is empty for those of Spark.
    """

    name: str
    start: int
    counts: tuple[int, int, int, int]

    def __post_init__(self) -> None:
        """Refuse a name that leads elsewhere: a case may come from anybody."""
        if self.name and not _PART_NAME.fullmatch(self.name):
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


def files_of(case: Case) -> dict[str, Any]:
    """Return the description of the files that were loaded into a case; empty if it has none.

    Raises:
        CaseError: it is damaged.
    """
    if not case.is_directory:
        return {}
    meta = case.path / META_FILE
    try:
        files: dict[str, Any] = json.loads(meta.read_text(encoding="utf-8"))["data"].get("files", {})
        msgspec.convert(files, dict[str, _LoadedFile])
    except Exception as cause:  # of any class
        raise CaseError(f"{meta}: {words_of(cause)}") from None
    return files


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
        self._root = directory / Table.RECORDS
        self._domain = domain
        self._node = node
        self._name = name
        self._detail = detail
        self._files = 0
        self._open: collections.OrderedDict[tuple[int, pa.Schema], pq.ParquetWriter] = (
            collections.OrderedDict()
        )

    def write(self, table: pa.Table, days: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Write rows of the contract's columns, with the day of each."""
        if not len(days):
            return
        if days[0] == days[-1] and (days == days[0]).all():
            self._writer(int(days[0]), table.schema).write_table(table, row_group_size=ROWS_TOGETHER)
            return
        table = _with_own_text(table)
        for day in sorted(set(days.tolist())):
            self._writer(day, table.schema).write_table(
                table.filter(days == day), row_group_size=ROWS_TOGETHER
            )

    def _writer(self, day: int, schema: pa.Schema) -> pq.ParquetWriter:
        key = (day, schema)  # texts may come as views or not; a file has one kind of columns
        writer = self._open.get(key)
        if writer is None:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            directory = self._root / partition(self._domain, day, self._node)
            directory.mkdir(parents=True, exist_ok=True)
            writer = records_file(directory / f"{self._name}-{self._files}.parquet", schema, self._detail)
            self._files += 1
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

    return pq.ParquetWriter(
        path,
        schema,
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


def write_table(directory: pathlib.Path, table: Table, rows: pa.Table) -> None:
    """Write a small table of a case. `directory` is that of the case."""
    import pyarrow.parquet as pq  # only where tables are written

    target = directory / table
    target.mkdir(parents=True, exist_ok=True)
    with replacing(target / "part-0.parquet") as written:
        pq.write_table(rows, written, compression=COMPRESSION, store_schema=False)
