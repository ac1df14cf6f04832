"""`ospltool check`: what is wrong with configurations before anything is started."""

from __future__ import annotations

import enum
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.exits import CommandError, Exit
from ospltool.output import streams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospltool.check.inputs import DeploymentInput
    from ospltool.check.runner import Choice
    from ospltool.diagnostics.model import Report


class Format(enum.StrEnum):
    """How findings are written; the same names as `ospltool.diagnostics.formats.FORMATS`."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"
    JSONL = "jsonl"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"
    SARIF = "sarif"
    RDJSON = "rdjson"


class Shown(enum.StrEnum):
    """The least severity to show."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class FailOn(enum.StrEnum):
    """The least severity that makes the command fail."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


class TargetName(enum.StrEnum):
    """The services that may run a configuration."""

    OPENSPLICE = "opensplice"
    OSPLTOOL = "ospltool"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", short_help="Check configurations and deployments.")(check)


def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            envvar="OSPL_URI",
            help="Files, file:// URIs, directories, or fleet files (.toml).",
            metavar="[PATH]...",
        ),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="A node of a deployment, as name=file.", metavar="NAME=FILE")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="A variable for all files, or for one --node.", metavar="[NODE:]VAR=VALUE"),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Compare the given files as nodes of one deployment.")
    ] = False,
    skip_others: Annotated[
        bool, typer.Option("--skip-others", help="Leave out XML files that are no OpenSplice configurations.")
    ] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(help="Only these rules: codes, beginnings of codes, names.", metavar="RULES"),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.", metavar="RULES")] = None,
    severity: Annotated[
        list[str] | None, typer.Option(help="Another severity for rules.", metavar="RULES=LEVEL")
    ] = None,
    show: Annotated[Shown, typer.Option(help="Show findings of this severity and above.")] = Shown.WARNING,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with 1 when a finding has this severity or more.")
    ] = FailOn.WARNING,
    target: Annotated[
        list[TargetName] | None, typer.Option(help="Only what matters for this service; both by default.")
    ] = None,
    output: Annotated[Format, typer.Option(help="How findings are written.")] = Format.FULL,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    output_file: Annotated[
        str | None, typer.Option(help="Write to this file instead of standard output.", metavar="FILE")
    ] = None,
    effective: Annotated[
        bool,
        typer.Option("--effective", help="Show every setting as a node sees it, and where it comes from."),
    ] = False,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Show name-spaces by nodes, with the expected masters.")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Carry out fixes that do not change the meaning.")
    ] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Carry out all fixes, also those that change the meaning.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what fixes would change, and change nothing.")
    ] = False,
    statistics: Annotated[bool, typer.Option("--statistics", help="Count findings by rule.")] = False,
) -> None:
    """Check one file, many files, or a whole deployment, and say what OpenSplice would do with them.

    Several files stand for themselves unless they are nodes of a fleet file or of --node, or --together is
    given. `ospltool explain CODE` tells more about a finding.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong usage, or a file that cannot be read.
    """
    from ospltool.check import commands

    _avoid_collections()
    kind = str(Format.JSON if as_json else output)
    try:
        deployments = commands.deployments(
            paths or [], node or [], env or [], os.environ, together=together, skip_others=skip_others
        )
        choice = commands.choice(
            select or [], ignore or [], severity or [], [str(each) for each in target or []], show.value
        )
    except commands.UsageFault as error:
        raise CommandError(str(error), Exit.USAGE) from None
    if effective or matrix:
        try:
            text = commands.overview(deployments, matrix=matrix, as_json=kind == "json")
        except commands.UsageFault as error:
            raise CommandError(str(error), Exit.USAGE) from None
        write_to(output_file, text)
        return
    if fix or unsafe_fixes or diff:
        _fix(deployments, choice, kind, output_file, fail_on, statistics, unsafe=unsafe_fixes, only_show=diff)
        return
    report = commands.check(deployments, choice)
    _finish(report, choice, kind, output_file, fail_on, statistics)


def _avoid_collections() -> None:
    """Thousands of small values live to the end of this short process; looking for cycles only costs time."""
    import gc

    gc.disable()


def _fix(
    deployments: Iterable[DeploymentInput],
    choice: Choice,
    kind: str,
    output_file: str | None,
    fail_on: FailOn,
    statistics: bool,
    *,
    unsafe: bool,
    only_show: bool,
) -> None:
    from engine.config.reader import read_bytes
    from ospltool.check import fixes

    outcome = fixes.fix(deployments, choice, unsafe=unsafe)
    if only_show:
        write_to(output_file, "".join(fixes.diff_of(each) for each in outcome.changes))
        streams.say(f"{outcome.fixed} fixes in {len(outcome.changes)} files, none of them written")
        raise typer.Exit(Exit.FINDINGS if outcome.changes else Exit.GOOD)
    try:
        fixes.write(outcome.changes, read_bytes)
    except fixes.FixFault as error:
        raise CommandError(str(error), Exit.USAGE) from None
    if outcome.changes:
        streams.say(f"{outcome.fixed} fixes in {len(outcome.changes)} files")
    _finish(outcome.report, choice, kind, output_file, fail_on, statistics)


def _finish(
    report: Report, choice: Choice, kind: str, output_file: str | None, fail_on: FailOn, statistics: bool
) -> None:
    """Write the findings, narrate the summary, and leave with the exit code."""
    from ospltool.check import commands
    from ospltool.diagnostics.formats import render

    if statistics:
        text = commands.statistics(report, as_json=kind == "json")
    else:
        colour = output_file is None and streams.wants_colour(sys.stdout, os.environ)
        text = render(commands.shown(report, choice), kind, colour=colour)
    write_to(output_file, text)
    for line in commands.summary(report, choice):
        streams.say(line)
    raise typer.Exit(commands.exit_code(report, fail_on.value))


def write_to(path: str | None, text: str) -> None:
    """Write data to a file, or to standard output when there is none.

    Raises:
        CommandError: the file cannot be written.
    """
    if path is None:
        streams.put(text)
        return
    try:
        Path(path).write_text(text, "utf-8", "backslashreplace")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", Exit.USAGE) from None
