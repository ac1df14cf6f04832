"""A whole analysis: findings, stories, configurations, and the verdict on the data.

The verdict says which sets were emptied, replaced, left behind or joined; where, when and why.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ospltool.forensics import right_clocks
from ospltool.forensics.attachments import Attachment, AttachmentKind
from ospltool.forensics.evidence import Evidence
from ospltool.forensics.story import Story, stories
from ospltool.output.progress import shown
from ospltool.output.text import plural
from ospltool.output.times import clock_since, iso
from ospltool.trace.case.reading_back import Window
from ospltool.trace.meaning import coverage
from ospltool.trace.meaning.fact_kinds import SetSize
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.reading.record import no_collection
from ospltool.trace.rules import SetFate, TraceFinding, anomalies, set_changes
from ospltool.trace.rules.set_changes import sizes

if TYPE_CHECKING:
    from ospltool.diagnostics.model import Finding
    from ospltool.forensics.stored import StoredEvidence

NO_TRACE: Final = "there is no trace"
"""Beginning of the sentences about the most important unknown things."""

_ORDER: Final[list[SetFate | None]] = [*SetFate]


@dataclasses.dataclass(frozen=True, slots=True)
class DataVerdict:
    """The conclusions about the data.

    Attributes:
        conclusions: the worst first, those of one kind by time.
        unknown: sentences about what remains unknown, and why.
        sizes: sizes of sets, by time.
    """

    conclusions: tuple[TraceFinding, ...]
    unknown: tuple[str, ...]
    sizes: tuple[SetSize, ...]

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        bad = [one for one in self.conclusions if not one.is_harmless]
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            return f"{bad[0].dated}{more}"
        if self.conclusions or self.sizes:
            equal = "".join(f"; {one.title}" for one in self.conclusions if one.fate is SetFate.EQUAL)
            absent = "".join(f"; {one}" for one in self.unknown if one.startswith(NO_TRACE))
            return f"no set was seen to be lost, left behind or replaced by a smaller one{equal}{absent}"
        return "unknown: no evidence shows a set"


def verdict(
    facts: TraceFacts,
    findings: Sequence[TraceFinding],
    stored: Iterable[TraceFinding] = (),
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
        *set_changes.conclusions(facts, shown, findings),
        *stored,
    ]
    ordered = sorted(found, key=lambda one: (_ORDER.index(one.fate), one.start_ns or 0, one.title))
    return DataVerdict(
        tuple(ordered),
        (*unknown, *_unknown(facts, shown)),
        tuple(sorted([*shown, *stored_sizes], key=set_changes.BY_TIME)),
    )


def _from_findings(findings: Sequence[TraceFinding], shown: Sequence[SetSize]) -> Iterable[TraceFinding]:
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
        yield dataclasses.replace(one, title=text, fate=kind, group=group)


def _last_sizes(shown: Sequence[SetSize], master: str, node: str) -> str:
    """Describe the last sizes of the sets of two nodes that are known and differ."""
    last: dict[str, dict[str, int]] = {}
    # By time, so that the last one stays.
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
        yield f"{NO_TRACE}: what the durability service did is unknown"
        yield from _unended(facts)
        return
    nameless = sorted({run[0] for run in coverage.nameless_runs(facts)})
    if absent:
        yield f"{NO_TRACE} of {', '.join(absent)}: their sets and decisions are known from other nodes only"
    if nameless:
        yield (
            f"which address {', '.join(nameless)} had in a run whose beginning is not in its trace: what "
            "others tell of it there is told of the address"
        )
    for node, times in sorted(coverage.lacking(facts).items()):
        over = max(last for run, last in facts.last_ns.items() if run[0] == node)
        within = [time for time in times if time <= over]
        if within:
            yield (
                f"whether the trace of {node} is whole: from {iso(within[0], 3)} to "
                f"{clock_since(within[0], within[-1])} others tell of {plural(len(within), 'message')} that "
                "it does not mention; nothing is concluded from what it does not say then"
            )
    for run, at_ns in coverage.hidden_starts(facts):
        yield (
            f"whether {run[0]} was started again before {iso(at_ns, 3)}: it went back to the states of a "
            "start, but its trace has no beginning of a run there"
        )
    for node, end_ns, heard_ns in coverage.later_than_trace(facts):
        yield (
            f"what {node} did after {iso(end_ns, 3)}, where its trace was cut: others received something "
            f"from it until {clock_since(end_ns, heard_ns)}"
        )
    yield from _unended(facts)
    if not shown:
        yield "the traces contain no alignment: sizes of sets are unknown"
    else:
        yield (
            "traces show the sizes of sets, not their content: which samples were thrown away, and whether "
            "sets of one size are equal, only stores can tell"
        )
    if facts.unparsed_bytes:
        yield f"what {facts.unparsed_bytes:,} bytes say that belong to no record, or are too many for one"
    for kind, dropped in sorted(facts.dropped.items()):
        yield f"{dropped} more {kind} were not examined"


def _unended(facts: TraceFacts) -> Iterable[str]:
    """Yield sentences about starts of the domain service whose ends are in no log; one may still run."""
    for node, starts in sorted(facts.starts.items()):
        count = starts.endings.count("")
        if count > 1:
            total = plural(len(starts.endings), "start")
            yield f"how {count} of {total} of the domain service on {node} ended: the log tells of no end"


def configured(attachments: Iterable[Attachment]) -> tuple[tuple[Finding, ...] | None, tuple[str, ...]]:
    """Return the findings of the configurations as one deployment (None without files), and problems.

    The findings show the paths that the user gave.
    """
    from ospltool.check.commands import check, choice, deployments  # only reports need it
    from ospltool.check.inputs import UsageError

    given = [one for one in attachments if one.what is AttachmentKind.CONFIGURATION]
    files = {str(one.path): one.name for one in given}
    if not files:
        return None, ()
    names = [one.node for one in given]
    is_clear = len(set(names)) == len(names) and all(name and "=" not in name for name in names)
    nodes = [f"{one.node}={one.path}" for one in given] if is_clear else []
    paths = [] if is_clear else list(files)
    try:
        found = deployments(paths, nodes, [], dict(os.environ), together=len(paths) > 1, skip_others=True)
        report = check(found, choice([], [], [], [], "info"))
    except UsageError as cause:
        return (), (f"the configurations could not be checked: {cause}",)
    named = [
        dataclasses.replace(
            each, place=dataclasses.replace(each.place, path=files.get(each.place.path, each.place.path))
        )
        for each in report.diagnostics
    ]
    # The gravest first; by code and file, so that equal findings are neighbours.
    return tuple(sorted(named, key=lambda each: (each.severity, each.code, each.place.path))), ()


@dataclasses.dataclass(frozen=True, slots=True)
class Investigation:
    """The results of an analysis.

    Attributes:
        facts: facts from the traces.
        findings: findings of the rules, by time.
        verdict: conclusions about the data.
        stories: findings grouped by cause, by time.
        stored: facts from stores and recordings; None if they were not examined.
    """

    facts: TraceFacts
    findings: tuple[TraceFinding, ...]
    verdict: DataVerdict
    stories: tuple[Story, ...]
    stored: StoredEvidence | None

    @property
    def is_bad(self) -> bool:
        """Whether there is a finding or a harmful conclusion."""
        return bool(self.findings) or any(not one.is_harmless for one in self.verdict.conclusions)


def investigate(
    evidence: Evidence,
    window: Window,
    skews: Mapping[str, int],
    rules: Iterable[str] | None = None,
    *,
    with_stores: bool = True,
) -> Investigation:
    """Examine all evidence.

    A clock that differs by a second or more is corrected, unless `skews` names any node.

    Args:
        evidence: records and attachments.
        window: selects records.
        skews: nanoseconds to add to the clock of each node.
        rules: names of rules whose findings are kept; the verdict uses all.
        with_stores: read stores and recordings, too.

    Raises:
        KeyError: a rule is unknown.
    """
    with no_collection():
        facts, doubts = right_clocks.facts_of(evidence, window, skews, with_waits=False)
        with shown("drawing conclusions", unit=""):
            stored = examined(evidence.attachments, window) if with_stores else None
            return concluded(facts, evidence.attachments, window, stored, rules, doubts)


def examined(attachments: Iterable[Attachment], window: Window) -> StoredEvidence | None:
    """Examine the stores and recordings of the nodes of a window; None if there are none."""
    from ospltool.forensics.stored import examine

    beside = _beside(attachments)
    return examine(_within(beside, window)) if beside else None


def _beside(attachments: Iterable[Attachment]) -> list[Attachment]:
    return [one for one in attachments if one.what is not AttachmentKind.CONFIGURATION]


def _within(beside: Iterable[Attachment], window: Window) -> list[Attachment]:
    return [one for one in beside if not window.nodes or one.node in {"", *window.nodes}]


def concluded(
    facts: TraceFacts,
    attachments: Iterable[Attachment],
    window: Window,
    stored: StoredEvidence | None,
    rules: Iterable[str] | None,
    doubts: Iterable[str],
) -> Investigation:
    """Draw conclusions from facts and from what the stores showed.

    Args:
        facts: facts from the traces.
        attachments: what lies beside the traces; it need not be readable here.
        window: what was selected.
        stored: as `examined` returns it; None without stores, or if they were not to be read.
        rules: names of rules whose findings are kept; None for all.
        doubts: sentences about what is unknown.

    Raises:
        KeyError: a rule is unknown.
    """
    found = anomalies(facts)
    beside = _beside(attachments)
    unknown = [
        *doubts,
        *(f"{one}; later records are unknown" for one in damage.noted()),
    ]
    if stored is not None:
        unknown += _without_store(facts, _within(beside, window))
    elif beside:
        unknown.append(f"stores and recordings that were not examined: {len(beside)}")
    else:
        unknown.append("there are no stores: of sets only the size is known")
    drawn = verdict(
        facts,
        found,
        stored.conclusions if stored else (),
        (*unknown, *(stored.unknown if stored else ())),
        tuple(stored.sizes) if stored else (),
    )
    chosen = found if rules is None else anomalies(facts, rules)
    return Investigation(facts, tuple(chosen), drawn, tuple(stories(chosen, drawn.conclusions)), stored)


def _without_store(facts: TraceFacts, attachments: Iterable[Attachment]) -> Iterable[str]:
    """Yield a sentence about traced nodes of which no store is here, where there are stores of others."""
    having = {one.node for one in attachments if one.what is AttachmentKind.STORE}
    lacking = sorted({run[0] for run in facts.first_ns} - having)
    if having and lacking:
        others = ", ".join(sorted(having))
        yield f"what is on the disks of {', '.join(lacking)}: there are stores of {others} only"
