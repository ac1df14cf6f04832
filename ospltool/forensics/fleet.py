"""Investigations of many domains: one after the other here, or each as a task of Spark.

Nodes of different domains do not meet, so no rule needs the records of two of them. On Spark, the engine
selects the rows that an analysis needs, brings those of one domain together and sorts them; a task for each
domain then collects the facts and applies the rules, with the same code as without Spark. Only what it
concludes comes back.

A clock that is wrong shows in the facts, and with its correction the rows of that domain come in another
order. Such a task returns the correction in place of conclusions, and the domain is asked for again. So it is
if a file may be a copy of another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import Columns, DomainWork, FleetEngine
from ospltool.forensics import right_clocks
from ospltool.forensics.evidence import (
    CaseEvidence,
    CopiedFile,
    Evidence,
    Samples,
    copies_in,
    facts_of_rows,
    telling_within,
)
from ospltool.forensics.investigation import Investigation, concluded, examined, investigate
from ospltool.forensics.stages import Places, write_stages
from ospltool.forensics.stored import StoredEvidence
from ospltool.output.progress import shown
from ospltool.trace.case.reading_back import (
    IN_ORDER,
    CaseFile,
    WantedRecords,
    Window,
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


@dataclasses.dataclass(frozen=True, slots=True)
class Keeping:
    """Which domains are judged, and where their facts, verdicts and stories are written.

    Attributes:
        directory: directory of the case.
        judged: the domains to judge, with what identifies what each is judged by.
    """

    directory: pathlib.Path
    judged: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class JudgedDomain:
    """A domain and what was concluded of it.

    Attributes:
        name: its name.
        drawn: the conclusions; those that come from executors have no facts, which stay there.
        places: files that were written into the case.
    """

    name: str
    drawn: Investigation
    places: Places


def investigations(
    evidence: Evidence,
    window: Window,
    skews: Mapping[str, int],
    rules: Iterable[str] | None = None,
    *,
    with_stores: bool = True,
    keeping: Keeping | None = None,
) -> Iterator[JudgedDomain]:
    """Yield what is concluded of each domain, by name.

    Args:
        evidence: records and attachments, of any number of domains.
        window: selects records.
        skews: nanoseconds to add to the clock of each node; empty to correct wrong ones.
        rules: names of rules whose findings are kept; None for all.
        with_stores: read stores and recordings, too.
        keeping: where to keep what comes out; None keeps nothing, and all domains are judged.
    """
    chosen = None if rules is None else tuple(rules)
    if isinstance(evidence, CaseEvidence) and isinstance(evidence.engine, FleetEngine):
        detail = evidence.case.detail
        question = _Question(window, skews, chosen, keeping, detail, with_stores=with_stores)
        yield from _on_executors(evidence, evidence.engine, question)
        return
    for domain in _chosen(evidence, keeping):
        one = evidence.of_domain(domain) if len(evidence.domains) > 1 else evidence
        with _damages_of(domain) if one is not evidence else contextlib.nullcontext():
            drawn = investigate(one, window, skews, chosen, with_stores=with_stores)
        yield JudgedDomain(domain, drawn, _written_stages(keeping, domain, drawn))


def _chosen(evidence: Evidence, keeping: Keeping | None) -> Iterator[str]:
    return (one for one in evidence.domains if keeping is None or one in keeping.judged)


def _written_stages(keeping: Keeping | None, domain: str, drawn: Investigation) -> Places:
    if keeping is None:
        return {}
    return write_stages(keeping.directory, domain, keeping.judged[domain], drawn)


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
    """What is asked of every domain of a case with that detail; see `investigations`."""

    window: Window
    skews: Mapping[str, int]
    rules: tuple[str, ...] | None
    keeping: Keeping | None
    detail: Detail
    with_stores: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _DomainTask:
    """What a task knows of its domain, beside the rows.

    Attributes:
        question: what is asked.
        wanted: what selected the rows.
        is_rough: whether only wanted rows come, in rough order.
        files: the files of the domain.
        copied: files that are left out; None if copies were not looked for yet.
        attachments: what lies beside the traces, described only.
        stored: what the stores showed.
        clocks: wrong clocks that an earlier task found, and by which the rows are ordered.
    """

    question: _Question
    wanted: WantedRecords
    is_rough: bool
    files: tuple[CaseFile, ...]
    copied: tuple[CopiedFile, ...] | None
    attachments: tuple[Attachment, ...]
    stored: StoredEvidence | None
    clocks: ClockDoubts | None = None

    def without(self, copied: Sequence[CopiedFile]) -> _DomainTask:
        """Return the task without the copied files of the domain, of which there are no others."""
        without = tuple((one.node, one.file) for one in copied)
        wanted = dataclasses.replace(self.wanted, without=without)
        return dataclasses.replace(self, wanted=wanted, copied=tuple(copied))

    def answer(self, batches: Iterable[pa.RecordBatch]) -> _Answer:
        """Return what is concluded from the rows, or why they are not the right ones."""
        damage.collect()  # what an earlier task of this process has noted
        question = self.question
        samples = Samples(self.files if self.copied is None else ())
        rows = rows_in_order(_sampled(batches, samples), is_rough=self.is_rough)
        facts = facts_of_rows(rows, self.wanted, self.files, question.detail, with_waits=False)
        if samples.may_have_copies():
            return _Answer(None)
        found = self.clocks or right_clocks.compared(facts)
        if found.wrong and not question.skews and self.clocks is None:
            return _Answer(found)
        doubts = right_clocks.doubts(self.copied or (), facts.names, found, question.skews)
        drawn = concluded(facts, self.attachments, question.window, self.stored, question.rules, doubts)
        assert self.wanted.domain is not None, "a task is of one domain"
        places = _written_stages(question.keeping, self.wanted.domain, drawn)
        # Facts are many, and readers of stores are of the machine that has them.
        return _Answer(dataclasses.replace(drawn, facts=TraceFacts(), stored=None), places, damage.collect())


def _sampled(batches: Iterable[pa.RecordBatch], samples: Samples) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        samples.add(rows)
        yield rows


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    """What a task returns.

    Attributes:
        found: conclusions, or the clocks that are wrong; None if there may be copies of files.
        places: files that it wrote into the case.
        damages: files that cannot be read to their end.
    """

    found: Investigation | ClockDoubts | None
    places: Places = dataclasses.field(default_factory=dict)
    damages: Sequence[FileDamage] = ()


_ANSWERS: Final = "domain string, answer binary"


def _on_executors(evidence: CaseEvidence, engine: FleetEngine, question: _Question) -> Iterator[JudgedDomain]:
    """Yield what tasks of Spark conclude, by domain."""
    uncalm = uncalm_domains(evidence.files)
    # A task sees whether there may be copies if all rows that were chosen for it come.
    is_all = question.window == Window()
    with shown("looking at the files", unit=""):
        copied = {} if is_all else copies_in(engine, evidence.files)
    telling, quiet = telling_within(question.window, with_waits=False)
    tasks = {}
    for domain in _chosen(evidence, question.keeping):
        beside = tuple(one for one in evidence.attachments if one.domain == domain)
        stored = examined(beside, question.window) if question.with_stores else None
        wanted = WantedRecords(question.window, question.skews, (), telling, quiet, domain)
        task = _DomainTask(
            question,
            wanted,
            question.detail is Detail.FULL and wanted.is_part and domain not in uncalm,
            evidence.files.get(domain, ()),
            None,
            beside,
            _without_readers(stored),
        )
        tasks[domain] = task if is_all else task.without(copied.get(domain, ()))
    done: list[JudgedDomain] = []
    with shown(f"applying the rules {engine.page}".rstrip(), unit=""):
        for _ in ("all", "those with suspected files", "those with wrong clocks"):
            waiting, tasks = tasks, {}
            suspected: list[str] = []
            for domain, answer in _answers(engine, waiting):
                if isinstance(answer.found, Investigation):
                    done.append(JudgedDomain(domain, answer.found, answer.places))
                elif answer.found is None:
                    suspected.append(domain)
                else:
                    wanted = dataclasses.replace(waiting[domain].wanted, skews=answer.found.corrections)
                    tasks[domain] = dataclasses.replace(waiting[domain], wanted=wanted, clocks=answer.found)
            if suspected:
                copied = copies_in(engine, {domain: evidence.files[domain] for domain in suspected})
                tasks |= {domain: waiting[domain].without(copied.get(domain, ())) for domain in suspected}
    assert not tasks, "a corrected clock was corrected again"
    yield from sorted(done, key=lambda one: one.name)


def _without_readers(stored: StoredEvidence | None) -> StoredEvidence | None:
    """Return what the stores showed, without the stores: those are files of this machine."""
    if stored is None:
        return None
    return StoredEvidence((), stored.conclusions, None, (), stored.unknown, tuple(stored.sizes))


def _answers(engine: FleetEngine, tasks: Mapping[str, _DomainTask]) -> Iterator[tuple[str, _Answer]]:
    """Yield the answers of tasks, of each domain one."""
    for is_rough in (True, False):
        some = {domain: task for domain, task in tasks.items() if task.is_rough is is_rough}
        if not some:
            continue
        sizes = {domain: sum(one.records for one in task.files) for domain, task in some.items()}
        query = rows_query([task.wanted for task in some.values()], is_rough=is_rough)
        for domain, packed in engine.by_domain(query, IN_ORDER, sizes, _answering(some), _ANSWERS):
            answer: _Answer = pickle.loads(packed)  # noqa: S301 - made by our own task
            for one in answer.damages:
                damage.note(one)
            some.pop(domain)
            yield str(domain), answer
        for domain, task in some.items():  # no row of it was wanted, so Spark made no task for it
            yield domain, task.answer(())


def _answering(tasks: Mapping[str, _DomainTask]) -> DomainWork:
    """Return the function of a task; it travels to the executors with what all of them know."""
    packed = {domain: pickle.dumps(task) for domain, task in tasks.items()}  # each is read by its task alone

    def answer(domain: str, batches: Iterator[pa.RecordBatch]) -> Iterator[Columns]:
        task: _DomainTask = pickle.loads(packed[domain])  # noqa: S301 - made above
        yield {"domain": [domain], "answer": [pickle.dumps(task.answer(batches))]}

    return answer
