"""Recordings as evidence, and what an investigation makes of damaged files."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from ospltool.cli.app import main
from tests.forensics.fuzz_forensics import targets
from tests.forensics.recordings import recording
from tests.fuzzing import Target, faults
from tests.trace.making import Traces


def judged(capfd: pytest.CaptureFixture[str], *names: str) -> tuple[int, dict[str, Any]]:
    code = main(["trace", "anomalies", "--json", *names])
    return code, json.loads(capfd.readouterr().out)["data"]


def test_a_set_that_a_recording_shows_to_become_empty_is_told(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    traces.node("n1", "1001").begin(0).line(9, "end")
    directory = traces.write()
    (traces.directory / "night.jsonl").write_bytes(recording([5, 7, 0, 0]))
    code, found = judged(capfd, directory)
    (gone,) = [one for one in found["conclusions"] if one["kind"] == "shrank"]
    assert code == 1
    assert "had up to 7 samples and is empty from here on" in gone["text"]


@pytest.mark.parametrize("sizes", [[0, 0], [5, 0, 6], [5, 7]])
def test_a_set_that_is_not_empty_in_the_end_is_not(
    sizes: list[int], tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "night.jsonl"
    path.write_bytes(recording(sizes))
    code, found = judged(capfd, str(path))
    assert code == 0
    assert [one for one in found["conclusions"] if not one["is_harmless"]] == []
    assert "there is no trace" in " ".join(found["unknown"])


@pytest.mark.parametrize("target", targets(), ids=lambda one: one.name)
def test_damaged_files_beside_traces_are_no_fault(target: Target) -> None:
    assert faults(target, range(150)) == []
