"""Runs the console: chooses how it looks on this terminal, and closes what it shows when the user leaves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ospltool.health.health import Health
from ospltool.health.system import Source
from ospltool.live.feed import Feed
from ospltool.live.model import SystemModel
from ospltool.output import libraries
from tui import cells, themes
from tui.app import ConsoleApp
from tui.background import look_for_garbage_less_often
from tui.operator import Operator
from tui.trace_lines import TraceFiles


def run_console(
    feed: Feed,
    *,
    title: str,
    on_idle: Callable[[], bool | None] | None = None,
    theme: str | None = None,
    ascii_only: bool = False,
    traces: Sequence[str] = (),
    operator: Operator | None = None,
    notify: str = "",
    watch_health: Callable[[SystemModel], Health] = Health,
    others: Sequence[Source] = (),
    recordings: Sequence[Path] = (),
) -> int:
    """Show `feed` until the user leaves, and close it. Return 0, or 130 after an interrupt.

    NO_COLOR, the terminal's name and its encoding choose theme and signs unless the caller did.

    Args:
        feed: the shown system.
        title: title of the console.
        on_idle: called about four times a second in the console's thread; False ends the console.
        theme: name of a theme; None chooses one.
        ascii_only: use signs of ASCII only.
        traces: trace files or directories to follow, as for `ospltool trace`.
        operator: carries out commands on nodes; None for a console that only watches.
        notify: command that runs for every new severe incident; empty for none.
        watch_health: makes the health of the model, with its expectation.
        others: sources of further domains.
        recordings: files of recorders of these domains, to go back in time.

    Raises:
        SourceError: a trace file cannot be read.
        AlarmFault: the command is malformed.
    """
    files = TraceFiles(traces) if traces else None
    no_color = bool(os.environ.get("NO_COLOR"))
    look = themes.choose(theme, no_color=no_color, term=os.environ.get("TERM", ""))
    in_browser = "TEXTUAL_DRIVER" in os.environ
    signs = cells.choose("utf-8" if in_browser else sys.stdout.encoding, ascii_only=ascii_only)
    app = ConsoleApp(
        feed,
        title=title,
        signs=signs,
        theme=look,
        on_idle=on_idle,
        trace_files=files,
        operator=operator,
        notify=notify,
        watch_health=watch_health,
        others=others,
        recordings=recordings,
    )
    look_for_garbage_less_often()
    try:
        with libraries.kept_for_the_end():
            result = app.run()
    finally:
        app.systems.close()
        if files is not None:
            files.close()
    return app.return_code or 0 if result is None else result
