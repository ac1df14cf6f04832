"""All incidents, and one of them in full with what nodes said around it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from ospltool.diagnostics.model import Severity
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.health.verdict import UNKNOWN
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.alignment import alignment_line, delivery_line
from ospltool.views.cells import (
    Cell,
    Column,
    Facts,
    Line,
    Rows,
    Span,
    Tone,
    dimmed,
    more_line,
    plain,
    single,
    table_title,
)
from ospltool.views.events import RepeatedEvent, events_table, folded
from ospltool.views.view import Rank, Subject, View, severity_sign, unheard_nodes, verdict_sign

LEAST_WITH_CLOCK: Final = 100
"""Cells from which the time of the beginning has room beside how long it lasts."""

FIELDS: Final = ("code", "who", "text", "state")
LABEL: Final = 9
"""Cells for the words what, why, effect and next."""
MAX_MUTES: Final = 4
"""The most lines for mutes."""
MAX_LINES: Final = 4
"""The most lines for one of them."""


def find(view: View, key: str) -> Incident | None:
    """Return the incident with this key; of several that are over, the one that ended last."""
    return next((one for one in view.health.every if one.key == key), None)


def state(view: View, one: Incident) -> str:
    """Return whether it lasts, in one word."""
    if one.until_ns:
        return "over"
    if one.muted_until_ns:
        return f"muted {text.age(one.muted_until_ns - view.now_ns)}"
    return "known" if one.acknowledged_ns else "open"


def incidents(view: View, width: int, only: Sequence[Incident] | None = None) -> Rows[Incident]:
    """Return all incidents, or only some."""
    every = view.health.every if only is None else only
    states = max((len(state(view, one)) for one in every), default=0)
    codes = max((len(one.code.id) for one in every), default=0)
    whose = max((len(one.who) for one in every), default=0)
    lasts = max((len(one.lasts(view.now_ns)) for one in every), default=0)
    who = min(max(3, whose), 24 if width >= LEAST_WITH_CLOCK else 10)
    columns = (
        Column("mark", "", 1),
        *((Column("since", "since", 8),) if width >= LEAST_WITH_CLOCK else ()),
        Column("lasts", "lasts", max(6, lasts), right=True),
        Column("state", "state", max(5, states)),
        Column("code", "code", max(4, codes)),
        Column("who", "who", who, cut=view.glyphs.ellipsis, among=view.node_names),
        Column("text", "what", 12, grow=6),
    )

    def facts(one: Incident) -> Facts:
        return {
            "severity": one.severity.label,
            "since": one.since_ns,
            "until_ns": one.until_ns,
            "state": state(view, one),
            "code": one.code.id,
            "who": one.who,
            "text": one.what,
            "why": one.why,
            "effect": one.effect,
            "next": one.next,
        }

    def render(one: Incident, key: str) -> Cell:
        sign, tone = severity_sign(view.glyphs, one.severity)
        cells = {
            "mark": single(sign, tone),
            "since": single(text.clock(one.since_ns), Tone.DIM),
            "lasts": single(one.lasts(view.now_ns)),
            "state": single(state(view, one)),
            "code": single(one.code.id),
            "who": single(one.who),
            "text": single(one.what, tone),
        }
        quiet = one.until_ns or one.muted_until_ns
        return tuple(Span(span.text, Tone.DIM) for span in cells[key]) if quiet else cells[key]

    kept = [
        (f"{one.key} {one.since_ns}", one)
        for one in every
        if view.filter.matches(
            {"code": one.code.id, "who": one.who, "text": one.what, "state": state(view, one)}
        )
    ]
    return Rows(columns, kept, render, width=width, fixed=1, hidden=len(every) - len(kept), facts=facts)


def title(view: View, rows: Rows[Incident]) -> str:
    """Return the title with the numbers of open, muted and closed incidents."""
    health = view.health
    muted = f"{len(health.muted)} muted" if health.muted else ""
    over = f"{len(health.closed)} over" if health.closed else ""
    return table_title([plural(len(health.open), "incident"), muted, over], rows.hidden)


def mute_lines(view: View) -> list[Line]:
    """Return a line for each of the mutes that stand, the next to end first, the last one for the others."""
    lines: list[Line] = [
        (
            Span(
                f" mute {one.name} until {text.clock_in_zone(one.until_ns)} {one.words(hidden)}",
                Tone.DIM,
            ),
        )
        for one, hidden in view.health.standing_mutes
    ]
    left_out = len(lines) - MAX_MUTES + 1
    return [*lines[: MAX_MUTES - 1], more_line(left_out)] if left_out > 1 else lines


def about(view: View, one: Incident, width: int, most: int = MAX_LINES) -> list[Line]:
    """Return observation, cause, effect and advice, each in at most `most` lines."""
    return _labelled_lines(view, (("What", one.what), *_reasons(one)), width, most)


def explanation(view: View, one: Incident, width: int, most: int = 1) -> list[Line]:
    """Return cause, effect and advice, each in at most `most` lines, beside the observation."""
    return _labelled_lines(view, _reasons(one), width, most)


def _reasons(one: Incident) -> tuple[tuple[str, str], ...]:
    return ("Why", one.why), ("Effect", one.effect), ("Next", one.next)


def _labelled_lines(view: View, parts: tuple[tuple[str, str], ...], width: int, most: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in parts:
        wrapped = text.wrap(value, max(10, width - LABEL - 2), most, ellipsis=view.glyphs.ellipsis)
        for number, part in enumerate(wrapped):
            tone = Tone.STRONG if label == "What" else Tone.PLAIN
            lines.append((Span(f" {label if not number else '':<{LABEL}}", Tone.DIM), Span(part, tone)))
    return lines


def head(view: View, one: Incident, width: int) -> Line:
    """Return code, title, since when, whether it lasts, and the page of the code, without what does not fit.

    The heading of the screen has the code, and every code its page.
    """
    sign, tone = severity_sign(view.glyphs, one.severity)
    lasts = f"{one.lasts(view.now_ns)}{one.again}"
    code, title = Span(f" {one.code.id} ", tone), Span(f" {one.code.title}", Tone.STRONG)
    since = Span(f"  {one.since} {text.clock_in_zone(one.since_ns)}, {lasts}, {state(view, one)}", Tone.DIM)
    mark = Span(f" {sign}", tone)
    forms: tuple[Line, ...] = (
        (mark, code, title, since, Span(f"  {one.code.page}", Tone.DIM)),
        (mark, code, title, since),
        (mark, title, since),
    )
    return next((line for line in forms if cell_len(plain(line)) <= width), forms[-1])


def events(view: View, one: Incident, width: int) -> Rows[RepeatedEvent]:
    """Return the events around the incident at INFO and above, oldest first; alike ones are one row."""
    found = view.health.events(one)
    kept = [event for event in found if view.filter.matches({"node": event.node_name, "text": event.text})]
    return events_table(view, folded(kept), width, hidden=len(found) - len(kept))


def events_title(rows: Rows[RepeatedEvent]) -> str:
    """Return how many events there are, and what enter does."""
    number = sum(len(each.tellers) for _, each in rows.items)
    return f"{plural(number, 'event')} around it, enter opens the trace"


_LOST: Final = (Presence.SILENT, Presence.GONE)


def none_lines(view: View) -> list[Line]:
    """Return the lines shown without incidents."""
    if not view.is_anybody_heard:
        why = f": {view.health.verdict.why}" if view.health.verdict.why else ""
        return [dimmed((Span(f" no node is heard, so nothing is known to be wrong{why}"),))]
    heard = view.model.ordered_nodes()
    lost = [node.snapshot.name for node in heard if view.presence(node) in _LOST]
    lost += [one.name for one in unheard_nodes(view) if one.rank is not Rank.STOPPED]
    if lost and not view.health.muted:
        first, others = lost[0], len(lost) - 1
        more = f" and {plural(others, 'other node')}" if others else ""
        return [(Span(f" no incident yet, but {first}{more} cannot be heard"),)]
    began_ns = view.model.began_ns
    since = f", nor was since this watch began at {text.clock_in_zone(began_ns)}" if began_ns else ""
    return [dimmed((Span(f" nothing is wrong{since}"),))]


def summary(view: View, width: int) -> Line:
    """Return the whole system in one line: the verdict, then how much there is, without what does not fit."""
    verdict = view.health.verdict
    if view.model.is_empty and verdict.word == UNKNOWN:
        return (Span(" nobody heard yet", Tone.DIM),)
    sign, tone = verdict_sign(view, verdict)
    running = (
        one for node in view.model.nodes.values() for space in node.aligning for one in space.alignments
    )
    aligning = sum(one.direction == "from" for one in running)
    services = len(view.model.persistence)
    parts = [
        plural(len(view.model.name_space_names()), "name-space"),
        plural(sum(view.model.sets.largest().values()), "sample"),
        f"{aligning} aligning" if aligning else "",
        plural(services, "persistence service") if services else "",
    ]
    gap, start = f" {view.glyphs.separator} ", f" {sign} {verdict.word}"
    every = _with_ends_of_mutes(view, verdict.parts)
    short = [part.partition(" (")[0] for part in every]
    shorter = [re.sub(r"(?<= complete),.*|, [\d,]+ notice.*", "", part) for part in short]
    least = [re.split("[,:] ", part)[0] for part in shorter]
    forms = ["".join(f"{gap}{part}" for part in form) for form in (every, short, shorter, least)]
    said = next((form for form in forms if cell_len(start + form) <= width), "")
    for part in filter(None, parts if said else (*least, *parts)):
        if cell_len(f"{start}{said}{gap}{part}") <= width:
            said += f"{gap}{part}"
    return (Span(start, tone), Span(said, Tone.DIM))


def _with_ends_of_mutes(view: View, parts: Sequence[str]) -> list[str]:
    """Return the parts of a verdict, and last, where there is room, when the mutes of open incidents end."""
    ends = sorted({one.muted_until_ns for one in view.health.muted})
    if not ends:
        return list(parts)
    times = " to ".join(dict.fromkeys((text.clock(ends[0]), text.clock(ends[-1]))))
    return [*parts, f"mutes end {times}"]


def incident_line(view: View, incident: Incident) -> Line:
    """Return one incident: sign, since when, code, what was seen."""
    sign, tone = severity_sign(view.glyphs, incident.severity)
    since = text.age(incident.age_ns(view.now_ns))
    known = "known  " if incident.acknowledged_ns else ""
    return (
        Span(" "),
        Span(sign, tone),
        Span(f" {since:>6}  ", Tone.DIM),
        Span(f"{incident.code.id}  {known}", Tone.DIM),
        Span(incident.what, tone),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Notable:
    """Something to look at, with the screen that shows more of it."""

    key: str
    line: Line
    subject: Subject
    screen: str
    incident: Incident | None = None


def notables(view: View, incidents: Sequence[Incident]) -> list[Notable]:
    """Return the lines about trouble, then those about running work."""
    found = [_of_incident(view, incident) for incident in incidents]
    for node in view.model.ordered_nodes():
        deliveries = node.snapshot.deliveries
        if not (node.aligning or deliveries) or view.is_stale(node):
            continue
        for space, progress in view.model.progress(node):
            if progress.alignment.direction == "from":
                line = alignment_line(view, node, space, progress)
                key = f"alignment {node.id} {space.name} {progress.alignment.fellow}"
                found.append(Notable(key, line, Subject(node.id, space.name), "alignment"))
        for one in deliveries:
            if one.state in ("waiting", "running"):
                key = f"delivery {node.id} {one.participant} {one.partition} {one.topic} {one.started_ns}"
                line = delivery_line(view, node, one)
                found.append(Notable(key, line, Subject(node.id), "alignment"))
    return found


def _of_incident(view: View, incident: Incident) -> Notable:
    name_space = next(iter(incident.name_spaces), "")
    subject = Subject(incident.node, name_space, incident=incident.key)
    return Notable(incident.key, incident_line(view, incident), subject, "incident", incident)


def severe(view: View) -> dict[str, tuple[str, ...]]:
    """Return code, subject and observation of severe incidents, by a key that changes when one gets worse."""
    return {
        f"{one.origin} {one.rises}": (one.code.id, one.who, one.what)
        for one in view.health.open
        if one.severity is Severity.ERROR
    }
