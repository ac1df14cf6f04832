"""Pages of the documentation that are made from the code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_pages(directory: str, pages: Mapping[str, str]) -> None:
    """Write pages, by file name, into a directory, which is made where it is not there."""
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (target / name).write_text(text, "utf-8")
