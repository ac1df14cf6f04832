"""`ospltool trace`: read, follow, merge, filter and explain traces and logs."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.main
from typer.core import TyperGroup

from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.trace_analyses import AsJson, Master, Since, Skew, Until, end, errors, needs_analytics
from ospltool.output.text import plural

if TYPE_CHECKING:
    from ospltool.analytics.contract import Detail
    from ospltool.forensics.attachments import Attachment
    from ospltool.forensics.evidence import RawEvidence
    from ospltool.trace.case.local_load import LoadCounts
    from ospltool.trace.reading.sources import SourceSet

    Command = Any  # Typer does not show its class

VIEW: Final = "view"
"""The command that runs if the first argument is not the name of a command."""

_HELP: Final = """Read, follow, merge, filter and explain traces and logs.

    ospltool trace [OPTIONS] FILE|DIRECTORY|NODE=FILE ...

Show records of OpenSplice and ospltool traces (all releases and flavours, also .gz and .zst), of
ospl-info.log and of ospl-error.log; records of several nodes are merged by time. `ospltool trace view --help`
lists the options.
"""

_SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

Names = Annotated[
    list[str] | None, typer.Argument(metavar="FILE|DIRECTORY|NODE=FILE...", help="Read these files.")
]


class _Group(TyperGroup):
    """A group whose first argument may be a file: the command is then `view`.

    It makes its commands, which have many options, only if they are needed, not for `ospltool --help`.
    """

    _made: MutableMapping[str, Command]

    @property
    def commands(self) -> MutableMapping[str, Command]:
        """The commands, by name."""
        if not self._made:
            self._made = typer.main.get_group(_commands()).commands
        return self._made

    @commands.setter
    def commands(self, given: MutableMapping[str, Command]) -> None:
        self._made = given

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # of its base
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            args = [VIEW, *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    trace = typer.Typer(cls=_Group, help=_HELP, no_args_is_help=True, **_SETTINGS)
    app.add_typer(trace, name="trace", short_help="Read, follow, merge, filter and explain traces and logs.")


def _commands() -> typer.Typer:
    from ospltool.cli.trace_analyses import anomalies, conversation, timeline

    trace = typer.Typer(**_SETTINGS)
    trace.command(VIEW, short_help="Show records (the default).")(view)
    trace.command("conversation", short_help="Follow the alignments of one group across all nodes.")(
        conversation
    )
    trace.command("timeline", short_help="Show the time of phases, alignments and merges.")(timeline)
    trace.command("anomalies", short_help="Find anomalies, and say what became of the data.")(anomalies)
    trace.command("explain", short_help="Explain a line, a message, or the id of a template.")(explain)
    trace.command("load", short_help="Load traces into a case for SQL.")(load)
    return trace


def view(
    names: Names = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep reading as the files grow, like `tail -f`.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option("-n", "--lines", min=0, metavar="N", help="Show only the last N records."),
    ] = None,
    skew: Skew = None,
    level: Annotated[
        str | None,
        typer.Option(
            "-l", "--level", help="Show only records of this level or above, such as WARNING or ERROR."
        ),
    ] = None,
    thread: Annotated[
        list[str] | None,
        typer.Option(
            "-t", "--thread", metavar="GLOB", help="Show only records of these threads, such as d_*."
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Show only records in these service states, such as COMPLETE."),
    ] = None,
    fellow: Annotated[
        list[str] | None,
        typer.Option("--fellow", metavar="ID|NODE", help="Show only records about this node."),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="GLOB", help="Show only records about this name-space."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GLOB", help="Show only records about this partition.topic."),
    ] = None,
    conflict: Annotated[
        str | None, typer.Option("--conflict", help="Show only records about this conflict.")
    ] = None,
    run: Annotated[
        int | None,
        typer.Option("--run", metavar="N", help="Show only the Nth run of the service in its file."),
    ] = None,
    grep: Annotated[
        list[str] | None,
        typer.Option("-g", "--grep", metavar="REGEX", help="Show only records that match REGEX."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("-v", "--exclude", metavar="REGEX", help="Hide records that match REGEX."),
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="Ignore case in --grep, --exclude and --highlight.")
    ] = False,
    highlight: Annotated[
        str | None,
        typer.Option("-H", "--highlight", metavar="REGEX", help="Highlight text that matches REGEX."),
    ] = None,
    after: Annotated[
        int, typer.Option("-A", "--after", min=0, metavar="N", help="Show N records after each match.")
    ] = 0,
    before: Annotated[
        int, typer.Option("-B", "--before", min=0, metavar="N", help="Show N records before each match.")
    ] = 0,
    context: Annotated[
        int,
        typer.Option(
            "-C", "--context", min=0, metavar="N", help="Show N records before and after each match."
        ),
    ] = 0,
    since: Since = None,
    until: Until = None,
    around: Annotated[
        str | None, typer.Option("--around", metavar="TIME±DURATION", help="Show only records around TIME.")
    ] = None,
    gaps: Annotated[
        str | None, typer.Option("--gaps", metavar="DURATION", help="Mark silences of at least DURATION.")
    ] = None,
    hist: Annotated[
        str | None,
        typer.Option("--hist", metavar="DURATION", help="Show the number of records per DURATION."),
    ] = None,
    templates: Annotated[
        bool, typer.Option("--templates", help="Show the number of records per template.")
    ] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="List messages that match no template.")] = False,
    count: Annotated[bool, typer.Option("-c", "--count", help="Show only the number of records.")] = False,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="Set the format: short, full, raw, jsonl, parquet or template='{clock} {text}'.",
        ),
    ] = "short",
    colour: Annotated[
        str, typer.Option("--color", metavar="WHEN", help="Colour the output: auto, always or never.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the records of traces and logs, of several nodes merged by time.

    Exit codes: 0 success, 1 a damaged file was read in part, 2 wrong usage or unreadable input,
    130 interrupted.
    """
    from ospltool.trace.reading.reader import require_records
    from ospltool.trace.reading.record import LEVELS
    from ospltool.trace.views.records import ViewMode, ViewOptions, show
    from ospltool.trace.views.selection import REPORT_LEVELS, RecordFilter

    least = None if level is None else REPORT_LEVELS.get(level.upper(), level.upper())
    if least is not None and least not in LEVELS:
        known = ", ".join(dict.fromkeys((*LEVELS, *REPORT_LEVELS)))
        raise CommandError(f"{level!r} is not a level: write {known}", Exit.USAGE)
    if colour not in {"auto", "always", "never"}:
        raise CommandError(f"--color {colour!r}: choose auto, always or never", Exit.USAGE)
    modes = [
        mode
        for mode, chosen in (
            (ViewMode.COUNT, count),
            (ViewMode.HISTOGRAM, hist is not None),
            (ViewMode.TEMPLATES, templates),
            (ViewMode.UNKNOWN, unknown),
        )
        if chosen
    ]
    if len(modes) > 1 or (modes and follow):
        raise CommandError(
            "--count, --hist, --templates, --unknown and --follow exclude each other", Exit.USAGE
        )
    if follow and (as_json or output in {"json", "parquet"}):
        raise CommandError(
            "--follow never ends, so its output cannot be JSON or Parquet: choose -o jsonl", Exit.USAGE
        )
    with errors():
        options = ViewOptions(
            filter=RecordFilter(
                level=least,
                threads=tuple(thread or ()),
                states=tuple(one.upper() for one in state or ()),
                namespaces=tuple(namespace or ()),
                groups=tuple(group or ()),
                conflict=conflict,
                run=run,
                grep=tuple(_pattern(one, ignore_case) for one in grep or ()),
                exclude=tuple(_pattern(one, ignore_case) for one in exclude or ()),
            ),
            fellows=tuple(fellow or ()),
            since=since,
            until=until,
            around=around,
            skews=tuple(skew or ()),
            mode=modes[0] if modes else ViewMode.RECORDS,
            output="json" if as_json else output,
            lines=lines,
            before=before or context,
            after=after or context,
            gaps=gaps,
            span=hist or "1s",
            highlight=_pattern(highlight, ignore_case) if highlight else None,
            follow=follow,
            colour=colour,
        )
        sources = _sources(names)
        if not follow:
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
    from ospltool.output import envelope, streams
    from ospltool.output.text import visible
    from ospltool.trace.meaning import line_explanation as explaining
    from ospltool.trace.rules import all_rules

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
    engine: Annotated[str, typer.Option("--engine", help="Load with this engine: local or spark.")] = "local",
    master: Master = "local[*]",
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
    from ospltool.output import envelope, streams
    from ospltool.trace.views.times import duration

    if engine not in {"local", "spark"}:
        raise CommandError(f"--engine {engine!r}: choose local or spark", Exit.USAGE)
    with errors(), needs_analytics():
        from ospltool.analytics.case import keep_private
        from ospltool.analytics.contract import Detail
        from ospltool.output.progress import ProgressLine
        from ospltool.trace.case import loading

        detail = Detail.RECORDS if records_only else Detail.FULL
        place, spark_master = pathlib.Path(target), master if engine == "spark" else None
        began_ns = time.monotonic_ns()
        if follow:
            summary, attachments = _follow(names, place, detail, spark_master)
        else:
            evidence = _raw(names)
            attachments = evidence.attachments
            title = f"loading into {target}"
            with contextlib.closing(
                ProgressLine(title, sys.stderr, in_bytes=True, by_timer=True)
            ) as progress:
                summary = loading.load_case(evidence.sources, place, detail, spark_master, progress)
        took_ns = time.monotonic_ns() - began_ns
        kept, is_whole = _keep(place, attachments)
        keep_private(place)
    total = summary.total
    if as_json:
        streams.put(envelope.document("trace-load", loading.as_value(summary, target)))
        end(has_findings=not is_whole, damages=total.damages)
        return
    unmatched = plural(total.unmatched, "record matches", "records match")
    streams.say(
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
    from ospltool.cli.exits import interrupt_flag
    from ospltool.forensics.attachments import find_attachments, what_is
    from ospltool.output import streams
    from ospltool.trace.case import loading
    from ospltool.trace.reading.sources import named_path

    traces = [name for name in names or () if what_is(named_path(name)[1]) is None]
    if not names or not traces:
        raise CommandError("name the files or directories to follow", Exit.USAGE)
    told: list[LoadCounts] = []

    def tell(summary: LoadCounts) -> None:
        if not told:
            streams.say(f"{target}: {plural(summary.total.records, 'record')} so far; following until Ctrl-C")
            told.append(summary)

    summary = loading.follow_case(
        traces, target, detail, master, lambda: interrupt_flag(signal.SIGINT, signal.SIGTERM), tell
    )
    nodes = {source.node for source, _ in summary.sources}
    return summary, find_attachments(names, sorted(nodes))


def _raw(names: list[str] | None) -> RawEvidence:
    from ospltool.forensics.evidence import RawEvidence
    from ospltool.trace.reading import damage

    damage.take()  # what another command of this process has noted
    if not names:
        raise CommandError("name the files or directories to read", Exit.USAGE)
    return RawEvidence(names, sys.stderr)


def _keep(target: pathlib.Path, attachments: Sequence[Attachment]) -> tuple[str, bool]:
    """Put stores, configurations and recordings into the case; return what to report, and if all was read."""
    if not attachments:
        return "", True
    if not target.is_dir():
        needed = f"; {len(attachments)} stores, configurations and recordings need a case that is a directory"
        return needed, True
    from ospltool.forensics.attachments import keep
    from ospltool.output import progress, streams

    with progress.shown(f"adding {len(attachments)} stores, configurations and recordings"):
        kept = keep(target, attachments)
    for problem in kept.problems:
        streams.say(problem)
    said = f"; {kept.added} stores, configurations and recordings added, {kept.unchanged} unchanged"
    return said, kept.is_whole


def _pattern(text: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except re.error as cause:
        raise CommandError(f"{text!r} is not a regular expression: {cause}", Exit.USAGE) from None


def _sources(names: list[str] | None) -> SourceSet:
    from ospltool.trace.reading import damage
    from ospltool.trace.reading.sources import find_sources

    damage.take()  # what another command of this process has noted
    if not names:
        raise CommandError("name the files or directories to read", Exit.USAGE)
    return find_sources(names)
