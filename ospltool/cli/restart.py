"""`ospltool restart`: stop nodes and start them again."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from engine.supervisor import control
from ospltool.cli.exits import CommandError, Exit, interrupt_flag
from ospltool.cli.options import AsJson, duration
from ospltool.cli.start import end, interrupted, start_errors, start_node
from ospltool.cli.stop import chosen_nodes, say_outcome
from ospltool.cli.targets import PlannedNode, one_target

if TYPE_CHECKING:
    from engine.supervisor.node_status import NodeStatus
    from ospltool.cli.start import Outcome


def restart(
    uri: Annotated[
        str | None,
        typer.Argument(
            envvar="OSPL_URI",
            help="Restart the nodes of this configuration, fleet file (.toml) or domain name.",
        ),
    ] = None,
    node: Annotated[str | None, typer.Option(help="Restart only this node of a fleet file.")] = None,
    timeout: float = duration("60s", "Wait at most DURATION for each node to start."),
    as_json: AsJson = False,
) -> None:
    """Stop a node in order and start it again, with its configuration as it is now.

    The node starts in its former directory, with the environment of this command. The nodes of a fleet are
    restarted one after the other, so the others serve meanwhile. A node that has ended is started. If a
    configuration is wrong, nothing is stopped.

    Exit codes: as `start`, and 1 if a node is still stopping; it is not started then.
    """
    found = [one for one in chosen_nodes(uri) if node in (None, one.record.name, one.record.domain_name)]
    if not found:
        raise CommandError(f"{uri}: no node {node!r} is known here; `ospltool list --all` shows the nodes")
    plans = [planned_again(status) for status in found]
    outcomes: list[Outcome] = []
    with interrupt_flag(signal.SIGINT) as over, start_errors():
        for number, (status, plan) in enumerate(zip(found, plans, strict=True)):
            (stopped,) = control.stop_all([status.directory], None)
            say_outcome(status, stopped)
            if stopped is control.Stop.STILL_STOPPING:
                outcomes.append((Exit.RECOVERABLE, status))
            elif not over.is_set():
                outcomes.append(start_node(plan, timeout, over.is_set))
                number += 1
            if over.is_set():
                raise interrupted(plans[number:])
    end(outcomes, "restart", as_json=as_json)


def planned_again(status: NodeStatus) -> PlannedNode:
    """Return a node that was started here as it would be started again.

    Raises:
        CommandError: its configuration cannot be read, or is wrong by now.
    """
    record = status.record
    file, name = (record.fleet, record.name) if record.fleet else (record.configuration, None)
    plan = one_target(file, os.environ, role=record.role, node=name)
    return dataclasses.replace(plan, directory=pathlib.Path(record.working_directory or pathlib.Path.cwd()))
