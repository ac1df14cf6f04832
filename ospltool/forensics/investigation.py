"""The whole of an analysis: findings, the story that they tell, and the verdict."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ospltool.forensics.attachments import What
from ospltool.forensics.story import Story, stories
from ospltool.forensics.verdict import Verdict, verdict
from ospltool.trace.reading import damage
from ospltool.trace.rules import anomalies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ospltool.forensics.evidence import Evidence, Window
    from ospltool.forensics.stored import Stored
    from ospltool.trace.meaning.facts import Facts
    from ospltool.trace.rules import Finding


@dataclasses.dataclass(frozen=True, slots=True)
class Investigation:
    """What was found.

    Attributes:
        facts: what the traces say.
        findings: what the rules found, by time.
        verdict: what became of the data.
        stories: findings of one cause together, by time.
        stored: what stores and recordings show; None when they were not looked at.
    """

    facts: Facts
    findings: tuple[Finding, ...]
    verdict: Verdict
    stories: tuple[Story, ...]
    stored: Stored | None

    @property
    def is_bad(self) -> bool:
        """Whether anything was found, or became of the data, that should not be."""
        return bool(self.findings) or any(not one.is_harmless for one in self.verdict.conclusions)


def investigate(
    evidence: Evidence,
    window: Window,
    skews: Mapping[str, int],
    rules: Iterable[str] | None = None,
    *,
    with_stores: bool = True,
) -> Investigation:
    """Looks at all there is.

    Args:
        evidence: what.
        window: which records of it.
        skews: corrections of clocks, by node.
        rules: only findings of these; the verdict is drawn from all.
        with_stores: read stores and recordings too.

    Raises:
        KeyError: there is no rule of a name.
    """
    facts = evidence.facts(window, skews, with_waits=False)
    found = anomalies(facts)
    stored = None
    beside = [one for one in evidence.attachments if one.what is not What.CONFIGURATION]
    unknown = [f"{one}; what comes after that is not known" for one in damage.noted()]
    if beside and with_stores:
        from ospltool.forensics.stored import look

        stored = look(one for one in beside if not window.nodes or one.node in {"", *window.nodes})
    elif beside:
        unknown.append(f"{len(beside)} stores and recordings were not looked at")
    else:
        unknown.append("there are no stores: what is in sets is known by size only")
    drawn = verdict(
        facts,
        found,
        stored.conclusions if stored else (),
        (*unknown, *(stored.unknown if stored else ())),
        tuple(stored.sizes) if stored else (),
    )
    chosen = found if rules is None else anomalies(facts, rules)
    return Investigation(facts, tuple(chosen), drawn, tuple(stories(chosen, drawn.conclusions)), stored)
