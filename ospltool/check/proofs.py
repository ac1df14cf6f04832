"""The proof that an edit of a file changes nothing: equal effective settings in every environment.

A file may belong to several nodes with different variables, and what one of them does not use another may
need. So the settings before and after an edit are compared once for each environment in which the file is
expanded. A file whose environments are not declared is compared as it stands: nothing may then rest on a
value that has variables.

Effective are all elements, attributes and texts of a file, except those that neither OpenSplice nor a node of
ospltool uses (`_Reading`). What only one of the two ignores stays.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from engine.config import Attribute, ConfigError, Value, XmlElement, parse
from engine.config.reader import path_of_uri
from engine.config.schema import schema
from engine.config.values import ValueFault, parse_value
from engine.core.expressions import covers, intersection
from engine.core.name_spaces import Element
from ospltool.check.inputs import NodeInput

MAX_PARSED_BYTES: Final = 4 << 20
"""Most bytes that are parsed for the proofs of one file; further edits of it count as unproved.

It is enough for 800 edits of a file of 5 KB, and a hostile file costs seconds at most.
"""
MAX_MERGES: Final = 50
"""Most Merge elements of a Policy that are searched for those that never decide."""

Effect: TypeAlias = tuple[object, ...]
_VARIABLE: Final = re.compile(rb"\$\{([^:}]*)")


class _Environment(NamedTuple):
    """Variables of a node; `is_declared` says that they are those with which it starts."""

    variables: Mapping[str, str]
    is_declared: bool


class Proofs:
    """The environments of files, and the proofs that rest on them."""

    def __init__(self) -> None:
        self._noted: list[tuple[NodeInput, bool]] = []
        self._environments: dict[str, list[_Environment]] = {}
        self._parsed_bytes: dict[str, int] = {}

    def note(self, nodes: Iterable[NodeInput], *, declared: bool) -> None:
        """Note nodes with their files; `declared` says that they start with their environment."""
        self._noted += ((each, declared) for each in nodes)

    def holds(self, path: str, before: bytes, after: bytes) -> bool:
        """Tell whether a file means the same before and after an edit, in every environment of its nodes.

        Args:
            path: the file, whatever its nodes call it.
            before: its content before the edit.
            after: its content after it.
        """
        self._group_by_file()
        key = os.path.realpath(path)  # nodes may name one file in several ways
        distinct = set(self._variables(key, before + after))
        cost = (len(before) + len(after)) * len(distinct)
        self._parsed_bytes[key] = self._parsed_bytes.get(key, 0) + cost
        if not distinct or self._parsed_bytes[key] > MAX_PARSED_BYTES:
            return False
        try:
            return all(effect_of(before, each) == effect_of(after, each) for each in distinct)
        # An edit that makes the file unreadable proves nothing.
        except ConfigError:
            return False

    def _group_by_file(self) -> None:
        """Sort the noted nodes by their files; runs without fixes do not pay for it."""
        for node, declared in self._noted:
            with contextlib.suppress(ConfigError):
                key = os.path.realpath(path_of_uri(node.uri))
                self._environments.setdefault(key, []).append(_Environment(node.environ, declared))
        self._noted.clear()

    def _variables(self, path: str, data: bytes) -> Iterator[tuple[tuple[str, str], ...] | None]:
        """Yield what each environment of a file sets of the variables in it; None for any environment."""
        names = {name.decode("utf-8", "replace") for name in _VARIABLE.findall(data)}
        for each in self._environments.get(path, ()):
            given = ((name, each.variables[name]) for name in sorted(names) if name in each.variables)
            yield tuple(given) if each.is_declared else None


def effect_of(data: bytes, variables: Iterable[tuple[str, str]] | None) -> Effect:
    """Return the effective settings of a file, to be compared with others.

    With `variables` None they are those in any environment: values with variables are unknown.

    Raises:
        ConfigError: the file cannot be parsed.
    """
    document = parse(data, "", dict(variables or ()))
    reading = _Reading(is_any=variables is None)
    return reading.effect(document.root), tuple(str(each.kind) for each in document.problems)


class _Reading:
    """One reading of a file: with expanded values, or with unknown ones where variables are."""

    def __init__(self, *, is_any: bool) -> None:
        self._is_any = is_any

    def _text(self, value: Value) -> str | None:
        """Return a value, None if it is unknown."""
        return None if value.is_broken or (self._is_any and value.uses) else value.text.strip()

    def _comparable(self, value: Value) -> tuple[bool, str]:
        """Return a value to compare: the text, or the unexpanded one of an unknown value."""
        text = self._text(value)
        return (True, text) if text is not None else (False, value.raw)

    def _given(self, node: XmlElement, name: str) -> str | None:
        """Return the value of an attribute; None if it is unknown or not there."""
        attribute = node.attribute(name)
        return self._text(attribute.value) if attribute else None

    def effect(self, node: XmlElement) -> Effect:
        """Return what counts in an element and all below it."""
        attributes = tuple(
            sorted(
                (each.name, self._comparable(each.value))
                for each in node.attributes
                if not self._is_idle(node, each)
            )
        )
        value = self._comparable(node.value) if node.value else None
        return node.name, attributes, value, tuple(self._children(node))

    def _is_idle(self, node: XmlElement, attribute: Attribute) -> bool:
        """Tell whether neither OpenSplice nor a node uses an attribute."""
        match node.path, attribute.name:
            case "DurabilityService/NameSpaces/NameSpace", "mergePolicy":
                is_idle = True  # read by nobody
            case "DurabilityService/NameSpaces/Policy", "masterPriority":
                is_idle = (self._given(node, "aligner") or "").lower() == "false"  # it is no candidate
            case _:
                is_idle = False
        return is_idle and self._is_sound(node, attribute.name)

    def _is_sound(self, node: XmlElement, name: str) -> bool:
        """Tell whether an attribute has a value that nobody refuses: no node starts with any other."""
        text = self._given(node, name)
        with contextlib.suppress(ValueFault):
            return text is not None and parse_value(schema()[f"{node.path}@{name}"], text) is not None
        return False

    def _children(self, node: XmlElement) -> Iterator[Effect]:
        match node.path:
            case "DurabilityService/NameSpaces/NameSpace":
                yield from dict.fromkeys(map(self._expression, node.children))
            case "DurabilityService/NameSpaces/Policy":
                merges = [each for each in node.children if each.name == "Merge"]
                for each in node.children:
                    if each.name != "Merge":
                        yield self.effect(each)
                yield from map(self.effect, self._deciding(merges))
            case _:
                yield from map(self.effect, node.children)

    def _expression(self, node: XmlElement) -> Effect:
        """Return a Partition or PartitionTopic; a partition is one with all its topics."""
        text = self._text(node.value) if node.value else ""
        if text is not None and not node.attributes and not node.children:
            with contextlib.suppress(ValueError):  # a blank topic
                if node.name == "Partition":
                    return "expression", str(Element(text, "*"))
                if node.name == "PartitionTopic":
                    return "expression", str(Element.parse(text))
        return "other", repr(self.effect(node))

    def _deciding(self, merges: list[XmlElement]) -> list[XmlElement]:
        """Leave out Merge elements that decide for no role: neither by the first match nor by the last one.

        A node takes the first that matches, as documented, and OpenSplice the last one.
        """
        at = len(merges) - 1 if len(merges) <= MAX_MERGES else -1
        while at >= 0:
            before, after = merges[:at][::-1], merges[at + 1 :]
            if (self._is_never_reached(merges[at], before, after)
                    and self._is_never_reached(merges[at], after, before)):  # fmt: skip
                del merges[at]
            at -= 1
        return merges

    def _is_never_reached(
        self, merge: XmlElement, earlier: list[XmlElement], later: list[XmlElement]
    ) -> bool:
        """Tell whether a Merge changes nothing where those that are `earlier` take precedence.

        Either one of them takes all its roles, or the next of the `later` ones that takes any has its type.
        """
        scope = self._given(merge, "scope")
        if scope is None or merge.children or len(merge.attributes) != 2 or not self._is_sound(merge, "type"):
            return False
        scopes = [each for one in earlier if (each := self._given(one, "scope")) is not None]
        if any(covers(wide, scope) for wide in scopes):
            return True
        for one in later:
            other = self._given(one, "scope")
            if other is not None and intersection(other, scope) is None:
                continue
            if other is None or self._given(one, "type") != self._given(merge, "type"):
                return False
            if covers(other, scope):
                return True
        return False
