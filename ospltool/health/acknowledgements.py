"""The incidents that an operator knows."""

from __future__ import annotations

from typing import Final

from engine.core.untrusted import Newest
from ospltool.health.codes import SECOND_NS
from ospltool.health.incidents import Incident

# As the incidents that can be open (`MAX_OPEN`); the oldest acknowledgement is forgotten.
MAX_ACKNOWLEDGED: Final = 1_000

# Two watches see one incident at different heartbeats. Chosen above those that are usual.
SOONER_NS: Final = 5 * SECOND_NS
"""Time by which another reader of the same system may have seen an incident sooner."""


class Acknowledgements:
    """The incidents that an operator knows, and how grave they were when the operator said so.

    They are the operator's, and belong to no moment of a recording: an incident that was acknowledged is
    known at each of its moments at which it is not worse.
    """

    def __init__(self) -> None:
        self._known: Newest[str, tuple[Incident, int]] = Newest(MAX_ACKNOWLEDGED)

    def add(self, incident: Incident, now_ns: int) -> None:
        """Note that an operator knows the incident as it is now."""
        self._known[incident.origin] = incident, now_ns

    def at_ns(self, incident: Incident) -> int:
        """Return when the incident was acknowledged; 0 if it was not, or became worse."""
        known = self._known.get(incident.origin) or next(
            (one for one in self._known.values() if _is_same_later(*one, incident)), None
        )
        if known is None:
            return 0
        before, now_ns = known
        is_worse = (incident.severity, -incident.weight) < (before.severity, -before.weight)
        return 0 if is_worse else now_ns


def _is_same_later(before: Incident, acknowledged_ns: int, incident: Incident) -> bool:
    """Return whether an incident is the acknowledged one, seen by a reader who began within it."""
    is_alike = (before.code.cause, before.who) == (incident.code.cause, incident.who)
    return is_alike and before.since_ns - SOONER_NS <= incident.since_ns <= acknowledged_ns
