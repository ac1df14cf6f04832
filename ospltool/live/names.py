"""The order of names."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts n2 before n10."""
    parts = _DIGITS.split(name)
    return tuple(
        (len(part.lstrip("0")), part.lstrip("0")) if i % 2 else (0, part) for i, part in enumerate(parts)
    )
