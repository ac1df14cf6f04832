"""The progress of long work: a line on standard error, on a terminal only, and only after a moment.

A command opens `shown`; the code that does the work calls `advance` or iterates over `counted`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from ospltool.output import streams
from ospltool.output.text import visible

if TYPE_CHECKING:
    import rich.progress

DELAY_S: Final = 1.0
"""Work that ends sooner shows no progress."""
# People see no more, and drawing costs milliseconds.
_REFRESHES_PER_S: Final = 4
# A call for each item would cost more than many items do.
_BATCH: Final = 1000

_Item = TypeVar("_Item")


class ProgressLine:
    """One line with a title, the work done and the time; it disappears at the end.

    Args:
        title: the work; it is made terminal-safe here.
        stream: where the line goes, if it is a terminal.
        in_bytes: the work is counted in bytes.
        unit: what is counted otherwise; empty if the line shows the time only.
        by_timer: show the line after `DELAY_S` even if nobody reports work. This takes a thread: not for work
            that forks.
    """

    def __init__(
        self,
        title: str,
        stream: TextIO,
        *,
        in_bytes: bool = False,
        unit: str = "samples",
        by_timer: bool = False,
    ) -> None:
        self._title = visible(title)
        self._stream = stream
        self._in_bytes = in_bytes
        self._unit = unit
        self._by_timer = by_timer
        self._began_ns = time.monotonic_ns()
        self._is_shown = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._done = 0
        self._total: int | None = None
        # The timer draws on a thread of its own: it must not draw after the line was removed.
        self._lock = threading.Lock()
        self._drawn: rich.progress.Progress | None = None
        self._refresh_ns = self._began_ns + int(DELAY_S * 1e9)
        self._timer = threading.Timer(DELAY_S, self._draw)
        self._timer.daemon = True
        if self._is_shown and by_timer:
            self._timer.start()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show how much of how much is done; `total` is None if it is unknown."""
        self._done, self._total = done, total
        if self._is_shown and not self._by_timer and time.monotonic_ns() >= self._refresh_ns:
            self._draw()

    def advance(self, count: int) -> None:
        """Add work that is done."""
        self(self._done + count, self._total)

    def close(self) -> None:
        """Remove the line."""
        self._timer.cancel()
        with self._lock:
            self._is_shown = False
            if self._drawn is not None:
                self._drawn.stop()

    def _draw(self) -> None:
        with self._lock:
            if not self._is_shown:
                return
            if self._drawn is None:
                self._drawn = self._made()
                streams.wait_for("")
                self._drawn.start()
            self._drawn.refresh()
            self._refresh_ns = time.monotonic_ns() + 1_000_000_000 // _REFRESHES_PER_S

    def _made(self) -> rich.progress.Progress:
        from rich import progress
        from rich.console import Console
        from rich.text import Text

        owner = self

        class _Count(progress.ProgressColumn):
            max_refresh = None

            def render(self, task: progress.Task) -> Text:
                task.completed, task.total = owner._done, owner._total
                if owner._in_bytes:
                    of = f" of {owner._total >> 20:,}" if owner._total else ""
                    return Text(f"{owner._done >> 20:,}{of} MiB")
                return Text(f"{owner._done:,} {owner._unit}" if owner._unit else "")

        drawn = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            _Count(),
            *((progress.BarColumn(), progress.TaskProgressColumn()) if self._in_bytes else ()),
            progress.TimeElapsedColumn(),
            console=Console(file=self._stream, markup=False, emoji=False, highlight=False),
            auto_refresh=self._by_timer,
            refresh_per_second=_REFRESHES_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        drawn.add_task(self._title, total=None)
        drawn.tasks[0].start_time = self._began_ns / 1e9
        return drawn


_current: ProgressLine | None = None


@contextlib.contextmanager
def shown(title: str, unit: str = "samples") -> Iterator[None]:
    """Show on standard error how much is done while the context lasts; contexts do not nest.

    `unit` is what is counted; empty if only the time is shown.
    """
    global _current  # so that the work need not hand it through
    _current = ProgressLine(title, sys.stderr, unit=unit, by_timer=True)
    try:
        yield
    finally:
        _current.close()
        _current = None


def awaited(items: Iterable[_Item], title: str, unit: str = "samples") -> Generator[_Item]:
    """Pass items on to be written to standard output, and show progress while each of them is made.

    If standard output is no terminal, progress is shown to the end.

    Args:
        items: what is made.
        title: the work.
        unit: what is counted.
    """
    if not sys.stdout.isatty():
        with shown(title, unit):
            yield from items
        return
    iterator = iter(items)
    while True:
        with shown(title, unit):
            try:
                item = next(iterator)
            # `shown` wraps only the waiting for an item, not the work with it; so this is a `for` by hand.
            except StopIteration:
                return
        yield item


def advance(count: int) -> None:
    """Add work that is done to the progress that is shown, if one is."""
    if _current is not None:
        _current.advance(count)


def counted(items: Iterable[_Item]) -> Iterator[_Item]:
    """Pass items on, and add them to the progress that is shown."""
    done = 0
    for done, item in enumerate(items, 1):
        if not done % _BATCH:
            advance(_BATCH)
        yield item
    advance(done % _BATCH)
