"""`ospltool status`: how a node is."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ospltool.cli.exits import Exit
from ospltool.output import streams


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status", short_help="Show how a node is.")(status)


def status(
    uri: Annotated[
        str | None,
        typer.Argument(envvar="OSPL_URI", help="Configuration, fleet file (.toml), or a domain name."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Show the status as JSON.")] = False,
) -> None:
    """Show how a node on this machine is; all nodes when none is named.

    Nothing is printed for a node that is not known here.

    A node whose store refuses data is shown with the cause, and with how many samples are in its memory only.
    It runs all the same, so the exit code stays 0. A node that has recovered is shown with its last failure.
    Of a node that has only a part of a name-space's set, or keeps nothing of a group because its content
    filter does not fit, it says so.

    Exit codes: 0 all shown nodes run and respond, 1 one does not or none is known, 2 wrong usage.
    """
    from engine.supervisor.status import RESPONDING
    from ospltool.cli import known, node_report

    found = known.find_nodes(uri, os.environ) if uri else known.known_nodes(os.environ)
    if as_json:
        node_report.put_json("status", found)
    else:
        node_report.put_sentences(found)
    if not found:
        streams.say(f"ospltool: no node{f' of {uri}' if uri else ''} is known here")
    is_good = bool(found) and all(each.condition in RESPONDING for each in found)
    raise typer.Exit(Exit.GOOD if is_good else Exit.RECOVERABLE)
