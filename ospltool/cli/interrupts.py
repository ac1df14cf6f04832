"""Signals as a flag, for commands that must not be interrupted just anywhere.

An exception in the middle of a call into Cyclone DDS might never come out of it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def flag(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """An event that these signals set while the context lasts. The former handlers come back."""
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in numbers}
    try:
        yield over
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
