from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib


LINT = "from importlinter.cli import lint_imports_command as run; run()"


@pytest.mark.skipif(
    importlib.util.find_spec("importlinter") is None,
    reason="import-linter is in the dependency group lint, not in test",
)
def test_imports_point_down_only(root: pathlib.Path) -> None:
    """The contracts are in pyproject.toml."""
    ended = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
