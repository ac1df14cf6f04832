"""What fellows hear of nodes that the watch does not hear: without a break, or again after one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ospltool.live.nodes import Node

BREAK: Final = 2
"""Times that it takes until a node is silent, after which its next heartbeat is no longer one of many."""


class _Heard(NamedTuple):
    lost_ns: int
    begin_ns: int
    last_ns: int


class Hearings:
    """Since when fellows hear each lost node. It must be told of all of them whenever they are examined."""

    def __init__(self) -> None:
        self._known: dict[str, _Heard] = {}

    def keep(self, nodes: Collection[str]) -> None:
        """Forget all other nodes."""
        self._known = {node: one for node, one in self._known.items() if node in nodes}

    def since_ns(self, node: Node, last_ns: int, run_ns: int) -> int:
        """Return since when fellows hear a node without a break: when the watch lost it, or later.

        A watch that does not know what was before takes it for one without a break.

        Args:
            node: a node that the watch has lost.
            last_ns: newest heartbeat of it that a fellow heard, by the feed's clock; 0 for none.
            run_ns: start of a newer run of the node; 0 if none is known.
        """
        known = self._known.get(node.id)
        is_first = known is None or known.lost_ns != node.heard_ns
        if known is None or is_first:
            known = _Heard(node.heard_ns, node.heard_ns, node.heard_ns)
        is_anew = not is_first and last_ns > known.last_ns + BREAK * node.stale_after_ns
        begin_ns = last_ns if is_anew or known.last_ns < run_ns <= last_ns else known.begin_ns
        self._known[node.id] = _Heard(node.heard_ns, begin_ns, max(known.last_ns, last_ns))
        return begin_ns
