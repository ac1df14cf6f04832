"""Readers and writers, as nodes report them: who waits, who gets other samples, what is not kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from engine.runtime.monitor import DeliveryView, DeviationView, GroupView, UnkeptView, is_nowhere
from ospltool.live.groups import GroupKey
from ospltool.live.nodes import Node, natural
from ospltool.live.topics import PARTICIPANT, PREFIX, Application, ApplicationEndpoint
from ospltool.output.text import plural
from ospltool.views import alignment, text
from ospltool.views.cells import Cell, Column, Facts, Line, Rows, Span, Tone, single
from ospltool.views.view import View, shown

FIELDS: Final = ("node", "topic", "partition", "state")


class Reader(NamedTuple):
    """Readers of a topic in one process: how a node serves them, and where they see another set."""

    node: Node
    delivery: DeliveryView | None
    deviation: DeviationView | None

    @property
    def report(self) -> DeliveryView | DeviationView:
        """What the node reports of them: one of the two is there."""
        found = self.delivery or self.deviation
        assert found is not None
        return found


def _readers(view: View) -> list[Reader]:
    """Return the readers that present nodes report, those that wait first, then the newest."""
    found = []
    for node in view.model.ordered_nodes():
        if view.health.is_away(node):
            continue
        others = {(one.participant, one.topic, one.partition): one for one in node.snapshot.deviations}
        found += [
            Reader(node, each, others.pop((each.participant, each.topic, each.partition), None))
            for each in node.snapshot.deliveries
        ]
        found += [Reader(node, None, one) for one in others.values()]
    found.sort(key=lambda one: -one.delivery.started_ns if one.delivery else 0)
    found.sort(key=lambda one: not (one.delivery and one.delivery.state in ("waiting", "running", "failed")))
    return found


def _reader_facts(view: View, one: Reader) -> Facts:
    """Return the values of a reader."""
    report, delivery = one.report, one.delivery
    reasons = [alignment.waits_for(view, one.node, delivery)] if delivery else []
    reasons += [one.deviation.text] if one.deviation else []
    return {
        "topic": f"{report.partition}.{report.topic}",
        "state": ("left" if delivery.is_gone else delivery.state) if delivery else "served",
        "since": delivery.started_ns if delivery else 0,
        "node": one.node.snapshot.name,
        "samples": delivery.samples if delivery else None,
        "took": alignment.took(delivery.started_ns, delivery.finished_ns) if delivery else "",
        "participant": report.participant,
        "application": view.model.applications.place(report.participant) or report.participant,
        "why": "; ".join(filter(None, reasons)),
    }


def readers(view: View, width: int, topic: str = "", *, is_noteworthy: bool = False) -> Rows[Reader]:
    """Return late joiners and readers that see other samples than the set has, with the reason.

    Args:
        view: what they are taken from.
        width: cells of the table.
        topic: only this one; empty for all.
        is_noteworthy: leave out those that have been served and see what the set has.
    """
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("topic", "reader of", 12, grow=3, most=40, cut=cut),
        Column("state", "state", 7),
        Column("since", "since", 6, right=True),
        Column("node", "served by", 9, grow=1, most=24, cut=cut),
        Column("samples", "samples", 7, right=True, spare=1),
        Column("took", "took", 6, right=True, spare=2),
        Column("application", "application", 11, grow=1, most=36, spare=3, cut=cut),
        Column("why", "why", 24, grow=6),
    )

    def render(one: Reader, key: str) -> Cell:
        state = one.delivery.state if one.delivery else "done"
        if key == "mark":
            return (alignment.delivery_mark(view, "differs" if one.deviation and state == "done" else state),)
        tone = Tone.PLAIN if key in ("topic", "samples") else Tone.DIM
        if key == "why":
            tone = Tone.FAULT if state == "failed" else Tone.WARN
        return single(shown(view, key, facts(one)[key]), tone)

    def facts(one: Reader) -> Facts:
        return _reader_facts(view, one)

    every = _readers(view)
    kept = []
    for number, one in enumerate(every):
        report = one.report
        is_quiet = one.deviation is None and (one.delivery is None or one.delivery.state == "done")
        if topic not in ("", report.topic) or (is_noteworthy and is_quiet):
            continue
        known = facts(one)
        values = {
            "node": str(known["node"]),
            "topic": report.topic,
            "partition": report.partition,
            "state": str(known["state"]),
        }
        if view.filter.matches(values):
            kept.append(
                (f"{one.node.id}/{report.participant}/{report.partition}/{report.topic}/{number}", one)
            )
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


Writer = tuple[UnkeptView, tuple[str, ...]]
"""A durable writer whose data is not kept, and the names of the nodes that say so."""


def _unkept(view: View) -> dict[tuple[str, str, str], Writer]:
    """Return the durable writers whose data no node keeps, or not every node, by GUID, topic, partition."""
    present = [node for node in view.model.ordered_nodes() if not view.health.is_away(node)]
    snapshots = [node.snapshot for node in present]
    found: dict[tuple[str, str, str], Writer] = {}
    for node in present:
        for one in node.snapshot.unkept:
            if is_nowhere(one, snapshots):
                key = one.writer, one.topic, one.partition
                told = found[key][1] if key in found else ()
                found[key] = one, (*told, node.snapshot.name)
    return found


def writers(view: View, width: int, topic: str = "") -> Rows[Writer]:
    """Return the durable writers whose data no node keeps, or not every node, with the reason.

    Args:
        view: what they are taken from.
        width: cells of the table.
        topic: only this one; empty for all.
    """
    every = _unkept(view)
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("topic", "writer of", 12, grow=3, most=40, cut=cut),
        Column("nodes", "not kept by", 11, grow=1, most=30, cut=cut),
        Column("application", "application", 11, grow=1, most=36, spare=1, cut=cut),
        Column("why", "why", 28, grow=6),
    )

    def facts(one: Writer) -> Facts:
        unkept, nodes = one
        return {
            "topic": f"{unkept.partition}.{unkept.topic}",
            "nodes": nodes,
            "code": unkept.why,
            "why": unkept.text,
            "writer": unkept.writer,
            "application": view.model.applications.place(unkept.writer) or unkept.writer,
        }

    def render(one: Writer, key: str) -> Cell:
        if key == "mark":
            return single(view.glyphs.warn, Tone.WARN)
        tone = {"topic": Tone.PLAIN, "why": Tone.WARN}.get(key, Tone.DIM)
        return single(shown(view, key, facts(one)[key]), tone)

    kept = [
        ("/".join(key), one)
        for key, one in every.items()
        if topic in ("", key[1])
        and view.filter.matches(
            {"node": " ".join(one[1]), "topic": key[1], "partition": key[2], "state": "not kept"}
        )
    ]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


NOT_KEPT: Final = "not kept"
MOST_WHY: Final = 3
"""Lines of one reason, which may be of anybody."""
LACKING: Final = ("failed", NOT_KEPT, "differs", "waiting")
"""States in which a reader or writer does not get what it asks for, the worst first."""
_SERVED: Final = {"done": "served", "running": "being served"}
"""States of a delivery in other words."""


_ORDER: Final = (*LACKING, "being served", "served", "left")
"""The states of one reader at several nodes: the first of these counts."""


class Use(NamedTuple):
    """A reader or writer of an application, and what the nodes make of it."""

    key: str
    application: Application
    is_writer: bool
    topic: str
    partition: str
    durability: str
    """Empty if it is known from a node only."""
    state: str
    """"kept", "not kept", "outside" (of what nodes keep) or "not durable"; "served", "differs", "waiting",
    "being served", "failed" or "live only"; empty if no node says anything of it."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes that keep it, or serve it."""
    samples: int | None = None
    since: int = 0
    """When its delivery began; 0 for none."""
    why: str = ""

    @property
    def is_lacking(self) -> bool:
        """Whether it does not get what it asks for."""
        return self.state in LACKING

    @property
    def rank(self) -> int:
        """Its place in the order of trouble, the worst first."""
        return LACKING.index(self.state) if self.is_lacking else len(LACKING)


class _Reports:
    """What present nodes report of readers and writers, and which groups they have."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.unkept = _unkept(view)
        self.reasons = {key[0]: one for key, one in self.unkept.items()}
        self.seen: set[str] = set()
        self.present = {
            node.id: node.snapshot.name
            for node in view.model.ordered_nodes()
            if not view.health.is_away(node)
        }
        self.readers: dict[tuple[str, str], list[Reader]] = {}
        self.every: dict[int, tuple[Reader, list[str]]] = {}
        for one in _readers(view):
            participants = one.report.participant.split(",")
            if not (one.delivery and one.delivery.is_gone):
                self.every[id(one)] = one, participants
                for participant in participants:
                    self.readers.setdefault((participant, one.report.topic), []).append(one)
        self.holders: dict[GroupKey, dict[str, GroupView]] = {}
        self.groups: dict[str, list[GroupKey]] = {}
        for key in view.model.groups:
            self.groups.setdefault(key.topic, []).append(key)

    def writer(self, one: ApplicationEndpoint) -> Use:
        """Return what becomes of what an application writes."""
        self.seen.add(one.guid)
        use = Use(one.guid, one.application, True, one.topic, one.partition, one.durability.name, "")
        if not one.is_durable:
            return use._replace(state="not durable")
        told = self.reasons.get(one.guid)
        if told is not None:
            return use._replace(state=NOT_KEPT, nodes=told[1], why=told[0].text)
        keys = [key for key in self.groups.get(one.topic, ()) if one.is_in(key.partition)]
        for key in keys:
            if key not in self.holders:
                self.holders[key] = self.view.model.groups.views(key)
        ids = {node for key in keys for node in self.holders[key]}
        nodes = tuple(name for node, name in self.present.items() if node in ids)
        if nodes or not self.present:
            return use._replace(state="kept" if nodes else "", nodes=nodes)
        return use._replace(state="outside", why=f"no node has a group of {one.partition}.{one.topic}")

    def reader(self, one: ApplicationEndpoint) -> Use:
        """Return what an application is given."""
        use = Use(one.guid, one.application, False, one.topic, one.partition, one.durability.name, "")
        told = [
            each
            for each in self.readers.get((one.participant, one.topic), ())
            if each.report.partition == one.partition or any(map(one.is_in, each.report.partition.split(",")))
        ]
        for each in told:
            self.every.pop(id(each), None)
        if not one.is_durable:
            return use._replace(state="live only")
        return self._served(use, told) if told else use

    def unknown(self, topic: str, application: Callable[[Sequence[str]], Application]) -> Iterator[Use]:
        """Yield the readers and writers that discovery does not show, or no more."""
        for (writer, name, partition), (unkept, nodes) in self.unkept.items():
            if topic in ("", name) and writer not in self.seen:
                owner = application([writer[:PREFIX] + PARTICIPANT])
                yield Use(writer, owner, True, name, partition, "", NOT_KEPT, nodes, why=unkept.text)
        for one, participants in self.every.values():
            report = one.report
            if topic in ("", report.topic):
                key = f"{report.participant}/{report.partition}/{report.topic}/{one.node.id}"
                owner = application(participants)
                yield self._served(Use(key, owner, False, report.topic, report.partition, "", ""), [one])

    def _served(self, use: Use, told: Sequence[Reader]) -> Use:
        """Return a reader with what nodes report of it: the worst state, and all reasons."""
        facts = [_reader_facts(self.view, one) for one in told]
        states = [_SERVED.get(str(each["state"]), str(each["state"])) for each in facts]
        states += ["differs" for one in told if one.deviation is not None]
        return use._replace(
            state=min(states, key=lambda state: _ORDER.index(state) if state in _ORDER else len(_ORDER)),
            nodes=tuple(dict.fromkeys(one.node.snapshot.name for one in told)),
            samples=sum(one.delivery.samples for one in told if one.delivery),
            since=max(one.delivery.started_ns if one.delivery else 0 for one in told),
            why="; ".join(dict.fromkeys(str(each["why"]) for each in facts if each["why"])),
        )


def uses(view: View, topic: str = "", application: str = "") -> list[Use]:
    """Return the readers and writers of applications: those that lack something first.

    Args:
        view: what they are taken from.
        topic: only those of this topic; empty for all.
        application: only those of the process with this key; empty for all.
    """
    known, reports = view.model.applications, _Reports(view)
    endpoints = known.by_topic.get(topic, ()) if topic else itertools.chain(*known.by_topic.values())
    found = [reports.writer(one) if one.is_writer else reports.reader(one) for one in endpoints]
    found += reports.unknown(topic, known.application)
    found = [
        one for one in found if application in ("", one.application.key) and not one.application.is_watch
    ]
    return sorted(
        found,
        key=lambda one: (
            one.rank, natural(one.topic), not one.is_writer, natural(one.application.host),
            natural(one.application.title), one.key,
        ),
    )  # fmt: skip


USE_FIELDS: Final = ("app", "host", "topic", "partition", "node", "state")


def use_rows(view: View, every: Sequence[Use], width: int, *, has_topic: bool = False) -> Rows[Use]:
    """Return readers and writers as a table, by application or, with `has_topic`, by topic."""
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("kind", "", 6),
        *(
            [Column("topic", "topic", 12, grow=3, most=40, cut=cut)]
            if has_topic
            else [
                Column("application", "application", 14, grow=2, most=40, cut=cut),
                Column("host", "host", 6, grow=1, most=24, spare=1, cut=cut),
            ]
        ),
        Column("state", "state", 12),
        Column("nodes", "by", 8, grow=1, most=24, cut=cut),
        Column("samples", "samples", 7, right=True, spare=2),
        Column("since", "since", 6, right=True, spare=3),
        Column("why", "why", 10, grow=6),
        Column("durability", "durability", 10, grow=1, most=15, spare=4),
    )

    def facts(one: Use) -> Facts:
        return {
            "kind": "writer" if one.is_writer else "reader",
            "topic": f"{one.partition}.{one.topic}",
            "application": one.application.title,
            "host": one.application.host,
            "state": one.state,
            "nodes": list(one.nodes),
            "samples": one.samples,
            "since": one.since,
            "durability": one.durability,
            "why": one.why,
        }

    def render(one: Use, key: str) -> Cell:
        if key == "mark":
            return (use_mark(view, one),)
        tone = Tone.PLAIN if key in ("topic", "application", "samples") else Tone.DIM
        if one.is_lacking and key in ("state", "why"):
            tone = Tone.FAULT if one.state == "failed" else Tone.WARN
        return single(shown(view, key, facts(one)[key]), tone)

    kept = [
        (one.key, one)
        for one in every
        if view.filter.matches(
            {
                "app": one.application.title,
                "host": one.application.host,
                "topic": one.topic,
                "partition": one.partition,
                "node": " ".join(one.nodes),
                "state": one.state,
            }
        )
    ]
    hidden = len(every) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden, facts=facts)


def use_mark(view: View, one: Use) -> Span:
    """Return the sign for how a reader or writer fares."""
    glyphs = view.glyphs
    if one.state == "failed":
        return Span(glyphs.fault, Tone.FAULT)
    if one.is_lacking or one.state == "outside":
        return Span(glyphs.idle) if one.state in ("waiting", "outside") else Span(glyphs.warn, Tone.WARN)
    return {
        "kept": Span(glyphs.ok, Tone.DIM),
        "served": Span(glyphs.ok, Tone.DIM),
        "being served": Span(glyphs.busy, Tone.ACCENT),
    }.get(one.state, Span(glyphs.nothing, Tone.DIM))


def application_names(one: Application) -> tuple[str, ...]:
    """Return the words that name an application: host and process, its title, its name, its host."""
    return tuple(filter(None, dict.fromkeys((one.key, one.title, one.name, one.host))))


def use_title(every: Sequence[Use]) -> str:
    """Return how many readers and writers there are, and how many lack something."""
    writing = sum(one.is_writer for one in every)
    lacking = sum(one.is_lacking for one in every)
    said = f"{plural(writing, 'writer')}, {plural(len(every) - writing, 'reader')}"
    return f"{said}, {lacking} not kept or served" if lacking else said


class ApplicationUses(NamedTuple):
    """A process with its readers and writers."""

    application: Application
    uses: tuple[Use, ...]

    def count(self, *states: str) -> int:
        """Return how many are in one of these states."""
        return sum(one.state in states for one in self.uses)


def by_application(view: View) -> list[ApplicationUses]:
    """Return the processes with readers and writers: those that lack something first."""
    found: dict[str, list[Use]] = {}
    for one in uses(view):
        found.setdefault(one.application.key, []).append(one)
    every = [ApplicationUses(each[0].application, tuple(each)) for each in found.values()]
    return sorted(
        every,
        key=lambda one: (
            one.uses[0].rank, natural(one.application.host), natural(one.application.title)
        ),
    )  # fmt: skip


APPLICATION_FIELDS: Final = ("app", "host", "topic", "state")


def applications(
    view: View, width: int, only: Sequence[ApplicationUses] | None = None
) -> Rows[ApplicationUses]:
    """Return the processes of applications, or only some: what they write and read, and what they lack."""
    every = by_application(view) if only is None else only
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("application", "application", 14, grow=2, most=40, cut=cut),
        Column("host", "host", 8, grow=1, most=24, cut=cut),
        Column("writers", "writers", 7, right=True),
        Column("kept", "kept", 4, right=True),
        Column("readers", "readers", 7, right=True),
        Column("served", "served", 6, right=True),
        Column("lacking", "lacking", 7, right=True),
        Column("topics", "topics", 10, grow=3, most=60, spare=1, cut=cut),
        Column("why", "why", 16, grow=6),
    )

    def facts(one: ApplicationUses) -> Facts:
        writing = sum(each.is_writer for each in one.uses)
        reasons = [f"{each.topic}: {each.why or each.state}" for each in one.uses if each.is_lacking]
        return {
            "application": one.application.title,
            "host": one.application.host,
            "pid": one.application.pid,
            "writers": writing,
            "kept": one.count("kept"),
            "readers": len(one.uses) - writing,
            "served": one.count("served"),
            "lacking": one.count(*LACKING),
            "topics": list(dict.fromkeys(each.topic for each in one.uses)),
            "why": "; ".join(reasons),
        }

    def render(one: ApplicationUses, key: str) -> Cell:
        if key == "mark":
            return (use_mark(view, one.uses[0]),)
        value = facts(one)[key]
        if key == "lacking" and not value:
            return ()
        tone = {"application": Tone.PLAIN, "lacking": Tone.WARN, "why": Tone.WARN}.get(key, Tone.DIM)
        return single(shown(view, key, value), tone)

    kept = [
        (one.application.key, one)
        for one in every
        if view.filter.matches(
            {
                "app": one.application.title,
                "host": one.application.host,
                "topic": " ".join(each.topic for each in one.uses),
                "state": " ".join(each.state for each in one.uses),
            }
        )
    ]
    hidden = len(every) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden, facts=facts)


def lacking_lines(every: Sequence[Use], width: int) -> list[Line]:
    """Return why readers and writers lack something, each in as many lines as it needs."""
    lines: list[Line] = []
    for one in every:
        if one.why or one.is_lacking:
            kind = "writer" if one.is_writer else "reader"
            told = f"{kind} of {one.partition}.{one.topic} {one.state}: {one.why}"
            tone = Tone.WARN if one.is_lacking else Tone.DIM
            lines += [(Span(f" {part}", tone),) for part in text.wrap(told, max(10, width - 2), MOST_WHY)]
    return lines


def unknown_lines(view: View) -> list[Line]:
    """Return the line that says why readers and writers may be missing; none where discovery shows all."""
    if view.model.applications.is_known:
        return []
    told = " recorded or simulated: only readers and writers that a node reports are known"
    return [(Span(told, Tone.DIM),)]
