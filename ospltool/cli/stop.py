"""`ospltool stop`: stop nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from engine.supervisor import control
from engine.supervisor.node_status import Condition
from ospltool.cli.exits import Exit
from ospltool.cli.options import AsJson, duration, uri_argument
from ospltool.cli.started_nodes import chosen_nodes, known_nodes, notify_stopped
from ospltool.output import envelope, streams

if TYPE_CHECKING:
    from engine.supervisor.node_status import NodeStatus
    from ospltool.output.documents import StoppedNode


def stop(
    uri: Annotated[
        str | None,
        uri_argument("Stop the nodes of this configuration, fleet file (.toml) or domain name."),
    ] = None,
    all_nodes: Annotated[
        bool, typer.Option("--all", "-a", help="Stop all your nodes on this machine.")
    ] = False,
    timeout: float | None = duration(
        None, "Wait at most DURATION (default: a little longer than the ServiceTerminatePeriod)."
    ),
    as_json: AsJson = False,
) -> None:
    """Stop a node after it has finished its work and written its data to its store.

    The supervisor kills a node that has not ended after its ServiceTerminatePeriod.

    Exit codes: 0 the node has stopped, 1 it is still stopping, 2 no such node.
    """
    known = _all_running() if all_nodes else chosen_nodes(uri)
    try:
        stops = control.stop_all([status.directory for status in known], timeout)
    except KeyboardInterrupt:
        streams.notify("ospltool: interrupted; nodes that were told to stop go on stopping")
        raise
    outcomes = list(zip(known, stops, strict=True))
    for status, outcome in outcomes:
        notify_stopped(status, outcome)
    if as_json:
        data: list[StoppedNode] = [
            {
                "domain_name": status.record.domain_name,
                "configuration": status.record.configuration,
                "outcome": outcome.name.lower(),
            }
            for status, outcome in outcomes
        ]
        streams.put(envelope.document("stop", data))
    is_late = any(outcome is control.Stop.STILL_STOPPING for _, outcome in outcomes)
    raise typer.Exit(Exit.RECOVERABLE if is_late else Exit.GOOD)


def _all_running() -> list[NodeStatus]:
    return [each for each in known_nodes(os.environ) if each.condition is not Condition.STOPPED]
