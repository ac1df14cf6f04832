"""Nodes that should be there and that this console has never heard: rows without a snapshot."""

from __future__ import annotations

import dataclasses
from typing import Final

from ospltool.health.codes import HealthSeverity
from ospltool.health.incident import Incident
from tui import text
from tui.cells import Cell, Line, Span, Tone, single
from tui.viewmodel.base import Rank, View

PREFIX: Final = "unheard "
"""Begins the key of a row whose node has no id that is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class UnheardNode:
    """A node that is known by its name only. `incident` is that about its absence, None without one."""

    name: str
    state: str
    tone: Tone
    rank: Rank
    why: str = ""
    incident: Incident | None = None

    @property
    def key(self) -> str:
        """The key of its row."""
        return PREFIX + self.name

    def cell(self, view: View, key: str, name: str) -> Cell:
        """Return the cell under a column key; `name` is its name as it fits, `view` the source of signs."""
        if key == "mark":
            sign = {Tone.FAULT: view.glyphs.fault, Tone.STRONG: view.glyphs.busy}.get(
                self.tone, view.glyphs.idle
            )
            return single(sign, self.tone)
        if key == "node":
            return single(name)
        return single(self.state, self.tone) if key == "state" else single(view.glyphs.nothing, Tone.DIM)

    def detail(self, view: View) -> list[Line]:
        """Explain it in two lines."""
        since = f"not heard since this console came at {text.clock(view.model.began_ns)} UTC"
        return [
            (Span(f" {self.name}  ", Tone.STRONG), Span(f"{self.state}  {since}", Tone.DIM)),
            (Span(f" {self.why}", Tone.DIM),),
        ]


def unheard_nodes(view: View) -> list[UnheardNode]:
    """Return the nodes that are awaited and were never heard."""
    health = view.health
    told = {one.who: one for one in (*health.muted, *health.open) if one.code.cause == "node"}
    lost = next((one for one in (*health.open, *health.muted) if one.code.cause == "domain"), None)
    found = []
    for name, report in health.unheard.items():
        incident = told.get(name) or lost
        why = report.text if report else ""
        if report and report.in_order:
            found.append(UnheardNode(name, "stopped", Tone.DIM, Rank.STOPPED, why))
        elif report and report.is_starting:
            found.append(UnheardNode(name, "starting", Tone.STRONG, Rank.BUSY, why))
        elif incident is None or incident.severity is HealthSeverity.NOTICE:
            found.append(UnheardNode(name, "not heard yet", Tone.STRONG, Rank.BUSY, why))
        else:
            is_gone = incident.code.id == "DUL-NODE-GONE" or bool(report and report.is_dead)
            state = "gone" if is_gone else "never heard"
            why = why or (incident.why if incident.is_cause_known and incident.who == name else "")
            found.append(UnheardNode(name, state, Tone.FAULT, Rank(incident.severity), why, incident))
    return found
