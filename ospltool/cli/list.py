"""`ospltool list`: the nodes on this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from engine.supervisor.node_status import Condition
from ospltool.cli import started_nodes
from ospltool.cli.options import AsJson


def list_nodes(
    include_stopped: Annotated[bool, typer.Option("--all", "-a", help="Include stopped nodes.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all your nodes on this machine that run or have died, by domain name.

    Exit codes: 0 success, 2 unreadable run directory.
    """
    shown = [
        each
        for each in started_nodes.known_nodes(os.environ)
        if include_stopped or each.condition is not Condition.STOPPED
    ]
    if as_json:
        started_nodes.put_json("list", shown)
    else:
        started_nodes.put_table(shown)
