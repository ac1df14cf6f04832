"""`ospltool trace`: read, follow, merge, filter, explain and analyse traces and logs.

An analysis reads a case or its files, with the same result. `report` and `sql` share the options.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ospltool.analytics.case import CaseError, keep_private
from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import AnalyticsMissingError, QueryError, need
from ospltool.cli.exits import CommandError, Exit, interrupt_flag
from ospltool.cli.options import AsJson, DefaultGroup, EngineName, SparkMaster, command_group
from ospltool.output import envelope, progress, streams
from ospltool.output.installation import extra_command
from ospltool.output.locations import LocationError, located
from ospltool.output.progress import ProgressLine, counted
from ospltool.output.text import plural, visible
from ospltool.output.times import TimeError, duration
from ospltool.trace import rules as rule_book
from ospltool.trace.case.reading_back import files_by_domain
from ospltool.trace.meaning import line_explanation as explaining
from ospltool.trace.reading import damage
from ospltool.trace.reading.reader import require_records
from ospltool.trace.reading.record import LEVELS, no_collection, valid_text
from ospltool.trace.reading.sources import SourceError, find_sources, named_path
from ospltool.trace.rules import all_rules
from ospltool.trace.views import conversation as talks
from ospltool.trace.views import timeline as times
from ospltool.trace.views.overview import TooManySpansError
from ospltool.trace.views.records import ViewMode, ViewOptions, show
from ospltool.trace.views.render import RenderError
from ospltool.trace.views.selection import REPORT_LEVELS, RecordFilter

if TYPE_CHECKING:
    from ospltool.analytics.case import Case
    from ospltool.analytics.engines import Engine
    from ospltool.forensics.attachments import Attachment
    from ospltool.forensics.evidence import Evidence, RawEvidence
    from ospltool.trace.case.local_load import LoadCounts
    from ospltool.trace.case.reading_back import Window
    from ospltool.trace.reading.damage import FileDamage
    from ospltool.trace.reading.sources import SourceSet


_HELP: Final = """Read, follow, merge, filter and explain traces and logs.

    ospltool trace [OPTIONS] FILE|DIRECTORY|NODE=FILE ...

Show records of OpenSplice and ospltool traces (all releases and flavours, also .gz and .zst), of
ospl-info.log and of ospl-error.log; records of several nodes are merged by time. `ospltool trace view --help`
lists the options.
"""

LINES_AT_ONCE: Final = 1_000
"""Lines that are written together, since a conversation may have millions."""
_DRAWING: Final = "drawing the alignments"

Skew = Annotated[
    list[str] | None,
    typer.Option(
        "--skew",
        metavar="NODE=DURATION",
        help="Correct the clock of a node, such as n2=+1.3s; auto estimates all.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="CASE|FILE|DIRECTORY|NODE=FILE...", help="Read a case, or files."),
]
Since = Annotated[
    str | None,
    typer.Option("-S", "--since", metavar="TIME", help="Skip records before TIME (ISO, 01:08:34, +10s)."),
]
Until = Annotated[str | None, typer.Option("-U", "--until", metavar="TIME", help="Skip records after TIME.")]
Nodes = Annotated[
    list[str] | None, typer.Option("--node", metavar="NODE", help="Analyse only this node; repeatable.")
]


@dataclasses.dataclass(frozen=True, slots=True)
class WindowOptions:
    """The records that an analysis reads."""

    since: Since = None
    until: Until = None
    nodes: Nodes = None

    def resolved(self, evidence: Evidence) -> Window:
        """Return the window in the times of the evidence."""
        from ospltool.forensics.evidence import window_of

        return window_of(evidence, self.since, self.until, self.nodes or ())


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine that reads a case."""

    engine: EngineName = "duckdb"
    spark_master: SparkMaster = "local[*]"
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="NAME", help="Read only the records of this domain.")
    ] = None

    def open(self, case: Case) -> Engine:
        """Open the engine for a case.

        Raises:
            AnalyticsMissingError: it is not installed.
            CaseError: it cannot read this case.
            CommandError: the case has no such domain.
        """
        opened = self._opened(case)
        if self.domain is not None:
            try:
                self._require_domain(files_by_domain(opened))
            except BaseException:
                opened.close()
                raise
            opened.show_domain(self.domain)
        return opened

    def _opened(self, case: Case, *, is_frugal: bool = False) -> Engine:
        if self.engine == "spark":
            need("pyspark", "spark")
            from ospltool.analytics.spark import SparkEngine

            return SparkEngine(case, self.spark_master)
        need("duckdb", "sql")
        from ospltool.analytics.duck import DuckEngine

        return DuckEngine(case, is_frugal=is_frugal)

    def _require_domain(self, known: Collection[str]) -> None:
        if self.domain not in known:
            there = visible(", ".join(known))
            raise CommandError(f"no domain {visible(str(self.domain))}; there are {there or 'none'}")

    @contextlib.contextmanager
    def evidence(self, names: list[str] | None, *, of_all: bool = False) -> Iterator[Evidence]:
        """Open a case or files for an analysis; turn their faults into command errors.

        Args:
            names: the case, or the files.
            of_all: whether the evidence may be of several domains.
        """
        with self._all_evidence(names) as evidence:
            if self.domain is not None:
                self._require_domain(evidence.domains)
                evidence = evidence.of_domain(self.domain)
            if len(evidence.domains) > 1 and not of_all:
                there = visible(", ".join(evidence.domains))
                raise CommandError(f"there are several domains ({there}): choose one with --domain")
            yield evidence

    @contextlib.contextmanager
    def _all_evidence(self, names: list[str] | None) -> Iterator[Evidence]:
        streams.wait_for("opening the evidence")  # the libraries alone take seconds on a busy machine

        damage.collect()  # what another command of this process has noted
        if not names:
            raise CommandError("name a case, or the files or directories to read")
        with errors():
            from ospltool.forensics.attachments import AttachmentKind
            from ospltool.forensics.evidence import CaseEvidence, RawEvidence, is_case

            cases = [name for name in names if is_case(name)]
            if not cases and self.engine == "spark":
                raise CommandError("--engine spark needs a case: make one with `ospltool trace load`")
            if not cases:
                evidence = RawEvidence(names, sys.stderr)
                kinds = {one.what for one in evidence.attachments}
                if not evidence.sources and kinds <= {AttachmentKind.CONFIGURATION}:
                    files = ", ".join(names)
                    raise CommandError(f"{files}: no trace, log, store or recording")
                yield evidence
                return
            if len(names) > 1:
                raise CommandError(
                    f"{cases[0]}: give a case alone, or add the files to it with `ospltool trace load`"
                )
            with needs_analytics():
                from ospltool.analytics.case import open_case
                from ospltool.forensics.attachments import kept_in

                case = open_case(located(cases[0]))
                with contextlib.closing(self._opened(case, is_frugal=True)) as opened:
                    yield CaseEvidence(case, opened, kept_in(case.path))


@dataclasses.dataclass(frozen=True, slots=True)
class SelectionOptions:
    """The records that `view` shows."""

    level: Annotated[
        str | None,
        typer.Option(
            "-l", "--level", help="Show only records of this level or above, such as WARNING or ERROR."
        ),
    ] = None
    thread: Annotated[
        list[str] | None,
        typer.Option(
            "-t", "--thread", metavar="GLOB", help="Show only records of these threads, such as d_*."
        ),
    ] = None
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Show only records in these service states, such as COMPLETE."),
    ] = None
    fellow: Annotated[
        list[str] | None,
        typer.Option("--fellow", metavar="ID|NODE", help="Show only records about this node."),
    ] = None
    name_space: Annotated[
        list[str] | None,
        typer.Option("--name-space", metavar="GLOB", help="Show only records about this name-space."),
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GLOB", help="Show only records about this partition.topic."),
    ] = None
    conflict: Annotated[
        str | None, typer.Option("--conflict", help="Show only records about this conflict.")
    ] = None
    run: Annotated[
        int | None,
        typer.Option("--run", metavar="N", help="Show only the Nth run of the service in its file."),
    ] = None
    grep: Annotated[
        list[str] | None,
        typer.Option("-g", "--grep", metavar="REGEX", help="Show only records that match REGEX."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option("-x", "--exclude", metavar="REGEX", help="Hide records that match REGEX."),
    ] = None
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="Ignore case in --grep, --exclude and --highlight.")
    ] = False
    highlight: Annotated[
        str | None,
        typer.Option("-H", "--highlight", metavar="REGEX", help="Highlight text that matches REGEX."),
    ] = None

    def pattern(self, text: str) -> re.Pattern[str]:
        """Return a regular expression that ignores case if the user wants that."""
        return _pattern(text, re.IGNORECASE if self.ignore_case else 0)

    def filter(self) -> RecordFilter:
        """Return what selects the records, but for the fellows, whose names the files tell.

        Raises:
            CommandError: there is no such level, or an expression is wrong.
        """
        return RecordFilter(
            level=_least_level(self.level),
            threads=tuple(self.thread or ()),
            states=tuple(one.upper() for one in self.state or ()),
            namespaces=tuple(self.name_space or ()),
            groups=tuple(self.group or ()),
            conflict=self.conflict,
            run=self.run,
            grep=tuple(map(self.pattern, self.grep or ())),
            exclude=tuple(map(self.pattern, self.exclude or ())),
        )


def record_filter(level: str | None, grep: Iterable[str]) -> RecordFilter:
    """Return what selects the records of a level or above that match all of some expressions.

    Raises:
        CommandError: there is no such level, or an expression is wrong.
    """
    return RecordFilter(level=_least_level(level), grep=tuple(map(_pattern, grep)))


def _least_level(level: str | None) -> str | None:
    least = None if level is None else REPORT_LEVELS.get(level.upper(), level.upper())
    if least is not None and least not in LEVELS:
        known = ", ".join(dict.fromkeys((*LEVELS, *REPORT_LEVELS)))
        raise CommandError(f"{level!r} is not a level: write {known}")
    return least


def _pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(text, flags)
    except re.error as cause:
        raise CommandError(f"{text!r} is not a regular expression: {cause}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class LayoutOptions:
    """How `view` shows records, or what it counts in their place."""

    gaps: Annotated[
        str | None, typer.Option("--gaps", metavar="DURATION", help="Mark silences of at least DURATION.")
    ] = None
    hist: Annotated[
        str | None,
        typer.Option("--hist", metavar="DURATION", help="Show the number of records per DURATION."),
    ] = None
    templates: Annotated[
        bool, typer.Option("--templates", help="Show the number of records per template.")
    ] = False
    unknown: Annotated[bool, typer.Option("--unknown", help="List messages that match no template.")] = False
    count: Annotated[bool, typer.Option("-c", "--count", help="Show only the number of records.")] = False
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Set the format: short, full, raw, jsonl, parquet or template='{clock} {text}'.",
        ),
    ] = "short"
    colour: Annotated[
        Literal["auto", "always", "never"], typer.Option("--color", help="Colour the output.")
    ] = "auto"

    def mode(self, *, follow: bool) -> ViewMode:
        """Return the one thing to show.

        Raises:
            CommandError: there are several, or one that has no end.
        """
        chosen = {
            ViewMode.COUNT: self.count,
            ViewMode.HISTOGRAM: self.hist is not None,
            ViewMode.TEMPLATES: self.templates,
            ViewMode.UNKNOWN: self.unknown,
        }
        modes = [mode for mode, is_chosen in chosen.items() if is_chosen]
        if len(modes) > 1 or (modes and follow):
            raise CommandError("--count, --hist, --templates, --unknown and --follow exclude each other")
        return modes[0] if modes else ViewMode.RECORDS


Names = Annotated[
    list[str] | None, typer.Argument(metavar="FILE|DIRECTORY|NODE=FILE...", help="Read these files.")
]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How `view` reads the files."""

    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep reading as the files grow, like `tail -f`.")
    ] = False
    lines: Annotated[
        int | None,
        typer.Option("-n", "--lines", min=0, metavar="N", help="Show only the last N records."),
    ] = None
    skew: Skew = None


@dataclasses.dataclass(frozen=True, slots=True)
class SpanOptions:
    """The records around a match or a moment that `view` shows."""

    after: Annotated[
        int, typer.Option("-A", "--after", min=0, metavar="N", help="Show N records after each match.")
    ] = 0
    before: Annotated[
        int, typer.Option("-B", "--before", min=0, metavar="N", help="Show N records before each match.")
    ] = 0
    context: Annotated[
        int,
        typer.Option(
            "-C", "--context", min=0, metavar="N", help="Show N records before and after each match."
        ),
    ] = 0
    since: Since = None
    until: Until = None
    around: Annotated[
        str | None, typer.Option("--around", metavar="TIME±DURATION", help="Show only records around TIME.")
    ] = None


def view(
    names: Names = None,
    *,
    reading: ReadingOptions,
    selection: SelectionOptions,
    span: SpanOptions,
    layout: LayoutOptions,
    as_json: AsJson = False,
) -> None:
    """Show the records of traces and logs, of several nodes merged by time.

    Exit codes: 0 success, 1 a damaged file was read in part, 2 wrong usage or unreadable input,
    130 interrupted.
    """
    chosen, mode = selection.filter(), layout.mode(follow=reading.follow)
    if reading.follow and (as_json or layout.form in {"json", "parquet"}):
        raise CommandError(
            "--follow never ends, so its output cannot be JSON or Parquet: choose --format jsonl"
        )
    with errors():
        options = ViewOptions(
            filter=chosen,
            fellows=tuple(selection.fellow or ()),
            since=span.since,
            until=span.until,
            around=span.around,
            skews=tuple(reading.skew or ()),
            mode=mode,
            output="json" if as_json else layout.form,
            lines=reading.lines,
            before=span.before or span.context,
            after=span.after or span.context,
            gaps=layout.gaps,
            span=layout.hist or "1s",
            highlight=selection.pattern(selection.highlight) if selection.highlight else None,
            follow=reading.follow,
            colour=layout.colour,
        )
        sources = _sources(names)
        if not reading.follow:
            require_records(sources.sources)
        show(sources, options, dict(os.environ))
    end()


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT|ID", help="Explain this line, message, id or rule.")],
    as_json: AsJson = False,
) -> None:
    """Explain a line of a trace, a message, a template (d_admin:1053), an event or a rule of `anomalies`.

    Exit codes: 0 success, 1 nothing matches.
    """
    rule = next((one for one in all_rules() if one.name == text), None)
    if rule is not None:
        if as_json:
            told = {
                "rule": rule.name,
                "looks_for": rule.looks_for,
                "seen": rule.seen,
                "refuted": rule.refuted,
            }
            streams.put(envelope.document("trace-rule", told))
        else:
            streams.put(f"{rule.name}: {rule.looks_for}\n  Seen: {rule.seen}\n  Refuted by: {rule.refuted}\n")
        return
    found = explaining.explain(text)
    if as_json:
        streams.put(envelope.document("trace-explanation", [explaining.as_value(one) for one in found]))
    else:
        streams.put("\n".join(visible(explaining.as_text(one), keep_lines=True) + "\n" for one in found))
    if not found:
        raise CommandError(
            "no template matches; `ospltool trace --unknown` lists such messages", Exit.FINDINGS
        )


def load(
    names: Names = None,
    target: Annotated[
        str, typer.Option("-o", "--output", help="Write this case: a directory, or a .duckdb file.")
    ] = "case",
    records_only: Annotated[
        bool, typer.Option("--records-only", help="Leave out level, template and fields, which is faster.")
    ] = False,
    *,
    engine: EngineName = "duckdb",
    spark_master: SparkMaster = "local[*]",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep loading as files grow and appear, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load traces, logs, stores, configurations and recordings into a case.

    To a case that exists, the command adds new files, new nodes, and the new parts of files. `ospltool sql`
    queries a case, and every analysis takes one in place of files. With --follow, a command that was killed
    and is started again goes on where the case ends, and each record is there once.

    Exit codes: 0 success, 1 a damaged file was loaded in part, 2 wrong usage or unreadable input.
    """
    with errors(), needs_analytics():
        from ospltool.trace.case import loading

        detail = Detail.RECORDS if records_only else Detail.FULL
        place, master = located(target), spark_master if engine == "spark" else None
        began_ns = time.monotonic_ns()
        if follow:
            summary, attachments = _follow(names, place, detail, master)
        else:
            evidence = _raw(names)
            attachments = evidence.attachments
            title = f"loading into {target}"
            with contextlib.closing(
                ProgressLine(title, sys.stderr, in_bytes=True, by_timer=True)
            ) as progress:
                summary = loading.load_case(evidence.sources, place, detail, master, progress)
        took_ns = time.monotonic_ns() - began_ns
        kept, is_whole = _keep(place, attachments)
        keep_private(place)
    total = summary.total
    if as_json:
        streams.put(envelope.document("trace-load", loading.as_value(summary, target)))
        end(has_findings=not is_whole, damages=total.damages)
        return
    unmatched = plural(total.unmatched, "record matches", "records match")
    streams.notify(
        f"{target}: {plural(total.records, 'record')} from {plural(total.bytes, 'byte')} "
        f"in {duration(took_ns)}; "
        f"{plural(total.unparsed_bytes, 'byte belongs', 'bytes belong')} to no record"
        + ("" if records_only else f", {unmatched} no template")
        + kept
    )
    end(has_findings=not is_whole, damages=total.damages)


def _follow(
    names: list[str] | None, target: pathlib.Path, detail: Detail, master: str | None
) -> tuple[LoadCounts, Sequence[Attachment]]:
    """Load files as they grow, until Ctrl-C; return the counts, and what else the case is to keep."""
    from ospltool.forensics.attachments import find_attachments, what_is
    from ospltool.trace.case import loading

    traces = [name for name in names or () if what_is(named_path(name)[1]) is None]
    if not names or not traces:
        raise CommandError("name the files or directories to follow")
    told: list[LoadCounts] = []

    def show_first(summary: LoadCounts) -> None:
        if not told:
            streams.notify(
                f"{target}: {plural(summary.total.records, 'record')} so far; following until Ctrl-C"
            )
            told.append(summary)

    summary = loading.follow_case(
        traces, target, detail, master, lambda: interrupt_flag(signal.SIGINT, signal.SIGTERM), show_first
    )
    nodes = {source.node for source, _ in summary.sources}
    return summary, find_attachments(names, sorted(nodes))


def _raw(names: list[str] | None) -> RawEvidence:
    from ospltool.forensics.evidence import RawEvidence

    damage.collect()  # what another command of this process has noted
    if not names:
        raise CommandError("name the files or directories to read")
    return RawEvidence(names, sys.stderr)


def _keep(target: pathlib.Path, attachments: Sequence[Attachment]) -> tuple[str, bool]:
    """Put stores, configurations and recordings into the case; return what to report, and if all was read."""
    if not attachments:
        return "", True
    from ospltool.forensics.attachments import attach

    with progress.shown(f"adding {len(attachments)} stores, configurations and recordings"):
        kept = attach(target, attachments)
    for problem in kept.problems:
        streams.notify(problem)
    said = f"; {kept.added} stores, configurations and recordings added, {kept.unchanged} unchanged"
    return said, kept.is_whole


def _sources(names: list[str] | None) -> SourceSet:
    damage.collect()  # what another command of this process has noted
    if not names:
        raise CommandError("name the files or directories to read")
    return find_sources(names)


def say_damages(known: Iterable[FileDamage] = ()) -> bool:
    """Report the files that could not be read to the end; return whether there are any."""
    damages = {one.file: one for one in (*damage.collect(), *known)}
    for one in damages.values():
        streams.notify(str(one))
    return bool(damages)


def end(*, has_findings: bool = False, damages: Iterable[FileDamage] = ()) -> None:
    """End a command with exit code 1 if it has findings or could not read all of its input."""
    if say_damages(damages) or has_findings:
        raise typer.Exit(Exit.FINDINGS)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Turn errors in the input into command errors with exit code 2."""
    try:
        yield
    except (SourceError, TimeError, RenderError, TooManySpansError, LocationError) as error:
        say_damages()
        raise CommandError(str(error)) from error


def conversation(
    group: Annotated[str, typer.Argument(metavar="PARTITION.TOPIC", help="Follow this group.")],
    names: Inputs = None,
    *,
    skew: Skew = None,
    run: Annotated[
        int | None, typer.Option("--run", metavar="N", help="Show only alignments that began in the Nth run.")
    ] = None,
    window: WindowOptions,
    form: Annotated[
        Literal["text", "mermaid"], typer.Option("--format", help="Set the output format.")
    ] = "text",
    case: EngineOptions,
    as_json: AsJson = False,
) -> None:
    """Follow the alignments of one group across all nodes, as a sequence diagram.

    Exit codes: 0 success, 1 no alignment of this group, 2 wrong usage or unreadable input.
    """
    with case.evidence(names) as evidence:
        from ospltool.forensics import right_clocks

        with no_collection():
            talk, doubts = right_clocks.conversation_of(
                evidence, window.resolved(evidence), evidence.skews(skew or ()), group, run
            )
    if as_json:
        with progress.shown(_DRAWING, unit=""):
            document = envelope.document("trace-conversation", talks.as_value(talk, doubts))
        streams.put(document)
    elif talk.exchanges:
        lines = talks.as_mermaid(talk) if form == "mermaid" else talks.as_text(talk)
        with (
            contextlib.closing(progress.awaited(_pieces(lines), _DRAWING, "lines")) as pieces,
            no_collection(),
        ):
            for piece in pieces:
                streams.put(piece)
    _say_unknown(doubts)
    say_damages()
    if talk.exchanges and not talk.is_named:
        what = "no line of these traces names this group; shown are the alignments of its name-space"
        streams.notify(f"ospltool: {visible(group)}: {what}")
    if not talk.exchanges:
        raise CommandError(f"{group}: no alignment of this group in these traces", Exit.FINDINGS)


def _say_unknown(doubts: Iterable[str]) -> None:
    for one in doubts:
        streams.notify(f"unknown: {one}")


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    """Join lines to pieces that are written together, and count them as progress."""
    lines = counted(lines)
    while piece := "".join(f"{line}\n" for line in itertools.islice(lines, LINES_AT_ONCE)):
        yield piece


def timeline(
    names: Inputs = None,
    *,
    skew: Skew = None,
    window: WindowOptions,
    case: EngineOptions,
    as_json: AsJson = False,
) -> None:
    """Show the time of the phases of each run with their longest waits, of alignments and of merges.

    Exit codes: 0 success, 1 no trace among the files, or a damaged file was read in part, 2 wrong usage or
    unreadable input.
    """
    with case.evidence(names) as evidence:
        from ospltool.forensics import right_clocks

        facts, doubts = right_clocks.facts_of(
            evidence, window.resolved(evidence), evidence.skews(skew or ()), with_waits=True
        )
        with progress.shown("adding up the times", unit=""):
            answer = times.timeline(facts)
    if as_json:
        streams.put(envelope.document("trace-timeline", times.as_value(answer, doubts)))
    else:
        streams.put("".join(f"{line}\n" for line in times.as_text(answer)))
    _say_unknown(doubts)
    if not answer.runs:
        say_damages()
        raise CommandError(
            f"{visible(' '.join(names or ()))}: no timed record of a durability trace; logs of reports show "
            "neither phases nor alignments",
            Exit.FINDINGS,
        )
    end()


def anomalies(
    names: Inputs = None,
    *,
    skew: Skew = None,
    window: WindowOptions,
    rules: Annotated[
        list[str] | None, typer.Option("--rule", metavar="NAME", help="Show only this rule; repeatable.")
    ] = None,
    traces_only: Annotated[
        bool,
        typer.Option(
            "--traces-only", help="Do not read the stores and recordings that belong to the traces."
        ),
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list", help="List the rules.")] = False,
    case: EngineOptions,
    as_json: AsJson = False,
) -> None:
    """Find anomalies, and say what became of the data.

    The first line is the verdict: which set was emptied, replaced or left behind, where, when, by which
    decision. Then come what is unknown, the stories (findings with one cause), and each finding with its
    lines.

    Exit codes: 0 nothing found, 1 anomalies or a damaged file, 2 wrong usage or unreadable input.
    """
    known = {one.name: one.looks_for for one in rule_book.all_rules()}
    if list_rules:
        streams.put_table(("RULE", "LOOKS FOR"), list(known.items()))
        return
    unknown = [name for name in rules or () if name not in known]
    if unknown:
        raise CommandError(f"no rule {', '.join(unknown)}: see --list")
    with case.evidence(names, of_all=True) as evidence:
        from ospltool.forensics import text
        from ospltool.forensics.fleet import investigations

        has_several = len(evidence.domains) > 1
        values, count, is_bad = [], 0, False
        for judged in investigations(
            evidence,
            window.resolved(evidence),
            evidence.skews(skew or ()),
            rules,
            with_stores=not traces_only,
        ):
            found = judged.drawn
            count, is_bad = count + len(found.findings), is_bad or found.is_bad
            if as_json:
                values.append({"domain": valid_text(judged.name), **text.as_value(found)})
                continue
            if has_several:
                streams.put(f"Domain {visible(judged.name)}\n")
            streams.put("".join(f"{line}\n" for line in text.as_text(found)))
    if as_json:
        streams.put(envelope.document("trace-anomalies", {"domains": values} if has_several else values[0]))
    else:
        streams.notify(plural(count, "anomaly", "anomalies"))
    end(has_findings=is_bad)


@contextlib.contextmanager
def needs_analytics() -> Iterator[None]:
    """Turn a missing package, a bad case or a bad query into a command error with exit code 2."""
    try:
        yield
    except (CaseError, QueryError, AnalyticsMissingError, LocationError) as error:
        raise CommandError(str(error)) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"duckdb", "numpy", "pyarrow", "pyspark"}:
            raise
        raise CommandError(f"this needs {error.name}: `{extra_command('sql')}`") from error


group = command_group(
    _HELP,
    (
        ("view", view, "Show records (the default)."),
        ("conversation", conversation, "Follow the alignments of one group across all nodes."),
        ("timeline", timeline, "Show the time of phases, alignments and merges."),
        ("anomalies", anomalies, "Find anomalies, and say what became of the data."),
        ("explain", explain, "Explain a line, a message, or the id of a template."),
        ("load", load, "Load traces into a case for SQL."),
    ),
    cls=DefaultGroup,
)
