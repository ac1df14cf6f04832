"""The codes of trouble: one registry, whose texts are also the pages of docs/health."""

from __future__ import annotations

import dataclasses
import enum
import functools
import tomllib
from importlib import resources


class Severity(enum.IntEnum):
    """How urgent, most urgent first. A NOTICE does not count for exit codes."""

    ERROR = 0
    WARNING = 1
    NOTICE = 2

    @property
    def label(self) -> str:
        """As people read it."""
        return self.name.lower()


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """One trouble that can be observed.

    Attributes:
        id: as in DUL-NODE-GONE; never given to another trouble.
        title: one line.
        severity: unless an observation says otherwise.
        cause: what it has in common with other codes; one cause of one subject is one incident.
        observed: what was seen when this is told.
        causes: what it usually comes from, likeliest first.
        effect: what it means for data.
        next: what to do.
    """

    id: str
    title: str
    severity: Severity
    cause: str
    observed: str
    causes: tuple[str, ...]
    effect: str
    next: str

    @property
    def page(self) -> str:
        """Where it is documented."""
        return f"docs/health/{self.id}.md"


@functools.cache
def codes() -> dict[str, Code]:
    """Every code, in the order of the registry."""
    text = resources.files("ospltool.health").joinpath("codes.toml").read_text("utf-8")
    return {
        name: Code(
            name,
            entry["title"],
            Severity[entry["severity"].upper()],
            entry["cause"],
            entry["observed"],
            tuple(entry["causes"]),
            entry["effect"],
            entry["next"],
        )
        for name, entry in tomllib.loads(text).items()
    }
