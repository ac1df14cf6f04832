"""Signs that one snapshot shows about the node's own data: its store, what it does not keep, its readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from engine.dataset.groups import depth_name, loosest
from engine.runtime.monitor import DeliveryView, GroupView, NodeSnapshot
from ospltool.health.codes import SECOND_NS, Sign
from ospltool.output.text import durability_service, plural

# Five minutes: a person who was called still sees which reader it was.
REMEMBER_FAILED_NS: Final = 300 * SECOND_NS
"""Time for which a reader that was not served, and did not come back, is reported."""
# An hour: who made a merge that was a mistake finds out soon, and the note is not an incident for ever.
REMEMBER_BACKUP_NS: Final = 3_600 * SECOND_NS
"""Time for which a back-up is reported; the store keeps it for longer."""
# As `facts.FAR_BEHIND`.
MANY_QUEUED: Final = 1_000
MOST_TOPICS: Final = 3
"""Topics that are named; the others are counted."""
# Longer than the longest rest of a store and a slow transaction.
BEHIND_NS: Final = 5 * SECOND_NS
CUT_NS: Final = 3 * SECOND_NS
"""Time for which a reader must ask for more than is kept: one that reads what is there and ends is not told.

A single look at the health of a system lasts longer."""
_NO_ROOM: Final = ("no space", "space are too few", "disk is full", "quota exceeded", "file too large")
_CLOSED: Final = "the last run did not close the store"


def of_snapshot(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield the signs that a snapshot shows without those of other nodes."""
    yield from of_store(snapshot)
    yield from of_capture(snapshot)
    yield from of_readers(snapshot)
    yield from _secret(snapshot)


def of_store(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield signs of a store that fails, is behind, or was damaged."""
    name, store, me = snapshot.name, snapshot.store, (snapshot.id,)
    if store.problem:
        full = any(word in store.problem.lower() for word in _NO_ROOM)
        code = "DUL-STORE-FULL" if full else "DUL-STORE-FAILED"
        place, colon, rest = store.problem.partition(": ")
        said = rest if colon and place.startswith(store.path) else store.problem
        yield Sign(code, name, f"{name} store: {said}", 0, me, why=f"{store.path}: {said}", weight=2)
    elif snapshot.counters.get("queued", 0) >= MANY_QUEUED:
        what = f"{snapshot.counters['queued']:,} changes wait for the disk of {name}"
        yield Sign("DUL-STORE-BEHIND", name, what, 0, me, patience_ns=BEHIND_NS)
    for space in snapshot.name_spaces:
        if space.backup and snapshot.time_ns - space.backup_ns < REMEMBER_BACKUP_NS:
            what = f"{name} made its stored set of {space.name} a back-up"
            yield Sign("DUL-SET-REPLACED", name, what, space.backup_ns, me, space.name, why=space.backup)
    damage = [finding for finding in store.findings if finding != _CLOSED]
    if damage:
        more = f" (and {len(damage) - 1:,} more)" if len(damage) > 1 else ""
        yield Sign("DUL-STORE-DAMAGED", name, f"{name} store: {damage[0]}{more}", snapshot.started_ns, me)


_TOO_LARGE: Final = (
    "Raise DDSI2Service/Internal/MaxSampleSize on all nodes alike, and start them again one by one; what was "
    "written meanwhile is missing."
)


def of_capture(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield signs of samples that a node does not keep."""
    name, me = snapshot.name, (snapshot.id,)
    large = snapshot.counters.get("too_large", 0)
    if large:
        groups = [f"{one.partition}.{one.topic}" for one in snapshot.groups if one.too_large]
        of = f" of {_few(groups)}" if groups else ""
        what = f"{name} did not capture {plural(large, 'sample')}{of} above its MaxSampleSize"
        why = "they are larger than MaxSampleSize of the node (DDSI2Service/Internal)"
        yield Sign("DUL-NOT-KEPT", name, what, 0, me, why=why, weight=large, next=_TOO_LARGE)
    yield from _rejected(snapshot)
    yield from _cut(snapshot)


def _secret(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield a sign of a file of the domain's secret that has changed and cannot be used."""
    if snapshot.secret_problem:
        what = f"{snapshot.name} keeps the secret that it had: {snapshot.secret_problem}"
        yield Sign("DUL-SECRET-KEPT", snapshot.name, what, 0, (snapshot.id,), why=snapshot.secret_problem)


def _rejected(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield one sign for each name-space, with all topics whose limits keep samples out."""
    told: dict[str, list[str]] = {}
    for group in snapshot.groups:
        if group.rejected:
            causes = ", ".join(f"{count:,} by {cause}" for cause, count in group.rejected)
            told.setdefault(group.name_space, []).append(f"{group.partition}.{group.topic}: {causes}")
    for name_space, topics in told.items():
        limits = "the resource limits of the topic's durability service are reached"
        if len(topics) > 1:
            limits = f"the resource limits of {len(topics)} topics' durability services are reached"
        what = f"{snapshot.name} rejected samples of {_few(topics)}"
        group = next(one for one in snapshot.groups if one.rejected and one.name_space == name_space)
        line = durability_service(group.depth, (-1, -1, -1), group.cleanup_delay_ns)
        yield Sign(
            "DUL-REJECTED", snapshot.name, what, 0, (snapshot.id,), name_space, limits,
            next=f"Set higher limits, or none, on topic {group.topic} and all of its writers: {line}",
        )  # fmt: skip


def _cut(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield one sign for each name-space, with all topics of which readers ask for more than is kept.

    All nodes keep the same, so the sign is about the name-space and not about this node.
    """
    told: dict[str, list[GroupView]] = {}
    for group in snapshot.groups:
        if group.asked != 1 and group.is_cut:  # no less than one is kept: nearly always all that is asked
            told.setdefault(group.name_space, []).append(group)
    for name_space, groups in told.items():
        first = groups[0]
        topics = [
            f"{one.partition}.{one.topic} (asked {depth_name(one.asked)}, kept {depth_name(one.kept_depth)})"
            for one in groups
        ]
        most, instances, each = first.limits
        limits = (most, instances, loosest(each, first.asked) if each > 0 else -1)
        line = durability_service(first.asked, limits, first.cleanup_delay_ns)
        yield Sign(
            "DUL-HISTORY-CUT",
            name_space,
            f"late joiners get fewer samples of an instance than readers ask for: {_few(topics)}",
            0,
            (snapshot.id,),
            name_space,
            "DURABILITY_SERVICE says how many are kept, not HISTORY; its default is one",
            patience_ns=CUT_NS,
            next=f"Where late joiners need more, set on topic {first.topic} and all of its writers: {line}",
        )


def _few(topics: Sequence[str]) -> str:
    more = f"; {len(topics) - MOST_TOPICS:,} more topics" if len(topics) > MOST_TOPICS else ""
    return "; ".join(topics[:MOST_TOPICS]) + more


_REFUSED_POLICY: Final = re.compile(r"\b([A-Z_]+): offered ")
_CHANGE_POLICY: Final = (
    "Change {}: have the reader request no more than is offered, or the topic and all of its writers offer "
    "what it requests. `ospltool doctor` names the readers."
)
"""Advice where the QoS differs: who starts the application again meets the same refusal."""


def of_readers(snapshot: NodeSnapshot) -> Iterator[Sign]:
    """Yield signs of readers that were not served, or whose data differs from the set."""
    name, me = snapshot.name, (snapshot.id,)
    for delivery in _troubled(snapshot):
        verb, began_ns = "could not serve", delivery.finished_ns
        if delivery.state == "running":
            verb, began_ns = "waits for", delivery.started_ns
        where = f"partition '{delivery.partition}'" if delivery.partition else "the default partition"
        what = f"{name} {verb} a reader of {delivery.topic} in {where}"
        policies = dict.fromkeys(_REFUSED_POLICY.findall(delivery.problem))
        remedy = _CHANGE_POLICY.format(", ".join(policies)) if policies else ""
        yield Sign("DUL-READER-NOT-SERVED", name, what, began_ns, me, why=delivery.problem, next=remedy)
    for deviation in snapshot.deviations:
        if deviation.counts.keys() == {"repeated"}:
            continue  # it has the set, and some samples twice: for `doctor`
        what = f"a reader of {deviation.topic} deviates from the set of {name}: {deviation.text}"
        yield Sign("DUL-READER-DEVIATES", name, what, 0, me)


def _troubled(snapshot: NodeSnapshot) -> Iterator[DeliveryView]:
    """Yield the last delivery to each reader that is there, if it has a problem.

    A reader whose QoS refuses what is kept stays without it as long as it is there; a delivery that failed
    may have been repeated by another node.
    """
    newest = {
        (one.participant, one.topic, one.partition): one for one in snapshot.deliveries if not one.is_gone
    }
    for one in newest.values():
        is_old = one.state == "failed" and snapshot.time_ns - one.finished_ns >= REMEMBER_FAILED_NS
        if one.problem and not is_old:
            yield one
