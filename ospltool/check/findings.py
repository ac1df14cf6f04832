"""What a rule returns: a message and its places; the registry adds code, name and severity."""

from __future__ import annotations

import dataclasses

from ospltool.diagnostics.model import Fix, Place, Severity, Target


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One case of a rule.

    `severity` and `blocks` replace those of the rule when they are given. `nodes` are the names of the nodes
    that it concerns.
    """

    message: str
    place: Place
    related: tuple[Place, ...] = ()
    advice: str = ""
    subject: str = ""
    nodes: tuple[str, ...] = ()
    severity: Severity | None = None
    blocks: frozenset[Target] | None = None
    fix: Fix | None = None
