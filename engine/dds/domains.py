"""Free domain ids of this process, for short-lived domains."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from engine.dds.errors import OUT_OF_RESOURCES, DdsError

_FIRST: Final = 1000
_LAST: Final = 1999
_lock = threading.Lock()
_used: set[int] = set()


@contextlib.contextmanager
def free_domain_id() -> Iterator[int]:
    """Reserve a domain id that nothing else in this process uses while the block runs.

    These ids name domains in this process only and lie above those that applications may use (0 to 230).
    On the wire such a domain uses the `ExternalDomainId` of its settings.

    Raises:
        DdsError: all thousand are in use.
    """
    with _lock:
        free = next((number for number in range(_FIRST, _LAST + 1) if number not in _used), None)
        if free is None:
            raise DdsError(OUT_OF_RESOURCES, "find a free domain id")
        _used.add(free)
    try:
        yield free
    finally:
        with _lock:
            _used.discard(free)
