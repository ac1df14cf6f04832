"""The formats in which findings can be written, by the name that a user gives."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from ospltool.diagnostics.model import Report

FORMATS = ("full", "concise", "json", "jsonl", "github", "gitlab", "junit", "sarif", "rdjson")
"""Every format; each is rendered by the module `ospltool.diagnostics.<name>`."""


class _Renderer(Protocol):
    def render(self, report: Report, *, colour: bool) -> str: ...


def render(report: Report, name: str, *, colour: bool = False) -> str:
    """A report in one of FORMATS, ready to be written: every format ends with a line end unless it is empty.

    `colour` only matters to the formats for people.
    """
    assert name in FORMATS, f"{name} is no format"
    module = cast("_Renderer", importlib.import_module(f"ospltool.diagnostics.{name}"))
    return module.render(report, colour=colour)
