"""What it costs to find and send the difference of two sets: bytes on the wire, messages, processor time.

Both sides in one process, with nothing between them but the bytes; every difference is an instance that was
written again on one side, which makes two differences of the sets, or a new one.
"""

from __future__ import annotations

import time
from typing import Final

from benchmarks.exchange import Side, align
from benchmarks.rows import Bar, Is, Row
from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, Sample, make_sample

AREA: Final = "reconcile"
COUNT: Final = 1_000_000
NEW: Final = 1_000
DIFFERENCES: Final = (0, 10, NEW, 100_000)
BARS: Final = {256: Bar(Is.AT_MOST, 1.11), 1024: Bar(Is.AT_MOST, 1.03)}
GROUP: Final = Group("p", "T", "0")
DESCRIPTION: Final = GroupDescription(
    GROUP, TypeDescription("T", b"i", b"m", keyed=True), GroupQos(DurabilityKind.PERSISTENT)
)
_WRITER: Final = b"w" * 16


def run(repeat: int) -> list[Row]:
    """Both sizes of samples, each number of differences."""
    rows: list[Row] = []
    for size, bar in BARS.items():
        old = _samples(0, COUNT, 1, size)
        for differing in DIFFERENCES:
            new = _samples(0, differing, 2, size)
            the_bar = bar if differing == NEW else None
            label = f"{differing:,} of {COUNT:,} of {size} B differ"
            rows += _rows(label, [*new, *old[differing:]], old, new, repeat, the_bar)
        new = _samples(COUNT, COUNT + NEW, 2, size)
        rows += _rows(f"{NEW:,} new beside {COUNT:,} of {size} B", [*old, *new], old, new, repeat, bar)
    return rows


def _rows(
    label: str, ours: list[Sample], theirs: list[Sample], new: list[Sample], repeat: int, bar: Bar | None
) -> list[Row]:
    """What the aligner, which has `ours`, sends and gets, held against the `new` samples."""
    runs = [_measure(ours, theirs) for _ in range(min(repeat, 3))]
    sent, messages, seconds = (tuple(column) for column in zip(*runs, strict=True))
    rows = [Row(AREA, f"{label}, bytes on the wire", "B", sent)]
    if new:
        truly = sum(len(s.payload) + len(s.key) + 8 for s in new)
        ratios = tuple(each / truly for each in sent)
        rows.append(Row(AREA, f"{label}, bytes sent / differing", "", ratios, bar=bar))
    rows.append(Row(AREA, f"{label}, messages", "", messages))
    rows.append(Row(AREA, f"{label}, processor time of both", "s", seconds))
    return rows


def _samples(begin: int, end: int, time_ns: int, size: int) -> list[Sample]:
    payload = bytes([time_ns]) * size
    return [make_sample(time_ns, _WRITER, DATA, number.to_bytes(4), payload) for number in range(begin, end)]


def _data_set(samples: list[Sample]) -> DataSet:
    made = DataSet()
    made.open_group(GROUP, 1).extend(samples)
    return made


def _measure(of_aligner: list[Sample], of_alignee: list[Sample]) -> tuple[float, float, float]:
    ours, theirs = _data_set(of_aligner), _data_set(of_alignee)
    describe = {GROUP: DESCRIPTION}
    aligner, alignee = Side("a" * 32, ours, describe), Side("b" * 32, theirs, describe)
    began = time.process_time()
    sent, messages = align(aligner, alignee)
    seconds = time.process_time() - began
    if alignee.result is None or not alignee.result.summary().same_content(ours.summary()):
        raise RuntimeError("the alignee does not have the set of the aligner")
    return float(sent), float(messages), seconds
