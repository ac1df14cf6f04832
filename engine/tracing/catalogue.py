"""The catalogue of trace events: what each means, and how to tell them apart in a trace.

The data is `events.toml` beside this module. The level of an event is not part of a trace line, as in
OpenSplice: `Catalogue.match` finds the event of a line's text, and with it level and explanation.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
import string
import tomllib
from typing import TYPE_CHECKING, Final

from engine.tracing.escaping import unescape
from engine.tracing.levels import Level, ReportType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


@dataclasses.dataclass(frozen=True, slots=True)
class EventType:
    """One kind of event.

    Attributes:
        id: the area and the event, as in `election.basis`.
        level: how much it matters.
        thread: the activity that speaks.
        text: the message, with named fields in braces.
        meaning: what happened and what to do about it.
        fields: the names of the fields in `text`, in order.
        report: the type of record that it makes in ospl-info.log or ospl-error.log, if any.
        report_text: the description in that record.
    """

    id: str
    level: Level
    thread: str
    text: str
    meaning: str
    fields: tuple[str, ...]
    report: ReportType | None
    report_text: str


class Catalogue:
    """All kinds of events, by id."""

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
        """The event that a message was made from, with its fields as they were before they were escaped."""
        if not self._patterns:
            ranked = sorted(self, key=lambda kind: -_literal_length(kind.text))
            self._patterns = tuple((_pattern_of(kind.text), kind) for kind in ranked)
        for pattern, kind in self._patterns:
            found = pattern.fullmatch(text)
            if found:
                return kind, {name: unescape(value) for name, value in found.groupdict().items()}
        return None


@functools.cache
def catalogue() -> Catalogue:
    """The events of this service."""
    source = importlib.resources.files(__package__).joinpath("events.toml").read_text(encoding="utf-8")
    return Catalogue({kind.id: kind for kind in _read(tomllib.loads(source))})


def _read(areas: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[EventType]:
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
            )


def field_names(template: str) -> tuple[str, ...]:
    """The names of the fields of a message template, in order."""
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
