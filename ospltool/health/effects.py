"""An incident in words: what and why, its effect on the data (copies, masters, what is lost), what to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ospltool.health.causes import RootCause
from ospltool.health.codes import NO_MASTER, joined
from ospltool.health.facts import PERSISTENT
from ospltool.health.incidents import Incident
from ospltool.health.presence import HealthInput, Presence
from ospltool.health.redundancy import Redundancy
from ospltool.live.nodes import Node
from ospltool.live.remarks import RemarkSubject
from ospltool.output.text import plural

# Lines of the screen that shows them.
MOST_SPACES: Final = 3
"""Name-spaces that are named, and different things that are said of them; the others are counted."""

_COPIES: Final = "copies"
_MASTERS: Final = "masters"

MOST_STORES: Final = 4
"""Store directories that are named."""


_PARTING: Final = frozenset({"mesh", "master", "definition", "protocol", "conflict", "identity"})
"""Causes of several masters in one role."""


def effects(
    scene: HealthInput,
    causes: Sequence[RootCause],
    copies: Mapping[str, Redundancy],
    is_muted: Callable[[RootCause], bool],
) -> dict[str, str]:
    """Describe the effect of each cause, by the key of its root; without name-spaces, that of its code.

    The copies and the masters of a name-space are told once, with the first cause that accounts for them and
    is not muted. So the incident at the top of a list tells them, the others that account for them refer to
    it, and those that do not are silent about them.
    """
    if not causes:  # nearly always
        return {}
    masters = _masters(scene)
    told: dict[str, dict[str, _Parts]] = {}
    for one in causes:
        names = [name for name in _touched(scene, one) if name in copies]
        # The fewest copies first: where data is nearest to being lost.
        names.sort(key=lambda name: (len(copies[name].held), name))
        told[one.root.key] = {
            name: _of_space(scene, one, copies[name], masters.get(name, [])) for name in names
        }
    claims: dict[tuple[str, str], list[RootCause]] = {}
    for one in causes:
        for name, parts in told[one.root.key].items():
            for part in parts.shared:
                claims.setdefault((name, part), []).append(one)

    tellers: dict[tuple[str, str], list[RootCause]] = {}
    for (name, part), found in claims.items():
        many = len(masters.get(name, ()))
        answerable = [one for one in found if _accounts(one, part, copies[name], many)] or found
        owner = next((one for one in (*answerable, *found) if not is_muted(one)), answerable[0])
        tellers[name, part] = [owner, *(one for one in answerable if one is not owner)]
    return {one.root.key: _effect(scene, one, told[one.root.key], tellers) for one in causes}


class _Parts(NamedTuple):
    """What a cause tells of a name-space: what others may tell, too, in its order, and what only it tells."""

    shared: dict[str, str]
    own: list[str]


def _accounts(cause: RootCause, part: str, copies: Redundancy, masters: int) -> bool:
    """Return whether the copies of a name-space, or its masters, are as they are because of a cause."""
    kind = cause.root.kind.cause
    if part == _MASTERS and masters > 1:
        return kind in _PARTING
    return kind == "store" or not {*copies.lost, *copies.apart}.isdisjoint(cause.root.nodes)


def _effect(
    scene: HealthInput,
    cause: RootCause,
    told: Mapping[str, _Parts],
    tellers: Mapping[tuple[str, str], list[RootCause]],
) -> str:
    kind = cause.root.kind
    if kind.cause == "domain":
        return _of_lost_domain(scene) or kind.effect
    if not told:
        return kind.effect
    said: dict[str, str] = {}
    elsewhere: dict[str, dict[str, None]] = {}
    for name, parts in told.items():
        mine = []
        for part, text in parts.shared.items():
            owner, *others = tellers[name, part]
            if owner is cause:
                mine.append(text)
            elif any(one is cause for one in others):
                elsewhere.setdefault(f"{owner.root.code} {owner.root.who}", {})[part] = None
        said[name] = ", ".join(filter(None, (*mine, *parts.own)))
    also = [f"{' and '.join(sorted(parts))} as in {where}" for where, parts in elsewhere.items()]
    return "; ".join((*_grouped(said), *also)) or kind.effect


def _grouped(said: Mapping[str, str]) -> list[str]:
    """Return what is said of name-spaces, of those with the same text once; beyond a few they are counted."""
    alike: dict[str, list[str]] = {}
    for name, text in said.items():
        if text:
            alike.setdefault(text, []).append(name)
    told = list(alike.items())
    lines = [
        f"{joined(names) if len(names) <= MOST_SPACES else plural(len(names), 'name-space')}: {text}"
        for text, names in told[:MOST_SPACES]
    ]
    more = sum(len(names) for _, names in told[MOST_SPACES:])
    return [*lines, plural(more, "more name-space")] if more else lines


def _touched(scene: HealthInput, cause: RootCause) -> list[str]:
    named = set(cause.name_spaces)
    if cause.root.kind.cause in ("node", "store", "stuck"):
        for node in cause.root.nodes:
            known = scene.model.nodes.get(node)
            named.update(known.name_spaces if known else ())
        if cause.root.kind.cause != "store" and not cause.root.nodes:
            named.update(one.name for one in scene.expected.name_spaces)
    return sorted(named)


def _of_space(scene: HealthInput, cause: RootCause, copies: Redundancy, masters: list[Node]) -> _Parts:
    is_of_disk, nodes = cause.root.kind.cause == "store", scene.model.nodes
    shared = {_COPIES: ", ".join(filter(None, (copies.text, copies.warning)))}
    if len(masters) < 2 or not is_of_disk:  # the disk has nothing to do with several masters
        told_masters, is_split = _of_masters(masters, copies.name)
        shared = {_MASTERS: told_masters, **shared} if is_split else {**shared, _MASTERS: told_masters}
    told: list[str] = []
    if is_of_disk:
        told += _waiting(scene, [nodes[node] for node in cause.root.nodes], copies.name)
    if cause.root.code == "DUL-NODE-RESTARTED":
        told.append(_since_failure(scene, nodes[cause.root.nodes[0]], copies.name))
    away = [node for node in cause.root.nodes if node in copies.lost]
    if away:
        told.append(_lost(scene, copies, away))
    return _Parts(shared, list(filter(None, told)))


def _waiting(scene: HealthInput, nodes: list[Node], name: str) -> list[str]:
    """Tell of each node how many samples of a name-space wait for its disk."""
    facts = [(node, scene.facts(node).waiting.get(name)) for node in nodes]
    waiting = [(node.snapshot.name, one.samples) for node, one in facts if one]
    told = [f"{plural(many, 'sample')} in memory only on {who}" for who, many in waiting]
    more = len(told) - MOST_STORES
    return [*told[:MOST_STORES], *([f"others on {plural(more, 'more node')}"] if more > 0 else [])]


def _masters(scene: HealthInput) -> dict[str, list[Node]]:
    """Return the heard masters of each name-space; of one without any, that which only fellows hear."""
    found: dict[str, list[Node]] = {}
    for node in scene.heard:
        for name in scene.facts(node).mastered:
            found.setdefault(name, []).append(node)
    for node in scene.nodes:
        followers = [] if scene.is_heard(node) else scene.hearing(node)
        for view in [view for one in followers for view in one.name_spaces.values()]:
            if view.confirmed and view.master == node.id:
                found.setdefault(view.name, [node])
    return found


def _of_masters(nodes: list[Node], name: str) -> tuple[str, bool]:
    """Tell who is master of a name-space, and whether several of one role are."""
    masters = [node.snapshot for node in nodes]
    if len(masters) < 2:
        return f"{masters[0].name} is master" if masters else NO_MASTER, False
    is_split = len({one.role for one in masters}) < len(masters)
    views = [node.name_spaces[name] for node in nodes]
    is_equal = len({(view.digest, view.count) for view in views}) == 1
    apart = f", their sets {'are equal' if is_equal else 'drift apart'}" if is_split else ""
    return f"{joined([one.name for one in masters])} are masters{apart}", is_split


def _since_failure(scene: HealthInput, node: Node, name: str) -> str:
    """Compare the set of a node that failed and runs again with the one that it had before."""
    view, called = node.name_spaces.get(name), node.snapshot.name
    remarks = scene.model.remarks.present(node.id, scene.now_ns)
    before = next((one.samples.get(name) for one in remarks if one.topic is RemarkSubject.RESTARTED), None)
    if view is None or not view.complete:
        return f"{called} takes its set again"
    if before is None:
        return ""
    fewer = before - view.count
    if fewer <= 0:
        return f"{called} is complete again, nothing lost"
    return f"{called} is complete again with {plural(fewer, 'sample')} fewer than before"


def _lost(scene: HealthInput, copies: Redundancy, away: list[str]) -> str:
    """Tell whether the remaining copies, if any, have all samples of the lost nodes' last snapshots."""
    nodes = scene.model.nodes
    left = [nodes[node].name_spaces[copies.name] for node in copies.held]
    missing = 0
    for one in map(nodes.__getitem__, away):
        best = scene.cache.most(one, copies.name, max((other.count for other in left), default=0))
        missing = max(missing, one.name_spaces[copies.name].count - best)
    if not left:
        return ""
    return f"it had {plural(missing, 'sample')} more" if missing > 0 else "nothing lost"


def _advice(scene: HealthInput, cause: RootCause) -> str:
    """Return advice that fits what is known of the nodes of a lost domain; empty for that of the code."""
    if cause.root.kind.cause != "domain":
        return ""
    dead, others = _lost_names(scene)
    if not dead or others:
        return ""
    reports = {name: scene.reports[name] for name in dead if name in scene.reports}
    coming = [name for name, one in reports.items() if one.is_coming or not one.is_dead]
    rest = [name for name in dead if name not in coming]
    told = []
    if coming:
        whose = "supervisor starts it" if len(coming) == 1 else "supervisors start them"
        told.append(f"Wait for {joined(coming)}: the {whose} again.")
    if rest:
        told.append(f"Start {joined(rest)} again with `ospltool start`.")
    return " ".join([*told, "`ospltool status` tells how each of them ended."])


def _lost_names(scene: HealthInput) -> tuple[list[str], list[str]]:
    """Return the names of the lost nodes that are known to be dead, and of the others."""
    stopped = {one.snapshot.name for one in scene.nodes if scene.presence(one) is Presence.STOPPED}
    stopped |= {name for name, report in scene.reports.items() if report.in_order}
    nodes = [one.snapshot.name for one in scene.nodes if scene.presence(one) is not Presence.STOPPED]
    names = dict.fromkeys((*nodes, *(name for name in scene.awaited if name not in stopped)))
    return [one for one in names if one in scene.ends], [one for one in names if one not in scene.ends]


def _of_lost_domain(scene: HealthInput) -> str:
    """Describe what became of the copies of a lost domain; empty if nothing is known of them."""
    dead, others = _lost_names(scene)
    told = []
    if dead and not others:
        told.append("all copies in memory are lost")
    elif dead:
        keeps = "it keeps its data if it runs" if len(others) == 1 else "they keep their data if they run"
        told.append(f"what only {joined(dead)} had in memory is lost")
        told.append(f"nothing is known of {joined(others)}: {keeps}")
    elif scene.nodes:
        told.append("nothing is known of any node; those that run keep their data")
    names = scene.model.name_space_names() if scene.nodes else ()
    told += _grouped({name: _of_lost_space(scene, name, is_over=not others) for name in names})
    stores = _stores(scene)
    return "; ".join([*told, f"stores: {', '.join(stores)}" if told and stores else ""]).removesuffix("; ")


def _of_lost_space(scene: HealthInput, name: str, *, is_over: bool) -> str:
    """Tell who held a name-space last and on whose disks it is; `is_over`: all of them have died."""
    holders = [one for one in scene.nodes if name in one.name_spaces and one.name_spaces[name].complete]
    lost = [one for one in holders if scene.presence(one) is not Presence.STOPPED]
    stored = [one for one in holders if name not in scene.facts(one).off_disk]
    kept = [one for one in stored if one in lost]
    older = [one for one in stored if one not in lost]
    samples = max((one.name_spaces[name].count for one in lost), default=0)
    called = plural(samples, "sample")
    disks = f"on the disk{'s' if len(kept) > 1 else ''} of {joined(_names(kept))}"
    if not lost:
        said = "no node held it complete"
    elif not is_over:
        said = f"{called} on {joined(_names(lost))}, {disks if kept else 'on no disk'}"
    elif kept:
        missing = min(_unstored(one, name) for one in kept)
        said = f"{missing:,} of {called} lost, the rest {disks}" if missing else f"{called}, {disks}"
    else:
        said = f"{called} {'is' if samples == 1 else 'are'} lost, on no disk"
    if older:
        said += f", an older state on disk at {joined(_names(older))}, stopped before"
    return said


def _unstored(node: Node, name: str) -> int:
    """Return how many samples of the shown groups of a name-space a node had in memory only."""
    groups = [one for one in node.snapshot.groups if one.name_space == name]
    return sum(
        one.samples - one.stored if one.durability in PERSISTENT else one.samples
        for one in groups
        if one.stored < one.samples
    )


def _stores(scene: HealthInput) -> list[str]:
    """Return the store directories of the lost nodes, each with its node; unknown ones are left out."""
    dead, others = _lost_names(scene)
    known = {one.snapshot.name: one.snapshot.store for one in scene.nodes}
    paths = {}
    for name in (*dead, *others):
        report = scene.reports.get(name)
        shown = known[name].path if name in known and known[name].kind != "memory" else ""
        paths[name] = (report.store if report else "") or shown
    return [f"{name} {path}" for name, path in paths.items() if path][:MOST_STORES]


def _names(nodes: list[Node]) -> list[str]:
    return [one.snapshot.name for one in nodes]


def described(scene: HealthInput, cause: RootCause, effect: str) -> Incident:
    """Return the incident of a cause with its `effect`, as it is now."""
    root, code = cause.root, cause.root.kind
    why = root.why or _causes_of_nodes(cause)
    # The advice of a code names the fleet file as the user did.
    check, file = "`ospltool check {}`", shlex.quote(scene.expected.file or "fleet.toml")
    usual = code.next.replace(check.format("fleet.toml"), check.format(file))
    return Incident(
        key=root.key,
        code=code,
        severity=cause.urgency,
        who=root.who,
        what=root.what,
        why=why or root.guess or f"cause unknown; usually: {' '.join(code.causes)}",
        is_cause_known=bool(why),
        effect=effect,
        next=root.next or _advice(scene, cause) or usual,
        since_ns=root.since_ns,
        began_before=root.began_before,
        nodes=cause.nodes,
        subjects=root.subjects or root.nodes,
        name_spaces=cause.name_spaces,
        signs=tuple(dict.fromkeys(sign.what for sign in cause.signs)),
        weight=root.weight,
    )


def _causes_of_nodes(cause: RootCause) -> str:
    """Return the known causes of the losses of nodes that are one loss of the domain; empty without any."""
    if cause.root.kind.cause != "domain":
        return ""
    told: dict[str, list[str]] = {}
    for sign in cause.others:
        if sign.kind.cause == "node" and sign.why and sign.who not in told.setdefault(sign.why, []):
            told[sign.why].append(sign.who)
    return "; ".join(f"{joined(names)}: {why}" for why, names in told.items())
