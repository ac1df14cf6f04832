"""`ospltool logs`: show the logs and traces of nodes."""

from __future__ import annotations

import collections
import os
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli import started_nodes
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, uri_argument
from ospltool.cli.trace import Since, Until, end, errors, record_filter
from ospltool.output import streams
from ospltool.output.text import visible
from ospltool.trace.reading.sources import SourceSet, TraceFile, sniff
from ospltool.trace.views.records import ViewOptions, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.supervisor.node_status import NodeStatus


def logs(
    uri: Annotated[
        str | None,
        uri_argument("Show the logs of this domain name, configuration or fleet file (default: all nodes)."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep reading as the logs grow, until Ctrl+C.")
    ] = False,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", min=0, metavar="N", help="Show only the last N records.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("-l", "--level", help="Show only records of this level or above, such as WARNING."),
    ] = None,
    grep: Annotated[
        list[str] | None,
        typer.Option("-g", "--grep", metavar="REGEX", help="Show only records that match REGEX."),
    ] = None,
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Show the information log, the error log and the trace of nodes on this machine, merged by time.

    The files are those that the nodes were started with, wherever they lie. `ospltool trace` reads them with
    more options, and on other machines, too.

    Exit codes: 0 success, 1 no log yet, or a damaged file was read in part, 2 wrong usage, no such node or
    an unreadable log, 130 interrupted.
    """
    if follow and as_json:
        raise CommandError(
            "--follow never ends, which JSON cannot: leave out --json, or use `ospltool trace`"
        )
    found = started_nodes.find_nodes(uri, os.environ) if uri else started_nodes.known_nodes(os.environ)
    if not found and uri:
        raise CommandError(started_nodes.why_none(uri, os.environ).lines)
    options = ViewOptions(
        filter=record_filter(level, grep or ()),
        since=since,
        until=until,
        output="json" if as_json else "short",
        lines=lines,
        follow=follow,
    )
    with errors():
        sources = _sources(found)
        if not sources.sources and not (follow and sources.awaited):
            names = visible(", ".join(dict.fromkeys(one.record.domain_name for one in found)))
            why = f"{names}: no log was written yet" if found else "no node is known here"
            raise CommandError(why, Exit.FINDINGS)
        for one in sources.sources:
            streams.notify(f"ospltool: {visible(str(one.path))}")
        show(sources, options, dict(os.environ))
    end()


def _sources(nodes: Sequence[NodeStatus]) -> SourceSet:
    """Return the logs with records, and those that may come; one that nodes share has all their names."""
    names: dict[str, set[str]] = collections.defaultdict(set)
    for node in nodes:
        for log in node.record.logs:
            names[log].add(node.record.domain_name)
    written: list[TraceFile] = []
    awaited: list[TraceFile] = []
    for log, owners in sorted(names.items()):
        path, owner = pathlib.Path(log), ",".join(sorted(owners))
        if path.exists() and path.stat().st_size:
            written.append(sniff(path, owner))
        else:
            awaited.append(TraceFile(path, owner))
    return SourceSet(tuple(written), awaited=tuple(awaited))
