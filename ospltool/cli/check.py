"""`ospltool check`: find faults in configurations before a node starts with them."""

from __future__ import annotations

import dataclasses
import enum
import gc
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ospltool.check import commands
from ospltool.check.inputs import UsageError
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import Force
from ospltool.diagnostics.formats import render
from ospltool.output import streams
from ospltool.output.text import plural

if TYPE_CHECKING:
    from ospltool.check.inputs import DeploymentInput
    from ospltool.check.runner import Choice
    from ospltool.diagnostics.model import Report


class CheckedService(enum.StrEnum):
    """The services that may run a configuration."""

    OPENSPLICE = "opensplice"
    OSPLTOOL = "ospltool"


OutputFormat = Literal["full", "concise", "json", "jsonl", "github", "gitlab", "junit", "sarif", "rdjson"]
"""The names of `ospltool.diagnostics.formats.FORMATS`."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """Which files are checked together."""

    node: Annotated[
        list[str] | None, typer.Option(help="Add a node of a deployment; repeatable.", metavar="NAME=FILE")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(help="Set a variable for all files, or for one --node.", metavar="[NODE:]VAR=VALUE"),
    ] = None
    together: Annotated[
        bool, typer.Option("--together", help="Check the files as the nodes of one deployment.")
    ] = False
    skip_others: Annotated[
        bool, typer.Option("--skip-others", help="Skip XML files that are not OpenSplice configurations.")
    ] = False


@dataclasses.dataclass(frozen=True, slots=True)
class RuleOptions:
    """Which rules are run, and what their findings count."""

    select: Annotated[
        list[str] | None,
        typer.Option(help="Run only these rules (codes, prefixes or names).", metavar="RULES"),
    ] = None
    ignore: Annotated[list[str] | None, typer.Option(help="Skip these rules.", metavar="RULES")] = None
    severity: Annotated[
        list[str] | None, typer.Option(help="Override the severity of rules.", metavar="RULES=LEVEL")
    ] = None
    show: Annotated[
        Literal["error", "warning", "info"], typer.Option(help="Show findings of this severity and above.")
    ] = "warning"
    fail_on: Annotated[
        Literal["error", "warning", "info", "never"],
        typer.Option(help="Exit with 1 if a finding has this severity or a higher one."),
    ] = "warning"
    target: Annotated[
        list[CheckedService] | None,
        typer.Option(help="Check for this service only (default: both)."),
    ] = None


@dataclasses.dataclass(frozen=True, slots=True)
class OutputOptions:
    """The form of the findings, and the file that they are written to."""

    form: Annotated[OutputFormat, typer.Option("--format", help="Set the output format.")] = "full"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, like --format json.")] = False
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file, not to standard output.")
    ] = None
    force: Force = False

    @property
    def kind(self) -> str:
        """The name of the format."""
        return "json" if self.as_json else self.form

    def write(self, text: str) -> None:
        """Write text to the file, or to standard output.

        Raises:
            CommandError: the file cannot be written.
        """
        if self.output is None:
            streams.put(text)
            return
        try:
            with streams.new_text(self.output, force=self.force) as file:
                file.write(text)
        except OSError as error:
            raise CommandError(f"{self.output} cannot be written: {error.strerror}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class TaskOptions:
    """What is done in place of, or beside, a report of the findings."""

    effective: Annotated[
        bool,
        typer.Option("--effective", help="Show the value of each setting, and its origin."),
    ] = False
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Show a table of name-spaces and nodes, with the expected masters."),
    ] = False
    fix: Annotated[bool, typer.Option("--fix", help="Apply fixes that change no effective setting.")] = False
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Apply all fixes, even if they change the meaning.")
    ] = False
    diff: Annotated[bool, typer.Option("--diff", help="Show the fixes as a diff, and change no file.")] = (
        False
    )
    tries: Annotated[
        bool, typer.Option("--try", help="Hand the settings to the installed Cyclone DDS as well.")
    ] = False
    statistics: Annotated[bool, typer.Option("--statistics", help="Count findings by rule.")] = False


def check(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            envvar="OSPL_URI",
            help="Files, file:// URIs, directories, or fleet files (.toml).",
            metavar="PATH",
        ),
    ] = None,
    *,
    deployment: DeploymentOptions,
    rules: RuleOptions,
    output: OutputOptions,
    task: TaskOptions,
) -> None:
    """Check one file, many files, or a whole deployment, and say what OpenSplice would do with them.

    Files are checked one by one unless a fleet file, --node or --together makes them one deployment.
    `ospltool explain CODE` explains a finding.

    Exit codes: 0 no finding at or above --fail-on, 1 findings, 2 wrong usage or an unreadable file.
    """
    _avoid_collections(context)
    try:
        deployments = commands.deployments(
            paths or [],
            deployment.node or [],
            deployment.env or [],
            os.environ,
            together=deployment.together,
            skip_others=deployment.skip_others,
        )
        services = [str(each) for each in rules.target or []]
        choice = commands.choice(
            rules.select or [], rules.ignore or [], rules.severity or [], services, rules.show
        )
    except UsageError as error:
        raise CommandError(str(error)) from None
    fixes = task.fix or task.unsafe_fixes or task.diff
    if task.tries and (task.effective or task.matrix or fixes):
        raise CommandError("--try only checks; leave out --fix, --diff, --effective and --matrix")
    if task.effective or task.matrix:
        try:
            text = commands.overview(deployments, matrix=task.matrix, as_json=output.kind == "json")
        except UsageError as error:
            raise CommandError(error.args) from None
        output.write(text)
        return
    if fixes:
        report = _fixed(deployments, choice, output, task)
    else:
        report = commands.check(deployments, choice, tries=task.tries)
    if task.statistics:
        text = commands.statistics(report, as_json=output.kind == "json")
    else:
        colour = output.output is None and streams.wants_colour(sys.stdout, os.environ)
        text = render(commands.shown(report, choice), output.kind, colour=colour)
    output.write(text)
    for line in commands.summary(report, choice):
        streams.notify(line)
    raise typer.Exit(commands.exit_code(report, rules.fail_on))


def _avoid_collections(context: typer.Context) -> None:
    """Turn off the garbage collector for a command: it keeps its objects, and collections only cost time."""
    gc.disable()
    context.call_on_close(gc.enable)


def _fixed(
    deployments: Iterable[DeploymentInput], choice: Choice, output: OutputOptions, task: TaskOptions
) -> Report:
    """Apply fixes, or show them and exit; return the findings that are left."""
    from engine.config.reader import read_bytes
    from ospltool.check import fixes

    outcome = fixes.fix(deployments, choice, unsafe=task.unsafe_fixes)
    done = f"{plural(outcome.fixed, 'fix', 'fixes')} in {plural(len(outcome.changes), 'file')}"
    if task.diff:
        output.write("".join(fixes.diff_of(each) for each in outcome.changes))
        streams.notify(f"{done}; nothing was written")
        raise typer.Exit(Exit.FINDINGS if outcome.changes else Exit.GOOD)
    try:
        fixes.write(outcome.changes, read_bytes)
    except fixes.FixError as error:
        raise CommandError(str(error)) from None
    if outcome.changes:
        streams.notify(done)
    return outcome.report
