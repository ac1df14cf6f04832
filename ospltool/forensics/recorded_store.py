"""A recording read as a store: the sets that each node had last, as counts without samples."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from engine.runtime.monitor import PART
from engine.store.interface import DamageLog
from ospltool.stores.describe import Counted, GroupCount, group_code
from ospltool.stores.model import (
    UNKNOWN_DEPTH,
    GroupFacts,
    GroupName,
    SetFacts,
    SetKind,
    StoreFacts,
    StoreFormat,
    shown,
)

if TYPE_CHECKING:
    from engine.runtime.monitor import GroupView, NodeSnapshot


def recorded(name: str) -> tuple[StoreFacts, list[Counted]] | None:
    """Return the sets that the nodes of a recording showed last; None if the file is not a recording."""
    from ospltool.live.model import SystemModel
    from ospltool.live.recording import RecordingFault
    from ospltool.live.replay import ReplayFeed

    path = pathlib.Path(name)
    if not path.is_file():
        return None
    try:
        feed = ReplayFeed(path, paused=True)
    # Not a recording, or none that can be read: then the file is no store of it.
    except RecordingFault:
        return None
    try:
        feed.seek(feed.end_ns)
        model = SystemModel()
        while True:
            model.apply(feed.poll(), feed.end_ns)
            if feed.now_ns() >= feed.end_ns:
                break
    finally:
        feed.close()
    nodes = [node.snapshot for node in model.ordered_nodes()]
    sets: list[Counted] = []
    for node in nodes:
        sets += _sets(node, len(sets) + 1)
    findings = [
        f"node {node.name} left out {node.groups_left_out} of its groups"
        for node in nodes
        if node.groups_left_out
    ]
    detail = (("nodes", str(len(nodes))), ("moment", shown(feed.end_ns)), ("samples", "none, only counts"))
    facts = StoreFacts(
        name,
        StoreFormat.RECORDING,
        tuple(one.facts for one in sets),
        tuple(findings),
        detail,
        path.stat().st_size,
    )
    return facts, sets


def _sets(node: NodeSnapshot, number: int) -> list[Counted]:
    """Make sets of the name-spaces of a node, numbered from `number` on."""
    found = []
    for space in node.name_spaces:
        groups = tuple(_group(number, view) for view in node.groups if view.name_space == space.name)
        kind = SetKind.CURRENT if space.is_at_rest else SetKind.FILLING
        described = tuple(facts for facts, _ in groups)
        mark = f"node {node.name}, digest {space.digest}"
        is_part = space.phase == PART or space.from_parts
        complete, quality_ns = space.complete and not is_part, space.quality_ns or None
        facts = SetFacts(number, space.name, kind, complete, quality_ns, described, mark, is_part)
        found.append(Counted(facts, groups, DamageLog()))
        number += 1
    return found


def _group(number: int, view: GroupView) -> tuple[GroupFacts, GroupCount]:
    name = GroupName(view.partition, view.topic, view.type_name)
    count = GroupCount(
        number,
        group_code(name),
        view.samples,
        view.instances,
        newest_ns=view.newest_ns,
        payload_bytes=view.bytes,
    )
    return GroupFacts(name, history_depth=UNKNOWN_DEPTH, durability=view.durability), count
