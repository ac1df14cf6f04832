"""The output formats of findings, by the name that a user gives."""

from __future__ import annotations

import importlib
from typing import Final

from ospltool.diagnostics.model import Report

FORMATS: Final = {
    "full": "text.full",
    "concise": "text.concise",
    "json": "json.document",
    "jsonl": "json.lines",
    "github": "services.github",
    "gitlab": "services.gitlab",
    "junit": "services.junit",
    "sarif": "services.sarif",
    "rdjson": "services.rdjson",
}
"""The module and function of `ospltool.diagnostics` that renders each format."""


def render(report: Report, name: str, *, colour: bool = False) -> str:
    """Render a report in one of FORMATS; the text ends with a line end unless it is empty.

    Only the formats for people use `colour`. `name` is that of the format.
    """
    module, function = FORMATS[name].split(".")
    renderer = getattr(importlib.import_module(f"ospltool.diagnostics.{module}"), function)
    return str(renderer(report, colour=colour))
