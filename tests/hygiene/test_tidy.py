"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

MAX_MODULE_LINES = 1000
MAX_FUNCTION_LINES = 70
MAX_FILE_BYTES = 500_000

FORBIDDEN = {
    "unfinished business": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b"),
    "a path of one machine": re.compile(
        r"(?<![\w}./)\"'])/(wo" + r"rk|ro" + r"ot|ho" + r"me/\w+|tm" + r"p/v)(?=/|\b)(?!-)"
    ),
    "the workplace": re.compile(r"\.\./sha" + r"red\b|\bsee" + r"ds/\d|\bproto" + r"types/"),
    "a conflict that was never resolved": re.compile(r"^(<<<<" + r"<<<|>>>>" + r">>>) ", re.MULTILINE),
}
SUPPRESSION = re.compile(r"#\s*(type:\s*ignore|noqa)\b(?P<rest>[^#]*)(?P<reason>#.*)?")


def text_of(path: pathlib.Path) -> str | None:
    """The text of a file; None for pictures, stores and other bytes."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def test_modules_are_read_in_one_sitting(modules: list[pathlib.Path], root: pathlib.Path) -> None:
    lengths = {path.relative_to(root): len(path.read_text("utf-8").splitlines()) for path in modules}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def test_functions_fit_a_screen_and_nanoseconds_are_integers(
    modules: list[pathlib.Path], root: pathlib.Path
) -> None:
    wrong = [
        f"{path.relative_to(root)}:{line} {what}"
        for path in modules
        if may_be_wrong(text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        for line, what in (*too_long(node), *no_integers(node))
    ]
    assert wrong == []


def may_be_wrong(text: str) -> bool:
    """Whether it is worth parsing: a function may be long, or a line has a time and another type."""
    lines = text.split("\n")
    starts = [(at, len(line) - len(line.lstrip())) for at, line in enumerate(lines) if "def " in line]
    ends = (
        next((other for other, its in starts[number + 1 :] if its <= depth), len(lines))
        for number, (_, depth) in enumerate(starts)
    )
    is_long = any(end - at > MAX_FUNCTION_LINES for (at, _), end in zip(starts, ends, strict=True))
    return is_long or re.search(r"_ns\b.*float", text) is not None


def too_long(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of a function that does not fit."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = body_lines(node)
        if lines > MAX_FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {lines} lines"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of statements: a command's many options are a list, and its docstring is its manual."""
    first = function.body[1:] or function.body if ast.get_docstring(function) else function.body
    return (function.end_lineno or function.lineno) - first[0].lineno + 1


def test_no_large_file_was_added_by_mistake(tracked: list[pathlib.Path], root: pathlib.Path) -> None:
    large = {path.relative_to(root) for path in tracked if path.stat().st_size > MAX_FILE_BYTES}
    assert large == set()


@pytest.mark.parametrize("what", FORBIDDEN)
def test_files_do_not_hold(what: str, tracked: list[pathlib.Path], root: pathlib.Path) -> None:
    found = [
        f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path in tracked
        if (text := text_of(path)) is not None
        for match in FORBIDDEN[what].finditer(text)
    ]
    assert found == []


def test_files_end_with_a_line_end_and_have_no_carriage_returns(
    tracked: list[pathlib.Path], root: pathlib.Path
) -> None:
    wrong = [
        str(path.relative_to(root))
        for path in tracked
        if path.suffix in (".py", ".toml", ".md", ".tcss", ".c", ".xml")
        and (data := path.read_bytes())
        and (not data.endswith(b"\n") or b"\r\n" in data)
        and "tests" not in path.relative_to(root).parts
    ]
    assert wrong == []


def test_a_suppressed_warning_has_its_reason_beside_it(
    modules: list[pathlib.Path], root: pathlib.Path
) -> None:
    bare = [
        f"{path.relative_to(root)}:{token.start[0]}: {token.string}"
        for path in modules
        if SUPPRESSION.search((data := path.read_bytes()).decode())
        for token in tokenize.tokenize(io.BytesIO(data).readline)
        if token.type == tokenize.COMMENT
        and (found := SUPPRESSION.search(token.string))
        and not found["reason"]
        and " - " not in found["rest"]
    ]
    assert bare == []


def no_integers(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of a parameter, attribute, variable or function of nanoseconds that has another type."""
    match node:
        case (
            ast.arg(arg=name, annotation=ast.expr() as hint)
            | ast.FunctionDef(name=name, returns=ast.expr() as hint)
            | ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=hint)
        ) if name.endswith("_ns") and "float" in ast.unparse(hint):
            yield node.lineno, f"{name}: {ast.unparse(hint)}"


def test_tests_are_no_package(tracked: list[pathlib.Path], root: pathlib.Path) -> None:
    inits = [path for path in tracked if path.name == "__init__.py" and path.is_relative_to(root / "tests")]
    assert inits == []
