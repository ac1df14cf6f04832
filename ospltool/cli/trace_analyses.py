"""The analyses of `ospltool trace`, and what the commands on traces and cases share.

A case and its files give the same result.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from ospltool.analytics.case import Case
    from ospltool.analytics.engines import Engine
    from ospltool.forensics.evidence import Evidence
    from ospltool.trace.reading.damage import FileDamage

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
EngineName = Annotated[str, typer.Option("--engine", help="Read a case with duckdb or spark.")]
Master = Annotated[
    str,
    typer.Option(
        "--master", help="Connect to this Spark master: local[*], spark://host:port or sc://host:port."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def say_damages(known: Iterable[FileDamage] = ()) -> bool:
    """Report the files that could not be read to the end; return whether there are any."""
    from ospltool.output import streams
    from ospltool.trace.reading import damage

    damages = {one.file: one for one in (*damage.take(), *known)}
    for one in damages.values():
        streams.say(str(one))
    return bool(damages)


def end(*, has_findings: bool = False, damages: Iterable[FileDamage] = ()) -> None:
    """End a command with exit code 1 if it has findings or could not read all of its input."""
    if say_damages(damages) or has_findings:
        raise typer.Exit(Exit.FINDINGS)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Turn errors in the input into command errors with exit code 2."""
    from ospltool.trace.reading.sources import SourceError
    from ospltool.trace.views.overview import TooManySpansError
    from ospltool.trace.views.render import RenderError
    from ospltool.trace.views.times import TimeError

    try:
        yield
    except (SourceError, TimeError, RenderError, TooManySpansError) as error:
        say_damages()
        raise CommandError(str(error), Exit.USAGE) from error


def conversation(
    group: Annotated[str, typer.Argument(metavar="PARTITION.TOPIC", help="Follow this group.")],
    names: Inputs = None,
    skew: Skew = None,
    run: Annotated[
        int | None, typer.Option("--run", metavar="N", help="Show only alignments that began in the Nth run.")
    ] = None,
    since: Since = None,
    until: Until = None,
    nodes: Nodes = None,
    output: Annotated[str, typer.Option("-o", "--output", help="Set the format: text or mermaid.")] = "text",
    engine: EngineName = "duckdb",
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Follow the alignments of one group across all nodes, as a sequence diagram.

    Exit codes: 0 success, 1 no alignment of this group, 2 wrong usage or unreadable input.
    """
    from ospltool.output import envelope, progress, streams
    from ospltool.output.text import visible

    if output not in {"text", "mermaid"}:
        raise CommandError(f"--output {output!r}: choose text or mermaid", Exit.USAGE)
    with evidence_of(names, engine, master) as evidence:
        from ospltool.forensics import right_clocks
        from ospltool.forensics.evidence import window_of
        from ospltool.trace.reading.record import no_collection
        from ospltool.trace.views import conversation as talks

        window = window_of(evidence, since, until, nodes or ())
        with no_collection():
            talk, doubts = right_clocks.conversation_of(
                evidence, window, evidence.skews(skew or ()), group, run
            )
    if as_json:
        with progress.shown(_DRAWING, unit=""):
            value = {**talks.as_value(talk), "unknown": doubts}
            document = envelope.document("trace-conversation", value)
        streams.put(document)
    elif talk.exchanges:
        lines = talks.as_mermaid(talk) if output == "mermaid" else talks.as_text(talk)
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
        streams.say(f"ospltool: {visible(group)}: {what}")
    if not talk.exchanges:
        raise CommandError(f"{group}: no alignment of this group in these traces", Exit.FINDINGS)


def _say_unknown(doubts: Iterable[str]) -> None:
    from ospltool.output import streams

    for one in doubts:
        streams.say(f"unknown: {one}")


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    """Join lines to pieces that are written together, and count them as progress."""
    from ospltool.output.progress import counted

    lines = counted(lines)
    while piece := "".join(f"{line}\n" for line in itertools.islice(lines, LINES_AT_ONCE)):
        yield piece


def timeline(
    names: Inputs = None,
    skew: Skew = None,
    since: Since = None,
    until: Until = None,
    nodes: Nodes = None,
    engine: EngineName = "duckdb",
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Show the time of the phases of each run with their longest waits, of alignments and of merges.

    Exit codes: 0 success, 1 no trace among the files, or a damaged file was read in part, 2 wrong usage or
    unreadable input.
    """
    from ospltool.output import envelope, progress, streams
    from ospltool.output.text import visible

    with evidence_of(names, engine, master) as evidence:
        from ospltool.forensics import right_clocks
        from ospltool.forensics.evidence import window_of
        from ospltool.trace.views import timeline as times

        window = window_of(evidence, since, until, nodes or ())
        facts, doubts = right_clocks.facts_of(evidence, window, evidence.skews(skew or ()), with_waits=True)
        with progress.shown("adding up the times", unit=""):
            answer = times.timeline(facts)
    if as_json:
        streams.put(envelope.document("trace-timeline", {**times.as_value(answer), "unknown": doubts}))
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
    skew: Skew = None,
    since: Since = None,
    until: Until = None,
    nodes: Nodes = None,
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
    engine: EngineName = "duckdb",
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Find anomalies, and say what became of the data.

    The first line is the verdict: which set was emptied, replaced or left behind, where, when, by which
    decision. Then come what is unknown, the stories (findings with one cause), and each finding with its
    lines.

    Exit codes: 0 nothing found, 1 anomalies or a damaged file, 2 wrong usage or unreadable input.
    """
    from ospltool.output import envelope, streams
    from ospltool.output.text import plural
    from ospltool.trace import rules as rule_book

    known = {one.name: one.looks_for for one in rule_book.all_rules()}
    if list_rules:
        streams.put_table(("RULE", "LOOKS FOR"), list(known.items()))
        return
    unknown = [name for name in rules or () if name not in known]
    if unknown:
        raise CommandError(f"no rule {', '.join(unknown)}: see --list", Exit.USAGE)
    with evidence_of(names, engine, master) as evidence:
        from ospltool.forensics import text
        from ospltool.forensics.evidence import window_of
        from ospltool.forensics.investigation import investigate

        window = window_of(evidence, since, until, nodes or ())
        found = investigate(evidence, window, evidence.skews(skew or ()), rules, with_stores=not traces_only)
    if as_json:
        streams.put(envelope.document("trace-anomalies", text.as_value(found)))
    else:
        streams.put("".join(f"{line}\n" for line in text.as_text(found)))
        streams.say(plural(len(found.findings), "anomaly", "anomalies"))
    end(has_findings=found.is_bad)


@contextlib.contextmanager
def evidence_of(names: list[str] | None, engine: str, master: str) -> Iterator[Evidence]:
    """Open a case (with a query engine) or files for an analysis; turn their faults into command errors.

    `names` are those of a case or of files; Spark runs on `master`.
    """
    from ospltool.output import streams

    streams.wait_for("opening the evidence")  # the libraries alone take seconds on a busy machine
    from ospltool.trace.reading import damage

    damage.take()  # what another command of this process has noted
    if not names:
        raise CommandError("name a case, or the files or directories to read", Exit.USAGE)
    if engine not in {"duckdb", "spark"}:
        raise CommandError(f"--engine {engine!r}: choose duckdb or spark", Exit.USAGE)
    with errors():
        from ospltool.forensics.attachments import AttachmentKind
        from ospltool.forensics.evidence import CaseEvidence, RawEvidence, is_case

        cases = [name for name in names if is_case(name)]
        if not cases and engine == "spark":
            raise CommandError("--engine spark needs a case: make one with `ospltool trace load`", Exit.USAGE)
        if not cases:
            evidence = RawEvidence(names, sys.stderr)
            kinds = {one.what for one in evidence.attachments}
            if not evidence.sources and kinds <= {AttachmentKind.CONFIGURATION}:
                files = ", ".join(names)
                raise CommandError(f"{files}: no trace, log, store or recording", Exit.USAGE)
            yield evidence
            return
        if len(names) > 1:
            raise CommandError(
                f"{cases[0]}: give a case alone, or add the files to it with `ospltool trace load`",
                Exit.USAGE,
            )
        with needs_analytics():
            from ospltool.analytics.case import open_case
            from ospltool.forensics.attachments import kept_in

            case = open_case(pathlib.Path(cases[0]))
            with contextlib.closing(open_engine(case, engine, master, is_frugal=True)) as opened:
                yield CaseEvidence(case, opened, kept_in(case.path))


def open_engine(case: Case, engine: str, master: str, *, is_frugal: bool = False) -> Engine:
    """Open the engine with a name for a case.

    Args:
        case: the case.
        engine: `duckdb` or `spark`.
        master: where Spark runs.
        is_frugal: whether DuckDB takes half of the memory and one processor.

    Raises:
        AnalyticsMissingError: it is not installed.
        CaseError: it cannot read this case.
    """
    from ospltool.analytics.engines import need

    if engine == "spark":
        need("pyspark", "spark")
        from ospltool.analytics.spark import SparkEngine

        return SparkEngine(case, master)
    need("duckdb", "sql")
    from ospltool.analytics.duck import DuckEngine

    return DuckEngine(case, is_frugal=is_frugal)


@contextlib.contextmanager
def needs_analytics() -> Iterator[None]:
    """Turn a missing package, a bad case or a bad query into a command error with exit code 2."""
    from ospltool.analytics.case import CaseError
    from ospltool.analytics.engines import AnalyticsMissingError, QueryError

    try:
        yield
    except (CaseError, QueryError, AnalyticsMissingError) as error:
        raise CommandError(str(error), Exit.USAGE) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"duckdb", "numpy", "pyarrow", "pyspark"}:
            raise
        raise CommandError(f"this needs {error.name}: pip install 'ospltool[sql]'", Exit.USAGE) from error
