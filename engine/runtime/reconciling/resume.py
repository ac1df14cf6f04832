"""Resume an alignment that broke off, whichever of the two nodes ended.

The samples that have arrived are not a set: the node does not report, send or inject them. But the next
request is compared with them (`engine.runtime.reconciling.alignee`), so that any aligner sends only the rest.
They are kept in memory, and on the disk as the version that was filling. Count and digest of the whole verify
the result.
"""

from __future__ import annotations

from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.rows import SampleRows
from engine.dataset.sample import Sample
from engine.runtime.incoming import IncomingStream
from engine.runtime.jobs import Conversion
from engine.runtime.sets import NameSpaceData
from engine.runtime.store_queue import WORTH_CHANGING
from engine.store.interface import GroupChange


def is_filled(data: NameSpaceData, incoming: IncomingStream) -> bool:
    """Whether arriving samples go to the store at once: they are a set, or most of one, to begin with.

    A small difference is cheaper to request again than to store twice.
    """
    if incoming.target.purpose != "initial" or data.state.holder:
        return False
    here = 0 if data.loaded is None else data.loaded.summary().count
    return (
        not incoming.begin.is_difference
        or data.part is not None
        or incoming.begin.count > WORTH_CHANGING * here
    )


def broke_off(data: NameSpaceData, incoming: IncomingStream) -> None:
    """Keep what a stream brought that will not come to its end."""
    if not incoming.samples or not is_filled(data, incoming):
        return
    if data.part is None:
        data.part = incoming.data
    else:
        _add(data.part, incoming.data)


def held(data: NameSpaceData) -> DataSet | None:
    """Return the samples with which to compare a set: the stored set, and those of broken-off streams."""
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
    incoming: IncomingStream,
    before: Summary,
    groups: list[tuple[Group, SampleRows]],
    removed: dict[Group, list[Sample]],
    describe: dict[Group, GroupDescription],
) -> Conversion:
    """Return the changes that turn the samples in the store into the set.

    Args:
        data: the name-space.
        incoming: the stream whose samples went to the store.
        before: summary of the base.
        groups: samples of the base.
        removed: samples of the base that the set lacks.
        describe: descriptions of the groups.
    """
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
            conversion.changes.append(GroupChange(describe[group], None, evicted))
    return conversion
