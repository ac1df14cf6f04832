"""Investigations of many domains: one after the other here, or each as a task of Spark.

Nodes of different domains do not meet, so no rule needs the records of two of them. On Spark, the engine
selects the rows that an analysis needs, brings those of one domain together and sorts them; a task for each
domain then collects the facts and applies the rules, with the same code as without Spark. Only what it
concludes comes back.

A clock that is wrong shows in the facts, and with its correction the rows of that domain come in another
order. Such a task returns the correction in place of conclusions, and the domain is asked for again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import Columns, DomainWork, FleetEngine
from ospltool.forensics import right_clocks
from ospltool.forensics.evidence import (
    CaseEvidence,
    CopiedFile,
    Evidence,
    copies_in,
    facts_of_rows,
    telling_within,
)
from ospltool.forensics.investigation import Investigation, concluded, examined, investigate
from ospltool.forensics.stored import StoredEvidence
from ospltool.output.progress import shown
from ospltool.trace.case.reading_back import (
    IN_ORDER,
    CaseFile,
    WantedRecords,
    Window,
    files_by_domain,
    rows_in_order,
    rows_query,
    uncalm_domains,
)
from ospltool.trace.meaning.clocks import ClockDoubts
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.reading.damage import FileDamage
from ospltool.trace.reading.sources import domain_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ospltool.forensics.attachments import Attachment


def investigations(
    evidence: Evidence,
    window: Window,
    skews: Mapping[str, int],
    rules: Iterable[str] | None = None,
    *,
    with_stores: bool = True,
) -> Iterator[tuple[str, Investigation]]:
    """Yield each domain with what was concluded of it, by name.

    Those of a case that Spark reads have no facts: these stay on the executors.

    Args:
        evidence: records and attachments, of any number of domains.
        window: selects records.
        skews: nanoseconds to add to the clock of each node; empty to correct wrong ones.
        rules: names of rules whose findings are kept; None for all.
        with_stores: read stores and recordings, too.
    """
    chosen = None if rules is None else tuple(rules)
    if isinstance(evidence, CaseEvidence) and isinstance(evidence.engine, FleetEngine):
        question = _Question(window, skews, chosen, with_stores=with_stores)
        yield from _on_executors(evidence, evidence.engine, question)
        return
    for domain in evidence.domains:
        if len(evidence.domains) == 1:
            yield domain, investigate(evidence, window, skews, chosen, with_stores=with_stores)
            return
        with _damages_of(domain):
            drawn = investigate(evidence.of_domain(domain), window, skews, chosen, with_stores=with_stores)
        yield domain, drawn


@contextlib.contextmanager
def _damages_of(domain: str) -> Iterator[None]:
    """Hide the damaged files of other domains for a while: a verdict lists what is noted as unknown."""
    before = damage.collect()
    for one in before:
        if domain_of(pathlib.Path(one.file)) == domain:
            damage.note(one)
    yield
    for one in before:
        damage.note(one)


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of every domain; see `investigations`."""

    window: Window
    skews: Mapping[str, int]
    rules: tuple[str, ...] | None
    with_stores: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _DomainTask:
    """What a task knows of its domain, beside the rows.

    Attributes:
        question: what is asked.
        wanted: what selected the rows.
        is_rough: whether only wanted rows come, in rough order.
        detail: detail of the case.
        files: the files of the domain.
        copied: files that are left out.
        attachments: what lies beside the traces, described only.
        stored: what the stores showed.
        clocks: wrong clocks that an earlier task found, and by which the rows are ordered.
    """

    question: _Question
    wanted: WantedRecords
    is_rough: bool
    detail: Detail
    files: tuple[CaseFile, ...]
    copied: tuple[CopiedFile, ...]
    attachments: tuple[Attachment, ...]
    stored: StoredEvidence | None
    clocks: ClockDoubts | None = None

    def answer(
        self, batches: Iterable[pa.RecordBatch]
    ) -> tuple[Investigation | ClockDoubts, list[FileDamage]]:
        """Return what is concluded from the rows, or the clocks that are wrong; and damaged files."""
        damage.collect()  # what an earlier task of this process has noted
        question = self.question
        facts = facts_of_rows(
            rows_in_order(batches, is_rough=self.is_rough),
            self.wanted,
            self.files,
            self.detail,
            with_waits=False,
        )
        found = self.clocks or right_clocks.compared(facts)
        if found.wrong and not question.skews and self.clocks is None:
            return found, []
        doubts = right_clocks.doubts(self.copied, facts.names, found, question.skews)
        drawn = concluded(facts, self.attachments, question.window, self.stored, question.rules, doubts)
        return dataclasses.replace(drawn, facts=TraceFacts(), stored=None), damage.collect()


_ANSWERS: Final = "domain string, answer binary"


def _on_executors(
    evidence: CaseEvidence, engine: FleetEngine, question: _Question
) -> Iterator[tuple[str, Investigation]]:
    """Yield what tasks of Spark conclude, by domain."""
    with shown("looking at the files", unit=""):
        uncalm = uncalm_domains(engine)
        copied = copies_in(engine)
        files = files_by_domain(engine)
    tasks = {}
    for domain in evidence.domains:
        copies = tuple(copied.get(domain, ()))
        beside = tuple(one for one in evidence.attachments if one.domain == domain)
        stored = examined(beside, question.window) if question.with_stores else None
        telling, quiet = telling_within(question.window, with_waits=False)
        without = tuple((one.node, one.file) for one in copies)
        wanted = WantedRecords(question.window, question.skews, without, telling, quiet, domain)
        tasks[domain] = _DomainTask(
            question,
            wanted,
            evidence.case.detail is Detail.FULL and wanted.is_part and domain not in uncalm,
            evidence.case.detail,
            files.get(domain, ()),
            copies,
            beside,
            _without_readers(stored),
        )
    found: dict[str, Investigation] = {}
    with shown("applying the rules", unit=""):
        for domain, answer in _answers(engine, tasks):
            if isinstance(answer, Investigation):
                found[domain] = answer
                tasks.pop(domain)
                continue
            task = tasks[domain]
            wanted = dataclasses.replace(task.wanted, skews=answer.corrections)
            tasks[domain] = dataclasses.replace(task, wanted=wanted, clocks=answer)
        for domain, answer in _answers(engine, tasks):
            assert isinstance(answer, Investigation), "a corrected clock was corrected again"
            found[domain] = answer
    yield from sorted(found.items())


def _without_readers(stored: StoredEvidence | None) -> StoredEvidence | None:
    """Return what the stores showed, without the stores: those are files of this machine."""
    if stored is None:
        return None
    return StoredEvidence((), stored.conclusions, None, (), stored.unknown, tuple(stored.sizes))


def _answers(
    engine: FleetEngine, tasks: Mapping[str, _DomainTask]
) -> Iterator[tuple[str, Investigation | ClockDoubts]]:
    """Yield the answers of tasks, of each domain one."""
    for is_rough in (True, False):
        some = {domain: task for domain, task in tasks.items() if task.is_rough is is_rough}
        if not some:
            continue
        query = rows_query([task.wanted for task in some.values()], is_rough=is_rough)
        for domain, packed in engine.by_domain(query, IN_ORDER, len(some), _answering(some), _ANSWERS):
            answer, damages = pickle.loads(packed)  # noqa: S301 - made by our own task
            for one in damages:
                damage.note(one)
            some.pop(domain)
            yield str(domain), answer
        for domain, task in some.items():  # no row of it was wanted, so Spark made no task for it
            yield domain, task.answer(())[0]


def _answering(tasks: Mapping[str, _DomainTask]) -> DomainWork:
    """Return the function of a task; it travels to the executors with what all of them know."""

    def answer(domain: str, batches: Iterator[pa.RecordBatch]) -> Iterator[Columns]:
        yield {"domain": [domain], "answer": [pickle.dumps(tasks[domain].answer(batches))]}

    return answer
