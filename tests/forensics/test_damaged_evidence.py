"""Evidence that is cut, copied or of a wrong clock makes no conclusion untrue."""

from __future__ import annotations

import datetime
import gzip
import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from ospltool.cli.app import main

_TIMES = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\+0000) (\d{10})(?=\.\d{9} )")


def judged(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capfd.readouterr()
    main(["trace", "anomalies", *arguments, "--json"])
    data = json.loads(capfd.readouterr().out)["data"]
    assert isinstance(data, dict)
    return data


def told(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The findings, without their last digits, as a clock is only corrected to milliseconds."""
    return sorted((one["rule"], re.sub(r"\.\d+ s", " s", one["title"])) for one in data["findings"])


def set_clock(log: pathlib.Path, by_s: int) -> None:
    """Moves all times of a trace."""

    def moved(found: re.Match[bytes]) -> bytes:
        local = datetime.datetime.fromisoformat(found[1].decode()) + datetime.timedelta(seconds=by_s)
        return f"{local.isoformat()}+0000 {int(found[3]) + by_s}".encode()

    packed = log.suffix == ".gz"
    moved_all = _TIMES.sub(moved, gzip.decompress(log.read_bytes()) if packed else log.read_bytes())
    log.write_bytes(gzip.compress(moved_all, 1) if packed else moved_all)


def log_of(directory: pathlib.Path, node: str) -> pathlib.Path:
    return next((directory / node).glob("durability.log*"))


@pytest.fixture
def copied(samples: pathlib.Path, tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Copies a sample, which can be damaged then."""

    def copy(name: str) -> pathlib.Path:
        shutil.copytree(samples / "traces" / name, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.mark.parametrize(
    ("sample", "node", "by_s"),
    [("late-joiner", "n2", 180), ("master-livelock", "n3", -300), ("own-engine", "n1", 7)],
)
def test_a_wrong_clock_is_corrected_and_told(
    sample: str,
    node: str,
    by_s: int,
    copied: Callable[[str], pathlib.Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    directory = copied(sample)
    right = judged(capfd, str(directory))
    set_clock(log_of(directory, node), by_s)
    wrong = judged(capfd, str(directory))
    assert told(wrong) == told(right)
    assert [one["kind"] for one in wrong["conclusions"]] == [one["kind"] for one in right["conclusions"]]
    starts = [sorted(each["start_ns"] for each in data["findings"]) for data in (wrong, right)]
    assert all(abs(one - other) < 100_000_000 for one, other in zip(*starts, strict=True))
    assert not [one for one in right["unknown"] if "clock" in one]
    (said,) = [one for one in wrong["unknown"] if "clock" in one]
    assert f"that of {node} is" in said
    corrected = re.search(rf"--skew {node}=([+-][\d.]+)s", said)
    assert corrected is not None
    assert float(corrected[1]) == pytest.approx(-by_s, abs=0.1)
