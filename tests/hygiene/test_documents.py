"""The documents: their links lead somewhere, what they name is there, and the site needs nobody else."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib

RULES = re.compile(r"`(tests/[\w/]+(?:\.py)?)`|contract \"([^\"]+)\"")
FOREIGN = re.compile(
    r"""(?:src|srcset)=["'](?:https?:)?//|<link[^>]+href=["'](?:https?:)?//|url\(["']?https?://"""
)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is in the dependency group docs, not in test")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [*(tmp_path / "site").rglob("*.html"), *(tmp_path / "site").rglob("*.css")]
    assert len(pages) > 20
    assert [page.name for page in pages if FOREIGN.search(page.read_text(encoding="utf-8"))] == []


def test_what_holds_a_rule_of_the_architecture_is_there(root: pathlib.Path) -> None:
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    contracts = (root / "pyproject.toml").read_text(encoding="utf-8")
    named = RULES.findall(text)
    assert len(named) > 10
    assert [path for path, _ in named if path and not (root / path).exists()] == []
    assert [name for _, name in named if name and f'name = "{name}' not in contracts] == []


def test_every_module_named_in_the_architecture_is_there(root: pathlib.Path) -> None:
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:engine|ospltool|tui)(?:\.[a-z_]+)+)", text))
    missing = [
        name
        for name in sorted(named)
        if not any((root / f"{'/'.join(name.split('.')[:depth])}.py").exists() for depth in (2, 3, 4))
        and not (root / name.replace(".", "/")).is_dir()
    ]
    assert missing == []
