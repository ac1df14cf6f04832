"""Releases of the past, built from their commits: a wheel, unpacked where a node can run from it."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.integration.programs import ROOT

PREVIOUS: Final = "7a64475"
"""The commit of the previous release."""


class NotBuilt(Exception):
    """A release cannot be built here; the message says why."""


@functools.cache
def built(commit: str, parent: Path) -> Path:
    """The directory with the packages of a release, made in an empty directory.

    Raises:
        NotBuilt: git, the commit or hatchling is not here.
    """
    if importlib.util.find_spec("hatchling") is None:
        raise NotBuilt("hatchling, which builds the wheel, is not installed")
    source, code = parent / "source", parent / "code"
    source.mkdir()
    try:
        git = ["git", "-C", str(ROOT), "archive", "--format=tar", commit]
        archive = subprocess.run(git, check=True, capture_output=True, timeout=60).stdout
    except FileNotFoundError:
        raise NotBuilt("git is not installed") from None
    except subprocess.CalledProcessError as error:
        text = error.stderr.decode(errors="replace").strip()
        raise NotBuilt(f"commit {commit} is not in this checkout: {text}") from None
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True, timeout=60)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(parent)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(code)
    return code


def release(commit: str, parent: Path) -> Path:
    """The directory with the packages of a release; where it cannot be built the test is skipped."""
    try:
        return built(commit, parent)
    except NotBuilt as reason:
        pytest.skip(f"no previous release to run: {reason}")


def run(code: Path, program: str, *arguments: str, ends_with: int = 0) -> None:
    """Run a program with the packages of a release.

    Raises:
        AssertionError: it ended otherwise, or ran with other packages.
    """
    environ = {**os.environ, "PYTHONPATH": str(code)}
    proof = f"import engine; assert engine.__file__.startswith({str(code)!r}), engine.__file__\n"
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-c", proof + program, *arguments],
            cwd=elsewhere,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == ends_with, done.stderr
