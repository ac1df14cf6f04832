"""How large the product is: `python -m tests.hygiene.measures`, with `--by` for each package.

`make check` prints the figures, and fails where one of them is above its bar; lower a bar when its figure has
become smaller. A code token is a name, operator, number or string that is no docstring: squeezing lines
changes none. An import in a function is for what `test_import_cost` keeps out of commands, for an optional
package, or for a library that a start does not need. A sheared module (`--sheared`) is imported by one module
of its own package only, so that it may belong there.
"""

from __future__ import annotations

import ast
import collections
import io
import pathlib
import sys
import tokenize
from collections.abc import Iterable
from typing import Final

import engine

ROOT: Final = pathlib.Path(engine.__path__[0]).parent
PACKAGES: Final = ("engine", "ospltool", "tui")
BARS: Final = {
    "code tokens": 835_595,
    "lines": 135_433,
    "modules": 503,
    "classes": 1_425,
    "functions of 60 lines": 3,
    "imports in functions": 266,
    "sheared modules": 14,
}
"""The greatest figures; what is not here has none."""
_CODE: Final = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
_LONG: Final = 60
Figures = collections.Counter[str]


def measured(text: str) -> Figures:
    """The figures of one module."""
    nodes = list(ast.walk(ast.parse(text)))
    functions = [each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    texts = [
        each
        for each in nodes
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
    ]
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    return Figures({
        "code tokens": sum(each.type in _CODE for each in tokens) - len(texts),
        "lines": text.count("\n"),
        "modules": 1,
        "classes": sum(isinstance(each, ast.ClassDef) for each in nodes),
        "functions": len(functions),
        "functions of 60 lines": sum((each.end_lineno or 0) - each.lineno >= _LONG for each in functions),
        "imports in functions": imports_in(functions),
        "lines of comments": sum(
            each.type == tokenize.COMMENT and each.line.strip()[0] == "#" for each in tokens
        ),
    })  # fmt: skip


def imports_in(functions: Iterable[ast.AST]) -> int:
    """The number of imports inside functions, some of which may be inside each other."""
    return len({
        (each.lineno, each.col_offset)
        for function in functions
        for each in ast.walk(function)
        if isinstance(each, ast.Import | ast.ImportFrom)
    })  # fmt: skip


def sheared(texts: dict[str, str]) -> list[str]:
    """The modules that one module of their own package imports, and no other.

    Args:
        texts: the text of each module by its name.
    """
    importers: dict[str, set[str]] = collections.defaultdict(set)
    for importer, text in texts.items():
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.ImportFrom) and each.module:
                for name in (each.module, *(f"{each.module}.{alias.name}" for alias in each.names)):
                    importers[name].add(importer)
            elif isinstance(each, ast.Import):
                for alias in each.names:
                    importers[alias.name].add(importer)
    alone = {name: next(iter(importers[name])) for name in texts if len(importers[name]) == 1}
    return sorted(name for name, by in alone.items() if name.rpartition(".")[0] == by.rpartition(".")[0])


def main() -> int:
    """Print the figures; return 1 if one is above its bar."""
    total, texts = Figures(), dict[str, str]()
    by: dict[str, Figures] = collections.defaultdict(Figures)
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        parts = path.relative_to(ROOT).with_suffix("").parts
        text = path.read_text("utf-8")
        texts[".".join(parts).removesuffix(".__init__")] = text
        figures = measured(text)
        total += figures
        by["/".join(parts[:2]) if len(parts) > 2 else parts[0]] += figures
    total["sheared modules"] = len(sheared(texts))
    if "--by" in sys.argv:
        for package, one in sorted(by.items(), key=lambda each: -each[1]["code tokens"]):
            print(
                f"{package:24} "
                + ", ".join(f"{one[name]:,} {name}" for name in ("code tokens", "lines", "modules"))
            )
    if "--sheared" in sys.argv:
        print("\n".join(sheared(texts)))
    for name, figure in total.items():
        print(f"{figure:>9,} {name}" + (f" (at most {BARS[name]:,})" if name in BARS else ""))
    broken = [name for name, bar in BARS.items() if total[name] > bar]
    if broken:
        print(f"more than the bar of {__name__ if __name__ != '__main__' else __file__}: {', '.join(broken)}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
