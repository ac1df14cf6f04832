"""Conclusions about the data, with time, place and the lines that prove them; and codes of findings."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.rules import Anomaly
from ospltool.trace.views.times import iso


class SetFate(enum.StrEnum):
    """Fate of a set; the worst first."""

    LOST = "lost"
    """No known node kept it."""
    EMPTIED = "emptied"
    """Some nodes discarded it."""
    DIFFERS = "differs"
    """Stores of different nodes do not have the same data."""
    DIVERGED = "diverged"
    """A node had not taken its master's set when the traces ended."""
    THROWN_AWAY = "thrown away"
    """Samples that a node captured while it was cut off were replaced."""
    SHRANK = "shrank"
    """A smaller set replaced a larger one."""
    DAMAGED = "damaged"
    """A store cannot be read in full."""
    EQUAL = "equal"
    """Stores have the same data."""
    DELAYED = "delayed"
    """A node took its master's set late."""
    REPLACED = "replaced"
    """A set replaced another one, and the traces show no difference between them."""
    JOINED = "joined"
    """Sets were joined without loss."""


HARMLESS: Final = frozenset({SetFate.DELAYED, SetFate.REPLACED, SetFate.JOINED, SetFate.EQUAL})
"""Kinds that are neither a loss nor a lasting difference."""


@dataclasses.dataclass(frozen=True, slots=True)
class Conclusion:
    """One conclusion about the data."""

    kind: SetFate
    """Fate of the set."""
    text: str
    """Sentence with node, group and decision."""
    start_ns: int | None
    """First moment at which it holds; None if only stores show it."""
    end_ns: int | None = None
    """Last moment at which it holds; None if it holds to the end."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes concerned."""
    group: str = ""
    """Partition.topic, or the name-space; empty if several are concerned."""
    places: tuple[RecordPlace, ...] = ()
    """Lines that prove it."""
    facts: dict[str, object] = dataclasses.field(default_factory=dict)
    """Figures and names for programs."""

    @property
    def is_harmless(self) -> bool:
        """Whether it is neither a loss nor a lasting difference."""
        return self.kind in HARMLESS


def dated(one: Conclusion) -> str:
    """Return the text of a conclusion, with the time from which it holds."""
    return one.text if one.start_ns is None else f"{iso(one.start_ns, 3)} {one.text}"


CODES: Final = {
    "two-masters": "DUL-TWO-MASTERS",
    "set-diverged": "DUL-SET-DIFFERS",
    "conflict-unresolved": "DUL-CONFLICT",
    "merge-storm": "DUL-MERGE",
    "request-unanswered": "DUL-ALIGN-STALLED",
    "alignment-refused": "DUL-INCOMPATIBLE",
    "thread-silent": "DUL-NODE-STUCK",
    "fellow-lost": "DUL-NODE-SILENT",
}
"""Codes by rule. Other rules find what no running system shows, so docs/health has no page for them."""

_CUT_OFF: Final = "DUL-PARTIAL-MESH"
_DIED: Final = "DUL-NODE-GONE"


def code_of(one: Anomaly) -> str:
    """Return the health code of a finding; empty if there is none."""
    if one.rule == "fellow-lost" and one.facts.get("separated"):
        return _CUT_OFF
    if one.rule == "fellow-lost" and one.facts.get("died"):
        return _DIED
    return CODES.get(one.rule, "")
