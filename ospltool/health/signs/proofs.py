"""Signs of messages that do not prove their sender: who differs in the secret of the domain, and by what."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from engine.dds.proofs import ELEMENT, NO_SECRET_HELPS, VARIABLE
from engine.runtime.monitor import NodeSnapshot, UnprovedView
from ospltool.health.codes import SECOND_NS, Sign, joined
from ospltool.health.presence import HealthInput
from ospltool.live.nodes import natural

# Some heartbeats of the one that is refused, so that the sign does not flicker.
REFUSED_NS: Final = 5 * SECOND_NS
"""Time for which a refusal by the watcher is shown: who differs is refused again and again."""
PASSING_NS: Final = 3 * SECOND_NS
"""Time in which a command that lacks the secret is over, and for nodes to read a file that has changed."""

_KEEP_OUT: Final = "Let a firewall keep strangers out of the domain (docs/security.md)."
_UNASKED: Final = "no secret here"


class _Refusal(NamedTuple):
    """A node that refuses messages of a participant."""

    by: NodeSnapshot
    of: UnprovedView

    @property
    def name(self) -> str:
        """What the participant is called."""
        return self.of.name or f"participant {self.of.participant}"

    @property
    def lacks(self) -> str:
        """Who seems to lack the secret: a node that has none refuses those that have one."""
        return self.by.name if any(_UNASKED in why for why in self.of.counts) else self.name


def of_proofs(scene: HealthInput) -> Iterator[Sign]:
    """Yield one sign for each node, client or stranger that is refused, or that refuses all others."""
    left = [_Refusal(one.snapshot, each) for one in scene.heard for each in one.snapshot.unproved]
    by_watch = scene.model.unproved if refused_by_watch(scene) else None
    if by_watch and not {one.name for one in left}.issuperset(by_watch.names):
        what, _, why = by_watch.text.partition(": ")
        yield Sign(
            "DUL-UNPROVED", "watcher", what, why=why, next=refused_by_watch(scene), names=by_watch.names
        )
    strangers = {one.name: one for one in left if not NO_SECRET_HELPS.isdisjoint(one.of.counts)}
    for name in sorted(strangers, key=natural):
        yield _sign(scene, name, [one for one in left if one.name == name])
    left = [one for one in left if one.name not in strangers]
    while left:
        # What most pairs have in common is what differs from the others: one fact, one sign.
        pairs = collections.Counter(name for one in left for name in {one.by.name, one.name})
        lacking = collections.Counter(one.lacks for one in left)
        who = max(sorted(pairs), key=lambda name: (pairs[name], lacking[name]))
        yield _sign(scene, who, [one for one in left if who in (one.by.name, one.name)])
        left = [one for one in left if who not in (one.by.name, one.name)]


def refused_by_watch(scene: HealthInput, name: str = "") -> str:
    """Return what to do so that this watch hears the nodes, or the one of a name, that it refuses now.

    Empty if it refuses none of them.
    """
    refused = scene.model.unproved
    if not refused or scene.now_ns - refused.time_ns >= REFUSED_NS or (name and name not in refused.names):
        return ""
    if _UNASKED not in refused.text:
        return "Give this command and the nodes the same secret; compare the files."
    return (
        f"Run the command with the secret of the nodes: `{VARIABLE}=FILE`, or the configuration of a "
        f"node that names the file in {ELEMENT}."
    )


def _sign(scene: HealthInput, who: str, refusals: Sequence[_Refusal]) -> Sign:
    mine = [one for one in refusals if one.by.name == who]
    others = [one for one in refusals if one.by.name != who]
    told = []
    if others:
        # By name: a set has no order, and n10 comes after n9.
        names = joined(sorted({one.by.name for one in others}, key=natural))
        told.append(
            f"{names} {'refuses' if len(others) == 1 else 'refuse'} messages of {who} ({_counts(others)})"
        )
    if mine:
        names = joined(sorted({one.name for one in mine}, key=natural))
        told.append(f"{who} refuses messages of {names} ({_counts(mine)})")
    ids = dict.fromkeys([one.of.node for one in others if one.of.node] + [one.by.id for one in mine])
    known = tuple(one for one in ids if one in scene.model.nodes)
    why, advice = _reason(who, mine, others)
    return Sign(
        "DUL-UNPROVED", who, "; ".join(told), 0, known or tuple(one.by.id for one in others), why=why,
        next=advice, patience_ns=PASSING_NS, weight=len(refusals),
        names=tuple(dict.fromkeys(one.name for one in refusals)),
    )  # fmt: skip


def _counts(refusals: Sequence[_Refusal]) -> str:
    total: collections.Counter[str] = collections.Counter()
    for one in refusals:
        total.update(one.of.counts)
    return ", ".join(f"{count:,} {why}" for why, count in total.items())


def _reason(who: str, mine: Sequence[_Refusal], others: Sequence[_Refusal]) -> tuple[str, str]:
    """Return why the messages are refused, and the advice; empty where several things may be the reason."""
    reasons = {why for one in (*mine, *others) for why in one.of.counts}
    if not NO_SECRET_HELPS.isdisjoint(reasons):
        why = f"{who} is not the node that its messages name: a program at fault, or somebody who attacks"
        return why, f"Find out who runs it, and stop it. {_KEEP_OUT}"
    teller = (mine or others)[0].by
    file = f"{teller.secret} of {teller.name}"
    if mine and not teller.secret:
        place = teller.configuration
        why = f"{who} has no secret, and others have one: {ELEMENT} is missing in {place}"
        advice = f"Set {ELEMENT} in {place} to a file with the secret of the others, and restart {who}."
        return why, advice
    is_node = bool(mine) or any(one.of.node for one in others)
    if not is_node:
        why = {
            "without a proof": f"{who} has no secret of the domain, and the nodes have one",
            "with another secret": f"the first secret of {who} is not in {file}",
        }.get(joined(sorted(reasons)), "")
        advice = f"Give it the first secret in {file}: `{VARIABLE}=FILE`, or the configuration of a node."
        return why, f"{advice} If nobody knows it, find out who runs it." if why else ""
    if reasons == {"without a proof"}:
        why = f"{who} has no secret: {ELEMENT} is missing in its configuration; or somebody imitates it"
        advice = f"Set {ELEMENT} of {who} to a file with the first secret in {file}, and restart {who}."
        return why, advice
    if reasons == {"with another secret"} and mine:
        why = f"{file} ({ELEMENT}) lacks the first secret of the others"
        return why, f"Put the secret of the others into {teller.secret}; {who} reads it within a second."
    if reasons == {"with another secret"}:
        why = f"the first secret in the file of {who} ({ELEMENT}) is not in {file}"
        return why, f"Put the secrets of {file} into the file of {who}; it reads it within a second."
    return "", ""
