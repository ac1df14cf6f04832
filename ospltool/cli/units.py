"""Parsers of option values with units."""

from __future__ import annotations

import re
from typing import Final

import typer

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|ms|s|m|h|d)?")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str) -> float:
    """Parse a duration such as `500ms`, `2s`, `1.5m` or `1h` into seconds; a bare number counts seconds.

    Raises:
        typer.BadParameter: the text is not a duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write 500ms, 10s, 5m or 1h")
    return float(found[1]) * _SECONDS[found[2] or "s"]
