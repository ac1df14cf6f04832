"""Real nodes under faults: short rounds; `make chaos` runs more, and longer ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos import capsule

pytestmark = [pytest.mark.dds, pytest.mark.netns]

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_acknowledged_is_lost_in_a_short_round(seed: int, tmp_path: Path) -> None:
    done = run("--round", str(seed), "--short", "--keep", str(tmp_path))
    if done.returncode == 4:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"round {seed}: ok" in done.stdout
    assert list(tmp_path.iterdir()) == [], "what a clean round leaves behind"


KEPT = {
    "a rolling restart under traffic": (["rolling-restart"], "kept: [240, 240, 240]"),
    "a stale node that starts first": (
        ["stale-first", "--first", "2"],
        "kept: [700, 700, 700]  resurrected: [0, 0, 0]",
    ),
}
"""How fast it is, is for `make chaos`: this machine may be busy with other tests."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("case", "kept"), KEPT.values(), ids=KEPT)
def test_what_was_acknowledged_survives(case: list[str], kept: str) -> None:
    done = run("--case", *case)
    if done.returncode == 4:
        pytest.skip(done.stderr.strip())
    assert kept in done.stdout, done.stdout + done.stderr


def test_a_machine_without_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capsule, "_UNSHARE", ("sh", "-c", "echo no namespaces for you >&2; exit 1"))
    with pytest.raises(capsule.Forbidden, match="no namespaces for you"):
        capsule.command()
