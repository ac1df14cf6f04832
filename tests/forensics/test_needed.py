"""The facts of a case come from few of its records, and are those of all of them."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import random
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="cases need the extra `sql`")

import pathlib
from collections.abc import Iterator

import pyarrow as pa

from ospltool.analytics.case import open_case
from ospltool.analytics.contract import FORMAT_VERSION, SAMPLED, SAMPLED_MOD
from ospltool.analytics.duck import DuckEngine
from ospltool.forensics.evidence import CaseEvidence
from ospltool.trace.case.loading import load
from ospltool.trace.case.reading_back import (
    WantedRecords,
    Window,
    _in_file_order,
    files_by_domain,
    records_of,
    rows_of,
    telling_of_alignments,
    telling_of_facts,
    uncalm_domains,
)
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.trace_facts import EVENTS, REPORTED, TraceFacts
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.views.conversation import conversation

SAMPLES = pathlib.Path(__file__).parents[2] / "samples" / "traces"
START_S = 1_795_223_000
STATES = ("INIT", "DISCOVER_FELLOWS_GROUPS", "COMPLETE", "COMPLETE", "COMPLETE", "TERMINATING")
THREADS = ("conflictResolver", "d_newGroup", "d_nameSpaces", "ospl_durability")
QUIET = ("Remote group 'p.T' complete, check for unfulfilled chains.", "nothing that anybody knows", "")
TELLING = (
    "My address is: '{node}'",
    "Configuration:\n- Role : R",
    "Applying REPLACE merge policy for group p.T",
    "Write samplerequest for group p.T to fellow {other} using source (0,0,0)",
    "Received link from fellow {other} for group p.T containing 7 samples. #links == 1",
    "Received sample request for group p.T from fellow {other} using source (0,0,0), adding it to queue.",
    "Sample request for group p.T from fellow {other} combined with existing request.",
    "Now sending data for group p.T to 1 fellow(s) [{other}].",
    "Sent 7 samples for group p.T to fellow {other} (1 fellows total).",
    "WRITE: 4, DISPOSED: 2, WRITE_DISPOSED: 1, REGISTER: 3, UNREGISTER: 0 EOT: 0 (SKIPPED: 0)",
    "Group p.T (with 7 samples) equal to fellow {other} (1 fellows total), no samples sent.",
    "Received equal link from fellow {other} for group p.T containing 7 samples. #links == 1",
    "Received 7 beads for group p.T.",
    "Group p.T is now complete.",
    "Injected: TOTAL: 7, WRITE: 4, DISPOSE: 2, WRITE_DISPOSE: 1, REGISTER: 3, UNREGISTER: 0, EOT: 0.",
    "Finished solving conflict 4",
    "Removing confirmed fellow {other}, ignoring messages from this fellow for 10.000000000",
)
WINDOWS = (
    Window(),
    Window(since_ns=(START_S + 2) * 10**9),
    Window(since_ns=(START_S + 1) * 10**9, until_ns=(START_S + 4) * 10**9),
    Window(nodes=("1001",)),
)
SKEWS: tuple[dict[str, int], ...] = ({}, {"1002": 1_500_000_000})


def _line(dice: random.Random, at_ns: int, node: str, state: str) -> str:
    second, rest = divmod(at_ns, 10**9)
    local = datetime.datetime.fromtimestamp(second + (dice.random() < 0.01), datetime.UTC)
    texts = TELLING if dice.random() < 0.3 else QUIET
    text = dice.choice(texts).format(node=node, other="1002" if node == "1001" else "1001")
    who = f"{state} ({dice.choice(THREADS)})"
    if dice.random() < 0.05:
        who, text = "PersistentStore (KV)", dice.choice((text, "Persistent store directory '/s' opened."))
    return f"{local:%Y-%m-%dT%H:%M:%S+0000} {second}.{rest:09d} {who} -> {text}\n"


def _write(dice: random.Random, path: pathlib.Path, node: str, begin_ns: int, *, calm: bool) -> int:
    """Writes a trace with everything that may go wrong in one; returns when it ends. A calm clock runs on."""
    at, state, lines = begin_ns, "INIT", []
    for _ in range(dice.randrange(40, 120)):
        at += dice.choice((0, 1_000_000, 3_000_000, 20_000_000, 150_000_000))
        if dice.random() < 0.06:
            state = dice.choice(STATES)
        late = dice.choice((0, 0, 0, 0, 400_000, 600_000_000)) if dice.random() < 0.3 else 0
        late = min(late, 9_000_000) if calm else late
        set_back = 5 * 10**9 if dice.random() < 0.01 and not calm else 0
        straggler = dice.choice(STATES) if dice.random() < 0.05 else state
        lines.append(_line(dice, at - late - set_back, node, straggler))
        if len(lines) == 1 and dice.random() < 0.3:  # the first one is the store's, which has no state
            lines[0] = lines[0].replace(f"{straggler} (", "PersistentStore (")
        if dice.random() < 0.01:
            lines.append("2026-11-21T01:0 this is not a header\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return at


def is_calm(seed: int) -> bool:
    return seed % 4 == 0


@pytest.fixture
def evidence(
    tmp_path: pathlib.Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CaseEvidence]:
    """A case of two nodes with several files each, in pieces of some lines, by a seed.

    The files of odd seeds lie over each other, and the clocks of those with no remainder by 4 are calm.
    """
    dice = random.Random(request.param)
    monkeypatch.setattr("ospltool.trace.reading.ranges.pieces.__defaults__", (dice.randrange(300, 3_000),))
    for node in ("1001", "1002"):
        at = START_S * 10**9
        for number in range(dice.randrange(1, 4)):
            end = _write(
                dice,
                tmp_path / "logs" / node / f"durability{number}.log",
                node,
                at,
                calm=is_calm(request.param),
            )
            at = end + 10**7 if request.param % 2 == 0 else at + dice.randrange(10**9)
    (tmp_path / "logs" / "1001" / "ospl-info.log").write_text(
        "=" * 92 + "\nReport      : WARNING\nDate        : 2026-11-21T01:03:21+0000\nDescription : one\n"
        "Node        : n\nProcess     : p <1>\nThread      : t 1\nInternals   : V6/x/y.c/1/0/1.5\n"
    )
    load(find_sources(_logs(tmp_path)).sources, tmp_path / "case", processes=1)
    case = open_case(tmp_path / "case")
    with contextlib.closing(DuckEngine(case)) as opened:
        yield CaseEvidence(case, opened)


def _logs(directory: pathlib.Path) -> list[str]:
    return [f"{path.parent.name}={path}" for path in sorted((directory / "logs").glob("*/*.log"))]


def told(facts: TraceFacts, *, with_waits: bool) -> dict[str, Any]:
    """What facts say; how they came to it is left out."""
    said = {name: value for name, value in vars(facts).items() if not name.startswith("_")}
    said["book"], said["names"] = facts.book.all(), facts.names
    said["applied"] = [(*one, facts.lines.place(line)) for *one, line in facts.applied]
    del said["lines"]
    said["activity"] = {key: (one.last_ns, one.last) for key, one in facts.activity.items()}
    said["activity"] = sorted(said["activity"].items())
    if not with_waits:
        del said["waits"]
    return said


@pytest.mark.parametrize("evidence", range(24), indirect=True)
def test_facts_of_the_needed_records_are_those_of_all(evidence: CaseEvidence) -> None:
    for window in WINDOWS:
        for skews in SKEWS:
            expected = TraceFacts.from_records(evidence.records(window, skews))
            for with_waits in (True, False):
                found = evidence.facts(window, skews, with_waits=with_waits)
                assert told(found, with_waits=with_waits) == told(expected, with_waits=with_waits), with_waits


def _key(record: TraceRecord) -> tuple[str, int, int | None, int]:
    return record.file, record.offset, record.time_ns, record.run


def _keys(rows: pa.RecordBatch, skews: dict[str, int]) -> Iterator[tuple[str, int, int | None, int]]:
    for one in rows.select(["node", "file", "off", "time_ns", "run"]).to_pylist():
        time_ns = None if one["time_ns"] is None else one["time_ns"] + skews.get(one["node"], 0)
        yield one["file"], one["off"], time_ns, one["run"]


@pytest.mark.parametrize("evidence", range(8), indirect=True)
def test_marks_are_used_where_they_suffice(
    evidence: CaseEvidence, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    """They do if the clocks of the case are calm and its files lie one after the other; see `edges`."""
    seed = request.node.callspec.params["evidence"]
    case = open_case(tmp_path / "case")
    with contextlib.closing(DuckEngine(case)) as opened:
        is_marked = not uncalm_domains(files_by_domain(opened))
        sources = find_sources(_logs(tmp_path)).sources
        of_facts = telling_of_facts(with_waits=False)
        of_group = (telling_of_alignments(["lifecycle.address"], "p.T"), "false")
        for skews in SKEWS:
            batches = records_of(case, opened, WantedRecords(skews=skews))
            every = [_key(record) for some in batches for record in some]
            assert every == [_key(record) for record in merged(sources, skews)], (
                "another run than the reader's"
            )
            for telling, quiet in (of_facts, of_group):
                wanted = WantedRecords(skews=skews, telling=telling, quiet=quiet)
                found = [key for rows in rows_of(case, opened, wanted) for key in _keys(rows, skews)]
                assert found == [one for one in every if one in set(found)], "another order, or another run"
    if is_calm(seed):
        assert is_marked
    elif seed % 2:
        assert not is_marked
    del evidence


@pytest.mark.parametrize("at_once", range(1, 6))
def test_records_that_were_written_late_keep_their_place(at_once: int) -> None:
    """Also those right after the beginning of a piece, which are not marked: the piece before ended later."""
    rows = [("f", 20, 95), ("f", 30, 97), ("e", 0, 98), ("f", 10, 100), ("f", 40, 200), ("f", 50, 200)]
    columns = [{"node": "n", "file": file, "off": at, "place_ns": ms * 10**6} for file, at, ms in rows]
    batches = [pa.RecordBatch.from_pylist(columns[at : at + at_once]) for at in range(0, len(rows), at_once)]
    found = [(one["file"], one["off"]) for some in _in_file_order(batches) for one in some.to_pylist()]
    assert found == [("e", 0), ("f", 10), ("f", 20), ("f", 30), ("f", 40), ("f", 50)]


@pytest.mark.parametrize("evidence", range(4), indirect=True)
def test_a_conversation_of_the_needed_records_is_that_of_all(evidence: CaseEvidence) -> None:
    for window in WINDOWS:
        for skews in SKEWS:
            for run in (None, 1):
                expected = conversation(evidence.records(window, skews), "p.T", run)
                found = conversation(evidence.alignments(window, skews, "p.T"), "p.T", run)
                assert found == expected
                assert expected.exchanges or window != WINDOWS[0] or run


@pytest.mark.parametrize("sample", ["own-engine", "master-livelock"])
def test_a_conversation_of_a_case_is_that_of_its_files(sample: str, tmp_path: pathlib.Path) -> None:
    """Other events than those of the group matter: lost fellows, and in ospltool whole name-spaces."""
    sources = find_sources([str(SAMPLES / sample)]).sources
    load(sources, tmp_path / "case", processes=1)
    case = open_case(tmp_path / "case")
    with contextlib.closing(DuckEngine(case)) as opened:
        evidence = CaseEvidence(case, opened)
        records = list(evidence.records(Window(), {}))
        groups = sorted({record.fields["group"] for record in records if "group" in record.fields})
        found = {one: conversation(evidence.alignments(Window(), {}, one), one) for one in groups}
    assert any(each.exchanges for each in found.values())
    for group, each in found.items():
        assert each == conversation(records, group)


def test_records_that_tell_nothing_are_not_made(tmp_path: pathlib.Path) -> None:
    dice = random.Random(1)
    lines = [f"{START_S + n}.000000000 COMPLETE (t) -> {QUIET[0]}\n" for n in range(5_000)]
    (tmp_path / "n1.log").write_text("".join(lines) + _line(dice, (START_S + 9_000) * 10**9, "1001", "INIT"))
    load(find_sources([str(tmp_path / "n1.log")]).sources, tmp_path / "case", processes=1)
    case = open_case(tmp_path / "case")
    with contextlib.closing(DuckEngine(case)) as opened:
        telling, quiet = telling_of_facts(with_waits=False)
        found = list(rows_of(case, opened, WantedRecords(telling=telling, quiet=quiet)))
        assert sum(map(len, records_of(case, opened, WantedRecords()))) == 5_001
    times = [time_ns for rows in found for time_ns in rows.column("time_ns").to_pylist()]
    needed = [one for one in times if one % SAMPLED_MOD >= SAMPLED_MOD * SAMPLED // 5_001]
    assert needed == [(START_S + at) * 10**9 for at in (0, 1, 4_999, 9_000)], "first, last, and a new run"
    assert SAMPLED / 2 < len(times) < SAMPLED * 2, "those by which a copy is known"


def test_which_records_state_facts_is_a_part_of_the_format() -> None:
    """They are marked while a case is loaded: a case of an older format would lack the marks of new ones."""
    stating = [one.id for one in catalogue() if one.event in EVENTS or one.level in REPORTED]
    digest = hashlib.blake2b("\n".join(sorted({*stating, *REPORTED})).encode(), digest_size=8).hexdigest()
    assert (FORMAT_VERSION, digest) == (5, "d456bcb7c7153758"), "raise FORMAT_VERSION"
