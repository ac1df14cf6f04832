"""The nodes that were started on this machine by this user."""

from __future__ import annotations

from collections.abc import Mapping

from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location
from engine.supervisor.status import ALIVE, NodeStatus, status_of
from ospltool.cli.exits import CommandError, Exit


def run_directory(environ: Mapping[str, str]) -> RunDirectory:
    """Open the run directory of this user.

    Raises:
        CommandError: it cannot be used.
    """
    try:
        return RunDirectory(location(environ))
    except RunDirectoryError as error:
        raise CommandError(str(error), Exit.UNRECOVERABLE) from error


def known_nodes(environ: Mapping[str, str]) -> list[NodeStatus]:
    """Return all nodes in the run directory of this user, in order of names.

    A node that was started once from its file and once from a fleet file has two records; they have its store
    in common. The newest counts.
    """
    found = [status for directory in run_directory(environ).nodes() if (status := status_of(directory))]
    found.sort(key=lambda one: (one.condition in ALIVE, one.record.started_ns))
    newest = {one.record.store: one for one in found}
    every = [
        one
        for one in found
        if not one.record.store or one.condition in ALIVE or newest[one.record.store] is one
    ]
    return sorted(every, key=lambda status: (status.record.domain_name, status.record.configuration))


def find_nodes(given: str, environ: Mapping[str, str]) -> list[NodeStatus]:
    """Find the nodes in the run directory that a URI, a fleet file or a domain name means.

    A configuration file means the node that it describes in the present environment; if there is none, all
    nodes that were started from this file. The file itself may have become unreadable.
    """
    known = known_nodes(environ)
    named = [status for status in known if status.record.domain_name == given]
    if named:
        return named
    from engine.config import ConfigError  # only commands that name a file pay for this import
    from ospltool.cli.targets import is_fleet, resolved, targets

    try:
        keys = {target.key for target in targets(given, environ)}
    except CommandError:
        keys = set()
    exact = [status for status in known if status.directory.path.name in keys]
    if is_fleet(given) and len(exact) < len(keys or known):
        return [*exact, *(one for one in _of_fleet(given, known) if one not in exact)]
    if exact:
        return exact
    try:
        path = resolved(given)
    except ConfigError as error:
        raise CommandError(str(error), Exit.UNRECOVERABLE) from error
    return [status for status in known if status.record.configuration == path]


def _of_fleet(given: str, known: list[NodeStatus]) -> list[NodeStatus]:
    """Find the nodes that a fleet file names; their configuration files need not exist.

    Raises:
        CommandError: the file is wrong.
    """
    from engine.config import ConfigError, load_fleet

    try:
        names = {node.name for node in load_fleet(given, only_watched=True).nodes}
    except ConfigError as error:
        raise CommandError(str(error), Exit.UNRECOVERABLE) from error
    return [status for status in known if status.record.domain_name in names]
