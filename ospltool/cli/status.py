"""`ospltool status`: show the state of nodes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from engine.supervisor.node_status import RESPONDING, Condition
from engine.supervisor.policy import EXIT_CONFIGURATION
from ospltool.cli import started_nodes
from ospltool.cli.exits import Exit
from ospltool.cli.options import AsJson, uri_argument
from ospltool.output import streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from engine.supervisor.node_status import NodeStatus


def status(
    uri: Annotated[
        str | None,
        uri_argument("Show the nodes of this configuration, fleet file (.toml) or domain name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a node on this machine, or of all nodes.

    Of one node that runs, it also shows: since when it is in its state, fellows, name-spaces with their
    masters and why, samples, disk, what it waits for, and its trouble.

    If the store of a node refuses data, the output has the cause and the number of samples that are only in
    memory; the node still runs, so the exit code stays 0. The output also names the last failure of a node
    that has recovered, name-spaces of which a node has only a part, and groups of which it keeps nothing
    because its content filter does not fit. A node of a fleet file that this user did not start on this
    machine has a line, too; it does not change the exit code while others run, because it may have another
    host.

    Exit codes: 0 all nodes run and respond, 1 a node does not, or no node is known, 2 wrong usage, or no such
    file or domain name.
    """
    found = started_nodes.find_nodes(uri, os.environ) if uri else started_nodes.known_nodes(os.environ)
    if as_json:
        started_nodes.put_json("status", found)
    else:
        about = ""
        if uri and len(found) == 1 and found[0].condition in (Condition.OPERATIONAL, Condition.STARTING):
            from ospltool.cli.show import node_text  # the status of all nodes costs no DDS

            found, about = node_text(found[0], lambda: started_nodes.find_nodes(uri, os.environ))
        started_nodes.put_sentences(found)
        if uri:
            started_nodes.put_never_started(uri, os.environ, found)
        streams.put(about)
    if not found and uri:
        raise started_nodes.why_none(uri, os.environ)
    if not found:
        streams.notify("ospltool: no node is known here")
    elif not as_json:
        _advise(found, uri)
    is_good = bool(found) and all(each.condition in RESPONDING for each in found)
    raise typer.Exit(Exit.GOOD if is_good else Exit.RECOVERABLE)


def _advise(found: Sequence[NodeStatus], uri: str | None) -> None:
    """Say how nodes that do not run are started again, if there are any."""
    from ospltool.cli.targets import is_fleet

    ended = [one for one in found if one.condition in (Condition.STOPPED, Condition.DIED)]
    refused = [one.record.domain_name for one in ended if one.record.exit_code == EXIT_CONFIGURATION]
    if refused:
        names = visible(", ".join(refused))
        streams.notify(f"ospltool: {names} cannot run as it is: do first what its reason says, then start it")
    ended = [one for one in ended if one.record.exit_code != EXIT_CONFIGURATION]
    if ended:
        file, them = ("FILE", "them") if len(ended) > 1 else (ended[0].record.configuration, "it")
        if uri and is_fleet(uri):
            file = uri
        streams.notify(f"ospltool: `ospltool start {shlex.quote(file)}` starts {them} again")
