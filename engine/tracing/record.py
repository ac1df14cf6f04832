"""One traced event as a value, and its formats: a line of an OpenSplice trace, or a line of JSON."""

from __future__ import annotations

import datetime
import enum
import json
import math
from typing import TYPE_CHECKING, Final

import msgspec

from engine.tracing.escaping import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.tracing.catalogue import EventType


_LARGEST_JSON_INTEGER: Final = (1 << 53) - 1
"""Readers of JSON that have floats only, such as JavaScript and jq, round larger ones."""
_SECOND_NS: Final = 1_000_000_000


class EventFieldsError(TypeError):
    """An event was traced with fields that its message does not have: a bug in ospltool."""


class EventRecord(msgspec.Struct, frozen=True):
    """An event that happened.

    Attributes:
        sequence: number of the record in its tracer, from 1; a gap shows unwanted records.
        time_ns: wall clock, nanoseconds since 1970 UTC.
        state: the service state at that time, as in the STATE column.
        event: the kind of event.
        fields: the values, by field name.
        text: the message, escaped: it has no control characters.
        lines: continuation lines without a header, escaped.
        is_withheld: whether it is beyond the bound of its event, and written to no log.
    """

    sequence: int
    time_ns: int
    state: str
    event: EventType
    fields: Mapping[str, object]
    text: str
    lines: tuple[str, ...] = ()
    is_withheld: bool = False


def message(event: EventType, fields: Mapping[str, object]) -> str:
    """Return the message of an event with the escaped values of its fields."""
    if fields.keys() != set(event.fields):
        wanted = ", ".join(event.fields) or "none"
        raise EventFieldsError(f"{event.id} has fields {wanted}; got {', '.join(fields) or 'none'}")
    return fill_in(event.text, fields)


def fill_in(template: str, fields: Mapping[str, object]) -> str:
    """Fill a message template of an event with the escaped values of its fields."""
    return template.format_map({name: escape(field_text(name, value)) for name, value in fields.items()})


def field_text(name: str, value: object) -> str:
    """Return the text for the value of the field `name` in a message, not yet escaped."""
    match value:
        case None:
            return "nobody" if name == "master" else "none"
        case bool():
            return "TRUE" if value else "FALSE"
        case enum.IntEnum():
            return value.name
        case int() if name.endswith("_ns"):
            return seconds_text(value)
        case float():
            return f"{value:.9g}"
        case bytes():
            return value.hex()
        case list() | set() | frozenset():
            return ",".join(field_text(name, item) for item in value)
        case tuple() if type(value) is tuple:  # named tuples have their own text
            return ",".join(field_text(name, item) for item in value)
        case _:
            return str(value)


def seconds_text(duration_ns: int) -> str:
    """Format nanoseconds as seconds with nine decimals, as in `1795222798.472989470`."""
    seconds, nanoseconds = divmod(abs(duration_ns), _SECOND_NS)
    return f"{'-' if duration_ns < 0 else ''}{seconds}.{nanoseconds:09d}"


def json_value(name: str, value: object) -> object:
    """Convert a field value for JSON: integers that JavaScript would round become strings, but not times."""
    match value:
        case enum.IntEnum():
            return value.name
        case enum.Enum():
            return str(value)
        case None | bool() | str():
            return value
        case int():
            return value if name.endswith("_ns") or abs(value) <= _LARGEST_JSON_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | tuple() if not hasattr(value, "_fields"):
            return [json_value(name, item) for item in value]
        case _:
            return field_text(name, value)


JSON_FORMAT_VERSION: Final = 1


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
