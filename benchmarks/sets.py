"""What a sample costs a set: processor time, and memory, as an object and packed. One process, no network."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import TYPE_CHECKING, Final

from benchmarks.rows import Row
from engine.dataset.blocks import Block, pack_samples, pieces
from engine.dataset.group_set import MAX_LOOSE, GroupSet
from engine.dataset.sample import DATA, Sample, make_sample
from engine.dataset.sample_rows import SampleRows

if TYPE_CHECKING:
    from collections.abc import Callable

AREA: Final = "sets"
FEW: Final = MAX_LOOSE // 2
MANY: Final = 131_072
WRITER: Final = b"w" * 16
PAYLOAD: Final = bytes(108)
_BLOCK_BYTES: Final = 512 << 10


def run(repeat: int) -> list[Row]:
    """Few instances, which are objects, and many, most of which are packed."""
    rows: list[Row] = []
    for name, count in (("few", FEW), ("many", MANY)):
        runs = [_measure(count) for _ in range(repeat)]
        for what in runs[0]:
            values = tuple(each[what] for each in runs)
            rows.append(Row(AREA, f"{name} instances ({count:,}), {what}", "us", values))
    size = tuple(_bytes_per_sample() for _ in range(repeat))
    rows.append(Row(AREA, "memory of a sample of 108 bytes, packed", "B", size))
    return rows


def _samples(count: int, time_ns: int) -> list[Sample]:
    return [
        make_sample(time_ns + number, WRITER, DATA, number.to_bytes(4), PAYLOAD) for number in range(count)
    ]


def _measure(count: int) -> dict[str, float]:
    first, second = _samples(count, 1), _samples(count, 1 << 40)
    blocks = [pack_samples(piece).data for piece in pieces(first, _BLOCK_BYTES)]
    captured, arrived, joined = GroupSet(1), GroupSet(1), GroupSet(1)
    joined.extend(first)

    def apply(samples: list[Sample]) -> None:
        for sample in samples:
            captured.apply(sample)

    def arrive() -> None:
        for data in blocks:
            arrived.extend(SampleRows((Block(data),)))

    def join() -> None:
        for sample in arrived.samples():
            joined.apply(sample)

    return {
        "captured for the first time": _microseconds(lambda: apply(first), count),
        "written again": _microseconds(lambda: apply(second), count),
        "arriving, with its digest": _microseconds(arrive, count),
        "arriving again": _microseconds(join, count),
    }


def _microseconds(work: Callable[[], None], count: int) -> float:
    gc.collect()
    gc.disable()
    began = time.process_time()
    work()
    took = time.process_time() - began
    gc.enable()
    return took / count * 1e6


def _bytes_per_sample() -> float:
    data = [pack_samples(piece).data for piece in pieces(_samples(MANY, 1), _BLOCK_BYTES)]
    tracemalloc.start()
    subject = GroupSet(1)
    while data:
        subject.extend(SampleRows((Block(bytes(bytearray(data.pop()))),)))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / subject.count
