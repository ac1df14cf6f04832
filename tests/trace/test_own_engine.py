"""The trace of our engine is understood: every line that it writes, with its level and its fields."""

from __future__ import annotations

import collections
import datetime
from typing import TYPE_CHECKING

from engine.core.namespaces import MergeType
from engine.tracing.formats import TextFormat
from ospltool.cli.app import main
from ospltool.trace.meaning.facts import Facts
from ospltool.trace.reading.merge import merged
from ospltool.trace.reading.record import Kind
from ospltool.trace.reading.sources import find_sources
from tests.simulation.scenarios import Scenario, node

if TYPE_CHECKING:
    import pathlib

    import pytest


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
    records = [record for record in merged(find_sources([path]).sources) if record.kind is Kind.TRACE]
    told = collections.Counter(
        (name, record.event.id, record.event.level.name) for _, name, record in scenario.seen.records
    )
    assert {event for _, event, _ in told} >= {"merge.started", "merge.finished"}
    assert collections.Counter((one.node, one.event, one.level) for one in records) == told

    facts = Facts.of(records)
    merges = {(name, event): count for (name, event, _), count in told.items() if event == "merge.started"}
    assert collections.Counter(one.run[0] for one in facts.merges) == {
        name: count for (name, _), count in merges.items()
    }
    assert main(["trace", "load", path, "-o", str(tmp_path / "case")]) == 0
    capsys.readouterr()
    assert main(["sql", str(tmp_path / "case"), "merges", "--json"]) == 0
    assert '"policy"' in capsys.readouterr().out
