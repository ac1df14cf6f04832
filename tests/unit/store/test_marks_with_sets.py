"""A set and what ties it to the sets of its fellows reach the disk together, wherever the power is cut."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from engine.dataset.dataset import DataSet
from engine.dataset.sample_rows import SampleRows
from engine.runtime.store_queue import Conversion, StoreQueue
from engine.store.interface import DamageLog, GroupChange
from engine.store.memory import Medium, MemoryStore, PowerCut
from tests.unit.store.making import description, samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dataset.sample import Sample

SPACE = "space"
GROUP = description(depth=0)
OLD, NEW = samples(0, 30, 100), samples(0, 60, 100)
STEPS = 12
"""More than any of the ways of writing a set takes."""


def hand_over(
    store_queue: StoreQueue, new: Sequence[Sample], lineage: str, conversion: Conversion | None = None
) -> None:
    data = DataSet()
    data.open_group(GROUP.group, 0).extend(SampleRows.coerce(new))
    rows = [(GROUP, SampleRows.coerce(new))]
    marks = {"lineage": lineage, "line": f"{lineage} and before"}
    store_queue.write_set(SPACE, rows, data.summary(), lineage, conversion, marks=marks)


def cut_after(steps: int, conversion: Conversion | None) -> tuple[int, dict[str, str]]:
    """How many samples there are, and the marks, when the power is cut after so many writes."""
    medium = Medium("0" * 32)
    store = MemoryStore(medium)
    store_queue = StoreQueue(store)
    hand_over(store_queue, OLD, "old")
    while store_queue.work():
        pass
    hand_over(store_queue, NEW, "new", conversion)
    medium.writes_left = steps
    with contextlib.suppress(PowerCut):
        while store_queue.work():
            pass
    medium.writes_left = None
    again = MemoryStore(medium)
    found = sum(len(piece) for _, pieces in again.load(SPACE, DamageLog()) for piece in pieces)
    return found, again.marks(SPACE)


@pytest.mark.parametrize("by_difference", [False, True])
def test_a_power_cut_leaves_a_set_with_its_own_lineage(by_difference: bool) -> None:
    data = DataSet()
    data.open_group(GROUP.group, 0).extend(SampleRows.coerce(OLD))
    changes = [GroupChange(GROUP, one) for one in NEW[30:]]
    conversion = Conversion(changes, before=data.summary()) if by_difference else None
    left = [cut_after(steps, conversion) for steps in range(STEPS)]
    lineages = {30: "old", 60: "new"}
    assert {count for count, _ in left} == set(lineages)
    for count, marks in left:
        lineage = lineages[count]
        assert marks == {"lineage": lineage, "line": f"{lineage} and before"}
