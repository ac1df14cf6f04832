"""Small disks for tests."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system that is soon full.

    Mounting needs permission; without it the test is skipped.
    """
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
