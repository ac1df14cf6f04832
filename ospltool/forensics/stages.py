"""The stages after the records: facts, verdicts and stories of a domain, as tables of a case.

They are written where the domain is judged, on this machine or on an executor, each day into a file of its
own. Their names tell their contents, so an attempt that is repeated writes nothing else.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ospltool.analytics.case import under_day, write_rows
from ospltool.analytics.contract import DAY_NS, Table, day_of, schema
from ospltool.forensics.investigation import Investigation
from ospltool.forensics.text import finding_value
from ospltool.trace.meaning.fact_kinds import Run
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.headers import clock_of
from ospltool.trace.reading.record import TimeBase, valid_text
from ospltool.trace.rules import TraceFinding
from ospltool.trace.rules.set_changes import sizes

Row = dict[str, Any]
Places = dict[str, list[str]]
"""Files of a case, by table."""

JUDGED: Final = (Table.FACTS, Table.VERDICTS, Table.STORIES)


def write_stages(directory: pathlib.Path, domain: str, judged: str, drawn: Investigation) -> Places:
    """Write facts, verdicts and stories of a domain into a case; return the files.

    Args:
        directory: directory of the case.
        domain: the domain.
        judged: identifies what it was judged by.
        drawn: what was concluded, with its facts.
    """
    rows = {
        Table.FACTS: fact_rows(drawn.facts),
        Table.VERDICTS: ({**row, "judged": judged} for row in verdict_rows(drawn)),
        Table.STORIES: story_rows(drawn),
    }
    return {table.value: list(_written(directory, table, domain, some)) for table, some in rows.items()}


def _written(directory: pathlib.Path, table: Table, domain: str, rows: Iterator[Row]) -> Iterator[str]:
    import pyarrow as pa  # comes with the extra `sql`

    by_day: dict[str, list[Row]] = {}
    for row in rows:
        time = row["start_ns"]
        is_dated = clock_of(time) is TimeBase.ABSOLUTE
        by_day.setdefault(day_of(time // DAY_NS if is_dated else -1), []).append(row)
    for day, some in sorted(by_day.items()):
        some.sort(key=lambda row: row["start_ns"] or 0)
        # One vocabulary of columns: a row names those that it has.
        part = pa.Table.from_pylist(some, schema=schema(table))
        yield write_rows(directory, under_day(table, domain, day), part)


def fact_rows(facts: TraceFacts) -> Iterator[Row]:
    """Yield the facts of a domain as rows of `Table.FACTS`."""
    name = facts.names.node
    for run, start in facts.first_ns.items():
        what = "stopped in order" if run in facts.stopping else "ended"
        yield {**_fact("run", run, None, facts.last_ns[run], what=what), "start_ns": start}
    for span in facts.states:
        yield _fact("state", span.run, span.place, span.end_ns, what=span.state)
    for choice in facts.choices:
        yield _fact(
            "mastership",
            choice.run,
            choice.place,
            set_name=choice.namespace,
            fellow=name(choice.master),
            what="itself" if choice.master == choice.chooser else "fellow",
        )
    for conflict in facts.conflicts:
        yield _fact(
            "conflict",
            conflict.run,
            conflict.created,
            conflict.ended.time_ns if conflict.ended else None,
            set_name=conflict.namespace or None,
            fellow=name(conflict.fellow) if conflict.fellow else None,
            what=conflict.how or "open",
        )
    for merge in facts.merges:
        yield _fact("merge", merge.run, merge.place, set_name=merge.namespace, what="began")
    for run, policy, group, line in facts.applied:
        yield _fact("merge", run, facts.lines.place(line), set_name=group, what=policy)
    for run, event, address, place in facts.losses:
        yield _fact("loss", run, place, fellow=name(address) if address else None, what=event)
    for size in sizes(facts):
        yield {
            "kind": "size",
            "start_ns": size.time_ns,
            "node": size.node,
            "set_name": valid_text(size.group),
            "what": size.how.value,
            "samples": size.samples,
        }
    for one in facts.book.all():
        steps = one.steps
        places = [place for _, place in steps]
        times = [place.time_ns for place in places if place.time_ns is not None]
        yield {
            **_place(places[0] if places else None),
            "kind": "alignment",
            "start_ns": min(times, default=None),
            "end_ns": max(times, default=None),
            "node": name(one.alignee),
            "set_name": valid_text(one.group),
            "fellow": name(one.aligner),
            "what": one.end.value,
            "samples": one.samples if one.samples is not None else one.samples_sent,
        }
    for run, reader, began, over in facts.readers:
        end_ns = over.time_ns if over else None
        yield _fact("delivery", run, began, end_ns, what="ended" if over else "open", fellow=reader)


def _fact(
    kind: str, run: Run, place: RecordPlace | None, end_ns: int | None = None, **more: str | None
) -> Row:
    texts = {key: None if value is None else valid_text(value) for key, value in more.items()}
    times = {"start_ns": None if place is None else place.time_ns, "end_ns": end_ns}
    return {**_place(place), "kind": kind, **times, "node": run[0], "run": run[1], **texts}


def _place(place: RecordPlace | None) -> Row:
    return {} if place is None else {"file": valid_text(place.file), "off": place.offset}


def verdict_rows(drawn: Investigation) -> Iterator[Row]:
    """Yield what was concluded of a domain as rows of `Table.VERDICTS`; the first is the headline."""
    story_of = {
        id(one): number
        for number, story in enumerate(drawn.stories, 1)
        for one in (*story.findings, *story.conclusions)
    }
    verdict = drawn.verdict
    headline = {"kind": "headline", "title": valid_text(verdict.headline), "is_bad": drawn.is_bad}
    # As of the last record, so that a domain without findings has a day, too.
    yield {**headline, "start_ns": max(drawn.facts.last_ns.values(), default=None)}
    for one in drawn.findings:
        yield {**_found("finding", one.rule, one), "story": story_of.get(id(one))}
    for one in verdict.conclusions:
        row = _found("conclusion", "" if one.fate is None else one.fate.value, one)
        yield {**row, "story": story_of.get(id(one))}
    for text in verdict.unknown:
        yield {"kind": "unknown", "start_ns": None, "title": valid_text(text), "is_bad": False}


def _found(kind: str, rule: str, one: TraceFinding) -> Row:
    value = finding_value(one)
    return {
        "kind": kind,
        "start_ns": one.start_ns,
        "end_ns": one.end_ns,
        "rule": rule,
        "code": one.code or None,
        "set_name": valid_text(one.group) or None,
        "nodes": _joined(one.nodes),
        "title": value["title"],
        "explanation": value["explanation"],
        "is_bad": not one.is_harmless,
        "lines": one.count,
        "evidence": json.dumps(value["evidence"]),
        "figures": json.dumps(value["facts"], default=str),
    }


def story_rows(drawn: Investigation) -> Iterator[Row]:
    """Yield the stories of a domain as rows of `Table.STORIES`."""
    for number, story in enumerate(drawn.stories, 1):
        yield {
            "number": number,
            "start_ns": story.start_ns,
            "end_ns": story.end_ns,
            "nodes": _joined(story.nodes),
            "title": valid_text(story.title),
            "findings": len(story.findings),
            "conclusions": len(story.conclusions),
        }


def _joined(nodes: Sequence[str]) -> str:
    return ", ".join(map(valid_text, nodes))
