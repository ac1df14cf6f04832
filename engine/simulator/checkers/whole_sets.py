"""The rules about masters and sets: one master (I4), whole sets (I5), one source (I9)."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Final

from engine.core.messages import Epoch
from engine.core.name_space_state import NameSpaceState
from engine.core.states import Phase
from engine.dataset.sample import Sample
from engine.runtime.startup import StoredContent
from engine.simulator.quiet_check import (
    Held,
    deletes,
    describe,
    held,
    is_ours,
    missing,
    samples_of,
    talk,
)
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import Checker, SimulatedSystem, Standing


class Masters(Checker):
    """Remembers which run of which node began each epoch and lineage.

    An epoch or lineage names the node that began it. A node must not begin one again, in another run or for
    another set: diverged sets would then count as one.
    """

    invariant = "I4"
    meaning = "at most one confirmed master for each role, name-space and epoch, and no epoch comes again"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._claims: dict[tuple[str, str, Epoch], tuple[SimulatedNode, int]] = {}
        self._lineages: dict[tuple[str, Epoch], tuple[SimulatedNode, int]] = {}

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check a node that declares itself master, or begins a lineage."""
        run = (node, node.run)
        if (
            now.following
            and now.following.node == node.id
            and (not before or before.following != now.following)
        ):
            key = (node.plan.settings.role, name_space, now.following)
            other = self._claims.setdefault(key, run)
            if other != run:
                self.fail(
                    f"{_text(run)} is master of {name_space} in epoch {now.following} as was {_text(other)}"
                )
        came_with_a_set = before is not None and before.phase is Phase.ALIGN
        if before and now.lineage != before.lineage and now.lineage.node == node.id and not came_with_a_set:
            lineage = (name_space, now.lineage)
            known = self._lineages.setdefault(lineage, run)
            if known != run and not self._is_adopted(node, name_space, now.lineage):
                self.fail(f"{_text(run)} begins lineage {now.lineage} of {name_space} as did {_text(known)}")

    def _is_adopted(self, node: SimulatedNode, name_space: str, lineage: Epoch) -> bool:
        """Tell whether a fellow of the node has the lineage."""
        reports = (fellow.report(name_space) for fellow in node.live.core.fellows if fellow.approved)
        return any(report is not None and report.lineage == lineage for report in reports)


def _text(run: tuple[SimulatedNode, int]) -> str:
    return f"{run[0].name} (run {run[1]})"


Captured = tuple[int, bytes, int, bytes]
# Chosen: a stream that broke off is followed by one more as a rule; each is a whole set.
MAX_SETS: Final = 4
"""Limit for remembered sets sent to one node; the one that completes it is among the last."""


class Whole(Checker):
    """Compares a set at its announcement with the set that it should be.

    - Who aligned has all of a set that a complete node gave to it, and besides that only what it captured
      itself and what its own store held: nothing comes from a set that arrived in part.
    - A node that injected has all that could be read of its stored set, but what it forgets in the same
      moment.
    - Neither holds where in the same moment a set turns out to have evolved apart, and the policy is Delete.
    - Who gives a set to somebody that aligns has a complete set itself.
    """

    invariant = "I5"
    meaning = "COMPLETE is never announced on a partial set"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._given: dict[tuple[str, str], collections.deque[Held]] = {}
        self._captured: dict[SimulatedNode, set[Captured]] = {}
        self._stored: dict[SimulatedNode, dict[str, Held]] = {}

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Remember the stored sets with which a run begins."""
        self._stored[node] = {name: held(data) for name, (data, _) in found.sets.items()}
        self._captured[node] = set()
        for key in [key for key in self._given if key[0] == node.id]:
            del self._given[key]

    def captured(self, node: SimulatedNode, records: Sequence[Sample]) -> None:
        """Remember samples that the node captured."""
        known = self._captured[node]
        for record in records:
            known.add((record.source_time_ns, record.writer, record.status, record.key))

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], samples: int) -> None:
        """Remember the sets sent to each fellow."""
        data = node.live.spaces[name_space]
        given = held(data.working)
        for fellow in fellows:
            key = (fellow, name_space)
            self._given.setdefault(key, collections.deque(maxlen=MAX_SETS)).append(given)
            receiver = next((each for each in self.cluster.up() if each.id == fellow), None)
            theirs = receiver.space(name_space) if receiver else None
            if theirs is None or theirs.state.aligner != node.id:  # it does not expect a set any more
                continue
            if theirs.state.phase is Phase.ALIGN and given and not data.state.complete:
                self.fail(f"{node.name} gives {name_space} to {receiver} without being complete")

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check a set when its node becomes complete for the first time in a run."""
        if before is None or before.holder or not now.holder:
            return
        has_decided = now.lineage.node == node.id and now.lineage != now.following
        if deletes(node, name_space) and (has_decided or self._is_deleted(node, name_space)):
            return
        if now.is_aligned:
            self._check_aligned(node, name_space)
        else:
            self._check_injected(node, name_space)

    def _is_deleted(self, node: SimulatedNode, name_space: str) -> bool:
        """Tell whether a set has only samples that applications wrote lately."""
        captured = self._captured[node]
        return all(_key(sample) in captured for _, sample in samples_of(node.live.spaces[name_space].working))

    def _check_aligned(self, node: SimulatedNode, name_space: str) -> None:
        working, state = (data := node.live.spaces[name_space]).working, data.state
        given = self._given.get((node.id, name_space), ())
        misses = [[one for one in missing(each, working) if state.has_group(one[0])] for each in given]
        whole = [each for each, lost in zip(given, misses, strict=True) if not lost]
        if not whole:
            closest = min(misses, key=len, default=[])
            text = f"misses {len(closest)} samples: {describe(closest)}" if given else "nobody gave it a set"
            self.fail(f"{node.name} is complete in {name_space} but {text}")
        captured = self._captured[node]
        whole.append(self._stored[node].get(name_space, {}))
        extra = [
            (group, sample)
            for group, sample in samples_of(working)
            if not any((group, sample.digest) in each for each in whole) and _key(sample) not in captured
        ]
        if extra:
            text = "has what neither its aligner, its store nor an application gave to it"
            self.fail(f"{node.name} is complete in {name_space} but {text}: {describe(extra)}")

    def _check_injected(self, node: SimulatedNode, name_space: str) -> None:
        stored = self._stored[node].get(name_space, {})
        working = node.live.spaces[name_space].working
        lost = [one for one in missing(stored, working) if is_ours(node, one[0])]
        lost = [one for one in lost if not self.cluster.ledger.is_purged(working, *one)]
        if lost:
            text = f"injected {name_space} without a part of its stored set"
            self.fail(f"{node.name} {text}: {describe(lost)}")


def _key(sample: Sample) -> Captured:
    return (sample.source_time_ns, sample.writer, sample.status, sample.key)


ALONE = "the only candidate"
"""The reason of an election without other known electors."""


class Sources(Checker):
    """Checks the whole system whenever a node injects."""

    invariant = "I9"
    meaning = "persistent data is injected by exactly one source, the best that is present"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._electors: dict[tuple[SimulatedNode, str], set[tuple[str, int]]] = {}

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """A node has become complete without aligning: it injected.

        A fellow that may not align others has nothing to give, even if it holds the set; and a master is not
        disturbed by a fellow that did not take part in its election.
        """
        if before is None or before.following != now.following:
            self._electors[node, name_space] = _known_electors(node, name_space)
        if before is None or before.holder or not now.holder or now.is_aligned:
            return
        if node.is_catching_up:
            return  # its knowledge at the injection is unknown
        own = _state(node, name_space)
        for other in self.cluster.up():
            state = _state(other, name_space)
            if other is node or state is None or not talk(node, other):
                continue
            if state.holder and state.policy.aligner and _says_so(node, other, name_space):
                self.fail(f"{node.name} injects {name_space} although {other.name} holds the set")
            if (other.id, other.incarnation) not in self._electors[node, name_space]:
                continue
            if _is_elector(state) and other.plan.settings.role == node.plan.settings.role and own is not None:
                self._compare(node, own, other, state)

    def _compare(
        self, node: SimulatedNode, own: NameSpaceState, other: SimulatedNode, state: NameSpaceState
    ) -> None:
        if own.why == ALONE:
            return  # it woke up, and elected before it read the messages
        ranks = [
            (each.quality_ns >= 0, each.policy.master_priority, each.quality_ns, node_id)
            for each, node_id in ((own, node.id), (state, other.id))
        ]
        if ranks[1] > ranks[0]:
            self.fail(f"{node.name} injects {own.name} although the set of {other.name} goes before")


def _state(node: SimulatedNode, name_space: str) -> NameSpaceState | None:
    data = node.live.spaces.get(name_space)
    return data.state if data else None


def _known_electors(node: SimulatedNode, name_space: str) -> set[tuple[str, int]]:
    """Return the electors that a node knows, with their incarnations."""
    reports = [(fellow, fellow.report(name_space)) for fellow in node.live.core.fellows]
    return {
        (fellow.node, fellow.incarnation)
        for fellow, report in reports
        if fellow.approved and report is not None and report.phase is not Phase.DISCOVER
    }


def _says_so(node: SimulatedNode, other: SimulatedNode, name_space: str) -> bool:
    """Tell whether the node has received a message that the other holds the set."""
    reports = [f.report(name_space) for f in node.live.core.fellows if f.node == other.id]
    return any(report is not None and report.holder for report in reports)


def _is_elector(state: NameSpaceState) -> bool:
    return state.policy.may_be_master and not state.is_lazy and state.phase is not Phase.DISCOVER
