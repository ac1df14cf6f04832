"""Facts from a single snapshot, computed once for each: large ones have thousands of groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from engine.runtime.monitor import FellowView, NodeSnapshot
from ospltool.health.sign import SECOND_NS, Sign
from ospltool.health.signs.of_snapshot import of_capture, of_readers, of_store

MAX_SKEW_NS: Final = SECOND_NS
"""Tolerated difference between two clocks."""

PERSISTENT: Final = frozenset({"PERSISTENT", "Persistent"})


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Facts from one snapshot.

    Attributes:
        signs: signs about the node's own data.
        off_disk: name-spaces with persistent samples in memory only.
        met: ids of the fellows that have introduced themselves, compatible or not.
        refused: fellows with incompatible definitions.
        skewed: fellows whose clock differs by more than MAX_SKEW_NS.
    """

    signs: tuple[Sign, ...]
    off_disk: frozenset[str]
    met: frozenset[str]
    refused: tuple[FellowView, ...]
    skewed: tuple[FellowView, ...]


class FactBook:
    """Facts from the newest snapshot of each node."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeSnapshot, SnapshotFacts]] = {}

    def of(self, snapshot: NodeSnapshot) -> SnapshotFacts:
        """Return the facts from a snapshot."""
        known = self._known.get(snapshot.id)
        if known is None or known[0] is not snapshot:
            known = self._known[snapshot.id] = snapshot, _facts(snapshot)
        return known[1]

    def keep(self, nodes: Iterable[str]) -> None:
        """Forget all other nodes."""
        self._known = {node: self._known[node] for node in nodes if node in self._known}


def _facts(snapshot: NodeSnapshot) -> SnapshotFacts:
    fellows = snapshot.fellows
    return SnapshotFacts(
        signs=(*of_store(snapshot), *of_capture(snapshot), *of_readers(snapshot)),
        off_disk=frozenset(_off_disk(snapshot)),
        met=frozenset([one.id for one in fellows if one.communication not in ("waiting", "lost")]),
        refused=tuple([one for one in fellows if one.communication == "incompatible"]),
        skewed=tuple([one for one in fellows if not -MAX_SKEW_NS <= one.skew_ns <= MAX_SKEW_NS]),
    )


def _off_disk(snapshot: NodeSnapshot) -> Iterable[str]:
    """Yield the name-spaces with persistent samples in memory only, judged by the shown groups."""
    if snapshot.store.kind == "memory" or snapshot.store.problem:
        return (view.name for view in snapshot.name_spaces)
    return (
        group.name_space
        for group in snapshot.groups
        if group.stored < group.samples and group.durability in PERSISTENT
    )
