"""Cases that releases before this one wrote are read like the files that they were made of.

`fixtures/case-N.tar.xz` was made by the code of its time, in `samples/traces`, with
`ospltool trace load own-engine -o case`: format 1 by commit 738414ff, 2 by 59594dc3, 3 by 8202c6e9.
"""

from __future__ import annotations

import json
import pathlib
import tarfile

import pytest

pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from ospltool.analytics.contract import FORMAT_VERSION
from ospltool.cli.app import main

FIXTURES = pathlib.Path(__file__).with_name("fixtures")
FILES = "own-engine"


@pytest.fixture(params=range(1, FORMAT_VERSION + 1))
def case(
    request: pytest.FixtureRequest,
    samples: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> pathlib.Path:
    """A case of each format."""
    monkeypatch.chdir(samples)
    with tarfile.open(FIXTURES / f"case-{request.param}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    version = json.loads((tmp_path / "case" / "case.json").read_text())["format_version"]
    assert version == request.param
    return tmp_path / "case"


def answer(capfd: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    """The exit code and the answer of a command."""
    capfd.readouterr()
    return main([*command]), capfd.readouterr().out


def test_an_older_case_is_analysed_as_its_files_are(
    case: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for verb in ("anomalies", "timeline"):
        expected = answer(capfd, "trace", verb, "--json", FILES)
        assert answer(capfd, "trace", verb, "--json", str(case)) == expected
    assert answer(capfd, "sql", str(case), "select count(*) as records from records")[1].split()[-1] == "296"
    for query in ("elections", "levels", "sources"):
        assert answer(capfd, "sql", str(case), query)[0] == 0, query


def test_an_older_case_grows_or_says_that_it_cannot(
    case: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    version = json.loads((case / "case.json").read_text())["format_version"]
    capfd.readouterr()
    code = main(["trace", "load", FILES, "late-joiner", "-o", str(case)])
    said = capfd.readouterr().err
    if version == FORMAT_VERSION:
        assert code == 0
        assert "2458 records" in said
    else:
        assert code == 2
        assert "load all of its files into a new case" in said
