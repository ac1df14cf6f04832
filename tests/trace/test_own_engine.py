"""The trace of our engine is understood: every line that it writes, with its level and its fields."""

from __future__ import annotations

import collections
import datetime
import json
import pathlib

import pytest

from engine.core.name_spaces import MergeType
from engine.tracing.record import TextFormat
from ospltool.cli.app import main
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.record import RecordKind
from ospltool.trace.reading.sources import find_sources
from tests.simulation.scenarios import Scenario, node


def split_and_merge() -> Scenario:
    """Four nodes in two roles that are split, written to on both sides, and meet again."""
    rules = {"*": MergeType.MERGE}
    scenario = Scenario(
        *(node(name, role=role, merges=rules) for name, role in zip("abcd", "XXYY", strict=True))
    )
    scenario.start()
    scenario.until(scenario.complete)
    for name in "ad":
        scenario.writer(name)
    for flap in range(2):
        scenario.split("a c", "b d")
        scenario.write("a", 10 + flap)
        scenario.write("d", 20 + flap)
        scenario.heal()
        scenario.settle()
    return scenario


def written(scenario: Scenario, directory: pathlib.Path) -> str:
    """The traces of a scenario's nodes."""
    format_ = TextFormat(zone=datetime.UTC)
    lines: dict[str, list[str]] = {}
    for _, name, record in scenario.seen.records:
        lines.setdefault(name, []).append(f"{format_(record)}\n")
    for name, some in lines.items():
        (directory / name).mkdir(parents=True)
        (directory / name / "durability.log").write_text("".join(some), encoding="utf-8")
    return str(directory)


def test_every_line_of_our_engine_is_matched_with_its_level(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = split_and_merge()
    path = written(scenario, tmp_path / "traces")
    records = [record for record in merged(find_sources([path]).sources) if record.kind is RecordKind.TRACE]
    told = collections.Counter(
        (name, record.event.id, record.event.level.name) for _, name, record in scenario.seen.records
    )
    assert {event for _, event, _ in told} >= {"merge.started", "merge.finished"}
    assert collections.Counter((one.node, one.event, one.level) for one in records) == told

    facts = TraceFacts.from_records(records)
    merges = {(name, event): count for (name, event, _), count in told.items() if event == "merge.started"}
    assert collections.Counter(one.run[0] for one in facts.merges) == {
        name: count for (name, _), count in merges.items()
    }
    assert main(["trace", "load", path, "-o", str(tmp_path / "case")]) == 0
    capsys.readouterr()
    assert main(["sql", str(tmp_path / "case"), "merges", "--json"]) == 0
    assert '"policy"' in capsys.readouterr().out


def replaced_after_a_split() -> Scenario:
    """Three nodes of one role with Replace: one side of a split gives up what it took in."""
    scenario = Scenario(*(node(name, merges={"*": MergeType.REPLACE}) for name in "abc"))
    scenario.start()
    scenario.until(scenario.complete)
    for name in "ac":
        scenario.writer(name)
    scenario.write("a", 1)
    scenario.settle()
    scenario.split("a b", "c")
    scenario.write("a", 10)
    scenario.write("c", 20)
    scenario.heal()
    scenario.settle()
    return scenario


def test_what_replace_threw_away_is_told_with_its_size(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "anomalies", written(replaced_after_a_split(), tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["data"]
    thrown = [one for one in found["conclusions"] if one["kind"] == "thrown away"]
    assert thrown
    assert {one["facts"]["samples_before"] for one in thrown} == {2}
    assert all("2 samples, kept as set 1 of its store" in one["text"] for one in thrown)


def test_a_split_that_was_healed_leaves_no_open_conflict(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["trace", "anomalies", written(split_and_merge(), tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)["data"]
    assert not {"conflict-unresolved", "thread-silent", "set-diverged"} & {
        one["rule"] for one in found["findings"]
    }
    roles = [set(one["nodes"]) for one in found["findings"] if one["rule"] == "two-masters"]
    assert all(nodes in ({"a", "b"}, {"c", "d"}) for nodes in roles)
    assert {one["kind"] for one in found["conclusions"]} == {"joined"}


def test_a_follower_without_the_set_of_its_master_is_found(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of a follower about its new state and its alignments are taken out, and more time passes."""
    scenario = replaced_after_a_split()
    scenario.run(20.0)
    written(scenario, tmp_path)
    log = tmp_path / "b" / "durability.log"
    hidden = ("Updating state of namespace", "Alignment of group", "Write samplerequest", "Applying merge")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if not any(text in line for text in hidden)))
    main(["trace", "anomalies", str(tmp_path), "--json", "--rule", "set-diverged"])
    found = json.loads(capsys.readouterr().out)["data"]["findings"]
    assert [one["facts"]["node"] for one in found] == ["b"]
