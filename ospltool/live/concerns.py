"""What a person should look at now, in the whole system, most urgent first, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.core.namespaces import MAX_PRIORITY
from ospltool.live.complaints import Concern, Severity
from ospltool.live.conflicts import Conflict, told_conflicts
from ospltool.live.model import Node, Presence, SystemModel
from ospltool.live.progress import STALLED_NS

SLOW_START_NS: Final = 60_000_000_000
"""A node that starts for longer than this waits for something."""

MAX_CONCERNS: Final = 1_000


def concerns(model: SystemModel, now_ns: int) -> list[Concern]:
    """Everything abnormal at `now_ns`, most urgent and then oldest first; at most a thousand and a count.

    A domain that is out of reach comes before everything that follows from it. A node that has ended in order
    is nobody's concern.
    """
    found: list[Concern] = []
    for node in model.ordered_nodes():
        found.extend(_of_node(model, node, now_ns))
    for instance in model.persistence.ordered():
        found.extend(instance.concerns(now_ns))
    found.extend(_disagreements(model))
    found.extend(_of_conflicts(model))
    found.extend(_mixed_priorities(model))
    found.sort(key=lambda c: (c.severity, c.since_ns or now_ns, c.node, c.name_space, c.text))
    found[:0] = _of_domain(model)
    if model.messages_left_out:
        text = f"{model.messages_left_out:,} messages did not fit and are not shown"
        found.append(Concern(Severity.WARNING, text))
    if len(found) > MAX_CONCERNS:
        more = Concern(Severity.WARNING, f"at least {len(found) - MAX_CONCERNS:,} more")
        found[MAX_CONCERNS:] = [more]
    return found


def _of_domain(model: SystemModel) -> Iterator[Concern]:
    if not model.domain_lost_ns:
        return
    nodes = model.nodes.values()
    if nodes and all(node.gone_ns and node.in_order for node in nodes):
        yield Concern(Severity.WARNING, "every node has ended in order", model.domain_lost_ns)
    else:
        yield Concern(Severity.FAULT, "the domain is out of reach", model.domain_lost_ns)


def _of_node(model: SystemModel, node: Node, now_ns: int) -> Iterator[Concern]:
    snapshot, presence = node.snapshot, node.presence(now_ns)
    if presence is Presence.GONE:
        yield Concern(Severity.FAULT, f"{snapshot.name} is gone", node.gone_ns, node.id)
    elif presence is Presence.SILENT:
        yield Concern(Severity.WARNING, f"{snapshot.name} is silent", node.heard_ns, node.id)
    if presence is not Presence.HEARD:
        return
    starting = snapshot.state not in ("COMPLETE", "TERMINATING", "TERMINATED")
    if starting and now_ns - snapshot.started_ns > SLOW_START_NS:
        state = snapshot.state.replace("_", " ").lower()
        yield Concern(Severity.WARNING, f"{snapshot.name} still in {state}", snapshot.started_ns, node.id)
    yield from node.complaints
    lost, since_ns = model.losses.of(snapshot)
    if lost:
        yield Concern(Severity.WARNING, f"{snapshot.name} lost {lost:,} samples", since_ns, node.id)
    for name in model.differing(node):
        since_ns = model.differs_since(node, name, now_ns)
        if since_ns:
            yield Concern(Severity.WARNING, _difference(model, node, name), since_ns, node.id, name)
    yield from _of_alignments(model, node, now_ns)


def _difference(model: SystemModel, node: Node, name: str) -> str:
    view = node.name_spaces[name]
    master = model.nodes.get(view.master)
    called = model.name_of(view.master)
    text = f"{name} on {node.snapshot.name} differs from its master {called}"
    theirs = master.name_spaces.get(name) if master else None
    if view.aligner or theirs is None:
        return text
    return (
        f"{text}: it is no aligner, so what only it holds stays there "
        f"({view.count:,} samples, {called} has {theirs.count:,}); make it an aligner to give them to all"
    )


def _of_alignments(model: SystemModel, node: Node, now_ns: int) -> Iterator[Concern]:
    for view, progress in model.progress(node):
        if progress.alignment.direction == "from" and now_ns - progress.moved_ns > STALLED_NS:
            source = model.name_of(progress.alignment.fellow)
            text = f"{view.name} on {node.snapshot.name}: alignment from {source} stands still"
            yield Concern(Severity.WARNING, text, progress.moved_ns, node.id, view.name)


def _of_conflicts(model: SystemModel) -> Iterator[Concern]:
    """The open conflicts, each once although both sides tell; incompatible fellows are complaints."""
    told: dict[tuple[str, frozenset[str]], Conflict] = {}
    for one in told_conflicts(model):
        if one.ended_ns or one.is_incompatibility:
            continue
        pair = (one.name_space, frozenset((one.node_name, one.fellow)))
        if pair not in told or one.began_ns < told[pair].began_ns:
            told[pair] = one
    for one in told.values():
        merge = f", merging by {one.policy}" if one.policy else ""
        text = f"{one.name_space}: {one.node_name} and {one.fellow}: {one.cause}{merge}"
        yield Concern(Severity.CONTRADICTION, text, one.began_ns, one.node, one.name_space)


def _disagreements(model: SystemModel) -> Iterator[Concern]:
    """Two confirmed masters for one name-space in one role, told by nodes that are there."""
    for name_space, role, told in model.contested():
        tellers: dict[str, str] = {}
        for teller, master in sorted(told.items()):
            tellers.setdefault(master, model.name_of(teller))
        said = ", ".join(f"{model.name_of(m)} (says {by})" for m, by in sorted(tellers.items()))
        text = f"{name_space}, role {role}: {len(tellers)} masters: {said}"
        yield Concern(Severity.CONTRADICTION, text, 0, "", name_space)


def _mixed_priorities(model: SystemModel) -> Iterator[Concern]:
    """MasterPriority 255, the legacy rule, beside other values among the aligners of a role."""
    used: dict[tuple[str, str], dict[int, str]] = {}
    for node in model.ordered_nodes():
        for view in node.name_spaces.values():
            if view.aligner and view.master_priority and not node.gone_ns:
                place = used.setdefault((view.name, node.snapshot.role), {})
                place.setdefault(view.master_priority, node.snapshot.name)
    for (name_space, role), names in sorted(used.items()):
        if MAX_PRIORITY in names and len(names) > 1:
            said = ", ".join(f"{priority} ({name})" for priority, name in sorted(names.items()))
            text = f"{name_space}, role {role}: masterPriority 255 beside other values: {said}"
            yield Concern(Severity.WARNING, text, 0, "", name_space)
