"""The effect of a cause on the data, in words: copies, master and known losses."""

from __future__ import annotations

from collections.abc import Mapping

from ospltool.health.causes import RootCause
from ospltool.health.redundancy import Redundancy
from ospltool.health.scene import Scene
from ospltool.health.sign import joined
from ospltool.live.nodes import Node

MOST_SPACES = 3


def effect(scene: Scene, cause: RootCause, copies: Mapping[str, Redundancy]) -> str:
    """Describe the effect on the name-spaces that the cause touches; without any, the effect of its code."""
    if cause.root.kind.cause == "domain":
        return cause.root.kind.effect
    names = [name for name in _touched(scene, cause) if name in copies]
    if not names:
        return cause.root.kind.effect
    names.sort(key=lambda name: (len(copies[name].held), name))
    told = [_of_space(scene, cause, copies[name]) for name in names[:MOST_SPACES]]
    more = len(names) - MOST_SPACES
    if more > 0:
        told.append(f"{more:,} more name-space{'s' if more > 1 else ''}")
    return "; ".join(told)


def _touched(scene: Scene, cause: RootCause) -> list[str]:
    named = set(cause.name_spaces)
    if cause.root.kind.cause in ("node", "store", "stuck"):
        for node in cause.root.nodes:
            known = scene.model.nodes.get(node)
            named.update(known.name_spaces if known else ())
        if cause.root.code == "DUL-NODE-ABSENT":
            named.update(one.name for one in scene.expected.name_spaces)
    return sorted(named)


def _of_space(scene: Scene, cause: RootCause, copies: Redundancy) -> str:
    masters = [
        node.snapshot.name
        for node in scene.model.ordered_nodes()
        if scene.is_heard(node) and scene.model.is_master(node, copies.name, scene.now_ns)
    ]
    told = [copies.text]
    told.append(
        f"{joined(masters)} {'is master' if len(masters) == 1 else 'are masters'}" if masters else "no master"
    )
    away = [node for node in cause.root.nodes if node in copies.lost]
    if away:
        told.append(_lost(scene, copies, away))
    return f"{copies.name}: {', '.join(told)}"


def _lost(scene: Scene, copies: Redundancy, away: list[str]) -> str:
    """Tell whether the remaining copies have all samples of the lost nodes' last snapshots."""
    left = [_node(scene, node).name_spaces[copies.name] for node in copies.held]
    missing = 0
    for node in away:
        view = _node(scene, node).name_spaces[copies.name]
        best = max((other.count for other in left), default=0)
        missing = max(missing, view.count - best)
    if not left:
        return "no copy in reach"
    return f"{missing:,} sample{'s' if missing > 1 else ''} lost with it" if missing > 0 else "nothing lost"


def _node(scene: Scene, node: str) -> Node:
    return scene.model.nodes[node]
