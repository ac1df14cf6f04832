"""The codes of `ospltool health` for findings of trace rules, where both exist."""

from __future__ import annotations

from typing import Final

from ospltool.trace.rules import Anomaly

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
