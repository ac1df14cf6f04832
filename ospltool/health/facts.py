"""What a snapshot alone tells, worked out once for each: large ones have thousands of groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from engine.runtime.monitor import FellowView, NodeSnapshot
from ospltool.health.sign import SECOND_NS, Sign
from ospltool.health.signs.data import of_capture, of_readers, of_store

MAX_SKEW_NS: Final = SECOND_NS
"""Clocks that differ by less are equal enough."""

PERSISTENT: Final = frozenset({"PERSISTENT", "Persistent"})


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What one snapshot tells.

    Attributes:
        signs: of the node's own data.
        off_disk: name-spaces with something persistent in memory only.
        met: ids of the fellows with which the node has exchanged what they are; whether they agree is another
            matter.
        refused: the fellows with which it does not communicate, as definitions do not fit together.
        skewed: the fellows whose clock is another one.
    """

    signs: tuple[Sign, ...]
    off_disk: frozenset[str]
    met: frozenset[str]
    refused: tuple[FellowView, ...]
    skewed: tuple[FellowView, ...]


class FactBook:
    """The facts of the newest snapshot of each node."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeSnapshot, Facts]] = {}

    def of(self, snapshot: NodeSnapshot) -> Facts:
        """The facts of a snapshot."""
        known = self._known.get(snapshot.id)
        if known is None or known[0] is not snapshot:
            known = self._known[snapshot.id] = snapshot, _facts(snapshot)
        return known[1]

    def keep(self, nodes: Iterable[str]) -> None:
        """Forget all other nodes."""
        self._known = {node: self._known[node] for node in nodes if node in self._known}


def _facts(snapshot: NodeSnapshot) -> Facts:
    fellows = snapshot.fellows
    return Facts(
        signs=(*of_store(snapshot), *of_capture(snapshot), *of_readers(snapshot)),
        off_disk=frozenset(_off_disk(snapshot)),
        met=frozenset([one.id for one in fellows if one.communication not in ("waiting", "lost")]),
        refused=tuple([one for one in fellows if one.communication == "incompatible"]),
        skewed=tuple([one for one in fellows if not -MAX_SKEW_NS <= one.skew_ns <= MAX_SKEW_NS]),
    )


def _off_disk(snapshot: NodeSnapshot) -> Iterable[str]:
    """The name-spaces of which something persistent is in memory only, as far as groups are shown."""
    if snapshot.store.kind == "memory" or snapshot.store.problem:
        return (view.name for view in snapshot.name_spaces)
    return (
        group.name_space
        for group in snapshot.groups
        if group.stored < group.samples and group.durability in PERSISTENT
    )
