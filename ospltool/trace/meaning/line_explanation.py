"""Explains lines of a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.catalogue import Product, Template, catalogue, pattern_text
from ospltool.trace.meaning.matcher import CUT_AT_BYTES, matcher
from ospltool.trace.reading.headers import headers

if TYPE_CHECKING:
    from ospltool.output.documents import TraceExplanation

THREADS: Final[Mapping[str, str]] = {
    "ospl_durability": "the main thread: start, discovery, stop",
    "mainThread": "the main thread, in older releases",
    "statusThread": "renews the lease and publishes the state of the service",
    "AdminEventDispatcher": "tells other parts of the service about new and lost fellows",
    "d_adminActionQueue": "timed actions, such as the end of the quarantine of lost fellows",
    "conflictResolver": "resolves conflicts one by one: elections and merges",
    "masterMonitor": "elects a master where one was lost",
    "groupLocalListenerActionQueue": "handles groups and readers of this node",
    "groupLocalListener": "hears of groups and readers of this node",
    "groupCreationThread": "creates groups of fellows on this node",
    "resendQueue": "tries again to insert data that the kernel had rejected",
    "sampleRequestHandler": "answers requests for groups (the aligner's side)",
    "dcpsHeartbeatListener": "hears of federations that come and go",
    "statusListener": "hears of fellows that come and go, in older releases",
    "remoteReader": "discovers the protocol readers of fellows",
    "persistentDataListener": "writes persistent data to disk",
    "historicalDataRequestHandler": "answers durability clients",
    "d_status": "receives the states of fellows",
    "d_capability": "receives the capabilities of fellows",
    "d_nameSpaces": "receives the name-spaces of fellows, and compares them",
    "d_nameSpacesRequest": "receives requests for name-spaces",
    "d_groupsRequest": "receives requests for groups",
    "d_newGroup": "receives the groups of fellows",
    "d_sampleRequest": "receives requests for data",
    "d_sampleChain": "receives data and end marks, and applies merge policies (the alignee's side)",
    "d_deleteData": "receives requests to delete historical data",
}
"""The task of each thread."""


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation of a message.

    Attributes:
        template: its template.
        fields: its fields; empty if only the template was asked for.
        thread: thread that printed it, or usually does; empty if unknown.
    """

    template: Template
    fields: dict[str, str]
    thread: str


def explain(text: str) -> list[Explanation]:
    """Explain a message, a whole line, or the id of a template or event; return [] if it is unknown.

    A message that both OpenSplice and ospltool have gets both explanations.
    """
    named = catalogue().named(text)
    if named:
        return [Explanation(template, {}, template.thread) for template in named]
    raw = text.strip("\r\n").encode("utf-8", "surrogateescape")
    header = next(headers(raw, untimed=True), None)
    thread, store, message = "", False, text.strip("\r\n")
    if header is not None and not raw[: header.start].strip():
        thread, store = header.thread, not header.state
        message = raw[header.end :].decode("utf-8", "surrogateescape")
    found: dict[str, Explanation] = {}
    for origin in Product:
        for by_store in (store, not store) if header is None else (store,):
            match = matcher(origin).match(message, store=by_store, cut=len(message) >= CUT_AT_BYTES)
            if match is not None:
                template = match.template
                found.setdefault(template.id, Explanation(template, match.fields, thread or template.thread))
    return list(found.values())


def as_text(one: Explanation) -> str:
    """Return an explanation for people."""
    template = one.template
    lines = [f"{template.id}  ({template.origin}, level {' or '.join(template.levels)})"]
    lines.append(f"  message   {pattern_text(template.pattern)}")
    if template.meaning:
        lines.append(f"  meaning   {template.meaning}")
    else:
        lines.append("  meaning   no explanation yet")
    if template.event and template.event != template.id:
        lines.append(f"  event     {template.event}")
    if one.thread:
        about = THREADS.get(one.thread)
        lines.append(f"  thread    {one.thread}{f': {about}' if about else ''}")
    if template.sites:
        lines.append(f"  printed   {', '.join(site.replace(':', '.c:') for site in template.sites)}")
    lines += [f"  {name:<10}{value}" for name, value in one.fields.items()]
    return "\n".join(lines)


def as_value(one: Explanation) -> TraceExplanation:
    """Return an explanation for JSON."""
    template = one.template
    return {
        "id": template.id,
        "event": template.event or None,
        "origin": template.origin.value,
        "levels": list(template.levels),
        "thread": one.thread or None,
        "sites": list(template.sites),
        "pattern": pattern_text(template.pattern),
        "meaning": template.meaning or None,
        "fields": one.fields,
    }
