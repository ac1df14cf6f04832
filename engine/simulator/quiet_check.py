"""The check that a cluster is quiet and equal (invariant I3), and how sets of nodes are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.core.merging import PART_PAUSE_S
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import Group, MergeType
from engine.core.states import Phase, ServiceState
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import Summary
from engine.dataset.sample import Sample
from engine.runtime.name_space_data import NameSpaceData
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import SimulatedSystem

Held = dict[tuple[Group, bytes], Sample]
"""Samples by group and digest."""


def is_ours(node: SimulatedNode, group: Group) -> bool:
    """Tell whether a group is in a name-space of the node, whose configuration may have changed."""
    return node.live.core.name_space_of(group) is not None


def talk(one: SimulatedNode, other: SimulatedNode) -> bool:
    """Tell whether two nodes are up and talk to each other."""
    return _knows(one, other) and _knows(other, one)


def _knows(one: SimulatedNode, other: SimulatedNode) -> bool:
    return one.runtime is not None and any(
        fellow.node == other.id and fellow.approved and fellow.incarnation == other.incarnation
        for fellow in one.runtime.core.fellows
    )


def samples_of(data: DataSet) -> Iterator[tuple[Group, Sample]]:
    """Return all samples of a set with their groups."""
    for group, group_set in data.groups.items():
        for sample in group_set.samples():
            yield group, sample


def held(data: DataSet) -> Held:
    """Return the samples of a set by group and digest."""
    return {(group, sample.digest): sample for group, sample in samples_of(data)}


def is_kept(data: DataSet, group: Group, sample: Sample) -> bool:
    """Tell whether a set has the sample, or newer ones of its instance in its place."""
    group_set = data.groups.get(group)
    if group_set is None:
        return False
    return sample in group_set.instance(sample.key) or group_set.has_no_place(sample)


def missing(before: Held, data: DataSet) -> list[tuple[Group, Sample]]:
    """Return the samples of `before` that the set should still have, but lacks."""
    present = held(data)
    gone = [key for key in before if key not in present]
    return [(key[0], before[key]) for key in gone if not is_kept(data, key[0], before[key])]


def deletes(node: SimulatedNode, name_space: str) -> bool:
    """Tell whether a merge policy of the node deletes its set."""
    rules = node.live.spaces[name_space].state.policy.merges
    return any(rule.type is MergeType.DELETE for rule in rules)


def describe(lost: Sequence[tuple[Group, Sample]]) -> str:
    """Describe the first few samples, for a message."""
    texts = [
        f"{group} key {sample.key.hex()} t={sample.source_time_ns} status={sample.status}"
        for group, sample in lost[:3]
    ]
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return "; ".join(texts) + more


HELD_WITHIN_NS: Final = round(1.5 * PART_PAUSE_S * 1e9)
"""Limit from a change, or a purge, to the comparison of a part with the master's set."""


def difference(cluster: SimulatedSystem) -> str:
    """Return the first violation of a quiet system; empty for none."""
    for node in cluster.nodes:
        reason = _restless(cluster, node)
        if reason:
            return f"{node.name} {reason}"
    roles: dict[tuple[str, str], list[tuple[SimulatedNode, NameSpaceState]]] = {}
    for node in cluster.nodes:
        for state in node.live.core.name_spaces:
            if state.phase is not Phase.PASSIVE and not state.is_lazy:
                roles.setdefault((node.plan.settings.role, state.name), []).append((node, state))
    for (role, name), members in roles.items():
        reason = _unequal(members) or _unlike(cluster, role, members)
        if reason:
            return f"'{name}' in role '{role}': {reason}"
    return _unmet([member for members in roles.values() for member in members])


def unsettled(cluster: SimulatedSystem, until_s: float) -> str:
    """Return the first difference between running nodes, among samples captured until `until_s`.

    What is younger may be under way. Empty when all is well, also where sets need not be equal.
    """
    for role in sorted({node.plan.settings.role for node in cluster.nodes}):
        nodes = [node for node in cluster.up() if node.plan.settings.role == role]
        names = sorted(
            {state.name for node in nodes if node.runtime for state in node.runtime.core.name_spaces}
        )
        for name in names:
            reason = _unsettled(cluster, nodes, name, until_s)
            if reason:
                return f"'{name}' in role '{role}': {reason}"
    return ""


def _unsettled(cluster: SimulatedSystem, nodes: list[SimulatedNode], name: str, until_s: float) -> str:
    members: list[tuple[SimulatedNode, NameSpaceData]] = []
    for node in nodes:
        data = node.space(name)
        if data is None or data.state.phase is Phase.PASSIVE or data.state.is_lazy:
            continue
        if data.state.apart and data.state.is_master(node.id):
            return ""  # nobody compares with it
        if data.state.apart:
            continue
        if data.state.policy.aligner:
            members.append((node, data))
    if len(members) < 2 or not any(data.state.policy.may_be_master for _, data in members):
        return ""  # without a master no node aligns, which the nodes report
    summaries = [data.working.summary() for _, data in members]
    if all(summary.same_content(summaries[0]) for summary in summaries):
        return ""
    everything = {entry for _, data in members for entry in cluster.ledger.entries(data.working)}
    settled = [entry for entry in everything if entry.captured_s is not None and entry.captured_s <= until_s]
    for node, data in members:
        lost = cluster.ledger.lacking(data.working, settled) if data.state.holder else []
        if lost:
            return f"{node.name} lacks {len(lost)} samples that others have: {lost[0]!r}"
    return ""


def _unmet(members: list[tuple[SimulatedNode, NameSpaceState]]) -> str:
    """Find a master that has not handled the set of another role yet."""
    masters = [(node, state) for node, state in members if state.is_master(node.id)]
    for node, state in masters:
        for other, theirs in masters:
            if theirs.name == state.name and not state.has_decided_about(theirs.lineage):
                return f"{node.name} has not dealt with lineage {theirs.lineage} of {other.name} yet"
    return ""


def _unended(cluster: SimulatedSystem, node: SimulatedNode) -> list[str]:
    """Return the processes whose autodispose writers have ended, which the node's sets do not show yet.

    A writer whose end is in the sets may be missed once more, by fellows that only know of it.
    """
    return [
        writer.name
        for guid, writer in cluster.by_guid.items()
        for data in node.live.spaces.values()
        if not writer.participant.is_alive
        and data.state.complete
        and data.state.following is not None
        and data.state.autodispose.waits_for(guid)
        and any(
            sample.writer == guid and sample.key not in data.working.groups[group].disposed
            for group, sample in samples_of(data.working)
        )
    ]


def _restless(cluster: SimulatedSystem, node: SimulatedNode) -> str:
    others = len(cluster.nodes) - 1
    runtime = node.runtime
    if runtime is None:
        return "is down"
    if runtime.state is not ServiceState.COMPLETE:
        return f"is in state {runtime.state}"
    if runtime.transfers.steps.are_left or node.is_comparing:
        return "compares sets"
    for state in runtime.core.name_spaces:
        if state.phase not in (Phase.COMPLETE, Phase.PASSIVE):
            return f"is in phase {state.phase} of '{state.name}'"
        if state.outstanding:
            return f"waits for an answer in '{state.name}'"
    if len(runtime.core.fellows) != others or not all(fellow.approved for fellow in runtime.core.fellows):
        approved = [fellow.name for fellow in runtime.core.fellows if fellow.approved]
        return f"talks to {', '.join(approved) or 'nobody'} only"
    if waiting := _unended(cluster, node):
        return f"waits for the end of {waiting[0]}"
    if not runtime.store_queue.is_idle:
        return "has not written everything"
    return ""


def _unequal(members: list[tuple[SimulatedNode, NameSpaceState]]) -> str:
    masters = {state.following for _, state in members}
    if len(masters) > 1 or None in masters:
        each = ", ".join(f"{node.name} follows {state.following}" for node, state in members)
        return f"no common master: {each}"
    if len({state.lineage for _, state in members}) > 1:
        each = ", ".join(f"{node.name} has {state.lineage}" for node, state in members)
        return f"no common lineage: {each}"
    if any(state.apart and state.is_master(node.id) for node, state in members):
        return ""  # nobody compares with it
    members = [(node, state) for node, state in members if not state.apart]  # diverged by Ignore or Delete
    aligners = [node for node, state in members if state.policy.aligner]
    if not aligners:
        return ""
    summaries = {node.name: _summary(node, members[0][1].name) for node in aligners}
    first = next(iter(summaries.values()))
    if any(not summary.same_content(first) for summary in summaries.values()):
        counts = ", ".join(f"{name} has {summary.count}" for name, summary in summaries.items())
        return f"the sets differ: {counts}"
    return _lacking(aligners[0], members)


def _lacking(aligner: SimulatedNode, members: list[tuple[SimulatedNode, NameSpaceState]]) -> str:
    """Find a non-aligner that lacks samples; it may have more than the others, because it sends none."""
    for node, state in members:
        if not state.policy.aligner:
            given = held(aligner.live.spaces[state.name].working)
            lost = missing(given, node.live.spaces[state.name].working)
            if not _has_tried(state, _summary(node, state.name), _summary(aligner, state.name)):
                return f"{node.name} has not tried to repair its set"
            if lost:
                return f"{node.name} lacks what {aligner.name} has: {describe(lost)}"
    return ""


def _unlike(cluster: SimulatedSystem, role: str, members: list[tuple[SimulatedNode, NameSpaceState]]) -> str:
    """Find a Lazy part that differs from the master's groups."""
    master = next((one for one in members if one[1].is_master(one[0].id)), None)
    if master is None or master[1].apart:
        return ""
    for node in cluster.nodes:
        data = node.space(master[1].name)
        if data is None or not data.state.wanted or not data.state.is_lazy:
            continue
        if node.plan.settings.role == role and not data.state.apart:
            reason = _unlike_part(node, data, *master)
            if reason:
                return f"{node.name} {reason}"
    return ""


def _unlike_part(
    node: SimulatedNode, data: NameSpaceData, master: SimulatedNode, theirs: NameSpaceState
) -> str:
    state = data.state
    if (state.following, state.lineage) != (theirs.following, theirs.lineage):
        return f"follows {state.following} in {state.lineage}, not {theirs.following} in {theirs.lineage}"
    if not state.has(state.wanted):
        return "has not obtained what its readers want"
    unchanged_ns = node.live.shared.clock.wall_ns() - state.changed_ns
    if not state.is_level and unchanged_ns > HELD_WITHIN_NS:
        return "has not held its part against the master's set"
    whole = master.live.spaces[state.name].working
    given = {key: sample for key, sample in held(whole).items() if state.has_group(key[0])}
    lost = missing(given, data.working)
    if lost:
        return f"lacks what {master.name} has: {describe(lost)}"
    foreign = missing(held(data.working), whole) if state.policy.aligner else []
    return f"has what {master.name} lacks: {describe(foreign)}" if foreign else ""


def _has_tried(state: NameSpaceState, own: Summary, theirs: Summary) -> bool:
    """Tell whether a repair left a difference between a non-aligner and the others."""
    if own.same_content(theirs):
        return True
    known = [(roll.count, roll.digest) for roll in state.last_repaired or ()]
    return known == [(own.count, own.digest), (theirs.count, theirs.digest)]


def _summary(node: SimulatedNode, name_space: str) -> Summary:
    return node.live.spaces[name_space].working.summary()
