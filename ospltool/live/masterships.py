"""The masters of name-spaces over time, and masters that contradict each other, as nodes report them."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from engine.runtime.monitor import NameSpaceView, NodeSnapshot
from ospltool.live.feed import ReceivedSnapshot
from ospltool.live.nodes import Node

# As a node keeps them (`engine.runtime.past.MAX_MASTERSHIPS`).
MAX_MASTERSHIPS: Final = 50
"""Former masters kept for each name-space and role; the oldest are forgotten."""

# More than a node itself keeps, since they come from several snapshots.
MAX_RUNS: Final = 50
"""Starts kept of each node."""

# A snapshot is sent each second: two may see one moment that far apart.
JITTER_NS: Final = 1_000_000_000
"""Tolerance for one moment seen through several snapshots, which take different times to arrive."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mastership:
    """The beginning of a node's time as master of a name-space for a role."""

    since_ns: int
    """Beginning, by the clock of the feed."""
    name_space: str
    """Name of the name-space."""
    role: str
    """Role of the nodes that follow the master."""
    master: str
    """Id of the master."""
    confirmed: bool
    """Whether a node confirmed it."""
    epoch: str
    """Epoch of the mastership."""
    why: str
    """Reason, in the words of a node."""
    is_exact: bool = False
    """Whether a node reported the beginning; otherwise the mastership began earlier than first heard."""
    is_own: bool = False
    """Whether the master itself reported it."""


class Claim(NamedTuple):
    """A master that a node confirms, and when that was first heard."""

    master: str
    since_ns: int


class Masterships:
    """The masters that nodes reported. `history` has those of each name-space and role, oldest first."""

    def __init__(self) -> None:
        self.history: dict[tuple[str, str], collections.deque[Mastership]] = {}
        self._claims: dict[tuple[str, str], dict[str, Claim]] = {}
        self._said: dict[str, dict[str, tuple[bool, str, str, int, str]]] = {}
        self._starts: dict[str, list[int]] = {}

    def begin_run(self, node_id: str, started_ns: int) -> None:
        """Take in that a node was started: a mastership of it in an earlier run has ended by then."""
        starts = self._starts.setdefault(node_id, [])
        if started_ns and started_ns not in starts:
            bisect.insort(starts, started_ns)
            del starts[:-MAX_RUNS]

    def claims(self, name_space: str, role: str) -> Mapping[str, Claim]:
        """Return the master that each node of the role confirms, by node id."""
        return self._claims.get((name_space, role), {})

    def contested(self, nodes: Mapping[str, Node]) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield (name-space, role, master by node) where present nodes confirm different masters.

        Nodes send snapshots in turns, so while a master changes they seem to contradict each other. Only
        claims count that a node made or repeated since the newest of the masters was first named.
        """
        for (name_space, role), claims in sorted(self._claims.items()):
            if len({claim.master for claim in claims.values()}) < 2:  # nearly always
                continue
            told = {teller: claim for teller, claim in claims.items() if not nodes[teller].gone_ns}
            first_ns: dict[str, int] = {}
            for claim in told.values():
                first_ns[claim.master] = min(claim.since_ns, first_ns.get(claim.master, claim.since_ns))
            if len(first_ns) < 2:
                continue
            newest_ns = max(first_ns.values())
            said = {
                teller: claim.master for teller, claim in told.items() if nodes[teller].heard_ns >= newest_ns
            }
            if len(set(said.values())) > 1:
                yield name_space, role, said

    def note(self, heard: ReceivedSnapshot, *, is_alike: bool = False) -> None:
        """Take in the masters of a snapshot, which are those of the last one if it is alike."""
        snapshot = heard.snapshot
        self.begin_run(snapshot.id, snapshot.started_ns)
        if is_alike:
            return
        before = self._said.setdefault(snapshot.id, {})
        for view in snapshot.name_spaces:
            said = view.confirmed, view.master, view.epoch, view.master_since_ns, snapshot.role
            if before.get(view.name) != said:
                before[view.name] = said
                self._note(snapshot, view, heard.heard_ns)

    def forget(self, node_id: str) -> None:
        """Forget what a node said of present masters; the history stays."""
        self._said.pop(node_id, None)
        for claims in self._claims.values():
            claims.pop(node_id, None)

    def _note(self, snapshot: NodeSnapshot, view: NameSpaceView, heard_ns: int) -> None:
        place = view.name, snapshot.role
        claims = self._claims.setdefault(place, {})
        if not view.confirmed or not view.master:
            claims.pop(snapshot.id, None)
            return
        claim = claims.get(snapshot.id)
        if claim is None or claim.master != view.master:
            claims[snapshot.id] = Claim(view.master, heard_ns)
        told_ns, role = view.master_since_ns, snapshot.role
        since_ns = heard_ns - max(0, snapshot.time_ns - told_ns) if told_ns else heard_ns
        is_own = snapshot.id == view.master
        told = view.name, role, view.master, True, view.epoch, view.why, told_ns > 0, is_own
        self.add(Mastership(since_ns, *told))

    def add(self, found: Mastership) -> None:
        """Keep a mastership in the order of time; a known one can only become exact or earlier.

        The same epoch in another run of the master is another mastership. What the master tells of itself
        counts: others follow it a little later, for reasons of their own.
        """
        place = found.name_space, found.role
        history = self.history.setdefault(place, collections.deque(maxlen=MAX_MASTERSHIPS))
        for index in range(len(history) - 1, -1, -1):
            known = history[index]
            if self._is_same(known, found):
                better = _joined(known, found)
                if better == known:
                    return
                del history[index]
                found = better
                break
        later = [history.pop() for _ in range(len(history)) if history[-1].since_ns > found.since_ns]
        history.append(found)
        history.extend(reversed(later))

    def _is_same(self, known: Mastership, found: Mastership) -> bool:
        """Return whether two are of one master and epoch, and it was not started in between."""
        if (known.master, known.epoch) != (found.master, found.epoch):
            return False
        first_ns, last_ns = sorted((known.since_ns, found.since_ns))
        starts = self._starts.get(known.master, [])
        return bisect.bisect_right(starts, first_ns) == bisect.bisect_right(starts, last_ns)


def _joined(known: Mastership, found: Mastership) -> Mastership:
    """Return the better of two reports of one mastership, each part for itself."""
    why = found.why if found.is_own else known.why
    is_own = known.is_own or found.is_own
    is_sooner = not (known.is_exact and known.since_ns <= found.since_ns + JITTER_NS)
    if found.is_exact and (is_sooner or (found.is_own and not known.is_own)):
        return dataclasses.replace(known, since_ns=found.since_ns, is_exact=True, why=why, is_own=is_own)
    return dataclasses.replace(known, why=why, is_own=is_own)
