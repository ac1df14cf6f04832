"""Going on where an alignment broke off, whoever of the two nodes ended.

What has arrived of a set is no set: nobody is told of it, it is never given away, injected or chosen a master
for. But the next request is compared with it (`engine.runtime.reconciling.alignee`), so that only the rest is
sent, by whichever aligner answers. It is kept in memory, and on the disk as the version that was filling.
Whether it was used well is seen in the end, as always, by count and digest of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataset.dataset import DataSet
from engine.runtime.jobs import Conversion
from engine.runtime.persistence import WORTH_CHANGING
from engine.store.interface import Change

if TYPE_CHECKING:
    from engine.core.namespaces import Group
    from engine.dataset.group_set import Summary
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.dataset.sample import Sample
    from engine.runtime.incoming import Incoming
    from engine.runtime.sets import NameSpaceData


def is_filled(data: NameSpaceData, incoming: Incoming) -> bool:
    """Whether what arrives is handed to the store at once: it is a set, or most of one, to begin with.

    A difference that is small beside what is here is cheaper to get once more than to store twice.
    """
    if incoming.target.purpose != "initial" or data.state.holder:
        return False
    here = 0 if data.loaded is None else data.loaded.summary().count
    return (
        not incoming.begin.is_difference
        or data.part is not None
        or incoming.begin.count > WORTH_CHANGING * here
    )


def broke_off(data: NameSpaceData, incoming: Incoming) -> None:
    """A stream will not come to its end: keep what it brought."""
    if not incoming.samples or not is_filled(data, incoming):
        return
    if data.part is None:
        data.part = incoming.data
    else:
        _add(data.part, incoming.data)


def held(data: NameSpaceData) -> DataSet | None:
    """What is here to compare a set with that is to come: the stored set, and what came before."""
    if data.part is None or data.loaded is None:
        return data.part or data.loaded
    both = DataSet()
    _add(both, data.part)
    _add(both, data.loaded)
    return both


def _add(target: DataSet, other: DataSet) -> None:
    for group, group_set in other.groups.items():
        target.open_group(group, group_set.depth, group_set.limits).extend(group_set.samples())


def conversion_of(
    data: NameSpaceData,
    incoming: Incoming,
    before: Summary,
    groups: list[tuple[Group, Rows]],
    removed: dict[Group, list[Sample]],
    describe: dict[Group, GroupDescription],
) -> Conversion:
    """How what was handed to the store becomes the set: with `groups`, but without `removed`."""
    conversion = Conversion([], incoming.number, before)
    part = data.part.groups if data.part is not None else {}
    for group, samples in groups:
        if group not in describe or not data.is_on_disk(describe[group]):
            continue
        gone = removed.get(group, [])
        filled = set(part[group].samples().each_digest()) if group in part else set()
        rest = samples.without(filled.union(sample.digest for sample in gone))
        if rest:
            conversion.rest.append((describe[group], rest))
        evicted = [sample for sample in gone if sample.digest in filled]
        if evicted:
            conversion.changes.append(Change(describe[group], None, evicted))
    return conversion
