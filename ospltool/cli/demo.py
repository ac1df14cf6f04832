"""`ospltool demo`: a checked demonstration in five acts."""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.exits import CommandError, Exit
from ospltool.output import streams
from ospltool.output.envelope import document
from ospltool.output.installation import extra_command

if TYPE_CHECKING:
    from ospltool.demo.acts import ActResult


def demo(
    headless: Annotated[
        bool,
        typer.Option(
            "--headless",
            help="Print one line per act instead of opening the console (default without a terminal).",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the acts as JSON; implies --headless.")
    ] = False,
    domain: Annotated[
        int | None, typer.Option(min=0, max=230, help="Use this DDS domain (default: one from 100 to 199).")
    ] = None,
    directory: Annotated[
        pathlib.Path | None,
        typer.Option(help="Keep stores and traces in this directory (default: a temporary one)."),
    ] = None,
) -> None:
    """Start three nodes, and show and check their behaviour in five acts.

    Exit codes: 0 all acts hold, 1 an act does not hold (the output says why), 2 not installed.
    """
    try:
        from ospltool.demo import acts
    except ImportError as error:
        message = f"{error}; `{extra_command('demo')}` installs it"
        raise CommandError(message) from error
    if headless or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        reports = acts.play(domain, directory, lambda news: _tell(news, as_json=as_json))
    else:
        reports = acts.play_with_console(domain, directory)
        for report in reports:
            streams.put(_line(report))
    if as_json:
        streams.put(document("demo", reports))
    raise typer.Exit(Exit.GOOD if reports and all(report.holds for report in reports) else Exit.FINDINGS)


def _tell(news: str | ActResult, *, as_json: bool) -> None:
    if isinstance(news, str):
        streams.notify(news)
    elif not as_json:
        streams.put(_line(news))
        sys.stdout.flush()


def _line(report: ActResult) -> str:
    verdict = "holds" if report.holds else "DOES NOT HOLD"
    return f"act {report.act} {verdict} ({report.seconds:.1f} s): {report.text}\n"
