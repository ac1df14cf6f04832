"""The verdict on the data: sets that were emptied, replaced, left behind or joined; where, when and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from ospltool.forensics import merged
from ospltool.forensics.conclusion import Conclusion, SetFate, dated
from ospltool.trace.meaning.fact_kinds import SetSize
from ospltool.trace.meaning.sizes import sizes
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import Anomaly

NO_TRACE: Final = "there is no trace"
"""Beginning of the sentences about the most important unknown things."""

_ORDER: Final = list(SetFate)


@dataclasses.dataclass(frozen=True, slots=True)
class DataVerdict:
    """The conclusions about the data.

    Attributes:
        conclusions: the worst first, those of one kind by time.
        unknown: sentences about what remains unknown, and why.
        sizes: sizes of sets, by time.
    """

    conclusions: tuple[Conclusion, ...]
    unknown: tuple[str, ...]
    sizes: tuple[SetSize, ...]

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        bad = [one for one in self.conclusions if not one.is_harmless]
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            return f"{dated(bad[0])}{more}"
        if self.conclusions or self.sizes:
            equal = "".join(f"; {one.text}" for one in self.conclusions if one.kind is SetFate.EQUAL)
            absent = "".join(f"; {one}" for one in self.unknown if one.startswith(NO_TRACE))
            return f"no set was seen to be lost, left behind or replaced by a smaller one{equal}{absent}"
        return "unknown: no evidence shows a set"


def verdict(
    facts: TraceFacts,
    findings: Sequence[Anomaly],
    stored: Iterable[Conclusion] = (),
    unknown: Iterable[str] = (),
    stored_sizes: Sequence[SetSize] = (),
) -> DataVerdict:
    """Draw the verdict on the data.

    Args:
        facts: facts from the traces.
        findings: findings of the rules, including `set-emptied` and `set-diverged`.
        stored: conclusions from stores and recordings.
        unknown: sentences about what is unknown for reasons outside the traces.
        stored_sizes: sizes of sets from stores and recordings.
    """
    shown = sizes(facts)
    found = [
        *_from_findings(findings, [*shown, *stored_sizes]),
        *merged.conclusions(facts, shown, findings),
        *stored,
    ]
    ordered = sorted(found, key=lambda one: (_ORDER.index(one.kind), one.start_ns or 0, one.text))
    return DataVerdict(
        tuple(ordered), (*unknown, *_unknown(facts, shown)), tuple(_by_time([*shown, *stored_sizes]))
    )


def _by_time(some: list[SetSize]) -> list[SetSize]:
    return sorted(some, key=lambda one: (one.time_ns, one.node, one.group))


def _from_findings(findings: Sequence[Anomaly], shown: Sequence[SetSize]) -> Iterable[Conclusion]:
    for one in findings:
        if one.rule == "set-emptied":
            kind = SetFate.LOST if one.facts["is_total"] else SetFate.EMPTIED
            group = str(one.facts["group"])
        elif one.rule == "set-diverged":
            kind = SetFate.DELAYED if one.facts["is_over"] else SetFate.DIVERGED
            group = str(one.facts["namespace"])
        else:
            continue
        text = one.title
        if kind is SetFate.DIVERGED:
            text += _last_sizes(shown, str(one.facts["master"]), str(one.facts["node"]))
        yield Conclusion(
            kind, text, one.start_ns, one.end_ns, one.nodes, group, one.evidence, dict(one.facts)
        )


def _last_sizes(shown: Sequence[SetSize], master: str, node: str) -> str:
    """Describe the last sizes of the sets of two nodes that are known and differ."""
    last: dict[str, dict[str, int]] = {}
    for one in sorted(shown, key=lambda each: each.time_ns):
        if one.node in {master, node}:
            last.setdefault(one.group, {})[one.node] = one.samples
    differing = [
        f"{group} ({master} {sizes[master]}, {node} {sizes[node]})"
        for group, sizes in last.items()
        if len(sizes) == 2 and sizes[master] != sizes[node]
    ]
    return f"; last seen sizes differ: {', '.join(differing[:3])}" if differing else ""


def _unknown(facts: TraceFacts, shown: Sequence[SetSize]) -> Iterable[str]:
    """Yield sentences about what the traces leave unknown."""
    traced = {run[0] for run in facts.first_ns}
    named = {facts.names.node(address) for one in facts.book.all() for address in (one.alignee, one.aligner)}
    absent = sorted(named - traced - {"nobody"})
    if not traced:
        yield f"{NO_TRACE}: times and causes are unknown"
        return
    if absent:
        yield f"{NO_TRACE} of {', '.join(absent)}: their sets and decisions are known from other nodes only"
    if not shown:
        yield "the traces contain no alignment: sizes of sets are unknown"
    else:
        yield (
            "traces show the sizes of sets, not their content: which samples were thrown away, and whether "
            "sets of one size are equal, only stores can tell"
        )
    for kind, dropped in sorted(facts.dropped.items()):
        yield f"{dropped} more {kind} were not examined"
