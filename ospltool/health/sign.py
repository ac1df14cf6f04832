"""One thing that is not as it should be, as it was seen."""

from __future__ import annotations

import dataclasses

from ospltool.health.codes import Code, Severity, codes

SECOND_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """One thing that is not as it should be.

    Attributes:
        code: which.
        who: whom it is about: a node, a name-space, two nodes; the same words as long as it lasts.
        what: what was seen, in a sentence without a full stop.
        since_ns: since when, by the feed's clock; 0 when nothing tells.
        nodes: ids of the nodes that are involved.
        name_space: the name-space that is involved, if it is one.
        why: the cause, where it is known; empty for unknown.
        next: what to do, where more is known than the code says.
        severity: another one than the code's.
        patience_ns: how long it must last before it counts: shorter ones are normal.
        weight: how bad it is, to be compared with another moment only.
        subjects: ids of those of the nodes that it is about; empty for all.
    """

    code: str
    who: str
    what: str
    since_ns: int = 0
    nodes: tuple[str, ...] = ()
    name_space: str = ""
    why: str = ""
    next: str = ""
    severity: Severity | None = None
    patience_ns: int = 0
    weight: int = 1
    subjects: tuple[str, ...] = ()

    @property
    def kind(self) -> Code:
        """The code's entry in the registry."""
        return codes()[self.code]

    @property
    def urgency(self) -> Severity:
        """Its severity."""
        return self.kind.severity if self.severity is None else self.severity

    @property
    def key(self) -> str:
        """Equal for signs of one cause in one subject."""
        return f"{self.kind.cause}:{self.who}"


def joined(names: tuple[str, ...] | list[str], most: int = 4) -> str:
    """Names in words: `n1`, `n1 and n2`, `n1, n2 and 3 more`."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
