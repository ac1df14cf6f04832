"""One JSON object for each finding and line, for tools that read streams."""

from __future__ import annotations

from ospltool.diagnostics.json import plain
from ospltool.diagnostics.model import Report, fingerprints
from ospltool.output import envelope


def render(report: Report, *, colour: bool = False) -> str:
    """Render all findings in order."""
    prints = fingerprints(report.diagnostics)
    return "".join(
        envelope.line("diagnostic", plain(each, fingerprint))
        for each, fingerprint in zip(report.diagnostics, prints, strict=True)
    )
