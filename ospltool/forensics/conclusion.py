"""One thing that became of the data: what kind it is, when, where, and the lines that show it."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final

from ospltool.trace.views.times import iso

if TYPE_CHECKING:
    from ospltool.trace.meaning.exchanges import Place


class Kind(enum.StrEnum):
    """What became of a set; the worst first."""

    LOST = "lost"
    """No node that is known kept it."""
    EMPTIED = "emptied"
    """Some nodes threw it away."""
    DIFFERS = "differs"
    """Stores of different nodes do not have the same data."""
    DIVERGED = "diverged"
    """A node did not take its master's set, as far as the traces go."""
    THROWN_AWAY = "thrown away"
    """What a node took in while it was cut off was replaced."""
    SHRANK = "shrank"
    """A smaller set took the place of a larger one."""
    DAMAGED = "damaged"
    """A store cannot be read in full."""
    EQUAL = "equal"
    """Stores have the same data."""
    DELAYED = "delayed"
    """A node took its master's set late."""
    REPLACED = "replaced"
    """A set took the place of another, and no trace of a difference between them is seen."""
    JOINED = "joined"
    """Sets were joined: nothing was given up."""


HARMLESS: Final = frozenset({Kind.DELAYED, Kind.REPLACED, Kind.JOINED, Kind.EQUAL})
"""Kinds that are no loss and no lasting difference."""


@dataclasses.dataclass(frozen=True, slots=True)
class Conclusion:
    """One thing that became of the data.

    Attributes:
        kind: what.
        text: in a sentence, with node, group and decision.
        start_ns: the first moment at which it holds; None where only stores show it.
        end_ns: until when; None when it holds to the end.
        nodes: where.
        group: partition.topic, or the name-space; empty where it is about several.
        places: the lines that show it.
        facts: figures and names, for programs.
    """

    kind: Kind
    text: str
    start_ns: int | None
    end_ns: int | None = None
    nodes: tuple[str, ...] = ()
    group: str = ""
    places: tuple[Place, ...] = ()
    facts: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def is_harmless(self) -> bool:
        """Whether it is no loss and no lasting difference."""
        return self.kind in HARMLESS


def dated(one: Conclusion) -> str:
    """A conclusion with the time from which on it holds."""
    return one.text if one.start_ns is None else f"{iso(one.start_ns, 3)} {one.text}"
