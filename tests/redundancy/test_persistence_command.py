"""`ospltool persistence`: what is wrong is said with its place, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.persistence.service.replica_watching import keep_the_same
from ospltool.cli.app import main
from tests import fake

SAMPLE = Path(__file__).parents[2] / "samples" / "redundant-persistence" / "service.xml"

WRONG = [
    ("<enable>true", "<enable>perhaps", "9:17: 'perhaps' is neither true nor false"),
    ("<dds>", "<dds", "5:1: the tag <dds> is not closed"),
    ("<depth>1", "<depth>7", "31:10: persistence_group 'all' keeps 7 samples of each instance"),
    ("KEEP_LAST_", "KEEP_ALL_", "31:10: persistence_group 'all' keeps all samples of each instance"),
    ("persistence_group", "group", "has no persistence_group: it would keep nothing"),
    ('name="redundant"', 'name="*"', "'*' is not a valid name of a persistence_service"),
    ("persistence_service", "service", "there is no persistence_service element"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_configuration_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    path = tmp_path / "f.xml"
    text = SAMPLE.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert main(["persistence", "run", str(path), "--store", str(tmp_path / "store")]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert message in error
    assert not (tmp_path / "store").exists()


def test_what_has_no_effect_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.xml"
    path.write_text(
        SAMPLE.read_text("utf-8").replace("<synchronization>", "<administration/>\n<synchronization>")
    )
    assert main(["persistence", "run", str(path), "--name", "no/name"]) == 2
    warning = f"{path}:7:6: <administration> has no effect on a persistence service of ospltool"
    assert f"ospltool: warning: {warning}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "missing.xml"],
        ["run", str(SAMPLE), "--service", "other"],
        ["run", str(SAMPLE), "--name", "a/b"],
        ["run", str(SAMPLE), "--domain", "231"],
        ["rehearse", str(SAMPLE), "--fault", "rain"],
        ["status", "--domain", "-1"],
        ["status", "--equal", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["persistence", *arguments]) == 2
    assert capsys.readouterr().err


SAME = {"digest": "0" * 15 + "1"}
EQUAL = [
    ([], 1, False),
    ([fake.replica("a", **SAME)], 1, True),
    ([fake.replica("a", **SAME)], 2, False),
    ([fake.replica("a", **SAME), fake.replica("b", **SAME)], 2, True),
    ([fake.replica("a", **SAME), fake.replica("b", digest="2")], 2, False),
    ([fake.replica("a", **SAME), fake.replica("b", unwritten=True, **SAME)], 2, False),
    ([fake.replica("a", **SAME), fake.replica("b", service="other", **SAME)], 2, False),
    ([fake.replica("a", **SAME), fake.replica("b", service="other", digest="2")], 1, True),
]


def test_replicas_keep_the_same_if_their_values_are_equal_and_on_disk() -> None:
    assert [keep_the_same(replicas, count) for replicas, count, _ in EQUAL] == [same for *_, same in EQUAL]
