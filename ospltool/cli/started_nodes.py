"""The nodes that this user started on this machine: found, and written as JSON, sentences or a table."""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.supervisor.node_status import ALIVE, NodeStatus, status_of
from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location
from ospltool.cli.exits import CommandError, Exit
from ospltool.output import envelope, streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from engine.supervisor.control import Stop
    from ospltool.cli.targets import PlannedNode
    from ospltool.output.documents import StartedNode


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

    A node that was started once from its file and once from a fleet file has two records; they have its name
    and its store in common. The newest counts.
    """
    found = [status for directory in run_directory(environ).nodes() if (status := status_of(directory))]
    found.sort(key=lambda one: (one.condition in ALIVE, one.record.started_ns))
    newest = {(one.record.store, one.record.domain_name): one for one in found}
    every = [
        one
        for one in found
        if not one.record.store
        or one.condition in ALIVE
        or newest[one.record.store, one.record.domain_name] is one
    ]
    return sorted(every, key=lambda status: (status.record.domain_name, status.record.configuration))


def running(target: PlannedNode, environ: Mapping[str, str]) -> NodeStatus | None:
    """Return the status of a planned node that runs, also if it was started in another way; else None."""
    alive = (status for status in known_nodes(environ) if status.condition in ALIVE)
    return next((status for status in alive if target.is_started_as(status)), None)


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
    fleet = resolved(given) if is_fleet(given) and keys else ""
    exact = [one for one in known if one.directory.path.name in keys or (fleet and one.record.fleet == fleet)]
    if is_fleet(given) and len(exact) < len(keys or known):
        return [*exact, *(one for one in _of_fleet(given, known) if one not in exact)]
    if exact:
        return exact
    try:
        path = resolved(given)
    except ConfigError as error:
        raise CommandError(error.problems, Exit.UNRECOVERABLE) from error
    return [status for status in known if status.record.configuration == path]


def chosen_nodes(uri: str | None) -> list[NodeStatus]:
    """Return the nodes that this user started here and that a command line means, also those that ended.

    Raises:
        CommandError: there is none, or which of several is not clear.
    """
    from ospltool.cli.targets import DEFAULT, is_fleet

    given = uri or DEFAULT
    found = find_nodes(given, os.environ)
    if not found and not uri:
        known = "name a configuration, fleet file or node; `ospltool list` shows the nodes"
        raise CommandError(f"no node of the default configuration is known here; {known}")
    if not found:
        error = why_none(given, os.environ)
        raise CommandError(error.lines, Exit.UNRECOVERABLE)
    alive = [status for status in found if status.condition in ALIVE]
    if len(alive) > 1 and not is_fleet(given):
        first = f"{given} matches several nodes; name one of them (`stop --all` stops all):"
        stores = [f"  {each.record.configuration} (store {each.record.store or '-'})" for each in alive]
        raise CommandError([first, *stores], Exit.UNRECOVERABLE)
    return found


def notify_stopped(status: NodeStatus, outcome: Stop) -> None:
    """Write to standard error how the stop of a node ended."""
    streams.notify(f"ospltool: {status.record.domain_name} ({status.record.configuration}) {outcome.value}")


def _of_fleet(given: str, known: list[NodeStatus]) -> list[NodeStatus]:
    """Find the nodes that a fleet file names; their configuration files need not exist.

    A node of the same name from another file is none of them: two fleets may use the same names.

    Raises:
        CommandError: the file is wrong.
    """
    from engine.config import ConfigError
    from engine.config.fleet import load_fleet
    from ospltool.cli.targets import resolved

    try:
        files = {node.name: node.file for node in load_fleet(given, only_watched=True).nodes}
    except ConfigError as error:
        raise CommandError(error.problems, Exit.UNRECOVERABLE) from error
    paths = {name: resolved(file) if file else "" for name, file in files.items()}
    return [
        status
        for status in known
        if paths.get(status.record.domain_name) in ("", status.record.configuration)
    ]


def why_none(given: str, environ: Mapping[str, str]) -> CommandError:
    """Return the error for a name that means no node: the file is missing or wrong, or was never started."""
    from engine.config import ConfigError
    from engine.config.reader import path_of_uri
    from ospltool.cli.targets import targets

    known = "`ospltool list --all` shows the nodes that are"
    try:
        path = path_of_uri(given)
        if not os.path.lexists(path):
            is_path = path != given or "/" in path or path.endswith((".xml", ".toml"))
            what = "no such file, and" if is_path else "no such file or domain name:"
            return CommandError(f"{given}: {what} no node of it is known here; {known}", Exit.UNRECOVERABLE)
        targets(given, environ)
    except (CommandError, ConfigError) as error:
        first = str(error).splitlines()[0]
        return CommandError(f"no node of {given} is known here, and it is wrong: {first}", Exit.UNRECOVERABLE)
    return CommandError(f"no node of {given} is known here; {known}", Exit.RECOVERABLE)


def never_started(
    given: str, environ: Mapping[str, str], found: Sequence[NodeStatus]
) -> tuple[list[str], bool]:
    """Return the domain names of the nodes of a fleet file of which this machine has no status.

    The second value tells whether the nodes' files can be read, which other commands need.

    Args:
        given: the fleet file; for anything else the result is empty.
        environ: the variables of this process.
        found: the nodes of the fleet that this machine knows.
    """
    from ospltool.cli.targets import is_fleet, targets

    if not is_fleet(given):
        return [], True
    are_readable = True
    known = {status.record.domain_name for status in found}
    try:
        names = [target.configuration.domain.name for target in targets(given, environ)]
    except CommandError:  # the files of the nodes are on their hosts
        are_readable = False
        from engine.config import ConfigError
        from engine.config.fleet import load_fleet

        try:
            names = [node.name for node in load_fleet(given, only_watched=True).nodes]
        except ConfigError as error:
            raise CommandError(error.problems, Exit.UNRECOVERABLE) from error
    return [name for name in dict.fromkeys(names) if name not in known], are_readable


def put_never_started(given: str, environ: Mapping[str, str], found: Sequence[NodeStatus]) -> None:
    """Write a sentence for each node of a fleet file of which this user has no status on this machine.

    Args:
        given: the fleet file; for anything else nothing is written.
        environ: the variables of this process.
        found: the nodes of the fleet that this machine knows.
    """
    names, are_readable = never_started(given, environ, found)
    # `health` is refused while a file cannot be read.
    advice = f"ask there, or run `ospltool health {given}`" if are_readable else "ask there"
    for name in names:
        # Another user may have started it, or the records went with a restart of the machine.
        said = f'ospltool system with domain name "{name}" is not among the nodes that this user started here'
        streams.put(visible(f"{said}; if it has another host, {advice}") + "\n")


def as_data(status: NodeStatus) -> StartedNode:
    """Return the JSON form of a node."""
    record = status.record
    return {
        "domain_name": record.domain_name,
        "domain_id": record.domain_id,
        "role": record.role,
        "condition": status.condition.name.lower(),
        "state": status.state,
        "state_since_ns": status.state_since_ns,
        "reason": status.reason,
        "store_problem": status.store_problem,
        "in_memory_only": status.unstored,
        "waits_for": status.waits_for,
        "parts": status.parts,
        "refused": status.refused,
        "uri": record.uri,
        "configuration": record.configuration,
        "store": record.store,
        "started_ns": record.started_ns,
        "changed_ns": record.changed_ns,
        "restarts": record.restarts,
        "last_failure": record.failure,
        "last_failure_ns": record.failed_ns,
        "supervisor_pid": record.supervisor.pid,
        "node_pid": record.node.pid if record.node is not None else None,
        "directory": status.directory.path,
    }


def put_json(kind: str, statuses: Sequence[NodeStatus]) -> None:
    """Write nodes as JSON."""
    streams.put(envelope.document(kind, [as_data(status) for status in statuses]))


def put_sentences(statuses: Sequence[NodeStatus]) -> None:
    """Write a sentence for each node, with its configuration if several nodes have its domain name."""
    names = collections.Counter(status.record.domain_name for status in statuses)
    for status in statuses:
        record = status.record
        place = f"{record.configuration}: " if names[record.domain_name] > 1 else ""
        streams.put(visible(place + status.sentence) + "\n")


def put_table(statuses: Sequence[NodeStatus]) -> None:
    """Write nodes as a table."""
    header = ("DOMAIN NAME", "CONDITION", "STATE", "ROLE", "PID", "CONFIGURATION", "DOMAIN", "STATUS")
    rows = [
        (
            status.record.domain_name,
            status.condition.name.lower(),
            (f"{status.state}, part" if status.parts else status.state) or "-",
            status.record.role,
            status.record.node.pid if status.record.node is not None else "-",
            status.record.configuration,
            status.record.domain_id,
            status.predicate,
        )
        for status in statuses
    ]
    streams.put_table(header, rows)
