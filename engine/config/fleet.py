"""The fleet file `fleet.toml`: the nodes of one deployment, and the copies expected of its name-spaces.

start, check, simulate, record, top, health and status read it: `[[node]]` tables with `name`, `file`
(relative to the fleet file), and optionally `role`, `env = {}` and `domain`; `[[name-space]]` tables with
`name`, `copies`, `on-disk` and `domain`; `domain` for all of them. Commands that only watch need no
`file`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from engine.config.loader import load
from engine.config.problems import ConfigError, Problem, ProblemKind, quoted
from engine.config.reader import path_of_uri, read_bytes
from engine.config.settings import MAX_DOMAIN_ID, Configuration

# As many as a system is tried with (the benchmark `crowd`); the check compares nodes in pairs.
MAX_NODES = 1000
"""Limit for the nodes of one fleet file."""

_KEYS = frozenset({"domain", "node", "name-space"})
_NODE_KEYS = frozenset({"name", "file", "role", "env", "domain"})
_SPACE_KEYS = frozenset({"name", "copies", "on-disk", "domain"})
_AT = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


class FleetNode(msgspec.Struct, frozen=True):
    """One node of a fleet.

    `file` is a path or URI to open, empty if the fleet is only watched; with `role` None the role of the file
    counts, with `domain` None its domain; `env` has variables added to those of the process; `line` is that
    of the table in the fleet file, and `file_place` where it names the file: path, line and column.
    """

    name: str
    file: str
    role: str | None = None
    env: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    line: int = 0
    domain: int | None = None
    file_place: tuple[str, int, int] = ("", 1, 1)

    def configuration(self, base: Mapping[str, str], role: str | None = None) -> Configuration:
        """Read the node's file.

        Args:
            base: the variables of the process.
            role: replaces the role of the fleet file.

        Raises:
            ConfigError: as for `load`; the place of a file that cannot be read is in the fleet file.
        """
        try:
            return load(self.file, self.environ(base), role=self.role if role is None else role)
        except ConfigError as error:
            path, line, column = self.file_place
            problems = [
                msgspec.structs.replace(
                    one,
                    message=f"file {quoted(self.file)} {one.message}",
                    path=path,
                    line=line,
                    column=column,
                )
                if one.kind is ProblemKind.UNREADABLE
                else one
                for one in error.problems
            ]
            raise ConfigError(problems) from error

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for the node's file: `base` with the variables of the fleet file."""
        return {**base, **self.env}


class FleetSpace(msgspec.Struct, frozen=True):
    """The number of nodes that shall have a name-space (`copies`), and of those on disk; 0 for unspecified.

    `domain` None means every domain of the fleet.
    """

    name: str
    copies: int = 0
    on_disk: int = 0
    domain: int | None = None


class Fleet(msgspec.Struct, frozen=True):
    """A deployment; the nodes have different names, in the order of the file."""

    path: str
    nodes: tuple[FleetNode, ...]
    name_spaces: tuple[FleetSpace, ...] = ()

    def node(self, name: str) -> FleetNode | None:
        """Return the node of that name."""
        return next((node for node in self.nodes if node.name == name), None)


def load_fleet(path: str | Path, *, only_watched: bool = False) -> Fleet:
    """Read a fleet file; with `only_watched`, nodes need no `file`.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or is not a usable fleet; it has all problems.
    """
    name = path_of_uri(str(path))
    data = read_bytes(name)
    try:
        text = data.decode("utf-8")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(ProblemKind.ENCODING, "the file is not UTF-8", name, line, 1)]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_toml_problem(name, text, str(error))]) from error
    except RecursionError as error:
        raise ConfigError(
            [Problem(ProblemKind.TOO_LARGE, "values are nested too deep", name, 1, 1)]
        ) from error
    except ValueError as error:  # a number of more digits than Python takes
        raise ConfigError([Problem(ProblemKind.SYNTAX, "a number is too long", name, 1, 1)]) from error
    return _Reader(name, text, needs_files=not only_watched).fleet(table)


def _toml_problem(path: str, text: str, message: str) -> Problem:
    found = _AT.search(message)
    if found:
        return Problem(ProblemKind.SYNTAX, message[: found.start()], path, int(found[1]), int(found[2]))
    line = text.count("\n") + 1 if "at end of document" in message else 1
    return Problem(ProblemKind.SYNTAX, message, path, line, 1)


class _Places:
    """Lines and columns of tables and keys, from 1, which TOML readers do not report."""

    def __init__(self, text: str) -> None:
        self._tables: dict[str, list[int]] = {}
        self._keys: dict[tuple[int, str], tuple[int, int]] = {}
        table = 0
        for number, line in enumerate(text.splitlines(), 1):
            if found := re.match(r"\s*\[\[\s*([\w-]+)\s*\]\]", line):
                table = number
                self._tables.setdefault(found[1], []).append(number)
            elif found := re.match(r"\s*([\w-]+|\"[^\"]*\")\s*=", line):
                self._keys.setdefault((table, found[1].strip('"')), (number, found.start(1) + 1))

    def table(self, name: str, index: int) -> int:
        """Return the line of a table of an array; 1 if it is written in another form."""
        lines = self._tables.get(name, [])
        return lines[index] if index < len(lines) else 1

    def key(self, table: int, name: str) -> tuple[int, int]:
        """Return line and column of a key of the table in line `table`, 0 for the top; or the table's own."""
        return self._keys.get((table, name), (max(table, 1), 1))


class _Reader:
    def __init__(self, path: str, text: str, *, needs_files: bool) -> None:
        self.path = path
        self.needs_files = needs_files
        self.problems: list[Problem] = []
        self.places = _Places(text)

    def fleet(self, table: dict[str, Any]) -> Fleet:
        for key in table:
            if key not in _KEYS:
                words = "a fleet file allows domain, [[node]] and [[name-space]]"
                self._found(
                    ProblemKind.UNKNOWN_ELEMENT, f"unknown key {quoted(key)}; {words}", *self._top(key)
                )
        domain = self._domain(table, 0)
        entries = table.get("node")
        if not isinstance(entries, list) or not entries:
            self._found(ProblemKind.MISSING_ELEMENT, "a fleet needs at least one [[node]] table", 1)
            entries = []
        if len(entries) > MAX_NODES:
            self._found(
                ProblemKind.TOO_LARGE, f"a fleet has at most {MAX_NODES} nodes, not {len(entries)}", 1
            )
            entries = []
        nodes = [node for at, entry in enumerate(entries) if (node := self._node(entry, at, domain))]
        self._check_names(nodes)
        spaces = self._spaces(table, domain, len(entries))
        if self.problems:
            raise ConfigError(self.problems)
        return Fleet(self.path, tuple(nodes), tuple(spaces))

    def _top(self, key: str) -> tuple[int, int]:
        line = self.places.table(key, 0)
        return (line, 1) if line > 1 else self.places.key(0, key)

    def _found(self, kind: ProblemKind, message: str, line: int, column: int = 1) -> None:
        self.problems.append(Problem(kind, message, self.path, line, column))

    def _node(self, entry: Any, at: int, domain: int | None) -> FleetNode | None:
        line = self.places.table("node", at)
        if not isinstance(entry, dict):
            self._found(ProblemKind.BAD_VALUE, "node must be a table", line)
            return None
        self._check_keys(entry, _NODE_KEYS, "a node", line)
        name = self._text(entry, "name", "a node", line)
        file = self._text(entry, "file", "a node", line) if self.needs_files or "file" in entry else ""
        role = self._text(entry, "role", "a node", line) if "role" in entry else None
        own = self._domain(entry, line)
        env = entry.get("env", {})
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            message = 'env must be a table of texts, such as env = { PRIORITY = "100" }'
            self._found(ProblemKind.BAD_VALUE, message, *self.places.key(line, "env"))
            env = {}
        if not name or (self.needs_files and not file):
            return None
        if file and "://" not in file:
            file = str(Path(self.path).parent / file)
        found = domain if own is None else own
        place = (self.path, *self.places.key(line, "file"))
        return FleetNode(name, file, role, MappingProxyType(dict(env)), line, found, place)

    def _spaces(self, table: dict[str, Any], domain: int | None, nodes: int) -> list[FleetSpace]:
        entries = table.get("name-space", [])
        if not isinstance(entries, list):
            self._found(ProblemKind.BAD_VALUE, "write [[name-space]] tables", *self._top("name-space"))
            return []
        found: dict[tuple[str, int | None], FleetSpace] = {}
        for at, entry in enumerate(entries):
            line = self.places.table("name-space", at)
            if not isinstance(entry, dict):
                self._found(ProblemKind.BAD_VALUE, "name-space must be a table", line)
                continue
            self._check_keys(entry, _SPACE_KEYS, "a name-space", line)
            name = self._text(entry, "name", "a name-space", line)
            copies = self._number(entry, "copies", line, nodes)
            on_disk = self._number(entry, "on-disk", line, copies or nodes)
            own = self._domain(entry, line)
            space = FleetSpace(name, copies, on_disk, domain if own is None else own)
            if (space.name, space.domain) in found:
                message = f"two name-spaces are called {quoted(name)}"
                self._found(ProblemKind.DUPLICATE_NAME, message, *self.places.key(line, "name"))
            found[space.name, space.domain] = space
        return list(found.values())

    def _check_keys(self, entry: dict[str, Any], known: frozenset[str], what: str, line: int) -> None:
        for key in entry:
            if key not in known:
                message = f"unknown key {quoted(key)} of {what}; it has {', '.join(sorted(known))}"
                self._found(ProblemKind.UNKNOWN_ATTRIBUTE, message, *self.places.key(line, key))

    def _text(self, entry: dict[str, Any], key: str, what: str, line: int) -> str:
        value = entry.get(key)
        if isinstance(value, str) and value.strip() and "\0" not in value:
            return value
        wrong = f"{key} of {what} must be a text" if key in entry else f"{what} lacks {key}"
        kind = ProblemKind.BAD_VALUE if key in entry else ProblemKind.MISSING_ATTRIBUTE
        self._found(kind, wrong, *self.places.key(line, key))
        return ""

    def _domain(self, entry: dict[str, Any], line: int) -> int | None:
        return self._number(entry, "domain", line, MAX_DOMAIN_ID) if "domain" in entry else None

    def _number(self, entry: dict[str, Any], key: str, line: int, most: int) -> int:
        value = entry.get(key, 0)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        message = f"{key} must be a number from 0 to {most}, not {quoted(str(value))}"
        self._found(ProblemKind.BAD_VALUE, message, *self.places.key(line, key))
        return 0

    def _check_names(self, nodes: list[FleetNode]) -> None:
        seen: dict[str, int] = {}
        for node in nodes:
            if node.name in seen:
                message = f"two nodes are called {quoted(node.name)}; the first is in line {seen[node.name]}"
                self._found(ProblemKind.DUPLICATE_NAME, message, node.line)
            seen.setdefault(node.name, node.line)
