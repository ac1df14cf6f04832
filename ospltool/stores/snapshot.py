"""A snapshot: the samples of a store as Parquet, with the description of its sets beside them.

    snapshot.json     the sets and groups, with counts
    samples.parquet   one row for each sample, group after group
    ranges.parquet    digests of ranges of those rows (see `ospltool.stores.ranges`)

A group has one number in all snapshots (`group_code`), and a sample's digest is two numbers, so that
engines compare numbers and nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.core.untrusted import words_of
from engine.dataset.blocks import SampleColumns
from engine.dataset.sample import DATA, DISPOSE, Sample, is_intact
from engine.store.interface import DamageLog
from engine.store.verification import in_columns
from ospltool.output import progress
from ospltool.output.text import plural
from ospltool.stores import opensplice_values
from ospltool.stores.describe import GroupCount, group_code
from ospltool.stores.model import (
    META_FILE,
    RANGES_FILE,
    SAMPLES_FILE,
    GroupFacts,
    SetFacts,
    StoreFacts,
    StoreFormat,
    StoreReader,
    StoreUnreadable,
    decoded,
)
from ospltool.stores.ours import OurStore
from ospltool.stores.ranges import RangesWriter, read_ranges
from ospltool.stores.types import Value

FORMAT_VERSION: Final = 1
# Some megabytes of small samples, and a row group of Parquet that can be skipped.
ROWS_AT_ONCE: Final = 65_536
# 64 MB of digests, which are sorted before they are written.
_HASHES_AT_ONCE: Final = 4_000_000
_KIND: Final = "store-snapshot"
# Larger blocks are not faster.
_CHECKED_AT_ONCE: Final = 1 << 20

SCHEMA: Final = pa.schema(
    [
        ("set_number", pa.int64()),
        ("group_code", pa.int64()),
        ("key", pa.binary()),
        ("source_time_ns", pa.int64()),
        ("writer", pa.binary()),
        ("sequence", pa.int64()),
        ("status", pa.int32()),
        ("digest_high", pa.int64()),
        ("digest_low", pa.int64()),
        ("payload", pa.binary()),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """The content of a snapshot; one without payloads can only be compared."""

    kept: bool
    """Whether it will be read by later commands; else only by this one."""
    has_payloads: bool

    def open(self, directory: Path) -> pq.ParquetWriter:
        """Open the file of samples; digests do not compress, and the other encodings are fast to read."""
        return pq.ParquetWriter(
            directory / SAMPLES_FILE,
            SCHEMA,
            compression={
                name: "zstd" if self.kept and name not in _DIGEST else "none" for name in SCHEMA.names
            },
            use_dictionary=["set_number", "group_code", "writer", "sequence", "status"],
            column_encoding={"source_time_ns": "DELTA_BINARY_PACKED", "key": "DELTA_LENGTH_BYTE_ARRAY"},
            write_statistics=["set_number", "group_code"],
        )


_DIGEST: Final = ("digest_high", "digest_low")
KEPT: Final = Form(kept=True, has_payloads=True)
COMPARED: Final = Form(kept=False, has_payloads=False)
COMPARED_BY_FIELDS: Final = Form(kept=False, has_payloads=True)

_UNSIGNED: Final = 1 << 64
_NEVER: Final = 1 << 63


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The result of writing a snapshot."""

    groups: tuple[GroupCount, ...]
    damage: int

    @property
    def samples(self) -> int:
        """Number of samples in the snapshot."""
        return sum(group.samples for group in self.groups)


def write_snapshot(
    reader: StoreReader, directory: Path, sets: Iterable[SetFacts], damage: DamageLog, form: Form = KEPT
) -> SnapshotResult:
    """Write sets of a store as a snapshot, without damaged samples.

    Args:
        reader: the store.
        directory: the snapshot; it must not exist.
        sets: the sets to write.
        damage: gets the records that cannot be read.
        form: the content of the snapshot.

    Raises:
        StoreUnreadable: the directory cannot be made.
    """
    try:
        directory.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise StoreUnreadable(f"{directory}: {error.strerror}") from error
    chosen = list(sets)
    counts: list[GroupCount] = []
    before = damage.count
    ranges = RangesWriter()
    with form.open(directory) as writer:
        for one in chosen:
            for group, columns in _columns(reader, one.number, damage):
                counts.append(_write_group(writer, ranges, form, one.number, group, columns, damage))
    written = SnapshotResult(tuple(counts), damage.count - before)
    if form.kept:
        ranges.write(directory / RANGES_FILE)
        write_description(directory, reader.facts, chosen, written)
    for path in directory.iterdir():
        path.chmod(0o600)
    return written


def _columns(
    reader: StoreReader, number: int, damage: DamageLog
) -> Iterator[tuple[GroupFacts, Iterator[SampleColumns]]]:
    if isinstance(reader, OurStore):
        yield from reader.read_columns(number, damage)
        return
    for group, samples in reader.read(number, damage):
        yield group, in_columns(samples)


def _write_group(
    writer: pq.ParquetWriter,
    ranges: RangesWriter,
    form: Form,
    number: int,
    group: GroupFacts,
    found: Iterator[SampleColumns],
    damage: DamageLog,
) -> GroupCount:
    code = group_code(group.name)
    before = damage.count
    count = newest_ns = payload_bytes = disposed = 0
    oldest_ns = _NEVER
    keys = _DistinctKeys()
    pieces: list[pa.Table] = []
    for columns in found:
        size = len(columns.times_ns)
        times_ns = np.fromiter(columns.times_ns, np.int64, size)
        statuses = np.fromiter(columns.statuses, np.int32, size)
        lengths = np.fromiter(map(len, columns.payloads), np.int64, size)
        count += size
        progress.advance(size)
        oldest_ns = min(oldest_ns, int(times_ns.min()))
        newest_ns = max(newest_ns, int(times_ns.max()))
        payload_bytes += int(lengths[statuses & DATA != 0].sum())
        disposed += int(np.count_nonzero(statuses & DISPOSE))
        keys.add(columns.keys)
        halves = np.frombuffer(b"".join(columns.digests), dtype=">i8").astype(np.int64).reshape(-1, 2)
        high, low = (np.ascontiguousarray(halves[:, at]) for at in (0, 1))
        if form.kept:
            ranges.add(code, times_ns, high, low)
        pieces.append(_table(form, number, code, columns, times_ns, statuses, high, low))
        if sum(piece.num_rows for piece in pieces) >= ROWS_AT_ONCE:
            writer.write_table(pa.concat_tables(pieces))
            pieces = []
    if pieces:
        writer.write_table(pa.concat_tables(pieces))
    ranges.end_group(number, code)
    return GroupCount(
        number,
        code,
        count,
        keys.count(),
        damage.count - before,
        oldest_ns if count else 0,
        newest_ns,
        payload_bytes,
        disposed,
    )


class _DistinctKeys:
    """Counts keys by their 64-bit hashes, 8 bytes each."""

    def __init__(self) -> None:
        self._hashes: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._pending = 0

    def add(self, keys: Sequence[bytes]) -> None:
        self._hashes.append(np.fromiter(map(hash, keys), np.int64, len(keys)))
        self._pending += len(keys)
        if self._pending >= _HASHES_AT_ONCE:
            self._hashes, self._pending = [self._distinct()], 0

    def count(self) -> int:
        return len(self._distinct())

    def _distinct(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Sort and remove duplicates, in a tenth of the time of numpy's hash table."""
        found = np.sort(np.concatenate(self._hashes)) if self._hashes else np.zeros(0, np.int64)
        return found[np.concatenate([[True], found[1:] != found[:-1]])] if len(found) else found


def _table(
    form: Form,
    number: int,
    code: int,
    columns: SampleColumns,
    times_ns: np.ndarray[Any, np.dtype[np.int64]],
    statuses: np.ndarray[Any, np.dtype[np.int32]],
    high: np.ndarray[Any, np.dtype[np.int64]],
    low: np.ndarray[Any, np.dtype[np.int64]],
) -> pa.Table:
    size = len(times_ns)
    return pa.Table.from_arrays(
        [
            pa.array(np.full(size, number, np.int64)),
            pa.array(np.full(size, code, np.int64)),
            pa.array(columns.keys, pa.binary()),
            pa.array(times_ns),
            pa.array(columns.writers, pa.binary()),
            pa.array(np.fromiter(columns.sequences, np.uint64, size).view(np.int64)),
            pa.array(statuses),
            pa.array(high),
            pa.array(low),
            pa.array(columns.payloads, pa.binary()) if form.has_payloads else pa.nulls(size, pa.binary()),
        ],
        schema=SCHEMA,
    )


def write_description(
    directory: Path, facts: StoreFacts, sets: list[SetFacts], written: SnapshotResult
) -> None:
    """Write the description of a snapshot into its directory."""
    described: dict[str, Any] = {
        "path": facts.path,
        "format": facts.format.value,
        "detail": dict(facts.detail),
        "findings": list(facts.findings),
        "sets": msgspec.to_builtins(sets),
        "counts": msgspec.to_builtins(written.groups),
        "damage": written.damage,
    }
    document = {"format_version": FORMAT_VERSION, "kind": _KIND, "data": described}
    described["crc32"] = {
        name: _crc32(directory / name) for name in (SAMPLES_FILE, RANGES_FILE) if (directory / name).exists()
    }
    (directory / META_FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _crc32(path: Path) -> int:
    """Return the CRC of a file, which finds damage in a fifth of the time of a cryptographic digest."""
    found = 0
    block = bytearray(_CHECKED_AT_ONCE)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            found = zlib.crc32(memoryview(block)[:size], found)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Description:
    """What `snapshot.json` says, with the types that the commands rely on."""

    path: str
    format: str
    detail: dict[str, str]
    findings: tuple[str, ...]
    sets: tuple[SetFacts, ...]
    counts: tuple[GroupCount, ...]
    damage: int
    crc32: dict[str, int] = dataclasses.field(default_factory=dict)


def _int64(digits: str) -> int:
    """Return a number that the columns of tables can hold, too."""
    number = int(digits)
    if not -_NEVER <= number < _NEVER:
        raise ValueError(f"a number of {number.bit_length()} bits")
    return number


class SnapshotStore:
    """A snapshot; see `ospltool.stores.model.StoreReader`."""

    def __init__(self, path: Path) -> None:
        """Open the snapshot.

        Raises:
            StoreUnreadable: it is damaged or of an unknown version.
        """
        self.path = path
        self.samples_path = path / SAMPLES_FILE
        try:
            text = (path / META_FILE).read_text(encoding="utf-8")
            # Not by msgspec: the path may have half of a character, which JSON can spell and msgspec refuses.
            document = json.loads(text, parse_int=_int64)
            if document["kind"] != _KIND or document["format_version"] != FORMAT_VERSION:
                raise StoreUnreadable(
                    f"{path}: a {document['kind']} of format {document['format_version']};"
                    f" this release reads {_KIND} {FORMAT_VERSION}"
                )
            data = dict(document["data"])
            # The path of the store may have bytes that are no UTF-8, and is shown only.
            data["path"] = data["path"].encode("utf-8", "backslashreplace").decode()
            described: _Description = msgspec.convert(data, _Description)
            self.counts = described.counts
            self.damage = described.damage
            self._crc32s = described.crc32
            detail = {"of": described.path, "written by": described.format, **described.detail}
            size = self.samples_path.stat().st_size
            self._file = pq.ParquetFile(self.samples_path)
            columns = self._file.schema_arrow
            if columns.names != SCHEMA.names:
                raise StoreUnreadable(f"{self.samples_path}: its columns are {columns.names}")
            if columns.types != SCHEMA.types:
                found = ", ".join(map(str, columns.types))
                raise StoreUnreadable(f"{self.samples_path}: the types of its columns are {found}")
            self.facts = StoreFacts(
                str(path),
                StoreFormat.SNAPSHOT,
                described.sets,
                described.findings,
                tuple(detail.items()),
                size,
            )
        except Exception as error:  # of any class: a snapshot may come from anybody
            raise StoreUnreadable(f"{path}: {words_of(error)}") from error

    def is_sealed(self) -> bool:
        """Tell whether the samples are unchanged."""
        return self._crc32s.get(SAMPLES_FILE) == _crc32(self.samples_path)

    def ranges(self) -> pa.Table | None:
        """Return the digests of ranges (see `ranges.read_ranges`); None if they are missing or damaged.

        They hold for the samples as they were written: see `is_sealed`.
        """
        path = self.path / RANGES_FILE
        try:
            if self._crc32s.get(RANGES_FILE) != _crc32(path):
                return None
            return read_ranges(path, self._file.metadata.num_rows)
        # Ranges only make comparing faster: without them, or with damaged ones, all rows are read.
        except (OSError, ValueError, pa.ArrowException):
            return None

    def read(self, number: int, damage: DamageLog) -> Iterator[tuple[GroupFacts, Iterator[Sample]]]:
        """Yield the verified samples of a set."""
        groups = {group_code(group.name): group for group in self.facts.set_of(number).groups}
        promised = {count.code: count.samples for count in self.counts if count.set_number == number}
        missing = dict(groups)
        for code, rows in itertools.groupby(self._rows(number, damage), key=operator.itemgetter(0)):
            group = groups.get(code)
            if group is None:
                damage.add(f"rows of group number {code}", "the snapshot does not describe it")
                continue
            missing.pop(code, None)
            yield group, _sound(group, (sample for _, sample in rows), promised.get(code), damage)
        for code, group in missing.items():
            if promised.get(code):
                damage.add(
                    f"group {group.name}", f"its {plural(promised[code], 'sample is', 'samples are')} missing"
                )
            yield group, iter(())

    def _rows(self, number: int, damage: DamageLog) -> Iterator[tuple[int, Sample]]:
        """Yield the rows of a set, each with the number of its group."""
        for part in range(self._file.metadata.num_row_groups):
            try:
                for batch in self._file.iter_batches(ROWS_AT_ONCE, row_groups=[part]):
                    columns = [column.to_pylist() for column in batch.columns]
                    for row in zip(*columns, strict=True):
                        if row[0] != number:
                            continue
                        found = _sample_of(row)
                        if found is None:
                            damage.add("a row", "its cells are not those of a sample")
                        else:
                            yield found
            except (pa.ArrowException, OSError, ValueError) as error:
                damage.add(f"rows in part {part + 1}", f"cannot be read: {words_of(error)}")

    def decode(self, group: GroupFacts, sample: Sample) -> dict[str, Value] | None:
        """Decode the fields of a sample."""
        if group.description is not None:
            return decoded(group, sample)
        return opensplice_values.decode_fields(group, sample)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_KINDS: Final = (int, int, bytes, int, bytes, int, int, int, int, bytes)
"""What the cells of a row must be."""


def _sample_of(row: tuple[Any, ...]) -> tuple[int, Sample] | None:
    """Return the number of the group and the sample of a row; None if it is damaged."""
    if (
        not all(isinstance(cell, kind) for cell, kind in zip(row, _KINDS, strict=True))
        or not 0 <= row[6] < 256
    ):
        return None
    _, code, key, time_ns, writer, sequence, status, high, low, payload = row
    digest = (high % _UNSIGNED << 64 | low % _UNSIGNED).to_bytes(16)
    return code, Sample(time_ns, writer, sequence % _UNSIGNED, digest, status, key, payload)


def _sound(
    group: GroupFacts, samples: Iterator[Sample], promised: int | None, damage: DamageLog
) -> Iterator[Sample]:
    count = 0
    for sample in samples:
        count += 1
        if is_intact(sample):
            yield sample
        else:
            damage.add(
                f"group {group.name}, sample {sample.digest.hex()}", "the content does not match its digest"
            )
    if promised is not None and promised != count:
        damage.add(
            f"group {group.name}",
            f"{plural(promised, 'sample was', 'samples were')} written, {count} are there",
        )
