"""Options, errors and exit codes that the commands on traces share."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ospltool.trace.reading.damage import FileDamage

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
