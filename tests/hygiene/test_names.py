"""One name for one thing: a public class name occurs once in its package, which qualifies it."""

from __future__ import annotations

import ast
import collections
import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from tests.integration import hanging

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRODUCT = ("engine", "ospltool", "tui")


class _Class(NamedTuple):
    file: str
    line: int
    name: str
    bases: tuple[str, ...]


def classes(sources: Mapping[str, str]) -> list[_Class]:
    """The classes of texts by file."""
    return [
        _Class(file, node.lineno, node.name, tuple(map(ast.unparse, node.bases)))
        for file, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]


def named_again(found: Iterable[_Class]) -> dict[str, list[str]]:
    """The public class names that a package has more than once, as `package.Name`, each with its places."""
    places: dict[str, list[str]] = collections.defaultdict(list)
    for each in found:
        if not each.name.startswith("_"):
            package = ".".join(pathlib.PurePath(each.file).parent.parts)
            places[f"{package}.{each.name}"].append(f"{each.file}:{each.line}")
    return {name: several for name, several in places.items() if len(several) > 1}


def product_sources(modules: Iterable[pathlib.Path], root: pathlib.Path) -> dict[str, str]:
    """The text of every module of the product, by its path."""
    paths = (path.relative_to(root) for path in modules)
    return {str(path): (root / path).read_text("utf-8") for path in paths if path.parts[0] in PRODUCT}


def misnamed_faults(found: Iterable[_Class]) -> list[str]:
    """Exceptions named Fault that are not wrong values from elsewhere, which nobody catches as such."""
    return [
        f"{each.file}:{each.line} {each.name}"
        for each in found
        if each.name.endswith("Fault")
        for base in each.bases
        if base.endswith(("Error", "Exception")) and base != "ValueError"
    ]


def test_a_class_is_named_after_what_it_holds_once_in_its_package_and_a_fault_is_wrong_input(
    modules: list[pathlib.Path], root: pathlib.Path
) -> None:
    """A helper of one module is private (`_Name`); an exception that is no wrong value is an error."""
    sources = product_sources(modules, root)
    assert {path.split("/", 1)[0] for path in sources} == set(PRODUCT)
    found = classes(sources)
    assert named_again(found) == {}
    assert misnamed_faults(found) == []


def test_a_second_class_and_a_misnamed_fault_are_found_with_their_places() -> None:
    sources = {
        "one/a.py": "class Entry: ...\nclass _Row: ...\nclass Single: ...",
        "one/b.py": "class Sheet:\n    class Entry: ...\nclass _Row: ...",
        "two/c.py": "class Entry: ...",
    }
    assert named_again(classes(sources)) == {"one.Entry": ["one/a.py:1", "one/b.py:2"]}
    faults = {"a.py": "class WireFault(ValueError): ...\nclass DiskFault(OSError): ..."}
    assert misnamed_faults(classes(faults)) == ["a.py:2 DiskFault"]


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
