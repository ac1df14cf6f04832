"""Topics: what the nodes hold of them, who writes and reads them, and their newest values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len

from ospltool.live.groups import GroupKey
from ospltool.live.nodes import natural
from ospltool.live.topics import InstanceValue
from ospltool.views import text
from ospltool.views.applications import LACKING, Use, use_mark, uses
from ospltool.views.cells import Cell, Column, Facts, Line, Rows, Span, Tone, more_line, single, widest
from ospltool.views.groups import group_facts, group_lines
from ospltool.views.view import View, shown


class TopicUses(NamedTuple):
    """A topic with the groups of the nodes, and its readers and writers."""

    name: str
    groups: tuple[GroupKey, ...]
    uses: tuple[Use, ...]

    @property
    def lacking(self) -> tuple[Use, ...]:
        """The readers and writers that do not get what they ask for."""
        return tuple(one for one in self.uses if one.is_lacking)


def topic_names(view: View) -> list[str]:
    """Return the names of all topics, also of those that nodes only report, in natural order.

    It is quicker than `by_topic`.
    """
    names = {key.topic for key in view.model.groups} | view.model.applications.by_topic.keys()
    for node in view.model.nodes.values():
        told = node.snapshot
        names.update(one.topic for one in told.deliveries)
        names.update(one.topic for one in told.deviations)
        names.update(one.topic for one in told.unkept)
    return sorted(names, key=natural)


def by_topic(view: View) -> list[TopicUses]:
    """Return every topic of a group, a reader or a writer: those that lack something first."""
    found: dict[str, tuple[list[GroupKey], list[Use]]] = {}
    for key in view.model.groups.ordered():
        found.setdefault(key.topic, ([], []))[0].append(key)
    for one in uses(view):
        found.setdefault(one.topic, ([], []))[1].append(one)
    every = [TopicUses(name, tuple(keys), tuple(used)) for name, (keys, used) in found.items()]
    return sorted(
        every, key=lambda one: (one.uses[0].rank if one.lacking else len(LACKING), natural(one.name))
    )


TOPIC_FIELDS: Final = ("topic", "ns", "app", "state")


def topics(view: View, width: int, only: Sequence[TopicUses] | None = None) -> Rows[TopicUses]:
    """Return every topic, or only some: what the nodes hold of it, who writes and reads it."""
    every = by_topic(view) if only is None else only
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("topic", "topic", 12, grow=3, most=40, cut=cut),
        Column("space", "name-space", 10, grow=1, most=24, cut=cut),
        Column("nodes", "nodes", 5, right=True, spare=1),
        Column("instances", "instances", 9, right=True, spare=2),
        Column("samples", "samples", 8, right=True),
        Column("newest", "newest", 6, right=True, spare=3),
        Column("writers", "writers", 7, right=True),
        Column("readers", "readers", 7, right=True),
        Column("lacking", "lacking", 7, right=True),
        Column("why", "why", 16, grow=6),
    )

    def facts(one: TopicUses) -> Facts:
        told = [group_facts(view, key) for key in one.groups]
        writing = sum(each.is_writer for each in one.uses)
        return {
            "topic": one.name,
            "space": list(dict.fromkeys(key.name_space for key in one.groups)),
            "nodes": max((int(str(each["nodes"])) for each in told), default=0),
            **{name: sum(int(str(each[name])) for each in told) for name in ("instances", "samples")},
            "newest": max((int(str(each["newest"])) for each in told), default=0),
            "writers": writing,
            "readers": len(one.uses) - writing,
            "lacking": len(one.lacking),
            "why": "; ".join(dict.fromkeys(each.why or each.state for each in one.lacking)),
        }

    def render(one: TopicUses, key: str) -> Cell:
        if key == "mark":
            return (use_mark(view, one.lacking[0]),) if one.lacking else ()
        value = facts(one)[key]
        if key == "lacking" and not value:
            return ()
        tones = {"topic": Tone.PLAIN, "samples": Tone.PLAIN, "lacking": Tone.WARN, "why": Tone.WARN}
        return single(shown(view, key, value), tones.get(key, Tone.DIM))

    kept = [
        (one.name, one)
        for one in every
        if view.filter.matches(
            {
                "topic": one.name,
                "ns": " ".join(key.name_space for key in one.groups),
                "app": " ".join(each.application.title for each in one.uses),
                "state": " ".join(each.state for each in one.uses),
            }
        )
    ]
    hidden = len(every) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden, facts=facts)


def topic_lines(view: View, topic: str) -> list[Line]:
    """Return the groups of a topic on each node that has them, or that no node has one."""
    every = [key for key in view.model.groups.ordered() if key.topic == topic]
    lines = [line for key in every for line in group_lines(view, key)]
    return lines or [(Span(f" {topic}", Tone.STRONG), Span("  no node has a group of it", Tone.DIM))]


def samples_held(view: View, topic: str) -> int:
    """Return how many samples a late joiner of a topic is given, by the node that has most of each group."""
    every = view.model.groups
    return sum(
        max((one.samples for one in every.views(key).values()), default=0)
        for key in every
        if key.topic == topic
    )


VALUE_FIELDS: Final = ("key", "value", "partition")
# As long as a person needs to look there.
FRESH_NS: Final = 2_000_000_000
"""Time for which a value that has changed stands out."""


def value_rows(view: View, values: Sequence[InstanceValue], width: int) -> Rows[InstanceValue]:
    """Return the newest value of each instance; one that has just changed stands out."""
    cut = view.glyphs.ellipsis
    keys = widest((one.key for one in values), 8, 30)
    columns = (
        Column("mark", "", 1),
        Column("key", "instance", 8, grow=2, most=keys, cut=cut),
        Column("value", "value", 20, grow=6),
        Column("newest", "written", 7, right=True),
        Column("samples", "received", 8, right=True),
        Column("partition", "partition", 9, grow=1, most=24, spare=1, cut=cut),
    )

    def facts(one: InstanceValue) -> Facts:
        rest = {name: value for name, value in one.fields.items() if name not in one.keys}
        return {
            "key": one.key,
            "value": value_text(rest) if one.is_alive else "disposed",
            "newest": one.source_time_ns,
            "samples": one.samples,
            "partition": one.partition,
        }

    def render(one: InstanceValue, key: str) -> Cell:
        is_fresh = bool(one.changed_ns) and view.now_ns - one.changed_ns < FRESH_NS
        if key == "mark":
            return single(view.glyphs.mark, Tone.ACCENT) if is_fresh else ()
        tone = Tone.PLAIN if key in ("key", "value") and one.is_alive else Tone.DIM
        return single(shown(view, key, facts(one)[key]), Tone.ACCENT if key == "value" and is_fresh else tone)

    kept = [
        (f"{one.partition}/{one.key}", one)
        for one in values
        if view.filter.matches(
            {"key": one.key, "value": str(facts(one)["value"]), "partition": one.partition}
        )
    ]
    hidden = len(values) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden, facts=facts)


def value_text(fields: object) -> str:
    """Return fields in short: `name=value` side by side, whatever is in them as JSON."""
    if not isinstance(fields, dict):
        return json.dumps(fields, ensure_ascii=False, default=str)
    return "  ".join(
        f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in fields.items()
    )


def value_lines(one: InstanceValue, width: int, most: int) -> list[Line]:
    """Return a value in full, a line for each field, in at most `most` lines."""
    room = max(map(cell_len, one.fields), default=0)
    lines: list[Line] = []
    for name, value in one.fields.items():
        shown = text.wrap(value_text(value), max(10, width - room - 4), most)
        lines += [
            (Span(f" {name if not number else '':<{room}}  ", Tone.DIM), Span(part))
            for number, part in enumerate(shown)
        ]
    return lines if len(lines) <= most else [*lines[: most - 1], more_line(len(lines) - most + 1)]
