"""Signs about the data of nodes: groups without a keeper, and lost samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.runtime.monitor import UnkeptView
from ospltool.health.scene import Scene
from ospltool.health.sign import SECOND_NS, Sign, joined
from ospltool.live.nodes import Node

AWAITED: Final = "type-awaited"
LOOK_UP_NS: Final = 10 * SECOND_NS
"""A type whose look-up takes longer counts as unknown."""


def of_data(scene: Scene) -> Iterator[Sign]:
    """Yield the signs about data on nodes that are heard."""
    yield from _unkept(scene)
    for node in scene.heard:
        yield from scene.facts(node).signs
        yield from _lost(scene, node)


def _unkept(scene: Scene) -> Iterator[Sign]:
    """Yield a sign for each group and reason for which nodes do not keep durable writers."""
    found: dict[tuple[str, str, str], tuple[list[UnkeptView], list[str]]] = {}
    for node in scene.heard:
        for view in node.snapshot.unkept:
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
        )


def _lost(scene: Scene, node: Node) -> Iterator[Sign]:
    lost, since_ns = scene.model.losses.of(node.snapshot)
    if lost:
        name = node.snapshot.name
        yield Sign(
            "DUL-CAPTURE-LOSS", name, f"{name} lost {lost:,} samples", since_ns, (node.id,), weight=lost
        )
