"""Snapshots of many millions of samples, made without a store, and how much of one is not in the other."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from engine.dataset.sample import DATA
from ospltool.stores.describe import GroupCount, group_code
from ospltool.stores.model import (
    RANGES_FILE,
    GroupFacts,
    GroupName,
    SetFacts,
    SetKind,
    StoreFacts,
    StoreFormat,
)
from ospltool.stores.ranges import RangesWriter
from ospltool.stores.snapshot import KEPT, ROWS_AT_ONCE, SCHEMA, SnapshotResult, write_description

SHARE: Final = 0.001
"""Of the samples that are other ones in the other snapshot."""
PAYLOAD_BYTES: Final = 40
_ROWS: Final = 1_000_000
_BASE_NS: Final = 1_790_000_000_000_000_000
_RANGED: Final = ("source_time_ns", "digest_high", "digest_low")
_NAME: Final = GroupName("bench", "T", "T")


class Others(enum.Enum):
    """The samples of a snapshot that are other ones than in the first."""

    NONE = "none"
    SPREAD = "spread evenly"
    LATEST = "the latest"


def make(directory: Path, count: int, others: Others) -> int:
    """Write a snapshot of `count` instances; returns how many are changed."""
    directory.mkdir()
    contents = np.random.default_rng(1)
    chances = np.random.default_rng(2)
    differing = 0
    ranges = RangesWriter()
    with KEPT.open(directory) as writer:
        for start in range(0, count, _ROWS):
            numbers = np.arange(start, min(start + _ROWS, count), dtype=np.int64)
            chosen = chances.random(len(numbers)) < SHARE
            if others is Others.LATEST:
                chosen = numbers >= count * (1 - SHARE)
            table = _table(numbers, contents, chosen & (others is not Others.NONE))
            columns = (table.column(name).to_numpy() for name in _RANGED)
            ranges.add(group_code(_NAME), *columns)
            writer.write_table(table, row_group_size=ROWS_AT_ONCE)
            differing += int(chosen.sum())
    ranges.end_group(1, group_code(_NAME))
    ranges.write(directory / RANGES_FILE)
    held = SetFacts(
        1, "bench", SetKind.CURRENT, complete=True, quality_ns=_BASE_NS, groups=(GroupFacts(_NAME),)
    )
    facts = StoreFacts(str(directory), StoreFormat.OURS, (held,))
    newest_ns = _BASE_NS + count * 1_000
    counted = GroupCount(1, group_code(_NAME), count, count, 0, _BASE_NS, newest_ns, PAYLOAD_BYTES * count, 0)
    write_description(directory, facts, [held], SnapshotResult((counted,), 0))
    return differing


def _table(
    numbers: np.ndarray[Any, np.dtype[np.int64]],
    contents: np.random.Generator,
    changed: np.ndarray[Any, np.dtype[np.bool_]],
) -> pa.Table:
    size = len(numbers)
    high, low = (contents.integers(-(1 << 63), (1 << 63) - 1, size, dtype=np.int64) for _ in range(2))
    payloads = contents.integers(0, 256, (size, PAYLOAD_BYTES), dtype=np.uint8)
    payloads[:, 8:] = ord("A")  # as much as real payloads have in common
    times_ns = _BASE_NS + numbers * 1_000
    low[changed] ^= 1
    times_ns[changed] += 1
    columns = [
        pa.array(np.full(size, 1, np.int64)),
        pa.array(np.full(size, group_code(_NAME), np.int64)),
        _binary(numbers.astype("<u4"), 4),
        pa.array(times_ns),
        pa.array([b"w" * 16]).take(pa.array(np.zeros(size, np.int64))),
        pa.array(np.zeros(size, np.int64)),
        pa.array(np.full(size, DATA, np.int32)),
        pa.array(high),
        pa.array(low),
        _binary(payloads, PAYLOAD_BYTES),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _binary(values: np.ndarray[Any, Any], width: int) -> pa.Array:
    fixed = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(values.tobytes())])
    return fixed.cast(pa.binary())
