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
from typing import Final

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


class EventCatalogue(dict[str, EventType]):
    """The kinds of events, by id."""

    def __missing__(self, event_id: str) -> EventType:
        raise UnknownEventError(event_id)

    @functools.cached_property
    def _templates(self) -> list[tuple[str, str, EventType]]:
        """How messages begin and end; one with more text of its own comes first, as others may match more."""
        ranked = sorted(self.values(), key=lambda kind: (-_own_length(kind.text), kind.id))
        return [(*_ends(kind.text), kind) for kind in ranked]

    def match(self, text: str) -> tuple[EventType, dict[str, str]] | None:
        """Find the event of a message, with the unescaped values of its fields."""
        for begin, end, kind in self._templates:
            # Patterns are made when they are needed: those of all events take a tenth of a short command.
            if text.startswith(begin) and text.endswith(end):
                found = _pattern(kind.text).fullmatch(text)
                if found:
                    return kind, {name: unescape(value) for name, value in found.groupdict().items()}
        return None


@functools.cache
def catalogue() -> EventCatalogue:
    """Return the events of this service."""
    source = (pkgutil.get_data(__package__, "events.toml") or b"").decode()
    found = EventCatalogue()
    for area, events in tomllib.loads(source).items():
        for name, entry in events.items():
            text = entry["text"]
            found[f"{area}.{name}"] = EventType(
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
    return found


def field_names(template: str) -> tuple[str, ...]:
    """Return the names of the fields of a message template, in order."""
    return tuple(field for _, field, _, _ in string.Formatter().parse(template) if field is not None)


def _own_length(template: str) -> int:
    """Return how much of a template is its own text."""
    return sum(len(literal) for literal, _, _, _ in string.Formatter().parse(template))


def _ends(template: str) -> tuple[str, str]:
    """Return the text before the first field and after the last one; all of it twice without a field."""
    parts = list(string.Formatter().parse(template))
    return parts[0][0], parts[-1][0] if parts[-1][1] is None else ""


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    pattern = ""
    for literal, field, _, _ in string.Formatter().parse(template):
        pattern += re.escape(literal) + (f"(?P<{field}>.*?)" if field is not None else "")
    return re.compile(pattern, re.DOTALL)
