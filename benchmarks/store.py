"""The store on disk by itself: bringing live changes, writing a whole set, reading and verifying it.

Held against SQLite alone: the same bytes in one plain table, with the same durability and transactions.
Beside the rates stands the processor time of a sample that arrives in a block, as from a fellow, and of one
that takes the place of another, as in capture.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import bare
from benchmarks.rows import Row
from engine.core.name_spaces import Group
from engine.dataset.blocks import pack_samples, pieces
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, Sample, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.node.disk import open_store
from engine.store.interface import DamageLog, GroupChange

AREA: Final = "store"
COUNT: Final = 100_000
BATCH: Final = 1_000
SIZE: Final = 100
_BLOCK_BYTES: Final = 512 << 10
_BLOCKS: Final = 12
"""Blocks that go into one transaction, about as many as in a node."""
NAME_SPACE: Final = "bench"
DESCRIPTION: Final = GroupDescription(
    Group("p", "T", "0"), TypeDescription("T", b"i", b"m", keyed=True), GroupQos(DurabilityKind.PERSISTENT)
)


def run(repeat: int) -> list[Row]:
    """Each repetition in a fresh directory."""
    samples = [_sample(number, 1_000) for number in range(COUNT)]
    measured: dict[str, list[float]] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
            for name, rate in {**_plain(Path(directory), samples), **_ours(Path(directory), samples)}.items():
                measured.setdefault(name, []).append(rate)
    samples.clear()  # what follows is not to search them for garbage
    rows = {name: Row(AREA, name, "samples/s", tuple(values)) for name, values in measured.items()}
    return [
        rows["SQLite alone, insert"],
        rows["append live changes"].against(rows["SQLite alone, insert"]),
        rows["write a whole set"].against(rows["SQLite alone, insert"]),
        rows["SQLite alone, read"],
        rows["load and verify"].against(rows["SQLite alone, read"]),
        *_costs(repeat),
        *_compared(repeat),
    ]


def _costs(repeat: int) -> list[Row]:
    former, newer = ([_sample(number, at_ns) for number in range(COUNT)] for at_ns in (1, COUNT))
    blocks = [pack_samples(piece) for piece in pieces(former, _BLOCK_BYTES)]
    changes = [
        GroupChange(DESCRIPTION, *pair) for pair in zip(newer, ([each] for each in former), strict=True)
    ]
    arriving: list[float] = []
    renewed: list[float] = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="ospltool-bench-") as directory:
            store = open_store(Path(directory), "bench")
            began = time.process_time()
            writer = store.begin_set(NAME_SPACE)
            for begin in range(0, len(blocks), _BLOCKS):
                writer.add(DESCRIPTION, SampleRows(blocks[begin : begin + _BLOCKS]))
            store.commit_complete(writer)
            arriving.append((time.process_time() - began) / COUNT * 1e6)
            began = time.process_time()
            for begin in range(0, COUNT, BATCH):
                store.append(NAME_SPACE, changes[begin : begin + BATCH])
            renewed.append((time.process_time() - began) / COUNT * 1e6)
            store.close()
    return [
        Row(AREA, "processor time of a sample that arrives in a block", "us", tuple(arriving)),
        Row(AREA, "processor time of a sample that takes the place of another", "us", tuple(renewed)),
    ]


def _sample(number: int, at_ns: int) -> Sample:
    return make_sample(at_ns + number, b"w" * 16, DATA, number.to_bytes(4), bytes(SIZE))


def _compared(repeat: int) -> list[Row]:
    from benchmarks import store_diff  # it takes names from here

    return store_diff.run(AREA, repeat)


def _batches(samples: list[Sample]) -> list[list[Sample]]:
    return [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]


def _ours(directory: Path, samples: list[Sample]) -> dict[str, float]:
    store = open_store(directory / "store", "bench")
    store.commit_complete(store.begin_set(NAME_SPACE))
    changes = [[GroupChange(DESCRIPTION, sample) for sample in batch] for batch in _batches(samples)]

    def append() -> None:
        for batch in changes:
            store.append(NAME_SPACE, batch)

    def write() -> None:
        writer = store.begin_set(NAME_SPACE)
        for batch in _batches(samples):
            writer.add(DESCRIPTION, batch)
        store.commit_complete(writer)

    def load() -> None:
        log = DamageLog()
        count = sum(len(piece) for _, pieces in store.load(NAME_SPACE, log) for piece in pieces)
        if count != COUNT or log.count:
            raise RuntimeError(f"{count} samples, {log.count} damaged")

    rates = {
        "append live changes": _rate(append),
        "write a whole set": _rate(write),
        "load and verify": _rate(load),
    }
    store.close()
    return rates


def _plain(directory: Path, samples: list[Sample]) -> dict[str, float]:
    connection = bare.table(directory / "plain.sqlite")

    def insert() -> None:
        for batch in _batches(samples):
            connection.execute("BEGIN")
            rows = ((sample.source_time_ns, sample.key, sample.writer, sample.payload) for sample in batch)
            connection.executemany("INSERT INTO sample VALUES (?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    def read() -> None:
        count = sum(1 for _ in connection.execute("SELECT * FROM sample ORDER BY number"))
        if count != COUNT:
            raise RuntimeError(f"{count} rows")

    rates = {"SQLite alone, insert": _rate(insert), "SQLite alone, read": _rate(read)}
    connection.close()
    return rates


def _rate(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return COUNT / (time.monotonic() - began)
