"""`ospltool top`: the operations console."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ospltool.cli import feeds
from ospltool.cli.domains import Partition
from ospltool.cli.exits import CommandError, Exit, not_installed
from ospltool.cli.watched import Watched, WatchedDomain, watched

if TYPE_CHECKING:
    from ospltool.health.system import Source
    from tui.operator import Operator


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top", short_help="Open the operations console.")(top)


def top(
    uri: Annotated[
        str | None,
        typer.Argument(envvar="OSPL_URI", help="Watch the domain of this configuration or fleet file."),
    ] = None,
    domain: WatchedDomain = None,
    partition: Partition = None,
    replay: Annotated[
        pathlib.Path | None, typer.Option(help="Show a recording instead of a living domain.")
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="DEPLOYMENT",
            help="Show a simulated run of this fleet file, or of a system drawn from the seed: `none`.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which run to simulate.")] = 1,
    faults: Annotated[
        str, typer.Option(help="Faults of the simulation: any, all, none, or some, as in crash,partition.")
    ] = "any",
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, max=1440, help="Simulated minutes with faults; else drawn from the seed."),
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="How fast to replay or to simulate.")] = 1.0,
    trace: Annotated[
        list[str] | None,
        typer.Option(help="Follow this trace file or directory too, as NODE=FILE perhaps; may be repeated."),
    ] = None,
    theme: Annotated[str | None, typer.Option(help="ops-dark, ops-light, ops-ansi or ops-mono.")] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Use only ASCII characters.")] = False,
    notify: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Run this when a fault begins; its text, node and name-space are appended.",
        ),
    ] = "",
    operate: Annotated[
        bool,
        typer.Option(
            "--operate", help="Allow to stop, restart and start nodes of this machine, after a question."
        ),
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the console to browsers on this machine; it only watches.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of --serve on 127.0.0.1.")] = 8000,
    as_json: Annotated[
        bool, typer.Option("--json", help="Show nothing; say what would be shown, as JSON, and end.")
    ] = False,
    screen: Annotated[
        str | None, typer.Option(help="With --json: only this screen, as in groups, conflicts, findings.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="With --json: this moment of a recording or simulation, as +90 or 12:30:05.",
        ),
    ] = None,
) -> None:
    """Open the operations console: nodes, name-spaces, masters, alignment, events, persistence services.

    It watches, changes nothing without --operate, and needs no node on this machine. Without a configuration
    it watches domain 0. A fleet file says which nodes, name-spaces and copies there should be; of several
    domains in it one is shown, `d` shows the next, and the first line says how the others are. --json listens
    for three seconds and says what the screens would show.

    Exit codes: 0 left in order, 2 wrong usage or the console is not installed, 3 domain not reachable, or
    nobody heard with --json.
    """
    if replay is not None and simulate is not None:
        raise CommandError("either --replay or --simulate", Exit.USAGE)
    if operate and (replay is not None or simulate is not None):
        raise CommandError("only what is live can be operated", Exit.USAGE)
    if not as_json and (screen is not None or at is not None):
        raise CommandError("--screen and --at belong to --json", Exit.USAGE)
    if theme is not None:
        _require_theme(theme)

    def open_sources() -> list[Source]:
        from ospltool.health.health import Health

        if simulate is not None:
            return [(feeds.simulated(simulate, seed, faults, minutes, speed), Health)]
        if replay is not None:
            return [(feeds.recording(replay, speed), Health)]
        chosen = watched(uri, domain)
        if as_json:
            _require_one(chosen)
        return [(feeds.live_at(one.place, partition), one.health) for one in chosen]

    if as_json:
        from ospltool.cli.top_json import put_json

        put_json(lambda: open_sources()[0], screen=screen, at=at)
        return
    if serve:
        _serve(port, operate=operate)
        return
    if not has_terminal():
        raise CommandError("the console needs a terminal; `ospltool top --json` does not", Exit.USAGE)
    try:
        from tui.alarm import AlarmFault
        from tui.app import run_console
    except ImportError as error:
        raise not_installed("console", error) from error
    from ospltool.trace.reading.sources import SourceError

    (feed, watch_health), *others = open_sources()
    operator = _operator() if operate else None
    try:
        code = run_console(
            feed,
            title="ospltool",
            theme=theme,
            ascii_only=ascii_only,
            traces=tuple(trace or ()),
            operator=operator,
            notify=notify,
            watch_health=watch_health,
            others=tuple(others),
        )
    except (SourceError, AlarmFault) as error:
        raise CommandError(str(error), Exit.USAGE) from error
    raise typer.Exit(code)


def _require_one(found: list[Watched]) -> None:
    """A document is about one domain.

    Raises:
        CommandError: there are several.
    """
    if len(found) > 1:
        numbers = ", ".join(str(one.place.domain_id) for one in found)
        raise CommandError(f"the fleet has the domains {numbers}; choose one with --domain", Exit.USAGE)


def has_terminal() -> bool:
    """Whether there is a terminal to read keys from and to draw on, or a browser in its place."""
    return "TEXTUAL_DRIVER" in os.environ or (sys.stdin.isatty() and sys.stdout.isatty())


def _require_theme(theme: str) -> None:
    try:
        from tui.themes import ALL
    except ImportError as error:
        raise not_installed("console", error) from error
    if theme not in ALL:
        raise CommandError(f"no theme {theme!r}; there are {', '.join(ALL)}", Exit.USAGE)


def _program() -> tuple[str, ...]:
    """What stands for the word `ospltool` when we start ourselves again."""
    return (sys.executable, "-m", "ospltool.cli.app")


def _operator() -> Operator:
    from tui.operator import Operator

    return Operator(_program())


def _serve(port: int, *, operate: bool) -> None:
    """Every browser gets a process with the same arguments, but for those that are about serving."""
    if operate:
        raise CommandError("a served console only watches; --operate needs a terminal", Exit.USAGE)
    try:
        from tui.serve import ServeFault, serve
    except ImportError as error:
        raise not_installed("serve", error) from error
    own = sys.argv[1:]
    kept = [word for word in own if word != "--serve" and not word.startswith("--port=")]
    while "--port" in kept:
        place = kept.index("--port")
        del kept[place : place + 2]
    try:
        serve((*_program(), *kept), port=port, title=" ".join(("ospltool", *kept)))
    except ServeFault as fault:
        raise CommandError(str(fault), Exit.USAGE) from fault
