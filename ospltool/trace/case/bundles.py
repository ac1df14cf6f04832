"""Parts of files that are loaded together, into the same files of a case.

A directory may have a hundred thousand small files, such as rotated traces. A Parquet file for each would
take more bytes than the traces, and a query would open all of them. So the small parts of a node become one
table, and the plain traces among them one piece of bytes, which is split and matched at once.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ospltool.analytics.case import records_file
from ospltool.analytics.contract import Detail, Table, schema
from ospltool.output.locations import of_arrow
from ospltool.trace.case.columnar import (
    ColumnarPart,
    PlacedFile,
    Times,
    is_text,
    is_usual,
    piece_of_records,
    piece_of_trace,
    usual_piece,
)
from ospltool.trace.reading import damage
from ospltool.trace.reading.headers import IS_LINE_HEADER
from ospltool.trace.reading.ranges import PIECE_BYTES, Range, pieces
from ospltool.trace.reading.reader import damaged, read_records
from ospltool.trace.reading.record import TraceRecord, valid_text
from ospltool.trace.reading.sources import SHRUNK, SourceError, TraceFormat
from ospltool.trace.reading.splitter import Positions, split

Bundle = tuple[Range, ...]
"""Parts of one node that are loaded together, at most one of each file."""

RECORDS_AT_ONCE: Final = 20_000

SMALL: Final = 16
"""Parts of less than this fraction of a bundle are bundled."""


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """Counts of a part of a source, or of all of it.

    Attributes:
        bytes: bytes read, after decompression.
        records: records found.
        unparsed_bytes: bytes that belong to no record.
        unmatched: trace records that no template matches.
        times: their times.
        damages: places from which it cannot be read.
    """

    bytes: int = 0
    records: int = 0
    unparsed_bytes: int = 0
    unmatched: int = 0
    times: Times = dataclasses.field(default_factory=Times)
    damages: tuple[damage.FileDamage, ...] = ()

    def __add__(self, other: Loaded) -> Loaded:
        return Loaded(
            self.bytes + other.bytes,
            self.records + other.records,
            self.unparsed_bytes + other.unparsed_bytes,
            self.unmatched + other.unmatched,
            self.times.then(other.times),
            self.damages + other.damages,
        )


def bundles(parts: Iterable[Range], most_bytes: int = PIECE_BYTES) -> list[Bundle]:
    """Return all parts in bundles of at most `most_bytes`; a part that is not small has its own."""
    made: list[list[Range]] = []
    filling: dict[tuple[str, str, int], tuple[list[Range], int]] = {}
    times: collections.Counter[tuple[str, str]] = collections.Counter()
    for part in parts:
        source = part.source
        size = part.size * (SHRUNK if source.compressed else 1)
        if size * SMALL > most_bytes:
            made.append([part])
            continue
        time = times[source.node, source.file]
        times[source.node, source.file] += 1
        bundle, total = filling.get((source.domain, source.node, time), ([], 0))
        if not bundle or total + size > most_bytes:
            bundle, total = [], 0
            made.append(bundle)
        bundle.append(part)
        filling[source.domain, source.node, time] = (bundle, total + size)
    return [tuple(bundle) for bundle in made]


def read_bundle(bundle: Bundle, detail: Detail) -> Iterator[tuple[pa.Table, Positions, list[Loaded]]]:
    """Yield the records of a bundle as columns, with the day of each record and the counts of each part.

    Raises:
        SourceError: a file cannot be read.
    """
    if len(bundle) > 1:
        yield _read_together(bundle, detail)
        return
    for size, piece in read_pieces(bundle[0], detail):
        yield piece.table, piece.days, [_counts(size, piece)]
    found = damage.found_in(bundle[0].source.path)
    if found is not None:
        yield pa.table({}), np.zeros(0, np.int64), [Loaded(damages=(found,))]


def read_pieces(part: Range, detail: Detail) -> Iterator[tuple[int, ColumnarPart]]:
    """Yield the records of a part of a source as columns, each with its number of bytes.

    Raises:
        SourceError: it cannot be read.
    """
    source = part.source
    if source.format is not TraceFormat.TRACE:
        for batch in _batches(read_records(source)):
            yield sum(record.length for record in batch), piece_of_records(batch, detail)
        return
    try:
        for offset, data in pieces(part):
            yield len(data), piece_of_trace(data, source, offset, detail)
    except OSError as cause:
        raise SourceError(f"{source.path}: {cause.strerror or cause}") from None
    found = damage.found_in(source.path)
    if found is not None:
        yield 0, piece_of_records([damaged(source, found)], detail)


def _batches(records: Iterator[TraceRecord]) -> Iterator[list[TraceRecord]]:
    batch: list[TraceRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) >= RECORDS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _counts(size: int, piece: ColumnarPart) -> Loaded:
    return Loaded(size, piece.table.num_rows, piece.unparsed_bytes, piece.unmatched, piece.times[0])


# ------------------------------------------------------------------ several parts


def _read_together(bundle: Bundle, detail: Detail) -> tuple[pa.Table, Positions, list[Loaded]]:
    totals = [Loaded()] * len(bundle)
    read: list[ColumnarPart] = []
    alike: dict[object, list[int]] = {}
    texts: dict[int, tuple[int, bytes]] = {}
    alone: list[int] = []
    for number, part in enumerate(bundle):
        text = _text_of(part)
        if text is None:
            alone.append(number)
        elif text[1]:
            texts[number] = text
            alike.setdefault((part.source.untimed, part.source.origin), []).append(number)
    for numbers in alike.values():
        piece = _one_piece(bundle, numbers, texts, detail, totals)
        if piece is None:
            alone += numbers
        else:
            read.append(piece)
    for number in alone:
        for size, piece in read_pieces(bundle[number], detail):
            totals[number] += _counts(size, piece)
            read.append(piece)
        found = damage.found_in(bundle[number].source.path)
        totals[number] += Loaded(damages=(found,) if found else ())
    return *_joined(read, detail), totals


def _text_of(part: Range) -> tuple[int, bytes] | None:
    """Return the bytes of a part and their offset, if they can be read together with those of other parts."""
    if part.source.format is not TraceFormat.TRACE:
        return None
    try:
        read = list(pieces(part))
    except OSError as cause:
        raise SourceError(f"{part.source.path}: {cause.strerror or cause}") from None
    text = b"".join(data for _, data in read)
    is_whole = not text or (IS_LINE_HEADER.match(text) is not None and text.endswith(b"\n"))
    if damage.found_in(part.source.path) is not None or not is_whole or not is_text(text):
        return None
    return part.start, text


def _one_piece(
    bundle: Bundle,
    numbers: list[int],
    texts: dict[int, tuple[int, bytes]],
    detail: Detail,
    totals: list[Loaded],
) -> ColumnarPart | None:
    """Read parts, of which each begins with a record, as one piece; None if a record is too long for that."""
    sizes = np.array([len(texts[number][1]) for number in numbers], np.int64)
    starts = np.cumsum(sizes) - sizes
    data = b"".join(texts[number][1] for number in numbers)
    found = split(data, untimed=bundle[numbers[0]].source.untimed, files=starts.tolist())
    if not is_usual(data, found):
        return None
    files = [
        PlacedFile(bundle[number].source, start, texts[number][0])
        for number, start in zip(numbers, starts.tolist(), strict=True)
    ]
    piece = usual_piece(data, found, files, detail)
    records = np.diff(np.append(np.searchsorted(found.start, starts), found.start.size))
    file_of = piece.table.column("file").combine_chunks().indices.to_numpy()
    if detail is Detail.FULL:
        missing = piece.table.column("template").combine_chunks().is_null().to_numpy(zero_copy_only=False)
        unmatched = np.bincount(file_of[missing], minlength=len(files))
    else:
        unmatched = np.zeros(len(files), np.int64)
    columns = zip(numbers, sizes.tolist(), records.tolist(), unmatched.tolist(), piece.times, strict=True)
    for number, size, count, unknown, times in columns:
        totals[number] = Loaded(size, count, 0, unknown, times)
    return piece


def _joined(read: list[ColumnarPart], detail: Detail) -> tuple[pa.Table, Positions]:
    """Return the records of all pieces, the telling ones first, in the order of their templates."""
    if len(read) == 1:
        return read[0].table, read[0].days
    wanted = schema(Table.RECORDS)
    if not read:
        return wanted.empty_table(), np.zeros(0, np.int64)
    table = pa.concat_tables([_plain(piece.table, wanted) for piece in read])
    days = np.concatenate([piece.days for piece in read])
    if detail is not Detail.FULL:
        return table, days
    ids = np.array(table.column("template").fill_null("").to_pylist())
    order = np.lexsort((ids, ~table.column("telling").to_numpy()))
    return table.take(pa.array(order)), days[order]


def _plain(table: pa.Table, wanted: Any) -> pa.Table:
    """Return a table whose columns have the types of the contract, in their own memory."""
    return pa.table([table.column(field.name).cast(field.type) for field in wanted], schema=wanted)


def write_rows_of(files: Collection[str], case: pathlib.Path, places: Iterable[str], name: str) -> list[str]:
    """Write the rows of some files of a bundle as another bundle; return the places of its Parquet files.

    Args:
        files: the files, as the case names them.
        case: directory of the case.
        places: the Parquet files of the old bundle, from that directory.
        name: what the names of those of the new one begin with.
    """
    wanted = pa.array([valid_text(file) for file in files])
    written = []
    for number, place in enumerate(sorted(places)):
        new = f"{place.rpartition('/')[0]}/{name}-{number}.parquet"
        source, system = of_arrow(case / place)
        with (
            pq.ParquetFile(source, filesystem=system) as rows,
            records_file(case / new, rows.schema_arrow) as writer,
        ):
            for group in map(rows.read_row_group, range(rows.num_row_groups)):
                left = group.filter(pc.is_in(group.column("file"), value_set=wanted))
                if left.num_rows:
                    writer.write_table(left)
        written.append(new)
    return written
