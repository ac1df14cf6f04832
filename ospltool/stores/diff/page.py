"""A comparison as one HTML file without anything else: no network, light and dark, printable, filterable."""

from __future__ import annotations

import html
import json
import pathlib
import string
from collections.abc import Iterable, Sequence

from ospltool.output.text import visible
from ospltool.stores.diff.report import InstanceReport, ReportData
from ospltool.stores.wording import shown


def page(report: ReportData) -> str:
    """Return the page."""
    template = string.Template(pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        verdict=_verdict(report), sides=_sides(report), groups=_groups(report), instances=_instances(report)
    )


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _verdict(report: ReportData) -> str:
    if not report.differing:
        return f"Stores: {_text(report.verdict.value)}"
    odd = f"; the odd one out is {report.odd}" if report.odd else ""
    return f"{report.differing} instances differ{_text(odd)}"


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


def _groups(report: ReportData) -> str:
    labels = [side.label for side in report.sides]
    header = ["Name-space", "Group", "Type", "Verdict", *labels, "Equal", "Differing", "Odd", "Causes"]
    rows = []
    for group in report.groups:
        causes = ", ".join(f"{cause} {count}" for cause, count in group.causes.items())
        rows.append(
            [
                _cell(group.name_space or "?"),
                _cell(f"{group.partition}.{group.topic}"),
                _cell(group.type_name),
                _cell(group.verdict.value, group.verdict.value),
                *(_cell("-" if count is None else count, "n") for count in group.samples),
                _cell(group.equal, "n"),
                _cell(group.differing, "n"),
                _cell(group.odd),
                _cell(causes),
            ]
        )
    return _table(header, rows)


def _instances(report: ReportData) -> str:
    if not report.instances:
        return "<p>None.</p>"
    labels = "/".join(side.label for side in report.sides)
    rows = [_instance(report, instance) for instance in report.instances]
    left_out = f"<p>{report.left_out} more are not listed.</p>" if report.left_out else ""
    header = ("Group", "Key", f"Samples {labels}", "Cause", "Evidence", "Not in every store")
    return _table(header, rows, "instances") + left_out


def _instance(report: ReportData, instance: InstanceReport) -> list[str]:
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
