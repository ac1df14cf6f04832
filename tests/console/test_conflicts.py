from __future__ import annotations

from typing import Any

import pytest

from engine.runtime.monitor import NodeEvent
from engine.tracing.catalogue import catalogue
from ospltool.live import conflicts as module
from ospltool.live.conflicts import ConflictLog, ReportedConflict
from tests import fake
from tests.fake import SECOND_NS, START_NS

S = SECOND_NS


def told(seconds: int, event: str, node: int = 1, **fields: Any) -> NodeEvent:
    """An event of the catalogue as a node sends it."""
    text = catalogue()[event].text.format(**fields)
    return fake.event(seconds, node, START_NS + seconds * S, text, event=event)


def log_of(*events: NodeEvent) -> ConflictLog:
    log = ConflictLog()
    for event in events:
        log.apply(event)
    return log


def check_one(*events: NodeEvent) -> ReportedConflict:
    (conflict,) = log_of(*events).conflicts
    return conflict


NATIVE = told(1, "conflict.native-state", namespace="Orders", fellow="n2", conflict="2/ab")
MERGE = told(
    2, "merge.started", namespace="Orders", fellow="n2", conflict="2/ab", policy="Merge", role="Harbour"
)


def test_a_conflict_is_open_until_its_merge_is_finished() -> None:
    opened = check_one(NATIVE)
    assert (opened.name_space, opened.fellow, opened.number) == ("Orders", "n2", "2/ab")
    assert opened.cause == "set with another history, same role"
    assert (opened.policy, opened.outcome, opened.ended_ns) == ("", "", 0)
    merging = check_one(NATIVE, MERGE)
    assert (merging.policy, merging.ended_ns) == ("Merge", 0)
    finished = told(
        5, "merge.finished", namespace="Orders", role="Harbour", policy="merge", samples=17, elapsed_ns=1
    )
    over = check_one(NATIVE, MERGE, finished)
    assert over.outcome == "merge: 17 samples moved"
    assert over.ended_ns == START_NS + 5 * S


def test_a_snapshot_ends_a_conflict_and_a_late_event_says_how() -> None:
    log = log_of(NATIVE, MERGE)

    def settled(seconds: int, *, complete: bool, **changes: Any) -> tuple[str, int]:
        space = fake.name_space("Orders", 1, complete=complete)
        log.settle(fake.snapshot(1, space, time_ns=START_NS + seconds * S, **changes))
        (conflict,) = log.conflicts
        return conflict.outcome, conflict.ended_ns

    assert settled(1, complete=True) == ("", 0)
    assert settled(3, complete=False) == ("", 0)
    assert settled(6, complete=True) == ("Merge: complete again", START_NS + 6 * S)
    finished: dict[str, Any] = {
        "namespace": "Orders",
        "role": "Harbour",
        "policy": "merge",
        "samples": 17,
        "elapsed_ns": 1,
    }
    log.apply(told(5, "merge.finished", **finished))
    assert settled(7, complete=True) == ("merge: 17 samples moved", START_NS + 5 * S)
    log.apply(told(8, "merge.finished", **{**finished, "samples": 3}))
    assert settled(9, complete=True) == ("merge: 17 samples moved", START_NS + 5 * S)


def test_a_restart_ends_the_conflicts_of_the_run_before() -> None:
    log = log_of(NATIVE)
    space = fake.name_space("Orders", 1, complete=False)
    log.settle(fake.snapshot(1, space, time_ns=START_NS + 9 * S, started_ns=START_NS + 8 * S))
    assert log.conflicts[0].outcome == "n1 was restarted"


def test_a_merge_that_nobody_announced_is_a_conflict_too() -> None:
    started = check_one(MERGE)
    assert (started.cause, started.policy) == ("sets evolved apart", "Merge")
    done = told(4, "align.completed", group="Orders", fellow="n2", source="1", samples=9, elapsed_ns=1)
    assert check_one(MERGE, done).outcome == "9 samples moved"
    other = told(4, "align.completed", group="Other", fellow="n2", source="1", samples=9, elapsed_ns=1)
    assert not check_one(MERGE, other).ended_ns


def test_an_alignment_without_a_merge_ends_no_conflict() -> None:
    done = told(4, "align.completed", group="Orders", fellow="n2", source="1", samples=9, elapsed_ns=1)
    assert not check_one(NATIVE, done).ended_ns


@pytest.mark.parametrize(
    ("event", "outcome"),
    [("compatibility.resolved", "became compatible"), ("compatibility.approved", "became compatible")],
)
def test_incompatible_fellows_are_a_conflict_until_they_are_not(event: str, outcome: str) -> None:
    refused = told(
        1,
        "compatibility.conflict",
        fellow="n2",
        namespace="Orders",
        expressions="Orders.*",
        other_namespace="Orders",
        other_expressions="Orders.Trade",
    )
    conflict = check_one(refused, told(9, event, fellow="n2"))
    assert (conflict.outcome, conflict.ended_ns) == (outcome, START_NS + 9 * S)
    assert not check_one(refused, told(9, event, fellow="n3")).ended_ns
    assert not check_one(refused, told(9, event, node=3, fellow="n2")).ended_ns


def test_policies_that_contradict_are_over_at_once_and_say_how() -> None:
    conflict = check_one(
        told(
            1,
            "merge.contradiction",
            policy="Replace",
            other_policy="Merge",
            role="A",
            other_role="B",
            namespace="Orders",
        )
    )
    assert (conflict.policy, conflict.outcome) == ("Replace / Merge", "treated as Ignore")
    assert conflict.ended_ns == conflict.began_ns


def test_other_events_are_none_of_its_business() -> None:
    assert not log_of(fake.event(1, 1, START_NS, "anything", event="fellow.discovered")).conflicts


def test_events_whose_text_says_something_else_are_survived() -> None:
    conflict = check_one(fake.event(1, 1, START_NS, "\x00", event="conflict.native-state"))
    assert conflict.name_space == ""


def test_the_oldest_that_are_over_are_forgotten_first_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONFLICTS", 2)
    over = told(2, "merge.no-scope", namespace="Over", role="A", fellow="n3")
    newest = told(3, "conflict.native-state", namespace="New", fellow="n2", conflict="3/ab")
    log = log_of(NATIVE, over, newest)
    assert [conflict.name_space for conflict in log.conflicts] == ["Orders", "New"]
    assert log.left_out == 1
