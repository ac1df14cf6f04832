"""Stories: findings grouped by cause, in the order of time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS
from ospltool.trace.meaning.reports import NEAR_NS
from ospltool.trace.rules import TraceFinding, grouped

# A default lease of 10 s and some heartbeats pass before the loss of a node is noticed.
BEFORE_NS: Final = 15 * SECOND_NS
"""Time by which an effect may be seen before its cause is noticed."""

# Chosen: later effects are rather of another cause.
AFTER_NS: Final = 60 * SECOND_NS
"""Longest time from the end of a cause to the beginning of its effect."""

TOGETHER_NS: Final = SECOND_NS
"""Time within which reports of one event are made."""

# Each finding is compared with each.
MOST_JOINED: Final = 2_000
"""Findings that are grouped by cause; the rest is one story of its own."""

CAUSES: Final[dict[str, tuple[str, ...]]] = {
    "fellow-lost": ("reported", "fellow-lost", "clock-jump", "heartbeat-late"),
    "two-masters": ("fellow-lost",),
    "master-flapping": ("master-livelock", "fellow-lost"),
    "merge-storm": ("master-livelock", "master-flapping", "two-masters", "fellow-lost"),
    "equal-set-transferred": ("master-livelock", "merge-storm", "two-masters", "fellow-lost"),
    "set-emptied": ("master-livelock", "two-masters", "fellow-lost", "merge-storm"),
    "set-diverged": ("fellow-lost", "two-masters"),
    "conflict-unresolved": ("master-livelock", "fellow-lost", "thread-silent", "request-unanswered"),
    "request-unanswered": ("master-livelock", "fellow-lost", "thread-silent"),
    "thread-silent": ("fellow-lost",),
    "state-backwards": ("fellow-lost",),
    "reported": ("reported", "fellow-lost", "set-diverged", "master-livelock"),
}
"""Possible causes of each rule's findings, the likeliest first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Story:
    """Findings of one cause.

    Attributes:
        findings: its findings, by time.
        conclusions: conclusions about the data that follow, by time.
    """

    findings: tuple[TraceFinding, ...]
    conclusions: tuple[TraceFinding, ...] = ()

    @property
    def title(self) -> str:
        """Titles of the findings that no other one here explains."""
        roots = _roots(self.findings)
        more = len(self.findings) - len(roots)
        lines = "; ".join(one.title for one in roots[:3])
        lines += f"; and {len(roots) - 3} more like it" if len(roots) > 3 else ""
        follow = f"{plural(more, 'finding')} follow{'s' if more == 1 else ''} from it"
        return f"{lines} ({follow})" if more else lines

    @property
    def start_ns(self) -> int | None:
        """Beginning of the first finding."""
        return min((one.start_ns for one in self.findings if one.start_ns is not None), default=None)

    @property
    def end_ns(self) -> int | None:
        """End of the last finding."""
        return max((one.end_ns for one in self.findings if one.end_ns is not None), default=None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes concerned."""
        return tuple(sorted({node for one in self.findings for node in one.nodes}))


def stories(findings: Sequence[TraceFinding], conclusions: Sequence[TraceFinding] = ()) -> list[Story]:
    """Group findings with their causes, by time; every finding is in one story.

    A finding joins the story of its likeliest cause among those that had begun, and the story of the other
    side of the same event.
    """
    findings, rest = findings[:MOST_JOINED], findings[MOST_JOINED:]
    groups: dict[int, list[int]] = {number: [number] for number in range(len(findings))}
    of_rule = dict(grouped(range(len(findings)), lambda number: findings[number].rule))
    for number, one in enumerate(findings):
        for other in _joins(findings, of_rule, number, one):
            kept, gone = groups[other], groups[number]
            if kept is not gone:
                kept.extend(gone)
                groups.update(dict.fromkeys(gone, kept))
    told: list[Story] = []
    for group in {id(group): group for group in groups.values()}.values():
        some = [findings[number] for number in group]
        # By time, as a story is told; by rule and title, so that the same case gives the same text.
        ordered = sorted(some, key=lambda one: (one.start_ns or 0, one.rule, one.title))
        told.append(Story(tuple(ordered)))
    told.sort(key=lambda one: (one.start_ns or 0, _offset_of(one), one.title))
    if rest:
        told.append(Story(tuple(rest)))
    return _with_conclusions(told, conclusions)


def _offset_of(one: Story) -> int:
    """Return where a story without a time begins in its file; 0 if it has a time."""
    places = one.findings[0].evidence
    return places[0].offset if places and one.start_ns is None else 0


def _joins(
    findings: Sequence[TraceFinding], of_rule: Mapping[str, list[int]], number: int, one: TraceFinding
) -> list[int]:
    """Return the findings whose story a finding joins: its cause, and other sides of the same event."""
    sides: list[int] = []
    causes: list[int] = []
    possible = sorted(other for rule in set(CAUSES.get(one.rule, ())) for other in of_rule.get(rule, ()))
    for other in possible:
        cause = findings[other]
        if other != number and _follows(one, cause):
            (sides if cause.rule == one.rule else causes).append(other)
    begun = [other for other in causes if (findings[other].start_ns or 0) <= (one.start_ns or 0)] or causes
    for rule in CAUSES.get(one.rule, ()):
        likely = [other for other in begun if findings[other].rule == rule]
        if likely:
            return [*sides, likely[-1]]  # findings are ordered by time
    return sides


def _with_conclusions(told: list[Story], conclusions: Sequence[TraceFinding]) -> list[Story]:
    """Add each conclusion to the last story that it can follow from."""
    found: dict[int, list[TraceFinding]] = {}
    # By time, so that a conclusion comes after those that it may follow from.
    for one in sorted(conclusions, key=lambda each: each.start_ns or 0):
        if one.start_ns is None:
            continue
        near = [number for number, story in enumerate(told) if set(one.nodes) & set(story.nodes)]
        for before in (0, BEFORE_NS):
            fitting = [
                number
                for number in near
                if (told[number].start_ns or 0) - before
                <= one.start_ns
                <= (told[number].end_ns or 0) + AFTER_NS
            ]
            if fitting:
                found.setdefault(fitting[-1], []).append(one)
                break
    return [dataclasses.replace(story, conclusions=tuple(found.get(n, ()))) for n, story in enumerate(told)]


def _follows(effect: TraceFinding, cause: TraceFinding) -> bool:
    """Return whether a finding can be the effect of another: by kind, place and time."""
    if cause.rule not in CAUSES.get(effect.rule, ()) or effect.start_ns is None or cause.start_ns is None:
        return False
    if cause.rule == "reported":
        return _are_of_one_event(effect, cause)
    if effect.rule == "reported" and cause.facts.get("stood_still"):
        return False  # a process that stood still missed heartbeats because of that
    if effect.rule == "reported" and effect.start_ns < cause.start_ns:
        return False  # a service reports at once, so what was reported before is no effect
    if cause.rule == effect.rule:  # two sides of one event
        near = abs(effect.start_ns - cause.start_ns) <= BEFORE_NS
        return near and bool(_about(effect) & _about(cause))
    if not set(effect.nodes) & _about(cause):
        return False
    return cause.start_ns - BEFORE_NS <= effect.start_ns <= (cause.end_ns or cause.start_ns) + AFTER_NS


def _are_together(one: TraceFinding, other: TraceFinding) -> bool:
    """Return whether a node made two reports at the same times, according to their first lines."""
    if one.nodes != other.nodes or one.count != other.count:
        return False
    places = zip(one.evidence, other.evidence, strict=True)
    return all(abs(a.at_ns - b.at_ns) <= TOGETHER_NS for a, b in places)


def _are_of_one_event(effect: TraceFinding, cause: TraceFinding) -> bool:
    """Return whether a node reports a cause and its effect, or always reports both together."""
    if effect.rule == "fellow-lost":
        is_known = bool(effect.facts.get("stood_still") and cause.facts.get("stood_still"))
    elif _are_together(effect, cause):
        return True
    else:
        is_known = effect.facts.get("event") == cause.facts.get("event") is not None
    return (
        is_known
        and effect.nodes == cause.nodes
        and all(any(abs(a.at_ns - b.at_ns) <= NEAR_NS for b in cause.evidence) for a in effect.evidence)
    )


def _about(one: TraceFinding) -> set[str]:
    """Return the nodes of a finding, and the fellow or master that it names."""
    return {*one.nodes, *(str(one.facts[name]) for name in ("fellow", "master") if one.facts.get(name))}


def _roots(findings: Sequence[TraceFinding]) -> list[TraceFinding]:
    """Return the findings without a cause; the first finding, if each has one."""
    of_rule = dict(grouped(findings, lambda one: one.rule))
    roots = [
        one
        for one in findings
        if not any(
            (rule != one.rule or (one.facts.get("follows") and not other.facts.get("follows")))
            and _follows(one, other)
            for rule in CAUSES.get(one.rule, ())
            for other in of_rule.get(rule, ())
        )
    ]
    return roots or list(findings[:1])
