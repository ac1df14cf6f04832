"""`ospltool top`: the operations console, or its content as JSON."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ospltool.cli import domains
from ospltool.cli.domains import LISTEN_S, listen_for
from ospltool.cli.exits import CommandError, Exit, not_installed
from ospltool.cli.options import LiveTarget, SourceOptions, uri_argument
from ospltool.cli.targets import is_uri
from ospltool.health.export import system
from ospltool.health.health import Health
from ospltool.health.system import System
from ospltool.live.feed import TimeTravel
from ospltool.live.persistence import why_none
from ospltool.output import envelope, streams

if TYPE_CHECKING:
    from ospltool.health.system import Source
    from ospltool.output.documents import AdvertisedFinding
    from tui.operator import Operator
    from tui.trace_lines import TraceFiles


@dataclasses.dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What the console follows, how it looks and what it may do."""

    recording: Annotated[
        list[pathlib.Path] | None,
        typer.Option(
            help="Allow going back in time in this file, which `ospltool record` writes; repeatable."
        ),
    ] = None
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Replay or simulate at this speed.")] = 1.0
    trace: Annotated[
        list[str] | None,
        typer.Option(help="Also follow this trace (FILE, directory or NODE=FILE); repeatable."),
    ] = None
    theme: Annotated[
        str | None,
        typer.Option(help="Use this theme: ops-dark, ops-light, ops-ansi, ops-mono, or one of Textual."),
    ] = None
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Use only ASCII characters.")] = False
    notify: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Run COMMAND when an error begins; code, subject and observation are its last arguments.",
        ),
    ] = ""
    operate: Annotated[
        bool,
        typer.Option(
            "--operate",
            help="Allow stopping, restarting and starting nodes on this machine, with confirmation.",
        ),
    ] = False
    kiosk: Annotated[
        bool, typer.Option("--kiosk", help="Show large figures and pages in turn, for a screen on a wall.")
    ] = False
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve the console to browsers on this machine, without --operate."),
    ] = False
    port: Annotated[int, typer.Option(min=1, max=65535, help="Use this port of 127.0.0.1 with --serve.")] = (
        8000
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DocumentOptions:
    """What is printed as JSON in place of the console."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the console would show as JSON, and exit.")
    ] = False
    screen: Annotated[
        str | None,
        typer.Option(help="With --json: print only this screen, such as groups, conflicts or findings."),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="With --json: print this moment of a recording or simulation, such as +90 or 12:30:05.",
        ),
    ] = None


def top(
    uri: Annotated[
        str | None,
        uri_argument("Watch the domain of this configuration or fleet file."),
    ] = None,
    *,
    target: LiveTarget,
    source: SourceOptions,
    console: ConsoleOptions,
    document: DocumentOptions,
    case: Annotated[
        str | None,
        typer.Option(metavar="CASE", help="Print the judged domains of this case by day, and exit."),
    ] = None,
) -> None:
    """Open the operations console: nodes, name-spaces, masters, alignment, events, persistence services.

    The console changes nothing without --operate, and needs no node on this machine. Without a configuration
    it watches domain 0. A fleet file says which nodes, name-spaces and copies to expect, also in a recording.
    If it has several domains, the console shows one (`d` switches) and names the others in trouble in the
    first line. --json listens for three seconds and prints what the screens would show.

    Exit codes: 0 success, 2 wrong usage or the console is not installed, 3 domain not reachable, or no node
    heard with --json, 70 the watch itself failed with --json.
    """
    if case is not None:
        from ospltool.cli.sql import put_fleet  # only for this option

        put_fleet(case, as_json=document.as_json)
        return
    is_past = not source.is_live
    if console.operate and is_past:
        raise CommandError("--operate needs a live domain: leave out --replay and --simulate")
    if console.recording and (is_past or document.as_json):
        raise CommandError(
            f"--recording {console.recording[0]} needs a live domain: "
            "leave out --replay, --simulate and --json"
        )
    if console.trace and document.as_json:
        raise CommandError(f"--trace {console.trace[0]} is for the console: leave out --json")
    if not document.as_json and (document.screen is not None or document.at is not None):
        raise CommandError("--screen and --at need --json")
    if console.theme is not None:
        _require_theme(console.theme)
    if document.as_json:
        put_json(lambda: domains.sources(uri, target, source, is_one=True)[0], document)
        return
    if console.serve:
        _serve(console.port, operate=console.operate)
        return
    if not has_terminal():
        raise CommandError("the console needs a terminal; use `ospltool top --json` without one")
    # Nodes are discovered while the console is imported, which takes half of the time to its first picture.
    (feed, watch_health), *others = map(_begun, domains.sources(uri, target, source, console.speed))
    try:
        from tui.alarm import AlarmError
        from tui.app import run_console
        from tui.console import ShellSource
    except ImportError as error:
        raise not_installed("console", error) from error

    drawn = SourceOptions(simulate=domains.DRAWN)
    try:
        code = run_console(
            feed,
            title="ospltool",
            theme=console.theme,
            ascii_only=console.ascii_only,
            trace_files=_followed(console.trace) if console.trace else None,
            operator=_operator() if console.operate else None,
            notify=console.notify,
            watch_health=watch_health,
            others=tuple(others),
            recordings=tuple(console.recording or ()),
            kiosk=console.kiosk,
            simulate=None if is_past else lambda: _begun(*domains.sources(None, target, drawn)),
            source=ShellSource(_file(uri) if uri else "", _options(target, source)),
        )
    except AlarmError as error:
        raise CommandError(str(error)) from error
    raise typer.Exit(code)


def _file(uri: str) -> str:
    """Return a URI that `show` does not take for a name."""
    return uri if is_uri(uri) else pathlib.Path(uri).resolve().as_uri()


def _options(target: LiveTarget, source: SourceOptions) -> tuple[str, ...]:
    """Return the options that tell other commands what is shown."""
    given = {**dataclasses.asdict(target), **dataclasses.asdict(source)}
    unset = {**dataclasses.asdict(LiveTarget()), **dataclasses.asdict(SourceOptions())}
    return tuple(f"--{name}={value}" for name, value in given.items() if value != unset[name])


def _followed(names: Sequence[str]) -> TraceFiles:
    """Follow trace files; what reads traces costs a tenth of the console's start."""
    from ospltool.trace.reading.sources import SourceError
    from tui.trace_lines import TraceFiles

    try:
        return TraceFiles(names)
    except SourceError as error:
        raise CommandError(str(error)) from error


BEGUN_NS: Final = 5_000_000_000
"""Simulated time after which the nodes of most runs have said something."""


def _begun(source: Source) -> Source:
    """Return what is shown; a simulation at a moment at which there is something to see."""
    feed, _ = source
    if isinstance(feed, TimeTravel) and feed.mode == "simulated":
        feed.seek(feed.timeline.begin_ns + BEGUN_NS)
    return source


def has_terminal() -> bool:
    """Tell whether there is a terminal for keys and drawing, or a browser in its place."""
    return "TEXTUAL_DRIVER" in os.environ or (sys.stdin.isatty() and sys.stdout.isatty())


def _require_theme(theme: str) -> None:
    try:
        from tui.themes import ALL
    except ImportError as error:
        raise not_installed("console", error) from error
    if theme not in ALL:
        raise CommandError(f"no theme {theme!r}; there are {', '.join(ALL)}")


def _program() -> tuple[str, ...]:
    """Return the command line that starts this program again."""
    return (sys.executable, "-m", "ospltool.cli.app")


def _operator() -> Operator:
    from tui.operator import Operator

    return Operator(_program())


def _serve(port: int, *, operate: bool) -> None:
    """Serve the console: each browser gets a process with the same arguments, without --serve and --port."""
    if operate:
        raise CommandError("--serve and --operate exclude each other: a served console only watches")
    try:
        from tui.serve import ServeError, serve
    except ImportError as error:
        raise not_installed("serve", error) from error
    own = sys.argv[1:]
    kept = [word for word in own if word != "--serve" and not word.startswith("--port=")]
    while "--port" in kept:
        place = kept.index("--port")
        del kept[place : place + 2]
    try:
        serve((*_program(), *kept), port=port, title=" ".join(("ospltool", *kept)))
    except ServeError as fault:
        raise CommandError(str(fault)) from fault


SCREENS: Final = {
    "overview": ("nodes", "health"),
    "node": ("nodes",),
    "name-space": ("nodes", "masters", "health"),
    "alignment": ("alignments", "nodes"),
    "incidents": ("health",),
    "conflicts": ("conflicts",),
    "groups": ("groups",),
    "topics": ("groups", "endpoints"),
    "topic": ("groups", "endpoints"),
    "applications": ("endpoints", "nodes"),
    "application": ("endpoints", "nodes"),
    "trace": ("events", "events_left_out"),
    "store": ("nodes",),
    "findings": ("findings",),
    "persistence": ("persistence_services", "health"),
}
"""The members of the document that each screen shows."""

ALWAYS: Final = ("time_ns", "caption", "domain_lost_ns", "messages_left_out")


def put_json(open_source: Callable[[], Source], options: DocumentOptions) -> None:
    """Listen, or seek to a moment, and write one document of kind "system".

    Args:
        open_source: opens the feed, with what makes its health.
        options: a key of SCREENS, to write only what this screen shows, and a moment; default the end.

    Raises:
        CommandError: no such screen or moment.
        Exit: no node was heard, or the watch failed.
    """
    screen, at = options.screen, options.at
    if screen is not None and screen not in SCREENS:
        raise CommandError(f"no screen {screen!r}; there are {', '.join(SCREENS)}")

    system = System(open_source())
    feed = system.feed
    try:
        if isinstance(feed, TimeTravel):
            domains.wind(system, feed, at)
        elif at is not None:
            raise CommandError("--at needs a recording or a simulation: give --replay or --simulate")
        else:
            listen_for(system, LISTEN_S)
        data = _document(system.health, feed.now_ns(), screen)
    finally:
        feed.close()
    streams.put(envelope.document("system", data))
    domains.require_listening(system)
    if screen == "persistence" and not system.model.persistence:
        streams.notify(f"ospltool: {why_none(feed.mode)}")
    if system.model.is_empty:
        why = f": {refused.text}" if (refused := system.model.unproved) else ""
        streams.notify(f"ospltool: no node and no persistence service heard in {feed.title}{why}")
        raise typer.Exit(Exit.UNREACHABLE)


def _document(one: Health, now_ns: int, screen: str | None) -> dict[str, Any]:
    data = system(one, now_ns)
    if screen in (None, "findings"):
        data["findings"] = _findings(one)
    if screen is None:
        return data
    return {name: data[name] for name in (*ALWAYS, *SCREENS[screen])}


def _findings(health: Health) -> list[AdvertisedFinding]:
    """Return the findings of the rules of `check` on the settings that nodes advertise."""
    from tui.advertised import findings_of

    nodes = health.model.ordered_nodes()
    present = [node.snapshot for node in nodes if not health.is_away(node)]
    return [
        {
            "code": one.code,
            "name": one.name,
            "severity": one.severity.label,
            "nodes": list(one.nodes),
            "message": one.message,
            "help": one.advice,
        }
        for one in findings_of(present)
    ]
