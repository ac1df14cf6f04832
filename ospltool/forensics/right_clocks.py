"""Facts and conversations from traces with wrong clocks, copied files, or files of another node.

A clock that differs from most others by a second or more is corrected, unless the user corrects any: every
analysis of one evidence puts what the nodes did into the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ospltool.forensics.evidence import CopiedFile, Evidence
from ospltool.output.progress import shown
from ospltool.trace.case.reading_back import Window
from ospltool.trace.meaning import clocks
from ospltool.trace.meaning.clocks import ClockDoubts
from ospltool.trace.meaning.names import Names
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.views.conversation import Conversation, conversation


def facts_of(
    evidence: Evidence, window: Window, skews: Mapping[str, int], *, with_waits: bool
) -> tuple[TraceFacts, list[str]]:
    """Collect the facts, and sentences about wrong clocks, copied and exchanged files.

    Args:
        evidence: has the records.
        window: selects records.
        skews: nanoseconds to add to the clock of each node, as the user says; empty to correct wrong ones.
        with_waits: collect waits, too.
    """
    facts = evidence.facts(window, skews, with_waits=with_waits)
    with shown("comparing clocks", unit=""):
        found = compared(facts)
    if found.wrong and not skews:
        facts = evidence.facts(window, found.corrections, with_waits=with_waits)
    return facts, doubts(evidence.copied, facts.names, found, skews)


def compared(facts: TraceFacts) -> ClockDoubts:
    """Return the clocks that are wrong by what the facts show."""
    return clocks.doubts(facts.names, facts.book.all(), {run[0] for run in facts.first_ns})


def conversation_of(
    evidence: Evidence, window: Window, skews: Mapping[str, int], group: str, run: int | None
) -> tuple[Conversation, list[str]]:
    """Collect the alignments of a group, and sentences about what is wrong with the evidence.

    A clock is wrong by what these alignments show.

    Args:
        evidence: has the records.
        window: selects records.
        skews: nanoseconds to add to the clock of each node, as the user says; empty to correct wrong ones.
        group: partition.topic, or a name-space that ospltool aligned.
        run: number of the run of the node that asked; None for all.
    """
    talk = conversation(evidence.alignments(window, skews, group), group, run)
    found = clocks.doubts(talk.names, talk.exchanges, set(evidence.nodes))
    if found.wrong and not skews:
        talk = conversation(evidence.alignments(window, found.corrections, group), group, run)
    return talk, doubts(evidence.copied, talk.names, found, skews)


def doubts(
    copied: Iterable[CopiedFile], names: Names, found: ClockDoubts, skews: Mapping[str, int]
) -> list[str]:
    """Return sentences about wrong clocks, copied and exchanged files.

    Args:
        copied: files that were left out.
        names: names of nodes by what the traces say.
        found: wrong clocks.
        skews: corrections by the user; with none, the wrong clocks were corrected.
    """
    return [
        *clocks.sentences(found, is_corrected=not skews),
        *map(str, copied),
        *names.contradictions(),
    ]
