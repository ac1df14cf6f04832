"""What imports what: the contracts in pyproject.toml, and allow-lists, which import-linter does not have."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib


ALLOWED = {
    "engine/core": {"engine.core", "msgspec"},
    "engine/persistence/core": {"engine.persistence.core", "engine.core", "engine.dataset", "msgspec"},
    "ospltool/client": {
        "ospltool.client",
        "engine.core",
        "engine.dataset",
        "engine.dds",
        "engine.files",
        "engine.persistence.core",
        "cyclonedds",
        "msgspec",
    },
    "chaos/checker.py": set[str](),
}
"""What a package or module imports besides the standard library."""


def imported(path: pathlib.Path) -> set[str]:
    """Every module that a file imports, with the names it takes: one of them may be a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("place", ALLOWED)
def test_it_imports_the_standard_library_and_what_is_listed(place: str, root: pathlib.Path) -> None:
    files = [root / place] if place.endswith(".py") else [*(root / place).rglob("*.py")]
    assert files
    outside = {
        f"{path.relative_to(root)}: {name}"
        for path in files
        for name in imported(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not any(f"{name}.".startswith(f"{allowed}.") for allowed in ALLOWED[place])
    }
    assert outside == set()
