"""Which nodes come first: those in trouble."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from ospltool.health.codes import HealthSeverity
from ospltool.health.incidents import Incident
from ospltool.live.nodes import Node, Presence
from tui.viewmodel.base import View


class Rank(enum.IntEnum):
    """Urgency of a node, most urgent first; the first two are severities of incidents."""

    ERROR = 0
    WARNING = 1
    BUSY = 2
    STOPPED = 3
    CALM = 4


def ranks(view: View, incidents: Sequence[Incident]) -> Mapping[str, Rank]:
    """Return the rank of every node, by its id."""
    found = {node.id: _rank(view, node) for node in view.model.nodes.values()}
    for incident in incidents:
        if incident.severity is not HealthSeverity.NOTICE:
            for node in incident.subjects:
                if node in found:
                    found[node] = min(found[node], Rank(incident.severity))
    return found


def _rank(view: View, node: Node) -> Rank:
    presence = node.presence(view.now_ns)
    if presence is Presence.GONE:
        return Rank.ERROR
    if presence is Presence.SILENT:
        return Rank.WARNING
    if presence is Presence.STOPPED:
        return Rank.STOPPED
    return Rank.CALM if node.is_settled else Rank.BUSY
