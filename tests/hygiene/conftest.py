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
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    found = [ROOT / name for name in sorted(set(listed.split("\0"))) if name]
    return [path for path in found if path.is_file()]


@pytest.fixture(scope="session")
def modules(tracked: list[pathlib.Path]) -> list[pathlib.Path]:
    """Every Python module."""
    return [path for path in tracked if path.suffix == ".py"]
