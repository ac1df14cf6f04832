"""`ospltool trace`: read, follow, merge, filter and explain traces and logs."""

from __future__ import annotations

import os
import pathlib
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.main
from typer.core import TyperGroup

from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.trace_shared import AsJson, Skew, end, errors

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from ospltool.forensics.attachments import Attachment
    from ospltool.forensics.evidence import RawEvidence
    from ospltool.trace.reading.sources import Found

    Command = Any  # Typer does not show its class

VIEW: Final = "view"
"""The command that is meant when the first argument is no name of a command."""

_HELP: Final = """Read, follow, merge, filter and explain traces and logs.

    ospltool trace [OPTIONS] FILE|DIRECTORY|NODE=FILE ...

shows records: of durability traces of OpenSplice and of our engine (all releases and flavours, also .gz
and .zst), of ospl-info.log and ospl-error.log; of several nodes merged by time. `ospltool trace view --help`
lists its options.
"""

_SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

Names = Annotated[
    list[str] | None, typer.Argument(metavar="FILE|DIRECTORY|NODE=FILE...", help="What to read.")
]


class _Group(TyperGroup):
    """A group whose first argument may be a file: `view` is then meant.

    Its commands have many options; they are made when they are needed, not for the help of `ospltool`.
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
    trace.command("timeline", short_help="Show where the time went: phases, alignments, merges.")(timeline)
    trace.command("anomalies", short_help="Find what an expert would find.")(anomalies)
    trace.command("explain", short_help="Explain a line, a message, or the id of a template.")(explain)
    trace.command("load", short_help="Load traces into a case for SQL.")(load)
    return trace


def view(
    names: Names = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with what is added to the files.")
    ] = False,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", min=0, help="Only so many records, the last ones.")
    ] = None,
    skew: Skew = None,
    level: Annotated[
        str | None, typer.Option("-l", "--level", help="This level and above (WARNING).")
    ] = None,
    thread: Annotated[
        list[str] | None, typer.Option("-t", "--thread", metavar="GLOB", help="Threads (d_*).")
    ] = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="Service states (COMPLETE).")] = None,
    fellow: Annotated[
        list[str] | None, typer.Option("--fellow", metavar="ID|NODE", help="About this node.")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", metavar="GLOB", help="About this name-space.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GLOB", help="About this partition.topic.")
    ] = None,
    conflict: Annotated[str | None, typer.Option("--conflict", help="About this conflict.")] = None,
    run: Annotated[
        int | None, typer.Option("--run", help="This run of the service in its file, from 1.")
    ] = None,
    grep: Annotated[
        list[str] | None, typer.Option("-g", "--grep", metavar="REGEX", help="Records with this in them.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("-v", "--exclude", metavar="REGEX", help="Not records with this.")
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="For --grep, --exclude, --highlight.")
    ] = False,
    highlight: Annotated[
        str | None, typer.Option("-H", "--highlight", metavar="REGEX", help="Make this stand out.")
    ] = None,
    after: Annotated[int, typer.Option("-A", "--after", min=0, help="Records after each match.")] = 0,
    before: Annotated[int, typer.Option("-B", "--before", min=0, help="Records before each match.")] = 0,
    context: Annotated[
        int, typer.Option("-C", "--context", min=0, help="Records before and after each match.")
    ] = 0,
    since: Annotated[
        str | None, typer.Option("-S", "--since", metavar="TIME", help="Not before (ISO, 01:08:34, +10s).")
    ] = None,
    until: Annotated[str | None, typer.Option("-U", "--until", metavar="TIME", help="Not after.")] = None,
    around: Annotated[
        str | None, typer.Option("--around", metavar="TIME±DURATION", help="Around a time.")
    ] = None,
    gaps: Annotated[
        str | None, typer.Option("--gaps", metavar="DURATION", help="Mark silences of at least this.")
    ] = None,
    hist: Annotated[
        str | None, typer.Option("--hist", metavar="DURATION", help="Show counts in spans of this.")
    ] = None,
    templates: Annotated[bool, typer.Option("--templates", help="Show counts by template.")] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="Show what no template matches.")] = False,
    count: Annotated[bool, typer.Option("-c", "--count", help="Show only how many.")] = False,
    output: Annotated[
        str,
        typer.Option("-o", "--output", help="short, full, raw, jsonl, parquet or template='{clock} {text}'."),
    ] = "short",
    colour: Annotated[str, typer.Option("--color", metavar="WHEN", help="auto, always or never.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the records of traces and logs, of several nodes merged by time.

    Exit codes: 0 good, 1 a damaged file was read as far as possible, 2 wrong usage or input not readable,
    130 interrupted.
    """
    from ospltool.trace.reading.record import LEVELS
    from ospltool.trace.views.filters import Filter
    from ospltool.trace.views.view import Mode, Wishes, show

    if level is not None and level.upper() not in LEVELS:
        raise CommandError(f"{level!r} is no level; they are {', '.join(LEVELS)}", Exit.USAGE)
    if colour not in {"auto", "always", "never"}:
        raise CommandError(f"--color {colour!r}: choose auto, always or never", Exit.USAGE)
    modes = [
        mode
        for mode, chosen in (
            (Mode.COUNT, count),
            (Mode.HISTOGRAM, hist is not None),
            (Mode.TEMPLATES, templates),
            (Mode.UNKNOWN, unknown),
        )
        if chosen
    ]
    if len(modes) > 1 or (modes and follow):
        raise CommandError(
            "--count, --hist, --templates, --unknown and --follow exclude each other", Exit.USAGE
        )
    if follow and (as_json or output in {"json", "parquet"}):
        raise CommandError("what is followed has no end; choose -o jsonl with --follow", Exit.USAGE)
    with errors():
        wishes = Wishes(
            filter=Filter(
                level=level.upper() if level else None,
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
            mode=modes[0] if modes else Mode.RECORDS,
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
        show(_sources(names), wishes, dict(os.environ))
    end()


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT|ID", help="A line, a message, an id, or a rule.")],
    as_json: AsJson = False,
) -> None:
    """Explain a line of a trace, a message, a template (d_admin:1053), an event or a rule of `anomalies`.

    Exit codes: 0 good, 1 nothing is known about it.
    """
    from ospltool.output import envelope, streams
    from ospltool.output.text import visible
    from ospltool.trace.meaning import explain as explaining
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
        str, typer.Option("-o", "--output", help="The case: a directory, or a file case.duckdb.")
    ] = "case",
    records_only: Annotated[
        bool, typer.Option("--records-only", help="Without level, template and fields: faster.")
    ] = False,
    engine: Annotated[str, typer.Option("--engine", help="local or spark.")] = "local",
    master: Annotated[
        str, typer.Option("--master", help="local[*], spark://host:port or sc://host:port.")
    ] = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Load traces, logs, stores, configurations and recordings into a case.

    A case that is there already is added to: new files, new nodes, and what files have grown by. `ospltool
    sql` asks it, and every analysis takes it in place of files.

    Exit codes: 0 good, 1 a damaged file was loaded as far as possible, 2 wrong usage or input not readable.
    """
    from ospltool.cli.sql import needs_analytics
    from ospltool.output import envelope, streams
    from ospltool.trace.views.times import duration

    if engine not in {"local", "spark"}:
        raise CommandError(f"--engine {engine!r}: choose local or spark", Exit.USAGE)
    with errors(), needs_analytics():
        from ospltool.analytics.case import keep_private
        from ospltool.analytics.contract import Detail
        from ospltool.trace.case import loading

        detail = Detail.RECORDS if records_only else Detail.FULL
        progress = loading.Progress(sys.stderr)
        evidence = _raw(names)
        summary = loading.load_case(
            evidence.sources,
            pathlib.Path(target),
            detail,
            master if engine == "spark" else None,
            progress,
        )
        progress.close()
        kept = _keep(pathlib.Path(target), evidence.attachments)
        keep_private(pathlib.Path(target))
    total = summary.total
    if as_json:
        streams.put(envelope.document("trace-load", loading.as_value(summary, target)))
        end(damages=total.damages)
        return
    streams.say(
        f"{target}: {total.records} records from {total.bytes} bytes in {duration(progress.elapsed_ns)}; "
        f"{total.unparsed_bytes} bytes belong to no record"
        + ("" if records_only else f", {total.unmatched} records match no template")
        + kept
    )
    end(damages=total.damages)


def _raw(names: list[str] | None) -> RawEvidence:
    from ospltool.forensics.evidence import RawEvidence
    from ospltool.trace.reading import damage

    damage.take()  # what another command of this process has noted
    if not names:
        raise CommandError("name the files or directories to read", Exit.USAGE)
    return RawEvidence(names, sys.stderr)


def _keep(target: pathlib.Path, attachments: Sequence[Attachment]) -> str:
    """Puts stores, configurations and recordings into the case; returns what to say about it."""
    if not attachments:
        return ""
    if not target.is_dir():
        return f"; {len(attachments)} stores, configurations and recordings need a case that is a directory"
    from ospltool.forensics.keeping import keep
    from ospltool.output import streams

    kept = keep(target, attachments)
    for problem in kept.problems:
        streams.say(f"not kept: {problem}")
    return f"; {kept.added} stores, configurations and recordings added, {kept.unchanged} were there"


def _pattern(text: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except re.error as cause:
        raise CommandError(f"{text!r} is no regular expression: {cause}", Exit.USAGE) from None


def _sources(names: list[str] | None) -> Found:
    from ospltool.trace.reading import damage
    from ospltool.trace.reading.sources import find_sources

    damage.take()  # what another command of this process has noted
    if not names:
        raise CommandError("name the files or directories to read", Exit.USAGE)
    return find_sources(names)
