"""Finds and parses the headers of records in a durability trace.

    2026-11-21T01:08:30+0000 1795223310.294122015 INIT (ospl_durability) -> message
    1510591395.741573630 INIT (mainThread) -> message                         older releases
    1970-01-01T00:00:01+0000 1.019691753 INIT (ospl_durability) -> message    relative timestamps
    INIT (ospl_durability) -> message                                         no timestamps
    2026-11-21T01:08:30+0000 1795223310.268525372 PersistentStore (KV) -> message      the store's printer

A header may stand anywhere in a line: a message that was cut, or printed without a line end, has the next
header glued to it. A header without a timestamp is too weak a sign for that; it counts at the start of a
line only, unless the whole file is without timestamps. A header never spans lines, so that a header at the
start of a line begins a record whatever stands before it: there a file can be cut and read in parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ospltool.trace.reading.record import TimeBase

STATES: Final = (
    "INIT",
    "DISCOVER_FELLOWS_GROUPS",
    "DISCOVER_LOCAL_GROUPS",
    "DISCOVER_PERSISTENT_SOURCE",
    "INJECT_PERSISTENT",
    "FETCH_INITIAL",
    "COMPLETE",
    "FETCH",
    "ALIGN",
    "FETCH_ALIGN",
    "TERMINATING",
    "TERMINATED",
    "<<UNKNOWN>>",
)
STORE_PRINTER: Final = b"PersistentStore"
END: Final = b") -> "
"""End of every header."""

# Names of 80 characters (`_WHO`), a date, and room.
LONGEST: Final = 240
"""Bytes of the longest possible header."""

# No service runs for ten years, and no trace was written in the seventies.
RELATIVE_LIMIT_S: Final = 10 * 365 * 86400
"""A time below ten years after 1970 counts from the start of the service."""

SECOND_NS: Final = 1_000_000_000

_LOCAL: Final = re.compile(rb"\d{4}-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)([+-])(\d\d)(\d\d) (\d+)\.")
# The longest first: an expression takes the first alternative, and one state may begin with another.
_STATE: Final = "|".join(re.escape(state) for state in sorted(STATES, key=len, reverse=True))
_WHO: Final = r"\((?P<{}>[^()\n]{{1,80}})\) -> "
_TIME: Final = (
    r"(?:(?P<local>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[+-]\d{4}|Z)?) )?"
    r"(?P<seconds>-?\d{1,10})\.(?P<nanoseconds>\d{9}) "
)
_TIMED: Final = (
    _TIME + r"(?:(?P<state>[A-Z][A-Z_]{2,39}|<<UNKNOWN>>)|PersistentStore) " + _WHO.format("thread")
)
_UNTIMED: Final = rf"(?:(?P<bare_state>{_STATE})|PersistentStore) " + _WHO.format("bare_thread")
_CONTEXT: Final = re.compile(
    (r"(?:[A-Z][A-Z_]{2,39}|<<UNKNOWN>>|PersistentStore) " + _WHO.format("thread")).encode()
)
_HEADER: Final = re.compile(rf"{_TIMED}|^{_UNTIMED}".encode(), re.MULTILINE)
_HEADER_ANYWHERE: Final = re.compile(rf"{_TIMED}|{_UNTIMED}".encode())
LINE_HEADER: Final = re.compile(rf"^(?:{_TIMED}|{_UNTIMED})".encode(), re.MULTILINE)


IS_LINE_HEADER: Final = re.compile(re.sub(r"\(\?P<\w+>", "(?:", rf"{_TIMED}|{_UNTIMED}").encode())
"""Matches a header at a position; only sensible at the start of a line. Faster than the others: no groups."""


class RecordHeader(NamedTuple):
    """A header in a buffer.

    Attributes:
        start: its beginning in the buffer.
        end: beginning of its message.
        time_ns: its time; None without timestamp.
        local: local time before it; empty in older releases.
        state: service state; empty for the store's printer.
        thread: thread; for the store's printer `PersistentStore (KV)`.
    """

    start: int
    end: int
    time_ns: int | None
    local: bytes
    state: str
    thread: str

    @property
    def clock(self) -> TimeBase:
        """Clock of its time."""
        return clock_of(self.time_ns)


def is_time(time_ns: int) -> bool:
    """Return whether a time fits into 64 bits. A record with another time counts as having none."""
    return abs(time_ns) < 1 << 63


SHORTEST_DATE_NS: Final = 10**9 * SECOND_NS
"""The first time since 1970 whose seconds have ten digits, as they have since 2001."""


def is_cut(time_ns: int | None, following_ns: int | None) -> bool:
    """Return whether the time of a record lost its first digits with the beginning of its line.

    Args:
        time_ns: its time; None without one.
        following_ns: the time of the record after it, which tells how many digits times have there.
    """
    return (
        time_ns is not None and following_ns is not None and 0 <= time_ns < SHORTEST_DATE_NS <= following_ns
    )


def clock_of(time_ns: int | None) -> TimeBase:
    """Return the clock of a time, judged by its size: relative times are small."""
    if time_ns is None:
        return TimeBase.NONE
    return TimeBase.ABSOLUTE if time_ns >= RELATIVE_LIMIT_S * SECOND_NS else TimeBase.RELATIVE


def headers(
    buffer: bytes, start: int = 0, end: int | None = None, *, untimed: bool = False
) -> Iterator[RecordHeader]:
    """Yield the headers in `buffer[start:end]`, in order.

    Args:
        buffer: the bytes.
        start: position at the start of a line, or of a header.
        end: position to stop at; by default the end of the buffer.
        untimed: the file has no timestamps, so headers without one count anywhere in a line.
    """
    stop = len(buffer) if end is None else end
    floor = start
    for found in LINE_HEADER.finditer(buffer, start, stop):
        if buffer.find(END, floor, found.start()) >= 0:
            yield from _glued(buffer, floor, found.start(), untimed=untimed)
        yield header_of(found)
        floor = found.end()
    if buffer.find(END, floor, stop) >= 0:
        yield from _glued(buffer, floor, stop, untimed=untimed)


def _glued(buffer: bytes, floor: int, stop: int, *, untimed: bool) -> Iterator[RecordHeader]:
    """Yield the headers in `buffer[floor:stop]` that do not begin a line, or begin at `floor`."""
    at = buffer.find(END, floor, stop)
    while at >= 0:
        header = header_ending_at(buffer, floor, at + len(END), untimed=untimed)
        if header is not None:
            yield header
            floor = header.end
        at = buffer.find(END, at + len(END), stop)


def header_ending_at(
    buffer: bytes | bytearray, floor: int, end: int, *, untimed: bool
) -> RecordHeader | None:
    """Return the header that begins at or after `floor` and ends at `end`, after `) -> `; else None.

    The numbers are offsets in the buffer; headers of an untimed trace have no time.
    """
    start = max(floor, end - LONGEST)
    start = buffer.rfind(b"\n", start, end) + 1 or start
    if not _may_end(buffer, start, end, untimed=untimed):
        return None
    pattern = _HEADER_ANYWHERE if untimed else _HEADER
    for found in pattern.finditer(buffer, start, end):
        if found.end() == end:
            return header_of(found)
    return None


_TOKEN_ENDS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_>e")
"""Last bytes of a state, of `<<UNKNOWN>>` and of `PersistentStore`."""
# Nanoseconds after the point.
_DIGITS: Final = 9


def _may_end(buffer: bytes | bytearray, start: int, end: int, *, untimed: bool) -> bool:
    """Return False if what stands before `) -> ` is surely no header; a search takes many times as long."""
    token_end = buffer.rfind(b" (", start, end - len(END))
    if token_end <= start or buffer[token_end - 1] not in _TOKEN_ENDS:
        return False
    point = buffer.rfind(b" ", start, token_end) - _DIGITS - 1
    return untimed or point < start or buffer[point] == ord(".")


def is_header(context: bytes) -> bool:
    """Return whether bytes are the rest of a header after its time, such as `INIT (ospl_durability) -> `."""
    return _CONTEXT.fullmatch(context) is not None


def context_of(context: bytes) -> tuple[str, str]:
    """Return state and thread of a header, from its part after the timestamp."""
    state, _, thread = context.partition(b" (")
    name = _name(thread.removesuffix(END))
    return ("", f"PersistentStore ({name})") if state == STORE_PRINTER else (_name(state), name)


_names: dict[bytes | None, str] = {None: ""}
"""States and threads as text. There are few; if there are many, all are forgotten."""


def _name(name: bytes | None) -> str:
    known = _names.get(name)
    if known is None and name is not None:
        if len(_names) > 4096:
            _names.clear()
            _names[None] = ""
        known = _names[name] = name.decode("utf-8", "backslashreplace")
    return known or ""


def header_of(found: re.Match[bytes]) -> RecordHeader:
    """Return the header that a pattern of this module matched."""
    local, seconds, nanoseconds, state, thread, bare_state, bare_thread = found.groups()
    time_ns = None
    if seconds is None:
        state, thread = bare_state, bare_thread
    else:
        time_ns = int(seconds + nanoseconds)
        if not is_time(time_ns):
            time_ns = None
    name = _name(thread) if state is not None else f"PersistentStore ({_name(thread)})"
    return RecordHeader(found.start(), found.end(), time_ns, local or b"", _name(state), name)


def first_on_line(buffer: bytes, start: int = 0) -> int:
    """Return the position of the first header at the start of a line, at or after `start`; -1 without one.

    `start` itself counts as the start of a line only when it is 0 or follows a line end.
    """
    found = LINE_HEADER.search(buffer, start)
    return found.start() if found else -1


def last_on_line(buffer: bytes) -> int:
    """Return the position of the last header at the start of a line; -1 without one."""
    line = buffer.rfind(b"\n") + 1
    while line > 0:
        if IS_LINE_HEADER.match(buffer, line):
            return line
        line = buffer.rfind(b"\n", 0, line - 1) + 1
    return 0 if IS_LINE_HEADER.match(buffer, 0) else -1


def disagrees(raw: bytes) -> bool:
    """Return whether the two times of a line differ in minute and second."""
    found = _LOCAL.match(raw)
    if found is None:
        return False
    seconds = int(found[9])
    offset = (int(found[7]) * 60 + int(found[8])) * (1 if found[6] == b"+" else -1)
    of_day = (seconds // 60 + offset) % 1440 * 60 + seconds % 60
    return of_day != (int(found[3]) * 60 + int(found[4])) * 60 + int(found[5])
