"""Finds out whether records are whole enough to be evidence.

A message may be cut (by OpenSplice at 1022 bytes, by the end of a file, by damage), and a line of JSON may
contain anything. Such a record is shown, but it is evidence only if it has all fields that its event needs.
"""

from __future__ import annotations

import re
from typing import Final

from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.views.times import SECOND_NS

_SECONDS: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_LONGEST_NUMBER: Final = 18
"""Digits that always fit into 64 bits."""

_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "election.confirmed-self": ("namespace",),
    "election.confirmed-fellow": ("namespace", "fellow"),
    "merge.requests": ("namespace", "groups", "fellows"),
    "merge.started": ("namespace", "fellow"),
    "merge.finished": ("namespace",),
    "merge.applying": ("policy", "group"),
    "fellow.heartbeat": ("fellow",),
    "fellow.late": ("fellow", "elapsed_ns"),
    "namespace.received": ("namespace", "fellow"),
    "namespace.merge-state": ("namespace", "merge_state"),
    "namespace.slaved": ("namespace", "merge_state"),
    "namespace.merge-state-advertised": ("namespace", "merge_state"),
    "lifecycle.address": ("node",),
    "client.request": ("reader",),
    "client.fulfilled": ("reader",),
    "deliver.started": ("reader",),
    "deliver.finished": ("reader",),
    "align.sending": ("group",),
    "align.received": ("group",),
    "group.complete": ("group",),
    **{
        f"align.{name}": ("group", "fellow")
        for name in (
            "request",
            "request-filtered",
            "request-delayed",
            "request-received",
            "request-received-filtered",
            "combined",
            "not-combined",
            "sent",
            "equal",
            "link",
            "refused",
            "completed",
        )
    },
}


def is_whole(record: TraceRecord) -> bool:
    """Return whether a record has the fields that its event needs."""
    fields = record.fields
    return all(name in fields for name in _NEEDED.get(record.event, ()))


def number(text: str | None) -> int | None:
    """Parse a number without a sign; return None for anything else, and for numbers beyond 64 bits."""
    if text and len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdecimal():
        return int(text)
    return None


def nanoseconds(text: str) -> int | None:
    """Parse seconds without a sign, with up to nine digits before and after the point; else None."""
    found = _SECONDS.fullmatch(text)
    return int(found[1]) * SECOND_NS + int((found[2] or "").ljust(9, "0")) if found else None
