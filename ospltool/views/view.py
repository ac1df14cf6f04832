"""The input of all screens with its filter, their common signs, and the order of nodes: trouble first."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from engine.runtime.monitor import NameSpaceView
from ospltool.diagnostics.model import Severity
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.health.verdict import STARTING, UNKNOWN, SystemVerdict
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node
from ospltool.live.supervision import SupervisorReport
from ospltool.views import text
from ospltool.views.cells import Cell, Glyphs, Line, Span, Tone, single


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """One word in lower case: looked for in `field`, or in every field when that is empty; `raw` as typed."""

    word: str
    field: str = ""
    inverse: bool = False
    raw: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Terms that must all hold. The empty filter matches everything."""

    terms: tuple[Term, ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms)

    @classmethod
    def parse(cls, text: str, fields: tuple[str, ...] = ()) -> Filter:
        """Parse a filter. Every text is one: a prefix that is not a field of the view belongs to the word."""
        terms = []
        for word in text.split():
            inverse = word.startswith("!")
            rest = word[1:] if inverse else word
            name, colon, value = rest.partition(":")
            field = name.lower() if colon and name.lower() in fields else ""
            wanted = value if field else rest
            if wanted:
                terms.append(Term(wanted.casefold(), field, inverse, wanted))
        return cls(tuple(terms), text.strip())

    def matches(self, values: Mapping[str, str], skip: tuple[str, ...] = ()) -> bool:
        """Return whether every term holds for `values`, except for terms on a field in `skip`."""
        return all(self._holds(term, values) for term in self.terms if term.field not in skip)

    def matches_field(self, field: str, value: str) -> bool:
        """Return whether the terms that aim at `field` hold for `value`."""
        aimed = [term for term in self.terms if term.field == field]
        return all((term.word in value.casefold()) is not term.inverse for term in aimed)

    @staticmethod
    def _holds(term: Term, values: Mapping[str, str]) -> bool:
        texts = [values.get(term.field, "")] if term.field else list(values.values())
        return any(term.word in text.casefold() for text in texts) is not term.inverse


STATES: Final = {
    "DISCOVER_FELLOWS_GROUPS": "discover fellows",
    "DISCOVER_LOCAL_GROUPS": "discover groups",
    "DISCOVER_PERSISTENT_SOURCE": "discover source",
    "INJECT_PERSISTENT": "inject",
}
"""Life-cycle states whose names are longer than a column; the others are shown in lower case."""


INCOMPATIBLE: Final = "incompatible"
ALIGNING: Final = "aligning"
"""State of a node that is complete but for a name-space that it merges or fetches."""

_STATE_TONES: Final = {
    "COMPLETE": Tone.DIM,
    Presence.STOPPED.value: Tone.DIM,
    Presence.GONE.value: Tone.FAULT,
    Presence.SILENT.value: Tone.WARN,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a screen, by keys: a node, a name-space, a topic and so on; empty for none."""

    node: str = ""
    name_space: str = ""
    incident: str = ""
    topic: str = ""
    application: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The input of every view; `health` is that of the model, at its last update.

    `where` tells where no node was heard, and what to do then; `faults_only` hides healthy nodes.
    """

    health: Health
    now_ns: int
    glyphs: Glyphs
    filter: Filter = dataclasses.field(default_factory=Filter)
    subject: Subject = Subject()
    where: str = ""
    faults_only: bool = False

    @property
    def model(self) -> SystemModel:
        """Model of the system."""
        return self.health.model

    def is_heard(self, node_id: str) -> bool:
        """Return whether the node with this id is heard."""
        node = self.model.nodes.get(node_id)
        return node is not None and not self.is_stale(node)

    def presence(self, node: Node) -> Presence:
        """Return the presence of a node at the moment of which the incidents tell."""
        return self.health.presence(node)

    def absence(self, node_id: str) -> str:
        """Return what became of a node (id) that is not heard; empty if it is, or is not awaited."""
        node = self.model.nodes.get(node_id)
        if node is not None:
            presence = self.presence(node)
            return "" if presence is Presence.HEARD else presence.value
        name = self.model.name_of(node_id)
        return next((one.state for one in unheard_nodes(self) if one.name == name), "")

    def is_stale(self, node: Node) -> bool:
        """Return whether the node is not heard, so that its snapshot may be out of date."""
        return not self.health.is_heard(node)

    @property
    def examined_ns(self) -> int:
        """The moment to which the incidents and the presence of nodes belong."""
        return self.health.examined_ns(self.now_ns)

    def is_refused(self, node: Node) -> bool:
        """Return whether the node is the one that does not fit its fellows."""
        found = (one for one in self.health.open if one.code.id == "DUL-INCOMPATIBLE")
        return any(one.subjects == (node.id,) for one in found) and self.is_heard(node.id)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of all nodes, which a cut name must still be told apart from."""
        return tuple(node.snapshot.name for node in self.model.nodes.values())

    @property
    def is_anybody_heard(self) -> bool:
        """Whether a node is heard."""
        return any(map(self.is_heard, self.model.nodes))


AGES: Final = ("since", "newest", "heard", "heartbeat")
"""Values that are moments, and that tables show as ages."""

_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    **dict.fromkeys(("samples", "instances", "lost", "nodes"), lambda value: text.count(int(value))),
    "bytes": lambda value: text.size(int(value)),
    **dict.fromkeys(("disk_bytes", "memory_bytes"), lambda value: text.size(int(value)) if value else ""),
    "rate": lambda value: f"{text.count(round(value))}/s" if value else "",
    "left": lambda value: text.age(int(value * 1e9)),
    "percent": text.percent,
}


def shown(view: View, key: str, value: object) -> str:
    """Return a fact as tables show it: figures, sizes and ages in short, names joined.

    Args:
        view: its moment is that of ages.
        key: the name of the fact, which says what it is.
        value: a number, time, text or names; None for what is not known.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if key in AGES:
            return text.age(view.now_ns - int(value)) if value else ""
        return _SHOWN[key](value) if key in _SHOWN else str(value)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


JITTER_S: Final = 3
"""Sets that are written differ by what is written in this time, as snapshots of two nodes are never alike."""


def state_name(state: str) -> str:
    """Return the life-cycle state in words."""
    return STATES.get(state) or state.replace("_", " ").lower()


def node_mark(view: View, node: Node) -> Span:
    """Return the one sign for how a node is."""
    glyphs = view.glyphs
    presence = view.presence(node)
    if presence is not Presence.HEARD:
        return {
            Presence.STOPPED: Span(glyphs.idle, Tone.DIM),
            Presence.GONE: Span(glyphs.fault, Tone.FAULT),
            Presence.SILENT: Span(glyphs.warn, Tone.WARN),
        }[presence]
    if node.snapshot.store.problem:
        return Span(glyphs.fault, Tone.FAULT)
    if view.is_refused(node):
        return Span(glyphs.conflict, Tone.CONFLICT)
    return Span(glyphs.ok, Tone.DIM) if node.is_settled else Span(glyphs.busy)


def node_state(view: View, node: Node) -> Span:
    """Return the state in words; of a node that is not heard, what became of it."""
    if view.is_refused(node):
        return Span(INCOMPATIBLE, Tone.CONFLICT)
    presence = view.presence(node)
    state = node.snapshot.state if presence is Presence.HEARD else presence.value
    if state == "COMPLETE" and not node.is_settled:
        state = ALIGNING
    tone = _STATE_TONES.get(state, Tone.STRONG)
    return Span(state_name(state), tone)


def since_heard(view: View, node: Node) -> str:
    """Return how long a node has been up, or for how long it has not been heard."""
    presence = view.presence(node)
    if presence is Presence.HEARD:
        return f"up {text.age(view.now_ns - node.snapshot.started_ns)}"
    since_ns = (presence is Presence.STOPPED and node.gone_ns) or node.heard_ns  # a loss is dated from then
    return f"{presence} since {text.clock_in_zone(since_ns)}"


def master_mark(view: View, node: Node, space: NameSpaceView) -> Span:
    """Return whether this node is the master, as it sees it; a node that is gone is not."""
    glyphs = view.glyphs
    if not view.health.is_master(node, space.name):
        return Span(" ")
    return Span(
        glyphs.master if space.confirmed else glyphs.unconfirmed,
        master_tone(view, node.snapshot.role, space.name),
    )


def master_tone(view: View, role: str, name_space: str) -> Tone:
    """Return the tone of a master's star: a fault if the role has several masters."""
    return Tone.FAULT if view.health.is_contested(name_space, role) else Tone.STRONG


def name_space_state(view: View, node: Node, space: NameSpaceView) -> tuple[Span, float]:
    """Return the sign for a name-space on a node, and how complete it is (0 to 1).

    A set that is not complete may hold most samples all the same: that of a node that merges, or that waits
    for its master after a restart. What it holds counts against the largest set of the name-space.
    """
    glyphs = view.glyphs
    if not space.complete and space.is_at_rest:
        return Span(glyphs.nothing, Tone.DIM), view.model.sets.share_held(node, space.name)
    if not space.master and node.snapshot.state == "COMPLETE":
        return Span(glyphs.fault, Tone.FAULT), 1.0 if space.complete else 0.0
    if space.complete:
        if view.health.is_split(space.name):
            return Span(glyphs.conflict, Tone.WARN), view.model.sets.share_held(node, space.name)
        if view.model.sets.differs_since(node, space.name, view.now_ns):
            return Span(glyphs.conflict, Tone.WARN), 1.0
        return Span(" "), 1.0
    held = view.model.sets.share_held(node, space.name)
    running = [one for one in space.alignments if one.direction == "from"]
    if running:
        expected = sum(one.expected for one in running)
        done = sum(one.samples for one in running) / expected if expected else 0.0
        return Span(glyphs.busy), min(max(done, held), 0.999)
    return Span(glyphs.idle), min(held, 0.999)


def difference(view: View, node: Node, space: NameSpaceView) -> tuple[str, Tone]:
    """Return by how many samples a complete set differs from that of its master; empty if it does not."""
    glyphs = view.glyphs
    master = view.model.nodes.get(space.master)
    theirs = master.name_spaces.get(space.name) if master else None
    if master is None or theirs is None or master.id == node.id or space.filtered:
        return "", Tone.DIM
    if not (space.complete and theirs.complete):
        return "", Tone.DIM
    count = space.count - theirs.count
    is_settled = bool(view.model.sets.differs_since(node, space.name, view.now_ns))
    series = view.model.series.get(master.id)
    rate = (series.rate_per_s("stored") or 0.0) if series else 0.0
    if not count or not (is_settled or abs(count) > rate * JITTER_S):
        return "", Tone.WARN if is_settled else Tone.DIM
    word, sign = ("behind", glyphs.falling) if count < 0 else ("ahead", glyphs.rising)
    return f"{sign}{text.count(abs(count))} {word}", Tone.WARN if is_settled else Tone.PLAIN


def severity_sign(glyphs: Glyphs, severity: Severity) -> tuple[str, Tone]:
    """Return the sign and the tone of an incident."""
    return {
        Severity.ERROR: (glyphs.fault, Tone.FAULT),
        Severity.WARNING: (glyphs.warn, Tone.WARN),
        Severity.NOTICE: (glyphs.idle, Tone.DIM),
    }[severity]


def verdict_sign(view: View, verdict: SystemVerdict) -> tuple[str, Tone]:
    """Return the sign and the tone of a verdict."""
    if verdict.word == STARTING:
        return view.glyphs.busy, Tone.STRONG
    if verdict.worst in (None, Severity.NOTICE):
        return view.glyphs.idle if verdict.word == UNKNOWN else view.glyphs.ok, Tone.DIM
    return severity_sign(view.glyphs, verdict.worst)


class Rank(enum.IntEnum):
    """Urgency of a node, most urgent first; the first two are severities of incidents."""

    ERROR = 0
    WARNING = 1
    BUSY = 2
    CALM = 3
    STOPPED = 4


def ranks(view: View, incidents: Sequence[Incident]) -> Mapping[str, Rank]:
    """Return the rank of every node, by its id."""
    found = {node_id: _rank(view, node) for node_id, node in view.model.nodes.items()}
    for incident in incidents:
        if incident.severity is not Severity.NOTICE:
            for node in incident.subjects:
                if node in found:
                    found[node] = min(found[node], Rank(incident.severity))
    return found


def _rank(view: View, node: Node) -> Rank:
    presence = view.presence(node)
    if presence is Presence.GONE:
        return Rank.ERROR
    if presence is Presence.SILENT:
        return Rank.WARNING
    if presence is Presence.STOPPED:
        return Rank.STOPPED
    return Rank.CALM if node.is_settled else Rank.BUSY


PREFIX: Final = "unheard "
"""Begins the key of a row whose node has no id that is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class UnheardNode:
    """A node that is known by its name only.

    `incident` is that about its absence, None without one; `heard_ns` is when a fellow heard it last, 0 if
    none tells.
    """

    name: str
    state: str
    tone: Tone
    rank: Rank
    why: str = ""
    incident: Incident | None = None
    heard_ns: int = 0

    @property
    def key(self) -> str:
        """The key of its row."""
        return PREFIX + self.name

    def cell(self, view: View, key: str, name: str) -> Cell:
        """Return the cell under a column key; `name` is its name as it fits, `view` the source of signs."""
        if key == "mark":
            signs = {
                Tone.FAULT: view.glyphs.fault,
                Tone.WARN: view.glyphs.warn,
                Tone.STRONG: view.glyphs.busy,
            }
            sign = signs.get(self.tone, view.glyphs.idle)
            return single(sign, self.tone)
        if key == "node":
            return single(name)
        if key in ("heard", "heartbeat") and self.heard_ns:
            return single(text.age(view.now_ns - self.heard_ns), Tone.WARN)
        return single(self.state, self.tone) if key == "state" else single(view.glyphs.nothing, Tone.DIM)

    def detail(self, view: View) -> list[Line]:
        """Explain it in two lines."""
        since = f"not heard since this watch began at {text.clock_in_zone(view.model.began_ns)}"
        since += f", heard by its fellows at {text.clock_in_zone(self.heard_ns)}" if self.heard_ns else ""
        return [
            (Span(f" {self.name}  ", Tone.STRONG), Span(f"{self.state}  {since}", Tone.DIM)),
            (Span(f" {self.why}", Tone.DIM),),
        ]


def unheard_nodes(view: View) -> list[UnheardNode]:
    """Return the nodes that are awaited and were never heard."""
    health = view.health
    told = {one.who: one for one in (*health.muted, *health.open) if one.code.cause == "node"}
    lost = next((one for one in (*health.open, *health.muted) if one.code.cause == "domain"), None)
    return [
        dataclasses.replace(one, heard_ns=health.last_heard_ns(one.name))
        for one in (_unheard(name, report, told.get(name) or lost) for name, report in health.unheard.items())
    ]


def _unheard(name: str, report: SupervisorReport | None, incident: Incident | None) -> UnheardNode:
    """Return a node that was never heard, with what became of it by its supervisor or its incident."""
    why = report.text if report else ""
    if report and report.in_order:
        return UnheardNode(name, "stopped", Tone.DIM, Rank.STOPPED, why)
    if report and report.is_starting:
        return UnheardNode(name, "starting", Tone.STRONG, Rank.BUSY, why)
    if incident is None or incident.severity is Severity.NOTICE:
        return UnheardNode(name, "not heard yet", Tone.STRONG, Rank.BUSY, why)
    state = _STATES_OF.get(incident.code.id, "never heard")
    if report and (report.never_ran or report.is_dead):
        state = "did not start" if report.never_ran else "gone"
    tone = Tone.FAULT if incident.severity is Severity.ERROR else Tone.WARN
    why = why or (incident.why if incident.is_cause_known and incident.who == name else "")
    return UnheardNode(name, state, tone, Rank(incident.severity), why, incident)


_STATES_OF: Final = {"DUL-NODE-GONE": "gone", "DUL-NODE-SILENT": "silent"}
"""States of nodes that were never heard, by the codes of their incidents."""


def lacking_words(view: View, node: Node, space: NameSpaceView) -> str:
    """Return why a node does not hold a name-space whole: whom it aligns with, or the phase it waits in."""
    if space.is_at_rest:
        return ""
    share = text.percent(name_space_state(view, node, space)[1])
    sources = [view.model.name_of(one.fellow) for one in space.alignments if one.direction == "from"]
    if sources:
        return f"{node.snapshot.name}: {share}, from {', '.join(sources)}"
    return f"{node.snapshot.name}: {share}, waits in phase {space.phase}"
