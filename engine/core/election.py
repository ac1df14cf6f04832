"""Who is master: pure functions from what is known to a decision and its basis (deployment guide, 5.4.3).

The order of candidates is total: a node that holds the set goes before one that does not (so that data which
has been injected is never replaced by another injection), then, while nobody holds the set, one whose store
is as it was written before a damaged one, then the highest masterPriority, then the best quality while
no candidate holds the set, then the highest id. 255 is the legacy value: where all have it, quality
and id decide, which is what the same order says.

A master exists by its own word only: a node becomes master when every elector it can talk to has voted for
it in one epoch counter, and others follow once they hear it say so. Nobody therefore waits for a master that
does not know that it is one, and two masters in one epoch are impossible since the epoch carries the
master's id.

- A confirmed master that is heard is followed. Of two, the higher masterPriority, then the higher id; it
  takes a new epoch, the other one steps down: that is the end of a split brain.
- A holder with a strictly higher masterPriority than its master is voted for by all, the master included:
  a planned hand-over. Equal or lower ones never disturb.
- A master that is not heard here but heard by a fellow is followed through that fellow: in a partly
  connected system everybody has a master.
- Otherwise all vote. Electors are the holders, or everybody while there is none.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from engine.core.messages import DAMAGED, Epoch, Vote

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

NOBODY: Final = "no node here may be master: each is a non-aligner, has masterPriority 0, or is not Initial"
"""The rule of a decision without candidates."""
NOBODY_REMEDY: Final = "start one that may, or give an aligner with alignee Initial a masterPriority above 0"


@dataclasses.dataclass(frozen=True, slots=True)
class Stand:
    """What one node of a role says about one name-space.

    `may_be_master` is false for non-aligners and for masterPriority 0; `discovering` nodes have not voted
    yet; `heard` are the ids this node hears; `newest` is the highest counter of an epoch or lineage that it
    knows, so that no new one is ever taken for an old one; `run` is the node's incarnation; `aligner` says
    whether it gives data to others.
    """

    node: str
    name: str
    may_be_master: bool
    priority: int
    quality_ns: int
    holder: bool
    discovering: bool
    vote: Vote | None
    following: Epoch | None
    heard: Collection[str] = ()
    newest: int = 0
    run: int = 0
    aligner: bool = True

    @property
    def is_master(self) -> bool:
        """Whether it says of itself that it is master."""
        return self.following is not None and self.following.node == self.node


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What a node should do about the master of a name-space.

    Attributes:
        following: the epoch to follow now; None while nobody is confirmed.
        vote: the proposal to make; None for none.
        via: the fellow through which a master out of hearing is followed; empty otherwise.
        rule: the rule that decided, in words.
        candidates: those that were compared, best first.
    """

    following: Epoch | None
    vote: Vote | None
    via: str
    rule: str
    candidates: tuple[Stand, ...]

    def basis(self) -> str:
        """The candidates with what counted, for trace, console and `why`."""
        return ", ".join(
            f"{c.name or c.node[:8]} (priority {c.priority}, quality "
            f"{'none, damaged or a part' if c.quality_ns == DAMAGED else c.quality_ns}, id {c.node[:8]}"
            f"{', holds the set' if c.holder else ''})"
            for c in self.candidates
        )


def decide(
    own: Stand, peers: Sequence[Stand], gone: frozenset[str] = frozenset(), *, expects_more: bool = False
) -> Decision:
    """The decision of node `own`, which hears `peers` and lost the nodes in `gone` a short while ago.

    With `expects_more`, somebody is heard who has not said everything yet, as a fellow that was started again
    a moment ago; then nobody becomes master without it.
    """
    stands = {stand.node: stand for stand in (own, *peers)}
    claims = [stand for stand in stands.values() if stand.is_master]
    if claims:
        return _with_masters(own, stands, claims)
    out_of_hearing = _master_out_of_hearing(own, peers, gone)
    if out_of_hearing:
        epoch, via = out_of_hearing
        return Decision(epoch, None, via, "the master is out of hearing; a fellow hears it", ())
    return _election(own, stands, expects_more=expects_more)


def _with_masters(own: Stand, stands: dict[str, Stand], claims: list[Stand]) -> Decision:
    ranked = tuple(sorted(claims, key=lambda stand: (stand.priority, stand.node), reverse=True))
    best = ranked[0]
    assert best.following is not None
    epoch = best.following
    rule = _found(best, own) if len(ranked) == 1 else _difference(ranked, use_quality=False)
    if best.node == own.node:
        rivals = [stand.following.counter for stand in ranked[1:] if stand.following]
        if rivals and max(rivals) >= epoch.counter:
            epoch = Epoch(max(*rivals, own.newest) + 1, own.node, own.run)
    vote = _hand_over(stands, best, epoch)
    if vote and vote.choice == own.node and _agreed(vote, own, stands):
        rule = f"hand-over: priority {own.priority} is higher than {best.priority} of {best.name}"
        return Decision(Epoch(vote.counter, own.node, own.run), None, "", rule, (own, best))
    return Decision(epoch, vote, "", rule, ranked)


def _found(master: Stand, own: Stand) -> str:
    """Why the only confirmed master is followed, in words."""
    if own.holder or not own.may_be_master or own.priority <= master.priority:
        return f"confirmed master with masterPriority {master.priority}"
    return f"confirmed master with masterPriority {master.priority}; a living master is not disturbed"


def _hand_over(stands: dict[str, Stand], master: Stand, epoch: Epoch) -> Vote | None:
    """The vote for a holder that should take over from `master`, or None."""
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
    """The newest epoch that some fellow follows and hears first hand, and the best such fellow.

    A node that we hear ourselves speaks for itself: if it says nothing of being master, it was restarted or
    has stepped down, and fellows who have not noticed yet must not keep each other in that belief.
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
    everybody = list(stands.values())
    holders = [stand for stand in everybody if stand.holder]
    electors = holders or everybody
    candidates = [stand for stand in electors if stand.may_be_master]
    if not candidates:  # holders that may not be master do not keep others from it
        candidates = [stand for stand in everybody if stand.may_be_master]
    use_quality = not any(stand.holder for stand in candidates)  # then the master may have to inject
    ranked = tuple(sorted(candidates, key=lambda stand: rank(stand, use_quality=use_quality), reverse=True))
    if not ranked:
        return Decision(None, None, "", NOBODY, ())
    counters = [stand.vote.counter for stand in everybody if stand.vote]
    counters += [stand.following.counter + 1 for stand in everybody if stand.following]
    counters += [stand.newest + 1 for stand in everybody]
    if own.vote and own.vote.choice not in ("", ranked[0].node):
        counters.append(own.vote.counter + 1)  # a vote is cast once in a counter
    vote = Vote(max(counters), ranked[0].node)
    rule = _difference(ranked, use_quality=use_quality)
    agreed = all(stand.vote == vote and not stand.discovering for stand in electors if stand.node != own.node)
    if vote.choice == own.node and agreed and not expects_more:
        return Decision(Epoch(vote.counter, own.node, own.run), None, "", rule, ranked)
    return Decision(None, vote, "", rule, ranked)


def rank(stand: Stand, *, use_quality: bool) -> tuple[bool, bool, int, int, str]:
    """The place of a candidate in the order: greater is better."""
    quality_ns = stand.quality_ns if use_quality else 0
    return (stand.holder, quality_ns != DAMAGED, stand.priority, quality_ns, stand.node)


def _difference(ranked: tuple[Stand, ...], *, use_quality: bool) -> str:
    """The rule that put the first candidate before the second, in words."""
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
