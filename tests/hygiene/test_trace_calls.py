"""Every place that traces an event names one of the catalogue, with exactly its fields."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from engine.tracing.catalogue import catalogue

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

CALLS = {"event", "_event", "_trace", "event_with_lines", "note", "wants"}


def traced(module: pathlib.Path) -> Iterator[tuple[int, str, set[str] | None]]:
    """Line, event id and field names of each call; None where the fields are computed."""
    for node in ast.walk(ast.parse(module.read_bytes())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        first = node.args[0] if node.args else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            continue
        if name in CALLS:
            names = {keyword.arg for keyword in node.keywords}
            yield node.lineno, first.value, None if None in names or name == "wants" else {*map(str, names)}
        elif name == "Note" and len(node.args) > 1 and isinstance(node.args[1], ast.Dict):
            keys = [key.value for key in node.args[1].keys if isinstance(key, ast.Constant)]
            yield node.lineno, first.value, {*map(str, keys)}


def test_every_event_of_the_catalogue_has_an_emitter(modules: list[pathlib.Path], root: pathlib.Path) -> None:
    """Somewhere in the engine its id is written down, and not only in the catalogue."""
    named = {
        node.value
        for module in modules
        if module.relative_to(root).parts[0] == "engine"
        for node in ast.walk(ast.parse(module.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(kind for kind in catalogue() if kind not in named) == []


def test_traced_events_are_those_of_the_catalogue(modules: list[pathlib.Path], root: pathlib.Path) -> None:
    wrong, count = [], 0
    for module in modules:
        if module.relative_to(root).parts[0] != "engine":
            continue
        for line, event_id, fields in traced(module):
            count += 1
            place = f"{module.relative_to(root)}:{line}: {event_id}"
            if event_id not in catalogue():
                wrong.append(f"{place} is not in the catalogue")
            elif fields is not None and fields != set(catalogue()[event_id].fields):
                wrong.append(f"{place} has {sorted(fields)}, not {sorted(catalogue()[event_id].fields)}")
    assert wrong == []
    assert count > 30, "the calls are no longer found"
