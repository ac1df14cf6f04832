"""Each rule finds its anomaly, and is silent where there is none."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from docs import anomalies as anomalies_page
from ospltool.cli.app import main
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.rules import all_rules, anomalies
from tests.trace.making import Trace, Traces
from tests.trace.words import (
    CONFLICT,
    FELLOW,
    GOT_REQUEST,
    LINK,
    MERGE,
    MERGED,
    POLICY,
    REQUEST,
    SELF,
    SLAVED,
    SPACE,
    found,
)


def test_a_healthy_start_of_three_nodes_has_no_anomaly(samples: pathlib.Path) -> None:
    facts = TraceFacts.from_records(merged(find_sources([str(samples / "late-joiner")]).sources))
    assert anomalies(facts) == []


def test_the_live_lock_of_a_real_run_is_named_with_its_cause(samples: pathlib.Path) -> None:
    facts = TraceFacts.from_records(merged(find_sources([str(samples / "master-livelock")]).sources))
    (lock,) = anomalies(facts, ["master-livelock"])
    assert lock.facts["rounds"] == 14
    assert lock.facts["merges"] == {"n1": 15, "n2": 12, "n3": 14}
    assert lock.facts["merges_in_all"] == 41
    choices = lock.facts["choices"]
    assert isinstance(choices, dict)
    assert {name: (choice["priority"], choice["master"]) for name, choice in choices.items()} == {
        "n1": (100, "n2"),
        "n2": (200, "n2"),
        "n3": (50, "n1"),
    }
    assert "The wrong choice is that of n3" in lock.explanation
    assert "compares every candidate with the node's own priority (50)" in lock.explanation
    assert {one.rule for one in anomalies(facts)} >= {
        "master-livelock",
        "merge-storm",
        "equal-set-transferred",
    }


def follows(trace: Trace, master: str, rounds: int) -> None:
    """A node that confirms one master again and again, with a conflict and a merge each time."""
    for number in range(rounds):
        at = 1 + number * 0.5
        trace.line(at, CONFLICT.format(1009, number + 1), "d_nameSpaces").line(
            at + 0.1, f"Trying to resolve conflict {number + 1}."
        )
        trace.line(at + 0.2, SELF if master == trace.address else FELLOW.format(master))
        trace.line(at + 0.21, MERGE).line(at + 0.25, f"Finished solving conflict {number + 1}")


def test_a_live_lock_without_priorities_is_found_without_a_guess(traces: Traces) -> None:
    follows(traces.node("a", "1001").begin(0), "1001", 8)
    follows(traces.node("b", "1002").begin(0), "1002", 8)
    (lock,) = found(traces, "master-livelock")
    assert lock.facts["rounds"] == 8
    assert "Why they choose differently is not in the traces" in lock.explanation


def flapping(traces: Traces, changes: int) -> None:
    trace = traces.node("a").begin(0)
    for number in range(changes + 1):
        trace.line(1 + number * 5, FELLOW.format(2000 + number % 2))


def two_masters(traces: Traces, overlap_s: float) -> None:
    for node, address, fellow in (("a", "1001", "1002"), ("b", "1002", "1001")):
        traces.node(node, address).begin(0).line(0.5, SPACE.format(fellow, fellow, 255))
    traces.node("a").line(1, SELF).line(30, "end")
    traces.node("b").line(2, SELF).line(2 + overlap_s, FELLOW.format(1001)).line(30, "end")


def storm(traces: Traces, merges: int) -> None:
    trace = traces.node("a").begin(0)
    for number in range(merges):
        trace.line(1 + number, MERGE)


def unresolved(traces: Traces, resolved: bool) -> None:
    trace = traces.node("a").begin(0).line(1, CONFLICT.format(1002, 5), "d_nameSpaces")
    trace.line(2, "Trying to resolve conflict 5.")
    if resolved:
        trace.line(3, "Finished solving conflict 5")
    trace.line(60, "end")


def merge_without_end(traces: Traces, ended: bool) -> None:
    trace = traces.node("a").begin(0).line(1, CONFLICT.format(1002, 5), "d_nameSpaces")
    trace.line(2, "Start resolving conflict 5").line(3, "Finished solving conflict 5")
    if ended:
        trace.line(4, "Stop resolving conflict 5")
    trace.line(60, "end")


def equal_sets(traces: Traces, transfers: int) -> None:
    trace = traces.node("a", "1001").begin(0)
    traces.node("b", "1002").begin(0)
    for number in range(transfers):
        trace.line(1 + number, REQUEST).line(1.1 + number, LINK).line(
            1.2 + number, "Group p.T is now complete."
        )


def unanswered(traces: Traces, answered: bool) -> None:
    traces.node("b", "1002").begin(0).line(1.1, GOT_REQUEST).line(60, "end")
    trace = traces.node("a", "1001").begin(0).line(1, REQUEST)
    if answered:
        trace.line(2, LINK)
    trace.line(60, "end")


def refused(traces: Traces, says_no: bool) -> None:
    trace = traces.node("a", "1001").begin(0).line(1, REQUEST)
    if says_no:
        trace.line(
            2,
            "Received link from fellow 1002 for group 'p.T' where it informs me it will not align me. This "
            "means that "
            "our data model or state is incompatible. I need to disconnect the fellow and discover it again.",
        )


def lost(traces: Traces, in_order: bool) -> None:
    other = traces.node("b", "1002").begin(0).line(5, "x")
    if in_order:
        other.line(10, "----ENTERING STATE----", "ospl_durability", "TERMINATING")
    traces.node("a", "1001").begin(0).line(11, "Removing confirmed fellow 1002.", "remoteReader").line(
        20, "end"
    )


def backwards(traces: Traces, goes_back: bool) -> None:
    trace = traces.node("a").begin(0).line(2, "x", state="COMPLETE")
    if goes_back:
        trace.line(3, "x", state="FETCH_INITIAL").line(4, "x", state="FETCH_INITIAL")
    trace.line(5, "x", state="COMPLETE")


def silent(traces: Traces, worked: bool) -> None:
    trace = traces.node("a").begin(0).line(1, CONFLICT.format(1002, 5), "d_nameSpaces")
    if worked:
        trace.line(2, "Trying to resolve conflict 5.").line(3, "Finished solving conflict 5")
    trace.line(60, "x", "d_status")


def jump(traces: Traces, jumps: bool) -> None:
    trace = traces.node("a").begin(100).line(101, "x")
    trace.line(50 if jumps else 102, "x").line(103, "x")


def edited(traces: Traces, damaged: bool) -> None:
    trace = traces.node("a").begin(0)
    if damaged:
        trace.lines[1] = trace.lines[1].replace("T01:03:20", "T01:04:21")


def late(traces: Traces, gap_s: float) -> None:
    beat = (
        "Incoming federation heartbeat for federation '1002', state = '1', instance state = '2', "
        "noWriterCount = '0', "
        "period = 10.0"
    )
    traces.node("a").begin(0).line(1, beat).line(1 + gap_s, beat)


def severe(traces: Traces, bad: bool) -> None:
    trace = traces.node("a").begin(0)
    if bad:
        trace.line(1, "Injecting data from disk for group p.T failed (0).", "conflictResolver")


def emptied(traces: Traces, refilled: bool) -> None:
    """Two nodes throw away 50 samples; with an alignment afterwards, one of them has data again."""
    for node, address in (("a", "1001"), ("b", "1002")):
        trace = traces.node(node, address).begin(0)
        if node == "a":
            trace.line(1, REQUEST).line(1.1, LINK)
        trace.line(2, POLICY.format("DELETE"))
    if refilled:
        traces.node("a").line(30, REQUEST).line(31, LINK).line(32, "Group p.T is now complete.")
        traces.node("b").line(30, REQUEST.replace("1002", "1001")).line(31, LINK.replace("1002", "1001"))


def diverged(traces: Traces, taken: bool) -> None:
    """A master merges; its fellow takes its set, or does not."""
    for node, address, fellow in (("a", "1001", "1002"), ("b", "1002", "1001")):
        traces.node(node, address).begin(0).line(0.5, SPACE.format(fellow, fellow, 255))
    traces.node("a").line(1, SELF).line(5, MERGED.format(2)).line(40, "end")
    trace = traces.node("b").line(1.5, FELLOW.format(1001)).line(2, SLAVED.format(1))
    if taken:
        trace.line(9, SLAVED.format(2))
    trace.line(40, "end")


def lock(traces: Traces, settles: bool) -> None:
    follows(traces.node("a", "1001").begin(0), "1001", 8)
    follows(traces.node("b", "1002").begin(0), "1001" if settles else "1002", 8)


RULES: dict[str, tuple[str, Callable[..., None], object, object]] = {
    "master-livelock": ("master-livelock", lock, False, True),
    "master-flapping": ("master-flapping", flapping, 3, 1),
    "two-masters": ("two-masters", two_masters, 10.0, 0.5),
    "merge-storm": ("merge-storm", storm, 12, 6),
    "set-emptied": ("set-emptied", emptied, False, True),
    "set-diverged": ("set-diverged", diverged, False, True),
    "conflict-unresolved": ("conflict-unresolved", unresolved, False, True),
    "conflict-unresolved (merge)": ("conflict-unresolved", merge_without_end, False, True),
    "equal-set-transferred": ("equal-set-transferred", equal_sets, 5, 2),
    "request-unanswered": ("request-unanswered", unanswered, False, True),
    "alignment-refused": ("alignment-refused", refused, True, False),
    "fellow-lost": ("fellow-lost", lost, False, True),
    "heartbeat-late": ("heartbeat-late", late, 14.0, 5.0),
    "state-backwards": ("state-backwards", backwards, True, False),
    "thread-silent": ("thread-silent", silent, False, True),
    "clock-jump": ("clock-jump", jump, True, False),
    "clock-jump (edited)": ("clock-jump", edited, True, False),
    "reported": ("reported", severe, True, False),
}
"""Of each rule: what makes a trace, with what it must speak, and with what it must not."""


def stops(trace: Trace, at: float) -> Trace:
    """An orderly stop, a little while after it began."""
    trace.line(at, "----ENTERING STATE----", "ospl_durability", "TERMINATING")
    return trace.line(at + 60, "Durability destroyed", "ospl_durability", "TERMINATED")


def request_of_one_that_stops(traces: Traces) -> None:
    traces.node("b", "1002").begin(0).line(60, "end")
    stops(traces.node("a", "1001").begin(0).line(1, REQUEST), 3)


def request_of_one_that_starts_anew(traces: Traces) -> None:
    traces.node("b", "1002").begin(0).line(60, "end")
    trace = traces.node("a", "1001").begin(0).line(1, REQUEST)
    trace.address = "2001"
    trace.begin(20).line(60, "end")


def conflict_of_one_that_stops(traces: Traces) -> None:
    stops(traces.node("a").begin(0).line(1, CONFLICT.format(1002, 5), "d_nameSpaces"), 3)


def equal_sets_of_incarnations(traces: Traces) -> None:
    """Each start of a takes the same set once."""
    traces.node("b", "1002").begin(0).line(90, "end")
    trace = traces.node("a", "1001")
    for number in range(6):
        trace.address = str(1001 + 1000 * number)
        trace.begin(number * 10)
        trace.line(number * 10 + 1, REQUEST).line(number * 10 + 1.1, LINK)
        trace.line(number * 10 + 1.2, "Group p.T is now complete.")


def states_of_one_that_stops(traces: Traces) -> None:
    """OpenSplice bounces between states while it terminates."""
    trace = traces.node("a").begin(0).line(2, "x", state="COMPLETE").line(3, "x", state="TERMINATING")
    trace.line(4, "x", state="COMPLETE").line(5, "x", state="TERMINATING").line(6, "x", state="TERMINATED")


def masters_that_stop(traces: Traces) -> None:
    """A rolling restart: each master stops in order, and the next one is followed."""
    traces.node("a", "1001").begin(0)
    for number in range(5):
        address = str(2001 + number)
        trace = traces.node(f"m{number}", address).begin(0)
        traces.node("a").line(1 + number * 8, FELLOW.format(address))
        stops(trace, 5 + number * 8)
    traces.node("a").line(90, "end")


def storms_of_incarnations(traces: Traces) -> None:
    """Four merges after each of four starts."""
    trace = traces.node("a")
    for number in range(4):
        trace.address = str(1001 + number)
        trace.begin(number * 14)
        for merge in range(4):
            trace.line(number * 14 + 1 + merge, MERGE)


def losses_of_one_that_stops(traces: Traces) -> None:
    traces.node("b", "1002").begin(0).line(60, "end")
    trace = stops(traces.node("a", "1001").begin(0), 5)
    trace.line(66, "Removing confirmed fellow 1002.", "remoteReader", "TERMINATED")


def losses_of_one_that_said_so(traces: Traces) -> None:
    text = "Removing confirmed fellow 1002. Reason: it is terminating."
    traces.node("a", "1001").begin(0).line(11, text, "d_status").line(20, "end")


def divergence_of_one_that_stops(traces: Traces) -> None:
    diverged(traces, taken=False)
    traces.node("b").lines.pop()
    stops(traces.node("b"), 8)


def divergence_of_one_that_was_aligned(traces: Traces) -> None:
    """The state is not told, but the set came."""
    diverged(traces, taken=False)
    trace = traces.node("b")
    trace.lines.pop()
    trace.line(7, REQUEST.replace("1002", "1001")).line(7.1, LINK.replace("1002", "1001"), "d_sampleChain")
    trace.line(7.2, "Group p.T is now complete.", "d_sampleChain").line(40, "end")


def silence_of_one_that_stops(traces: Traces) -> None:
    stops(traces.node("a").begin(0).line(1, CONFLICT.format(1002, 5), "d_nameSpaces"), 4)


def request_to_all_of_whom_some_have_no_trace(traces: Traces) -> None:
    """The node ran twice, each time under another address, and asked one without a trace before."""
    trace = traces.node("a", "1000").begin(0).line(1, REQUEST).line(1.1, LINK).line(2, "x")
    trace.address = "1001"
    trace.begin(10).line(11, REQUEST.replace("fellow 1002", "fellow 0")).line(60, "end")


REFUTED: dict[str, tuple[str, Callable[[Traces], None]]] = {
    "the node that asked stopped": ("request-unanswered", request_of_one_that_stops),
    "the node that asked started anew": ("request-unanswered", request_of_one_that_starts_anew),
    "the others have no trace": ("request-unanswered", request_to_all_of_whom_some_have_no_trace),
    "the node of the conflict stopped": ("conflict-unresolved", conflict_of_one_that_stops),
    "each start took the set once": ("equal-set-transferred", equal_sets_of_incarnations),
    "states while it terminates": ("state-backwards", states_of_one_that_stops),
    "masters that stop in order": ("master-flapping", masters_that_stop),
    "few merges after each start": ("merge-storm", storms_of_incarnations),
    "who says so stops itself": ("fellow-lost", losses_of_one_that_stops),
    "the fellow said that it ends, and its trace is not here": ("fellow-lost", losses_of_one_that_said_so),
    "the follower stopped": ("set-diverged", divergence_of_one_that_stops),
    "the follower was aligned": ("set-diverged", divergence_of_one_that_was_aligned),
    "the node of the thread stopped": ("thread-silent", silence_of_one_that_stops),
}
"""Traces in which something refutes a rule that would speak without it: incarnations, orderly stops."""


@pytest.mark.parametrize("name", RULES)
def test_a_rule_finds_its_anomaly(name: str, traces: Traces) -> None:
    rule, make, bad, _ = RULES[name]
    make(traces, bad)
    findings = found(traces, rule)
    assert findings
    assert {one.rule for one in findings} == {rule}
    assert all(one.evidence and one.explanation and one.title for one in findings)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_silent_where_all_is_well(name: str, traces: Traces) -> None:
    rule, make, _, good = RULES[name]
    make(traces, good)
    assert found(traces, rule) == []


@pytest.mark.parametrize("name", REFUTED)
def test_a_rule_is_silent_where_something_refutes_it(name: str, traces: Traces) -> None:
    rule, make = REFUTED[name]
    make(traces)
    assert found(traces, rule) == []


def test_every_rule_has_a_trace_that_triggers_it_and_one_that_does_not() -> None:
    assert {rule.name for rule in all_rules()} == {rule for rule, *_ in RULES.values()}
    assert all(bad != good for _, _, bad, good in RULES.values())
    assert {rule for rule, _ in REFUTED.values()} <= {rule.name for rule in all_rules()}


def test_every_rule_says_what_must_be_seen_and_what_would_refute_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for rule in all_rules():
        assert rule.seen.endswith(".")
        assert rule.refuted.endswith(".")
        assert main(["trace", "explain", rule.name]) == 0
        assert capfd.readouterr().out.count(rule.refuted) == 1
    assert anomalies_page.PAGE.read_text("utf-8") == anomalies_page.page(), "run: python -m docs.anomalies"


@pytest.mark.parametrize(
    ("end_s", "verdict"), [(5.0, "it died or was killed"), (30.0, "the connection between the two was lost")]
)
def test_a_lost_fellow_is_looked_up_in_its_own_trace(end_s: float, verdict: str, traces: Traces) -> None:
    traces.node("b", "1002").begin(0).line(end_s, "x")
    traces.node("a", "1001").begin(0).line(11, "Removing confirmed fellow 1002.", "remoteReader").line(
        40, "end"
    )
    (loss,) = found(traces, "fellow-lost")
    assert verdict in loss.explanation


def test_unanswered_requests_say_how_far_they_came(traces: Traces) -> None:
    unanswered(traces, answered=False)
    (finding,) = found(traces, "request-unanswered")
    assert "They were received, and no answer was sent" in finding.explanation
    assert finding.facts["groups"] == ["p.T"]


def test_the_command_ends_with_1_when_it_finds_something(
    traces: Traces, samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    storm(traces, 12)
    assert main(["trace", "anomalies", traces.write()]) == 1
    captured = capfd.readouterr()
    assert "merge-storm: a merged name-space ns 12 times" in captured.out
    assert "and 7 more lines" in captured.out
    assert main(["trace", "anomalies", str(samples / "late-joiner")]) == 0
    healthy = capfd.readouterr().out
    assert healthy.startswith("Verdict: no set was seen to be lost")
    assert "Story" not in healthy


def test_rules_are_listed_and_picked(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    storm(traces, 12)
    directory = traces.write()
    assert main(["trace", "anomalies", "--list"]) == 0
    assert "merge-storm" in capfd.readouterr().out
    assert main(["trace", "anomalies", directory, "--rule", "two-masters"]) == 0
    assert main(["trace", "anomalies", directory, "--rule", "no-such"]) == 2


def test_what_killed_a_node_of_our_engine_is_told_from_a_lost_connection(samples: pathlib.Path) -> None:
    facts = TraceFacts.from_records(merged(find_sources([str(samples / "own-engine")]).sources))
    findings = anomalies(facts)
    assert [(one.rule, one.facts["fellow"]) for one in findings] == [("fellow-lost", "n3")] * 2
    assert all("it died or was killed" in one.explanation for one in findings)
