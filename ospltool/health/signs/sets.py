"""Signs of sets: too few copies, conflicts, merges, differences, stalls, missing keepers, lost samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine.core.name_spaces import MergeType
from engine.core.states import Phase
from engine.runtime.monitor import UnkeptView, is_nowhere
from ospltool.diagnostics.model import Severity
from ospltool.health.codes import SECOND_NS, Sign, joined
from ospltool.health.facts import KEPT_ON_DISK
from ospltool.health.presence import HealthInput
from ospltool.health.redundancy import Redundancy
from ospltool.live.conflicts import ReportedConflict
from ospltool.live.nodes import Node
from ospltool.live.remarks import RemarkSubject
from ospltool.live.series import STALLED_NS
from ospltool.output.text import plural

# Some heartbeats, in which nodes that meet agree.
PASSING_NS: Final = 3 * SECOND_NS
"""Shorter conflicts and merges are part of every start."""

# Samples settle (1 s), heartbeats are compared, the difference is sent: `live.groups.MENDING_NS` and some
# room.
COPYING_NS: Final = 5 * SECOND_NS
# Above the rests and retries of a store; a disk that refuses is another sign, which comes at once.
WRITING_NS: Final = 10 * SECOND_NS
"""Longest normal time for samples on their way to the disk."""


def of_sets(scene: HealthInput, copies: Iterable[Redundancy]) -> tuple[Iterator[Sign], ...]:
    """Return the signs about sets, in parts; `copies` are those of each name-space."""
    return (
        _of_copies(scene, list(copies)),
        _conflicts(scene),
        (sign for node in scene.heard for sign in _different(scene, node)),
        (sign for node in scene.heard for sign in _standing(scene, node)),
    )


def _of_copies(scene: HealthInput, copies: list[Redundancy]) -> Iterator[Sign]:
    is_any_low = any(one.lacks or one.lacks_on_disk for one in copies)
    awaited = scene.unheard.items() if is_any_low else ()
    unheard = tuple(name for name, report in awaited if not (report and report.in_order))
    for one in copies:
        yield from _copies(scene, one, unheard)
        yield from _parts(scene, one)


def _copies(scene: HealthInput, one: Redundancy, unheard: tuple[str, ...]) -> Iterator[Sign]:
    """Yield signs of too few copies; `unheard` has the names of awaited nodes that were never heard."""
    others = tuple(node for side in one.sides for node in side)
    missing = (*scene.names(one.lost), *unheard)
    absent = ", ".join(missing)
    reasons = _reasons(scene, one, missing)
    if one.lacks:
        warning = f", {one.warning}" if one.warning else ""
        what = f"{one.name}: {one.text}{warning}" + (f"; missing: {absent}" if absent else "")
        severity = Severity.ERROR if len(one.held) + len(one.unsure) <= 1 else None
        why = reasons or f"no further node has {one.name} in its configuration"
        yield Sign(
            "DUL-COPIES-LOW", one.name, what, 0, (*one.lost, *one.apart, *others), one.name,
            why, severity=severity, patience_ns=0 if _is_of_lost(scene, one, one.lacks) else COPYING_NS,
            occasion=_occasion(one.lacks, others, one.lost), weight=one.lacks,
        )  # fmt: skip
    if one.lacks_on_disk:
        without = tuple(node for node in one.held if node not in one.on_disk)
        names = joined(scene.names(without))
        what = f"{one.name}: {one.text}" + (f"; not on the disk of {names}" if names else "")
        why = _off_disk(scene, one.name, without) or reasons
        advice = f"Bring {joined(missing)} back." if absent and not without else ""
        is_waiting = any(one.name in scene.facts(scene.model.nodes[node]).waiting for node in without)
        is_known = not is_waiting and _is_of_lost(scene, one, one.lacks_on_disk)
        yield Sign(
            "DUL-DISK-COPIES-LOW", one.name, what, 0, (*without, *one.lost, *one.apart, *others), one.name,
            why, advice, severity=None if one.on_disk or one.unsure else Severity.ERROR,
            patience_ns=0 if is_known else WRITING_NS,
            occasion=_occasion(one.lacks_on_disk, one.on_disk_apart, one.lost), weight=one.lacks_on_disk,
        )  # fmt: skip


def _is_of_lost(scene: HealthInput, one: Redundancy, lacks: int) -> bool:
    """Return whether lost nodes account for what is missing, and nobody is known to bring it back soon.

    Then it is known as soon as their loss is, of which it is a part.
    """
    reports = [scene.reports.get(name) for name in scene.names(one.lost)]
    is_coming = any(report and report.restarts(scene.now_ns) for report in reports)
    return lacks <= len(one.lost) and not is_coming and not scene.model.link_lost


def _occasion(lacks: int, apart: Sequence[str], lost: Sequence[str]) -> tuple[int, ...]:
    """Tell whether nodes on other sides of a split (1), or else lost nodes (2), account for what is missing.

    Those are incidents of their own, of which this is a part: what is missing beside or after them is new.
    """
    if lacks <= len(apart):
        return (1,)
    return (2,) if lacks <= len(apart) + len(lost) else ()


def _reasons(scene: HealthInput, one: Redundancy, missing: tuple[str, ...]) -> str:
    """Return why copies are missing; empty if no further node has the name-space."""
    told = []
    if missing:
        told.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not heard")
    if one.apart:
        names = joined(scene.names(one.apart))
        told.append(f"the copy of {names} does not count: the nodes are incompatible")
    if one.sides:
        told.append(f"the sets of {_sides(scene, one)} differ: each side of the split has a master")
    if not told and (one.lacks or one.lacks_on_disk):
        others = [node for node in scene.heard if node.id not in one.held and one.name in node.name_spaces]
        names = joined([node.snapshot.name for node in others])
        told += [f"{names} {'does' if len(others) == 1 else 'do'} not hold the whole set"] * bool(others)
    return "; ".join(told)


def _sides(scene: HealthInput, one: Redundancy) -> str:
    """Return the nodes of each side of a split."""
    return " and of ".join(joined(scene.names(side)) for side in (one.held, *one.sides))


def _off_disk(scene: HealthInput, name: str, nodes: Iterable[str]) -> str:
    """Return why nodes that hold a name-space do not have it on disk; empty for no node."""
    told: dict[str, list[str]] = {}
    for node in nodes:
        known = scene.model.nodes[node]
        durability, store = known.name_spaces[name].durability, known.snapshot.store
        why = "samples wait for its disk"
        if store.problem or store.kind == "memory":
            why = store.problem or "it keeps data in memory only"
        elif durability not in KEPT_ON_DISK:
            why = f"the durability {durability} of its policy keeps nothing on disk"
        told.setdefault(why, []).append(known.snapshot.name)
    return "; ".join(f"{joined(names)}: {why}" for why, names in told.items())


def _parts(scene: HealthInput, one: Redundancy) -> Iterator[Sign]:
    """Yield signs of sets that lack samples for good, because Lazy nodes had kept only parts."""
    views = scene.unusual.get(one.name, ())
    made = tuple(node.id for node, view in views if view.from_parts)
    if made:
        what = f"{one.name}: the set of {joined(scene.names(made))} comes from parts that Lazy nodes had kept"
        yield Sign("DUL-SET-FROM-PARTS", one.name, what, 0, made, one.name, patience_ns=PASSING_NS)
    kept = tuple(node.id for node, view in views if view.is_less_than_whole)
    if kept and not made and not one.held and not one.coming:
        absent = ", ".join(scene.names((*one.lost, *one.stopped)))
        what = f"{one.name}: no node has the whole set; {joined(scene.names(kept))} may have parts of it"
        yield Sign(
            "DUL-ONLY-PARTS", one.name, what + (f"; missing: {absent}" if absent else ""), 0,
            (*one.lost, *kept), one.name, patience_ns=COPYING_NS,
        )  # fmt: skip


def _conflicts(scene: HealthInput) -> Iterator[Sign]:
    """Yield each open conflict once although both sides report it; `masters` reports incompatible fellows."""
    model = scene.model
    ids = {node.snapshot.name: node.id for node in model.ordered_nodes()}
    told: dict[tuple[str, frozenset[str]], ReportedConflict] = {}
    for one in model.conflicts.reported(model.nodes):
        if one.ended_ns or one.is_incompatibility:
            continue
        pair = (one.name_space, frozenset((one.node_name, one.fellow)))
        known = told.get(pair)
        if known is None or (bool(one.policy), -one.began_ns) > (bool(known.policy), -known.began_ns):
            told[pair] = one
    for one in told.values():
        nodes = (one.node, *((ids[one.fellow],) if one.fellow in ids else ()))
        policy = one.policy or _policy_of_merge(model.nodes.get(one.node), one.name_space)
        merge = f", merging by {policy}" if policy else ""
        what = f"{one.name_space}: {one.node_name} and {one.fellow}: {one.cause}{merge}"
        yield Sign(
            "DUL-MERGE" if policy else "DUL-CONFLICT", one.name_space, what, one.began_ns, nodes,
            one.name_space, why=one.cause, patience_ns=PASSING_NS,
        )  # fmt: skip


def _policy_of_merge(node: Node | None, name_space: str) -> str:
    """Return the policy of a merge within a role, which no event tells; empty if the node does not merge."""
    view = node.name_spaces.get(name_space) if node else None
    return MergeType.MERGE.value if view is not None and view.phase == Phase.MERGE.value else ""


def _different(scene: HealthInput, node: Node) -> Iterator[Sign]:
    model = scene.model
    for name in model.sets.differing(node):
        since_ns = model.sets.differs_since(node, name, scene.now_ns)
        if since_ns:
            yield _difference(scene, node, name, since_ns)


def _difference(scene: HealthInput, node: Node, name: str, since_ns: int) -> Sign:
    model = scene.model
    view = node.name_spaces[name]
    master = model.nodes[view.master]
    theirs = master.name_spaces[name].count
    called = master.snapshot.name
    what = f"{name} on {node.snapshot.name} differs from its master {called}"
    counts = f" ({plural(view.count, 'sample')}, {called} has {theirs:,})"
    why, advice = "", ""
    if not view.aligner:
        why = f"{node.snapshot.name} is not an aligner, so samples that only it holds stay there"
        advice = f"make {node.snapshot.name} an aligner to give its samples to all"
    return Sign(
        "DUL-SET-DIFFERS", name, what + counts, since_ns, (node.id, master.id), name, why, advice,
        began_before=since_ns <= max(node.came_ns, master.came_ns),
    )  # fmt: skip


def _standing(scene: HealthInput, node: Node) -> Iterator[Sign]:
    for view, progress in scene.model.progress(node):
        if progress.alignment.direction == "from" and scene.now_ns - progress.moved_ns > STALLED_NS:
            fellow = progress.alignment.fellow
            source = scene.model.name_of(fellow)
            what = f"{view.name} on {node.snapshot.name}: the alignment from {source} has stalled"
            yield Sign(
                "DUL-ALIGN-STALLED", node.snapshot.name, what, progress.moved_ns, (node.id, fellow),
                view.name, subjects=(node.id,),
            )  # fmt: skip


REFUSING: Final = frozenset({"DUL-STORE-FULL", "DUL-STORE-FAILED"})
AWAITED: Final = "type-awaited"
# Above the three attempts, which take 6.6 s (`engine.dds.typeinfo.LOOK_UP_S`).
LOOK_UP_NS: Final = 10 * SECOND_NS
"""A type whose look-up takes longer counts as unknown."""


def of_data(scene: HealthInput) -> Iterator[Sign]:
    """Yield the signs about data on nodes that are heard."""
    yield from _unkept(scene)
    for node in scene.heard:
        for sign in scene.facts(node).signs:
            yield _since_told(scene, node, sign) if sign.code in REFUSING else sign
        yield from _lost(scene, node)


def _since_told(scene: HealthInput, node: Node, sign: Sign) -> Sign:
    """Return a sign of a disk that refuses with the moment at which the node told so."""
    told = scene.model.remarks.present(node.id, scene.now_ns)
    since_ns = min((one.time_ns for one in told if one.topic is RemarkSubject.DISK), default=0)
    return dataclasses.replace(sign, since_ns=since_ns)


_NEXT: Final[Mapping[str, str]] = {
    "untyped-keyed": "Let the application announce the type: use a library with XTypes, and types "
    "that idlc made with type information.",
    AWAITED: "Wait: nodes ask for the type, and keep the writer once they know it.",
    "type-unknown": "Start any application on Cyclone DDS 11 that has a reader or writer of this type, on "
    "any topic, and let it run until this ends: nodes ask for one unknown type after another, every 5 s.",
    "refused": "Compare the writer's type with the one that it announces, and its DATA_REPRESENTATION: an "
    "ordinary reader of Cyclone DDS refuses these samples, too.",
    "qos": "Give the writer the policies of its topic: RELIABLE, and at least its durability. "
    "`ospltool doctor` names the writer and both values.",
    "unmatched": "Look whether the application ignores participants or uses another network "
    "interface, and report it.",
    "ended": "Let the application wait until nodes keep its writer before it writes (samples/kept.py), and "
    "until all is acknowledged before it ends.",
}
"""The next step, by `engine.capture.unkept.UnkeptReason`, which this package may not import."""


def _unkept(scene: HealthInput) -> Iterator[Sign]:
    """Yield a sign for each group and reason for which nodes do not keep durable writers."""
    found: dict[tuple[str, str, str], tuple[list[UnkeptView], list[str]]] = {}
    shown = [node.snapshot for node in scene.heard]
    for node in scene.heard:
        for view in node.snapshot.unkept:
            if not is_nowhere(view, shown):
                continue
            views, nodes = found.setdefault((view.partition, view.topic, view.why), ([], []))
            views.append(view)
            nodes.append(node.id)
    for (partition, topic, why), (views, nodes) in found.items():
        group = f"{partition}.{topic}" if partition else topic
        writers = len({view.writer for view in views})
        count = "a durable writer" if writers == 1 else f"{writers:,} durable writers"
        told = tuple(dict.fromkeys(nodes))
        what = f"{joined(scene.names(told))} do{'es' if len(told) == 1 else ''} not keep {count} of {group}"
        text = views[-1].text
        yield Sign(
            "DUL-NOT-KEPT",
            group,
            f"{what}: {text}",
            0,
            told,
            why=text,
            patience_ns=LOOK_UP_NS if why == AWAITED else 0,
            weight=writers,
            next=_NEXT.get(why, ""),
        )


def _lost(scene: HealthInput, node: Node) -> Iterator[Sign]:
    lost, since_ns, is_older = scene.model.losses.unrepaired(node.snapshot)
    if lost:
        name = node.snapshot.name
        yield Sign(
            "DUL-CAPTURE-LOSS",
            name,
            f"{name} lost {plural(lost, 'sample')}",
            since_ns,
            (node.id,),
            weight=lost,
            began_before=is_older,
        )
