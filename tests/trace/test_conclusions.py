"""What anomalies conclude from several lines: from when, why, and what is none although it looks like one."""

from __future__ import annotations

from tests.trace.making import START_S, Traces
from tests.trace.test_anomalies import diverged, emptied, follows
from tests.trace.words import CONFLICT, FELLOW, LINK, POLICY, REQUEST, SELF, SPACE, found


def test_a_total_loss_is_named_with_what_was_there(traces: Traces) -> None:
    emptied(traces, refilled=False)
    (loss,) = found(traces, "set-emptied")
    assert loss.facts["nodes"] == ["a", "b"]
    assert loss.facts["is_total"] is True
    assert loss.facts["samples_before"] == 50
    assert "no known node kept it" in loss.title


def test_a_set_that_was_never_known_to_have_data_was_not_emptied(traces: Traces) -> None:
    for node, address in (("a", "1001"), ("b", "1002")):
        traces.node(node, address).begin(0).line(2, POLICY.format("DELETE"))
    assert found(traces, "set-emptied") == []


def test_a_fellow_that_follows_another_or_was_lost_has_not_diverged(traces: Traces) -> None:
    diverged(traces, taken=False)
    traces.node("b").lines.pop()
    traces.node("b").line(7, "Removing confirmed fellow 1001.", "remoteReader").line(40, "end")
    assert found(traces, "set-diverged") == []


def test_two_masters_are_dated_from_the_moment_when_there_were_two(traces: Traces) -> None:
    for node, address, fellow in (("a", "1001", "1002"), ("b", "1002", "1001")):
        traces.node(node, address).begin(0).line(0.5, SPACE.format(fellow, fellow, 255))
    traces.node("a").line(1, SELF).line(60, "end")
    traces.node("b").line(30, SELF).line(50, FELLOW.format(1001)).line(60, "end")
    (two,) = found(traces, "two-masters")
    assert two.start_ns == (START_S + 30) * 1_000_000_000
    assert two.facts["overlap_ns"] == 20 * 1_000_000_000


def test_a_master_that_stops_is_none_while_it_stops(traces: Traces) -> None:
    for node, address, fellow in (("a", "1001", "1002"), ("b", "1002", "1001")):
        traces.node(node, address).begin(0).line(0.5, SPACE.format(fellow, fellow, 255))
    traces.node("a").line(1, SELF).line(20, "----ENTERING STATE----", state="TERMINATING")
    traces.node("a").line(40, "x", state="TERMINATING")
    traces.node("b").line(21, SELF).line(60, "end")
    assert found(traces, "two-masters") == []


def election(traces: Traces, node: str, at: float, number: int, master: str) -> None:
    """A master conflict and the choice that settles it."""
    trace = traces.node(node)
    trace.line(at, CONFLICT.format(1009, number), "d_nameSpaces").line(
        at + 0.1, f"Trying to resolve conflict {number}."
    )
    trace.line(at + 0.2, SELF if master == trace.address else FELLOW.format(master))
    trace.line(at + 0.3, f"Finished solving conflict {number}")


def test_restarts_and_stops_within_a_minute_are_no_live_lock(traces: Traces) -> None:
    """Every election settles within a second, although nodes come and go."""
    for node, address in (("a", "1001"), ("b", "1002"), ("c", "1003")):
        traces.node(node, address).begin(0)
    for at, master, stops, comes in (
        (2, "1003", "c", "2003"),
        (12, "1002", "b", "2002"),
        (22, "1001", "", ""),
    ):
        for number, node in enumerate("abc"):
            election(traces, node, at + number / 10, round(at), master)
        if stops:
            trace = traces.node(stops)
            trace.line(at + 4, "----ENTERING STATE----", "ospl_durability", "TERMINATING")
            trace.line(at + 5, "Durability destroyed", "ospl_durability", "TERMINATED")
            for other in set("abc") - {stops}:
                traces.node(other).line(at + 5, f"Removing confirmed fellow {trace.address}.")
                election(traces, other, at + 6, round(at) + 1, "1001")
            trace.address = comes
            trace.begin(at + 7)
            election(traces, stops, at + 8, round(at) + 2, "1001")
    assert found(traces, "master-livelock", "fellow-lost") == []


def test_a_node_that_restarts_again_and_again_is_no_live_lock(traces: Traces) -> None:
    """Each of its incarnations takes itself for the master for some seconds, and is another party."""
    traces.node("a", "1001").begin(0)
    trace = traces.node("b", "1002")
    for number in range(6):
        trace.address = str(2000 + number)
        trace.begin(2 + number * 8).line(3 + number * 8, SELF)
        election(traces, "a", 4 + number * 8, number, "1001")
        trace.line(8 + number * 8, "x")
    traces.node("a").line(60, "end")
    assert found(traces, "master-livelock") == []


def test_a_live_lock_ends_with_what_was_settled(traces: Traces) -> None:
    follows(traces.node("a", "1001").begin(0), "1001", 8)
    follows(traces.node("b", "1002").begin(0), "1002", 8)
    traces.node("a").line(30, "end")
    election(traces, "b", 10, 99, "1001")
    traces.node("b").line(30, "end")
    (lock,) = found(traces, "master-livelock")
    assert "did not settle on a master" in lock.title
    assert lock.facts["settled_ns"] == (START_S + 10) * 1_000_000_000 + 200_000_000


def test_the_cause_of_a_live_lock_survives_ids_of_dead_incarnations(traces: Traces) -> None:
    """n3 (50) chooses n1 (100), whose id is higher than that of n2 (200); an earlier n2 had a higher one."""
    for node, address, priority in (("n1", "3000", 100), ("n2", "9000", 200), ("n3", "1000", 50)):
        traces.node(node, address).begin(0, priority)
    for fellow, priority in (("3000", 100), ("9000", 200)):
        traces.node("n3").line(1, SPACE.format(fellow, fellow, priority))
    traces.node("n2").line(2, "Durability destroyed", state="TERMINATED")
    traces.node("n2").address = "2000"
    traces.node("n2").begin(10, 200)
    traces.node("n3").line(11, SPACE.format("2000", "2000", 200))
    for number in range(8):
        election(traces, "n2", 12 + number, number, "2000")
        election(traces, "n3", 12 + number, number, "3000")
    for node in ("n1", "n2", "n3"):
        traces.node(node).line(30, "end")
    (lock,) = found(traces, "master-livelock")
    assert (
        "The wrong choice is that of n3: n2 has the higher masterPriority (200 against 100)"
        in lock.explanation
    )


def test_an_orderly_stop_is_no_evidence_of_a_loss(traces: Traces) -> None:
    """A fellow is lost once, comes back, and stops in order later."""
    traces.node("b", "1002").begin(0).line(45, "x").line(60, "x", state="TERMINATING")
    trace = traces.node("a", "1001").begin(0).line(11, "Removing confirmed fellow 1002.", "remoteReader")
    trace.line(75, "Removing confirmed fellow 1002.", "remoteReader").line(90, "end")
    (loss,) = found(traces, "fellow-lost")
    assert loss.count == 1
    trace.line(91, "x", state="TERMINATING").line(92, "Removing confirmed fellow 1003.", state="TERMINATING")
    assert len(found(traces, "fellow-lost")) == 1


def test_an_empty_set_in_place_of_another_is_a_loss_too(traces: Traces) -> None:
    traces.node("b", "1002").begin(0).line(40, "x")
    whole = "Group p.T is now complete."
    trace = traces.node("a", "1001").begin(0).line(1, REQUEST).line(1.1, LINK).line(1.2, whole)
    trace.line(2, REQUEST).line(2.1, LINK.replace("50", "0")).line(2.2, POLICY.format("REPLACE"))
    trace.line(2.3, whole)
    (loss,) = found(traces, "set-emptied")
    assert loss.facts["nodes"] == ["a"]
    assert loss.facts["is_total"] is False
    trace.line(3, REQUEST).line(3.1, LINK).line(3.2, POLICY.format("REPLACE"))
    assert found(traces, "set-emptied") == []
