"""`ospltool top`: the operations console."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from ospltool.live.feed import Feed


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top", short_help="Open the operations console.")(top)


def top(
    uri: Annotated[
        str | None,
        typer.Argument(envvar="OSPL_URI", help="Watch the domain of this configuration."),
    ] = None,
    domain: Annotated[int | None, typer.Option(min=0, max=230, help="Watch this domain instead.")] = None,
    partition: Annotated[
        str | None, typer.Option(help="Durability partition of the nodes, if not the usual one.")
    ] = None,
    replay: Annotated[
        pathlib.Path | None, typer.Option(help="Show a recording instead of a living domain.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="How fast to replay.")] = 1.0,
    theme: Annotated[str | None, typer.Option(help="ops-dark, ops-light, ops-ansi or ops-mono.")] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Use only ASCII characters.")] = False,
) -> None:
    """Open the operations console: fellows, name-spaces, masters, alignment, deliveries, events.

    It watches and changes nothing, and needs no node on this machine. Without a configuration it watches
    domain 0. For scripts there is `record`, whose lines are JSON; the console itself has no JSON.

    Exit codes: 0 left in order, 2 wrong usage or the console is not installed, 3 domain not reachable.
    """
    if not has_terminal():
        raise CommandError("the console needs a terminal; `ospltool status --json` does not", Exit.USAGE)
    try:
        from tui.app import run_console
    except ImportError as error:
        raise _not_installed("console", error) from error
    feed = _recording(replay, speed) if replay is not None else _live(uri, domain, partition)
    raise typer.Exit(run_console(feed, title="ospltool", theme=theme, ascii_only=ascii_only))


def has_terminal() -> bool:
    """Whether there is a terminal to read keys from and to draw on."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _not_installed(extra: str, error: ImportError) -> CommandError:
    return CommandError(f"{error}; install it with: pip install 'ospltool[{extra}]'", Exit.USAGE)


def _recording(path: pathlib.Path, speed: float) -> Feed:
    from ospltool.live.recording import RecordingFault
    from ospltool.live.replay import ReplayFeed

    try:
        return ReplayFeed(path, speed=speed)
    except RecordingFault as error:
        raise CommandError(str(error), Exit.USAGE) from error


def _live(uri: str | None, domain: int | None, partition: str | None) -> Feed:
    try:
        from engine.dds.errors import DdsError
        from ospltool.live.dds import LiveFeed
    except ImportError as error:
        raise _not_installed("dds", error) from error
    from engine.dds.channel import PARTITION
    from engine.dds.uri import cyclone_uri
    from engine.node.process import uri_of

    domain_id, wanted_partition, settings = 0, PARTITION, cyclone_uri()
    if domain is not None:
        domain_id = domain
    elif uri:
        from ospltool.cli.targets import targets

        target = targets(uri, os.environ)[0]
        domain_id = target.configuration.domain.id
        wanted_partition = target.configuration.entity_names.partition
        settings = uri_of(target.configuration, target.environ)
    try:
        return LiveFeed(domain_id, partition or wanted_partition, settings)
    except DdsError as error:
        raise CommandError(f"domain {domain_id} can not be opened: {error}", Exit.UNREACHABLE) from error
