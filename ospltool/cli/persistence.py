"""`ospltool persistence`: run, show and rehearse redundant persistence services."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.config.persistence import load
from engine.config.problems import ConfigError
from ospltool.cli import exits
from ospltool.cli.domains import DomainAccess, require_interface
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, command_group, duration
from ospltool.output import envelope, streams
from ospltool.output.text import plural, table, visible

if TYPE_CHECKING:
    from engine.config.persistence import PersistenceService
    from engine.persistence.service.replica_view import ReplicaView, SubscriptionView, WriterView
    from engine.persistence.service.service_process import Service

_FILE: Final = "The configuration of the persistence service."
# Processes find each other within a second or so; without any by then, there is no replica.
_DISCOVERY_S: Final = 1.5
# A replica shows itself each second, and less often if it has much to show.
_LISTEN_S: Final = 4.0
_CLEAR: Final = "\x1b[H\x1b[2J"
_NAME: Final = re.compile(r"[\w.-]{1,60}")


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The configuration of the persistence service.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Set the name of this replica (default: the host's name).")
    ] = None,
    service: Annotated[str, typer.Option(help="Use this persistence_service of the file.")] = "",
    store: Annotated[
        pathlib.Path | None,
        typer.Option(
            help="Keep the store in this directory (default: NAME in that of the file, or in persistence)."
        ),
    ] = None,
    domain: Annotated[
        int | None, typer.Option(min=0, max=230, help="DDS domain (default: that of the file, or 0).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one replica of a persistence service until it gets SIGTERM, SIGINT or SIGHUP.

    It captures TRANSIENT and PERSISTENT writers of the topics of its persistence_groups, keeps the last value
    of every instance on disk, and gives it to late readers and, with data_synchronization/enable, to the
    other replicas. It uses loopback only, unless CYCLONEDDS_URI says otherwise.

    Exit codes: 0 stopped cleanly with everything on disk, 1 something could not be written, 2 wrong usage,
    configuration or store, 70 a part of it failed.
    """
    settings = _settings(file, service)
    refusals = settings.refusals()
    if refusals:
        raise CommandError(refusals)
    for ignored in settings.without_effect():
        streams.notify(f"ospltool: warning: {ignored}")
    chosen = name or socket.gethostname()
    if not _NAME.fullmatch(chosen):
        raise CommandError(f"{chosen!r} is not a valid name: up to 60 letters, digits, '_', '-' and '.'")
    directory = store or pathlib.Path(settings.directory or "persistence") / chosen
    joined = domain if domain is not None else settings.domain_id or 0
    running = _start(settings, chosen, directory, joined)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: running.request_stop(signal.Signals(received).name))
    streams.notify(f"ospltool: {chosen} of {settings.name!r} runs in domain {joined}")
    is_stored = _serve(running)
    if as_json:
        streams.put(envelope.document("persistence", running.shown()))
    if not is_stored:
        raise CommandError("not everything could be written to the store", Exit.RECOVERABLE)


def _serve(running: Service) -> bool:
    from engine.persistence.service.service_process import ServiceError

    try:
        return running.run()
    except ServiceError as fault:
        raise CommandError(str(fault), Exit.FAULT) from fault


def _settings(file: str, service: str) -> PersistenceService:
    try:
        return load(file, os.environ, service)
    except ConfigError as error:
        raise CommandError(error.problems) from error


def _start(settings: PersistenceService, name: str, directory: pathlib.Path, domain: int) -> Service:
    from engine.dds import wheel
    from engine.dds.errors import DdsError, UnsupportedCyclone
    from engine.store.interface import StoreError

    wheel.import_used_parts_only()
    try:
        from engine.persistence.service.service_process import ReplicaOptions, Service

        options = ReplicaOptions(
            name, directory, domain, os.environ, lambda text: streams.notify(f"ospltool: {text}")
        )
        return Service(settings, options)
    except ImportError as error:
        from ospltool.cli.exits import not_installed

        raise not_installed("dds", error) from error
    except (StoreError, DdsError, UnsupportedCyclone) as error:
        raise CommandError(str(error)) from error


def status(
    domain: Annotated[int, typer.Option(min=0, max=230, help="DDS domain.")] = 0,
    watch: Annotated[bool, typer.Option("--watch", help="Keep watching and print each change.")] = False,
    equal: Annotated[
        int | None,
        typer.Option(
            min=1, help="First wait until N replicas hold equal values, on their disks.", metavar="N"
        ),
    ] = None,
    timeout: float = duration("60s", "Wait at most DURATION for equal values."),
    as_json: AsJson = False,
) -> None:
    """Show the replicas of persistence services that run in a domain.

    For each original writer and replica: the provider in use and the selected one, the source time behind the
    furthest replica, for how many periods the selection has been stable, and the path on which samples come.
    --watch continues until Ctrl-C: on a terminal each view replaces the last one, with --json each is a line.

    Exit codes: 0 good, 1 a replica has a problem, or values are not --equal in time, 2 wrong usage, 3 no
    replica heard or no such domain.
    """
    try:
        from engine.dds.errors import DdsError
        from engine.dds.uri import cyclone_uri
        from engine.persistence.service.replica_watching import Watching
    except ImportError as error:
        from ospltool.cli.exits import not_installed

        raise not_installed("dds", error) from error
    require_interface(DomainAccess(domain, cyclone_uri()))
    try:
        with exits.interrupt_flag(signal.SIGINT) as over, Watching(domain, cyclone_uri()) as watching:
            end_s, is_equal = time.monotonic() + timeout, True
            if equal is not None:
                is_equal = watching.wait_equal(equal, lambda: over.is_set() or time.monotonic() >= end_s)
            replicas = watching.wait_all(_LISTEN_S, _DISCOVERY_S)
            while not over.is_set():
                _put(replicas, as_json=as_json, on_one_line=watch)
                if not watch:
                    break
                replicas = watching.wait_change(replicas, over.is_set)
            if over.is_set():
                raise typer.Exit(Exit.INTERRUPTED)
    except DdsError as error:
        raise CommandError(f"domain {domain} cannot be opened: {error}", Exit.UNREACHABLE) from error
    if not replicas:
        raise CommandError(f"no replica heard in domain {domain}", Exit.UNREACHABLE)
    if not is_equal:
        raise CommandError(
            f"{plural(equal or 0, 'replica')} did not hold equal values within {timeout:g} s", Exit.FINDINGS
        )
    if any(each.problems for each in replicas):
        raise typer.Exit(Exit.FINDINGS)


def _put(replicas: list[ReplicaView], *, as_json: bool, on_one_line: bool) -> None:
    if as_json:
        make = envelope.line if on_one_line else envelope.document
        streams.put(make("persistence-status", {"replicas": replicas}))
    elif replicas:
        begin = _CLEAR if on_one_line and sys.stdout.isatty() else ""
        streams.put(begin + text(replicas) + ("\n" if on_one_line else ""))


_SHOWN_COUNTERS = ("captured", "received", "repeated", "sent", "changes")


def text(replicas: Sequence[ReplicaView]) -> str:
    """Return tables of replicas, of the providers of each writer, of durable subscriptions, and problems."""
    from ospltool.live import persistence

    header = ("REPLICA", "SERVICE", "PID", "VALUES", "STORED", "CONNECTED", *map(str.upper, _SHOWN_COUNTERS))
    rows = [
        (
            each.name,
            each.service,
            each.pid,
            each.values,
            "no" if each.unwritten else "yes",
            ",".join(persistence.connected(each)) or persistence.NOTHING,
            *(each.counters.get(name, 0) for name in _SHOWN_COUNTERS),
        )
        for each in replicas
    ]
    parts = [table(header, rows)]
    known = [(each.name, writer) for each in replicas for writer in each.writers]
    writers = [one for one in known if persistence.is_of_interest(one[1])]
    if writers:
        parts.append(_writers(writers))
    subscriptions = [(each.name, one) for each in replicas for one in each.subscriptions]
    if subscriptions:
        parts.append(_subscriptions(subscriptions))
    quiet = {one[1].writer for one in known} - {one[1].writer for one in writers}
    left_out = len(quiet) + max((each.writers_left_out for each in replicas), default=0)
    if left_out:
        parts.append(f"{left_out} more writers are known, of which nothing comes and nothing is missing\n")
    problems = [f"{visible(each.name)}: {visible(one)}\n" for each in replicas for one in each.problems]
    if problems:
        parts.append("".join(problems))
    return "\n".join(parts)


def _writers(writers: Sequence[tuple[str, WriterView]]) -> str:
    header = ("TOPIC", "PARTITION", "WRITER", "REPLICA", "PROVIDER", "SELECTED", "LAG", "STABLE", "PATH")
    ordered = sorted(
        writers, key=lambda one: (one[1].topic, one[1].partition, one[1].writer, one[1].late, one[0])
    )
    return table(header, map(_row, ordered))


def _row(one: tuple[str, WriterView]) -> tuple[object, ...]:
    from ospltool.live import persistence

    replica, writer = one
    return (
        writer.topic,
        writer.partition or persistence.NOTHING,
        persistence.short_name(writer),
        replica,
        persistence.used(writer),
        persistence.selected(writer),
        persistence.lag(writer.lag_ns),
        persistence.stability(writer),
        persistence.path(writer),
    )


def _subscriptions(subscriptions: Sequence[tuple[str, SubscriptionView]]) -> str:
    from ospltool.live import persistence

    header = ("SUBSCRIPTION", "TOPIC", "PARTITION", "QUORUM", "REPLICA", "PENDING", "MEMBERS", "IN DOUBT")
    ordered = sorted(subscriptions, key=lambda one: (one[1].name, one[1].topic, one[1].partition, one[0]))
    rows = [
        (
            each.name,
            each.topic,
            each.partition or persistence.NOTHING,
            each.quorum,
            replica,
            each.pending,
            persistence.members(each.members),
            persistence.in_doubt(each.in_doubt),
        )
        for replica, each in ordered
    ]
    return table(header, rows)


def rehearse(
    file: Annotated[str, typer.Argument(metavar="FILE", help=_FILE)],
    service: Annotated[str, typer.Option(help="Use this persistence_service of the file.")] = "",
    replicas: Annotated[int, typer.Option(min=2, max=9, help="Rehearse N replicas.")] = 3,
    fault: Annotated[str, typer.Option(help="Inject a fault: none, lose or oscillate.")] = "none",
    periods: Annotated[int, typer.Option(min=1, max=10_000, help="Rehearse for N selection periods.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Set the random seed of delays and phases.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Rehearse replicas of a persistence service in virtual time, with two writers and a fault.

    Readers of the configured durable subscriptions come and go: each subscription has as many members as its
    quorum, and a member reaches one replica at a time. The output has every change of providers, the counters
    of each replica, the outcome of each durable subscription, and whether all replicas end with the same
    values. The same seed gives the same run. No process is started and nothing is sent.

    Exit codes: 0 all replicas ended with the same values and every reader got everything once, 1 not so,
    2 wrong usage or configuration.
    """
    from engine.simulator import rehearsal

    if fault not in rehearsal.FAULTS:
        raise CommandError(f"no fault {fault!r}; there are {', '.join(rehearsal.FAULTS)}")
    settings = _settings(file, service)
    if not settings.synchronization.enable:
        message = f"{file}: data_synchronization is not enabled: there is nothing to rehearse"
        raise CommandError(message)
    try:
        result = rehearsal.rehearse(settings, replicas, fault, periods, seed)
    except ValueError as error:
        raise CommandError(f"{file}: {error}") from error
    if as_json:
        streams.put(envelope.document("redundancy", rehearsal.summary(result)))
    else:
        streams.put("".join(rehearsal.lines(result)))
    if not result.is_good:
        raise typer.Exit(Exit.FINDINGS)


group = command_group(
    "Run, show and rehearse redundant persistence services, which keep the same data.",
    (
        ("run", run, "Run a persistence service in the foreground."),
        ("status", status, "Show the replicas that run in a domain."),
        ("rehearse", rehearse, "Rehearse replicas and faults in virtual time."),
    ),
)
