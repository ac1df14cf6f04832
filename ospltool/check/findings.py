"""The findings of rules: a message and its places; the runner adds code, name and severity."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from engine.config import ByteRange
from engine.config.values import did_you_mean
from ospltool.diagnostics.model import Fix, Place, Severity, Target


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A case of a rule."""

    message: str
    """One sentence about this case."""
    place: Place
    """The place to look at first."""
    related: tuple[Place, ...] = ()
    """Further places."""
    advice: str = ""
    """Remedy; empty without one."""
    subject: str = ""
    """Documentation path of the setting; else empty."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes concerned; empty for a single file."""
    severity: Severity | None = None
    """Replaces the severity of the rule; None keeps it."""
    blocks: frozenset[Target] | None = None
    """Replaces the services that refuse to start; None keeps those of the rule."""
    fix: Fix | None = None
    """A repair; None if there is none."""


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
    return did_you_mean(name, known) or (f"it has {', '.join(known)}" if 0 < len(known) <= MAX_NAMED else "")
