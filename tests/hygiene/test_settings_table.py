"""The table of settings: complete against the schema, against what the code reads, and against the tests.

What a setting changes is found by interpreting a file with it and one without it. Who reads what has changed
is found in the syntax trees of all modules that a node consists of, by the names of sections and fields.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import TYPE_CHECKING, Any

from docs import settings as page
from engine.config import interpret, parse
from engine.config.fates import SECTIONS, Fate, fates, lines
from engine.config.schema import Item, Type, engine_schema
from engine.config.settings import Configuration, SettingOrigin

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

PATHS = [path for path in engine_schema().paths() if path.partition("/")[0].partition("@")[0] in SECTIONS]
VALUED = [path for path in PATHS if engine_schema()[path].type is not Type.ELEMENT]
NOT_A_NODE = ("engine/config", "engine/persistence/core", "engine/persistence/service", "engine/simulator")
"""Packages that read no setting for a node; what `ospltool check` reads is for OpenSplice, too."""
USED_UP = {"Domain/Service@name", "DurabilityService@name"}
"""What decides which element counts: the interpretation itself uses it up."""
READ_AS = {"update_factor": "period_s", "partition_topics": "elements"}
"""Fields that are read by a property of their own class."""
WHOLE = {"durable_policies", "filters", "wait_for_attachment", "daemon_heartbeat"}
"""Sections of which nothing is read when none of their settings works."""


def test_every_path_of_the_schema_has_its_fate() -> None:
    assert [path for path in VALUED if path not in fates()] == []


def test_every_line_of_the_table_stands_for_something_and_says_why() -> None:
    used = {id(entry) for entry in fates().values()}
    for key, entry in lines().items():
        assert entry.path in engine_schema(), key
        assert id(entry) in used, f"{key}: other lines say all"
        if entry.fate is Fate.WORKS:
            assert (entry.reason, entry.accepted) == ("", ""), key
            assert "::" in entry.test, key
        else:
            assert entry.test == "", key
            assert entry.reason.isprintable(), key
            assert not entry.reason.endswith("."), key


def test_every_test_that_is_named_exists(root: pathlib.Path) -> None:
    for entry in fates().values():
        if entry.test:
            file, _, name = entry.test.partition("::")
            assert re.search(rf"^def {name}\(", (root / file).read_text("utf-8"), re.MULTILINE), entry.test


def value_of(item: Item) -> str:
    """A value that is not the default."""
    match item.type:
        case Type.BOOLEAN:
            return "false" if item.default.lower() == "true" else "true"
        case Type.ENUM:
            return next(label for label in item.labels if label.lower() != item.default.lower())
        case Type.INT | Type.FLOAT | Type.SIZE:
            allowed = (one for one in ("1", "0.5", "2", item.low) if float(item.low or 0) <= float(one or 0))
            numbers = (one for one in allowed if float(one) <= float(item.high or "inf"))
            return next(one for one in numbers if float(one) != float(item.default or 0))
        case _:
            return "other.x"


REQUIRED = {
    "DurabilityService/NameSpaces/Policy": {
        "nameSpace": "*", "durability": "Durable", "aligner": "true", "alignee": "Initial"
    },
    "Domain/Service": {"name": "durability"},
    "DurabilityService": {"name": "durability"},
}  # fmt: skip


def document_with(path: str, value: str | None) -> str:
    """A small file in which the elements around a path are there, and it has a value unless that is None."""
    element, _, attribute = path.partition("@")
    names = element.split("/")
    text = ""
    for depth in range(len(names), 0, -1):
        here = "/".join(names[:depth])
        given = dict(REQUIRED.get(here, {}))
        if depth == len(names):
            if attribute and value is not None:
                given[attribute] = value
            elif not attribute:
                text = value or ""
        elif value is None and depth == len(names) - 1 and not attribute:
            text = ""  # without the element itself
        attributes = "".join(f' {name}="{one}"' for name, one in given.items())
        text = f"<{names[depth - 1]}{attributes}>{text}</{names[depth - 1]}>"
    return f"<OpenSplice>{text}</OpenSplice>"


def fields_of(thing: Any, owner: str = "configuration") -> Iterator[tuple[str, str, object]]:
    """Section, field and value of everything in a configuration but places and the list of settings."""
    if isinstance(thing, tuple):
        yield owner, "", len(thing)
        for each in thing:
            yield from fields_of(each, owner)
    elif not isinstance(thing, SettingOrigin):
        for name in names_of(thing):
            value = getattr(thing, name)
            if name in ("settings", "ignored", "path"):
                continue
            if names_of(value) or isinstance(value, tuple):
                yield owner, name, None
                yield from fields_of(value, name)
            else:
                yield owner, name, value


def names_of(thing: Any) -> tuple[str, ...]:
    """The fields of a part of the configuration; none of another value."""
    if dataclasses.is_dataclass(thing):
        return tuple(field.name for field in dataclasses.fields(thing))
    return getattr(thing, "__struct_fields__", ())


def changed_by(path: str) -> set[tuple[str, str]]:
    """Section and field of what a setting changes in the configuration."""

    def meaning(value: str | None) -> list[tuple[str, str, object]]:
        document = parse(document_with(path, value).encode(), "f.xml", {})
        configuration: Configuration = interpret(document).configuration
        return list(fields_of(configuration))

    without, with_it = meaning(None), meaning(value_of(engine_schema()[path]))
    return {each[:2] for each in {*without} ^ {*with_it}}


class Accesses:
    """Every `a.b` and `x.a.b` in the modules of a node and of the commands that start one, as (a, b)."""

    def __init__(self, root: pathlib.Path, modules: list[pathlib.Path]) -> None:
        self.pairs: set[tuple[str, str]] = set()
        for module in modules:
            name = str(module.relative_to(root))
            is_of_node = name.startswith(("engine/", "ospltool/cli/")) and not name.startswith(NOT_A_NODE)
            if is_of_node or name == "engine/config/scheduling.py":
                self._read(ast.parse(module.read_bytes()))
        self.names = {name for _, name in self.pairs}

    def _read(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                owner = node.value
                last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                self.pairs.add((last, node.attr))

    def may_read(self, changed: set[tuple[str, str]]) -> bool:
        """Whether something reads a field of that name, or a whole list."""
        return any(READ_AS.get(name or owner, name or owner) in self.names for owner, name in changed)

    def do_read(self, changed: set[tuple[str, str]]) -> bool:
        """Whether something reads just that."""
        return any(each in self.pairs or each[0] in WHOLE & self.names for each in changed)


def test_what_works_is_read_and_what_is_not_needed_is_not(
    root: pathlib.Path, modules: list[pathlib.Path]
) -> None:
    accesses, wrong = Accesses(root, modules), []
    for path in VALUED:
        changed = changed_by(path)
        if fates()[path].fate is not Fate.WORKS:
            if accesses.do_read(changed):
                wrong.append(f"{path} changes {changed}, which a node reads")
        elif path not in USED_UP and not accesses.may_read(changed):
            wrong.append(f"{path} changes {changed}, which no part of a node reads")
    assert wrong == []


def test_the_page_is_what_the_table_says() -> None:
    assert page.PAGE.read_text("utf-8") == page.page(), "run: python -m docs.settings"
