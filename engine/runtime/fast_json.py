"""Reads messages of many fields in one go, where the messages are ordinary.

`engine.core.plain` reads messages of an untrusted source and says what is wrong with them. It makes each
value in Python, which takes 2 ms for the snapshot of a node with 200 fellows. msgspec takes a fifth of that
and is as strict about types, but takes numbers of more than 128 bits, and does not look at the bytes of
fields that it skips. What might contain such numbers, or does not fit, is left to `plain`
(`tests/property/test_fast_json.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG: Final = b"0" * 39
"""Digits that a number of more than 128 bits has at least."""
_BUILDING: Final = threading.Lock()
"""msgspec takes a class that another thread has read in part only for a whole one, and crashes."""


class QuickMessage(NamedTuple):
    """The parts of a message; `data` is a value of the type that belongs to `kind`."""

    format_version: int
    kind: str
    data: Any


def reader(kinds: Mapping[str, type]) -> Callable[[bytes], QuickMessage | None]:
    """Return what reads documents of these kinds, and returns None for each that it leaves to `plain`.

    Without msgspec, which only an installation for live systems has, that is every one.
    """
    try:
        import msgspec
    except ModuleNotFoundError:
        return lambda _: None
    envelope = msgspec.defstruct(
        "Envelope", [("format_version", int), ("kind", str), ("data", msgspec.Raw)], gc=False
    )
    head = msgspec.json.Decoder(envelope)
    with _BUILDING:
        bodies: dict[str, Any] = {kind: msgspec.json.Decoder(type_) for kind, type_ in kinds.items()}

    def read(data: bytes) -> QuickMessage | None:
        if _LONG in data.translate(_DIGITS):
            return None
        try:
            data.decode()  # msgspec does not look into fields that it skips
            found: Any = head.decode(data)
            return QuickMessage(found.format_version, found.kind, bodies[found.kind].decode(found.data))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    return read
