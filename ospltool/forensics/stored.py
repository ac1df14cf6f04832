"""Facts from stores and recordings: sizes of sets, differing stores, and samples left in back-ups only."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from engine.runtime.monitor import NodeSnapshot
from ospltool.forensics.attachments import Attachment, AttachmentKind
from ospltool.live.recording import Recording, RecordingFault
from ospltool.output.text import plural
from ospltool.output.times import iso
from ospltool.stores.describe import Counted, count_sets
from ospltool.stores.diff.causes import Cause
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.diff.report import GroupReport, ReportData
from ospltool.stores.diff.report import Verdict as Compared
from ospltool.stores.diff.sides import MAX_SIDES, ComparedPart, DiffError
from ospltool.stores.model import SetKind, StoreFacts, StoreFormat, StoreNotSupported, StoreUnreadable
from ospltool.stores.opening import identity_of, open_reader
from ospltool.trace.meaning.fact_kinds import BUILT_IN, SetSize, SizeOrigin
from ospltool.trace.rules import SetFate, TraceFinding, grouped, set_finding

_NO_DIFFERENCE: Final = frozenset(
    {Cause.DAMAGE, Cause.HISTORY_DEPTH, Cause.UNREGISTERED, Cause.CLEANUP_DELAY}
)
"""Causes other than different data on nodes: an XML store keeps samples that newer ones replaced."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoreOf:
    """A store and its counted sets.

    Attributes:
        found: the attachment.
        facts: the store's own description.
        sets: counts of its sets.
        identity: what stores of other nodes do not have, if known.
    """

    found: Attachment
    facts: StoreFacts
    sets: tuple[Counted, ...]
    identity: str

    @property
    def node(self) -> str:
        """Name of its node."""
        return self.found.node

    @property
    def path(self) -> Path:
        """Place of the store."""
        return self.found.path

    @property
    def name(self) -> str:
        """Path as the user gave it."""
        return self.found.name

    @property
    def format(self) -> str:
        """Original format, also of a store that is kept as a snapshot."""
        return self.found.format or self.facts.format.value

    @property
    def damage(self) -> list[tuple[int, int, tuple[str, ...]]]:
        """(set number, damaged records, first of them) of each damaged set."""
        return list(self.found.damage) or [one.shown_damage for one in self.sets if one.shown_damage]

    @property
    def age_ns(self) -> int:
        """Newest time in its current sets; an XML store has only times of samples."""
        current = [one for one in self.sets if one.facts.kind is not SetKind.BACKUP]
        told = [one.facts.quality_ns or 0 for one in current if self.format != StoreFormat.XML.value]
        newest = [count.newest_ns for one in current for _, count in one.groups]
        return max([*told, *newest], default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEvidence:
    """Facts from all stores and recordings.

    Attributes:
        stores: stores that could be opened.
        conclusions: conclusions about the data.
        comparison: comparison of the newest store of each node, in data only; None with fewer than two.
        compared: stores of the comparison, in its order.
        unknown: sentences about what remains unknown.
        recorded: sizes of sets from recordings.
    """

    stores: tuple[StoreOf, ...]
    conclusions: tuple[TraceFinding, ...]
    comparison: ReportData | None
    compared: tuple[StoreOf, ...]
    unknown: tuple[str, ...]
    recorded: tuple[SetSize, ...] = ()

    @property
    def sizes(self) -> Iterator[SetSize]:
        """The sizes from recordings, and those of current sets, dated by their newest sample."""
        yield from self.recorded
        for store in self.stores:
            for one in store.sets:
                if one.facts.kind is SetKind.BACKUP:
                    continue
                for group, count in one.groups:
                    if not str(group.name).startswith(BUILT_IN):
                        at = count.newest_ns
                        yield SetSize(
                            store.node,
                            str(group.name),
                            at,
                            count.samples,
                            SizeOrigin.STORED,
                            store.name,
                        )


def examine(attachments: Iterable[Attachment]) -> StoredEvidence:
    """Read stores and recordings from end to end, and compare the stores.

    Args:
        attachments: stores and recordings.
    """
    stores: list[StoreOf] = []
    unknown: list[str] = []
    unread: list[TraceFinding] = []
    shown: list[SetSize] = []
    for one in attachments:
        if one.what is AttachmentKind.RECORDING:
            recorded, problems = sizes_of(one.path)
            shown += recorded
            unknown += problems
            continue
        try:
            stores.append(_store_of(one))
        except (StoreUnreadable, OSError) as cause:
            reason = one.unread or str(cause)
            if one.is_foreign or isinstance(cause, StoreNotSupported):
                unknown.append(f"what is in the store of {one.node}: {reason}")
            else:
                unread.append(_unreadable(one, reason))
    copies = _copies(stores)
    stores = [store for store in stores if store.name not in copies]
    newest = _newest(stores)
    unknown += copies.values()
    found = [*unread, *(one for store in stores for one in (*_damaged(store), *_in_backups(store)))]
    found += emptied_in(shown)
    comparison = None
    if len(newest) > 1:
        try:
            comparison = _compared([str(one.path) for one in newest])
        except (DiffError, StoreUnreadable) as cause:
            unknown.append(f"the stores could not be compared: {cause}")
        else:
            found += _differing(comparison, newest)
    left = [store.name for store in stores if store not in newest]
    if left and newest:
        unknown.append(f"older copies of stores were not compared: {', '.join(left)}")
    if len(newest) == 1 and len(stores) == 1:
        unknown.append(f"there is one store only ({stores[0].name}): it cannot be compared")
    return StoredEvidence(
        tuple(stores), tuple(found), comparison, tuple(newest), tuple(unknown), tuple(shown)
    )


def emptied_in(shown: Sequence[SetSize]) -> Iterator[TraceFinding]:
    """Yield conclusions about sets that become empty in a recording."""
    for (node, group), some in grouped(shown, lambda one: (one.node, one.group)):
        most = max(one.samples for one in some)
        if some[-1].samples or not most:
            continue
        gone = next(one for place, one in enumerate(some) if not any(each.samples for each in some[place:]))
        yield set_finding(
            SetFate.SHRANK,
            f"the set of {group} on {node} had up to {plural(most, 'sample')} and is empty from here on; the "
            f"recording {gone.source} does not show whether applications deleted it",
            gone.time_ns,
            None,
            (node,),
            group,
            facts={"samples_before": most, "recording": gone.source},
        )


def _copies(stores: Iterable[StoreOf]) -> dict[str, str]:
    """Return the stores that are copies of one of another node, by name, each with a sentence about that."""
    first: dict[str, StoreOf] = {}
    found = {}
    for store in stores:
        other = first.setdefault(store.identity, store) if store.identity else store
        if other.node != store.node:
            found[store.name] = (
                f"the store of {store.node}: {store.name} and {other.name}, of {other.node}, have "
                f"{store.identity}; one is a copy of the other, and the first is left out"
            )
    return found


def _newest(stores: Sequence[StoreOf]) -> list[StoreOf]:
    """Return the newest store with a current set of each node, at most MAX_SIDES."""
    best: dict[str, StoreOf] = {}
    # The newest first, since the first of each node is taken; the shorter name is rather the original than
    # a copy.
    for store in sorted(stores, key=lambda one: (-one.age_ns, len(one.name), one.name)):
        if store.facts.current() and store.facts.format is not StoreFormat.RECORDING:
            best.setdefault(store.node, store)
    return [best[node] for node in sorted(best)][:MAX_SIDES]


def _compared(given: Sequence[str]) -> ReportData:
    return compare(given, CompareOptions(instances=50, left=ComparedPart.DATA))


def _store_of(one: Attachment) -> StoreOf:
    with contextlib.closing(open_reader(one.path)) as reader:
        identity = one.identity or identity_of(reader.facts)
        return StoreOf(one, reader.facts, tuple(count_sets(reader)), identity)


def _unreadable(one: Attachment, reason: str) -> TraceFinding:
    return set_finding(
        SetFate.DAMAGED,
        f"the store of {one.node} cannot be read: {reason}",
        None,
        nodes=(one.node,),
        facts={"store": one.name, "reason": reason},
    )


def _damaged(store: StoreOf) -> Iterator[TraceFinding]:
    for number, count, first in store.damage:
        yield set_finding(
            SetFate.DAMAGED,
            f"{plural(count, 'record')} of set {number} in {store.name} cannot be read: {'; '.join(first)}",
            None,
            nodes=(store.node,),
            facts={"damaged": count, "store": store.name, "set": number},
        )


def _in_backups(store: StoreOf) -> Iterator[TraceFinding]:
    """Yield conclusions about samples that a back-up has and the current set of its name-space lacks."""
    current = {one.facts.name_space: one for one in store.sets if one.facts.kind is SetKind.CURRENT}
    for backup in (one for one in store.sets if one.facts.kind is SetKind.BACKUP):
        now = current.get(backup.facts.name_space)
        if now is None or not backup.samples:
            continue
        sides = [f"{store.path}@{backup.facts.number}", f"{store.path}@{now.facts.number}"]
        try:
            report = _compared(sides)
        except (DiffError, StoreUnreadable):
            continue  # the damage of the store is reported anyway
        for group in report.groups:
            only = group.only[0]
            name = f"{group.partition}.{group.topic}"
            if only > group.damaged[1] and not name.startswith(BUILT_IN):
                when = backup.facts.quality_ns
                yield set_finding(
                    SetFate.THROWN_AWAY,
                    f"{plural(only, 'instance')} of {name} on {store.node} are in the back-up (set "
                    f"{backup.facts.number}{'' if when is None else f', of {iso(when, 0)}'}) and not in the "
                    f"current set of {store.name}: thrown away by a merge, or disposed and purged since",
                    None,
                    nodes=(store.node,),
                    group=name,
                    facts={"store": store.name, "set": backup.facts.number, "instances": only},
                )


def _differing(report: ReportData, stores: Sequence[StoreOf]) -> Iterator[TraceFinding]:
    groups = [one for one in report.groups if not f"{one.partition}.".startswith(BUILT_IN)]
    nodes = tuple(one.node for one in stores)
    held = [one for one in groups if any(one.samples)]
    differing = [one for one in held if one.verdict is Compared.MISSING or _differing_in_data(one)]
    for group in differing:
        yield _difference(group, stores, nodes)
    if held and not differing and not any(any(one.damaged) for one in held):
        total = sum(one.equal + one.differing for one in held)
        yield set_finding(
            SetFate.EQUAL,
            f"the stores of {', '.join(nodes)} have the same data: {plural(len(held), 'group')}, "
            f"{plural(total, 'instance')}",
            None,
            nodes=nodes,
            facts={"groups": len(held), "instances": total},
        )


def _differing_in_data(group: GroupReport) -> int:
    """Return the number of instances whose difference has a cause outside `_NO_DIFFERENCE`."""
    return group.differing - sum(count for cause, count in group.causes.items() if cause in _NO_DIFFERENCE)


def _difference(group: GroupReport, stores: Sequence[StoreOf], nodes: tuple[str, ...]) -> TraceFinding:
    parts = []
    differing = _differing_in_data(group)
    for number, store in enumerate(stores):
        samples = group.samples[number]
        if samples is None:
            parts.append(f"{store.node} does not have the group")
            continue
        lacks = f", lacks {plural(group.absent[number], 'instance')}" if group.absent[number] else ""
        alone = f", has {group.only[number]} alone" if group.only[number] else ""
        parts.append(f"{store.node} has {plural(samples, 'sample')}{lacks}{alone}")
    causes = ", ".join(f"{cause} {count}" for cause, count in group.causes.items())
    name = f"{group.partition}.{group.topic}"
    return set_finding(
        SetFate.DIFFERS,
        f"the stores do not agree on {name}: {plural(differing, 'instance')} "
        f"differ{'s' if differing == 1 else ''} in data; {'; '.join(parts)}"
        + (f" (all differences by likely cause: {causes})" if causes else ""),
        None,
        nodes=nodes,
        group=name,
        facts={"differing": group.differing, "samples": list(group.samples), "causes": dict(group.causes)},
    )


APART_NS: Final = 1_000_000_000
"""Least time between two examined snapshots of a node."""

# Some hundred megabytes of a recording of weeks; beyond it the report says so.
MOST_SIZES: Final = 200_000


def sizes_of(path: Path) -> tuple[list[SetSize], list[str]]:
    """Return the sizes of sets in a recording, by time, and the problems of reading it."""
    found: list[SetSize] = []
    problems: list[str] = []
    last: dict[tuple[str, str], int] = {}
    looked: dict[str, int] = {}
    unread = 0
    try:
        with contextlib.closing(Recording(path)) as recording:
            for read in recording.lines():
                unread += len(read.faults)
                heard_ns, node = read.line or (0, None)
                if not isinstance(node, NodeSnapshot):
                    continue
                if heard_ns - looked.get(node.id, 0) < APART_NS:
                    continue
                looked[node.id] = heard_ns
                _look_at(node, heard_ns, path, last, found)
                if len(found) > MOST_SIZES:
                    problems.append(f"the recording {path}: more than {MOST_SIZES} changes of sizes")
                    return found, problems
    except RecordingFault as fault:
        problems.append(f"the recording {fault}")
    if unread:
        problems.append(f"the recording {path}: {plural(unread, 'line')} cannot be read")
    return found, problems


def _look_at(
    node: NodeSnapshot, heard_ns: int, path: Path, last: dict[tuple[str, str], int], found: list[SetSize]
) -> None:
    for view in node.groups:
        group = f"{view.partition}.{view.topic}"
        if group.startswith(BUILT_IN) or last.get((node.name, group)) == view.samples:
            continue
        last[node.name, group] = view.samples
        found.append(SetSize(node.name, group, heard_ns, view.samples, SizeOrigin.RECORDED, path.name))
