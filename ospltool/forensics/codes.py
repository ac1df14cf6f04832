"""The codes that the health of a running system has for what traces show, where both exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ospltool.trace.rules import Finding

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
"""By rule. Rules that are not named see what no running node can: docs/health has no page for them."""

_CUT_OFF: Final = "DUL-PARTIAL-MESH"
_DIED: Final = "DUL-NODE-GONE"


def code_of(one: Finding) -> str:
    """The code of a finding; empty where health has none for it."""
    if one.rule == "fellow-lost" and one.facts.get("separated"):
        return _CUT_OFF
    if one.rule == "fellow-lost" and one.facts.get("died"):
        return _DIED
    return CODES.get(one.rule, "")
