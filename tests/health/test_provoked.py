"""Every code is told in a test on real processes, or its page says why that cannot be."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from engine.core.states import PHASES, Phase, Trigger
from ospltool.health.codes import codes

INTEGRATION = Path(__file__).parents[1] / "integration"
MODULES = (
    *sorted(INTEGRATION.glob("test_health_faults*.py")),
    INTEGRATION.parent / "adversary" / "test_secret.py",
    INTEGRATION.with_name("adversary") / "test_deletions.py",
    INTEGRATION / "test_doctor.py",
    INTEGRATION / "test_late_sets.py",
    INTEGRATION / "test_restored.py",
    INTEGRATION / "test_settings.py",
    INTEGRATION / "test_shared_identity.py",
    INTEGRATION / "test_store.py",
    INTEGRATION.parent / "adversary" / "test_counters.py",
)
"""The tests of `make faults`, and others of every run that look at the health of real nodes."""

FAULTS = {
    "a node expected and never heard": "NODE-ABSENT NODE-NOT-STARTED",
    "silent": "NODE-SILENT",
    "gone and why": "NODE-GONE NODE-RESTARTED NODE-STALLED DOMAIN-LOST",
    "redundancy below N copies": "COPIES-LOW ONLY-PARTS SET-FROM-PARTS",
    "redundancy below N on disk": "DISK-COPIES-LOW",
    "no master": "NO-MASTER",
    "two masters": "TWO-MASTERS",
    "a master that cannot be agreed": "MASTER-IMPOSSIBLE PRIORITIES-MIXED",
    "partial mesh": "PARTIAL-MESH",
    "a node that nobody watches": "NODE-UNSUPERVISED",
    "not complete for long": "NOT-COMPLETE ALIGN-STALLED",
    "merge": "MERGE SET-REPLACED",
    "conflict": "CONFLICT",
    "incompatibility": "INCOMPATIBLE",
    "sets that stay different": "SET-DIFFERS",
    "a durable writer that is not kept": "NOT-KEPT REJECTED FILTER-REFUSED",
    "a history that is cut": "HISTORY-CUT",
    "capture back-pressure": "BACK-PRESSURE",
    "losses": "CAPTURE-LOSS",
    "a store that is full": "STORE-FULL",
    "a store that fails": "STORE-FAILED STORE-DAMAGED",
    "a store that is slow or behind": "STORE-BEHIND NODE-STUCK",
    "a lease or a heartbeat that is late": "HEARTBEAT-LATE",
    "clock skew": "CLOCK-SKEW",
    "a deletion by a stranger or a wrong clock": "DELETION-REFUSED",
    "a late joiner that is not served": "READER-NOT-SERVED READER-DEVIATES",
    "a durable subscription without quorum": "NO-QUORUM",
    "a newer protocol version": "PROTOCOL IDENTITY-SHARED NAME-SHARED",
    "a store from a copy, and counters that cannot be": "STORE-RESTORED COUNTERS",
    "a configuration that is ignored": "CONFIG-IGNORED",
    "a configuration that differs between nodes": "CONFIG-DIFFERS",
    "a persistence service that is gone or silent": "SERVICE-GONE SERVICE-SILENT",
    "a persistence service that fails": "SERVICE-FAILED",
    "a persistence service that is behind": "SERVICE-BEHIND NO-PROVIDER",
    "a watcher that cannot keep up": "MESSAGES-LOST",
    "a sender that does not know the secret": "UNPROVED SECRET-KEPT",
}
"""The classes of faults, and the codes that tell them, without DUL."""


def told(path: Path) -> set[str]:
    """The codes that a module demands: not those that it names in a text, or beside another one."""
    constants = (
        one.value for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.Constant)
    )
    return {one for one in constants if isinstance(one, str) and re.fullmatch(r"DUL(-[A-Z]+)+", one)}


def test_each_code_is_provoked_or_its_page_says_why_not() -> None:
    provoked = {one for path in MODULES for one in told(path)}
    assert codes().keys() & provoked == {code for code, each in codes().items() if not each.unprovoked}


def test_every_code_is_of_a_class_of_faults() -> None:
    told_by = [f"DUL-{name}" for names in FAULTS.values() for name in names.split()]
    assert sorted(told_by) == sorted(codes())


def test_a_node_with_a_conflict_is_complete_or_merges() -> None:
    """Why nothing provokes DUL-CONFLICT: a merge begins where a conflict is told, and ends complete."""
    begins = {phase for phase, moves in PHASES.items() if Phase.MERGE in moves.values()}
    assert begins == {Phase.COMPLETE}
    assert set(PHASES[Phase.COMPLETE].values()) == {Phase.COMPLETE, Phase.MERGE}
    assert PHASES[Phase.COMPLETE][Trigger.DIVERGED] is Phase.MERGE
    assert set(PHASES[Phase.MERGE].values()) == {Phase.COMPLETE}
