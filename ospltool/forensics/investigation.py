"""A whole analysis: findings, stories and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ospltool.forensics.attachments import AttachmentKind
from ospltool.forensics.evidence import Evidence, Window
from ospltool.forensics.stored import StoredEvidence
from ospltool.forensics.story import Story, stories
from ospltool.forensics.verdict import DataVerdict, verdict
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.rules import Anomaly, anomalies


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
    findings: tuple[Anomaly, ...]
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

    Args:
        evidence: records and attachments.
        window: selects records.
        skews: nanoseconds to add to the clock of each node.
        rules: names of rules whose findings are kept; the verdict uses all.
        with_stores: read stores and recordings, too.

    Raises:
        KeyError: a rule is unknown.
    """
    facts = evidence.facts(window, skews, with_waits=False)
    found = anomalies(facts)
    stored = None
    beside = [one for one in evidence.attachments if one.what is not AttachmentKind.CONFIGURATION]
    unknown = [f"{one}; later records are unknown" for one in damage.noted()]
    if beside and with_stores:
        from ospltool.forensics.stored import look

        stored = look(one for one in beside if not window.nodes or one.node in {"", *window.nodes})
    elif beside:
        unknown.append(f"{len(beside)} stores and recordings were not examined")
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
