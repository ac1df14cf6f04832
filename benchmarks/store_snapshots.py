"""Snapshots of many millions of samples, made without a store, and how much of one is not in the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.dataset.sample import DATA
from ospltool.stores.counting import GroupCount, group_code
from ospltool.stores.model import Format, GroupFacts, GroupName, SetFacts, SetKind, StoreFacts
from ospltool.stores.names import SAMPLES_FILE
from ospltool.stores.snapshot import SCHEMA, Written, write_description

SHARE: Final = 0.001
"""Of the samples that are other ones in the other snapshot."""
PAYLOAD_BYTES: Final = 40
_ROWS: Final = 1_000_000
_BASE_NS: Final = 1_790_000_000_000_000_000
_NAME: Final = GroupName("bench", "T", "T")


def make(directory: Path, count: int, *, changed: bool) -> int:
    """Write a snapshot of `count` instances; returns how many are changed."""
    directory.mkdir()
    contents = np.random.default_rng(1)
    chances = np.random.default_rng(2)
    differing = 0
    with pq.ParquetWriter(
        directory / SAMPLES_FILE, SCHEMA, compression="zstd", use_dictionary=["group_code", "writer"]
    ) as writer:
        for start in range(0, count, _ROWS):
            size = min(_ROWS, count - start)
            table, others = _table(start, size, contents, chances, changed=changed)
            writer.write_table(table, row_group_size=65_536)
            differing += others
    held = SetFacts(
        1, "bench", SetKind.CURRENT, complete=True, quality_ns=_BASE_NS, groups=(GroupFacts(_NAME),)
    )
    facts = StoreFacts(str(directory), Format.OURS, (held,))
    newest_ns = _BASE_NS + count * 1_000
    counted = GroupCount(1, group_code(_NAME), count, count, 0, _BASE_NS, newest_ns, PAYLOAD_BYTES * count, 0)
    write_description(directory, facts, [held], Written((counted,), 0))
    return differing


def _table(
    start: int, size: int, contents: np.random.Generator, chances: np.random.Generator, *, changed: bool
) -> tuple[pa.Table, int]:
    high, low = (contents.integers(-(1 << 63), (1 << 63) - 1, size, dtype=np.int64) for _ in range(2))
    payloads = contents.integers(0, 256, (size, PAYLOAD_BYTES), dtype=np.uint8)
    payloads[:, 8:] = ord("A")  # as much as real payloads have in common
    times_ns = _BASE_NS + np.arange(start, start + size, dtype=np.int64) * 1_000
    others = chances.random(size) < SHARE
    if changed:
        low[others] ^= 1
        times_ns[others] += 1
    keys = np.arange(start, start + size, dtype="<u4")
    columns = [
        pa.array(np.full(size, 1, np.int64)),
        pa.array(np.full(size, group_code(_NAME), np.int64)),
        _binary(keys, 4),
        pa.array(times_ns),
        pa.array([b"w" * 16]).take(pa.array(np.zeros(size, np.int64))),
        pa.array(np.zeros(size, np.int64)),
        pa.array(np.full(size, DATA, np.int32)),
        pa.array(high),
        pa.array(low),
        _binary(payloads, PAYLOAD_BYTES),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA), int(others.sum())


def _binary(values: np.ndarray[Any, Any], width: int) -> pa.Array:
    fixed = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(values.tobytes())])
    return fixed.cast(pa.binary())
