"""`ospltool show`: a recorded system as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import time
from typing import Any

import pytest
from rich.cells import cell_len

from engine.runtime.monitor import AlignmentView, DeliveryView, DeviationView, GroupView, UnkeptView
from ospltool.health.health import Health
from ospltool.health.system import Source
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.recorder import Recorder
from ospltool.live.supervision import SupervisorReport
from ospltool.views.pages import PAGES
from tests import fake
from tests.commands.shell import Shell
from tests.fake import SECOND_NS, START_NS, node_id
from tests.machine import check_ratio, child_s, count_s, slowness

HOSTILE = "\x1b]0;gone\x07\u202e"
LENGTH_S = 20
LOST_S = 8
"""When n3 is heard last."""


def group(topic: str, samples: int, **changes: Any) -> GroupView:
    told: dict[str, Any] = {
        "partition": "harbour",
        "type_name": "depot::Item",
        "digest": "ab",
        "newest_ns": START_NS,
    }
    told |= {
        "durability": "PERSISTENT",
        "instances": samples,
        "bytes": 40 * samples,
        "stored": samples,
        "lost": 0,
    }
    return GroupView(name_space="harbour", topic=topic, samples=samples, **{**told, **changes})


def states_at(second: int) -> list[ReceivedSnapshot]:
    """n1 leads and serves late joiners, n2 aligns with it, n3 is lost."""
    now_ns = START_NS + second * SECOND_NS
    beats = [fake.fellow(number, now_ns) for number in (1, 2, 3)]
    done = min(1000, 20 * second)
    aligning = AlignmentView("from", node_id(1), done, 1000, 40 * done, START_NS)
    waiting = DeliveryView("cd" * 16, "Track", "harbour", "waiting", 0, START_NS, 0)
    failed = DeliveryView("ef" * 16, "Temp", "harbour", "failed", 3, START_NS, now_ns, "its process left")
    common: dict[str, Any] = {"time_ns": now_ns}
    lost = fake.fellow(3, START_NS, communication="lost")
    unkept = UnkeptView("aa" * 16, "Depth", "harbour", "untyped", "keyed type without type information")
    harbour = fake.name_space("harbour", 1, count=1000, master_since_ns=START_NS - 60 * SECOND_NS)
    lacking = fake.name_space(
        "harbour", 1, count=done, phase="align", complete=False, alignments=(aligning,), digest="1"
    )
    told = [
        fake.snapshot(
            1, harbour, **common,
            fellows=(beats[1], beats[2] if second <= LOST_S else lost),
            groups=(group("Track", 900), group(f"T{HOSTILE}", 100, stored=80)),
            deliveries=(failed,),
            deviations=(DeviationView("01" * 16, "Track", "harbour", {"owned": 2}),),
            unkept=(unkept,),
        ),
        fake.snapshot(
            2, lacking, **common, state="FETCH_INITIAL", fellows=(beats[0],), groups=(group("Track", done),),
            deliveries=(waiting,),
        ),
    ]  # fmt: skip
    if second <= LOST_S:
        told.append(fake.snapshot(3, harbour, **common, fellows=(beats[0],)))
    return [ReceivedSnapshot(one, now_ns) for one in told]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("show") / "night.rec"
    expected = Expectation(("n1", "n2", "n3"), (ExpectedSpace("harbour", copies=3, on_disk=3),))
    recorder = Recorder(path, source="domain 7", made_by="test", expected=expected)
    for second in range(LENGTH_S + 1):
        now_ns = START_NS + second * SECOND_NS
        events = [fake.event(second, 1, now_ns, f"tick {second}{HOSTILE}")] if second % 10 == 0 else []
        left = FeedNotice(NoticeKind.NODE_LOST, now_ns, "its participant has left", node_id(3))
        notices = (left,) if second == LOST_S + 1 else ()
        recorder.write(Update(tuple(states_at(second)), tuple(events), notices), now_ns)
    recorder.close()
    return path


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def check_show(shell: Shell, source: pathlib.Path, arguments: str, *lines: str) -> list[str]:
    """A page has lines that begin so, blanks aside, and fits 80 columns; return all its lines."""
    code, out, err = shell.run("show", *arguments.split(), "--replay", source)
    assert (code, err) == (2, ""), "an incident is an error"
    shown = out.splitlines()
    assert max(map(cell_len, shown)) <= 80
    assert all(line.isprintable() for line in shown)
    told = [" ".join(line.split()) for line in shown]
    assert [line for line in lines if not any(one.startswith(line) for one in told)] == []
    return told


WHOLE = (
    "✖ ERROR · 1 error, 4 warnings · 1 of 3 nodes complete · redundancy left 0: the",
    "✖ 12 s DUL-NODE-GONE n3 is gone",
    "▲ 19 s DUL-NOT-KEPT n1 does not keep a durable writer of harbour.Depth:",
    "● n1 complete 10 min now 1 of 1 harbour 1,000 1 of 2",
    "◐ n2 fetch initial 10 min now 0 of 1 400 1 of 1",
    "✖ n3 gone 12 s 1 of 1 1,000 1 of 1",
    "◐ harbour n1 1,000 1 of 2 0 n2: 40 %, from n1",
    "★ harbour DefaultRole n1 1 min highest masterPriority of n1",
    "◐ 20 s harbour n1 n2 ━━━━╸╌╌╌╌╌╌ 40 % 400/1,000 20/s 30 s",
    "✖ harbour.Temp failed 20 s n1 3 its process left",
    "○ harbour.Track waiting 20 s n2 0 waits until",
    "▲ harbour.Depth n1 aaaaaaaaaaa",
)
PAGES_WITH_LINES: dict[str, tuple[str, ...]] = {
    "": WHOLE,
    "nodes": WHOLE[3:6],
    "nodes n1": ("● n1 complete up 10 min heard now", "● n2 DefaultRole complete approved now +0 ms"),
    "nodes --filter !gone --columns node,host,pid": ("node host pid", "n1 host-1 4001", "n2 host-2 4002"),
    "fellows": ("● n1 1 of 2 20 s 0 ms n3 (lost)", "◐ n2 1 of 1 now 0 ms"),
    "fellows n1": ("✖ n3 DefaultRole complete lost 20 s +0 ms",),
    "name-spaces": WHOLE[6:7],
    "name-spaces harbour": (
        "★ DefaultRole: n1 highest masterPriority of n1 200, n2 100, n3 50 1/00000001",
        "◐ ◐ n2 align 400 n1 Initial, Persistent 100 1",
    ),
    "masters": WHOLE[7:8],
    "masters harbour": WHOLE[7:8],
    "alignment": WHOLE[8:11],
    "groups": (
        r"harbour.T\x1b]0;gone\x07… harbour 1 100 3.9 KiB 20 s -20",
        "harbour.Track harbour 2 900 35.2 KiB 20 s all",
    ),
    "groups Track": ("★ n1 900 samples 900 instances 35.2 KiB on disk all digest ab",),
    "topics": (
        "✖ Temp 0 0 1 1 its process left",
        "▲ Track harbour 900 0 2 2 2 instances of",
    ),
    "topics Track": (
        "★ n1 900 samples 900 instances 35.2 KiB on disk all digest ab",
        "`ospltool cat Track` prints its samples",
        "0 writers, 2 readers, 2 not kept or served",
        "▲ reader participant 0101",
        "recorded or simulated: only readers and writers",
    ),
    "topics Depth": (
        "Depth no node has a group of it",
        "▲ writer participant aaaaaaaaaaaaaaaaaaaaaaaa not kept n1",
    ),
    "applications": ("✖ participant ef",),
    "applications aaaaaaaaaaaaaaaaaaaaaaaa000001c1": (
        "▲ writer harbour.Depth not kept n1 keyed type without type information",
    ),
    "readers": (*WHOLE[9:11], "▲ harbour.Track served n1 2 instances of the"),
    "readers Temp --columns topic,why": ("harbour.Temp its process left",),
    "writers": WHOLE[11:],
    "incidents": ("✖ 12 s open DUL-NODE-GONE n3 n3 is gone",),
    "incidents n3": ("Effect harbour: 1 of 3 copies, 0 of 3 on disk, the last copy, n1 is master,",),
    "alignment --filter absent": ("the filter 'absent' matches no alignment",),
    "writers --filter absent": ("the filter 'absent' matches no writers",),
    "writers Temp": ("no node reports a durable writer of this topic whose data is not kept",),
    "incidents --filter absent": ("the filter 'absent' matches no incidents",),
    "events": (r"01:03:40.000 n1: tick 20\x1b]0;gone\x07\u202e",),
    "events n1 --no-header --sort=-time": (r"01:03:20.000 n1: tick 0\x1b]0;gone\x07\u202e",),
}


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("arguments", PAGES_WITH_LINES)
def test_a_page_says_who_what_and_why_in_80_columns(
    shell: Shell, night: pathlib.Path, arguments: str
) -> None:
    check_show(shell, night, arguments, *PAGES_WITH_LINES[arguments])


@pytest.mark.parametrize("width", [60, 100, 160])
@pytest.mark.parametrize("what", ["", "alignment", "groups"])
def test_a_page_fits_any_width(
    shell: Shell, night: pathlib.Path, monkeypatch: pytest.MonkeyPatch, what: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = shell.run("show", *filter(None, [what]), "--replay", night)[1]
    assert max(map(cell_len, out.splitlines())) <= width
    assert "40 %" in out or what == "groups"


@pytest.mark.usefixtures("columns")
def test_rows_are_sorted_and_headings_left_out(shell: Shell, night: pathlib.Path) -> None:
    shown = check_show(shell, night, "nodes --sort=-samples --columns node,samples --no-header")
    assert shown == ["n3 1,000", "n1 1,000", "n2 400"]
    assert check_show(shell, night, "nodes --sort samples --columns node")[1:] == ["n2", "n3", "n1"]


def test_without_a_terminal_nothing_is_cut(
    shell: Shell, night: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    _, out, _ = shell.run("show", "masters", "--replay", night)
    assert (
        "n1  1 min  n2, n3  " in out.replace("DefaultRole  ", "")
        or "highest masterPriority of n1 200, n2 100, n3 50" in out
    )
    assert out == shell.run("show", "masters", "--replay", night, "--format", "wide")[1]


def test_other_formats_have_values_and_no_words(shell: Shell, night: pathlib.Path) -> None:
    def told(*arguments: str) -> str:
        code, out, _ = shell.run("show", *arguments, "--replay", night)
        assert code == 2
        return out

    (one,) = json.loads(told("alignment", "--format", "json"))["data"]
    assert one == {
        "since_ns": START_NS, "name_space": "harbour", "aligner": "n1", "alignee": "n2", "fraction": 0.4,
        "samples": 400, "expected": 1000, "rate_per_s": 20.0, "left_s": 30.0, "bytes": 16_000,
    }  # fmt: skip
    lines = [json.loads(line) for line in told("nodes", "--format", "jsonl", "--sort", "node").splitlines()]
    assert [(one["kind"], one["data"]["node"], one["data"]["incomplete"]) for one in lines] == [
        ("nodes", "n1", []), ("nodes", "n2", ["harbour"]), ("nodes", "n3", []),
    ]  # fmt: skip
    for what, name, key in (
        ("nodes", "n2", "node"),
        ("incidents", "n3", "who"),
        ("topics", "Track", "topic"),
    ):
        (one,) = json.loads(told(what, name, "--format", "json"))["data"]
        assert one[key] == name, "of one name only what has it"
    states = [
        one["state"] for one in json.loads(told("applications", "efefefef", "--format", "json"))["data"]
    ]
    assert states == ["failed"]
    every = json.loads(told("applications", "--format", "json"))["data"]
    assert [one["lacking"] for one in every] == [1, 1, 1, 1]
    rows = list(
        csv.DictReader(io.StringIO(told("groups", "--format", "csv", "--columns", "group,samples,newest")))
    )
    assert rows[1] == {"group": "harbour.Track", "samples": "900", "newest_ns": str(START_NS)}
    every = json.loads(told("--format", "json"))["data"]
    assert every["verdict"] == "error"
    assert [one["code"] for one in every["incidents"]][:1] == ["DUL-NODE-GONE"]
    assert {"nodes", "name-spaces", "masters", "alignment", "readers", "writers", "events"} < every.keys()
    assert every["masters"][0]["why"] == "highest masterPriority of n1 200, n2 100, n3 50"


@pytest.mark.usefixtures("columns")
def test_an_earlier_moment_is_shown_as_it_was(shell: Shell, night: pathlib.Path) -> None:
    code, out, _ = shell.run(
        "show", "nodes", "--replay", night, "--at", "+5", "--columns", "node,state,samples"
    )
    assert code == 1, "n2 starts"
    assert [" ".join(line.split()) for line in out.splitlines()[1:]] == [
        "n1 complete 1,000", "n2 fetch initial 100", "n3 complete 1,000",
    ]  # fmt: skip


REFUSED = {
    "nodse": "did you mean nodes?",
    "nodes n9": "no node 'n9'; there are n1, n2, n3",
    "topics Trakc": "did you mean Track?",
    "applications ab": "no application 'ab'; there are",
    "masters harbor": "did you mean harbour?",
    "readers Trakc": "did you mean Track?",
    "writers Trakc": "did you mean Track?",
    "nodes --columns nodee": "did you mean node?",
    "nodes --sort=-stat": "no column 'stat'; did you mean state?",
    "--sort node": "need a table",
    "--format csv": "needs a table",
    "nodes --watch": "need a live domain",
    "nodes --wait": "need a live domain",
    "alignment --timeout 5s": "--timeout needs --wait",
    "nodes --format yaml": "yaml",
    "no.toml": "no.toml:1:1: cannot be read",
    "nodes no.toml": "no.toml:1:1: cannot be read",
    "nodes n1 no.toml": "no.toml:1:1: cannot be read",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_cannot_be_shown_is_refused_with_the_reason(
    shell: Shell, night: pathlib.Path, arguments: str
) -> None:
    code, out, err = shell.run("show", *arguments.split(), "--replay", night)
    assert (code, out) == (2, "")
    assert REFUSED[arguments] in err
    assert "Traceback" not in err


def test_a_simulated_system_has_every_page(shell: Shell) -> None:
    for what in ("", *PAGES):
        code, out, err = shell.run(
            "show", *filter(None, [what]), "--simulate", "none", "--seed", "7", "--at", "+30"
        )
        assert code == 2, err
        assert out


LARGE_SYSTEM = """
import io, sys
from ospltool.cli.show import TableOptions, _Printer
from ospltool.health.health import Health
from ospltool.health.system import System
from tests.fake import FakeFeed
from tests.machine import peak_bytes
system = System((FakeFeed(200, 4, 25, own_groups=True), Health))
for _ in range(8):
    system.update()
assert (len(system.model.nodes), len(system.model.groups)) == (200, 5_000)
for what in ("", "groups"):
    _Printer(system, what, "", TableOptions()).put()
assert peak_bytes() <= 150e6, peak_bytes()
"""


def test_200_nodes_with_5000_groups_are_shown_in_two_seconds_and_150_megabytes() -> None:
    check_ratio(lambda: child_s(["-c", LARGE_SYSTEM]), lambda: slowness(count_s()), 2.0)


def test_the_verdict_counts_a_node_that_is_heard_a_moment_after_the_first_look(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch examines what it hears four times a second, and ends as soon as all have answered."""

    def heard_soon(*_: object, **__: object) -> list[Source]:
        return [(fake.FakeFeed(1, 1, period_ns=SECOND_NS // 10, clock=time.time_ns), Health)]

    monkeypatch.setattr("ospltool.cli.domains.sources", heard_soon)
    code, out, err = shell.run("show")
    assert code != 3, err
    assert "n1" in out
    assert "UNKNOWN" not in out


ENDED = SupervisorReport("it ended in order", in_order=True, ended_ns=START_NS)
WAITED: dict[str, tuple[int, dict[str, SupervisorReport], int, str]] = {
    # what n2 is, while n1 is whole: nodes that are heard, reports of supervisors, exit code, text
    "not heard": (1, {}, 1, "not whole: ○ n2: not heard yet"),
    "ended in order": (1, {"n2": ENDED}, 0, ""),
    "nobody heard": (0, {}, 3, "no node heard in script"),
}


@pytest.mark.parametrize("case", WAITED)
def test_a_wait_for_alignment_ends_when_every_expected_node_is_whole_or_has_ended(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    nodes, reports, expected, told = WAITED[case]
    heard = tuple(
        ReceivedSnapshot(fake.snapshot(n, fake.name_space("harbour", n)), START_NS)
        for n in range(1, nodes + 1)
    )

    def sources(*_: object, **__: object) -> list[Source]:
        feed = fake.ScriptedFeed([(START_NS, Update(heard))])
        return [(feed, lambda model: Health(model, Expectation(("n1", "n2")), reports=lambda: reports))]

    monkeypatch.setattr("ospltool.cli.domains.sources", sources)
    code, _, err = shell.run("show", "alignment", "--wait", "--timeout", "1s")
    assert code == expected, err
    assert told in err


def test_a_shell_completes_pages_and_knows_the_names_of_each(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(words: str) -> list[str]:
        monkeypatch.setenv("_OSPLTOOL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", f"ospltool show {words}")
        monkeypatch.setenv("COMP_CWORD", str(1 + len(words.split(" "))))
        return shell.run()[1].split()

    feed = fake.FakeFeed(12, 2, 3)
    monkeypatch.setattr("ospltool.cli.domains.sources", lambda *_, **__: [(feed, Health)])
    assert completed("na") == ["name-spaces"]
    assert completed("nodes n1") == ["n1", "n10", "n11", "n12"]
    assert completed("masters ") == ["space-01", "space-02"]
