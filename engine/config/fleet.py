"""The nodes of one deployment: `fleet.toml`.

One format for start, check, simulate and record: `[[node]]` tables with `name`, `file` (relative to the fleet
file), and optionally `role` and `env = {}`.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.config.problems import ConfigError, Kind, Problem, quoted
from engine.config.reader import path_of_uri, read_bytes

MAX_NODES = 1000
"""Most nodes of one fleet file."""

_KEYS = frozenset({"name", "file", "role", "env"})
_AT = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


@dataclasses.dataclass(frozen=True, slots=True)
class FleetNode:
    """One node.

    `file` is a path or URI ready to be opened; `role` None leaves the role of the file; `env` has variables
    on top of those of the process; `line` is that of the table in the fleet file.
    """

    name: str
    file: str
    role: str | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    line: int = 0

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """The variables that the node's file sees: those of the fleet file over those of `base`."""
        return {**base, **self.env}


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    """A deployment; the nodes stand in the order of the file and have different names."""

    path: str
    nodes: tuple[FleetNode, ...]

    def node(self, name: str) -> FleetNode | None:
        """The node of that name."""
        return next((node for node in self.nodes if node.name == name), None)


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file.

    Raises:
        ConfigError: it cannot be read, is not TOML, or describes no usable fleet; all problems are named.
    """
    name = path_of_uri(str(path))
    data = read_bytes(name)
    try:
        text = data.decode("utf-8")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(Kind.ENCODING, "the file is not UTF-8", name, line, 1)]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_toml_problem(name, text, str(error))]) from error
    except RecursionError as error:
        raise ConfigError([Problem(Kind.TOO_LARGE, "values are nested too deep", name, 1, 1)]) from error
    return _Reader(name, text).fleet(table)


def _toml_problem(path: str, text: str, message: str) -> Problem:
    found = _AT.search(message)
    if found:
        return Problem(Kind.SYNTAX, message[: found.start()], path, int(found[1]), int(found[2]))
    line = text.count("\n") + 1 if "at end of document" in message else 1
    return Problem(Kind.SYNTAX, message, path, line, 1)


class _Reader:
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.lines = [
            number
            for number, line in enumerate(text.splitlines(), 1)
            if re.match(r"\s*\[\[\s*node\s*\]\]", line)
        ]

    def fleet(self, table: dict[str, Any]) -> Fleet:
        for key in table:
            if key != "node":
                self._found(
                    Kind.UNKNOWN_ELEMENT, f"unknown key {quoted(key)}; a fleet has [[node]] tables", 1
                )
        entries = table.get("node")
        if not isinstance(entries, list) or not entries:
            self._found(Kind.MISSING_ELEMENT, "a fleet needs at least one [[node]] table", 1)
            entries = []
        if len(entries) > MAX_NODES:
            self._found(Kind.TOO_LARGE, f"a fleet has at most {MAX_NODES} nodes, not {len(entries)}", 1)
            entries = []
        nodes = [node for at, entry in enumerate(entries) if (node := self._node(entry, self._line(at)))]
        self._check_names(nodes)
        if self.problems:
            raise ConfigError(self.problems)
        return Fleet(self.path, tuple(nodes))

    def _line(self, at: int) -> int:
        return self.lines[at] if at < len(self.lines) else 1

    def _found(self, kind: Kind, message: str, line: int) -> None:
        self.problems.append(Problem(kind, message, self.path, line, 1))

    def _node(self, entry: Any, line: int) -> FleetNode | None:
        if not isinstance(entry, dict):
            self._found(Kind.BAD_VALUE, "node must be a table", line)
            return None
        for key in entry:
            if key not in _KEYS:
                self._found(Kind.UNKNOWN_ATTRIBUTE, f"unknown key {quoted(key)} of a node", line)
        name = self._text(entry, "name", line)
        file = self._text(entry, "file", line)
        role = self._text(entry, "role", line) if "role" in entry else None
        env = entry.get("env", {})
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            self._found(
                Kind.BAD_VALUE, 'env must be a table of texts, such as env = { PRIORITY = "100" }', line
            )
            env = {}
        if not name or not file:
            return None
        if "://" not in file:
            file = str(Path(self.path).parent / file)
        return FleetNode(name, file, role, MappingProxyType(dict(env)), line)

    def _text(self, entry: dict[str, Any], key: str, line: int) -> str:
        value = entry.get(key)
        if isinstance(value, str) and value.strip() and "\0" not in value:
            return value
        wrong = f"{key} of a node must be a text" if key in entry else f"a node lacks {key}"
        self._found(Kind.MISSING_ATTRIBUTE if key not in entry else Kind.BAD_VALUE, wrong, line)
        return ""

    def _check_names(self, nodes: list[FleetNode]) -> None:
        seen: dict[str, int] = {}
        for node in nodes:
            if node.name in seen:
                message = f"two nodes are called {quoted(node.name)}; the first is in line {seen[node.name]}"
                self._found(Kind.DUPLICATE_NAME, message, node.line)
            seen.setdefault(node.name, node.line)
