"""What a sample costs a set: processor time, and memory, as an object and packed. One process, no network."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import TYPE_CHECKING, Final

from benchmarks.rows import Row
from engine.dataset.blocks import Block, pack_samples, pieces
from engine.dataset.group_set import MAX_OBJECTS, GroupSet
from engine.dataset.sample import DATA, Sample, make_sample
from engine.dataset.sample_rows import SampleRows

if TYPE_CHECKING:
    from collections.abc import Callable

AREA: Final = "sets"
FEW: Final = MAX_OBJECTS // 2
MANY: Final = 131_072
WRITER: Final = b"w" * 16
PAYLOAD: Final = bytes(108)
_BLOCK_BYTES: Final = 512 << 10


def run(repeat: int) -> list[Row]:
    """Few instances, which are objects, many, most of which are packed, and such with histories."""
    rows: list[Row] = []
    for name, count in (("few", FEW), ("many", MANY)):
        runs = [_measure(count) for _ in range(repeat)]
        for what in runs[0]:
            values = tuple(each[what] for each in runs)
            rows.append(Row(AREA, f"{name} instances ({count:,}), {what}", "us", values))
    for name, depth, each in (("KEEP_LAST 10, 10 of each", 10, 10), ("KEEP_ALL, one instance", 0, MANY)):
        histories = [_measure_histories(depth, MANY // each, each) for _ in range(repeat)]
        for what, unit in (("captured", "us"), ("captured later", "us"), ("memory", "B")):
            values = tuple(run[what] for run in histories)
            rows.append(Row(AREA, f"histories ({name}, {MANY:,}), {what}", unit, values))
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


def _measure_histories(depth: int, instances: int, each: int) -> dict[str, float]:
    """Let each instance have as many samples, then touch one instance after the other in another order."""

    def samples(begin: int, count: int, step: int) -> list[Sample]:
        return [
            make_sample(time_ns, WRITER, DATA, (time_ns * step % instances).to_bytes(4), PAYLOAD)
            for time_ns in range(begin, begin + count)
        ]

    subject = GroupSet(depth)

    def apply(some: list[Sample]) -> None:
        for sample in some:
            subject.apply(sample)

    first, later = samples(1, instances * each, 1), samples(1 << 40, MANY // 4, 7_919)
    found = {
        "captured": _microseconds(lambda: apply(first), len(first)),
        "captured later": _microseconds(lambda: apply(later), len(later)),
    }
    tracemalloc.start()
    subject = GroupSet(depth)
    for begin in range(1, 1 + instances * each, 1_000):
        apply([one._replace(payload=bytes(bytearray(PAYLOAD))) for one in samples(begin, 1_000, 1)])
    found["memory"] = tracemalloc.get_traced_memory()[0] / subject.count
    tracemalloc.stop()
    return found


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
