"""What every view is computed from, and the signs they share."""

from __future__ import annotations

import dataclasses
from typing import Final

from engine.runtime.monitor import NameSpaceView
from ospltool.live.complaints import Severity
from ospltool.live.feed import Timeline
from ospltool.live.model import Node, SystemModel
from tui.cells import Span, Tone
from tui.filters import Filter
from tui.glyphs import Glyphs

STATES: Final = {
    "DISCOVER_FELLOWS_GROUPS": "discover fellows",
    "DISCOVER_LOCAL_GROUPS": "discover groups",
    "DISCOVER_PERSISTENT_SOURCE": "discover source",
    "INJECT_PERSISTENT": "inject",
}
"""Life-cycle states whose names are longer than a column; the others are shown in lower case."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """What the screens are about: a node, a name-space and a group, by their keys; empty for none."""

    node: str = ""
    name_space: str = ""
    group: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What every view is computed from."""

    model: SystemModel
    now_ns: int
    glyphs: Glyphs
    filter: Filter = dataclasses.field(default_factory=Filter)
    subject: Subject = Subject()


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """What the header says of the console itself.

    `behind_ns` is how long the picture has been frozen.

    `operates` says that this console may change nodes.
    """

    title: str
    source: str
    mode: str
    paused: bool = False
    behind_ns: int = 0
    timeline: Timeline | None = None
    screens: tuple[str, ...] = ()
    operates: bool = False


def state_name(state: str) -> str:
    """The life-cycle state in words."""
    return STATES.get(state) or state.replace("_", " ").lower()


def node_mark(view: View, node: Node) -> Span:
    """The one sign for how a node is."""
    glyphs = view.glyphs
    if node.gone_ns and node.in_order:
        return Span(glyphs.idle, Tone.WARN)
    if node.gone_ns:
        return Span(glyphs.fault, Tone.FAULT)
    if node.is_stale(view.now_ns):
        return Span(glyphs.warn, Tone.WARN)
    if node.snapshot.store.problem:
        return Span(glyphs.fault, Tone.FAULT)
    if node.snapshot.state == "COMPLETE":
        return Span(glyphs.ok, Tone.DIM)
    return Span(glyphs.busy)


def node_state(view: View, node: Node) -> Span:
    """The state in words; a node that is not there has none."""
    if node.gone_ns:
        return Span("stopped", Tone.WARN) if node.in_order else Span("gone", Tone.FAULT)
    if node.is_stale(view.now_ns):
        return Span("silent", Tone.WARN)
    tone = Tone.DIM if node.snapshot.state == "COMPLETE" else Tone.STRONG
    return Span(state_name(node.snapshot.state), tone)


def master_mark(view: View, node: Node, space: NameSpaceView) -> Span:
    """Whether this node is the master, as it sees it."""
    glyphs = view.glyphs
    if space.master != node.id:
        return Span(" ")
    return Span(glyphs.master if space.confirmed else glyphs.unconfirmed, Tone.STRONG)


def name_space_state(view: View, node: Node, space: NameSpaceView) -> tuple[Span, float]:
    """The sign for a name-space on a node, and how complete it is (0 to 1)."""
    glyphs = view.glyphs
    running = [
        progress
        for named, progress in view.model.progress(node)
        if named.name == space.name and progress.alignment.direction == "from"
    ]
    if not space.master and node.snapshot.state == "COMPLETE":
        return Span(glyphs.fault, Tone.FAULT), 1.0 if space.complete else 0.0
    if space.complete:
        if view.model.differs_since(node, space.name, view.now_ns):
            return Span(glyphs.conflict, Tone.WARN), 1.0
        return Span(" "), 1.0
    if running:
        expected = sum(p.alignment.expected for p in running)
        done = sum(p.alignment.samples for p in running) / expected if expected else 0.0
        return Span(glyphs.busy), min(done, 0.999)
    return Span(glyphs.idle), 0.0


def severity_sign(glyphs: Glyphs, severity: Severity) -> tuple[str, Tone]:
    """The sign and the tone of a concern."""
    return {
        Severity.FAULT: (glyphs.fault, Tone.FAULT),
        Severity.CONTRADICTION: (glyphs.conflict, Tone.CONFLICT),
        Severity.WARNING: (glyphs.warn, Tone.WARN),
    }[severity]


def plural(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
