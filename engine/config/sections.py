"""Reading typed values from a document, with documented defaults and the origin of each value."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.config.schema import Item, Schema, documented
from engine.config.settings import (
    Expiry,
    Scheduling,
    SchedulingClass,
    Setting,
    SettingOrigin,
)
from engine.config.tree import Document, Value, XmlElement
from engine.config.values import ValueFault, default_value, parse_value

_Part = typing.TypeVar("_Part")


class SettingsReader:
    """Finds values by schema path in the sections that apply to one node.

    `sections` has the element for the first part of a path, None if the file has none. A value that its item
    does not allow reads as the default; the schema check reports it.
    """

    def __init__(self, document: Document, known: Schema, sections: Mapping[str, XmlElement | None]) -> None:
        self.settings: list[Setting] = []
        self._document = document
        self._known = known
        self._sections = sections
        self._first: dict[str, XmlElement] = {}
        for name, section in sections.items():
            if section:
                self._index(name, section)

    def _index(self, name: str, section: XmlElement) -> None:
        """Index the first element at each path; a section may replace one of another name."""
        for node in section.walk():
            path = node.path if section.name == name else name + node.path[len(section.name) :]
            self._first.setdefault(path, node)

    def node(self, path: str) -> XmlElement | None:
        """Return the first element at a path."""
        return self._first.get(path)

    def nodes(self, path: str) -> list[XmlElement]:
        """Return all elements at a path, in document order."""
        section, _, rest = path.partition("/")
        node = self._sections.get(section)
        return node.find_all(rest) if node else []

    def origin(self, node: XmlElement) -> SettingOrigin:
        """Return the place of an element."""
        return SettingOrigin(self._document.path, node.line, node.column)

    def has(self, path: str) -> bool:
        """Tell whether the file sets a value at a path; an element without text does not."""
        return self._written(path, None) is not None

    def value(self, path: str, within: XmlElement | None = None) -> str | int | float | bool:
        """Return the value at a path, within one element if that is given."""
        item = self._known[path]
        written = self._written(path, within)
        value = default_value(item)
        raw, origin = None, SettingOrigin()
        if written is not None and not written.is_broken:
            parsed = _parsed(item, written.text)
            if parsed is not None:
                value, raw = parsed, written.raw
                origin = SettingOrigin(self._document.path, *written.position)
        self.settings.append(Setting(documented(path), value, raw, origin))
        return value

    def _written(self, path: str, within: XmlElement | None) -> Value | None:
        element, at, attribute = path.partition("@")
        if within is None:
            node = self._first.get(element)
        elif element == within.path:
            node = within
        else:
            node = within.find(element.removeprefix(within.path + "/"))
        if node is None or not at:
            return node.value if node else None
        found = node.attribute(attribute)
        return found.value if found else None

    def record(
        self, path: str, value: str | int | float | bool, raw: str | None, origin: SettingOrigin
    ) -> None:
        """Record a setting whose value was not read by its path alone.

        Args:
            path: schema path.
            value: the effective value.
            raw: the text in the file, None for a default.
            origin: the place of the value.
        """
        self.settings.append(Setting(documented(path), value, raw, origin))

    def texts(self, nodes: Iterable[XmlElement]) -> tuple[str, ...]:
        """Return the texts of elements of one kind, and record each with its place."""
        found = []
        for node in nodes:
            position = node.value.position if node.value else (node.line, node.column)
            raw = node.value.raw if node.value else ""
            self.record(node.path, node.text, raw, SettingOrigin(self._document.path, *position))
            found.append(node.text)
        return tuple(found)

    def part(
        self, kind: type[_Part], within: XmlElement | None = None, **given: Callable[[], object]
    ) -> _Part:
        """Read the settings of a class, in the order of its fields.

        Args:
            kind: the class; its annotations name the paths.
            within: the element to which all its paths lead, of several.
            given: what makes the fields that are not read by their paths alone.
        """
        found: dict[str, object] = {}
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            if name in given:
                found[name] = given[name]()
            elif typing.get_origin(hint) is typing.Annotated:
                found[name] = self._typed(hint.__origin__, *hint.__metadata__, within=within)
        return kind(**found)

    def _typed(self, kind: Any, path: str, above: str = "", *, within: XmlElement | None) -> object:
        """Return the value at a path as a type; a value at the path `above` is the default."""
        if above and not self.has(path) and self.has(above):
            setting = next(each for each in self.settings if each.path == documented(above))
            self.record(path, setting.value, setting.raw, setting.origin)
            return setting.value
        if isinstance(kind, types.UnionType):  # with None: not set unless the file has it
            return self.value(path, within) if self.has(path) else None
        if kind is Expiry:
            return self.expiry(path)
        if kind is Scheduling:
            return self.scheduling(path, within)
        value = self.value(path, within)
        is_by_name = isinstance(kind, type) and issubclass(kind, enum.IntEnum)
        return kind[str(value)] if is_by_name else kind(value)

    def text(self, path: str, within: XmlElement | None = None) -> str:
        """Return a string or a label."""
        return str(self.value(path, within))

    def flag(self, path: str, within: XmlElement | None = None) -> bool:
        """Return a boolean."""
        return bool(self.value(path, within))

    def whole(self, path: str, within: XmlElement | None = None) -> int:
        """Return a whole number."""
        return int(self.value(path, within))

    def number(self, path: str, within: XmlElement | None = None) -> float:
        """Return a number, in the unit of the schema."""
        return float(self.value(path, within))

    def expiry(self, path: str) -> Expiry:
        """Return an ExpiryTime element with its update_factor."""
        return Expiry(self.number(path), self.number(f"{path}@update_factor"))

    def scheduling(self, path: str, within: XmlElement | None = None) -> Scheduling:
        """Return a Scheduling element."""
        wanted = SchedulingClass(self.text(f"{path}/Class", within))
        of_class = self.settings[-1].origin
        priority = self.whole(f"{path}/Priority", within)
        origin = self.settings[-1].origin
        if not origin.line:
            origin = of_class
        is_absolute = self.text(f"{path}/Priority@priority_kind", within) == "Absolute"
        return Scheduling(wanted, priority, is_absolute, origin)


def _parsed(item: Item, text: str) -> str | int | float | bool | None:
    try:
        return parse_value(item, text)
    # The caller reports a value that cannot be read, with its place; here it only has no value.
    except ValueFault:
        return None
