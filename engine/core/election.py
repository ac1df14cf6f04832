"""The election of a master: pure functions from known facts to a decision (deployment guide, 5.4.3).

The order of candidates is total. A holder of the set goes first, so that a second injection never replaces
the data of the first. While nobody holds the set, an intact store goes before a damaged one. Then decides the
highest masterPriority, then the best quality (while no candidate holds the set), then the highest id. If all
have the legacy masterPriority 255, this order leaves quality and id.

A master exists by its own word only: a node becomes master when every elector it can talk to has voted for
it in one epoch counter, and others follow once they hear it say so. So no node waits for a master that does
not know that it is one, and an epoch has one master because the master's id is part of it.

- Nodes follow a confirmed master that they hear. Of two, the better one in that order takes a new epoch and
  the other steps down: that ends a split brain.
- If a holder has a strictly higher masterPriority than the master, all vote for it, the master included: a
  planned hand-over. Holders with an equal or lower one never disturb the master.
- A node follows a master that only a fellow hears through that fellow, so that every node of a partly
  connected system has a master.
- Otherwise all vote. Electors are the holders, or all nodes if none holds the set.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from engine.core.messages import DAMAGED, Epoch, Vote

NOBODY: Final = "no node here may be master: each is a non-aligner, has masterPriority 0, or is not Initial"
"""Rule of a decision without candidates."""
NOBODY_REMEDY: Final = (
    "start a node that may be master, or set masterPriority above 0 on an aligner whose alignee is Initial"
)


class Stand(msgspec.Struct, frozen=True):
    """The position of one node in the election for one name-space and role."""

    node: str
    """Id of the node."""
    name: str
    """Human name of the node."""
    may_be_master: bool
    """False for non-aligners, for masterPriority 0, and for a Lazy node while another may be master."""
    priority: int
    """Its masterPriority, 0 to 255."""
    quality_ns: int
    """Newest source time of its stored set, 0 for no set, `DAMAGED` for a damaged set or a part."""
    holder: bool
    """It has held the whole set in this run."""
    discovering: bool
    """It still looks for fellows and has not voted yet."""
    vote: Vote | None
    """Its present proposal."""
    following: Epoch | None
    """Epoch of the master that it follows; its own as master."""
    heard: Collection[str] = ()
    """Ids that it hears."""
    newest: int = 0
    """Highest counter of an epoch or lineage that it knows; a new one is higher."""
    run: int = 0
    """Its incarnation."""
    aligner: bool = True
    """It may give data to others."""

    @property
    def is_master(self) -> bool:
        """Whether it follows itself."""
        return self.following is not None and self.following.node == self.node


class Decision(msgspec.Struct, frozen=True):
    """The result of an election for one node.

    Attributes:
        following: epoch to follow now; None while no master is confirmed.
        vote: proposal to make; None for no proposal.
        via: fellow through which to follow a master that this node does not hear; empty otherwise.
        rule: rule that decided, in words.
        candidates: the candidates that were compared, best first.
    """

    following: Epoch | None
    vote: Vote | None
    via: str
    rule: str
    candidates: tuple[Stand, ...]

    def basis(self) -> str:
        """Return the candidates and their qualifications, for trace and console."""
        return ", ".join(
            f"{c.name or c.node[:8]} (priority {c.priority}, quality "
            f"{'none, damaged or a part' if c.quality_ns == DAMAGED else c.quality_ns}, id {c.node[:8]}"
            f"{', holds the set' if c.holder else ''})"
            for c in self.candidates
        )


def decide(
    own: Stand, peers: Sequence[Stand], gone: frozenset[str] = frozenset(), *, expects_more: bool = False
) -> Decision:
    """Decide for node `own` (5.4.3).

    Args:
        own: this node.
        peers: the nodes that it hears.
        gone: ids of nodes that it lost a short while ago; it follows no master among them.
        expects_more: a fellow has not reported everything yet; this node does not become master before.
    """
    decision = _decide(own, peers, gone, expects_more=expects_more)
    is_leader = decision.following is not None and decision.following.node == own.node
    assert own.may_be_master or own.is_master or not is_leader, "a node leads that may not be master"
    return decision


def _decide(own: Stand, peers: Sequence[Stand], gone: frozenset[str], *, expects_more: bool) -> Decision:
    stands = {stand.node: stand for stand in (own, *peers)}
    # A confirmed master is followed, and never disturbed without reason (5.4.3).
    claims = [stand for stand in stands.values() if stand.is_master]
    if claims:
        return _with_masters(own, stands, claims)
    # None is heard here: perhaps a fellow hears one, in a partly connected system (5.4.1).
    out_of_hearing = _master_out_of_hearing(own, peers, gone)
    if out_of_hearing:
        epoch, via = out_of_hearing
        return Decision(epoch, None, via, "the master is out of hearing; a fellow hears it", ())
    return _election(own, stands, expects_more=expects_more)


def _with_masters(own: Stand, stands: dict[str, Stand], claims: list[Stand]) -> Decision:
    # Of several masters, one leads on: who holds the set, masterPriority, quality while nobody has injected,
    # system id (5.4.3, rules 1 to 3).
    use_quality = not any(stand.holder for stand in claims)
    # Every node must rank alike: the rank ends with the system id, so no two are equal and the order of
    # `claims` does not matter.
    ranked = tuple(sorted(claims, key=lambda stand: rank(stand, use_quality=use_quality), reverse=True))
    best = ranked[0]
    assert best.following is not None
    epoch = best.following
    rule = _found(best, own) if len(ranked) == 1 else _difference(ranked, use_quality=use_quality)
    if best.node == own.node:  # this node ends the split brain in an epoch above those of its rivals
        rivals = [stand.following.counter for stand in ranked[1:] if stand.following]
        if rivals and max(rivals) >= epoch.counter:
            epoch = Epoch(max(*rivals, own.newest) + 1, own.node, own.run)
    # A holder with a higher masterPriority takes over once all holders have voted for it (5.4.3, agreement).
    vote = _hand_over(stands, best, epoch)
    if vote and vote.choice == own.node and _agreed(vote, own, stands):
        rule = f"hand-over: priority {own.priority} is higher than {best.priority} of {best.name}"
        return Decision(Epoch(vote.counter, own.node, own.run), None, "", rule, (own, best))
    return Decision(epoch, vote, "", rule, ranked)


def _found(master: Stand, own: Stand) -> str:
    """Say in words why the only confirmed master is followed."""
    if own.holder or not own.may_be_master or own.priority <= master.priority:
        return f"confirmed master with masterPriority {master.priority}"
    return f"confirmed master with masterPriority {master.priority}; a living master is not disturbed"


def _hand_over(stands: dict[str, Stand], master: Stand, epoch: Epoch) -> Vote | None:
    """Return the vote for a holder that should take over from `master`, or None."""
    better = [
        stand
        for stand in stands.values()
        if stand.holder
        and stand.may_be_master
        and not stand.is_master
        and stand.priority > master.priority
        and master.holder
    ]
    if not better:
        return None
    challenger = max(better, key=lambda stand: (stand.priority, stand.node))
    counters = [stand.newest + 1 for stand in stands.values()]
    counters += [stand.vote.counter for stand in stands.values() if stand.vote]
    return Vote(max(epoch.counter + 1, *counters), challenger.node)


def _agreed(vote: Vote, own: Stand, stands: dict[str, Stand]) -> bool:
    """Whether all other holders have made the same proposal."""
    return all(stand.vote == vote for stand in stands.values() if stand.node != own.node and stand.holder)


def _master_out_of_hearing(
    own: Stand, peers: Sequence[Stand], gone: frozenset[str]
) -> tuple[Epoch, str] | None:
    """Return the newest epoch whose master some fellow hears, and the best such fellow.

    A node that this one hears speaks for itself. If it does not claim to be master, it was restarted or has
    stepped down, and fellows that have not noticed yet must not confirm each other's outdated view.
    """
    heard = {own.node, *(peer.node for peer in peers)}
    known = [
        (peer.following, peer.aligner, peer.holder, peer.node)
        for peer in peers
        if peer.following
        and peer.following.node not in heard
        and peer.following.node not in gone
        and peer.following.node in peer.heard
    ]
    if not known:
        return None
    epoch, _, _, via = max(known)
    return epoch, via


def _election(own: Stand, stands: dict[str, Stand], *, expects_more: bool) -> Decision:
    # Who votes: the holders of the set, or all nodes while there is none.
    everybody = list(stands.values())
    holders = [stand for stand in everybody if stand.holder]
    electors = holders or everybody
    # Who stands: aligners with a masterPriority above 0 (5.4.3; 5.4.4, step 4.2).
    candidates = [stand for stand in electors if stand.may_be_master]
    if not candidates:  # holders that may not be master do not keep others from it
        candidates = [stand for stand in everybody if stand.may_be_master]
    # The best: masterPriority, quality while nothing has been injected, system id (5.4.3, rules 1 to 3).
    use_quality = not any(stand.holder for stand in candidates)
    # The whole list and not only the best, because the trace lists all candidates.
    ranked = tuple(sorted(candidates, key=lambda stand: rank(stand, use_quality=use_quality), reverse=True))
    if not ranked:
        return Decision(None, None, "", NOBODY, ())
    # Vote for it, in a counter above all that were ever used.
    counters = [stand.vote.counter for stand in everybody if stand.vote]
    counters += [stand.following.counter + 1 for stand in everybody if stand.following]
    counters += [stand.newest + 1 for stand in everybody]
    if own.vote and own.vote.choice not in ("", ranked[0].node):
        counters.append(own.vote.counter + 1)  # a node votes only once in a counter
    vote = Vote(max(counters), ranked[0].node)
    rule = _difference(ranked, use_quality=use_quality)
    # The chosen node becomes master when all electors agree; on disagreement they vote again (5.4.3).
    agreed = all(stand.vote == vote and not stand.discovering for stand in electors if stand.node != own.node)
    if vote.choice == own.node and agreed and not expects_more:
        return Decision(Epoch(vote.counter, own.node, own.run), None, "", rule, ranked)
    return Decision(None, vote, "", rule, ranked)


def rank(stand: Stand, *, use_quality: bool) -> tuple[bool, bool, int, int, str]:
    """Return the rank of a candidate; greater is better."""
    quality_ns = stand.quality_ns if use_quality else 0
    return (stand.holder, quality_ns != DAMAGED, stand.priority, quality_ns, stand.node)


def _difference(ranked: tuple[Stand, ...], *, use_quality: bool) -> str:
    """Say in words which rule put the first candidate before the second."""
    if len(ranked) == 1:
        return "the only candidate"
    first, second = ranked[0], ranked[1]
    if first.holder != second.holder:
        return "holds the set of this run"
    if use_quality and DAMAGED == second.quality_ns < first.quality_ns:
        return f"the stored set of {second.name} is damaged or a part"
    if first.priority != second.priority:
        return f"highest masterPriority ({first.priority} before {second.priority})"
    if use_quality and first.quality_ns != second.quality_ns:
        return f"equal masterPriority {first.priority}; newest stored data"
    return f"equal masterPriority {first.priority}; highest id"
