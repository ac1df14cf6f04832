"""Late-joining readers: exactly one node serves each of them, and all nodes know which.

Deployment guide 5.4.7. A complete node on the reader's host serves it, or else any complete node; the master
goes first, then the order of election. Nodes announce their claims, keep all claims while the reader lives,
and pass them to nodes that join later, so that no reader is served twice. If a node is lost, its unfinished
claims are open again; finished ones pass to another node, which then delivers what merges bring.

A node on the reader's host misses the samples that the reader misses; other nodes cannot know of them. So the
claim of a node on the reader's host wins, and such a node takes over readers that others have served.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from engine.core.messages import Deliveries, Delivery, Place, ReaderKey
from engine.core.untrusted import Newest

ServerFor: TypeAlias = Callable[[ReaderKey, frozenset[str]], str | None]
HostsOf: TypeAlias = Callable[[str], frozenset[str]]

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
"""The pause after a failed delivery doubles from the first to the longest.

A process that is starting may need the first moments; one that stands still for good must not cost a whole
set each second.
"""
# Chosen. One that is forgotten and comes back is served again: it costs a delivery and loses nothing.
MAX_FORMER: Final = 10_000
"""Served readers remembered after they went away, in case they were only out of reach."""
# Chosen. Longer keeps instances ALIVE here for readers that have them from the other node.
HANDED_OVER_S: Final = 5.0
"""Seconds for which delivered samples stay after another node, perhaps slow, has taken the reader over."""
# Chosen: longer delays late joiners; shorter, and two nodes deliver the same set to one reader.
SETTLED_S: Final = 0.5
"""Seconds for which a node that has become complete beside others waits for their claims."""
# Chosen: a hundred claims are one message of some kilobytes.
FEW: Final = 100
"""Claims up to which each change is told at once."""
# Several times the expiry of a heartbeat and of a lease: by then all know who is lost.
CAME_S: Final = 30.0
"""Seconds for which a reader that came to a served process counts as unserved if the node in charge is lost.

The others learn neither of the loss at once, nor whether that node has served the reader.
"""
# Chosen: with 1,000 claims, one message each half second.
CLAIM_S: Final = 0.0005
"""Pause between two messages on claims for each claim, because each message has all of them."""
NOBODY: Final = ""
"""Node of a claim whose node is lost."""
_NO_PAUSE: Final = (None, FIRST_PAUSE_S)


class Server(msgspec.Struct, frozen=True):
    """A node that has the complete set of the reader's name-space, or the part that its host wants."""

    node: str
    hosts: frozenset[str]
    is_master: bool
    priority: int
    has_part: bool = False


def choose_server(servers: list[Server], hosts: frozenset[str], in_charge: str | None = None) -> str | None:
    """Choose the node that serves a reader; None while there is none.

    Args:
        servers: complete nodes, and Lazy nodes with the part that their host wants.
        hosts: unicast addresses of the reader's host.
        in_charge: the node in charge of other readers of the topic in the reader's process, which goes first:
            what two nodes deliver there, the readers of both get twice.
    """
    local = [server for server in servers if server.hosts & hosts]
    pool = local or [server for server in servers if not server.has_part]
    best = max(
        pool,
        key=lambda server: (
            not server.has_part,
            server.node == in_charge,
            server.is_master,
            server.priority,
            server.node,
        ),
        default=None,
    )
    return best.node if best else None


class ReaderTable:
    """The living durable readers, and the nodes that serve them.

    Args:
        node: this node.
        hosts_of: returns the addresses of a node's host, none for an unknown node.
    """

    def __init__(self, node: str, hosts_of: HostsOf = lambda _: frozenset()) -> None:
        self._node = node
        self._hosts_of = hosts_of
        self._hosts: dict[ReaderKey, frozenset[str]] = {}
        self._places: dict[Place, set[ReaderKey]] = {}
        self._claims: dict[ReaderKey, Delivery] = {}
        self._former: Newest[ReaderKey, Delivery] = Newest(MAX_FORMER)
        self._again: set[ReaderKey] = set()
        self._came: dict[ReaderKey, float] = {}
        self._begun: Newest[ReaderKey, None] = Newest(MAX_FORMER)
        self._handed_over: dict[ReaderKey, float | None] = {}
        self._pauses: dict[ReaderKey, tuple[float | None, float]] = {}
        self._settles: dict[str, float] = {}
        self._serial = 0
        self.tells_from_s = 0.0
        """When the next message on claims may be sent."""

    def seen(self, reader: ReaderKey, hosts: frozenset[str], not_before_s: float | None) -> bool:
        """Note a reader that appeared; False if its process has one of the kind already.

        A process that returns from a network cut counts as served if it was served before. `not_before_s` is
        set if fellows that are coming back may know who serves the reader: it waits for them until then.
        `hosts` are the unicast addresses of its host.
        """
        known = reader in self._hosts
        self._hosts[reader] = hosts
        self._places.setdefault(reader.place, set()).add(reader)
        former = self._former.pop(reader, None)
        if former is not None and reader not in self._claims:
            self._claims[reader] = former
        if not known and not_before_s is not None:
            self._pauses[reader] = (not_before_s, FIRST_PAUSE_S)
        return not known

    def gone(self, reader: ReaderKey) -> None:
        """Forget the last reader of its kind in a process, which may only be out of reach."""
        self._hosts.pop(reader, None)
        others = self._places.get(reader.place, set())
        others.discard(reader)
        if not others:
            self._places.pop(reader.place, None)
        self._pauses.pop(reader, None)
        self._again.discard(reader)
        self._came.pop(reader, None)
        self._handed_over.pop(reader, None)
        claim = self._claims.pop(reader, None)
        if claim is not None and not claim.done:
            self._note_begun(reader)
        elif claim is not None:
            # It was served; if it comes back, a node that never lost it is in charge of it.
            self._former[reader] = Delivery(reader, NOBODY, done=True)

    def take_claims(self, deliveries: Deliveries, sender: str) -> bool:
        """Take a fellow's claims; True if that changed the claims here.

        A finished claim beats a running one, then a node on the reader's host beats others, then the higher
        node id wins. A claim counts only from the node that makes it, which alone knows when it gives up.
        Other nodes only prove that a reader has been served, not which node is in charge of it.
        """
        told = {claim.reader for claim in deliveries.deliveries}
        claimed = {claim.reader for claim in deliveries.deliveries if claim.node == sender}
        changed = False
        for reader, claim in list(self._claims.items()):
            if claim.node == sender and claim.done and reader not in claimed:
                self._claims[reader] = Delivery(reader, NOBODY, done=True)
                changed = True
            elif claim.node == sender and not claim.done and reader not in told:
                del self._claims[reader]
                changed = True
        for claim in deliveries.deliveries:
            if claim.node != sender:
                if not claim.done:
                    continue
                claim = Delivery(claim.reader, NOBODY, done=True)
            known = self._claims.get(claim.reader)
            if known is None or self._strength(claim) > self._strength(known):
                if known is not None and known.node == self._node:
                    self._handed_over[claim.reader] = None
                self._claims[claim.reader] = claim
                changed = True
        return changed

    def _strength(self, claim: Delivery) -> tuple[bool, bool, str]:
        return claim.done, self._is_local(claim), claim.node

    def _is_local(self, claim: Delivery) -> bool:
        hosts = self._hosts.get(claim.reader)
        return hosts is not None and claim.node != NOBODY and not self._hosts_of(claim.node).isdisjoint(hosts)

    def take_handed_over(self, now: float) -> list[ReaderKey]:
        """Return the readers that another node took over from this one `HANDED_OVER_S` ago."""
        if not self._handed_over:
            return []
        for reader, due_s in self._handed_over.items():
            if due_s is None:
                self._handed_over[reader] = now + HANDED_OVER_S
        due = [reader for reader, due_s in self._handed_over.items() if due_s is not None and now >= due_s]
        for reader in due:
            del self._handed_over[reader]
        claims = [(reader, self._claims.get(reader)) for reader in due]
        return [reader for reader, claim in claims if claim is None or claim.node != self._node]

    def lost(self, node: str) -> None:
        """Open the unfinished claims of a lost node again, and free its finished ones."""
        for reader, claim in list(self._claims.items()):
            if claim.node == node and claim.done:
                self._claims[reader] = Delivery(reader, NOBODY, done=True)
                if reader in self._came:
                    self._again.add(reader)
            elif claim.node == node:
                del self._claims[reader]
                self._note_begun(reader)

    def _note_begun(self, reader: ReaderKey) -> None:
        self._begun[reader] = None

    def is_begun(self, reader: ReaderKey) -> bool:
        """Tell whether a delivery has begun that broke off because its node, or the process, was lost."""
        return reader in self._begun

    def settle(self, name_space: str, until_s: float) -> None:
        """Claim no reader of a name-space before that time: others may be claiming it."""
        self._settles[name_space] = until_s

    def open(self, server_for: ServerFor, now: float) -> list[ReaderKey]:
        """Claim and return the readers that this node should serve now."""
        if not (self._hosts or self._settles or self._pauses):
            return []
        self._settles = {name: until_s for name, until_s in self._settles.items() if now < until_s}
        self._came = {reader: until_s for reader, until_s in self._came.items() if now < until_s}
        for reader, (when, pause) in self._pauses.items():
            if when is not None and now >= when:
                self._pauses[reader] = (None, pause)
        ours = [
            reader
            # Each node goes through the readers in the same order, and a simulated run is the same each
            # time.
            for reader, hosts in sorted(self._hosts.items(), key=operator.itemgetter(0))
            if self._pauses.get(reader, _NO_PAUSE)[0] is None
            and reader.name_space not in self._settles
            and (
                self._is_due_again(reader)
                if reader in self._claims
                else server_for(reader, hosts) == self._node
            )
        ]
        for reader in ours:
            self._again.discard(reader)
            claim = self._claims.setdefault(reader, Delivery(reader, self._node, done=False))
            assert claim.node == self._node, "two nodes would serve one reader"
        return ours

    def _is_due_again(self, reader: ReaderKey) -> bool:
        return reader in self._again and self._claims[reader].node == self._node

    def take_over(self, server_for: ServerFor) -> list[ReaderKey]:
        """Take charge of served readers whose node is lost, or is not on their host as this node is.

        A reader that came back together with fellows that this node does not hear yet waits for them.
        """
        ours = [
            reader
            for reader, claim in self._claims.items()
            if (claim.node == NOBODY or self._is_better(claim))
            and reader in self._hosts
            and self._pauses.get(reader, _NO_PAUSE)[0] is None
            and server_for(reader, self._hosts[reader]) == self._node
        ]
        for reader in ours:
            self._claims[reader] = Delivery(reader, self._node, done=True)
        return ours

    def _is_better(self, claim: Delivery) -> bool:
        """Whether this node is on the reader's host, and the node that served it is not."""
        ours = Delivery(claim.reader, self._node, done=True)
        return claim.done and claim.node != self._node and self._is_local(ours) and not self._is_local(claim)

    def node_at(self, place: Place) -> str | None:
        """Return the node in charge of a reader of a place; None without one."""
        claims = map(self._claims.get, sorted(self._places.get(place, ())))
        return next((claim.node for claim in claims if claim is not None and claim.node != NOBODY), None)

    def in_charge_of(self, name_space: str) -> list[ReaderKey]:
        """Return the readers of a name-space that this node serves or has taken charge of."""
        return [
            reader
            for reader, claim in sorted(self._claims.items())
            if claim.node == self._node and reader.name_space == name_space
        ]

    def serve_again(self, reader: ReaderKey, now: float) -> None:
        """Deliver everything again, after a pause, to a reader of this node that missed samples.

        Its claim stays finished for other nodes; otherwise their claims would mark it as served.
        """
        claim = self._claims.get(reader)
        if claim and claim.node == self._node:
            self._again.add(reader)
            self._pause(reader, now)

    def joined(self, reader: ReaderKey, now: float) -> None:
        """Serve a process again that has another reader of a kind that has been served.

        The node in charge does so; if there is none, one is chosen before the pause ends. If the node in
        charge is lost soon after, it may not have done so, and its successor does.
        """
        claim = self._claims.get(reader)
        if claim and claim.done and claim.node in (self._node, NOBODY):
            self._again.add(reader)
            self._pause(reader, now)
        elif claim and claim.done:
            self._came[reader] = now + CAME_S

    def done(self, reader: ReaderKey) -> None:
        """Note that the reader's process has acknowledged the whole set."""
        self._begun.pop(reader, None)
        if reader in self._hosts:
            self._claims[reader] = Delivery(reader, self._node, done=True)
            self._pauses.pop(reader, None)

    def failed(self, reader: ReaderKey, now: float) -> None:
        """Open the claim of a failed delivery again, for this node after a pause."""
        claim = self._claims.get(reader)
        if claim and claim.node == self._node:
            if claim.done:
                self._again.add(reader)
            else:
                del self._claims[reader]
            self._pause(reader, now)

    def _pause(self, reader: ReaderKey, now: float) -> None:
        pause = self._pauses.get(reader, _NO_PAUSE)[1]
        self._pauses[reader] = (now + pause, min(LONGEST_PAUSE_S, 2 * pause))

    def next_retry(self) -> float | None:
        """Return when readers may be claimed, a failed delivery is due again, or a reader is handed over."""
        if not (self._pauses or self._handed_over or self._settles):
            return None
        dues = [when for when, _ in self._pauses.values()] + list(self._handed_over.values())
        dues += self._settles.values()
        return min((when for when in dues if when is not None), default=None)

    def message(self, incarnation: int, now: float, life: int = 0) -> Deliveries:
        """Return all claims on living readers, for the fellows.

        Args:
            incarnation: number of this node's run.
            now: monotonic time, seconds.
            life: random number of the run.
        """
        self._serial += 1
        self.tells_from_s = now + CLAIM_S * len(self._claims) if len(self._claims) > FEW else now
        claims = tuple(self._claims[reader] for reader in sorted(self._claims))
        return Deliveries(incarnation, self._serial, claims, life)
