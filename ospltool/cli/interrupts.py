"""Signals as a flag: an exception from a signal handler might never leave a call into Cyclone DDS."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def flag(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """Set an event on these signals while the context lasts; then restore the former handlers."""
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in numbers}
    try:
        yield over
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
