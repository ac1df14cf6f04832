"""One name for one thing: a public class name occurs once in its package, which qualifies it."""

from __future__ import annotations

import ast
import collections
import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration import hanging

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRODUCT = ("engine", "ospltool", "tui")


def named_again(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The public class names that a package has more than once, as `package.Name`, each with its places.

    Args:
        sources: texts by file.
    """
    places: dict[str, list[str]] = collections.defaultdict(list)
    for file, text in sources.items():
        package = ".".join(pathlib.PurePath(file).parent.parts)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[f"{package}.{node.name}"].append(f"{file}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def product_sources(modules: Iterable[pathlib.Path], root: pathlib.Path) -> dict[str, str]:
    """The text of every module of the product, by its path."""
    paths = (path.relative_to(root) for path in modules)
    return {str(path): (root / path).read_text("utf-8") for path in paths if path.parts[0] in PRODUCT}


def misnamed_faults(sources: Mapping[str, str]) -> list[str]:
    """Exceptions named Fault that are not wrong values from elsewhere, which nobody catches as such."""
    return [
        f"{file}:{node.lineno} {node.name}"
        for file, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Fault")
        for base in node.bases
        if (name := ast.unparse(base)).endswith(("Error", "Exception")) and name != "ValueError"
    ]


def test_a_fault_is_wrong_input_and_all_else_is_an_error(
    modules: list[pathlib.Path], root: pathlib.Path
) -> None:
    sources = product_sources(modules, root)
    assert misnamed_faults({"a.py": "class WireFault(ValueError): ...\nclass DiskFault(OSError): ..."}) == [
        "a.py:2 DiskFault"
    ]
    assert misnamed_faults(sources) == []


def test_a_public_class_name_occurs_once_in_its_package(
    modules: list[pathlib.Path], root: pathlib.Path
) -> None:
    """A helper of one module is private (`_Name`); any other class says in its name what it holds."""
    sources = product_sources(modules, root)
    assert {path.split("/", 1)[0] for path in sources} == set(PRODUCT)
    assert named_again(sources) == {}


def test_a_second_class_is_found_with_its_places() -> None:
    sources = {
        "one/a.py": "class Entry: ...\nclass _Row: ...\nclass Single: ...",
        "one/b.py": "class Sheet:\n    class Entry: ...\nclass _Row: ...",
        "two/c.py": "class Entry: ...",
    }
    assert named_again(sources) == {"one.Entry": ["one/a.py:1", "one/b.py:2"]}


def test_the_places_at_which_tests_make_threads_hang_exist(tmp_path: pathlib.Path) -> None:
    """They are named in a text, which a renamed class leaves behind: processes would run without them."""
    ended = subprocess.run(
        [sys.executable, "-c", ""],
        env={**os.environ, **hanging.environ(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
