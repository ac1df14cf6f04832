"""A Code Quality report as GitLab reads it."""

from __future__ import annotations

import json

from ospltool.diagnostics.model import Report, Severity, fingerprints

_SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


def render(report: Report, *, colour: bool = False) -> str:
    """Render all findings as one JSON list."""
    entries = [
        {
            "check_name": each.code,
            "description": f"{each.code} {each.name}: {each.message}",
            "severity": _SEVERITIES[each.severity],
            "fingerprint": fingerprint,
            "location": {
                "path": each.place.path,
                "positions": {
                    "begin": {"line": each.place.line, "column": each.place.column},
                    "end": {"line": each.place.end_line, "column": each.place.end_column},
                },
            },
        }
        for each, fingerprint in zip(report.diagnostics, fingerprints(report.diagnostics), strict=True)
    ]
    return json.dumps(entries, indent=2) + "\n"
