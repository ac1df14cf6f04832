"""Parses and formats times and durations."""

from __future__ import annotations

import datetime
import re
from typing import Final

SECOND_NS: Final = 1_000_000_000

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "min": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": 86_400 * SECOND_NS,
}
_NUMBER: Final = r"(\d+(?:\.\d+)?|\.\d+)\s*"
_PART: Final = re.compile(rf"{_NUMBER}(ns|us|µs|ms|min|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?P<sign>[+-]?)(?:(?P<seconds>{_NUMBER})|(?P<rest>(?:{_PART.pattern})+))")
_EPOCH: Final = re.compile(r"(\d{9,11})(?:\.?(\d{9}|(?<=\.)\d{1,8}))?")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d:?\d\d)?",
)


class TimeError(ValueError):
    """A malformed time or duration; the message shows the right form."""


def parse_duration(text: str) -> int:
    """Parse a duration (`500ms`, `2s`, `1h30m`, `-1.3s`; a bare number counts seconds); return nanoseconds.

    Raises:
        TimeError: the text is not a duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise TimeError(f"{text!r} is not a duration: write for instance 500ms, 2s, 5m or 1h30m")
    total = 0
    for number, unit in _PART.findall(found["rest"] or f"{found['seconds']}s"):
        whole, _, fraction = number.partition(".")
        total += int(whole or 0) * _UNITS_NS[unit]
        if fraction:
            total += int(fraction) * _UNITS_NS[unit] // 10 ** len(fraction)
    return -total if found["sign"] == "-" else total


def parse_time(text: str, reference_ns: int | None = None, *, is_later: bool = False) -> int:
    """Parse a time; return nanoseconds since 1970 UTC.

    Args:
        text: ISO (`2026-11-21T01:08:34.5`, UTC unless it has an offset), seconds or nanoseconds since 1970, a
            time of day (`01:08:34`, on the day of the reference), or a duration from the reference (`+10s`,
            `-90`).
        reference_ns: the time of the first record, or the present.
        is_later: a time of day before the reference is one of the next day, where records can be.

    Raises:
        TimeError: the text has none of these forms, or needs a reference and there is none.
    """
    text = text.strip()
    epoch = _EPOCH.fullmatch(text)
    if epoch:
        return int(epoch[1]) * SECOND_NS + int((epoch[2] or "").ljust(9, "0"))
    iso = _ISO.fullmatch(text)
    if iso:
        return _iso(text, iso)
    clock = _CLOCK.fullmatch(text)
    if not clock and not text.startswith(("+", "-")):
        raise TimeError(f"{text!r} is not a time: write for instance 2026-11-21T01:08:34, 01:08:34 or +10s")
    if reference_ns is None:
        raise TimeError(f"{text!r} needs a first record with a time")
    if not clock:
        return reference_ns + parse_duration(text)
    seconds = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3] or 0)
    day = reference_ns // (86_400 * SECOND_NS) * 86_400
    time_ns = (day + seconds) * SECOND_NS + int((clock[4] or "").ljust(9, "0"))
    return time_ns + _UNITS_NS["d"] if is_later and time_ns < reference_ns else time_ns


def _iso(text: str, found: re.Match[str]) -> int:
    zone = (found[4] or "Z").replace("Z", "+00:00")
    try:
        moment = datetime.datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{zone}")
    except ValueError as cause:
        raise TimeError(f"{text!r} is not a time: {cause}") from None
    return int(moment.timestamp()) * SECOND_NS + int((found[3] or "").ljust(9, "0"))


def parse_around(text: str, reference_ns: int | None = None) -> tuple[int, int]:
    """Parse `TIME±DURATION` (or `TIME+-DURATION`); return the first and the last nanosecond.

    Raises:
        TimeError: the text does not have this form.
    """
    time, separator, width = text.replace("+-", "±").partition("±")
    if not separator:
        raise TimeError(f"{text!r}: write TIME±DURATION, for instance 01:08:34±2s")
    half = abs(parse_duration(width))
    # The first record may be a little later than the middle.
    middle = parse_time(time, None if reference_ns is None else reference_ns - half, is_later=True)
    if time.strip().startswith("+"):
        middle += half
    return middle - half, middle + half


def iso(time_ns: int, digits: int = 9) -> str:
    """Format a time as ISO text in UTC, with `digits` decimals of a second."""
    seconds, nanoseconds = divmod(time_ns, SECOND_NS)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):  # years without dates
        return f"{seconds}.{nanoseconds:09d}"
    fraction = f"{nanoseconds:09d}"[:digits]
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if digits else ''}{fraction}Z"


def clock(time_ns: int, digits: int = 6) -> str:
    """Format the time of day, in UTC."""
    return iso(time_ns, digits)[11:-1] if time_ns >= 0 else f"-{duration(-time_ns)}"


def from_to(start_ns: int | None, end_ns: int | None = None) -> str:
    """Format a span of time in milliseconds; equal times as one, `-` if the start is unknown.

    The end has a date if it is on another day.
    """
    if start_ns is None:
        return "-"
    until = "" if end_ns is None or end_ns == start_ns else f" to {clock_since(start_ns, end_ns)}"
    return f"{iso(start_ns, 3)}{until}"


def clock_since(start_ns: int | None, time_ns: int, digits: int = 3) -> str:
    """Format a time of day, in UTC, with its date if that is not the day of `start_ns`.

    Args:
        start_ns: the time that stands before it; None for none.
        time_ns: the time.
        digits: decimals of a second.
    """
    dated = iso(time_ns, digits)
    same_day = start_ns is not None and iso(start_ns, 0)[:10] == dated[:10]
    return clock(time_ns, digits) if same_day or time_ns < 0 else dated


def duration(length_ns: int) -> str:
    """Format a duration for people: `12 ns`, `3.2 ms`, `4.50 s`, `2 min 03 s`, `1 h 02 min`."""
    sign, length = ("-", -length_ns) if length_ns < 0 else ("", length_ns)
    if length < 1_000:
        return f"{sign}{length} ns"
    if length < 1_000_000:
        return f"{sign}{length / 1_000:.1f} µs"
    if length < SECOND_NS:
        return f"{sign}{length / 1_000_000:.1f} ms"
    if length < 60 * SECOND_NS:
        return f"{sign}{length / SECOND_NS:.2f} s"
    minutes, seconds = divmod(length // SECOND_NS, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {seconds:02d} s"
    return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
