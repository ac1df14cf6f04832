"""Of which run of a node the report of a supervisor of this machine is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ospltool.health.codes import SECOND_NS
from ospltool.live.nodes import Node
from ospltool.live.supervision import SupervisorReport

ON_THE_WAY_NS: Final = 2 * SECOND_NS
"""Longest time after its end for which the last message of a node may be on the way."""


def has_moved(node: Node, reports: Mapping[str, SupervisorReport], here: frozenset[str]) -> bool:
    """Return whether what this machine knows is not of the run that was heard, which is on another machine.

    Its last report stays here after the node was moved: it tells nothing of the node of today. So it is if
    the node was heard after the end of the run of that report, or after that was seen first.
    """
    report = reports.get(node.snapshot.name)
    if report is None or report.pid or not (report.is_dead or report.in_order):
        return False
    over_ns = report.ended_ns or report.seen_ns
    if over_ns and node.heard_ns > over_ns + ON_THE_WAY_NS:
        return True
    is_elsewhere = bool(here) and here.isdisjoint(node.snapshot.addresses)
    return is_elsewhere and 0 < max(report.started_ns, report.ended_ns) < node.snapshot.started_ns


def has_failed_to_start(node: Node, report: SupervisorReport) -> bool:
    """Return whether a node was stopped in order, and its next start has failed."""
    return node.in_order and report.is_dead and report.started_ns > node.heard_ns
