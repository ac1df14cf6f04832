"""The output formats of findings, by the name that a user gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ospltool.diagnostics import json, services, text
from ospltool.diagnostics.model import Report

FORMATS: Final[dict[str, Callable[..., str]]] = {
    "full": text.full,
    "concise": text.concise,
    "json": json.document,
    "jsonl": json.lines,
    "github": services.github,
    "gitlab": services.gitlab,
    "junit": services.junit,
    "sarif": services.sarif,
    "rdjson": services.rdjson,
}
"""The function that renders each format; only those for people use `colour`."""


def render(report: Report, name: str, *, colour: bool = False) -> str:
    """Render a report in one of FORMATS; the text ends with a line end unless it is empty.

    Args:
        report: the findings.
        name: that of the format.
        colour: whether a terminal shows it.
    """
    return FORMATS[name](report, colour=colour)
