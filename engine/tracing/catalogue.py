"""The catalogue of trace events: the meaning of each, and how to recognise it in a trace.

The data is `events.toml` beside this module. The level of an event is not part of a trace line, as in
OpenSplice: `EventCatalogue.match` finds the event of a line's text, and with it level and explanation.
"""

from __future__ import annotations

import functools
import pkgutil
import re
import string
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.tracing.escaping import unescape
from engine.tracing.levels import Level, ReportType

THREADS: Final = frozenset(
    {
        "ospl_durability",
        "conflictResolver",
        "statusThread",
        "d_adminActionQueue",
        "AdminEventDispatcher",
        "groupCreationThread",
        "sampleRequestHandler",
        "resendQueue",
        "masterMonitor",
        "groupLocalListenerActionQueue",
        "d_groupsRequest",
        "d_nameSpaces",
        "d_nameSpacesRequest",
        "d_status",
        "d_newGroup",
        "d_sampleChain",
        "d_sampleRequest",
        "d_deleteData",
        "dcpsHeartbeatListener",
        "d_capability",
        "remoteReader",
        "persistentDataListener",
        "historicalDataRequestHandler",
        "durabilityStateListener",
    }
)
"""The activities of a node, by the names of the deployment guide, section 5.5."""


class UnknownEventError(KeyError):
    """An event id that is not in the catalogue: a bug in ospltool."""


class EventType(msgspec.Struct, frozen=True):
    """One kind of event."""

    id: str
    """The area and the event, as in `election.basis`."""
    level: Level
    """Its importance."""
    thread: str
    """The activity that reports it, one of `THREADS`."""
    text: str
    """The message, with named fields in braces."""
    meaning: str
    """Explanation of the event and what to do about it."""
    fields: tuple[str, ...]
    """The names of the fields in `text`, in order."""
    report: ReportType | None
    """Type of its record in ospl-info.log or ospl-error.log, None for no record."""
    report_text: str
    """The description in that record."""
    burst: int = 0
    """Number of lines at once, after which `LINES_A_MINUTE` are written; 0 for no bound."""


class EventCatalogue:
    """The kinds of events, by id."""

    def __init__(self, types: Mapping[str, EventType]) -> None:
        self._types = dict(types)
        self._patterns: tuple[tuple[re.Pattern[str], EventType], ...] = ()

    def __getitem__(self, event_id: str) -> EventType:
        try:
            return self._types[event_id]
        except KeyError:
            raise UnknownEventError(event_id) from None

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._types

    def __iter__(self) -> Iterator[EventType]:
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)

    def match(self, text: str) -> tuple[EventType, dict[str, str]] | None:
        """Find the event of a message, with the unescaped values of its fields."""
        if not self._patterns:
            ranked = sorted(self, key=lambda kind: -_literal_length(kind.text))
            self._patterns = tuple((_pattern_of(kind.text), kind) for kind in ranked)
        for pattern, kind in self._patterns:
            found = pattern.fullmatch(text)
            if found:
                return kind, {name: unescape(value) for name, value in found.groupdict().items()}
        return None


@functools.cache
def catalogue() -> EventCatalogue:
    """Return the events of this service."""
    source = (pkgutil.get_data(__package__, "events.toml") or b"").decode()
    return EventCatalogue({kind.id: kind for kind in _read(tomllib.loads(source))})


def _read(areas: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[EventType]:
    for area, events in areas.items():
        for name, entry in events.items():
            text = entry["text"]
            yield EventType(
                id=f"{area}.{name}",
                level=Level[entry["level"]],
                thread=entry["thread"],
                text=text,
                meaning=entry["meaning"],
                fields=field_names(text),
                report=ReportType[entry["report"]] if "report" in entry else None,
                report_text=entry.get("report_text", text),
                burst=int(entry.get("burst", 0)),
            )


def field_names(template: str) -> tuple[str, ...]:
    """Return the names of the fields of a message template, in order."""
    return tuple(field for _, field, _, _ in string.Formatter().parse(template) if field is not None)


def _literal_length(template: str) -> int:
    return sum(len(literal) for literal, _, _, _ in string.Formatter().parse(template))


def _pattern_of(template: str) -> re.Pattern[str]:
    parts: list[str] = []
    for literal, field, _, _ in string.Formatter().parse(template):
        parts.append(re.escape(literal))
        if field is not None:
            parts.append(f"(?P<{field}>.*?)")
    return re.compile("".join(parts), re.DOTALL)
