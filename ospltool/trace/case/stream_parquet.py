"""Writes records as one Parquet file, as they come."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ospltool.analytics.contract import Detail, Table, schema
from ospltool.trace.case.columnar import piece_of_records
from ospltool.trace.reading.record import TraceRecord

AT_ONCE: Final = 20_000


def write_parquet(records: Iterable[TraceRecord], stream: IO[bytes]) -> None:
    """Write records with their node, and the columns of a case's table of records."""
    of_records = [field for field in schema(Table.RECORDS) if field.name != "edge"]
    columns = pa.schema([pa.field("node", pa.string()), *of_records])
    rest = iter(records)
    with pq.ParquetWriter(stream, columns, compression="zstd", store_schema=False) as writer:
        while batch := list(itertools.islice(rest, AT_ONCE)):
            table = piece_of_records(batch, Detail.FULL, in_order=True).table.drop_columns("edge")
            nodes = pa.array([record.node for record in batch], pa.string())
            writer.write_table(table.add_column(0, "node", nodes).cast(columns))
