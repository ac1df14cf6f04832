"""The input of the search for signs: the live model at one moment, and what the fleet file expects."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Final

from engine.runtime.monitor import NameSpaceView
from ospltool.health.snapshot_facts import FactBook, SnapshotFacts
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node, Presence


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedSpace:
    """Wanted number of nodes with a complete copy of a name-space, and of those on disk; 0 if unspecified."""

    name: str
    copies: int = 0
    on_disk: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Expectation:
    """Expected contents of one domain. `nodes` are the nodes' own names."""

    nodes: tuple[str, ...] = ()
    name_spaces: tuple[ExpectedSpace, ...] = ()

    def space(self, name: str) -> ExpectedSpace:
        """Return the expectation for a name-space; an empty one if the fleet file does not name it."""
        return next((one for one in self.name_spaces if one.name == name), ExpectedSpace(name))


NOTHING: Final = Expectation()


STEP: Final = 40
"""Nodes that are examined at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """What is known on this machine about a node."""

    text: str
    """Report of its supervisor, or of its run directory; empty for nothing unusual."""
    in_order: bool = False
    """Whether the node ended in order."""
    is_starting: bool = False
    """Whether it is about to start."""
    next: str = ""
    """Advice that fits the report; empty for that of the code."""


class Scene:
    """The system at one moment.

    Args:
        model: the system.
        now_ns: the moment, by the clock of the feed.
        expected: nodes and copies that should exist.
        words: reports of this machine's supervisors by node name.
        facts: cache of the facts from snapshots.

    Attributes:
        nodes: all nodes in the order of the model, without gone ones whose name a present node has.
        heard: nodes among them that are heard.
    """

    def __init__(
        self,
        model: SystemModel,
        now_ns: int,
        expected: Expectation = NOTHING,
        words: Mapping[str, Word] | None = None,
        facts: FactBook | None = None,
    ) -> None:
        self.model = model
        self.now_ns = now_ns
        self.expected = expected
        self.words = words or {}
        self._facts = facts or FactBook()
        ordered = model.ordered_nodes()
        there = {(node.snapshot.name, node.snapshot.domain_id) for node in ordered if not node.gone_ns}
        self.nodes = [
            node
            for node in ordered
            if not node.gone_ns or (node.snapshot.name, node.snapshot.domain_id) not in there
        ]
        self._presence = {node.id: node.presence(now_ns) for node in ordered}
        self.heard = [node for node in self.nodes if self.is_heard(node)]

    def presence(self, node: Node) -> Presence:
        """Return whether the node is heard, silent, stopped or gone."""
        return self._presence[node.id]

    def is_heard(self, node: Node) -> bool:
        """Return whether the node is heard."""
        return self._presence[node.id] is Presence.HEARD

    @functools.cached_property
    def unusual(self) -> Mapping[str, list[tuple[Node, NameSpaceView]]]:
        """Views of heard nodes that are not complete, have no master, or come from parts; by name-space."""
        found: dict[str, list[tuple[Node, NameSpaceView]]] = {}
        for node in self.heard:
            for name, view in self.facts(node).unusual.items():
                found.setdefault(name, []).append((node, view))
        return found

    def facts(self, node: Node) -> SnapshotFacts:
        """Return the facts from the node's own snapshot."""
        return self._facts.of(node.snapshot)

    def names(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of nodes, in the order of the model."""
        wanted = set(nodes)
        return tuple(one.snapshot.name for one in self.model.ordered_nodes() if one.id in wanted)
