"""Signs of trouble."""

from __future__ import annotations

import dataclasses

from ospltool.health.codes import Code, HealthSeverity, codes

SECOND_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """One observation of trouble."""

    code: str
    """Id of the code."""
    who: str
    """Subject: a node, a name-space or two nodes; the same words while the sign lasts."""
    what: str
    """Observation, in a sentence without a full stop."""
    since_ns: int = 0
    """Beginning, by the feed's clock; 0 if unknown."""
    nodes: tuple[str, ...] = ()
    """Ids of the involved nodes."""
    name_space: str = ""
    """Involved name-space, if there is exactly one."""
    why: str = ""
    """Cause; empty if unknown."""
    next: str = ""
    """Advice that is more precise than the code's."""
    severity: HealthSeverity | None = None
    """Severity in place of the code's."""
    patience_ns: int = 0
    """Time that the sign must last before it counts."""
    weight: int = 1
    """Gravity, comparable only with that of the same sign at another moment."""
    subjects: tuple[str, ...] = ()
    """Ids of the nodes that it is about; empty for all of `nodes`."""

    @property
    def kind(self) -> Code:
        """The code's entry in the registry."""
        return codes()[self.code]

    @property
    def urgency(self) -> HealthSeverity:
        """Severity of the sign, else of its code."""
        return self.kind.severity if self.severity is None else self.severity

    @property
    def key(self) -> str:
        """Key that signs of one cause about one subject share."""
        return f"{self.kind.cause}:{self.who}"


def joined(names: tuple[str, ...] | list[str], most: int = 4) -> str:
    """Join names in words: `n1`, `n1 and n2`, `n1, n2, n3 and 3 more`."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
