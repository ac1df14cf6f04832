"""`ospltool top`: the operations console."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli import feeds
from ospltool.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from tui.operate import Operator


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
    trace: Annotated[
        list[str] | None,
        typer.Option(help="Follow this trace file or directory too, as NODE=FILE perhaps; may be repeated."),
    ] = None,
    theme: Annotated[str | None, typer.Option(help="ops-dark, ops-light, ops-ansi or ops-mono.")] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Use only ASCII characters.")] = False,
    operate: Annotated[
        bool,
        typer.Option("--operate", help="Allow to stop and start nodes of this machine, after a question."),
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the console to browsers on this machine; it only watches.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of --serve on 127.0.0.1.")] = 8000,
) -> None:
    """Open the operations console: fellows, name-spaces, masters, alignment, deliveries, events.

    It watches, changes nothing without --operate, and needs no node on this machine. Without a configuration
    it watches domain 0. For scripts there is `record`, whose lines are JSON; the console itself has no JSON.

    Exit codes: 0 left in order, 2 wrong usage or the console is not installed, 3 domain not reachable.
    """
    if theme is not None:
        _require_theme(theme)
    if serve:
        _serve(port, operate=operate)
        return
    if not has_terminal():
        raise CommandError("the console needs a terminal; `ospltool record --once` does not", Exit.USAGE)
    try:
        from tui.app import run_console
    except ImportError as error:
        raise feeds.not_installed("console", error) from error
    from ospltool.trace.sources import SourceError

    feed = feeds.recording(replay, speed) if replay is not None else feeds.live(uri, domain, partition)
    operator = _operator() if operate else None
    try:
        code = run_console(
            feed,
            title="ospltool",
            theme=theme,
            ascii_only=ascii_only,
            traces=tuple(trace or ()),
            operator=operator,
        )
    except SourceError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    raise typer.Exit(code)


def has_terminal() -> bool:
    """Whether there is a terminal to read keys from and to draw on, or a browser in its place."""
    return "TEXTUAL_DRIVER" in os.environ or (sys.stdin.isatty() and sys.stdout.isatty())


def _require_theme(theme: str) -> None:
    try:
        from tui.themes import ALL
    except ImportError as error:
        raise feeds.not_installed("console", error) from error
    if theme not in ALL:
        raise CommandError(f"no theme {theme!r}; there are {', '.join(ALL)}", Exit.USAGE)


def _program() -> tuple[str, ...]:
    """What stands for the word `ospltool` when we start ourselves again."""
    return (sys.executable, "-m", "ospltool.cli.app")


def _operator() -> Operator:
    from tui.operate import Operator

    return Operator(_program())


def _serve(port: int, *, operate: bool) -> None:
    """Every browser gets a process with the same arguments, but for those that are about serving."""
    if operate:
        raise CommandError("a served console only watches; --operate needs a terminal", Exit.USAGE)
    try:
        from tui.serve import ServeFault, serve
    except ImportError as error:
        raise feeds.not_installed("serve", error) from error
    own = sys.argv[1:]
    kept = [word for word in own if word != "--serve" and not word.startswith("--port=")]
    while "--port" in kept:
        place = kept.index("--port")
        del kept[place : place + 2]
    try:
        serve((*_program(), *kept), port=port, title="ospltool")
    except ServeFault as fault:
        raise CommandError(str(fault), Exit.USAGE) from fault
