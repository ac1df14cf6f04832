"""The output formats of findings, by the name that a user gives."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from ospltool.diagnostics.model import Report

FORMATS = ("full", "concise", "json", "jsonl", "github", "gitlab", "junit", "sarif", "rdjson")
"""Every format; each is rendered by the module `ospltool.diagnostics.<name>`."""


class _Renderer(Protocol):
    def render(self, report: Report, *, colour: bool) -> str: ...


def render(report: Report, name: str, *, colour: bool = False) -> str:
    """Render a report in one of FORMATS; the text ends with a line end unless it is empty.

    Only the formats for people use `colour`. `name` is that of the format.
    """
    assert name in FORMATS, f"{name} is no format"
    module = cast("_Renderer", importlib.import_module(f"ospltool.diagnostics.{name}"))
    return module.render(report, colour=colour)
