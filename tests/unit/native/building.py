"""Building the project for tests, with the tools and the package index that a test grants."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILD_S = 600.0
LIBRARY = "engine/native/libnative.so"


def hatchling(target: str, directory: Path, **environ: str) -> tuple[Path, str]:
    """Build with the hatchling of this environment: what came of it, and what was said."""
    return _built(
        ["hatchling", "build", "--target", target, "--directory", str(directory)], directory, environ
    )


def pip_wheel(directory: Path, **environ: str) -> tuple[Path, str]:
    """Build the wheel as `pip install` does: in an environment of its own, with what the project asks for."""
    arguments = ["pip", "wheel", "--verbose", "--no-deps", "--disable-pip-version-check"]
    return _built([*arguments, "--wheel-dir", str(directory), str(ROOT)], directory, environ)


def _built(command: list[str], directory: Path, environ: dict[str, str]) -> tuple[Path, str]:
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={name: value for name, value in {**os.environ, **environ}.items() if name != "CC"},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    (artifact,) = directory.iterdir()
    return artifact, said


def library_of(wheel: Path, directory: Path) -> Path | None:
    """The library in a wheel, unpacked; None where it has none."""
    with zipfile.ZipFile(wheel) as archive:
        if LIBRARY not in archive.namelist():
            return None
        return Path(archive.extract(LIBRARY, directory))
