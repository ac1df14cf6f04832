"""What a person should look at now, most urgent first, and since when."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterator
from typing import Final

from engine.runtime.monitor import FellowView, NameSpaceView
from ospltool.live.model import Node, SystemModel
from ospltool.live.progress import STALLED_NS

SLOW_START_NS: Final = 60_000_000_000
"""A node that starts for longer than this waits for something."""

MAX_SKEW_NS: Final = 1_000_000_000
MAX_CONCERNS: Final = 1_000


class Severity(enum.IntEnum):
    """How urgent, most urgent first. CONTRADICTION: two nodes state facts that can not both hold."""

    FAULT = 0
    CONTRADICTION = 1
    WARNING = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Concern:
    """One thing that is not as it should be. `since_ns` is 0 when nothing tells."""

    severity: Severity
    text: str
    since_ns: int = 0
    node: str = ""
    name_space: str = ""


def concerns(model: SystemModel, now_ns: int) -> list[Concern]:
    """Everything abnormal at `now_ns`, most urgent and then oldest first; at most a thousand and a count."""
    found: list[Concern] = []
    if model.domain_lost_ns:
        found.append(Concern(Severity.FAULT, "the domain is out of reach", model.domain_lost_ns))
    for node in model.ordered_nodes():
        found.extend(_of_node(model, node, now_ns))
        if len(found) > MAX_CONCERNS:
            break
    found.extend(_disagreements(model))
    found.sort(key=lambda c: (c.severity, c.since_ns or now_ns, c.node, c.name_space, c.text))
    left_out = model.dropped + model.nodes_left_out
    if left_out:
        found.append(Concern(Severity.WARNING, f"{left_out:,} messages did not fit and are not shown"))
    if len(found) > MAX_CONCERNS:
        more = Concern(Severity.WARNING, f"at least {len(found) - MAX_CONCERNS:,} more")
        found[MAX_CONCERNS:] = [more]
    return found


def _of_node(model: SystemModel, node: Node, now_ns: int) -> Iterator[Concern]:
    snapshot = node.snapshot
    if node.gone_ns:
        yield Concern(Severity.FAULT, f"{snapshot.name} is gone", node.gone_ns, node.id)
        return
    if node.is_stale(now_ns):
        yield Concern(Severity.WARNING, f"{snapshot.name} is silent", node.heard_ns, node.id)
        return
    if snapshot.store.problem:
        yield Concern(Severity.FAULT, f"{snapshot.name} store: {snapshot.store.problem}", 0, node.id)
    starting = snapshot.state not in ("COMPLETE", "TERMINATING", "TERMINATED")
    if starting and now_ns - snapshot.started_ns > SLOW_START_NS:
        state = snapshot.state.replace("_", " ").lower()
        yield Concern(Severity.WARNING, f"{snapshot.name} still in {state}", snapshot.started_ns, node.id)
    for fellow in snapshot.fellows:
        yield from _of_fellow(node, fellow)
    for view in snapshot.name_spaces:
        yield from _of_name_space(model, node, view, now_ns)
    yield from _of_alignments(model, node, now_ns)
    lost = sum(group.lost for group in snapshot.groups)
    if lost:
        yield Concern(Severity.WARNING, f"{snapshot.name} lost {lost:,} samples", 0, node.id)
    for delivery in snapshot.deliveries:
        if delivery.state == "failed":
            text = f"{snapshot.name} could not serve a reader of {delivery.topic}: {delivery.problem}"
            yield Concern(Severity.FAULT, text, delivery.finished_ns, node.id)


def _of_fellow(node: Node, fellow: FellowView) -> Iterator[Concern]:
    me = node.snapshot.name
    if fellow.communication == "incompatible":
        text = f"{me} and {fellow.name} do not communicate: {fellow.problem}"
        yield Concern(Severity.CONTRADICTION, text, 0, node.id)
    if abs(fellow.skew_ns) > MAX_SKEW_NS:
        text = f"clock of {fellow.name} is {fellow.skew_ns / 1e9:+.1f} s off, as {me} sees it"
        yield Concern(Severity.WARNING, text, 0, node.id)


def _of_name_space(model: SystemModel, node: Node, view: NameSpaceView, now_ns: int) -> Iterator[Concern]:
    me = node.snapshot.name
    if not view.master and node.snapshot.state == "COMPLETE":
        yield Concern(Severity.FAULT, f"{view.name} has no master on {me}: {view.why}", 0, node.id, view.name)
    since_ns = model.differs_since(node, view.name, now_ns)
    if since_ns:
        text = f"{view.name} on {me} differs from its master {model.name_of(view.master)}"
        yield Concern(Severity.WARNING, text, since_ns, node.id, view.name)


def _of_alignments(model: SystemModel, node: Node, now_ns: int) -> Iterator[Concern]:
    for view, progress in model.progress(node):
        if progress.alignment.direction == "from" and now_ns - progress.moved_ns > STALLED_NS:
            source = model.name_of(progress.alignment.fellow)
            text = f"{view.name} on {node.snapshot.name}: alignment from {source} stands still"
            yield Concern(Severity.WARNING, text, progress.moved_ns, node.id, view.name)


def _disagreements(model: SystemModel) -> Iterator[Concern]:
    """Two confirmed masters for one name-space in one role, told by nodes that are there."""
    masters: dict[tuple[str, str], dict[str, str]] = collections.defaultdict(dict)
    for node in model.ordered_nodes():
        if node.gone_ns:
            continue
        for view in node.snapshot.name_spaces:
            if view.confirmed and view.master:
                masters[view.name, node.snapshot.role].setdefault(view.master, node.snapshot.name)
    for (name_space, role), named in sorted(masters.items()):
        if len(named) > 1:
            told = ", ".join(f"{model.name_of(m)} (says {by})" for m, by in sorted(named.items()))
            text = f"{name_space}, role {role}: {len(named)} masters: {told}"
            yield Concern(Severity.CONTRADICTION, text, 0, "", name_space)
