"""Moments as people write them."""

from __future__ import annotations

import datetime


def moment_of(text: str, begin_ns: int, now_ns: int) -> int:
    """Parse a moment; return it in ns since 1970.

    `+90` and `-90` are seconds from now; `12:30` and `12:30:05` a time of day (UTC) on the day on which the
    recording begins or after it; `2026-11-21 12:30:05` says the day too.

    Raises:
        ValueError: the text has none of these forms.
    """
    text = text.strip()
    if text[:1] in ("+", "-") and text[1:].replace(".", "", 1).isascii():
        try:
            return now_ns + round(float(text) * 1e9)
        except (ValueError, OverflowError):
            pass
    begin = datetime.datetime.fromtimestamp(begin_ns // 1_000_000_000, datetime.UTC)
    try:
        if "-" in text:
            moment = datetime.datetime.fromisoformat(text)
        else:
            of_day = datetime.time.fromisoformat(text)
            moment = datetime.datetime.combine(begin.date(), of_day)
    except ValueError:
        meant = "+90, 12:30:05 or 2026-11-21 12:30:05"
        raise ValueError(f"{text!r} is not a moment: write {meant}") from None
    moment = moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    if "-" not in text and moment < begin.replace(microsecond=0):
        moment += datetime.timedelta(days=1)
    return round(moment.timestamp() * 1_000_000) * 1000
