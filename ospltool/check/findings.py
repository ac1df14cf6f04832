"""What rules about files of other products have in common."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from engine.config import ByteRange
from engine.config.values import did_you_mean

MAX_NAMED: Final = 8
"""Names in an advice at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignFault:
    """A part of a file that its product refuses or warns of."""

    kind: enum.Enum
    """The kind of fault; each has a rule."""
    span: ByteRange
    """Where it is."""
    message: str
    """What is wrong."""
    advice: str = ""
    """What to do; may be empty."""
    subject: str = ""
    """Path of the setting; may be empty."""


def hint(name: str, known: tuple[str, ...]) -> str:
    """Return what an unknown name may stand for; empty if nothing is like it and much is known."""
    return did_you_mean(name, known) or (
        f"use {' or '.join(known)}, or remove it" if 0 < len(known) <= MAX_NAMED else ""
    )
