"""The rules about what applications rely on: late joiners (I10), written samples (I11), repairs (I12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.core.messages import ReaderKey
from engine.core.name_spaces import Alignee, Durability, Group, MergeType, Policy, find_policy
from engine.core.states import Phase
from engine.dataset.sample import Sample
from engine.runtime.startup import StoredContent
from engine.simulator.quiet_check import talk, unsettled
from engine.simulator.simulated_node import Committed, SimulatedNode
from engine.simulator.simulated_system import Checker, SimulatedSystem, Standing
from engine.simulator.write_ledger import WrittenSample


class DeliveryChecker(Checker):
    """Checks the deliveries to late joiners."""

    invariant = "I10"
    meaning = "late joiners are served, and from complete sets only"

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Check a delivery at its start. A whole set must be complete."""
        state = node.live.spaces[reader.name_space].state
        # A merge that began in the same turn has not changed the set yet, and its result follows.
        if whole and not (state.holder and state.phase in (Phase.COMPLETE, Phase.MERGE)):
            self.fail(f"{node.name} serves {reader.topic} of {reader.name_space} in phase {state.phase}")
        if whole and not state.has_obtained(reader.elements):
            self.fail(f"{node.name} serves {reader.topic} of {reader.name_space}, which it has not obtained")

    def settled(self) -> None:
        """Check that every reader's process got the set of each name-space that it reads."""
        for reader in self.cluster.all_readers:
            wanted: set[ReaderKey] = set()
            for node in self.cluster.up():
                serving = node.live.late_joiners
                wanted.update(serving.reader_keys(reader.participant_id, reader.topic, reader.partitions))
            served = {key for key, _, _ in reader.served}
            if reader.participant.is_alive and not wanted <= served:
                names = ", ".join(sorted(key.name_space for key in wanted - served))
                self.fail(f"{reader.name} never got {reader.topic} of {names}")


JOINING: Final = frozenset({MergeType.MERGE, MergeType.REPLACE, MergeType.CATCHUP})
WEAK: Final = frozenset({Durability.VOLATILE, Durability.TRANSIENT_LOCAL})
# A line; the seed shows the rest.
SHOWN: Final = 3
"""Samples that a message names."""


class Promised(Checker):
    """Remembers the carriers of each sample.

    A sample is *carried* by each node that captured it, for that run of the node, and by each disk on which
    it was part of a set, until that disk is destroyed. While it has a carrier, every complete node of the
    carrier's role must have it in the end. So samples on N disks survive the loss of N - 1 of them and any
    sequence of restarts. A sample may be missing if newer ones of its instance took its place, if it was
    deleted, or if its instance was disposed and purged.

    The rule applies to name-spaces in which all nodes merge. If they replace or catch up, it applies until
    their sets diverge: two nodes lost each other while both were up, one became complete without talking to
    another complete one, or two nodes both captured samples while they could not talk to each other. It does
    not apply under Ignore and Delete, with delayed alignment (which gives up a stored set that comes late),
    and between roles with different policies. Nodes that are not aligners, or have data only on request,
    carry nothing; Lazy ones carry the groups that they keep.
    """

    invariant = "I11"
    meaning = "what one node captured or stored comes to all, and survives as long as one of its carriers"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._runs: dict[SimulatedNode, set[WrittenSample]] = {}
        self._disks: dict[SimulatedNode, set[WrittenSample]] = {}
        self._rotten: set[tuple[SimulatedNode, str]] = set()
        self._gone: dict[WrittenSample, str] = {}
        self._ahead: set[tuple[SimulatedNode, SimulatedNode, str]] = set()
        self._apart: set[str] = set()
        self._merging: dict[str, bool] = {}
        self._meetings: set[tuple[SimulatedNode, int, SimulatedNode, int]] = set()

    # Carriers.

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Forget the policies, because the node may have a new configuration."""
        self._merging.clear()

    def captured(self, node: SimulatedNode, records: Sequence[Sample]) -> None:
        """Make the run a carrier of the samples."""
        run = self._runs.setdefault(node, set())
        touched: set[str] = set()
        for record in records:
            for group in node.routes[record.writer]:
                state = node.live.core.name_space_of(group)
                entry = self.cluster.ledger.entry(group, record)
                if state is None or entry is None:
                    continue
                touched.add(state.name)
                if carries(state.policy) and state.keeps(group):
                    run.add(entry)
        for name_space in touched:
            self._took_in(node, name_space)

    def committed(self, node: SimulatedNode, transaction: Committed) -> None:
        """Make the disk a carrier of the stored samples."""
        policy = _policy(node, transaction.name_space)
        if policy is None or not carries(policy):
            return
        place = (node, transaction.name_space)
        if transaction.whole:
            self._rotten.discard(place)
        elif place in self._rotten:
            return
        disk = self._disks.setdefault(node, set())
        added, evicted = self._entries(transaction.added), self._entries(transaction.evicted)
        if transaction.whole:
            evicted |= {each for each in disk - added if each.name_space == transaction.name_space}
        if evicted:
            text = f"{node.name} took it out of its stored set at {self.cluster.schedule.now:.3f} s"
            self._gone.update(dict.fromkeys(evicted, text))
        disk |= added

    def _entries(self, samples: tuple[tuple[Group, Sample], ...]) -> set[WrittenSample]:
        found = (self.cluster.ledger.entry(group, sample) for group, sample in samples)
        return {entry for entry in found if entry is not None}

    def ended(self, node: SimulatedNode) -> None:
        """Forget a run; its node's disk, if there is one, stays a carrier."""
        self._runs.pop(node, None)
        if not node.plan.has_disk:
            self._disks.pop(node, None)

    def destroyed(self, node: SimulatedNode) -> None:
        """Forget a lost disk."""
        self._disks.pop(node, None)
        self._rotten = {place for place in self._rotten if place[0] is not node}

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Forget a damaged set on disk, which may be replaced by a fellow's until it is written again."""
        self._rotten.add((node, name_space))
        disk = self._disks.get(node, set())
        disk.difference_update([entry for entry in disk if entry.name_space == name_space])

    # Divergence of sets.

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Note nodes that meet again: they had lost each other while both were up."""
        meeting = (node, node.run, fellow, fellow.run)
        if meeting in self._meetings:
            self._apart.update(space.name for space in node.plan.settings.name_spaces)
        self._meetings.add(meeting)

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Note two holders that do not talk to each other."""
        if before is None or not now.holder or before.holder:
            return
        for other in self.cluster.up():
            theirs = other.space(name_space)
            if theirs is not None and theirs.state.holder and not talk(node, other):
                self._apart.add(name_space)

    def _took_in(self, node: SimulatedNode, name_space: str) -> None:
        """Note the nodes that cannot get samples that a node captured."""
        if name_space in self._apart or self._merges_only(name_space):
            return
        for other in self.cluster.nodes:
            if other is not node and not talk(node, other):
                self._ahead.add((node, other, name_space))
                if (other, node, name_space) in self._ahead:
                    self._apart.add(name_space)

    def looked(self) -> None:
        """Forget nodes that have caught up with another."""
        for one, other, name_space in list(self._ahead):
            if talk(one, other) and _has_same(one, other, name_space):
                self._ahead.discard((one, other, name_space))

    # The check.

    def _merges_only(self, name_space: str) -> bool:
        known = self._merging.get(name_space)
        if known is None:
            known = self._merging[name_space] = self._types(name_space) <= {MergeType.MERGE}
        return known

    def _types(self, name_space: str) -> set[MergeType | None]:
        """Return the merge types of all nodes for all roles; None for no rule."""
        roles = {node.plan.settings.role for node in self.cluster.nodes}
        return {policy.merge_type(role) for policy in self._policies(name_space) for role in roles}

    def _policies(self, name_space: str) -> list[Policy]:
        return [policy for node in self.cluster.nodes if (policy := _policy(node, name_space))]

    def _is_promised(self, name_space: str) -> bool:
        if any(policy.delayed_alignment is not None for policy in self._policies(name_space)):
            return False
        if self._merges_only(name_space):
            return True
        roles = {node.plan.settings.role for node in self.cluster.nodes}
        return len(roles) == 1 and self._types(name_space) <= JOINING and name_space not in self._apart

    def settled(self) -> None:
        """Check that all nodes have the carried samples."""
        carried: dict[tuple[str, str], set[WrittenSample]] = {}
        for node, entries in (*self._runs.items(), *self._disks.items()):
            for entry in entries:
                carried.setdefault((node.plan.settings.role, entry.name_space), set()).add(entry)
        for (role, name_space), promised in carried.items():
            if self._is_promised(name_space):
                for node in self.cluster.up():
                    if node.plan.settings.role == role:
                        self._check_node(node, name_space, promised)

    def _check_node(self, node: SimulatedNode, name_space: str, entries: set[WrittenSample]) -> None:
        data = node.live.spaces.get(name_space)
        if data is None or data.state.phase is not Phase.COMPLETE or data.state.policy.durability in WEAK:
            return
        entries = {entry for entry in entries if data.state.has_group(entry.group)}
        lost = self.cluster.ledger.lacking(data.working, entries)
        if lost:
            shown = "; ".join(f"{entry!r}, {self._carriers(entry)}" for entry in lost[:SHOWN])
            more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
            self.fail(f"{node.name} lacks samples in {name_space}: {shown}{more}")

    def _carriers(self, entry: WrittenSample) -> str:
        runs = [node.name for node, entries in self._runs.items() if entry in entries]
        disks = [node.name for node, entries in self._disks.items() if entry in entries]
        gone = f"; {self._gone[entry]}" if entry in self._gone else ""
        return f"captured by {', '.join(runs) or 'none'}, stored by {', '.join(disks) or 'none'}{gone}"


def carries(policy: Policy) -> bool:
    """Tell whether a node with the policy gives its data to others."""
    return policy.aligner and policy.alignee is not Alignee.ON_REQUEST and policy.durability not in WEAK


def _policy(node: SimulatedNode, name_space: str) -> Policy | None:
    """Return the policy of a node; None if it has none for the name-space."""
    return find_policy(node.plan.settings.policies, name_space)


def _has_same(one: SimulatedNode, other: SimulatedNode, name_space: str) -> bool:
    ours, theirs = one.space(name_space), other.space(name_space)
    if ours is None or theirs is None or not (ours.state.complete and theirs.state.complete):
        return False
    return ours.working.summary().same_content(theirs.working.summary())


REPAIRED_S: Final = 5.0
"""The part of the bound that does not depend on the heartbeat period: comparisons, and a slow disk."""
PERIODS: Final = 5
"""Heartbeat periods that, together with `REPAIRED_S`, bound the time of a repair."""


class Repaired(Checker):
    """Looks for old samples that a node lacks.

    While there is no other fault (all nodes that are up talk to each other and hold the set, no link between
    them is cut, no node stands still), every node has a sample that one node has had for longer than the
    bound, or newer ones of its instance, or it was deleted or purged. The links of applications and the taps
    do not matter.
    """

    invariant = "I12"
    meaning = "what has settled is equal within a bound, although writing goes on"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._disturbed_s = 0.0
        settings = [plan.settings for plan in cluster.options.nodes]
        self.bound_s = REPAIRED_S + PERIODS * max(one.heartbeat_period_s for one in settings)
        self._patience_s = max(one.request_patience_s for one in settings)

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Note a start: the node may bring samples that the others lack."""
        self._disturb()

    def ended(self, node: SimulatedNode) -> None:
        """Note an end, which the others must notice first."""
        self._disturb()

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Note a meeting, after which two nodes may have to merge."""
        self._disturb()

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Note a new master, or a node that begins or ends to hold the set."""
        if before is None or (before.following, before.holder) != (now.following, now.holder):
            self._disturb()

    def _disturb(self) -> None:
        self._disturbed_s = self.cluster.schedule.now

    def looked(self) -> None:
        """Check everything, if the system has been calm for long enough."""
        cluster = self.cluster
        until_s = cluster.schedule.now - self.bound_s
        if self._disturbed_s >= until_s or not self._is_calm():
            return
        if cluster.network.disturbed_s >= until_s - self._patience_s:
            return  # a lost request or answer is repeated after that time
        reason = unsettled(cluster, until_s)
        if reason:
            self.fail(f"after {self.bound_s:g} s without any fault: {reason}")

    def _is_calm(self) -> bool:
        up = self.cluster.up()
        return (
            self.cluster.network.is_calm()
            and all(not (node.is_stalled or node.participant.is_frozen or node.cost_s) for node in up)
            and all(talk(one, other) for one in up for other in up if one is not other)
        )
