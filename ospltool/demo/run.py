"""The player of the acts, with or without the console."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from engine.dds.uri import cyclone_uri
from ospltool.demo.acts import ACTS
from ospltool.demo.stage import ActFailed, Stage
from ospltool.live.dds import LiveFeed

DOMAINS: Final = range(100, 200)
"""Domains to choose from when none is given, away from where applications usually are."""


@dataclasses.dataclass(frozen=True, slots=True)
class ActResult:
    """The result of an act; `text` says what happened, or why the act does not hold."""

    act: int
    caption: str
    holds: bool
    seconds: float
    text: str


def play(
    domain_id: int | None, directory: pathlib.Path | None, told: Callable[[str | ActResult], None]
) -> list[ActResult]:
    """Play the acts up to the first that does not hold; `told` gets captions and reports at once.

    The nodes get `domain_id`, or one of DOMAINS, and keep their files in a directory, or a temporary one.
    """
    with _stage(domain_id, directory) as (stage, _):
        return list(_play(stage, told))


def play_with_console(domain_id: int | None, directory: pathlib.Path | None) -> list[ActResult]:
    """Play the acts in the background, with the console in the foreground until the user leaves it."""
    from tui.run import run_console

    reports: list[ActResult] = []
    with _stage(domain_id, directory) as (stage, domain):
        shown = LiveFeed(domain, uri=cyclone_uri())

        def tell(news: str | ActResult) -> None:
            if isinstance(news, ActResult):
                reports.append(news)
                shown.say(f"Act {news.act} {'holds' if news.holds else 'DOES NOT HOLD'}: {news.text}")
                pause.wait(READING_S)
            else:
                shown.say(news)

        def perform() -> None:
            done = list(_play(stage, tell))
            holds = all(report.holds for report in done)
            shown.say(
                "All five acts hold. Press q to leave." if holds else f"{done[-1].text} Press q to leave."
            )

        pause = threading.Event()
        player = threading.Thread(target=perform, name="demo", daemon=True)
        player.start()
        run_console(shown, title="ospltool demo")
        pause.set()  # nobody reads captions any more
        stage.close()
        player.join(timeout=10.0)
    return reports


READING_S: Final = 4.0
"""How long a result stays before the next act, so that a person can read it."""


def _play(stage: Stage, told: Callable[[str | ActResult], None]) -> Iterator[ActResult]:
    for act in ACTS:
        told(f"Act {act.number} of {len(ACTS)}: {act.caption}")
        started = time.monotonic()
        try:
            holds, text = True, act.perform(stage)
        except ActFailed as error:
            holds, text = False, str(error)
        report = ActResult(act.number, act.caption, holds, time.monotonic() - started, text)
        told(report)
        yield report
        if not holds:
            return


@contextlib.contextmanager
def _stage(domain_id: int | None, directory: pathlib.Path | None) -> Iterator[tuple[Stage, int]]:
    domain = random.choice(DOMAINS) if domain_id is None else domain_id
    with contextlib.ExitStack() as stack:
        if directory is None:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ospltool-demo-"))
            directory = pathlib.Path(name)
        directory.mkdir(parents=True, exist_ok=True)
        feed = LiveFeed(domain, uri=cyclone_uri())
        stack.callback(feed.close)
        stage = Stage(directory.resolve(), domain, feed)
        stack.callback(stage.close)
        yield stage, domain
