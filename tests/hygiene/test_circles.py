"""No module imports, in a roundabout way, itself: not even for types, nor inside a function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tests.hygiene.test_names import PRODUCT, product_sources

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping

ALLOWED: Final[dict[frozenset[str], str]] = {}
"""Circles that stay, each with its reason."""


def circles(sources: Mapping[str, str]) -> set[frozenset[str]]:
    """The largest sets of modules that all import each other, perhaps over others; `sources` by file."""
    trees = {_module(file): ast.parse(text) for file, text in sources.items()}
    imports = {module: set(_imported(tree, trees)) - {module} for module, tree in trees.items()}
    reached = {module: _reached(module, imports) for module in imports}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _imported(tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """Yield the modules that a module names anywhere; a package counts only if it is named itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            package = node.module or ""
            names = (f"{package}.{alias.name}" for alias in node.names)
            yield from (name if name in known else package for name in names)


def _reached(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    """The modules that one imports, directly or over others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_no_module_is_in_a_circle(modules: list[pathlib.Path], root: pathlib.Path) -> None:
    """A protocol in the lower module, or a move, cuts one."""
    sources = product_sources(modules, root)
    assert {path.split("/", 1)[0] for path in sources} == set(PRODUCT)
    assert sorted(map(sorted, circles(sources) - ALLOWED.keys())) == []


def test_a_circle_is_found_wherever_it_is_imported() -> None:
    sources = {
        "a/__init__.py": "",
        "a/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.c import C",
        "a/c.py": "def make():\n    import a.d",
        "a/d.py": "from a import b, e",
        "a/e.py": "from a.f import F\nimport a.f",
        "a/f.py": "import a",
    }
    assert circles(sources) == {frozenset({"a.b", "a.c", "a.d"})}
