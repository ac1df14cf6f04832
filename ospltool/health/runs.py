"""Of which run of a node the report of a supervisor of this machine is."""

from __future__ import annotations

from collections.abc import Mapping

from ospltool.live.nodes import Node
from ospltool.live.supervision import SupervisorReport


def has_moved(node: Node, reports: Mapping[str, SupervisorReport], here: frozenset[str]) -> bool:
    """Return whether what this machine knows is of a run before the one that was heard, on another machine.

    Its last report stays there after the node was moved: it tells nothing of the node of today.
    """
    report = reports.get(node.snapshot.name)
    if report is None or report.pid:
        return False
    if report.ended_ns:
        return report.ended_ns < node.snapshot.started_ns
    is_elsewhere = bool(here) and here.isdisjoint(node.snapshot.addresses)
    return is_elsewhere and 0 < report.started_ns < node.snapshot.started_ns


def has_failed_to_start(node: Node, report: SupervisorReport) -> bool:
    """Return whether a node was stopped in order, and its next start has failed."""
    return node.in_order and report.is_dead and report.started_ns > node.heard_ns
