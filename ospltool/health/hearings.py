"""What fellows hear of nodes that the watch does not hear: nothing, all the time, or again after a break."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ospltool.health.codes import SECOND_NS
from ospltool.live.nodes import Node

BREAK: Final = 2
"""Times that it takes until a node is silent, after which its next heartbeat is no longer one of many."""

ANSWER_NS: Final = SECOND_NS // 2
"""What a snapshot of a fellow may be late when it is to tell of a node that the watch has lost."""


def told_ns(teller: Node, node_id: str) -> int:
    """Return when a fellow heard a node last, by the feed's clock; 0 if it tells of no heartbeat.

    Differences of clocks cancel out: the teller's clock measures the age of the heartbeat.
    """
    last_ns = teller.fellows.heartbeat_ns(node_id)
    return teller.heard_ns - max(0, teller.snapshot.time_ns - last_ns) if last_ns else 0


def has_heard_since(teller: Node, node: Node) -> bool:
    """Return whether a fellow heard a node when it was silent for the watch already."""
    return told_ns(teller, node.id) > node.heard_ns + node.stale_after_ns


def fellows_of(node: Node, heard: Iterable[Node]) -> list[Node]:
    """Return the heard nodes that the node had as fellows."""
    met = {one.id for one in node.snapshot.fellows if one.communication == "approved"}
    return [one for one in heard if one.id in met]


def is_told(node: Node, heard: Iterable[Node], now_ns: int) -> bool:
    """Return whether fellows have told if they hear a node that left for the watch, or tell nothing in time.

    One that hears it decides; else all must miss it. What they told before the loss says nothing of it.
    """
    fellows = fellows_of(node, heard)
    until_ns = max(node.gone_ns, node.heard_ns + node.stale_after_ns) + node.due_ns + ANSWER_NS
    if not fellows or now_ns >= until_ns or any(has_heard_since(one, node) for one in fellows):
        return True
    return all(_does_miss(one, node) for one in fellows)


def _does_miss(teller: Node, node: Node) -> bool:
    """Return whether a fellow has removed the node, or misses it, since this watch heard that last."""
    is_missed = teller.heard_ns - told_ns(teller, node.id) >= max(SECOND_NS, 2 * node.due_ns)
    return teller.heard_ns > node.heard_ns and is_missed


class _Heard(NamedTuple):
    lost_ns: int
    begin_ns: int
    last_ns: int
    before_ns: int


class Hearings:
    """Since when fellows hear each lost node. It must be told of all of them whenever they are examined."""

    def __init__(self) -> None:
        self._known: dict[str, _Heard] = {}
        self._strangers: dict[str, int] = {}

    def keep(self, nodes: Collection[str], names: Collection[str]) -> None:
        """Forget all but these nodes, and of those that this watch never heard all but these names."""
        self._known = {node: one for node, one in self._known.items() if node in nodes}
        self._strangers = {name: ns for name, ns in self._strangers.items() if name in names}

    def note(self, name: str, last_ns: int) -> None:
        """Take in when a fellow heard a node last that this watch never heard."""
        self._strangers[name] = max(last_ns, self._strangers.get(name, 0))

    def last_of(self, name: str) -> int:
        """Return when a fellow heard such a node last, by the feed's clock; 0 if that is not known."""
        return self._strangers.get(name, 0)

    def last_ns(self, node: Node) -> int:
        """Return when this watch or a fellow heard a lost node last, by the feed's clock."""
        known = self._known.get(node.id)
        return known.last_ns if known is not None and known.lost_ns == node.heard_ns else node.heard_ns

    def before_ns(self, node: Node, after_ns: int) -> int:
        """Return when a lost node was heard last before fellows began to hear it again.

        0 if they did not do so after a moment.
        """
        known = self._known.get(node.id)
        if (
            known is None
            or known.lost_ns != node.heard_ns
            or known.begin_ns < max(after_ns, known.lost_ns + 1)
        ):
            return 0
        return known.before_ns

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
            known = _Heard(node.heard_ns, node.heard_ns, node.heard_ns, node.heard_ns)
        is_anew = not is_first and last_ns > known.last_ns + BREAK * node.stale_after_ns
        is_anew = is_anew or known.last_ns < run_ns <= last_ns
        begin_ns, before_ns = (last_ns, known.last_ns) if is_anew else (known.begin_ns, known.before_ns)
        self._known[node.id] = _Heard(node.heard_ns, begin_ns, max(known.last_ns, last_ns), before_ns)
        return begin_ns
