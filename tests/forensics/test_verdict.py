"""The verdict on the data: what became of sets, and what is not claimed."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from ospltool.cli.app import main
from ospltool.health.codes import codes
from ospltool.trace.rules import CODES, SetFate, all_rules
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv, write_xml
from tests.stores.own_stores import described, write_ours
from tests.trace.making import Trace, Traces

SELF = "Confirming master: I am the master for nameSpace 'ns'."
FELLOW = "Confirming master: Fellow '{}' is the master for nameSpace 'ns'."
LOST = "Removing confirmed fellow {}."
REQUEST = "Write samplerequest for group p.T to fellow {} using source (0,0,0)"
LINK = "Received link from fellow {} for group p.T containing {} samples. #links == 1"
COMPLETE = "Group p.T is now complete."
INJECTED = (
    "Injected: TOTAL: {0}, WRITE: {0}, DISPOSE: {1}, WRITE_DISPOSE: 0, REGISTER: 0, UNREGISTER: 0, EOT: 0."
)
POLICY = "Applying {} merge policy for group p.T"
MERGED = "Updating state of namespace 'ns' to '{}' for role 'DefaultRole'"
SLAVED = "Slaving to my master, set the state of namespace 'ns' to '{}' for role 'DefaultRole'"


def take(trace: Trace, at: float, aligner: str, samples: int, policy: str = "", disposes: int = 0) -> None:
    """An alignment of the group, as its alignee tells it."""
    trace.line(at, REQUEST.format(aligner)).line(at + 0.1, LINK.format(aligner, samples), "d_sampleChain")
    if policy:
        trace.line(at + 0.2, POLICY.format(policy), "d_sampleChain")
    trace.line(at + 0.3, COMPLETE, "d_sampleChain")
    trace.line(at + 0.31, INJECTED.format(samples, disposes), "d_sampleChain")


def two(traces: Traces) -> tuple[Trace, Trace]:
    """Node a, the master, and node b, which follows it and has its set of 50 samples."""
    first = traces.node("a", "1001").begin(0).line(1, SELF)
    second = traces.node("b", "1002").begin(0).line(1.5, FELLOW.format("1001"))
    take(second, 2, "1001", 50)
    return first, second


def cut_off(traces: Traces, policy: str, *, aligned_again: bool = False) -> None:
    """b is cut off, and takes a's set of 60 samples when it is back."""
    first, second = two(traces)
    first.line(20, LOST.format("1002"), "remoteReader")
    second.line(20, LOST.format("1001"), "remoteReader")
    if aligned_again:
        take(second, 25, "1001", 60)
    take(second, 30, "1001", 60, policy)
    first.line(60, "end")
    second.line(60, "end")


def restarted(traces: Traces, policy: str, *, aligned: str = "") -> None:
    """a is down for 10 seconds, begins again with what its disk has, and b takes its set."""
    first, second = two(traces)
    first.line(20, "end")
    second.line(21, LOST.format("1001"), "remoteReader")
    first.address = "1003"
    first.begin(30)
    if aligned:
        take(first, 32, aligned, 60)
    first.line(34, SELF)
    second.line(35, FELLOW.format("1003"))
    take(second, 36, "1003", 50, policy)
    first.line(60, "end")
    second.line(60, "end")


def taken_again(traces: Traces, samples: int, disposes: int) -> None:
    """b takes a set of a in place of its own, which had 50 samples, and disposes among them."""
    first = traces.node("a", "1001").begin(0).line(1, SELF).line(60, "end")
    second = traces.node("b", "1002").begin(0)
    take(second, 2, "1001", 50, disposes=disposes)
    take(second, 30, "1001", samples, "REPLACE")
    second.line(60, "end")
    assert first.address != second.address


def behind(traces: Traces, follows: str, taken_s: float = 0) -> None:
    """a's merge state goes on to 2, and b stays in state 1."""
    first, second = two(traces)
    second.line(3, SLAVED.format(1))
    first.line(10, MERGED.format(2)).line(60, "end")
    if follows != "1001":
        second.line(9, FELLOW.format(follows))
    if taken_s:
        take(second, taken_s, "1001", 70, "MERGE")
        second.line(taken_s + 0.5, SLAVED.format(2))
    second.line(60, "end")


def emptied(traces: Traces, kept: bool) -> None:
    first, second = two(traces)
    second.line(30, POLICY.format("DELETE"), "d_sampleChain").line(60, "end")
    if not kept:
        first.line(30, POLICY.format("DELETE"), "d_sampleChain")
    first.line(60, "end")


CASES: dict[str, tuple[Callable[..., None], tuple[Any, ...], SetFate, tuple[Any, ...]]] = {
    "thrown away by Replace": (cut_off, ("REPLACE",), SetFate.THROWN_AWAY, ("MERGE",)),
    "thrown away by Catchup": (cut_off, ("CATCHUP",), SetFate.THROWN_AWAY, ("MERGE",)),
    "thrown away by what a restarted node had": (restarted, ("REPLACE",), SetFate.THROWN_AWAY, ("MERGE",)),
    "shrank": (taken_again, (30, 0), SetFate.SHRANK, (50, 0)),
    "shrank by more than was disposed": (taken_again, (30, 5), SetFate.SHRANK, (45, 5)),
    "diverged": (behind, ("1001",), SetFate.DIVERGED, ("1003",)),
    "delayed": (behind, ("1001", 40), SetFate.DELAYED, ("1001", 11)),
    "joined": (cut_off, ("MERGE",), SetFate.JOINED, ("REPLACE",)),
    "replaced": (taken_again, (60, 0), SetFate.REPLACED, (30, 0)),
    "emptied": (emptied, (True,), SetFate.EMPTIED, (False,)),
    "lost": (emptied, (False,), SetFate.LOST, (True,)),
}


def judged(capfd: pytest.CaptureFixture[str], *names: str) -> dict[str, Any]:
    main(["trace", "anomalies", "--json", *names])
    found: dict[str, Any] = json.loads(capfd.readouterr().out)["data"]
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_became_of_a_set_is_told(name: str, traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    make, arguments, kind, _ = CASES[name]
    make(traces, *arguments)
    found = judged(capfd, traces.write())
    assert kind.value in [one["kind"] for one in found["conclusions"]]


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_seen_is_not_told(name: str, traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    make, _, kind, arguments = CASES[name]
    make(traces, *arguments)
    found = judged(capfd, traces.write())
    assert kind.value not in [one["kind"] for one in found["conclusions"]]


def test_a_set_that_was_aligned_in_between_was_not_thrown_away(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    cut_off(traces, "REPLACE", aligned_again=True)
    kinds = [one["kind"] for one in judged(capfd, traces.write())["conclusions"]]
    assert SetFate.THROWN_AWAY.value not in kinds


@pytest.mark.parametrize("aligner", ["1002", "1009"])
def test_a_restarted_node_that_has_caught_up_throws_nothing_away(
    aligner: str, traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    restarted(traces, "REPLACE", aligned=aligner)
    kinds = [one["kind"] for one in judged(capfd, traces.write())["conclusions"]]
    assert SetFate.THROWN_AWAY.value not in kinds


def test_what_a_restarted_node_missed_is_named_with_its_time(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    """Sets of equal size are no evidence that nothing was lost."""
    restarted(traces, "REPLACE")
    verdict = judged(capfd, traces.write())["verdict"]
    assert "b threw away whatever it had captured of p.T between two runs of a, from 01:03:40.000 " in verdict
    assert "to 01:03:50.000: REPLACE put the set of a (50 samples) in place of its own" in verdict


def test_a_set_that_was_given_to_the_other_before_was_not_thrown_away(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only b's trace is there: b answered a's request, and then took the set of a."""
    _, second = two(traces)
    traces.traces.pop("a")
    request = (
        "Received sample request for group p.T from fellow 1001 using source (0,0,0), adding it to queue."
    )
    second.line(20, LOST.format("1001"), "remoteReader").line(29, request)
    second.line(
        29.1, "Sent 50 samples for group p.T to fellow 1001 (1 fellows total).", "sampleRequestHandler"
    )
    take(second, 30, "1001", 60, "REPLACE")
    kinds = [one["kind"] for one in judged(capfd, traces.write())["conclusions"]]
    assert kinds == [SetFate.REPLACED.value]


def test_what_a_format_keeps_longer_is_no_difference(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An XML store holds samples that newer ones took the place of, until it is optimized."""
    old, new = Message(1, text="old", time_ns=BASE_NS), Message(1, text="new", time_ns=BASE_NS + 9)
    write_kv(tmp_path / "a" / "s", Version((Held((new,)),)))
    write_xml(tmp_path / "b" / "s", Version((Held((old, new)),)))
    kinds = [one["kind"] for one in judged(capfd, str(tmp_path))["conclusions"]]
    assert kinds == [SetFate.EQUAL.value]


def test_the_worst_is_the_first_line(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    emptied(traces, kept=False)
    assert main(["trace", "anomalies", traces.write()]) == 1
    first, *_ = capfd.readouterr().out.splitlines()
    assert first.startswith("Verdict: 2026-11-21T")
    assert "the set of p.T was emptied on a, b: no known node kept it; up to 50 samples were there" in first


def test_nodes_without_trace_are_unknown(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    take(traces.node("b", "1002").begin(0), 2, "1001", 50)
    unknown = " ".join(judged(capfd, traces.write())["unknown"])
    assert "there is no trace of 1001" in unknown
    assert "there are no stores" in unknown


def test_stores_beside_the_traces_are_compared(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    two(traces)
    directory = traces.write()
    group = described("p", "T", 1)
    write_ours(traces.directory / "a" / "store", {group: [Message(key).sample() for key in range(5)]})
    write_ours(traces.directory / "b" / "store", {group: [Message(key).sample() for key in range(3)]})
    found = judged(capfd, directory)
    (differs,) = [one for one in found["conclusions"] if one["kind"] == "differs"]
    assert differs["nodes"] == ["a", "b"]
    assert differs["facts"]["differing"] == 2
    assert "b has 3 samples, lacks 2 instances" in differs["text"]
    alone = judged(capfd, directory, "--traces-only")
    assert [one for one in alone["conclusions"] if one["kind"] == "differs"] == []


def test_the_real_split_and_merge_lost_nothing(
    samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = judged(capfd, str(samples / "traces" / "late-joiner"), str(samples / "stores" / "after-merge"))
    kinds = {one["kind"] for one in found["conclusions"] if not one["is_harmless"]}
    assert kinds <= {"differs"}


def test_findings_of_one_cause_are_one_story(
    samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = judged(capfd, str(samples / "traces" / "master-livelock"))
    (story,) = [one for one in found["stories"] if 0 in one["findings"]]
    rules = {found["findings"][place]["rule"] for place in story["findings"]}
    assert rules >= {"master-livelock", "merge-storm", "equal-set-transferred"}
    places = sorted(place for one in found["stories"] for place in one["findings"])
    assert places == list(range(len(found["findings"])))


def test_very_many_findings_are_told_in_bounded_time_and_space(
    traces: Traces, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = traces.node("a").begin(0)
    created = (
        "Master conflict in namespace 'ns' for fellow 1009 detected, conflict {} created (use_legacy: 0)"
    )
    for number in range(3_000):
        trace.line(1 + number / 100, created.format(number), "d_nameSpaces")
    trace.line(90, "end")
    directory = traces.write()
    found = judged(capfd, directory)
    assert sum(len(one["findings"]) for one in found["stories"]) == len(found["findings"]) == 3_000
    begun = time.process_time()
    assert main(["report", directory, "-o", str(tmp_path / "r.html")]) == 1
    assert time.process_time() - begun < 30
    assert (tmp_path / "r.html").stat().st_size < 20_000_000


def test_findings_have_the_codes_of_health_where_both_exist(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    assert set(CODES.values()) <= set(codes())
    assert set(CODES) <= {rule.name for rule in all_rules()}
    behind(traces, "1001")
    found = judged(capfd, traces.write())["findings"]
    assert [(one["rule"], one["code"]) for one in found] == [("set-diverged", "DUL-SET-DIFFERS")]


def answer(trace: Trace, at: float, fellow: str, samples: int) -> None:
    """A request of a fellow and the whole set in answer, as the aligner tells it."""
    asked = f"Received sample request for group p.T from fellow {fellow} using source (0,0,0), adding it to "
    trace.line(at, f"{asked}queue.")
    trace.line(at + 0.1, f"Sent {samples} samples for group p.T to fellow {fellow} (1 fellows total).")


def test_roles_that_share_a_scope_end_with_different_sets(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    """The master of a role joins the set of another role, and its follower never has it."""
    first, second = two(traces)
    traces.node("c", "1003").begin(0).line(60, "end")
    second.line(3, SLAVED.format(1))
    take(first, 10, "1003", 70, "MERGE")
    first.line(11, MERGED.format(2))
    answer(first, 30, "1003", 270)
    answer(second, 31, "1003", 200)
    first.line(60, "end")
    second.line(35, "end")
    found = judged(capfd, traces.write())
    (diverged,) = [one for one in found["conclusions"] if one["kind"] == "diverged"]
    assert diverged["facts"]["diverged_ns"] == 24 * 10**9
    assert (
        "b stayed in merge state 1 of name-space ns while its master a was in 2, for 24.00 s"
        in diverged["text"]
    )
    assert diverged["text"].endswith("last seen sizes differ: p.T (a 270, b 200)")
    assert found["verdict"].endswith(diverged["text"])


@pytest.mark.parametrize("layout", ["{}", "{}/store", "run/{}/pstore-{}"])
def test_stores_belong_to_the_node_of_their_directory(
    layout: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    group = described("p", "T", 1)
    for node, count in (("x", 5), ("y", 3)):
        path = tmp_path / layout.format(node, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_ours(path, {group: [Message(key).sample() for key in range(count)]})
    (differs,) = judged(capfd, str(tmp_path))["conclusions"]
    assert (differs["kind"], differs["nodes"]) == ("differs", ["x", "y"])
