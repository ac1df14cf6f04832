from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.persistence.core import subscriptions as held_module
from engine.simulator.rehearsal import FAULTS
from ospltool.cli.app import main

SAMPLE = Path(__file__).parents[2] / "samples" / "redundant-persistence" / "service.xml"
SUBSCRIPTIONS = SAMPLE.with_name("subscriptions.xml")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("replicas", ["2", "3", "5"])
def test_a_rehearsal_ends_with_the_same_values_everywhere(
    capsys: pytest.CaptureFixture[str], fault: str, replicas: str
) -> None:
    arguments = [
        "persistence",
        "rehearse",
        str(SAMPLE),
        "--replicas",
        replicas,
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
    assert len(data["counters"]) == int(replicas) - (fault == "lose")
    assert data["changes"][0]["providers"] == "the writer"
    if fault == "none":
        assert sum(each["repeated"] for each in data["counters"].values() if "repeated" in each) == 0


def test_people_see_who_provides_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["persistence", "rehearse", str(SAMPLE), "--replicas", "2", "--periods", "5"]) == 0
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


def rehearsed(
    capsys: pytest.CaptureFixture[str], path: Path, *options: str, code: int
) -> list[dict[str, Any]]:
    """What became of the durable subscriptions."""
    arguments = ["persistence", "rehearse", str(path), "--periods", "30", *options, "--json"]
    assert main(arguments) == code
    found = json.loads(capsys.readouterr().out)["data"]["durable_subscriptions"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", ["1", "2"])
def test_readers_of_durable_subscriptions_get_everything_once_wherever_they_come(
    capsys: pytest.CaptureFixture[str], fault: str, seed: str
) -> None:
    found = rehearsed(capsys, SUBSCRIPTIONS, "--fault", fault, "--seed", seed, code=0)
    assert [(each["name"], each["topic"], each["quorum"]) for each in found] == [
        ("logger", "Observation", 1),
        ("billing", "Observation", 2),
    ]
    for each in found:
        assert (each["agreed"], each["twice"], each["lost"]) == (True, 0, 0)
        assert set(each["kept"].values()) == {0}, "everything is acknowledged at the end"
        assert each["visits"] > 3 * each["quorum"]
        assert each["most_kept"] > 0
        assert each["again"] > 0, "what was taken in the last moments was not acknowledged"
        assert each["taken"] - each["again"] <= 300 * each["quorum"], "no more than was written"
        if fault != "lose":
            assert each["taken"] - each["again"] == 300 * each["quorum"]
            assert 0 < each["agreed_after_ms"] <= 2 * 5_000 + 1_000


def test_replicas_that_do_not_tell_what_is_acknowledged_give_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.xml"
    tag = "<synchronize_durable_subscription>"
    path.write_text(SUBSCRIPTIONS.read_text("utf-8").replace(f"{tag}true", f"{tag}false"))
    for each in rehearsed(capsys, path, code=1):
        assert each["twice"] > 100


def test_what_there_is_no_room_for_is_lost_and_that_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(held_module, "MAX_HELD", 10)
    for each in rehearsed(capsys, SUBSCRIPTIONS, code=1):
        assert each["lost"] > 0
        assert each["most_kept"] <= 10


def test_people_see_what_becomes_of_durable_subscriptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["persistence", "rehearse", str(SUBSCRIPTIONS), "--periods", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("durable subscription billing of Obs")]
    assert ", quorum 2: " in lines[at]
    assert lines[at].endswith(", 0 delivered twice, 0 lost")
    assert lines[at + 1].startswith("  kept at the end: i0 0, i1 0, i2 0 (at most ")
    assert "; all agree on what is acknowledged, after " in lines[at + 1]


def test_more_readers_than_can_be_rehearsed_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.xml"
    path.write_text(SUBSCRIPTIONS.read_text("utf-8").replace("<quorum>2", "<quorum>50"))
    assert main(["persistence", "rehearse", str(path)]) == 2
    assert f"{path}: the durable subscriptions need 51 readers" in capsys.readouterr().err
