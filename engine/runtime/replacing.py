"""Deliveries to ordinary readers after another set replaced the one that they have seen.

A reader ordered by source time takes no sample older than the newest of the instance that it has seen. Older
samples of the new set are therefore delivered with the source time of the sample that they replace; see
`engine.runtime.ports.ReplacingDelivery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import GroupSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import UNREGISTER, Sample
from engine.runtime.name_space_data import Difference, dispose_of, withdrawal_of


class Replacement(msgspec.Struct):
    """Samples for the readers of a set that was replaced.

    Attributes:
        new: samples that readers take as they are.
        instead: samples that replace others, by instance.
        times: newest source time that readers have of these instances, nanoseconds since 1970 UTC.
        owners: with OWNERSHIP EXCLUSIVE, the writer of each instance's last sample before, if another
            writer wrote the new one.
        told: samples for durability clients: for an instance that goes back, its dispose or withdrawal and
            then its whole history.
    """

    new: Difference = msgspec.field(default_factory=dict)
    instead: Difference = msgspec.field(default_factory=dict)
    times: dict[Group, dict[bytes, int]] = msgspec.field(default_factory=dict)
    owners: dict[Group, dict[bytes, bytes]] = msgspec.field(default_factory=dict)
    told: Difference = msgspec.field(default_factory=dict)


def replaced(
    before: DataSet,
    after: DataSet,
    difference: Difference,
    descriptions: dict[Group, GroupDescription],
    now_ns: int,
    *,
    disposes_all: bool,
    tells: bool,
) -> Replacement:
    """Compare the set that readers have seen with the one that replaced it.

    Args:
        before: the set that they have seen.
        after: the set that replaced it.
        difference: its new samples, with a dispose for each instance that is gone.
        descriptions: all groups.
        now_ns: time of the replacement.
        disposes_all: every instance is disposed before it is delivered again (merge policy Replace).
        tells: there may be durability clients.
    """
    result = Replacement()
    for group, target in after.groups.items():
        source = before.groups.get(group)
        new = difference.get(group, [])
        back = _gone_back(source, target, every=disposes_all) if source else {}
        if tells and (new or back):
            result.told[group] = [
                *(sample for sample in new if sample.key not in back),
                *(each for key in back for each in _instead(key, target, now_ns, disposes=disposes_all)),
            ]
        if source and descriptions[group].qos.exclusive:
            result.owners[group] = _owners(source, target, {*back, *(sample.key for sample in new)})
        if not descriptions[group].qos.by_source_timestamp:
            known = {sample.key for sample in new}
            new = [*new, *(sample for key, shown in back.items() if key not in known for sample in shown)]
        elif source and back:
            new = [sample for sample in new if sample.key not in back]
            times = {key: _newest_ns(source, key) for key in back}
            result.times[group] = times
            result.instead[group] = [
                sample
                for key, shown in back.items()
                for disposed in [[dispose_of(key, times[key])] if disposes_all or not shown else []]
                for sample in (*disposed, *shown)
            ]
        if new:
            result.new[group] = new
    return result


def _instead(key: bytes, after: GroupSet, now_ns: int, *, disposes: bool) -> list[Sample]:
    """Return the samples that replace an instance's history at a client."""
    now = after.instance(key)
    end = dispose_of if disposes or not now else withdrawal_of
    return [end(key, now_ns), *now]


def _gone_back(before: GroupSet, after: GroupSet, *, every: bool) -> dict[bytes, Sequence[Sample]]:
    """Return the instances whose newest sample is gone, each with the samples that replace it."""
    if every:
        keys = before.keys()
        return {key: after.instance(key) for key in keys}
    found: dict[bytes, Sequence[Sample]] = {}
    for key in dict.fromkeys(
        sample.key for sample in before.samples().without(set(after.samples().each_digest()))
    ):
        old, kept = before.instance(key), after.instance(key)
        if kept and _last(old) in kept:
            continue
        unseen = [sample for sample in kept if sample not in old]
        found[key] = unseen or kept[kept.index(_last(kept)) :] if kept else ()
    return found


def _owners(before: GroupSet, after: GroupSet, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the writer of each instance's last sample before, if it has changed."""
    changes = [(key, before.instance(key), after.instance(key)) for key in keys]
    return {
        key: _last(old).writer
        for key, old, new in changes
        if old and not (new and _last(new).writer == _last(old).writer)
    }


def _last(history: Sequence[Sample]) -> Sample:
    """Return the newest sample that is more than an unregistration, if there is one."""
    return next((sample for sample in reversed(history) if sample.status != UNREGISTER), history[-1])


def _newest_ns(group_set: GroupSet, key: bytes) -> int:
    return max(sample.source_time_ns for sample in group_set.instance(key))
