"""One traced event as a value, and the formats of its fields."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, Final

from engine.tracing.escaping import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.tracing.catalogue import EventType

_LARGEST_JSON_INTEGER: Final = (1 << 53) - 1
_SECOND_NS: Final = 1_000_000_000


class EventFieldsError(TypeError):
    """An event was traced with fields that its message does not have: a bug in ospltool."""


@dataclasses.dataclass(frozen=True, slots=True)
class EventRecord:
    """An event that happened.

    Attributes:
        sequence: number of the record in its tracer, from 1; a gap shows unwanted records.
        time_ns: wall clock, nanoseconds since 1970 UTC.
        state: the service state at that time, as in the STATE column.
        event: the kind of event.
        fields: the values, by field name.
        text: the message, escaped: it has no control characters.
        lines: continuation lines without a header, escaped.
    """

    sequence: int
    time_ns: int
    state: str
    event: EventType
    fields: Mapping[str, object]
    text: str
    lines: tuple[str, ...] = ()


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
