"""Formats of records: a line of an OpenSplice trace, which can be read back, or a line of JSON."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import re
from typing import TYPE_CHECKING, Final

from engine.tracing.record import json_value, seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.tracing.record import EventRecord

JSON_FORMAT_VERSION: Final = 1
_SECOND_NS: Final = 1_000_000_000
_HEADER: Final = re.compile(
    r"(?:(?P<local>\S+) (?P<sign>-?)(?P<seconds>\d+)\.(?P<nanoseconds>\d{9}) )?"
    r"(?P<state>\S+) \((?P<thread>[^()\s]+)\) -> (?P<text>.*)"
)


class Timestamps(enum.Enum):
    """//OpenSplice/DurabilityService/Tracing/Timestamps and its attribute `absolute`."""

    ABSOLUTE = "wall clock"
    RELATIVE = "since the start of the service"
    OFF = "none"


class TextFormat:
    """Writes `<local time> <seconds>.<nanoseconds> <STATE> (<thread>) -> <message>`.

    Args:
        timestamps: content of the two time columns.
        start_ns: wall clock at the start of the service, for relative times. As in OpenSplice, the first
            column then shows the offset as a time in 1970.
        zone: time zone of the first column; the local one by default. A simulation uses UTC, so that its
            traces do not depend on the machine.
    """

    def __init__(
        self,
        timestamps: Timestamps = Timestamps.ABSOLUTE,
        start_ns: int = 0,
        zone: datetime.tzinfo | None = None,
    ) -> None:
        self._timestamps = timestamps
        self._origin_ns = start_ns if timestamps is Timestamps.RELATIVE else 0
        self._zone = zone
        self._second = -1
        self._local = self._local_time(-1)

    def __call__(self, record: EventRecord) -> str:
        """Format a record as one line and its continuation lines, without a line end at the end."""
        line = f"{record.state} ({record.event.thread}) -> {record.text}"
        if self._timestamps is not Timestamps.OFF:
            time_ns = record.time_ns - self._origin_ns
            second = time_ns // _SECOND_NS
            if second != self._second:  # a second has thousands of lines
                self._local = self._local_time(second)
                self._second = second
            line = f"{self._local} {seconds_text(time_ns)} {line}"
        return "\n".join((line, *record.lines)) if record.lines else line

    def _local_time(self, second: int) -> str:
        moment = datetime.datetime.fromtimestamp(second, datetime.UTC)
        return moment.astimezone(self._zone).strftime("%Y-%m-%dT%H:%M:%S%z")


def json_format(record: EventRecord) -> str:
    """Format a record as one line of JSON, with the fields of the catalogue.

    Values are escaped only as JSON requires.
    """
    data = {
        "sequence": record.sequence,
        "time_ns": record.time_ns,
        "event": record.event.id,
        "level": record.event.level.name,
        "state": record.state,
        "thread": record.event.thread,
        "text": record.text,
        "fields": {name: json_value(name, value) for name, value in record.fields.items()},
    }
    if record.lines:
        data["lines"] = list(record.lines)
    return json.dumps(
        {"format_version": JSON_FORMAT_VERSION, "kind": "trace-event", "data": data},
        separators=(",", ":"),
        allow_nan=False,
    )


if TYPE_CHECKING:
    Format = Callable[[EventRecord], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A parsed line of a trace. `time_ns` is None in a trace without timestamps."""

    time_ns: int | None
    state: str
    thread: str
    text: str


def read_line(line: str) -> Line | None:
    """Parse a line that `TextFormat` wrote; None for a continuation line."""
    found = _HEADER.fullmatch(line)
    if found is None:
        return None
    time_ns = None
    if found["seconds"] is not None:
        time_ns = int(found["seconds"]) * _SECOND_NS + int(found["nanoseconds"])
        time_ns = -time_ns if found["sign"] else time_ns
    return Line(time_ns, found["state"], found["thread"], found["text"])
