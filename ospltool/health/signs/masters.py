"""Signs about masters, nodes that do not hear each other, and definitions that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.core.election import NOBODY, NOBODY_REMEDY
from engine.core.name_spaces import Alignee
from engine.runtime.monitor import NameSpaceView
from ospltool.health.codes import SECOND_NS, Sign, joined
from ospltool.health.presence import MEETING_NS, HealthInput, fellow_losses
from ospltool.live.nodes import Node

# Some heartbeats with default settings. Longer delays the report of a missing master, shorter reports each
# election.
ELECTION_NS: Final = 3 * SECOND_NS
"""Longest normal election."""

CUT_OFF_NS: Final = 8 * SECOND_NS
"""Longest normal time without a master for a node that does not hear one that others hear.

If that is its master, it follows it by what they tell after four to five seconds.
"""

# A machine that starts thirty nodes at once takes that long (`make bench AREA=start`).
STARTING_NS: Final = 10 * SECOND_NS
"""Longest normal time until a node that starts on a busy machine knows the others."""

# A cut between 32 and 32 nodes; more pairs say the same, and each costs time of the watch.
MOST_PAIRS: Final = 1_000
"""Most pairs of nodes that are examined."""


def of_masters(scene: HealthInput) -> tuple[Iterator[Sign], ...]:
    """Return the signs about masters and definitions of nodes that are heard, in parts."""
    return (
        _without(scene),
        _contested(scene),
        _mesh(scene),
        _out_of_reach(scene),
        _incompatible(scene),
        _definitions(scene),
        _priorities(scene),
    )


def _without(scene: HealthInput) -> Iterator[Sign]:
    lacking: dict[tuple[str, str, bool], list[tuple[Node, NameSpaceView]]] = {}
    for node in scene.heard:
        for view in scene.facts(node).unusual.values():
            if view.master:
                continue
            impossible = view.why == NOBODY
            if view.is_at_rest and not view.complete:
                continue  # a Lazy or On_Request node without requests needs no master
            # An alignee that is not Initial takes part on request only.
            waits = bool(view.why) or view.alignee == Alignee.INITIAL.value
            if impossible or (waits and node.snapshot.state == "COMPLETE"):
                lacking.setdefault((view.name, node.snapshot.role, impossible), []).append((node, view))
    there = scene.heard_by_any() if lacking else frozenset()
    for (name, _, impossible), found in lacking.items():
        nodes = tuple(node.id for node, _ in found)
        names = joined([node.snapshot.name for node, _ in found])
        what = f"{name} has no master on {names}: {found[0][1].why}"
        if impossible:
            remedy = f"{NOBODY_REMEDY}, and restart that node; or start the node that may be master"
            yield Sign("DUL-MASTER-IMPOSSIBLE", name, what, 0, nodes, name, NOBODY, remedy, weight=2)
        else:
            is_cut_off = any(there - node.fellows.met - {node.id} for node, _ in found)
            patience_ns = CUT_OFF_NS if is_cut_off else ELECTION_NS
            yield Sign("DUL-NO-MASTER", name, what, 0, nodes, name, patience_ns=patience_ns)


def _contested(scene: HealthInput) -> Iterator[Sign]:
    model = scene.model
    for name_space, role, told in scene.contested:
        tellers: dict[str, str] = {}
        for teller, master in sorted(told.items()):
            tellers.setdefault(master, model.name_of(teller))
        said = ", ".join(f"{model.name_of(m)} (says {by})" for m, by in sorted(tellers.items()))
        what = f"{name_space}, role {role}: {len(tellers)} masters: {said}"
        nodes = tuple(sorted({*told, *told.values()}))
        yield Sign(
            "DUL-TWO-MASTERS",
            name_space,
            what,
            0,
            nodes,
            name_space,
            patience_ns=ELECTION_NS,
            weight=len(tellers),
        )


def _mesh(scene: HealthInput) -> Iterator[Sign]:
    """Yield a sign for each pair of which at least one node does not know the other.

    One that is about to be heard again after the loss of all has to meet the others then.
    """
    there = [node for node in scene.heard if node.heard_ns > scene.memory.last_lost_ns]
    met = [(node.id, node.fellows.met) for node in there]
    deaf = scene.cache.deaf.value_of(met, lambda: _deaf(met))
    moments = _parted_ns(scene) if deaf else {}
    starting = {node.id for node in scene.heard if node.snapshot.state != "COMPLETE"}
    for pair, tellers in sorted(deaf.items())[:MOST_PAIRS]:
        names = [scene.model.name_of(node) for node in pair]
        what = f"{joined(sorted(names))} do not hear each other"
        if len(tellers) == 1:
            mine, other = names if tellers[0] == pair[0] else reversed(names)
            what = f"{mine} does not hear {other}, which hears it"
        yield _parted(scene, pair, tellers, what, moments, are_complete=starting.isdisjoint(pair))


def _out_of_reach(scene: HealthInput) -> Iterator[Sign]:
    """Yield a sign for each heard node that does not know one that its fellows hear, and not this watch."""
    hearing = {node.id: scene.tellers(node) for node in filter(scene.is_away, scene.nodes)}
    starting = {node.id for node in scene.heard if node.snapshot.state != "COMPLETE"}
    for (name, node_id), told in scene.strangers.items():
        if scene.hears_of(name):
            hearing[node_id] = list(told)
            starting |= {node_id} if any(one.state != "COMPLETE" for one in told.values()) else set()
    pairs = [
        (one.id, node_id)
        for node_id, tellers in hearing.items()
        for one in (scene.heard if tellers else ())
        if node_id not in one.fellows.met
    ]
    moments = _parted_ns(scene) if pairs else {}
    for one_id, node_id in pairs[:MOST_PAIRS]:
        tellers = hearing[node_id]
        name_of = scene.model.name_of
        names, verb = joined(list(map(name_of, tellers))), "hears" if len(tellers) == 1 else "hear"
        what = f"{name_of(one_id)} does not hear {name_of(node_id)}, which {names} {verb}"
        pair = (min(one_id, node_id), max(one_id, node_id))
        yield _parted(scene, pair, [one_id], what, moments, are_complete=starting.isdisjoint(pair))


def _parted(
    scene: HealthInput,
    pair: tuple[str, str],
    tellers: list[str],
    what: str,
    parted: Mapping[tuple[str, str], int],
    *,
    are_complete: bool,
) -> Sign:
    """Return the sign of two nodes that do not hear each other.

    Args:
        scene: the system now.
        pair: ids of the two.
        tellers: those of them that are heard, and do not hear the other.
        what: the observation.
        parted: when each node (id) told last that it lost a fellow (name).
        are_complete: whether both have started.
    """
    names = {node: scene.model.name_of(node) for node in pair}
    known = [scene.model.nodes.get(node) for node in pair]
    runs = tuple(node.snapshot.started_ns if node else 0 for node in known)
    moments = [parted.get((mine, names[other]), 0) for mine in tellers for other in pair if other != mine]
    return Sign(
        "DUL-PARTIAL-MESH",
        " and ".join(sorted(names.values())),
        what,
        0,
        pair,
        why=_cause_of_gap(scene, pair),
        patience_ns=MEETING_NS if are_complete else STARTING_NS,
        occasion=runs,
        told_ns=max((one for one in moments if one >= max(runs)), default=0),
    )


def _cause_of_gap(scene: HealthInput, pair: tuple[str, str]) -> str:
    """Return what is wrong with the network of this host if one node of a pair runs on it; else nothing."""
    nodes = [scene.model.nodes[one] for one in pair if one in scene.model.nodes]
    if len(nodes) < len(pair):
        return ""
    is_of_this_host = [not scene.here.isdisjoint(one.snapshot.addresses) for one in nodes]
    if sum(is_of_this_host) != 1:
        return ""
    other = nodes[is_of_this_host.index(False)]
    return scene.broken_link(scene.now_ns) or scene.broken_route(other, scene.now_ns)


def _deaf(met: list[tuple[str, frozenset[str]]]) -> dict[tuple[str, str], list[str]]:
    """Return the pairs of nodes of which one did not meet the other, each with those that did not."""
    ids = frozenset([node for node, _ in met])
    deaf: dict[tuple[str, str], list[str]] = {}
    for node, fellows in met:
        for other in ids - fellows - {node}:
            deaf.setdefault((min(node, other), max(node, other)), []).append(node)
    return deaf


def _parted_ns(scene: HealthInput) -> dict[tuple[str, str], int]:
    """Return when a node (id) told last that it lost a fellow (name), by the node's clock."""
    found: dict[tuple[str, str], int] = {}
    for one in fellow_losses(scene.model):
        found.setdefault((one.event.node, one.fellow), one.event.time_ns)
    return found


def _incompatible(scene: HealthInput) -> Iterator[Sign]:
    """Yield a sign for each incompatible pair; `causes` finds a node common to several pairs."""
    refusals = [(node, fellow) for node in scene.heard for fellow in scene.facts(node).refused]
    told: dict[frozenset[str], int] = {}
    for node, fellow in refusals:
        pair = frozenset((node.id, fellow.id))
        moment_ns = scene.model.conflicts.incompatible_since(node.id, fellow)
        told[pair] = min(filter(None, (told.get(pair, 0), moment_ns)), default=0)
    for node, fellow in refusals:
        since_ns = told.pop(frozenset((node.id, fellow.id)), None)
        if since_ns is not None:
            first, second = sorted((node.snapshot.name, fellow.name))
            what = f"{node.snapshot.name} and {fellow.name} do not communicate: {fellow.problem}"
            other = scene.model.nodes.get(fellow.id, node)
            since_ns = since_ns or max(node.snapshot.started_ns, other.snapshot.started_ns)
            yield Sign(
                "DUL-INCOMPATIBLE",
                f"{first} and {second}",
                what,
                since_ns,
                (node.id, fellow.id),
                why=f"the configurations of {first} and {second} define name-spaces differently",
            )


def _definitions(scene: HealthInput) -> Iterator[Sign]:
    """Yield signs of equal name-spaces of one role with different durability or merges."""
    heard = scene.heard
    defined: dict[tuple[str, str, tuple[str, ...]], dict[tuple[str, tuple[str, ...]], list[Node]]] = {}
    outlines = [node.outline for node in heard]
    doubtful = scene.cache.doubtful.value_of(outlines, lambda: _defined_otherwise(heard))
    for node in heard if doubtful else ():
        for view in node.snapshot.name_spaces:
            if (view.name, node.snapshot.role) not in doubtful:
                continue
            place = defined.setdefault((view.name, node.snapshot.role, tuple(sorted(view.elements))), {})
            place.setdefault((view.durability, view.merges), []).append(node)
    for (name, role, _), variants in defined.items():
        if len(variants) > 1:
            said = "; ".join(
                f"{_with_learners(nodes, name)}: durability {durability}, merge {', '.join(merges) or 'none'}"
                for (durability, merges), nodes in variants.items()
            )
            fewest = min(variants.values(), key=len)
            alone = joined([node.snapshot.name for node in fewest])
            is_even = len(fewest) * 2 == sum(map(len, variants.values()))
            why = (
                "their configurations differ"
                if is_even
                else f"the configuration of {alone} differs from the others"
            )
            nodes = tuple(node.id for node in fewest)
            starts = [min(node.snapshot.started_ns for node in alike) for alike in variants.values()]
            what = f"{name}, role {role}: {said}"
            yield Sign("DUL-CONFIG-DIFFERS", name, what, sorted(starts)[1], nodes, name, why)


def _with_learners(nodes: list[Node], name_space: str) -> str:
    """Return the names of nodes, with a remark on those that learned the definition from others."""
    views = {node.id: view for node in nodes for view in node.snapshot.name_spaces if view.name == name_space}
    learned = [node.snapshot.name for node in nodes if views[node.id].is_learned]
    names = joined([node.snapshot.name for node in nodes])
    return f"{names} ({joined(learned)} learned it under a Policy of its own)" if learned else names


def _defined_otherwise(heard: list[Node]) -> set[tuple[str, str]]:
    """Return each (name-space, role) that nodes define differently, nearly always none."""
    roles: dict[str, dict[str, NameSpaceView]] = {}
    found = set()
    for node in heard:
        role = node.snapshot.role
        first = roles.setdefault(role, {})
        for view in node.snapshot.name_spaces:
            known = first.setdefault(view.name, view)
            if (
                view.durability != known.durability
                or view.merges != known.merges
                or view.elements != known.elements
            ):
                found.add((view.name, role))
    return found


def _priorities(scene: HealthInput) -> Iterator[Sign]:
    """Yield signs of masterPriority 255, the legacy rule, beside other values in one role."""
    legacy = {(name, node.snapshot.role) for node in scene.heard for name in scene.facts(node).legacy}
    used: dict[tuple[str, str], dict[int, Node]] = {}
    for node in scene.heard if legacy else ():
        for view in node.snapshot.name_spaces:
            if view.aligner and view.master_priority and (view.name, node.snapshot.role) in legacy:
                used.setdefault((view.name, node.snapshot.role), {}).setdefault(view.master_priority, node)
    for (name, role), nodes in used.items():
        if len(nodes) > 1:
            said = ", ".join(f"{priority} ({nodes[priority].snapshot.name})" for priority in sorted(nodes))
            what = f"{name}, role {role}: masterPriority 255 beside other values: {said}"
            ids = tuple(node.id for node in nodes.values())
            why = "their configurations have different masterPriority"
            yield Sign("DUL-PRIORITIES-MIXED", name, what, 0, ids, name, why)
