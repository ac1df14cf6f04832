"""The codes of trouble: one registry, whose texts are also the pages of docs/health."""

from __future__ import annotations

import dataclasses
import enum
import functools
import tomllib
from importlib import resources


class HealthSeverity(enum.IntEnum):
    """Severity of a trouble, most urgent first. A NOTICE does not affect exit codes."""

    ERROR = 0
    WARNING = 1
    NOTICE = 2

    @property
    def label(self) -> str:
        """Name for people."""
        return self.name.lower()


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """One kind of observable trouble."""

    id: str
    """As in DUL-NODE-GONE; never reused for another trouble."""
    title: str
    """One-line description."""
    severity: HealthSeverity
    """Default; a sign may have another one."""
    cause: str
    """Family of codes; signs of one family about one subject make one incident."""
    observed: str
    """Observation that leads to this code."""
    causes: tuple[str, ...]
    """Usual causes, likeliest first."""
    effect: str
    """Consequence for the data."""
    next: str
    """Advice to the operator."""

    @property
    def page(self) -> str:
        """Path of its documentation."""
        return f"docs/health/{self.id}.md"

    @property
    def sections(self) -> dict[str, str]:
        """Its explanation by heading, in Markdown."""
        return {
            "What is observed": self.observed,
            "Likely causes": "\n".join(f"- {cause}" for cause in self.causes),
            "Effect on data": self.effect,
            "What to do": self.next,
        }


@functools.cache
def codes() -> dict[str, Code]:
    """Return every code by id, in the order of the registry."""
    text = resources.files("ospltool.health").joinpath("codes.toml").read_text("utf-8")
    return {
        name: Code(
            name,
            entry["title"],
            HealthSeverity[entry["severity"].upper()],
            entry["cause"],
            entry["observed"],
            tuple(entry["causes"]),
            entry["effect"],
            entry["next"],
        )
        for name, entry in tomllib.loads(text).items()
    }
