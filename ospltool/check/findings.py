"""The findings of rules: a message and its places; the runner adds code, name and severity."""

from __future__ import annotations

import dataclasses

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
