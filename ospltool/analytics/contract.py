"""The tables of a case: one contract for every engine that writes or reads them.

A case is a directory with a directory of Parquet files per table, or one DuckDB file with the same tables.
Times are nanoseconds since 1970 UTC as integers, so that no engine converts them its own way.
"""

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 5

META_FILE: Final = "case.json"
DAY_NS: Final = 86_400_000_000_000
NO_DAY: Final = "none"
"""The partition of what has no absolute time."""

NO_DOMAIN: Final = "default"
"""The partition of what belongs to no named domain."""


_EPOCH: Final = datetime.date(1970, 1, 1)


SAMPLED_MOD: Final = 65_521
"""A prime number. Times whose division by it leaves a small rest are telling, whatever their resolution: a
copy of a file has the same. How small is told by the number of records of the file."""

# Chosen: a file of 250 kB has some, and all files together some tenths of a percent of their records.
LEAST_SAMPLED: Final = SAMPLED_MOD // 512
"""The rests below this are small in any file."""

SAMPLED: Final = 64
"""Telling times of a small file, about."""


class Table(enum.StrEnum):
    """The tables of a case."""

    RECORDS = "records"
    """Every record of every trace and log."""
    SOURCES = "sources"
    """The files that were loaded, with what was found in them."""
    TEMPLATES = "templates"
    """The catalogue: what each template means."""
    STORED = "stored"
    """What the stores of the case hold, by group."""
    FACTS = "facts"
    """Runs, masterships, alignments and the like, of the domains that `ospltool pipeline` judged."""
    VERDICTS = "verdicts"
    """What was found in each of these domains."""
    STORIES = "stories"
    """What was found there, by cause."""


class Detail(enum.StrEnum):
    """The part of each record that is loaded."""

    RECORDS = "records"
    """The record columns; level, template and fields are null."""
    FULL = "full"
    """Everything."""


PARTITIONS: Final = {
    Table.RECORDS: ("domain", "day", "node"),
    Table.FACTS: ("domain", "day"),
    Table.VERDICTS: ("domain", "day"),
    Table.STORIES: ("domain", "day"),
}
"""The columns that are directories, `records/domain=ship1/day=2026-11-21/node=n1/`, by table."""

RECORD_COLUMNS: Final = (
    ("kind", "string", "trace, report, unparsed, or damaged: where a file cannot be read on"),
    ("file", "string", "the file, as in table sources"),
    ("off", "int64", "byte offset in the file, after decompression"),
    ("length", "int64", "bytes of the record, with header and line ends"),
    ("time_ns", "int64", "nanoseconds since 1970 UTC, or since the start of the service; see clock"),
    ("clock", "string", "absolute, relative or none"),
    ("state", "string", "service state; empty for the store's lines and for reports"),
    ("thread", "string", "thread; for the store's lines the printer"),
    ("text", "string", "the message"),
    ("terminated", "bool", "a line end followed the message"),
    ("stamp", "string", "the two times of the header, where they do not agree; null otherwise"),
    (
        "edge",
        "bool",
        "a run, thread or state may begin or end here, or a clock go back: analyses look at these",
    ),
    (
        "telling",
        "bool",
        "facts depend on it, or copies are known by it: such rows have groups of their own",
    ),
    ("level", "string", "level by the catalogue, ? where it is not certain"),
    ("template", "string", "id of the template, as in table templates; null when none matches"),
    ("event", "string", "event of the shared vocabulary, such as align.request"),
    ("fellow", "string", "the other node, by its address"),
    ("namespace", "string", "the name-space"),
    ("group_name", "string", "the group, partition.topic"),
    (
        "conflict",
        "int64",
        "number of the conflict, unique on one node in one run; for ospltool traces see fields",
    ),
    ("samples", "int64", "a number of samples"),
    ("request", "string", "source triple of an alignment request"),
    ("fields", "map", "the other fields of the template, by name"),
)
"""The columns of table records, besides the partition columns."""

DETAILS: Final = 12
"""How many of them are null in a case that was loaded with `Detail.RECORDS`: the last ones."""

SOURCE_COLUMNS: Final = (
    ("domain", "string", "the domain of the node, default without a name"),
    ("node", "string", "the node"),
    ("file", "string", "the path as it was given"),
    ("format", "string", "trace, reports or events"),
    ("origin", "string", "opensplice or engine"),
    ("bytes", "int64", "bytes read, after decompression"),
    ("records", "int64", "records found"),
    ("unparsed_bytes", "int64", "bytes that belong to no record"),
    ("unmatched", "int64", "trace records that no template matches; null without level and template"),
    ("first_ns", "int64", "earliest time of a trace record; null without one"),
    ("last_ns", "int64", "latest time, likewise"),
    ("in_order", "bool", "no clock went back, and records have a time throughout, or none has"),
)

TEMPLATE_COLUMNS: Final = (
    ("id", "string", "the id"),
    ("event", "string", "event of the shared vocabulary"),
    ("level", "string", "the level, ? where it is not certain"),
    ("thread", "string", "the thread that prints it, where known"),
    ("origin", "string", "opensplice or engine"),
    ("pattern", "string", "the message, with its fields in braces"),
    ("meaning", "string", "what happened and what to do about it"),
)

STORED_COLUMNS: Final = (
    ("domain", "string", "the domain of the node, as in table sources"),
    ("node", "string", "whose store it is"),
    ("store", "string", "the path as it was given"),
    ("format", "string", "who wrote the store"),
    ("set_number", "int64", "identifies the set in its store"),
    ("name_space", "string", "the name-space"),
    ("kind", "string", "current, filling or backup"),
    ("complete", "bool", "null where the store does not tell"),
    ("group_name", "string", "the group, partition.topic"),
    ("type_name", "string", "the type"),
    ("samples", "int64", "samples that can be read"),
    ("instances", "int64", "different keys among them"),
    ("disposed", "int64", "samples that dispose their instance"),
    ("damaged", "int64", "what cannot be read"),
    ("oldest_ns", "int64", "oldest source time, 0 without samples"),
    ("newest_ns", "int64", "newest source time, 0 without samples"),
)

FACT_COLUMNS: Final = (
    ("kind", "string", "run, state, mastership, conflict, merge, loss, size, alignment or delivery"),
    ("start_ns", "int64", "its beginning, by the corrected clock; null if unknown"),
    ("end_ns", "int64", "its end, likewise"),
    ("node", "string", "whose fact it is; of an alignment, the node that asked"),
    ("run", "int64", "number of the start of its service in a file; null if not of one run"),
    ("set_name", "string", "name-space or group; null without one"),
    ("fellow", "string", "the other node, by name where known: a master, an aligner, who was lost"),
    ("what", "string", "the state, how a conflict or alignment ended, how a size is known, and so on"),
    ("samples", "int64", "number of samples; null without one"),
    ("file", "string", "the file of the line that shows it"),
    ("off", "int64", "the byte offset of that line"),
)

VERDICT_COLUMNS: Final = (
    ("kind", "string", "headline, finding, conclusion (about the data) or unknown"),
    ("start_ns", "int64", "its beginning, by the corrected clock; null if unknown"),
    ("end_ns", "int64", "its end, likewise"),
    ("rule", "string", "the rule of a finding, what became of the set of a conclusion"),
    ("code", "string", "health code; null without one"),
    ("set_name", "string", "name-space or group; null if several or none"),
    ("nodes", "string", "the nodes concerned, with commas"),
    ("title", "string", "one sentence"),
    ("explanation", "string", "cause, and advice"),
    ("is_bad", "bool", "it tells of a fault or a lasting difference"),
    ("lines", "int64", "number of lines that show it"),
    ("evidence", "string", "the first of them, as JSON"),
    ("figures", "string", "figures and names for programs, as JSON"),
    ("story", "int64", "number of its story; null without one"),
    ("judged", "string", "identifies the records of the domain and the rules by which it was judged"),
)

STORY_COLUMNS: Final = (
    ("number", "int64", "its number in the domain, by time"),
    ("start_ns", "int64", "the beginning of its first finding; null if unknown"),
    ("end_ns", "int64", "the end of its last one"),
    ("nodes", "string", "the nodes concerned, with commas"),
    ("title", "string", "what began it"),
    ("findings", "int64", "number of findings"),
    ("conclusions", "int64", "number of conclusions about the data that follow"),
)

COLUMNS: Final = {
    Table.RECORDS: RECORD_COLUMNS,
    Table.SOURCES: SOURCE_COLUMNS,
    Table.TEMPLATES: TEMPLATE_COLUMNS,
    Table.STORED: STORED_COLUMNS,
    Table.FACTS: FACT_COLUMNS,
    Table.VERDICTS: VERDICT_COLUMNS,
    Table.STORIES: STORY_COLUMNS,
}


def columns_of(table: Table) -> dict[str, str]:
    """Return the type of each column of a table, the partition columns first."""
    return dict.fromkeys(PARTITIONS.get(table, ()), "string") | {n: k for n, k, _ in COLUMNS[table]}


def tables_by_domain() -> tuple[Table, ...]:
    """Return the tables whose rows belong to a domain."""
    return tuple(table for table in Table if "domain" in columns_of(table))


def no_rows(table: Table, types: Mapping[str, str]) -> str:
    """Return SQL of a table without rows; `types` has the engine's name of each type."""
    nulls = ", ".join(f"cast(null as {types[kind]}) as {name}" for name, kind in columns_of(table).items())
    return f"select {nulls} where false"


@functools.cache
def schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table's Parquet files, without its partition columns."""
    import pyarrow as pa  # only where tables are written

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
        "map": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[kind]) for name, kind, _ in COLUMNS[table]])


def day_of(days_since_1970: int) -> str:
    """Return the partition of a day in UTC, such as `2026-11-21`; NO_DAY for -1."""
    return NO_DAY if days_since_1970 < 0 else str(_EPOCH + datetime.timedelta(days_since_1970))
