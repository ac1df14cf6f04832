"""What the console would show, as JSON: of a living domain, a recording or a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import typer

from ospltool.cli.exits import CommandError, Exit
from ospltool.output import envelope, streams

if TYPE_CHECKING:
    from ospltool.live.feed import Feed, TimeTravel
    from ospltool.live.model import SystemModel

LISTEN_S: Final = 3.0
"""How long a living domain is listened to: every node shows itself at least twice in that time."""

POLL_S: Final = 0.25

SCREENS: Final = {
    "overview": ("nodes", "concerns"),
    "node": ("nodes",),
    "name-space": ("nodes", "masters", "concerns"),
    "alignment": ("alignments", "nodes"),
    "conflicts": ("conflicts",),
    "groups": ("groups",),
    "trace": ("events", "events_left_out"),
    "store": ("nodes",),
    "findings": ("findings",),
    "persistence": ("persistence_services", "concerns"),
}
"""The members of the whole document that each screen is made from."""

ALWAYS: Final = ("time_ns", "caption", "domain_lost_ns", "messages_left_out")


def put_json(open_feed: Callable[[], Feed], *, screen: str | None, at: str | None) -> None:
    """Listen, or wind to a moment, and write one document of kind "system".

    Raises:
        CommandError: no such screen or moment.
        Exit: nobody was heard.
    """
    if screen is not None and screen not in SCREENS:
        raise CommandError(f"no screen {screen!r}; there are {', '.join(SCREENS)}", Exit.USAGE)
    from ospltool.live.feed import TimeTravel
    from ospltool.live.model import SystemModel
    from ospltool.live.providers import why_none

    model = SystemModel()
    feed = open_feed()
    try:
        if isinstance(feed, TimeTravel):
            _wind(feed, feed, model, at)
        elif at is not None:
            raise CommandError("only a recording or a simulation has another moment than now", Exit.USAGE)
        else:
            listen(feed, model, LISTEN_S)
        data = _document(model, feed.now_ns(), screen)
    finally:
        feed.close()
    streams.put(envelope.document("system", data))
    if screen == "persistence" and not model.persistence:
        streams.say(f"ospltool: {why_none(feed.mode)}")
    if model.is_empty:
        streams.say(f"ospltool: no node and no persistence service heard in {feed.title}")
        raise typer.Exit(Exit.UNREACHABLE)


def listen(feed: Feed, model: SystemModel, seconds: float) -> None:
    """Take in what comes in so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        model.apply(feed.poll(), feed.now_ns())
        time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))


def _wind(feed: Feed, travel: TimeTravel, model: SystemModel, at: str | None) -> None:
    """To the moment; without one, to the end."""
    from ospltool.live.moments import moment_of

    begin_ns = travel.timeline.begin_ns
    try:
        moment_ns = _FAR_NS if at is None else moment_of(at, begin_ns, begin_ns)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    travel.pause(paused=True)
    travel.seek(moment_ns)
    for _ in _until_quiet(feed, model):
        pass


_FAR_NS: Final = 1 << 62


def _until_quiet(feed: Feed, model: SystemModel) -> Iterator[None]:
    """Poll until nothing moves any more: a long way is wound in several polls."""
    before_ns = -1
    while feed.now_ns() != before_ns:
        before_ns = feed.now_ns()
        model.apply(feed.poll(), feed.now_ns())
        yield


def _document(model: SystemModel, now_ns: int, screen: str | None) -> dict[str, Any]:
    from ospltool.live.export import system

    data = system(model, now_ns)
    if screen in (None, "findings"):
        data["findings"] = _findings(model)
    if screen is None:
        return data
    return {name: data[name] for name in (*ALWAYS, *SCREENS[screen])}


def _findings(model: SystemModel) -> list[dict[str, Any]]:
    """What the rules of the check say about what the nodes advertise."""
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
