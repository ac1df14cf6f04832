"""Anomalies: what an expert would find in traces. One function per rule, found through a registry."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import re
from typing import TYPE_CHECKING, Final, TypeVar

from ospltool.trace.views.times import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ospltool.trace.meaning.exchanges import Place
    from ospltool.trace.meaning.fact_kinds import Run
    from ospltool.trace.meaning.facts import Facts

EVIDENCE: Final = 5
"""Lines of evidence that a finding shows; it says how many more there are."""

_EVIDENCE: Final = re.compile(r"^Seen: (.+?)^Refuted by: (.+)", re.MULTILINE | re.DOTALL)

Item = TypeVar("Item")
Key = TypeVar("Key")

_MODULES: Final = ("livelock", "masters", "merges", "sets", "divergence", "alignment", "health")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        rule: the rule that found it.
        title: what, in one line.
        explanation: why, and what to do about it.
        nodes: where.
        evidence: the lines that show it, the first ones.
        count: how many lines show it.
        start_ns: when it began.
        end_ns: when it ended, or was last seen.
        facts: figures and names, for programs.
    """

    rule: str
    title: str
    explanation: str
    nodes: tuple[str, ...]
    evidence: tuple[Place, ...]
    count: int
    start_ns: int | None
    end_ns: int | None
    facts: dict[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        name: its name.
        looks_for: what it looks for, in a line.
        seen: what must be seen, all of it.
        refuted: what would refute it.
        find: the function that looks.
    """

    name: str
    looks_for: str
    seen: str
    refuted: str
    find: Callable[[Facts], Iterable[Finding]]


_rules: dict[str, Rule] = {}


def rule(
    name: str, looks_for: str
) -> Callable[[Callable[[Facts], Iterable[Finding]]], Callable[[Facts], Iterable[Finding]]]:
    """Enters a function into the registry. Its docstring says under `Seen:` and `Refuted by:` what counts."""

    def register(function: Callable[[Facts], Iterable[Finding]]) -> Callable[[Facts], Iterable[Finding]]:
        assert name not in _rules, name
        told = _EVIDENCE.search(inspect.getdoc(function) or "")
        assert told is not None, f"{name} does not say what must be seen and what would refute it"
        seen, refuted = (" ".join(part.split()) for part in told.groups())
        _rules[name] = Rule(name, looks_for, seen, refuted, function)
        return function

    return register


def all_rules() -> list[Rule]:
    """All rules, by name."""
    for module in _MODULES:
        importlib.import_module(f"{__name__}.{module}")
    return [_rules[name] for name in sorted(_rules)]


def anomalies(facts: Facts, names: Iterable[str] | None = None) -> list[Finding]:
    """What the rules find, by time.

    Raises:
        KeyError: there is no rule of a name.
    """
    known = {one.name: one for one in all_rules()}
    chosen = list(known.values()) if names is None else [known[name] for name in names]
    found = itertools.chain.from_iterable(one.find(facts) for one in chosen)
    return sorted(found, key=lambda finding: (finding.start_ns or 0, finding.rule, finding.title))


def finding(
    name: str,
    title: str,
    explanation: str,
    evidence: Iterable[Place],
    *,
    since_ns: int | None = None,
    **facts: object,
) -> Finding:
    """A finding of a rule from the lines that show it.

    Args:
        name: the rule.
        title: what, in one line.
        explanation: why, and what to do about it.
        evidence: the lines.
        since_ns: the first moment at which all of it holds, when that is not the first line's.
        facts: figures and names, for programs.
    """
    places = list(evidence)
    times = [place.time_ns for place in places if place.time_ns is not None]
    nodes = tuple(sorted({place.node for place in places}))
    return Finding(
        name, title, explanation, nodes, tuple(places[:EVIDENCE]), len(places),
        min(times, default=None) if since_ns is None else since_ns,
        max([*times, *([] if since_ns is None else [since_ns])], default=None), dict(facts),
    )  # fmt: skip


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> Iterator[tuple[Key, list[Item]]]:
    """Items by key, in the order in which keys came first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    yield from groups.items()


def stopping_ns(facts: Facts, run: Run) -> int | None:
    """When a run began to stop in order; None when it did not."""
    return facts.stopping.get(run)


def end_ns(facts: Facts, run: Run) -> int:
    """When a run began to stop in order; the time of its last record when it did not."""
    return stopping_ns(facts, run) or facts.last_ns[run]


def over_ns(facts: Facts, run: Run) -> int:
    """When a run ended for those who judge it: when it began to stop in order, or with its last record."""
    stops = stopping_ns(facts, run)
    return facts.last_ns[run] if stops is None else min(stops, facts.last_ns[run])


def run_at(facts: Facts, address: str, time_ns: int) -> Run | None:
    """The run in which an address was in use at a time; None when its trace is not here."""
    runs = [run for run in facts.names.runs_of.get(address, ()) if facts.first_ns[run] <= time_ns]
    return max(runs, key=lambda run: facts.first_ns[run], default=None)


def burst(times: list[int], count: int, within_ns: int) -> bool:
    """Whether `count` of the times lie within a span."""
    ordered = sorted(times)
    return any(late - early <= within_ns for early, late in zip(ordered, ordered[count - 1 :], strict=False))


def plural(count: int, word: str) -> str:
    """`1 merge`, `2 merges`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def span(first_ns: int, last_ns: int) -> str:
    """How long something took, for people."""
    return duration(last_ns - first_ns)
