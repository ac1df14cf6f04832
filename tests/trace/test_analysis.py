"""Conversations, timelines and explanations."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from ospltool.cli.app import main
from ospltool.trace.meaning.alignments import AlignmentEnd, AlignmentStep, TracedAlignment
from ospltool.trace.meaning.fact_kinds import StateSpan
from ospltool.trace.meaning.line_explanation import explain
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.views.conversation import as_mermaid, as_text, conversation
from ospltool.trace.views.timeline import timeline
from tests.trace.making import Trace, Traces


def test_every_alignment_of_a_real_run_is_put_together(samples: pathlib.Path) -> None:
    facts = TraceFacts.from_records(merged(find_sources([str(samples / "late-joiner")]).sources))
    found = facts.book.all()
    assert len(found) >= 20
    assert {one.end for one in found} <= {AlignmentEnd.COMPLETE, AlignmentEnd.ABSORBED}
    complete = [one for one in found if one.end is AlignmentEnd.COMPLETE]
    assert all(
        one.has(AlignmentStep.REQUESTED) and one.has(AlignmentStep.RECEIVED) and one.has(AlignmentStep.LINK)
        for one in complete
    )
    assert all(one.samples == one.samples_sent for one in complete if one.samples_sent is not None)


def test_a_conversation_follows_a_late_joiner(samples: pathlib.Path) -> None:
    talk = conversation(merged(find_sources([str(samples / "late-joiner")]).sources), "partA.T1")
    assert talk.nodes == ["n1", "n2", "n3"]
    (joined,) = [one for one in talk.exchanges if talk.names.node(one.alignee) == "n3"]
    assert (talk.names.node(joined.aligner), joined.samples, joined.end) == (
        "n1",
        1100,
        AlignmentEnd.COMPLETE,
    )
    assert [step for step, _ in joined.steps] == [
        AlignmentStep.REQUESTED,
        AlignmentStep.RECEIVED,
        AlignmentStep.SENDING,
        AlignmentStep.SENT,
        AlignmentStep.LINK,
        AlignmentStep.BEADS,
        AlignmentStep.COMPLETE,
    ]
    text = "\n".join(as_text(talk))
    assert "1,100 samples" in text
    diagram = list(as_mermaid(talk))
    assert diagram[0] == "sequenceDiagram"
    assert sum("-->>" in one for one in diagram) == sum(one.has(AlignmentStep.SENT) for one in talk.exchanges)


def test_arrows_point_from_sender_to_receiver(traces: Traces) -> None:
    asks, answers = traces.node("a", "1001").begin(0), traces.node("b", "1002").begin(0)
    asks.line(1, "Write samplerequest for group p.T to fellow 1002 using source (0,0,0)")
    received = (
        "Received sample request for group p.T from fellow 1001 using source (0,0,0), adding it to queue."
    )
    answers.line(1.1, received).line(2, "Sent 5 samples for group p.T to fellow 1001 (1 fellows total).")
    talk = conversation(merged(find_sources([traces.write()]).sources), "p.T")
    lines = list(as_text(talk))
    assert next(line for line in lines if "request 1 -" in line).rstrip().endswith(">|")
    assert "|<" in next(line for line in lines if "answer 1: 5 samples" in line)
    assert "open" in lines[-1]


def test_names_do_not_break_out_of_a_diagram(traces: Traces) -> None:
    asks = traces.node("a;end", "1001").begin(0)
    asks.line(1, "Write samplerequest for group p.T to fellow 1002 using source (0,0,0)")
    talk = conversation(merged(find_sources([traces.write()]).sources), "p.T")
    assert "    participant p1 as a#59;end" in list(as_mermaid(talk))


@pytest.mark.parametrize(
    ("order", "ends"),
    [
        ("answered", [AlignmentEnd.COMPLETE]),
        ("aligner lost", [AlignmentEnd.ALIGNER_LOST]),
        ("restarted", [AlignmentEnd.RESTARTED]),
        ("refused", [AlignmentEnd.REFUSED]),
        ("nothing", [AlignmentEnd.OPEN]),
    ],
)
def test_alignments_end_as_the_trace_says(order: str, ends: list[AlignmentEnd], traces: Traces) -> None:
    trace = traces.node("a", "1001").begin(0)
    trace.line(1, "Write samplerequest for group p.T to fellow 1002 using source (0,0,0)")
    if order == "answered":
        trace.line(2, "Received link from fellow 1002 for group p.T containing 5 samples. #links == 1")
        trace.line(3, "Group p.T is now complete.")
    elif order == "aligner lost":
        trace.line(2, "Removing confirmed fellow 1002.")
    elif order == "restarted":
        trace.address = "1003"
        trace.begin(5)
    elif order == "refused":
        trace.line(
            2,
            "Received link from fellow 1002 for group 'p.T' where it informs me it will not align me. This "
            "means that "
            "our data model or state is incompatible. I need to disconnect the fellow and discover it again.",
        )
    facts = TraceFacts.from_records(merged(find_sources([traces.write()]).sources))
    assert [one.end for one in facts.book.all()] == ends


def test_a_combined_answer_serves_everybody(traces: Traces) -> None:
    for name, address in (("a", "1001"), ("b", "1002")):
        asks = traces.node(name, address).begin(0)
        asks.line(1, "Write samplerequest for group p.T to fellow 1003 using source (0,0,0)")
        asks.line(4, "Received link from fellow 1003 for group p.T containing 9 samples. #links == 1")
        asks.line(5, "Group p.T is now complete.")
    aligner = traces.node("c", "1003").begin(0)
    for fellow in (1001, 1002):
        received = f"Received sample request for group p.T from fellow {fellow} using source (0,0,0)"
        aligner.line(1.1, f"{received}, adding it to queue.")
    aligner.line(1.2, "Sample request for group p.T from fellow 1002 combined with existing request.")
    aligner.line(2, "Now sending data for group p.T to 2 fellow(s) [1001,1002].")
    aligner.line(3, "Sent 9 samples for group p.T to fellow 0 (2 fellows total).")
    facts = TraceFacts.from_records(merged(find_sources([traces.write()]).sources))
    found = facts.book.all()
    assert [(one.samples_sent, one.samples, one.end) for one in found] == [(9, 9, AlignmentEnd.COMPLETE)] * 2
    assert [one.has(AlignmentStep.COMBINED) for one in found] == [False, True]


def test_the_timeline_says_where_seven_seconds_went(samples: pathlib.Path) -> None:
    facts = TraceFacts.from_records(merged(find_sources([str(samples / "late-joiner")]).sources))
    runs = {run.run[0]: run for run in timeline(facts).runs}
    joined = runs["n3"]
    assert joined.operational_ns is not None
    assert 8.0e9 < joined.operational_ns < 8.2e9
    phases = {phase.span.state: phase for phase in joined.phases}
    discovery = phases["DISCOVER_FELLOWS_GROUPS"].waits[0]
    assert 2.9e9 < discovery.length_ns < 3.1e9
    assert discovery.before.text.startswith("Waiting some time to allow fellows to report")
    election = phases["DISCOVER_PERSISTENT_SOURCE"].waits[0]
    assert 3.9e9 < election.length_ns < 4.2e9
    assert election.before.text.startswith("Waiting the heartbeat expiry period")
    assert sum(phase.length_ns for phase in joined.phases if phase.span.state != "COMPLETE") == pytest.approx(
        joined.operational_ns, rel=0.01
    )


def test_answers_come_as_json_too(samples: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = str(samples / "late-joiner")
    for arguments, kind in (
        (["conversation", "partA.T1", directory], "trace-conversation"),
        (["timeline", directory], "trace-timeline"),
        (["anomalies", directory], "trace-anomalies"),
        (["explain", "align.request"], "trace-explanation"),
    ):
        assert main(["trace", *arguments, "--json"]) == 0
        answer = json.loads(capfd.readouterr().out)
        assert (answer["format_version"], answer["kind"]) == (1, kind)


def test_a_group_that_nobody_aligned_is_a_finding(
    samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "conversation", "no.Such", str(samples / "late-joiner")]) == 1
    assert "no alignment of this group" in capfd.readouterr().err


EXPLAINED = {
    "a message": ("Group partA.T1 is now complete.", "group.complete"),
    "a whole line": (
        "2026-11-21T01:05:12+0000 1795223112.035874883 INIT (t) -> Requesting nameSpaces from fellow 7.",
        "namespace.requesting",
    ),
    "a line of an older release": ("1510591395.7 INIT", ""),
    "a line of the store": ("1510591395.741573630 PersistentStore (KV) -> Loading groups ...", ""),
    "a template": ("d_admin:1053", "election.confirmed-fellow"),
    "a place in the source": ("d_groupLocalListener.c:1868", "election.confirmed-fellow"),
    "an event": ("align.request", "align.request"),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_lines_are_explained(name: str) -> None:
    text, event = EXPLAINED[name]
    found = explain(text)
    if name == "a line of an older release":
        assert found == []  # cut off: no header, no message
        return
    assert found
    assert found[0].template.event == event
    if event:
        assert found[0].template.meaning


def test_what_nobody_knows_is_a_finding(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "explain", "an unheard-of message"]) == 1
    assert "no template matches" in capfd.readouterr().err


def test_an_explanation_shows_fields_and_source(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "trace",
                "explain",
                "Conflict 5 is similar to already existing conflict 3, discarding conflict 5",
            ]
        )
        == 0
    )
    output = capfd.readouterr().out
    assert "d_conflictResolver.c:1306" in output
    assert "other_conflict" in output
    assert "dropped" in output


def test_our_engine_aligns_whole_name_spaces(samples: pathlib.Path) -> None:
    talk = conversation(merged(find_sources([str(samples / "own-engine")]).sources), "ships.Observation")
    ends = [(talk.names.node(one.alignee), talk.names.node(one.aligner), one.end) for one in talk.exchanges]
    assert (
        sorted(ends) == [("n2", "n1", AlignmentEnd.COMPLETE)] * 2 + [("n3", "n1", AlignmentEnd.COMPLETE)] * 3
    )
    assert [one.samples for one in talk.exchanges] == [0, 0, 1210, 1210, 1210]
    combined, later = talk.exchanges[:2], talk.exchanges[2:]
    assert all(one.has(AlignmentStep.SENT) and one.samples_sent == 0 for one in combined)
    assert [one.has(AlignmentStep.SENT) for one in later] == [
        False,
        True,
        True,
    ]  # the first aligner was killed
    assert next(as_text(talk)).startswith("ships.Observation (with all of name-space harbour): 5 alignments")


def test_a_group_that_no_line_names_is_said_to_be_none(
    samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for group, notes in (("ships.Observation", 0), ("ships.Nothing", 1)):
        assert main(["trace", "conversation", group, str(samples / "own-engine")]) == 0
        captured = capfd.readouterr()
        assert f"{group} (with all of name-space harbour)" in captured.out
        assert captured.err.count("no line of these traces names this group") == notes


def test_groups_of_no_name_space_have_no_conversation(samples: pathlib.Path) -> None:
    talk = conversation(merged(find_sources([str(samples / "own-engine")]).sources), "other.Observation")
    assert talk.exchanges == ()


OURS = {"//OpenSplice/Domain/Name": "{}", "//OpenSplice/DurabilityService/NameSpaces/NameSpace[@name]": "ns"}


def our_node(traces: Traces, name: str) -> Trace:
    """A node of our engine begins: it keeps its id, and is called by its name."""
    trace = traces.node(name, f"{ord(name):032x}")
    lines = [f"\n- {setting}: {value.format(name)} (default)" for setting, value in OURS.items()]
    partition = "\n- //OpenSplice/DurabilityService/NameSpaces/NameSpace/Partition: ship* (/a b/n.xml:3:4)"
    trace.line(0, f"Configuration:{''.join(lines)}{partition}", "ospl_durability", "INIT")
    return trace.line(0, f"My address is: '{trace.address}'", "ospl_durability", "INIT")


def test_a_merge_of_our_engine_has_its_policy(traces: Traces) -> None:
    asks, answers = our_node(traces, "a"), our_node(traces, "b")
    merge = "Applying merge with my master fellow b for nameSpace 'ns' to solve conflict 7."
    asks.line(1, f"{merge} (policy Merge, role 'r')").line(
        1.001, "Write samplerequest for group ns to fellow b using source (1)"
    )
    received = "Received sample request for group ns from fellow a using source (1), adding it to queue."
    answers.line(1.1, received).line(1.2, "Now sending data for group ns to 1 fellow(s) [a].")
    sent = "Sent 5 samples for group ns to fellow a (1 fellows total), 5 samples in the set, 99 bytes."
    answers.line(1.25, sent)
    asks.line(
        1.3, "Merge of nameSpace 'ns' with role 'r' finished: collect, 5 samples moved, 0.100000000 seconds."
    )
    done = "Alignment of group ns from fellow b using source (1) finished: 5 samples in 0.100000000 seconds."
    asks.line(1.31, done)
    directory = traces.write()
    (merge_of_set,) = conversation(merged(find_sources([directory]).sources), "ships.T").exchanges
    assert (merge_of_set.policy, merge_of_set.end) == ("MERGE", AlignmentEnd.COMPLETE)
    assert merge_of_set.has(AlignmentStep.APPLIED)
    run = next(
        one
        for one in timeline(TraceFacts.from_records(merged(find_sources([directory]).sources))).runs
        if one.run[0] == "a"
    )
    assert run.merges == 1
    assert run.merge_ns == pytest.approx(309_000_000)


def test_answers_of_our_engine_go_to_the_request_of_their_number(traces: Traces) -> None:
    asks = our_node(traces, "a")
    for number in (1, 2):
        asks.line(number, f"Write samplerequest for group ns to fellow b using source ({number})")
    asks.line(
        3, "Alignment of group ns from fellow b using source (2) finished: 5 samples in 0.100000000 seconds."
    )
    found = TraceFacts.from_records(merged(find_sources([traces.write()]).sources)).book.all()
    assert [(one.source, one.end) for one in found] == [
        ("1", AlignmentEnd.OPEN),
        ("2", AlignmentEnd.COMPLETE),
    ]


def test_a_node_of_our_engine_that_starts_anew_gives_up_its_requests(traces: Traces) -> None:
    our_node(traces, "a").line(1, "Write samplerequest for group ns to fellow b using source (1)")
    our_node(traces, "a")
    found = TraceFacts.from_records(merged(find_sources([traces.write()]).sources)).book.all()
    assert [one.end for one in found] == [AlignmentEnd.RESTARTED]


class CountedList(list[Any]):
    """A list that counts how often it was walked through."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def test_a_timeline_of_many_runs_walks_through_the_facts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 120 runs in 400 MB, each walked through all alignments and waits: half a minute of silence."""
    facts = TraceFacts()
    place = RecordPlace("n1", "f", 0, 5, "text")
    for number in range(50):
        run = ("n1", number)
        facts.first_ns[run], facts.last_ns[run] = number * 100, number * 100 + 99
        facts.states.append(StateSpan(run, "COMPLETE", number * 100, number * 100 + 99, place))
        facts.applied.append((run, "MERGE", "ns", facts.lines.add(place)))
    lists = {name: CountedList(getattr(facts, name)) for name in ("states", "waits", "conflicts", "readers")}
    for name, one in lists.items():
        setattr(facts, name, one)
    books: list[str] = []
    usual = facts.book.all

    def noted() -> list[TracedAlignment]:
        books.append("all")
        return usual()

    monkeypatch.setattr(facts.book, "all", noted)
    assert len(timeline(facts).runs) == 50
    assert [one.walks for one in lists.values()] == [1, 1, 1, 1]
    assert len(books) == 2
