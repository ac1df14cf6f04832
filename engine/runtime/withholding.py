"""Content filters on whole sets (//OpenSplice/Domain/Filters).

Each sample of a filtered group is decoded, which takes long and is done in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import GroupSet
from engine.dataset.rateless import Stepwise
from engine.dataset.sample import DATA
from engine.runtime.ports import Gate

_STEP: Final = 200
"""Samples in one step: a few milliseconds."""


def filtered(data: DataSet, gates: Mapping[Group, Gate]) -> Stepwise[DataSet]:
    """Return the samples of a set that pass the filters; the same set if no filter applies.

    A dispose or unregister whose key does not decide it stays if the instance has data.
    """
    if gates.keys().isdisjoint(data.groups):
        return data
    left = DataSet()
    for group, group_set in data.groups.items():
        gate = gates.get(group)
        if gate is None:
            left.groups[group] = group_set
            continue
        target = left.open_like(group, group_set)
        undecided: set[bytes] = set()
        for number, sample in enumerate(group_set.samples()):
            accepted = gate.accepts(sample.status, sample.payload)
            if accepted is not False:
                target.apply(sample)
            if accepted is None:
                undecided.add(sample.key)
            if number % _STEP == _STEP - 1:
                yield
        without_rest(target, undecided)
    return left


def without_rest(group_set: GroupSet, keys: Iterable[bytes]) -> None:
    """Forget those of the instances that have no data."""
    for key in keys:
        if not any(sample.status & DATA for sample in group_set.instance(key)):
            group_set.remove_instance(key)


def at_once(steps: Stepwise[DataSet], between: Callable[[], None] = lambda: None) -> DataSet:
    """Take all steps, and call `between` after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: DataSet = end.value
            return made
        between()
