"""Facts from a single snapshot, computed once for each: large ones have thousands of groups."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Final

from engine.core.name_spaces import MAX_PRIORITY
from engine.runtime.monitor import FellowView, NameSpaceView, NodeSnapshot
from ospltool.health.sign import SECOND_NS, Sign
from ospltool.health.signs.of_snapshot import of_capture, of_readers, of_store

MAX_SKEW_NS: Final = SECOND_NS
"""Tolerated difference between two clocks."""

PERSISTENT: Final = frozenset({"PERSISTENT", "Persistent"})
_COMMUNICATION: Final = operator.attrgetter("communication")
_SKEW: Final = operator.attrgetter("skew_ns")


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Facts from one snapshot.

    Attributes:
        signs: signs about the node's own data.
        off_disk: name-spaces with persistent samples in memory only.
        met: ids of the fellows that have introduced themselves, compatible or not.
        refused: fellows with incompatible definitions.
        skewed: fellows whose clock differs by more than MAX_SKEW_NS.
        unusual: name-spaces that are not complete, have no master, or come from parts; by name.
        legacy: name-spaces with masterPriority 255, the legacy rule.
        is_less_than_whole: whether a set may permanently lack samples.
    """

    signs: tuple[Sign, ...]
    off_disk: frozenset[str]
    met: frozenset[str]
    refused: tuple[FellowView, ...]
    skewed: tuple[FellowView, ...]
    unusual: Mapping[str, NameSpaceView]
    legacy: frozenset[str]
    is_less_than_whole: bool


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
    fellows, spaces = snapshot.fellows, snapshot.name_spaces
    unusual = {view.name: view for view in spaces if not (view.complete and view.master) or view.from_parts}
    legacy = [view.name for view in spaces if view.master_priority == MAX_PRIORITY and view.aligner]
    return SnapshotFacts(
        signs=(*of_store(snapshot), *of_capture(snapshot), *of_readers(snapshot)),
        off_disk=frozenset(_off_disk(snapshot)),
        met=frozenset([one.id for one in fellows if one.communication not in ("waiting", "lost")]),
        refused=_refused(fellows),
        skewed=_skewed(fellows),
        unusual=unusual,
        legacy=frozenset(legacy),
        is_less_than_whole=any(view.is_less_than_whole for view in unusual.values()),
    )


def _refused(fellows: tuple[FellowView, ...]) -> tuple[FellowView, ...]:
    if "incompatible" not in map(_COMMUNICATION, fellows):  # nearly always
        return ()
    return tuple([one for one in fellows if one.communication == "incompatible"])


def _skewed(fellows: tuple[FellowView, ...]) -> tuple[FellowView, ...]:
    skews = set(map(_SKEW, fellows))
    if not skews or -MAX_SKEW_NS <= min(skews) <= max(skews) <= MAX_SKEW_NS:
        return ()
    return tuple([one for one in fellows if not -MAX_SKEW_NS <= one.skew_ns <= MAX_SKEW_NS])


def _off_disk(snapshot: NodeSnapshot) -> Iterable[str]:
    """Yield the name-spaces with persistent samples in memory only, judged by the shown groups."""
    if snapshot.store.kind == "memory" or snapshot.store.problem:
        return (view.name for view in snapshot.name_spaces)
    return (
        group.name_space
        for group in snapshot.groups
        if group.stored < group.samples and group.durability in PERSISTENT
    )
