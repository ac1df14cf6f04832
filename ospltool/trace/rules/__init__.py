"""Rules that find anomalies in traces, one function each, and their registry."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from ospltool.output.times import duration, iso
from ospltool.trace.meaning.alignments import AlignmentStep, TracedAlignment
from ospltool.trace.meaning.fact_kinds import Run
from ospltool.trace.meaning.lines import NumberedLines, RecordPlace
from ospltool.trace.meaning.trace_facts import TraceFacts

# Some lines on a screen; `--json` and the case have all.
EVIDENCE: Final = 5
"""Lines of evidence that a finding shows; it counts the others."""

_EVIDENCE: Final = re.compile(r"^Seen: (.+?)^Refuted by: (.+)", re.MULTILINE | re.DOTALL)

Find = Callable[[TraceFacts], Iterable["TraceFinding"]]
Item = TypeVar("Item")
Key = TypeVar("Key")

_MODULES: Final = ("livelock", "masters", "merges", "sets", "alignment", "nodes")


class SetFate(enum.StrEnum):
    """Fate of a set; the worst first."""

    LOST = "lost"
    """No known node kept it."""
    EMPTIED = "emptied"
    """Some nodes discarded it."""
    DIFFERS = "differs"
    """Stores of different nodes do not have the same data."""
    DIVERGED = "diverged"
    """A node had not taken its master's set when the traces ended."""
    THROWN_AWAY = "thrown away"
    """Samples that a node captured while it was cut off were replaced."""
    SHRANK = "shrank"
    """A smaller set replaced a larger one."""
    DAMAGED = "damaged"
    """A store cannot be read in full."""
    EQUAL = "equal"
    """Stores have the same data."""
    DELAYED = "delayed"
    """A node took its master's set late."""
    REPLACED = "replaced"
    """A set replaced another one, and the traces show no difference between them."""
    JOINED = "joined"
    """Sets were joined without loss."""


_HARMLESS: Final = frozenset({SetFate.DELAYED, SetFate.REPLACED, SetFate.JOINED, SetFate.EQUAL})
"""Kinds that are neither a loss nor a lasting difference."""


CODES: Final = {
    "two-masters": "DUL-TWO-MASTERS",
    "set-diverged": "DUL-SET-DIFFERS",
    "conflict-unresolved": "DUL-CONFLICT",
    "merge-storm": "DUL-MERGE",
    "request-unanswered": "DUL-ALIGN-STALLED",
    "alignment-refused": "DUL-INCOMPATIBLE",
    "thread-silent": "DUL-NODE-STUCK",
    "fellow-lost": "DUL-NODE-SILENT",
}
"""Codes by rule. Other rules find what no running system shows, so docs/health has no page for them."""

_CUT_OFF: Final = "DUL-PARTIAL-MESH"
_DIED: Final = "DUL-NODE-GONE"


@dataclasses.dataclass(frozen=True, slots=True)
class TraceFinding:
    """What a rule found in traces, or what traces and stores say of the data.

    It is no `ospltool.diagnostics` finding: its places are records of nodes, at a time, and it has no remedy
    that a program could carry out.
    """

    rule: str
    """Name of the rule; empty if it only says something of the data."""
    title: str
    """One-line description."""
    explanation: str = ""
    """Cause, and advice."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes concerned."""
    evidence: tuple[RecordPlace, ...] = ()
    """First lines that show it."""
    count: int = 0
    """Number of lines that show it."""
    start_ns: int | None = None
    """Its beginning; None if unknown, or if only stores show it."""
    end_ns: int | None = None
    """Its end, or its last line; None if unknown."""
    facts: dict[str, object] = dataclasses.field(default_factory=dict)
    """Figures and names for programs."""
    fate: SetFate | None = None
    """What became of a set; None if it says nothing of the data."""
    group: str = ""
    """The set, partition.topic or the name-space; empty if several are concerned, or none."""

    @property
    def is_harmless(self) -> bool:
        """Whether it tells neither of a fault nor of a lasting difference."""
        return self.fate in _HARMLESS

    @property
    def code(self) -> str:
        """The health code of what it tells of; empty if there is none."""
        if self.rule == "fellow-lost" and self.facts.get("separated"):
            return _CUT_OFF
        if self.rule == "fellow-lost" and self.facts.get("died"):
            return _DIED
        return CODES.get(self.rule, "")

    @property
    def dated(self) -> str:
        """The title, with the time from which it holds."""
        return self.title if self.start_ns is None else f"{iso(self.start_ns, 3)} {self.title}"


def set_finding(
    fate: SetFate,
    title: str,
    start_ns: int | None,
    end_ns: int | None = None,
    nodes: tuple[str, ...] = (),
    group: str = "",
    evidence: tuple[RecordPlace, ...] = (),
    facts: dict[str, object] | None = None,
) -> TraceFinding:
    """Say what became of a set.

    Args:
        fate: what became of it.
        title: sentence with node, group and decision.
        start_ns: first moment at which it holds; None if only stores show it.
        end_ns: last moment at which it holds; None if it holds to the end.
        nodes: names of the nodes concerned.
        group: partition.topic, or the name-space; empty if several are concerned.
        evidence: lines that prove it.
        facts: figures and names for programs.
    """
    return TraceFinding(
        "", title, "", nodes, evidence, len(evidence), start_ns, end_ns, facts or {}, fate, group
    )


@dataclasses.dataclass(frozen=True, slots=True)
class AnomalyRule:
    """A rule of the registry.

    Attributes:
        name: its name.
        looks_for: one-line description of the anomaly.
        seen: evidence that must exist, all of it.
        refuted: evidence that refutes it.
        find: function that finds the anomaly.
    """

    name: str
    looks_for: str
    seen: str
    refuted: str
    find: Find


_rules: dict[str, AnomalyRule] = {}


def rule(name: str, looks_for: str) -> Callable[[Find], Find]:
    """Register a function. Its docstring has the evidence under `Seen:` and `Refuted by:`."""

    def register(function: Find) -> Find:
        assert name not in _rules, name
        told = _EVIDENCE.search(inspect.getdoc(function) or "")
        assert told is not None, f"{name} does not say what must be seen and what would refute it"
        seen, refuted = (" ".join(part.split()) for part in told.groups())
        _rules[name] = AnomalyRule(name, looks_for, seen, refuted, function)
        return function

    return register


def all_rules() -> list[AnomalyRule]:
    """Return all rules, by name."""
    for module in _MODULES:
        importlib.import_module(f"{__name__}.{module}")
    return [_rules[name] for name in sorted(_rules)]


def anomalies(facts: TraceFacts, names: Iterable[str] | None = None) -> list[TraceFinding]:
    """Return the findings of the rules, by time.

    Raises:
        KeyError: there is no rule of a name.
    """
    known = {one.name: one for one in all_rules()}
    chosen = list(known.values()) if names is None else [known[name] for name in names]
    found = itertools.chain.from_iterable(one.find(facts) for one in chosen)
    # By time, as they are read; rule and title, so that the same trace gives the same text.
    return sorted(found, key=lambda finding: (finding.start_ns or 0, finding.rule, finding.title))


def finding(
    name: str,
    title: str,
    explanation: str,
    evidence: Iterable[RecordPlace],
    *,
    since_ns: int | None = None,
    **facts: object,
) -> TraceFinding:
    """Make a finding of a rule from the lines that show it.

    Args:
        name: name of the rule.
        title: one-line description.
        explanation: cause, and advice.
        evidence: lines that show it.
        since_ns: first moment at which all of it holds, if that is not the first line's.
        facts: figures and names for programs.
    """
    places = list(evidence)
    times = [place.time_ns for place in places if place.time_ns is not None]
    nodes = tuple(sorted({place.node for place in places}))
    return TraceFinding(
        name, title, explanation, nodes, tuple(places[:EVIDENCE]), len(places),
        min(times, default=None) if since_ns is None else since_ns,
        max([*times, *([] if since_ns is None else [since_ns])], default=None), dict(facts),
    )  # fmt: skip


def finding_of_lines(
    name: str, title: str, explanation: str, lines: NumberedLines, numbers: Iterable[int], **facts: object
) -> TraceFinding:
    """Make a finding of a rule from many lines that show it, of which only those that are shown are read.

    Args:
        name: name of the rule.
        title: one-line description.
        explanation: cause, and advice.
        lines: the lines.
        numbers: numbers of those that show it.
        facts: figures and names for programs.
    """
    shown = list(numbers)
    times = [time for one in shown if (time := lines.time(one)) is not None]
    return TraceFinding(
        name, title, explanation, tuple(sorted({lines.node(one) for one in shown})),
        tuple(lines.place(one) for one in shown[:EVIDENCE]), len(shown),
        min(times, default=None), max(times, default=None), dict(facts),
    )  # fmt: skip


def lines_of(some: Iterable[TracedAlignment], step: AlignmentStep) -> Iterator[int]:
    """Yield the numbers of the lines of a step of alignments."""
    for one in some:
        line = one.line(step)
        if line is not None:
            yield line


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> Iterator[tuple[Key, list[Item]]]:
    """Yield keys with their items, in the order in which keys came first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    yield from groups.items()


def stopping_ns(facts: TraceFacts, run: Run) -> int | None:
    """Return when a run began to stop in order; None if it did not."""
    return facts.stopping.get(run)


def end_ns(facts: TraceFacts, run: Run) -> int:
    """Return when a run began to stop in order; if it did not, the time of its last record."""
    return stopping_ns(facts, run) or facts.last_ns[run]


def over_ns(facts: TraceFacts, run: Run) -> int:
    """Return when a run began to stop in order or had its last record, whichever is earlier."""
    stops = stopping_ns(facts, run)
    return facts.last_ns[run] if stops is None else min(stops, facts.last_ns[run])


def run_at(facts: TraceFacts, address: str, time_ns: int) -> Run | None:
    """Return the run in which an address was in use at a time; None without its trace."""
    found, began_ns = None, 0
    for run in facts.names.runs_of.get(address, ()):
        first_ns = facts.first_ns[run]
        if first_ns <= time_ns and (found is None or first_ns > began_ns):
            found, began_ns = run, first_ns
    return found


def burst(times: list[int], count: int, within_ns: int) -> bool:
    """Return whether `count` of the times lie within a span."""
    ordered = sorted(times)
    return any(late - early <= within_ns for early, late in zip(ordered, ordered[count - 1 :], strict=False))


def span(first_ns: int, last_ns: int) -> str:
    """Return the time between two moments for people."""
    return duration(last_ns - first_ns)
