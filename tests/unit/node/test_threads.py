"""The threads of a node, and of a persistence service, get their names soon after they have started."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.dds.activity import ThreadActivities
from engine.dds.library_threads import LOOKS, LibraryThreads

TASKS = Path("/proc/self/task")


class Sleeper:
    """A thread that waits until it is told to end."""

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._over.wait, name=name, daemon=True)
        self._thread.start()

    @property
    def place(self) -> Path:
        return TASKS / str(self._thread.native_id)

    @property
    def shown(self) -> str:
        """Its name as `top -H` shows it."""
        return (self.place / "comm").read_text("utf-8").strip()

    def end(self) -> None:
        """End it; Linux may have it for a moment longer than Python."""
        place = self.place
        self._over.set()
        self._thread.join()
        while place.exists():
            pass


def test_a_thread_is_named_at_the_next_look_and_soon_if_another_one_has_ended() -> None:
    made = LibraryThreads(ThreadActivities(), 30.0)
    made.sample()
    first = Sleeper("first")
    made.sample()
    assert first.shown == "first"
    first.end()
    second = Sleeper("second")  # as many threads as before
    for _ in range(LOOKS):
        made.sample()
    assert second.shown == "second"
    second.end()
