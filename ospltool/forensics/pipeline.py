"""The pipeline of a plan: it loads sources into a case, and judges the domains whose records are new.

A plan may run any number of times, so a scheduler may repeat it: files that did not change are not read, and
a domain is judged again only if its records, what lies beside them, the window or this release changed. Each
stage ends with a new version of the case, so a run that is killed leaves the last whole one. Alerts are
delivered before the verdicts become a version: a run that is killed between delivers them twice, never less.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from engine.core.untrusted import words_of
from engine.tracing.version import product_version
from ospltool.analytics.case import Case, CaseError, domain_in, open_case, writing
from ospltool.analytics.contract import Detail
from ospltool.analytics.duck import DuckEngine
from ospltool.analytics.engines import MOST_TASKS, need
from ospltool.forensics.attachments import Attachment, attach, kept_in
from ospltool.forensics.evidence import CaseEvidence, RawEvidence, size_of, window_of
from ospltool.forensics.fleet import JudgedDomain, Keeping, investigations
from ospltool.forensics.stages import JUDGED, verdict_rows
from ospltool.output.locations import located
from ospltool.output.progress import ProgressLine
from ospltool.trace.case.loading import load_case
from ospltool.trace.reading.ranges import RANGE_BYTES

if TYPE_CHECKING:
    from typing import TextIO

    from pyspark.sql import SparkSession

    from ospltool.analytics.engines import Engine
    from ospltool.trace.case.local_load import LoadCounts

MOST_PART_BYTES: Final = 1 << 30
"""Size of a part that a task still reads in seconds, so that a lost executor loses little."""


class PlanFault(ValueError):
    """A plan that cannot be carried out; the message names the file and the place."""


class SparkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which Spark does the work, and how.

    Attributes:
        master: as `--spark-master`.
        settings: more settings for Spark, such as `spark.executor.memory`.
    """

    master: str = "local[*]"
    settings: dict[str, str] = msgspec.field(default_factory=dict)


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a pipeline does.

    Attributes:
        sources: files and directories of traces, logs, stores, configurations and recordings; paths or URIs.
        target: directory of the case; a path or URI.
        engine: what does the work.
        spark: settings of the engine spark.
        stages: records (load), verdicts (judge); the order is always this one.
        since: judge no records before that time.
        until: judge no records after that time.
        part_bytes: bytes of a file that a task reads; by default chosen from the size of all files.
        alert: command that gets each new alert as a line of JSON on its standard input.
    """

    sources: tuple[str, ...]
    target: str
    engine: Literal["duckdb", "spark"] = "duckdb"
    spark: SparkPlan = SparkPlan()
    stages: tuple[Literal["records", "verdicts"], ...] = ("records", "verdicts")
    since: str | None = None
    until: str | None = None
    part_bytes: int | None = None
    alert: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no engine can do."""
        if not self.sources and "records" in self.stages:
            raise ValueError("sources: name at least one file or directory")
        if self.part_bytes is not None and self.part_bytes < 1 << 16:
            raise ValueError("part_bytes must be at least 65536")


def read_plan(path: pathlib.Path) -> Plan:
    """Read a plan in TOML; relative paths in it are relative to its directory.

    Raises:
        PlanFault: it cannot be read, or says something else.
    """
    try:
        plan = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Plan)
    except OSError as cause:
        raise PlanFault(f"{path}: {cause.strerror or cause}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, ValueError) as cause:
        raise PlanFault(f"{path}: {words_of(cause)}") from None
    sources = tuple(_beside(path, one) for one in plan.sources)
    return msgspec.structs.replace(plan, sources=sources, target=_beside(path, plan.target))


def _beside(plan: pathlib.Path, name: str) -> str:
    return name if "://" in name else str(plan.parent / name)


@dataclasses.dataclass(frozen=True, slots=True)
class Alert:
    """Something bad that no former run found.

    Attributes:
        domain: the domain.
        row: its row of table verdicts.
    """

    domain: str
    row: Mapping[str, Any]

    def as_value(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = ("kind", "rule", "code", "set_name", "nodes", "title", "start_ns", "end_ns", "story")
        return {"domain": self.domain, **{name: self.row.get(name) for name in names}}


@dataclasses.dataclass(frozen=True, slots=True)
class PipelineRun:
    """What a run did.

    Attributes:
        loaded: counts of all that is loaded; None without that stage.
        judged: the domains that were judged, by name.
        unchanged: number of domains that were judged before, and have not changed.
        alerts: what is new and bad.
        problems: stores and the like that could not be read.
    """

    loaded: LoadCounts | None
    judged: tuple[str, ...]
    unchanged: int
    alerts: tuple[Alert, ...]
    problems: tuple[str, ...]


def run(plan: Plan, stream: TextIO, deliver: Callable[[Sequence[Alert]], None]) -> PipelineRun:
    """Carry out a plan.

    Args:
        plan: the plan.
        stream: shows the progress if it is a terminal.
        deliver: gets the alerts, if there are any; after an error, the next run delivers them again.

    Raises:
        AnalyticsMissingError, CaseError, LocationError, QueryError, SourceError, TimeError: a stage cannot be
            done; what the stages before it did stays.
    """
    target = located(plan.target)
    loaded: LoadCounts | None = None
    problems: tuple[str, ...] = ()
    with contextlib.ExitStack() as stack:
        session, engine_of = _spark(plan, stack) if plan.engine == "spark" else (None, _duck)
        if "records" in plan.stages:
            evidence = RawEvidence(plan.sources, stream)
            loaded = _load(plan, evidence, target, session, stream)
            problems = attach(target, evidence.attachments).problems if evidence.attachments else ()
        if "verdicts" not in plan.stages:
            return PipelineRun(loaded, (), 0, (), problems)
        judged, unchanged, alerts = _judge(plan, target, engine_of, deliver)
    return PipelineRun(loaded, judged, unchanged, alerts, problems)


def _duck(case: Case) -> Engine:
    return DuckEngine(case, is_frugal=True)


def _spark(plan: Plan, stack: contextlib.ExitStack) -> tuple[SparkSession, Callable[[Case], Engine]]:
    """Open a session for all stages of a plan; return it, and what opens an engine in it for a case."""
    need("pyspark", "spark")
    from ospltool.analytics.spark import SparkEngine, end, session

    master = plan.spark.master
    opened = session(master, plan.spark.settings)
    stack.callback(end, opened)
    return opened, lambda case: SparkEngine(case, master, opened=opened)


def part_bytes(sources_bytes: int, wanted: int | None = None) -> int:
    """Return the bytes of a file that a task reads, with which the tasks stay few.

    Args:
        sources_bytes: bytes of all files.
        wanted: as a plan says; None to choose.
    """
    return wanted or min(max(RANGE_BYTES, sources_bytes // MOST_TASKS), MOST_PART_BYTES)


def _load(
    plan: Plan, evidence: RawEvidence, target: pathlib.Path, session: SparkSession | None, stream: TextIO
) -> LoadCounts:
    size = part_bytes(size_of(evidence.sources), plan.part_bytes)
    master = None if session is None else plan.spark.master
    title = f"loading into {target}"
    with contextlib.closing(ProgressLine(title, stream, in_bytes=True, by_timer=True)) as progress:
        return load_case(
            evidence.sources, target, Detail.FULL, master, progress, range_bytes=size, opened=session
        )


def _judge(
    plan: Plan,
    target: pathlib.Path,
    engine_of: Callable[[Case], Engine],
    deliver: Callable[[Sequence[Alert]], None],
) -> tuple[tuple[str, ...], int, tuple[Alert, ...]]:
    """Judge the domains that changed; return them, the number of the others, and what is new and bad."""
    case, beside = open_case(target), kept_in(target)
    with contextlib.closing(engine_of(case)) as engine:
        evidence = CaseEvidence(case, engine, beside)
        window = window_of(evidence, plan.since, plan.until, ())
        now = _identities(plan, case, beside)
        before, known = _former(engine)
        changed = {domain: judged for domain, judged in now.items() if before.get(domain) != judged}
        dropped = {*changed, *(before.keys() - now.keys())}
        if not dropped:
            return (), len(now), ()
        with writing(target, case.detail) as writer:
            if writer.contents != case.contents:
                raise CaseError(f"{target}: was changed by another command meanwhile; run the plan again")
            keeping = Keeping(target.absolute(), changed)
            done = list(investigations(evidence, window, {}, keeping=keeping))
            tables = dict(writer.contents.tables)
            for table in JUDGED:
                stay = [place for place in tables.get(table, ()) if domain_in(place) not in dropped]
                new = [place for one in done for place in one.places.get(table, ())]
                tables[table.value] = sorted({*stay, *new})
            alerts = tuple(alert for one in done for alert in _alerts(one, known))
            if alerts:
                deliver(alerts)
            writer.commit(dataclasses.replace(writer.contents, tables=tables))
    return tuple(one.name for one in done), len(now) - len(done), alerts


def _identities(plan: Plan, case: Case, beside: Sequence[Attachment]) -> dict[str, str]:
    """Return what identifies the evidence of each domain, and how it is judged."""
    how = [product_version(), plan.since, plan.until]
    found: dict[str, list[object]] = {}
    for key, entry in sorted(case.contents.files.items()):
        found.setdefault(entry["domain"], [how]).append([key, [part["name"] for part in entry["parts"]]])
    for one in beside:  # where its copy lies tells its contents
        if one.domain in found:
            found[one.domain].append([one.what, one.node, one.name, one.path.name])
    return {
        domain: hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
        for domain, parts in found.items()
    }


_Known = set[tuple[object, ...]]
_KEY: Final = ("rule", "code", "set_name", "nodes", "start_ns")
_FORMER: Final = (
    "select domain, judged, kind, rule, code, set_name, nodes, start_ns from verdicts "
    "where is_bad or kind = 'headline'"
)


def _former(engine: Engine) -> tuple[dict[str, str], _Known]:
    """Return by what each domain was judged before, and what was bad then."""
    judged: dict[str, str] = {}
    bad: _Known = set()
    for domain, by, kind, *key in engine.own_query(_FORMER).rows:
        if kind == "headline":
            judged[str(domain)] = str(by)
        else:
            bad.add((domain, *key))
    return judged, bad


def _alerts(one: JudgedDomain, known: _Known) -> Iterator[Alert]:
    for row in verdict_rows(one.drawn):
        key = (one.name, *(row.get(name) for name in _KEY))
        if row["is_bad"] and row["kind"] != "headline" and key not in known:
            yield Alert(one.name, row)
