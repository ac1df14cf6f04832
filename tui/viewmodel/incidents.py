"""Incidents: the table of all, and one in full with what nodes told around it."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from ospltool.health.incident import Incident
from ospltool.live.nodes import Presence
from ospltool.output.text import plural
from tui import text
from tui.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, plain, single, table_title
from tui.viewmodel.base import Rank, View, severity_sign
from tui.viewmodel.panels import URGENT_LEVELS, RepeatedEvent, folded, more_line, teller
from tui.viewmodel.panels import told as text_of
from tui.viewmodel.unheard import unheard_nodes

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


def incidents(view: View, width: int) -> Rows[Incident]:
    """Return all incidents."""
    every = view.health.every
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
    return Rows(columns, kept, render, width=width, fixed=1, hidden=len(every) - len(kept))


def title(view: View, rows: Rows[Incident]) -> str:
    """Return the title with the numbers of open, muted and closed incidents."""
    health = view.health
    muted = f"{len(health.muted)} muted" if health.muted else ""
    over = f"{len(health.closed)} over" if health.closed else ""
    return table_title([plural(len(health.open), "incident"), muted, over], rows.hidden)


def mute_lines(view: View) -> list[Line]:
    """Return a line for each of the mutes that stand, the next to end first, the last one for the others."""
    lines: list[Line] = [
        (Span(f" mute {one.name} until {text.clock(one.until_ns)} UTC {one.words(hidden)}", Tone.DIM),)
        for one, hidden in view.health.standing_mutes
    ]
    left_out = len(lines) - MAX_MUTES + 1
    return [*lines[: MAX_MUTES - 1], more_line(left_out)] if left_out > 1 else lines


def about(view: View, one: Incident, width: int, most: int = MAX_LINES) -> list[Line]:
    """Return observation, cause, effect and advice, each in at most `most` lines."""
    return _told(view, (("What", one.what), *_reasons(one)), width, most)


def explanation(view: View, one: Incident, width: int, most: int = 1) -> list[Line]:
    """Return cause, effect and advice, each in at most `most` lines, beside the observation."""
    return _told(view, _reasons(one), width, most)


def _reasons(one: Incident) -> tuple[tuple[str, str], ...]:
    return ("Why", one.why), ("Effect", one.effect), ("Next", one.next)


def _told(view: View, told: tuple[tuple[str, str], ...], width: int, most: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in told:
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
    since = Span(f"  {one.since} {text.clock(one.since_ns)} UTC, {lasts}, {state(view, one)}", Tone.DIM)
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
    shown = folded(kept)
    names = max((cell_len(teller(view, each)) for each in shown), default=0)
    columns = (
        Column("time", "time", 12),
        Column("node", "node", max(4, names)),
        Column("text", "event", 20, grow=8, cut=view.glyphs.ellipsis, texts=True),
    )

    def render(each: RepeatedEvent, key: str) -> Cell:
        event = each.event
        tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
        return {
            "time": single(text.moment(event.time_ns)[11:], Tone.DIM),
            "node": single(teller(view, each), Tone.DIM),
            "text": single(text_of(event.event, event.state, event.text), tone),
        }[key]

    items = [(f"{each.event.node} {each.event.time_ns} {each.event.number}", each) for each in shown]
    return Rows(columns, items, render, width=width, hidden=len(found) - len(kept))


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
    since = f", nor was since this console came at {text.clock(began_ns)} UTC" if began_ns else ""
    return [dimmed((Span(f" nothing is wrong{since}; 7: trace"),))]
