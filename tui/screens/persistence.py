"""Redundant persistence services: states, providers and durable subscriptions of each replica."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, Final

from textual import on
from textual.app import ComposeResult

from engine.persistence.service.replica_view import SubscriptionView
from ospltool.health.signs.services import of_service
from ospltool.live import persistence
from ospltool.live.persistence import ReplicaState, Stream, WatchedReplica
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, more_line, single, table_title
from ospltool.views.view import View, severity_sign
from tui.screens.base import OpsScreen, share
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

FIELDS: Final = ("replica", "service", "host", "state", "topic", "partition", "provider", "sub")
_ABOUT_ROWS: Final = ("topic", "partition", "provider", "sub")
"""The fields that select rows of a replica, not the replica itself."""

MOST_COUNTED: Final = 2
"""Lines for the counters of a replica."""
MOST_TOLD: Final = 3
"""Lines for one problem."""

_TONES: Final = {
    ReplicaState.GONE: Tone.FAULT,
    ReplicaState.PROBLEM: Tone.FAULT,
    ReplicaState.SILENT: Tone.WARN,
    ReplicaState.NO_PROVIDER: Tone.WARN,
    ReplicaState.LAGS: Tone.WARN,
    ReplicaState.STOPPED: Tone.WARN,
    ReplicaState.CONNECTING: Tone.STRONG,
}
"""Tones of states; the others are dim."""


def replicas(view: View, width: int) -> Rows[WatchedReplica]:
    """Return the table of replicas, with the worst values among their writers."""
    columns = (
        Column("mark", "", 1),
        Column("name", "replica", 8, grow=2, most=20),
        Column("state", "state", 11),
        Column("values", "values", 7, right=True),
        Column("from", "from", 11, grow=4, most=40),
        Column("lag", "lag", 7, right=True),
        Column("stability", "stability", 10),
        Column("changed", "changed", 7, right=True),
        Column("twice", "twice", 5, right=True),
        Column("groups", "groups", 6, right=True),
        Column("connected", "connected with", 14, grow=3, most=40),
        Column("service", "service", 9, grow=1, most=20),
    )

    def render(one: WatchedReplica, key: str) -> Cell:
        cell = _replica_cell(view, one, key)
        return dimmed(cell) if one.is_stale(view.examined_ns) else cell

    every = view.model.persistence.ordered()
    kept = [(one.id, one) for one in every if _keeps(view, one)]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _keeps(view: View, one: WatchedReplica) -> bool:
    """Whether the filter matches a replica, or one of its rows."""
    own = _values(view, one)
    is_about_rows = any(term.field in _ABOUT_ROWS for term in view.filter.terms)
    if not is_about_rows and view.filter.matches(own):
        return True
    rows = [_stream_values(stream) for stream in one.used]
    rows += [_subscription_values(each) for each in one.view.subscriptions]
    return any(view.filter.matches({**own, **row}) for row in rows)


def _values(view: View, one: WatchedReplica) -> dict[str, str]:
    return {
        "replica": one.view.name,
        "service": one.view.service,
        "host": one.view.host,
        "state": one.state(view.examined_ns),
    }


def _stream_values(stream: Stream) -> dict[str, str]:
    told = stream.view
    return {
        "topic": told.topic,
        "partition": told.partition,
        "provider": persistence.used(told),
        "writer": told.writer,
    }


def _subscription_values(each: SubscriptionView) -> dict[str, str]:
    return {"topic": each.topic, "partition": each.partition, "sub": each.name}


def _replica_cell(view: View, one: WatchedReplica, key: str) -> Cell:
    state = one.state(view.examined_ns)
    if key == "mark":
        return (_mark(view, state),)
    if key == "state":
        return single(state, _TONES.get(state, Tone.DIM))
    used = one.used
    if key == "lag":
        return _lag_cell(used)
    twice = one.view.counters.get("repeated", 0)
    plain = {
        "name": one.view.name,
        "values": text.count(one.view.values),
        "from": _sources(used),
        "stability": persistence.worst_stability([stream.view for stream in used]),
        "changed": _age(view, max((each.changed_ns for each in one.streams.values()), default=0)),
        "twice": text.count(twice) if twice else "",
        "groups": text.count(len(one.view.groups)),
        "connected": ", ".join(persistence.connected(one.view)),
        "service": one.view.service,
    }
    return single(plain[key], Tone.PLAIN if key in ("name", "values", "from") else Tone.DIM)


def _mark(view: View, state: ReplicaState) -> Span:
    glyphs = view.glyphs
    tone = _TONES.get(state, Tone.DIM)
    sign = {
        ReplicaState.STOPPED: glyphs.idle,
        ReplicaState.CONNECTING: glyphs.busy,
    }.get(state) or {Tone.FAULT: glyphs.fault, Tone.WARN: glyphs.warn}.get(tone, glyphs.ok)
    return Span(sign, tone)


def _age(view: View, moment_ns: int) -> str:
    return text.age(view.now_ns - moment_ns) if moment_ns else ""


def _lag_cell(streams: Sequence[Stream]) -> Cell:
    """Return the largest lag; it stands out if a lag grows or is large, or no provider fills it."""
    most = max((stream.view.lag_ns for stream in streams), default=0)
    urgent = any(stream.is_behind or stream.is_unprovided for stream in streams)
    return single(persistence.lag(most), Tone.WARN if urgent else Tone.PLAIN if most else Tone.DIM)


def _sources(streams: Sequence[Stream]) -> str:
    """Return the providers in use, those of most writers first."""
    counts = collections.Counter(
        name for stream in streams for name in (stream.view.provider, *stream.view.filling) if name
    )
    return ", ".join(name for name, _ in counts.most_common())


def title(view: View, rows: Rows[WatchedReplica]) -> str:
    """Return the number of replicas, and of those that are absent or hidden."""
    every = view.model.persistence.ordered()
    states = collections.Counter(one.state(view.examined_ns) for one in every)
    absent = [
        f"{states[state]} {state}"
        for state in (ReplicaState.GONE, ReplicaState.STOPPED, ReplicaState.SILENT)
        if states[state]
    ]
    return table_title([plural(len(every), "persistence service"), *absent], rows.hidden)


def none_lines(view: View, mode: str, width: int) -> list[Line]:
    """Return the lines that replace an empty table. `mode` is that of the feed."""
    if view.model.persistence:
        return [(Span(f" no persistence service matches the filter {view.filter.text!r}"),)]
    told = text.wrap(persistence.why_none(mode), max(20, width - 2), 3, ellipsis=view.glyphs.ellipsis)
    return [(Span(f" {line}", Tone.DIM),) for line in told]


def replica_lines(view: View, one: WatchedReplica, width: int) -> list[Line]:
    """Return lines about one replica: place, data, counters, problems."""
    shown, state = one.view, one.state(view.examined_ns)
    where = f"host {shown.host}  pid {shown.pid}  store {shown.store}"
    up = "not heard" if one.is_stale(view.examined_ns) else f"up {text.age(view.now_ns - shown.started_ns)}"
    lived = f"{up}  heard {text.ago(one.age_ns(view.now_ns))}"
    held = f"{plural(shown.values, 'value')} in {plural(len(shown.groups), 'group')}"
    disk = "not all on disk yet" if shown.unwritten else "on disk"
    linked = ", ".join(_link(peer.name, peer.link) for peer in shown.peers) or "none"
    counted = ", ".join(f"{name.replace('_', ' ')} {text.count(n)}" for name, n in shown.counters.items())
    room, ellipsis = max(20, width - 4), view.glyphs.ellipsis
    lines: list[Line] = [
        (
            Span(f" {shown.name} of {shown.service}  ", Tone.STRONG),
            Span(state, _TONES.get(state, Tone.DIM)),
            Span(f"  {held}, {disk}", Tone.DIM),
        ),
        (Span(f"   linked with {linked}  {lived}  {where}", Tone.DIM),),
    ]
    counts = text.wrap(counted or "nothing counted yet", room, MOST_COUNTED, ellipsis=ellipsis)
    lines += [(Span(f"   {line}", Tone.DIM),) for line in counts]
    for sign in of_service(one, view.examined_ns):
        first, *more = text.wrap(sign.what, room - 8, MOST_TOLD, ellipsis=ellipsis)
        mark, tone = severity_sign(view.glyphs, sign.urgency)
        since = text.age(view.now_ns - sign.since_ns) if sign.since_ns else ""
        lines.append((Span(" "), Span(mark, tone), Span(f" {since:>6}  ", Tone.DIM), Span(first, tone)))
        lines += [(Span(f"{' ' * 11}{line}", lines[-1][-1].tone),) for line in more]
    return lines


def _link(name: str, link: str) -> str:
    return name if link == "up" else f"{name[:16]} ({link})"


def streams(view: View, one: WatchedReplica, width: int) -> Rows[Stream]:
    """Return the table of a replica's writers whose samples come or are missing."""
    columns = (
        Column("mark", "", 1),
        Column("group", "partition.topic", 18, grow=4, most=40),
        Column("from", "from", 9, grow=1, most=20),
        Column("lag", "lag", 7, right=True),
        Column("stability", "stability", 11),
        Column("hops", "hops", 4, right=True),
        Column("path", "path", 10, grow=3, most=40),
        Column("changed", "changed", 7, right=True),
        Column("selected", "selected", 9, grow=1, most=20),
        Column("unsettled", "unsettled", 9, right=True),
        Column("writer", "writer", 22),
    )

    def render(stream: Stream, key: str) -> Cell:
        cell = _stream_cell(view, stream, key)
        return dimmed(cell) if one.is_stale(view.examined_ns) else cell

    own = _values(view, one)
    used = one.used
    kept = [
        ("\0".join(map(str, (one.id, told.topic, told.partition, told.writer, told.late))), stream)
        for stream in used
        for told in (stream.view,)
        if view.filter.matches({**own, **_stream_values(stream)})
    ]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(used) - len(kept))


def _stream_cell(view: View, stream: Stream, key: str) -> Cell:
    told = stream.view
    if key == "mark":
        return (_stream_mark(view, stream),)
    if key == "lag":
        return _lag_cell([stream])
    if key == "from" and persistence.lacks_provider(told):
        return single("none", Tone.WARN if stream.is_unprovided else Tone.STRONG)
    plain = {
        "group": f"{told.partition}.{told.topic}",
        "from": persistence.used(told),
        "stability": persistence.stability(told),
        "hops": str(len(told.path)) if told.path else "",
        "path": persistence.path(told),
        "changed": _age(view, stream.changed_ns),
        "selected": persistence.selected(told),
        "unsettled": f"{told.unsettled} of {told.unsettled_of}",
        "writer": persistence.short_name(told, view.glyphs.ellipsis),
    }
    return single(plain[key], Tone.PLAIN if key in ("group", "from") else Tone.DIM)


def _stream_mark(view: View, stream: Stream) -> Span:
    glyphs = view.glyphs
    if stream.is_unprovided or stream.is_behind:
        return Span(glyphs.warn, Tone.WARN)
    return Span(glyphs.ok, Tone.DIM) if persistence.stability(stream.view) == "stable" else Span(glyphs.busy)


def streams_title(one: WatchedReplica, rows: Rows[Stream]) -> str:
    """Return the number of writers that are shown, idle and hidden."""
    used = len(rows.keys) + rows.hidden
    quiet = len(one.streams) - used + one.view.writers_left_out
    parts = [f"{one.view.name}: {plural(used, 'writer')}", f"{quiet:,} idle" if quiet else ""]
    return table_title(parts, rows.hidden)


def subscriptions(view: View, one: WatchedReplica, width: int) -> Rows[SubscriptionView]:
    """Return the table of a replica's durable subscriptions."""
    columns = (
        Column("mark", "", 1),
        Column("name", "subscription", 12, grow=2, most=24),
        Column("group", "partition.topic", 18, grow=3, most=40),
        Column("pending", "pending", 8, right=True),
        Column("quorum", "quorum", 6, right=True),
        Column("members", "readers", 12, grow=2, most=30),
        Column("doubt", "acknowledged by", 15, grow=3, most=40),
    )

    def render(each: SubscriptionView, key: str) -> Cell:
        cell = _subscription_cell(view, one, each, key)
        return dimmed(cell) if one.is_stale(view.examined_ns) else cell

    own = _values(view, one)
    every = one.view.subscriptions
    kept = [
        ("\0".join((one.id, each.name, each.topic, each.partition)), each)
        for each in every
        if view.filter.matches({**own, **_subscription_values(each)})
    ]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _subscription_cell(view: View, one: WatchedReplica, each: SubscriptionView, key: str) -> Cell:
    lacks = view.model.persistence.lacks_quorum(one.view.service, each)
    if key == "mark":
        return (Span(view.glyphs.warn, Tone.WARN) if lacks else Span(view.glyphs.ok, Tone.DIM),)
    present = view.model.persistence.present(one.view.service, each)
    if key == "members" and lacks:
        named = f": {', '.join(sorted(present))}" if present else ""
        return single(f"{len(present)} of {each.quorum}{named}", Tone.WARN)
    plain = {
        "name": each.name,
        "group": f"{each.partition}.{each.topic}",
        "pending": text.count(each.pending) if each.pending else "none",
        "quorum": text.count(each.quorum),
        "members": persistence.members(sorted(present)),
        "doubt": persistence.in_doubt(each.in_doubt) if each.pending else "all",
    }
    return single(plain[key], Tone.PLAIN if key in ("name", "pending") else Tone.DIM)


def subscriptions_title(view: View, one: WatchedReplica, rows: Rows[SubscriptionView]) -> str:
    """Return the number of durable subscriptions, and of those without enough readers."""
    every = one.view.subscriptions
    lacking = sum(1 for each in every if view.model.persistence.lacks_quorum(one.view.service, each))
    parts = [f"{one.view.name}: {plural(len(every), 'durable subscription')}"]
    return table_title([*parts, f"{lacking} without enough readers" if lacking else ""], rows.hidden)


PARTS = ("replicas", "streams", "subscriptions")


class PersistenceScreen(OpsScreen):
    """Each persistence service, the providers of the one under the cursor, and its durable subscriptions."""

    NAME = "persistence"
    TITLE_OF_SCREEN = "persistence"
    FILTER_FIELDS = FIELDS

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Rows[Any]] = {}

    def body(self) -> ComposeResult:
        """Three tables under their titles; below the first, the replica under the cursor."""
        yield Sheet(id="replicas", classes="panel")
        yield Lines(id="about", classes="free")
        for part in PARTS[1:]:
            yield Sheet(id=part, classes="panel")

    def show(self, view: View) -> None:
        """Fill all parts and share the height."""
        width = self.inner
        rows = replicas(view, width)
        self._rows = {"replicas": rows}
        self.query_one("#replicas", Sheet).show(rows)
        one = self._replica
        if one is None:
            self._show_none(view)
            return
        about = replica_lines(view, one, width)
        titles = {"replicas": title(view, rows)}
        self._rows["streams"] = streams(view, one, width)
        titles["streams"] = streams_title(one, self._rows["streams"])
        if one.view.subscriptions:
            self._rows["subscriptions"] = subscriptions(view, one, width)
            titles["subscriptions"] = subscriptions_title(view, one, self._rows["subscriptions"])
        room = max(0, self.room - self.frame * len(titles))
        most = max(2, room // 3)
        if len(about) > most:
            about = [*about[: most - 1], more_line(len(about) - most + 1)]
        self.fill("#about", about)
        parts = [part for part in PARTS if part in titles]
        wanted = [len(self._rows[part].keys) + bool(self._rows[part].keys) for part in parts]
        heights = dict(zip(parts, share(wanted, room - len(about)), strict=True))
        for part in PARTS:
            self.panel(f"#{part}", titles.get(part, ""), heights.get(part, 0))
            if part in self._rows and part != "replicas":
                self.query_one(f"#{part}", Sheet).show(self._rows[part])

    def _show_none(self, view: View) -> None:
        said = none_lines(view, self.console.feed.mode, self.inner)
        self.fill("#about", [(Span(f" {title(view, self._rows['replicas'])}", Tone.STRONG),), *said])
        for part in PARTS:
            self.panel(f"#{part}", "", 0)

    @property
    def _replica(self) -> WatchedReplica | None:
        """The replica under the cursor of the first table."""
        rows: Rows[WatchedReplica] = self._rows["replicas"]
        return rows.item(self.query_one("#replicas", Sheet).row)

    @on(Sheet.Moved, "#replicas")
    def _moved(self) -> None:
        self.refresh_now()

    @on(Sheet.Chosen)
    def _chosen(self, event: Sheet.Chosen) -> None:
        """From a replica to its writers, and from a writer to the replica that gives its samples."""
        if event.sheet.id == "replicas":
            self.set_focus(self.query_one("#streams", Sheet))
        elif event.sheet.id == "streams":
            stream = self._rows["streams"].item(event.sheet.row)
            here = self._replica
            if stream is not None and here is not None:
                self._go_to(here.view.service, stream.view.provider)

    def _go_to(self, service: str, name: str) -> None:
        found = [
            one.id
            for one in self.console.model.persistence.ordered()
            if (one.view.service, one.view.name) == (service, name)
        ]
        grid = self.query_one("#replicas", Sheet)
        if found and found[0] in self._rows["replicas"].keys:
            grid.go_to(found[0])
            self.set_focus(grid)
