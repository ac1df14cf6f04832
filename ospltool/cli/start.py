"""`ospltool start` and `restart`: start nodes, in the background or in the foreground."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from engine.config import read_document
from engine.supervisor import control
from engine.supervisor.launch import Launch, module_command, module_environ
from engine.supervisor.loop import Narrator, Supervisor
from engine.supervisor.node_status import ALIVE, status_of
from engine.supervisor.policy import Action
from ospltool.cli import started_nodes
from ospltool.cli import targets as find
from ospltool.cli.exits import CommandError, Exit, interrupt_flag, require_cyclone
from ospltool.cli.options import AsJson, duration, uri_argument
from ospltool.cli.started_nodes import run_directory, running
from ospltool.output import envelope, streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.supervisor.control import Start
    from engine.supervisor.node_status import NodeStatus
    from ospltool.cli.targets import PlannedNode

# A screenful with what came before it.
_LOG_LINES = 20
_LOG_BYTES = 16384


def start(
    uri: Annotated[
        str | None,
        uri_argument("Start this configuration or fleet file (default: one that keeps all partitions)."),
    ] = None,
    foreground: Annotated[
        bool,
        typer.Option("--foreground", "-f", help="Run in the foreground; Ctrl+C stops the node."),
    ] = False,
    role: Annotated[str | None, typer.Option(help="Use this role instead of the configured one.")] = None,
    node: Annotated[str | None, typer.Option(help="Start only this node of a fleet file.")] = None,
    timeout: float = duration("60s", "Wait at most DURATION for the node to start."),
    shows_config: Annotated[
        bool, typer.Option("--show-config", help="Print the configuration, and start nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a node: a durability service with the supervisor that watches it.

    The command returns when the node runs, that is, when it has read its configuration and joined its
    domain, and is complete or still runs three seconds later; `status` shows when it is operational. In the
    background, the node survives this terminal until `stop`. Relative paths in the configuration are relative
    to the current directory. A fleet file starts all its nodes.

    Exit codes: 0 the node runs, 1 it does not run yet (already running, out of resources, no answer in time),
    2 it cannot run so (wrong configuration, a store in use or without permission, a port in use), 130
    interrupted: the node that was starting continues in the background, and those after it are not started.
    """
    if shows_config:
        _put_configuration(find.one_target(uri, os.environ, role=role, node=node), as_json=as_json)
        return
    found = find.targets(uri, os.environ, role=role, node=node)
    if foreground and len(found) > 1:
        raise CommandError("only one node can run in the foreground: choose it with --node")
    require_cyclone()
    if found[0].path == find.resolved(find.DEFAULT):
        domain, store = found[0].configuration.domain.id, visible(found[0].store)
        about = f"no configuration given: all partitions of domain {domain}, store {store}"
        streams.notify(f"ospltool: {about}; `ospltool info` shows all settings")
    if foreground:
        with _start_errors():
            raise typer.Exit(_run_in_foreground(found[0]))
    outcomes = []
    with interrupt_flag(signal.SIGINT) as over, _start_errors():
        for number, target in enumerate(found, 1):
            outcomes.append(_start_node(target, timeout, over.is_set))
            if over.is_set():
                raise _interrupted(found[number:])
    _end(outcomes, "start", as_json=as_json)


def restart(
    uri: Annotated[
        str | None,
        uri_argument("Restart the nodes of this configuration, fleet file (.toml) or domain name."),
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
    found = [
        one
        for one in started_nodes.chosen_nodes(uri)
        if node in (None, one.record.name, one.record.domain_name)
    ]
    if not found:
        raise CommandError(f"{uri}: no node {node!r} is known here; `ospltool list --all` shows the nodes")
    if not find.is_fleet(uri or find.DEFAULT):  # an older node of this name or file is not meant
        found = [one for one in found if one.condition in ALIVE] or found
    plans = [_planned_again(status) for status in found]
    outcomes: list[Outcome] = []
    with interrupt_flag(signal.SIGINT) as over, _start_errors():
        for number, (status, plan) in enumerate(zip(found, plans, strict=True)):
            (stopped,) = control.stop_all([status.directory], None)
            started_nodes.notify_stopped(status, stopped)
            if stopped is control.Stop.STILL_STOPPING:
                outcomes.append((Exit.RECOVERABLE, status))
            elif not over.is_set():
                outcomes.append(_start_node(plan, timeout, over.is_set))
                number += 1
            if over.is_set():
                raise _interrupted(plans[number:])
    _end(outcomes, "restart", as_json=as_json)


def _planned_again(status: NodeStatus) -> PlannedNode:
    """Return a node that was started here as it would be started again.

    Raises:
        CommandError: its configuration cannot be read, or is wrong by now.
    """
    record = status.record
    file, name = (record.fleet, record.name) if record.fleet else (record.configuration, None)
    plan = find.one_target(file, os.environ, role=record.role, node=name)
    return dataclasses.replace(plan, directory=pathlib.Path(record.working_directory or pathlib.Path.cwd()))


Outcome = tuple[Exit, "NodeStatus | None"]
"""How the start of a node ended."""


def _end(outcomes: Sequence[Outcome], kind: str, as_json: bool) -> None:
    """End the command `kind`."""
    if as_json:
        started_nodes.put_json(kind, [status for _, status in outcomes if status is not None])
    raise typer.Exit(max(code for code, _ in outcomes))


def _interrupted(left: Sequence[PlannedNode]) -> KeyboardInterrupt:
    """Say which nodes are not started any more after Ctrl-C, and return the exception."""
    names = ", ".join(visible(one.name or one.configuration.domain.name) for one in left)
    streams.notify("ospltool: interrupted" + (f"; not started: {names}" if names else ""))
    return KeyboardInterrupt()


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    """Turn what keeps a supervisor from starting into a command error: no room, processes or permission."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"the node cannot be started: {error}", Exit.RECOVERABLE) from error


def _put_configuration(target: PlannedNode, *, as_json: bool) -> None:
    """Write the text of a configuration, as it is unless a terminal shows it."""
    source = read_document(target.uri, target.environ).source
    text = source.data.decode(source.encoding).removeprefix("\ufeff")
    if as_json:
        streams.put(envelope.document("configuration", {"path": target.path, "text": text}))
    else:
        streams.put(visible(text.expandtabs(), keep_lines=True) if sys.stdout.isatty() else text)


def node_command(target: PlannedNode) -> tuple[str, ...]:
    """Return the program of a node and its arguments."""
    role = () if target.role is None else ("--role", target.role)
    return module_command("engine", target.uri, *role)


def _launch(target: PlannedNode, directory: pathlib.Path) -> Launch:
    domain = target.configuration.domain
    service = domain.service(target.configuration.service)
    return Launch(
        directory=str(directory),
        command=node_command(target),
        working_directory=str(target.directory),
        uri=target.uri,
        configuration=target.path,
        domain_name=domain.name,
        domain_id=domain.id,
        role=domain.role,
        store=target.store,
        expiry_s=domain.lease.expiry_s,
        terminate_period_s=domain.service_terminate_period_s,
        action=Action(service.failure_action) if service is not None else Action.SKIP,
        fleet=target.fleet,
        name=target.name,
        logs=target.logs,
        report_append=domain.report_append,
        report_verbosity=domain.report_verbosity,
    )


def _start_node(target: PlannedNode, timeout_s: float, is_interrupted: Callable[[], bool]) -> Outcome:
    """Start a node in the background, say how that ended, and return it.

    Args:
        target: the node.
        timeout_s: longest time to wait until it runs; then it starts on in the background.
        is_interrupted: tells whether to wait no longer.
    """
    runs = run_directory(os.environ)
    runs.forget_old()
    if (already := running(target, os.environ)) is not None:
        streams.notify(_already_running(target))
        return Exit.RECOVERABLE, already
    directory = runs.node(target.key)
    before = status_of(directory)
    if before is not None and before.is_orphan:
        streams.notify(f"ospltool: {before.sentence}; `ospltool stop` ends it at once")
        return Exit.RECOVERABLE, before
    directory.make()
    launch, environ = _launch(target, directory.path), _node_environ(target)
    started = control.start(launch, environ, timeout_s, is_interrupted)
    status = status_of(directory)
    streams.notify(*_narration(target, started, status).split("\n"))
    if started.has_failed:
        _say_log(directory.node_log, started)
    return _exit_of(started), status


def _node_environ(target: PlannedNode) -> dict[str, str]:
    name = {"OSPLTOOL_NODE_NAME": target.name} if target.name else {}
    return {**target.environ, **name}


def _already_running(target: PlannedNode) -> str:
    return f"ospltool: {_subject(target)}: it is already running"


def _subject(target: PlannedNode) -> str:
    return visible(f"{target.configuration.domain.name} ({target.name or target.uri})")


def _narration(target: PlannedNode, started: Start, status: NodeStatus | None) -> str:
    subject = _subject(target)
    if started.refusal:
        return f"ospltool: {subject}: {started.refusal}"
    if started.is_running or started.has_failed:
        return f"ospltool: {status.sentence if status is not None else subject}"
    name = visible(shlex.quote(target.configuration.domain.name))
    return (
        f"ospltool: {subject} is still starting in the background; "
        f"`ospltool status {name}` shows how it is, and `ospltool stop {name}` ends it"
    )


def _exit_of(started: Start) -> Exit:
    if started.is_running:
        return Exit.GOOD
    if started.record is not None and started.record.exit_code == Exit.UNRECOVERABLE:
        return Exit.UNRECOVERABLE
    return Exit.RECOVERABLE


def _say_log(log: pathlib.Path, started: Start) -> None:
    """Show what the log of a failed node adds to the reason; a refused start has no log."""
    if started.refusal or not log.exists():
        return
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _LOG_BYTES, 0))
        lines = file.read().decode("utf-8", "replace").splitlines()
    reason = started.record.reason if started.record is not None else ""
    lines = [line for line in lines if line.removeprefix("ospltool: ") not in reason]
    if not lines:
        return
    for line in lines[-_LOG_LINES:]:
        streams.notify(f"  {line}")
    streams.notify(f"  (end of {log})")


def _run_in_foreground(target: PlannedNode) -> int:
    directory = run_directory(os.environ).node(target.key)
    environ = module_environ(_node_environ(target))
    launch = _launch(target, directory.path)
    with directory.lock() as is_ours:
        if not is_ours or running(target, os.environ) is not None:
            streams.notify(_already_running(target))
            return Exit.RECOVERABLE
        return Supervisor(launch, environ, Narrator(launch, environ), to_terminal=True).run()
