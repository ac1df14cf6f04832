"""The content of the console as JSON: for a live domain, a recording or a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import typer

from ospltool.cli.domains import LISTEN_S, listen_for
from ospltool.cli.exits import CommandError, Exit
from ospltool.output import envelope, streams

if TYPE_CHECKING:
    from ospltool.health.health import Health
    from ospltool.health.system import Source, System
    from ospltool.live.feed import TimeTravel
    from ospltool.live.model import SystemModel

LAST_NS: Final = 12_000_000_000
STEP_NS: Final = 500_000_000

SCREENS: Final = {
    "overview": ("nodes", "health"),
    "node": ("nodes",),
    "name-space": ("nodes", "masters", "health"),
    "alignment": ("alignments", "nodes"),
    "incidents": ("health",),
    "conflicts": ("conflicts",),
    "groups": ("groups",),
    "trace": ("events", "events_left_out"),
    "store": ("nodes",),
    "findings": ("findings",),
    "persistence": ("persistence_services", "health"),
}
"""The members of the document that each screen shows."""

ALWAYS: Final = ("time_ns", "caption", "domain_lost_ns", "messages_left_out")


def put_json(open_source: Callable[[], Source], *, screen: str | None, at: str | None) -> None:
    """Listen, or seek to a moment, and write one document of kind "system".

    Args:
        open_source: opens the feed, with what makes its health.
        screen: a key of SCREENS, to write only what this screen shows.
        at: a moment of a recording or simulation, such as `+90` (seconds) or `12:30:05`; default its end.

    Raises:
        CommandError: no such screen or moment.
        Exit: no node was heard.
    """
    if screen is not None and screen not in SCREENS:
        raise CommandError(f"no screen {screen!r}; there are {', '.join(SCREENS)}", Exit.USAGE)
    from ospltool.health.system import System
    from ospltool.live.feed import TimeTravel
    from ospltool.live.persistence import why_none

    system = System(open_source())
    feed = system.feed
    try:
        if isinstance(feed, TimeTravel):
            _wind(system, feed, at)
        elif at is not None:
            raise CommandError(
                "--at needs a recording or a simulation: give --replay or --simulate", Exit.USAGE
            )
        else:
            listen_for(system, LISTEN_S)
        data = _document(system.health, feed.now_ns(), screen)
    finally:
        feed.close()
    streams.put(envelope.document("system", data))
    if screen == "persistence" and not system.model.persistence:
        streams.say(f"ospltool: {why_none(feed.mode)}")
    if system.model.is_empty:
        streams.say(f"ospltool: no node and no persistence service heard in {feed.title}")
        raise typer.Exit(Exit.UNREACHABLE)


def _wind(system: System, travel: TimeTravel, at: str | None) -> None:
    """Seek to the moment (default: the end), and play the seconds before it: health takes time to judge."""
    from ospltool.live.moments import moment_of

    begin_ns = travel.timeline.begin_ns
    try:
        moment_ns = _FAR_NS if at is None else moment_of(at, begin_ns, begin_ns)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    travel.pause(paused=True)
    near_ns = min(moment_ns, travel.timeline.end_ns)
    for step_ns in (*range(near_ns - LAST_NS, near_ns, STEP_NS), moment_ns):
        if step_ns > begin_ns or step_ns == moment_ns:
            travel.seek(step_ns)
            _until_quiet(system)


_FAR_NS: Final = 1 << 62


def _until_quiet(system: System) -> None:
    """Poll until the time stands still: a long seek takes several polls."""
    feed, before_ns = system.feed, -1
    while feed.now_ns() != before_ns:
        before_ns = feed.now_ns()
        system.model.apply(feed.poll(), feed.now_ns())
    system.health.update(feed.now_ns())


def _document(one: Health, now_ns: int, screen: str | None) -> dict[str, Any]:
    from ospltool.health.export import system

    model = one.model
    data = system(one, now_ns)
    if screen in (None, "findings"):
        data["findings"] = _findings(model)
    if screen is None:
        return data
    return {name: data[name] for name in (*ALWAYS, *SCREENS[screen])}


def _findings(model: SystemModel) -> list[dict[str, Any]]:
    """Return the findings of the rules of `check` on the settings that nodes advertise."""
    from tui.sources.advertised import findings

    present = [node.snapshot for node in model.ordered_nodes() if not node.gone_ns]
    return [
        {
            "code": one.code,
            "name": one.name,
            "severity": one.severity.label,
            "nodes": list(one.nodes),
            "message": one.message,
            "help": one.help,
        }
        for one in findings(present)
    ]
