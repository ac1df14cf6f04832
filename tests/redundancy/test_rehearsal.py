from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.redundancy.scenario import FAULTS
from ospltool.cli.app import main

SAMPLE = Path(__file__).parents[2] / "samples" / "redundant-persistence" / "service.xml"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("instances", ["2", "3", "5"])
def test_a_rehearsal_ends_with_the_same_values_everywhere(
    capsys: pytest.CaptureFixture[str], fault: str, instances: str
) -> None:
    arguments = [
        "persistence",
        "rehearse",
        str(SAMPLE),
        "--instances",
        instances,
        "--fault",
        fault,
        "--periods",
        "20",
        "--json",
    ]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == first, "the same seed, the same run"
    data = json.loads(first)["data"]
    assert (data["converged"], data["written"], data["dds_instances"]) == (True, 200, 20)
    assert len(data["counters"]) == int(instances) - (fault == "lose")
    assert data["changes"][0]["providers"] == "the writer"
    if fault == "none":
        assert sum(each["repeated"] for each in data["counters"].values() if "repeated" in each) == 0


def test_people_see_who_provides_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["persistence", "rehearse", str(SAMPLE), "--instances", "2", "--periods", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("i1: w0 comes from i0" in line for line in lines)
    assert lines[-1].endswith("all keep the same, 20 values")


@pytest.mark.parametrize(
    ("old", "new"), [("<enable>true", "<enable>false"), (">2<", ">99<"), ("<dds>", "<dds")]
)
def test_what_can_not_be_rehearsed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    path = tmp_path / "f.xml"
    path.write_text(SAMPLE.read_text("utf-8").replace(old, new, 1))
    assert main(["persistence", "rehearse", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
