"""The tables of documents, for tests that try each row: a page cannot say what its test does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[1] / "docs"
_CELL: Final = re.compile(r"(?<!\\)\|")


def table_rows(page: str, heading: str) -> list[dict[str, str]]:
    """Return the rows of the first table under a heading, each cell by the head of its column.

    Args:
        page: name of the page in `docs`.
        heading: text of the heading, without the number signs.

    Raises:
        AssertionError: there is no such heading on the page, or no table under it.
    """
    lines = iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    assert any(line.startswith("#") and line.lstrip("# ") == heading for line in lines), (
        f"docs/{page}: no heading {heading!r}"
    )
    table: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            table.append(_cells(line))
        elif table or line.startswith("#"):
            break
    assert len(table) > 2, f"docs/{page}: no table under {heading!r}"
    head, _, *rows = table
    return [dict(zip(head, row, strict=True)) for row in rows]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(line.strip())[1:-1]]
