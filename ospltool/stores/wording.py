"""Times for people."""

from __future__ import annotations

import datetime


def shown(time_ns: int) -> str:
    """A source timestamp as ISO 8601 in UTC with nanoseconds; one beyond the calendar as a number."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"
