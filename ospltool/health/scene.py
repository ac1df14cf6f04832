"""What signs are looked for in: the live model at one moment, and what is expected."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ospltool.health.expectation import NOTHING, Expectation
from ospltool.health.facts import FactBook, Facts
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node, Presence


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """What a supervisor of this machine says of a node, whether it ended in order, or is about to start."""

    text: str
    in_order: bool = False
    is_starting: bool = False


class Scene:
    """One moment.

    Args:
        model: the system.
        now_ns: the moment, by the clock of the feed.
        expected: what there should be.
        words: what supervisors of this machine say, by the name of the node.
        facts: of earlier moments.

    Attributes:
        nodes: those that count, in the order of the model: of several of one name of which not all are there,
            those that are.
        heard: those of them that can be heard.
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
        """Whether the node can be heard, or what became of it."""
        return self._presence[node.id]

    def is_heard(self, node: Node) -> bool:
        """Whether the node can be heard."""
        return self._presence[node.id] is Presence.HEARD

    def facts(self, node: Node) -> Facts:
        """What the node's own snapshot tells."""
        return self._facts.of(node.snapshot)

    def names(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """The names of nodes, in the order of the model."""
        wanted = set(nodes)
        return tuple(one.snapshot.name for one in self.model.ordered_nodes() if one.id in wanted)
