"""Findings as one JSON document, or as an object for each finding and line, for tools that read streams."""

from __future__ import annotations

from typing import Any

from ospltool.diagnostics.model import Finding, Place, Report, Severity, Target, fingerprints
from ospltool.output import envelope


def document(report: Report, *, colour: bool = False) -> str:
    """Render the whole report: `{"format_version": 1, "kind": "diagnostics", "data": {...}}`."""
    prints = fingerprints(report.diagnostics)
    data = {
        "valid": not report.count(Severity.ERROR),
        "summary": {
            "errors": report.count(Severity.ERROR),
            "warnings": report.count(Severity.WARNING),
            "infos": report.count(Severity.INFO),
            "files": len(report.files),
            "suppressed": report.suppressed,
            "not_shown": report.not_selected,
            "skipped_files": list(report.skipped),
        },
        "refused_by": {target.value: list(report.blocked_files(target)) for target in Target},
        "files": list(report.files),
        "diagnostics": [
            plain(each, fingerprint) for each, fingerprint in zip(report.diagnostics, prints, strict=True)
        ],
    }
    return envelope.document("diagnostics", data)


def plain(each: Finding, fingerprint: str) -> dict[str, Any]:
    """Convert a finding to JSON values. Lines and columns count from 1 and in characters, bytes from 0."""
    return {
        "code": each.code,
        "name": each.name,
        "severity": each.severity.label,
        "message": each.message,
        "nodes": list(each.nodes),
        "subject": each.subject,
        **plain_place(each.place),
        "related": [{**plain_place(place), "label": place.label} for place in each.related],
        "help": each.advice,
        "refused_by": sorted(each.blocks),
        "targets": sorted(each.targets),
        "fingerprint": fingerprint,
        "fix": _fix(each),
    }


def plain_place(place: Place) -> dict[str, Any]:
    """Convert a place to JSON values; without bytes if the file could not be read."""
    start: dict[str, int] = {"line": place.line, "column": place.column}
    end: dict[str, int] = {"line": place.end_line, "column": place.end_column}
    if place.span:
        start["byte"], end["byte"] = place.span
    return {"file": place.path, "range": {"start": start, "end": end}}


def _fix(each: Finding) -> dict[str, Any] | None:
    if each.fix is None:
        return None
    return {
        "title": each.fix.title,
        "applicability": "safe" if each.fix.is_safe else "unsafe",
        "edits": [
            {
                "file": edit.path,
                "byte_start": edit.span.start,
                "byte_end": edit.span.end,
                "replacement": edit.replacement.decode("utf-8", "replace"),
            }
            for edit in each.fix.edits
        ],
    }


def lines(report: Report, *, colour: bool = False) -> str:
    """Render all findings in order."""
    prints = fingerprints(report.diagnostics)
    return "".join(
        envelope.line("diagnostic", plain(each, fingerprint))
        for each, fingerprint in zip(report.diagnostics, prints, strict=True)
    )
