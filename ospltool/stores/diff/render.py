"""A comparison as text, JSON lines, Parquet, and one HTML file.

The file needs nothing else: no network, light and dark, printable, filterable.
"""

from __future__ import annotations

import collections
import html
import json
import pathlib
import string
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Final

from ospltool.output import envelope
from ospltool.output.text import plural, table, visible
from ospltool.stores.diff.report import GroupReport, InstanceReport, ReportData, Verdict
from ospltool.stores.model import shown

# Half a line of 80.
BAR_WIDTH: Final = 40


def text(report: ReportData, *, instances: bool, stat: bool) -> Iterator[str]:
    """Yield lines for people.

    Args:
        report: result of the comparison.
        instances: whether instances were compared, not only counts.
        stat: show a line of numbers for each group.
    """
    for side in report.sides:
        sets = ", ".join(side.sets) or "no set"
        what = f"{side.format}, set {sets}"
        yield f"{side.label}  {visible(side.path)} ({visible(what)}): {plural(side.samples, 'sample')}"
        yield from (f"   {visible(finding)}" for finding in side.findings)
        if side.damaged:
            yield f"   {plural(side.damaged, 'record')} cannot be read:"
            yield from (f"     {visible(damage)}" for damage in side.damage)
    yield ""
    yield from _name_spaces(report)
    yield ""
    header, rows = _group_table(report)
    yield from bars(report) if stat else table([name.upper() for name in header], rows).splitlines()
    if instances and report.instances:
        yield ""
        for instance in report.instances:
            yield from _instance(report, instance)
        if report.left_out:
            yield f"... and {report.left_out} more instances; --limit {report.differing} shows them"
    yield ""
    yield _summary(report)


def _summary(report: ReportData) -> str:
    if not report.differing:
        names = [group for group in report.groups if None in group.samples and any(group.samples)]
        if names:
            return f"{plural(len(names), 'group is', 'groups are')} not in every store"
        damaged = sum(side.damaged for side in report.sides)
        if not damaged and not any(side.samples for side in report.sides):
            return "the same: all of them are empty, so nothing was compared"
        return "the same" + (f", but {plural(damaged, 'record')} cannot be read" if damaged else "")
    causes = ", ".join(f"{count} {cause}" for cause, count in report.causes.items())
    odd = f"; the odd one out is {report.odd}" if report.odd else ""
    return f"{plural(report.differing, 'instance differs', 'instances differ')} ({causes}){odd}"


def _group_table(report: ReportData) -> tuple[list[str], list[list[object]]]:
    """Return the header and the rows of the table of groups."""
    labels = [side.label for side in report.sides]
    has_damage = any(any(group.damaged) for group in report.groups)
    header = ["Name-space", "Group", "Verdict", *labels, "Equal", "Differing"]
    header += [f"Only {label}" for label in labels]
    header += [f"Damaged {label}" for label in labels if has_damage]
    rows = []
    for group in report.groups:
        row: list[object] = [group.name_space or "?", f"{group.partition}.{group.topic}", group.verdict]
        row += ["-" if count is None else count for count in group.samples]
        row += [group.equal, group.differing, *group.only, *(group.damaged if has_damage else ())]
        causes = ", ".join(f"{cause} {count}" for cause, count in group.causes.items())
        rows.append([*row, group.odd, causes])
    return [*header, "Odd", "Causes"], rows


def _name_spaces(report: ReportData) -> Iterator[str]:
    """Yield a line for each name-space with the results of its groups and instances."""
    by_name: dict[str, list[GroupReport]] = {}
    for group in report.groups:
        by_name.setdefault(group.name_space, []).append(group)
    for name, groups in by_name.items():
        verdicts = collections.Counter(group.verdict.value for group in groups)
        counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        equal, differing = sum(group.equal for group in groups), sum(group.differing for group in groups)
        yield (
            f"name-space {visible(name) or '(not known)'}: groups: {counted};"
            f" instances: {equal} equal, {differing} differ"
        )


def bars(report: ReportData) -> Iterator[str]:
    """Yield a bar for each group that differs: a label for instances of only one store, else `~`."""
    differing = [group for group in report.groups if group.differing]
    largest = max((group.differing for group in differing), default=0)
    rows = [
        (f"{group.partition}.{group.topic}", str(group.differing), _bar(group, largest, report))
        for group in differing
    ]
    equal = len(report.groups) - len(differing)
    if rows:
        yield from table(("GROUP", "INSTANCES", "ONLY IN ONE: ITS LABEL, ELSE ~"), rows).splitlines()
    yield f"{plural(len(differing), 'group differs', 'groups differ')}, {equal} do not"


def _bar(group: GroupReport, largest: int, report: ReportData) -> str:
    width = max(1, round(BAR_WIDTH * group.differing / largest))
    parts = [(side.label, count) for side, count in zip(report.sides, group.only, strict=True)]
    parts.append(("~", group.differing - sum(group.only)))
    bar = "".join(mark * round(width * count / group.differing) for mark, count in parts if count)
    return bar[:width].ljust(1, "~")


def _instance(report: ReportData, instance: InstanceReport) -> Iterator[str]:
    key = f"key {instance.key or '(none)'}"
    if instance.key_fields:
        key += " " + visible(json.dumps(instance.key_fields, ensure_ascii=False))
    counts = " ".join(f"{side.label}:{n}" for side, n in zip(report.sides, instance.counts, strict=True))
    yield f"{visible(instance.partition)}.{visible(instance.topic)}  {key}  {counts}"
    odd = f" (odd: {instance.odd})" if instance.odd else ""
    yield f"    {instance.cause}{odd}: {visible(instance.evidence)}"
    for sample in instance.samples:
        yield (
            f"    only in {sample.stores}: {sample.status} of {shown(sample.time_ns)}"
            f" by {sample.writer} #{sample.sequence} {sample.digest[:12]}"
        )
        if sample.fields is not None:
            yield f"        {visible(json.dumps(sample.fields, ensure_ascii=False))}"
        if sample.problem:
            yield f"        not decoded: {visible(sample.problem)}"
    for field in instance.fields:
        values = "  ".join(
            f"{side.label}: {visible(json.dumps(value, ensure_ascii=False))}"
            for side, value in zip(report.sides, field.values, strict=True)
        )
        yield f"    field {visible(field.path)}  {values}"


def lines(report: ReportData) -> Iterator[str]:
    """Yield JSON lines: the summary, then groups, then instances."""
    summary = {
        "verdict": report.verdict,
        "sides": report.sides,
        "differing": report.differing,
        "causes": report.causes,
        "odd": report.odd,
        "left_out": report.left_out,
    }
    yield envelope.line("store-diff-summary", summary)
    for group in report.groups:
        yield envelope.line("store-diff-group", group)
    for instance in report.instances:
        yield envelope.line("store-diff-instance", instance)


def document(report: ReportData) -> str:
    """Render the report as one JSON document."""
    return envelope.document("store-diff", {"left_out": report.left_out, **_fields(report)})


def _fields(report: ReportData) -> dict[str, object]:
    names = ("verdict", "sides", "groups", "instances", "differing", "causes", "odd")
    return {name: getattr(report, name) for name in names}


def parquet(report: ReportData, target: IO[bytes]) -> None:
    """Write the samples that are not in every store as one table."""
    import pyarrow as pa  # only here
    import pyarrow.parquet as pq

    rows = [
        {
            "partition": instance.partition,
            "topic": instance.topic,
            "key": instance.key,
            "cause": instance.cause,
            "evidence": instance.evidence,
            "odd": instance.odd,
            "stores": sample.stores,
            "source_time_ns": sample.time_ns,
            "writer": sample.writer,
            "sequence": sample.sequence,
            "status": sample.status,
            "digest": sample.digest,
            "fields": None if sample.fields is None else json.dumps(sample.fields),
        }
        for instance in report.instances
        for sample in instance.samples
    ]
    text_columns = ("partition", "topic", "key", "cause", "evidence", "odd", "stores")
    schema = pa.schema(
        [
            *((name, pa.string()) for name in text_columns),
            ("source_time_ns", pa.int64()),
            *((name, pa.string()) for name in ("writer", "sequence", "status", "digest", "fields")),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), target, compression="zstd")


def page(report: ReportData) -> str:
    """Return the page."""
    template = string.Template(pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        verdict=_verdict(report),
        sides=_sides(report),
        groups=_page_groups(report),
        instances=_instances(report),
    )


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _verdict(report: ReportData) -> str:
    if not report.differing:
        return f"Stores: {_text(report.verdict.value)}"
    odd = f"; the odd one out is {report.odd}" if report.odd else ""
    return f"{plural(report.differing, 'instance differs', 'instances differ')}{_text(odd)}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], identity: str = "") -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    name = f' id="{identity}"' if identity else ""
    return f"<table{name}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(value: object, kind: str = "") -> str:
    return f'<td class="{kind}">{_text(value)}</td>' if kind else f"<td>{_text(value)}</td>"


def _sides(report: ReportData) -> str:
    rows = []
    for side in report.sides:
        remarks = [*side.findings, *side.damage]
        rows.append(
            [
                _cell(side.label),
                f"<td><code>{_text(side.path)}</code></td>",
                _cell(side.format),
                _cell(", ".join(side.sets)),
                _cell(side.samples, "n"),
                _cell(side.damaged, "n"),
                f"<td>{'<br>'.join(map(_text, remarks))}</td>",
            ]
        )
    return _table(("Store", "Path", "Format", "Sets", "Samples", "Damaged", "Remarks"), rows)


def _page_groups(report: ReportData) -> str:
    header, rows = _group_table(report)
    cells = [[_cell(value, _kind(value)) for value in row] for row in rows]
    for row, group in zip(cells, report.groups, strict=True):
        row.insert(2, _cell(group.type_name))
    return _table([*header[:2], "Type", *header[2:]], cells)


def _kind(value: object) -> str:
    return value.value if isinstance(value, Verdict) else "n" if isinstance(value, int) else ""


def _instances(report: ReportData) -> str:
    if not report.instances:
        return "<p>None.</p>"
    labels = "/".join(side.label for side in report.sides)
    rows = [_page_instance(report, instance) for instance in report.instances]
    left_out = f"<p>{report.left_out} more are not listed.</p>" if report.left_out else ""
    header = ("Group", "Key", f"Samples {labels}", "Cause", "Evidence", "Not in every store")
    return _table(header, rows, "instances") + left_out


def _page_instance(report: ReportData, instance: InstanceReport) -> list[str]:
    key = instance.key if instance.key_fields is None else json.dumps(instance.key_fields, ensure_ascii=False)
    odd = f" (odd: {instance.odd})" if instance.odd else ""
    detail = []
    for sample in instance.samples:
        detail.append(f"{sample.stores}: {sample.status} {shown(sample.time_ns)} {sample.digest[:12]}")
        if sample.fields is not None:
            detail.append(json.dumps(sample.fields, ensure_ascii=False))
    for field in instance.fields:
        values = zip(report.sides, field.values, strict=True)
        detail.append(
            f"{field.path}: " + ", ".join(f"{side.label} {json.dumps(value)}" for side, value in values)
        )
    return [
        _cell(f"{instance.partition}.{instance.topic}"),
        f"<td><code>{_text(key)}</code></td>",
        _cell("/".join(map(str, instance.counts)), "n"),
        _cell(f"{instance.cause}{odd}"),
        _cell(instance.evidence),
        f"<td><pre>{chr(10).join(map(_text, detail))}</pre></td>",
    ]
