"""What the rules of the house are checked on: the files of this checkout."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

import engine

ROOT = pathlib.Path(engine.__path__[0]).parent


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tracked() -> list[pathlib.Path]:
    """Every file of ours that git does not ignore, committed or not, but not those that were deleted."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        found = [ROOT / name for name in sorted(set(listed.stdout.decode().split("\0"))) if name]
    else:  # an unpacked archive has no history
        tops = [
            ROOT / name
            for name in ("engine", "ospltool", "tui", "samples", "tests", "benchmarks", "chaos", "docs")
        ]
        found = [path for top in tops for path in sorted(top.rglob("*")) if "__pycache__" not in path.parts]
    return [path for path in found if path.is_file()]


@pytest.fixture(scope="session")
def modules(tracked: list[pathlib.Path]) -> list[pathlib.Path]:
    """Every Python module."""
    return [path for path in tracked if path.suffix == ".py"]
