"""Who is master of what, since when, and which masters contradict each other, as nodes tell it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from engine.runtime.monitor import NameSpaceView, NodeSnapshot
from ospltool.live.feed import Heard
from ospltool.live.nodes import Node

MAX_MASTERSHIPS: Final = 50
"""Former masters kept for each name-space and role; the oldest are forgotten."""

JITTER_NS: Final = 1_000_000_000
"""By so much one moment may differ from snapshot to snapshot: they take different times to arrive."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mastership:
    """From when on a node was master of a name-space for a role, and why, in the words of a node.

    `since_ns` is by the clock of the feed. Without `is_exact` no node says since when: then it is when the
    mastership was first heard of, and began earlier.
    """

    since_ns: int
    name_space: str
    role: str
    master: str
    confirmed: bool
    epoch: str
    why: str
    is_exact: bool = False


class Claim(NamedTuple):
    """Which master a node confirms, and since when it was heard to."""

    master: str
    since_ns: int


class Masterships:
    """The masters that nodes told of. `history` has those of each name-space and role, oldest first."""

    def __init__(self) -> None:
        self.history: dict[tuple[str, str], collections.deque[Mastership]] = {}
        self._claims: dict[tuple[str, str], dict[str, Claim]] = {}
        self._said: dict[str, dict[str, tuple[bool, str, str, int, str]]] = {}

    def claims(self, name_space: str, role: str) -> Mapping[str, Claim]:
        """What each node of the role confirms."""
        return self._claims.get((name_space, role), {})

    def contested(self, nodes: Mapping[str, Node]) -> Iterator[tuple[str, str, dict[str, str]]]:
        """(name-space, role, who says which master) where nodes that are there confirm different masters.

        Nodes show themselves in turns, so while a master changes they seem to contradict each other. Only
        what a node has said, or said again, since the newest of the masters was first named counts.
        """
        for (name_space, role), claims in sorted(self._claims.items()):
            if len({claim.master for claim in claims.values()}) < 2:
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

    def note(self, heard: Heard) -> None:
        """Take in what a snapshot says of masters; mostly that is what was said before."""
        snapshot = heard.snapshot
        before = self._said.setdefault(snapshot.id, {})
        for view in snapshot.name_spaces:
            said = view.confirmed, view.master, view.epoch, view.master_since_ns, snapshot.role
            if before.get(view.name) != said:
                before[view.name] = said
                self._note(snapshot, view, heard.heard_ns)

    def _note(self, snapshot: NodeSnapshot, view: NameSpaceView, heard_ns: int) -> None:
        claims = self._claims.setdefault((view.name, snapshot.role), {})
        if not view.confirmed or not view.master:
            claims.pop(snapshot.id, None)
            return
        claim = claims.get(snapshot.id)
        if claim is None or claim.master != view.master:
            claims[snapshot.id] = Claim(view.master, heard_ns)
        told_ns, role = view.master_since_ns, snapshot.role
        since_ns = heard_ns - max(0, snapshot.time_ns - told_ns) if told_ns else heard_ns
        self.add(Mastership(since_ns, view.name, role, view.master, True, view.epoch, view.why, told_ns > 0))

    def add(self, found: Mastership) -> None:
        """Keep a mastership in the order of time; one that is known may only become exact, or earlier."""
        place = found.name_space, found.role
        history = self.history.setdefault(place, collections.deque(maxlen=MAX_MASTERSHIPS))
        for index in range(len(history) - 1, -1, -1):
            known = history[index]
            if (known.master, known.epoch) == (found.master, found.epoch):
                if found.is_exact and not (known.is_exact and known.since_ns <= found.since_ns + JITTER_NS):
                    history[index] = dataclasses.replace(known, since_ns=found.since_ns, is_exact=True)
                return
        later = [history.pop() for _ in range(len(history)) if history[-1].since_ns > found.since_ns]
        history.append(found)
        history.extend(reversed(later))
