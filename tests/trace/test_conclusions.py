"""What anomalies conclude from several lines: from when, why, and what is none although it looks like one."""

from __future__ import annotations

import pathlib

import pytest

from ospltool.cli.app import main
from ospltool.forensics.story import stories
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


# ------------------------------------------------------------------ lost fellows, reports and times

RESTARTED = "Removing confirmed fellow n1. Reason: it was restarted."
OVERDUE = "Removing confirmed fellow n1. Reason: its heartbeat is overdue."
MISSED = "Missed heartbeat for node 1002. (DCPSPublication is complete)"
LEASE = (
    "Splice-daemon failed to renew its lease within the configured lease expiry-time (10.000000000). "
    "The lease renewal took {} s."
)


def run_of_n1(traces: Traces, from_s: float, until_s: float) -> None:
    """A run of a node of ospltool, which keeps its address, without a stop."""
    traces.node("n1", "n1").begin(from_s).line(until_s, "x")


def reports(traces: Traces, *entries: tuple[float, str, str], node: str = "a") -> None:
    """Write a log of reports: seconds, type and text of each."""
    traces.directory.joinpath(node).mkdir(parents=True, exist_ok=True)
    rule = "=" * 88
    traces.directory.joinpath(node, "ospl-info.log").write_text(
        "".join(
            f"{rule}\nReport      : {kind}\nDate        : x\nDescription : {text}\nNode        : h\n"
            f"Process     : p <1>\nThread      : t 1\n"
            f"Internals   : 6.9/x/y/v_spliced/s.c/1/0/{START_S + at_s:.9f}/0\n"
            for at_s, kind, text in entries
        )
    )


@pytest.mark.parametrize(
    ("ends_s", "begins_s", "lost_s", "text", "told", "separated"),
    [
        (
            10.0,
            10.3,
            10.8,
            RESTARTED,
            "ends 800.0 ms before, without a stop: it died or was killed, and",
            False,
        ),
        (
            10.0,
            12.0,
            14.0,
            OVERDUE,
            "ends 4.00 s before, without a stop: it was started again 2.00 s before",
            False,
        ),
        (10.0, None, 10.4, OVERDUE, "without a stop: it died or was killed, or its trace was cut", False),
        (10.0, 40.0, 14.0, OVERDUE, "without a stop: it died or was killed, or its trace was cut", False),
        (30.0, None, 14.0, OVERDUE, "the connection between the two was lost", True),
        (30.0, None, 29.5, OVERDUE, "the connection between the two was lost", True),
    ],
)
def test_a_lost_fellow_ran_on_only_if_its_trace_goes_on(
    ends_s: float,
    begins_s: float | None,
    lost_s: float,
    text: str,
    told: str,
    separated: bool,
    traces: Traces,
) -> None:
    run_of_n1(traces, 0, ends_s)
    if begins_s is not None:
        run_of_n1(traces, begins_s, 60)
    ending = "Removing confirmed fellow n1. Reason: it is terminating."
    trace = traces.node("n2", "n2").begin(0).line(lost_s, text, "d_status").line(lost_s + 3, ending)
    trace.line(90, "end")
    (loss,) = found(traces, "fellow-lost")
    assert [place.text for place in loss.evidence] == [text]
    assert told in loss.explanation
    assert (loss.facts["separated"], "connection" in loss.explanation) == (separated, separated)


@pytest.mark.parametrize(
    ("words", "fellow"),
    [("1002", "1002"), ("- heartbeat id : 1002", "1002"), ("-294965296", "4000002000")],
    ids=["6.9", "6.4", "signed"],
)
@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_a_missed_heartbeat_counts_at_any_level(level: str, words: str, fellow: str, traces: Traces) -> None:
    reports(traces, (10, level, MISSED.replace("1002", words)))
    (loss,) = found(traces)
    assert (loss.rule, loss.title, loss.facts["fellow"]) == (
        "fellow-lost", f"a reports 1 missed heartbeat of {fellow}", fellow,
    )  # fmt: skip


@pytest.mark.parametrize(("stops", "number"), [(True, 0), (False, 1)])
def test_a_missed_heartbeat_is_looked_up_in_the_trace_of_the_fellow(
    stops: bool, number: int, traces: Traces
) -> None:
    trace = traces.node("b", "1002").begin(0).line(5, "x")
    if stops:
        trace.line(6, "----ENTERING STATE----", "ospl_durability", "TERMINATING")
    reports(traces, (12, "INFO", MISSED))
    losses = found(traces, "fellow-lost")
    assert len(losses) == number
    assert all("it died or was killed" in one.explanation for one in losses)


def test_a_node_that_stood_still_itself_blames_nobody(traces: Traces) -> None:
    reports(traces, (99, "ERROR", LEASE.format("22327.5")), (100, "INFO", MISSED))
    (loss,) = found(traces, "fellow-lost")
    assert "a itself stood still for 6 h 12 min" in loss.explanation


DIED = "Unknown service 'splicedaemon' died"


@pytest.mark.parametrize("first_s", [98, 99, 101], ids=["before", "with", "after"])
def test_what_a_process_that_stood_still_causes_is_one_story(first_s: float, traces: Traces) -> None:
    """A dead service and missed heartbeats follow from the lease, whichever is reported first."""
    reports(
        traces, (first_s, "ERROR", LEASE.format("22327.5")), (99.1, "ERROR", DIED), (99.2, "ERROR", DIED),
        (100, "INFO", MISSED), (5_000, "ERROR", LEASE.format("12.0")), (5_001, "ERROR", DIED),
        (9_000, "ERROR", "another"),
    )  # fmt: skip
    told = stories(found(traces))
    assert [len(one.findings) for one in told] == [3, 1]
    assert told[0].title.startswith("a ERROR 2 times, at first: Splice-daemon failed to renew")
    assert told[0].title.endswith("(2 findings follow from it)")


@pytest.mark.parametrize(
    "entries",
    [
        [(99, "ERROR", LEASE.format("12.0")), (900, "ERROR", DIED)],
        [(99, "ERROR", LEASE.format("12.0")), (105, "ERROR", "Topic failed")],
        [(99, "ERROR", LEASE.format("12.0")), (400, "INFO", MISSED)],
    ],
    ids=["later", "of something else", "a heartbeat missed later"],
)
def test_what_does_not_follow_from_a_lease_is_a_story_of_its_own(
    entries: list[tuple[float, str, str]], traces: Traces
) -> None:
    reports(traces, *entries)
    assert len(stories(found(traces))) == 2


def test_reports_that_always_come_together_are_one_story(traces: Traces) -> None:
    entries = [
        (at + number / 100, "ERROR", text)
        for at in (10, 400, 90_000)
        for number, text in enumerate(("c_metaBind failed", "Deserialize failed", "Topic failed"))
    ]
    reports(traces, *entries, (401, "ERROR", "another"))
    told = stories(found(traces))
    assert [len(one.findings) for one in told] == [3, 1]


def test_a_shown_text_is_cut_between_words(traces: Traces) -> None:
    reports(traces, (1, "ERROR", "longword " * 40))
    (one,) = found(traces, "reported")
    assert one.title.endswith("longword…")
    assert one.title.startswith("a ERROR 1 time: longword longword")


def test_what_a_timeline_does_not_know_is_no_failure(
    samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "timeline", str(samples / "late-joiner" / "n2" / "durability.log")]) == 0
    out = capfd.readouterr().out
    assert "0 of" not in out
    assert "649285054 from n2  partA.T1: 1 alignment, 1 unknown (no trace of one of the two)" in out
    assert main(["trace", "timeline", str(samples / "late-joiner" / "n2" / "ospl-info.log")]) == 1
    assert "no timed record of a durability trace" in capfd.readouterr().err


def test_a_level_of_reports_is_a_level(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    reports(traces, (1, "INFO", "one"), (2, "ERROR", "two"), (3, "FATAL", "three"))
    log = str(traces.directory / "a" / "ospl-info.log")
    for level in ("ERROR", "error", "SEVERE"):
        assert main(["trace", log, "--level", level, "--format", "template={text}"]) == 0
        assert capfd.readouterr().out == "two\nthree\n"


def test_a_time_without_records_is_named(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    reports(traces, (0, "INFO", "one"), (40_000, "INFO", "two"))
    log = str(traces.directory / "a" / "ospl-info.log")
    assert main(["trace", log, "--around", "11:30:00±3s"]) == 0
    assert (
        "no such record from 2026-11-21T11:29:57.000Z to 2026-11-21T11:30:03.000Z" in capfd.readouterr().err
    )
    assert main(["trace", log, "--around", "12:10:00±1h", "--format", "template={text}"]) == 0
    assert capfd.readouterr().out == "two\n"


def test_a_place_of_evidence_is_no_line_number(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    reports(traces, (1, "INFO", "one"), (2, "ERROR", "two"))
    log = traces.directory / "a" / "ospl-info.log"
    assert main(["trace", "anomalies", str(log)]) == 1
    assert f"{log}, byte {log.read_bytes().index(b'=' * 88, 100)}\n" in capfd.readouterr().out
