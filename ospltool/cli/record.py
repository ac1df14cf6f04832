"""`ospltool record`: record the state of a system to a file, or print it once."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.tracing.version import product_version
from ospltool.cli import domains, exits
from ospltool.cli.domains import LISTEN_S, POLL_S, listen_for
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import AsJson, LiveTarget, duration, uri_argument
from ospltool.health.export import as_json
from ospltool.health.health import Health
from ospltool.health.system import System
from ospltool.live.recorder import Recorder, RecordingLimits
from ospltool.live.recording import RecordingFault
from ospltool.output import envelope, streams
from ospltool.output.text import plural

if TYPE_CHECKING:
    from ospltool.live.expectation import Expectation
    from ospltool.live.feed import Feed, Update
    from ospltool.live.supervision import LocalView

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|kB|MB|GB)?")
_BYTES: Final = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


def size_bytes(text: str) -> int:
    """Parse a size such as `64MiB` or `1.5GB` into bytes; a bare number counts bytes.

    Raises:
        typer.BadParameter: the text is not a size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size: write 500kB, 64MiB or 1GiB")
    return int(float(found[1]) * _BYTES[found[2] or "B"])


@dataclasses.dataclass(frozen=True, slots=True)
class ExtentOptions:
    """How long, how often and how much is recorded."""

    length: float | None = duration(None, "Stop after DURATION.", "--for")
    every: float = duration("1s", "Record each node once in DURATION, or when its state changes.")
    size: int = typer.Option("1GiB", parser=size_bytes, metavar="SIZE", help="Keep only the newest SIZE.")


def record(
    uri: Annotated[
        str | None,
        uri_argument("Record the domain of this configuration or fleet file."),
    ] = None,
    output: Annotated[
        pathlib.Path | None,
        typer.Option("--output", "-o", help="Write to this file, or continue the recording in it."),
    ] = None,
    *,
    target: LiveTarget,
    extent: ExtentOptions,
    once: Annotated[
        bool, typer.Option("--once", help="Print the state of the system as JSON instead of recording.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Record the state of nodes and persistence services; `ospltool top --replay FILE` plays it back.

    Recording continues until interrupted. Once the file has --size, the oldest lines are removed. It survives
    the loss of nodes and of the domain, and a full disk. With --once nothing is recorded: the state of the
    system goes to standard output.

    Exit codes: 0 success (also after Ctrl+C and SIGTERM), 1 data lost in writing, or not heard as the watch
    itself failed, 2 wrong usage or unwritable file, 3 domain not reachable, no node heard with --once, or all
    that were heard refused, as their secret of the domain differs.
    """
    if once == (output is not None):
        raise CommandError("give --output FILE or --once (not both)")
    chosen = domains.watched(uri, target.domain)
    domains.require_one(chosen)
    feed, expected = domains.live_at(chosen[0].place, target.partition), chosen[0].expected
    try:
        if once:
            _once(feed, LISTEN_S if extent.length is None else extent.length, expected)
            return
        assert output is not None

        limits = RecordingLimits(max_bytes=extent.size, every_ns=round(extent.every * 1e9))
        recorder = _recorder(feed, output, limits, expected)
        _run(feed, recorder, extent.length, chosen[0].local_view())
    finally:
        feed.close()
    _tell(recorder, as_json=as_json)
    tally = recorder.tally
    if tally.refused and not tally.heard:
        raise typer.Exit(Exit.UNREACHABLE)
    raise typer.Exit(Exit.FINDINGS if tally.lost or tally.failures else Exit.GOOD)


def _once(feed: Feed, seconds: float, expected: Expectation) -> None:
    system = System((feed, lambda model: Health(model, expected)))
    listen_for(system, seconds)
    streams.put(as_json(system.health, feed.now_ns()))
    domains.require_listening(system)
    if system.model.is_empty:
        why = f": {refused.text}" if (refused := system.model.unproved) else ""
        streams.notify(f"ospltool: no node heard in {feed.title} within {seconds:g} s{why}")
        raise typer.Exit(Exit.UNREACHABLE)


def _recorder(feed: Feed, path: pathlib.Path, limits: RecordingLimits, expected: Expectation) -> Recorder:
    try:
        made_by = f"ospltool {product_version()}"
        return Recorder(path, source=feed.title, made_by=made_by, limits=limits, expected=expected)
    except RecordingFault as error:
        raise CommandError(str(error)) from error


def _run(feed: Feed, recorder: Recorder, length_s: float | None, local_view: Callable[[], LocalView]) -> None:
    """Record until the time is over or a signal arrives."""
    known: LocalView | None = None

    def news() -> Update:
        nonlocal known
        before, known = known, local_view()
        return dataclasses.replace(feed.poll(), local=known if known != before else None)

    with exits.interrupt_flag(signal.SIGINT, signal.SIGTERM) as over, contextlib.closing(recorder):
        streams.notify(f"ospltool: recording {feed.title}; press Ctrl+C to stop")
        end = None if length_s is None else time.monotonic() + length_s
        said = refused = ""
        while not over.is_set() and (end is None or time.monotonic() < end):
            recorder.write(news(), feed.now_ns())
            if recorder.problem != said:
                said = recorder.problem
                streams.notify(f"ospltool: {said or 'writing again'}")
            if recorder.tally.refused and not refused:
                refused = recorder.tally.refused
                streams.notify(f"ospltool: {refused}")
            over.wait(POLL_S)
        recorder.write(news(), feed.now_ns())


def _tell(recorder: Recorder, *, as_json: bool) -> None:
    tally = recorder.tally
    streams.notify(f"ospltool: {plural(tally.lines, 'line')}, {plural(tally.bytes, 'byte')}")
    if tally.lost:
        streams.notify(f"ospltool: {plural(tally.lost, 'line')} could not be written")
    if tally.messages_left_out:
        left_out = f"{plural(tally.messages_left_out, 'message')} left out"
        streams.notify(f"ospltool: {left_out}: refused, not readable, or too many")
    if tally.failures:
        streams.notify(
            f"ospltool: this watch failed {plural(tally.failures, 'time')}; "
            "what happened meanwhile is missing"
        )
    if tally.refused:
        beside = "" if tally.heard else "nothing is recorded: "
        streams.notify(f"ospltool: {beside}{tally.refused}")
    if as_json:
        streams.put(envelope.document("record", tally))
