"""Public functions with three or more parameters say what each of them means."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.hygiene.test_names import PRODUCT, product_sources

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping

MANY: Final = 3
"""The number of parameters, without self and cls, from which they are documented."""
TABLE: Final = re.compile(r"^\| `(?P<names>[\w`, ]+)` \| `(?P<type>[^`]+)` \| .+ \|$", re.MULTILINE)
"""CONTRIBUTING.md: parameters that mean the same everywhere."""
GENERAL: Final = frozenset(
    [
        "Any",
        "Awaitable",
        "Callable",
        "Collection",
        "Iterable",
        "Iterator",
        "Literal",
        "Mapping",
        "MutableMapping",
        "None",
        "Path",
        "Sequence",
        "Set",
    ]
)
"""Types with a capital that tell nothing about what a value means."""


class _Function(NamedTuple):
    place: str
    name: str
    is_method: bool
    parameters: tuple[ast.arg, ...]
    documentation: str


def unsaid(sources: Mapping[str, str], everywhere: frozenset[tuple[str, str]]) -> dict[str, list[str]]:
    """The parameters that are not documented, by function; `sources` are texts by file.

    A parameter is documented if its name, or the word in it, stands in the docstring of the function (or, for
    `__init__`, of the class); if its type is a class, which has documentation of its own; if its annotation
    or default has the help of an option; if it is one of those that mean the same `everywhere`, by name and
    type. A method with the name and the parameters of a documented one keeps that one's contract.
    """
    trees = {file: ast.parse(text) for file, text in sources.items()}
    options = {name for tree in trees.values() for name in _options(tree)}
    functions = [one for file, tree in trees.items() for one in _functions(file, tree.body, ())]
    missing = {
        one: [
            parameter.arg
            for parameter in one.parameters
            if not _is_said(parameter, one.documentation, options)
            and (parameter.arg, _type_of(parameter)) not in everywhere
        ]
        for one in functions
    }
    contracts = {_contract(one) for one, names in missing.items() if one.is_method and not names}
    return {
        one.place: names
        for one, names in missing.items()
        if names and not (one.is_method and one.name != "__init__" and _contract(one) in contracts)
    }


def _functions(file: str, body: list[ast.stmt], owners: tuple[ast.ClassDef, ...]) -> Iterator[_Function]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _functions(file, node.body, (*owners, node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = _parameters(node, is_method=bool(owners))
            if len(parameters) < MANY or (node.name.startswith("_") and node.name != "__init__"):
                continue
            documented = (node, owners[-1]) if node.name == "__init__" else (node,)
            text = "\n".join(ast.get_docstring(each) or "" for each in documented)
            place = f"{file}:{node.lineno} {'.'.join([*(owner.name for owner in owners), node.name])}"
            yield _Function(place, node.name, bool(owners), parameters, text)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> tuple[ast.arg, ...]:
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    found = [*positional, *given.kwonlyargs]
    defaults = [
        *zip(reversed(positional), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=False),
    ]
    options = {
        one.arg for one, default in defaults if default and ast.unparse(default).startswith("duration(")
    }
    found = [one for one in found if one.arg not in options]
    is_static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
    own = found[1:] if is_method and not is_static else found
    return (*own, *filter(None, (given.vararg, given.kwarg)))


def _options(tree: ast.Module) -> Iterator[str]:
    """The names of annotations with a help text, such as `AsJson`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "help=" in ast.unparse(node.value):
            yield from map(ast.unparse, node.targets)


def _type_of(parameter: ast.arg) -> str:
    return ast.unparse(parameter.annotation) if parameter.annotation else ""


def _is_said(parameter: ast.arg, documentation: str, options: set[str]) -> bool:
    kind = _type_of(parameter)
    words = set(re.findall(r"\w+", kind))
    if "help=" in kind or words & options or any(each[0].isupper() and each not in GENERAL for each in words):
        return True
    name = parameter.arg.strip("_")
    word = re.sub(r"^(is|has|with)_|_(s|ns|bytes)$", "", name)
    forms = {form.replace("_", joint) for form in (name, word) for joint in "_ -"}
    stems = {form[:-1] if form.endswith("s") and len(form) > MANY else form for form in forms}
    return any(re.search(rf"\b{stem}(s|es|ed|d|ing)?\b", documentation, re.IGNORECASE) for stem in stems)


def _contract(function: _Function) -> tuple[str, ...]:
    return function.name, *(parameter.arg for parameter in function.parameters)


def common(contributing: str) -> frozenset[tuple[str, str]]:
    """The names and types in the table of parameters that mean the same everywhere."""
    return frozenset(
        (name, row["type"])
        for row in TABLE.finditer(contributing)
        for name in re.findall(r"\w+", row["names"])
    )


def test_many_parameters_are_documented(modules: list[pathlib.Path], root: pathlib.Path) -> None:
    everywhere = common((root / "CONTRIBUTING.md").read_text("utf-8"))
    assert ("now", "float") in everywhere
    sources = product_sources(modules, root)
    assert {path.split("/", 1)[0] for path in sources} == set(PRODUCT)
    assert unsaid(sources, everywhere) == {}


def test_a_parameter_without_a_word_is_found() -> None:
    source = '''
Verbose = Annotated[bool, typer.Option(help="Say more.")]

def of_words(fellows: list[str], is_fresh: bool, delay_s: float, role: str, verbose: Verbose, now: float):
    """Keep a fellow that is fresh, after a delay, by `role`."""

def of_types(node: Node, found: list[Sample], path: Path):
    """Do it."""

def of_one(a: int, b: int):
    """Do it."""

class Wire:
    """The wire.

    Args:
        rate: bytes per second.
    """

    def __init__(self, rate: int, size: int, *more: str): ...

    def send(self, topic: str, payload: bytes, *, again: bool):
        """Send a payload to a topic, perhaps again."""

class Other:
    def send(self, topic: str, payload: bytes, *, again: bool):
        """Do nothing."""

class _Own:
    def give(self, one: str, two: str, three: str): ...
'''
    assert unsaid({"a.py": source}, frozenset({("now", "float"), ("size", "str")})) == {
        "a.py:7 of_types": ["path"],
        "a.py:20 Wire.__init__": ["size", "more"],
    }
