"""Estimates how far the clocks of nodes differ, from the messages that the nodes sent each other.

Trace lines do not number messages, so it is unknown which receipt belongs to which sending. All pairs of a
sending and a receipt of one kind are tried. The times of those that belong together have nearly the same
difference, while those of the other pairs are spread: the densest cluster of differences is taken.

The least difference in each direction is that of the fastest message. As in NTP, the clocks differ by half of
the difference between the two directions, with an error of at most half of their sum, the round trip.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Final

from ospltool.trace.meaning.names import Names
from ospltool.trace.reading.record import TimeBase, TraceRecord

# Enough for a median; pairs are searched among them, and the work grows with their product.
MOST_TIMES: Final = 400
"""Most times of one kind of message between two nodes; later ones are ignored."""

# Chosen above the delays of messages within a local network.
CLUSTER_NS: Final = 20_000_000

# Two may agree by chance; with more, short traces have no skew.
LEAST_PAIRS: Final = 3

_SENT: Final = {
    "align.request": ("request", "group"),
    "align.sent": ("link", "group", "samples"),
    "align.sending": ("set", "group"),
    "group.requested": ("groups",),
    "namespace.requesting": ("namespaces-request",),
    "fellow.capabilities-sent": ("capabilities",),
}
"""By event of sending: the kind of message, and the fields that its receipt shares."""

_RECEIVED: Final = {
    "align.request-received": ("request", "group"),
    "align.link": ("link", "group", "samples"),
    "align.completed": ("set", "group"),
    "group.request-received": ("groups",),
    "namespace.request-received": ("namespaces-request",),
    "fellow.capabilities": ("capabilities",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Skew:
    """The correction of a node's clock.

    Attributes:
        node: name of the node.
        add_ns: nanoseconds to add to its times, to agree with the clock of the reference; may be negative.
        uncertainty_ns: bound of the error of `add_ns`, 0 for the reference itself; None if no messages
            connect the node with the reference: then `add_ns` is 0.
        pairs: number of messages in both directions that the estimate is based on.
    """

    node: str
    add_ns: int
    uncertainty_ns: int | None
    pairs: int


MessageKey = tuple[str, ...]


class SkewEstimator:
    """The times at which messages were sent and received, for an estimate.

    Args:
        names: the nodes by address; by default they are learned from the records.
        least_pairs: least size of a cluster that is not chance.
        cluster_ns: width of a cluster of differences, more than the usual delay of a message.
    """

    def __init__(
        self, names: Names | None = None, least_pairs: int = LEAST_PAIRS, cluster_ns: int = CLUSTER_NS
    ) -> None:
        self.nodes: set[str] = set()
        self._names = names or Names()
        self._least_pairs, self._cluster_ns = least_pairs, cluster_ns
        self._sent: dict[MessageKey, list[int]] = {}
        self._received: dict[MessageKey, list[int]] = {}

    def add(self, record: TraceRecord) -> None:
        """Take in a record of any node, in the order of its file."""
        if record.time_ns is None or record.clock is not TimeBase.ABSOLUTE:
            return
        self.nodes.add(record.node)
        self._names.learn(record)
        event, fields = record.event, record.fields
        own = self._names.own.get(record.node)
        fellows = fields.get("fellow") or fields.get("fellows")
        if own is None or fellows is None:
            return
        if event in _SENT:
            kind, *names = _SENT[event]
            for fellow in fellows.split(","):
                key = (kind, own, fellow.strip(), *(fields.get(name, "") for name in names))
                self.sent(key, record.time_ns)
        elif event in _RECEIVED:
            kind, *names = _RECEIVED[event]
            key = (kind, fellows, own, *(fields.get(name, "") for name in names))
            self.received(key, record.time_ns)

    def sent(self, key: MessageKey, time_ns: int) -> None:
        """Note when a message was sent: its kind, the addresses of sender and receiver, and other fields."""
        _keep(self._sent.setdefault(key, []), time_ns)

    def received(self, key: MessageKey, time_ns: int) -> None:
        """Note when a message was received; it has the `key` of its sending."""
        _keep(self._received.setdefault(key, []), time_ns)

    def estimate(self) -> list[Skew]:
        """Estimate the correction of every node against a reference, the first node by name."""
        nodes = sorted(self.nodes)
        if not nodes:
            return []
        fastest = self._fastest()
        known = {nodes[0]: Skew(nodes[0], 0, 0, 0)}
        queue = collections.deque(nodes[:1])
        while queue:
            one = queue.popleft()
            for other in nodes:
                there, back = fastest.get((one, other)), fastest.get((other, one))
                if other in known or there is None or back is None:
                    continue
                # there = delay + skew, back = delay - skew, where skew is how much `other` is ahead
                ahead, half = (there[0] - back[0]) // 2, abs(there[0] + back[0]) // 2
                base = known[one]
                uncertainty = (base.uncertainty_ns or 0) + half
                known[other] = Skew(other, base.add_ns - ahead, uncertainty, there[1] + back[1])
                queue.append(other)
        return [known.get(node, Skew(node, 0, None, 0)) for node in nodes]

    def _fastest(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the least difference of the right pairs and their number, by sender and receiver."""
        node_of = self._names.node_of
        differences: dict[tuple[str, str], list[int]] = {}
        for key, received in self._received.items():
            sent = self._sent.get(key)
            sender, receiver = node_of.get(key[1]), node_of.get(key[2])
            if sent and sender is not None and receiver is not None and sender != receiver:
                differences.setdefault((sender, receiver), []).extend(
                    later - earlier for later in received for earlier in sent
                )
        clusters = {pair: _densest(sorted(values), self._cluster_ns) for pair, values in differences.items()}
        return {pair: cluster for pair, cluster in clusters.items() if cluster[1] >= self._least_pairs}


def _keep(times: list[int], time_ns: int) -> None:
    if len(times) < MOST_TIMES:
        times.append(time_ns)


def _densest(values: list[int], width_ns: int) -> tuple[int, int]:
    """Return the first value of the densest cluster of sorted values, and its size."""
    best, size, first = values[0], 0, 0
    for last, value in enumerate(values):
        while value - values[first] > width_ns:
            first += 1
        count = last - first + 1
        if count > size or (count == size and abs(values[first]) < abs(best)):
            best, size = values[first], count
    return best, size
