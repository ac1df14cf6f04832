"""Times and states of samples, for people."""

from __future__ import annotations

import datetime

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER


def shown(time_ns: int) -> str:
    """Format a source timestamp as ISO 8601 in UTC with nanoseconds; as a number if beyond the calendar."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"
    return f"{moment.isoformat()[:19]}.{nanoseconds:09}Z"


def status_text(status: int) -> str:
    """Describe the status of a sample, such as `write` or `dispose+unregister`."""
    parts = {DATA: "write", DISPOSE: "dispose", UNREGISTER: "unregister"}
    return "+".join(word for bit, word in parts.items() if status & bit) or f"status {status}"
