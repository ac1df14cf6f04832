"""What the OpenSplice configuration schema knows of every element and attribute.

The data stand in `opensplice.tsv`, one line per element or attribute, in the order of the schema. Paths are
written below the root: `Domain/Name`, `DurabilityService/NameSpaces/Policy@aligner`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

ROOT = "OpenSplice"


class Type(enum.StrEnum):
    """The types of the schema; `ELEMENT` holds other elements and no value."""

    ELEMENT = "element"
    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOLEAN = "boolean"
    ENUM = "enum"
    SIZE = "size"


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One element or attribute.

    `minimum` and `maximum` are how often an element may occur in its parent (None: without bound); an
    attribute is required when `minimum` is 1. `low` and `high` are the inclusive range of a number, empty
    where it is open. `max_length` counts characters, 0 for no bound. A hidden item is deprecated; a
    commercial one is ignored by the community edition. `name` is the last part of the path and `parent` what
    comes before it; the parent of a child of the root is empty.
    """

    path: str
    type: Type
    minimum: int
    maximum: int | None
    default: str
    low: str
    high: str
    labels: tuple[str, ...]
    max_length: int
    unit: str
    hidden: bool
    commercial: bool

    is_attribute: bool
    name: str
    parent: str


class Schema:
    """All items, and the ways to look them up."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = {item.path: item for item in items}
        self._children: dict[str, dict[str, Item]] = {}
        self._attributes: dict[str, dict[str, Item]] = {}
        self._required: dict[str, list[Item]] = {}
        for item in self._items.values():
            if item.minimum:
                self._required.setdefault(item.parent, []).append(item)
            index = self._attributes if item.is_attribute else self._children
            index.setdefault(item.parent, {})[item.name] = item

    def __getitem__(self, path: str) -> Item:
        return self._items[path]

    def __contains__(self, path: object) -> bool:
        return path in self._items

    def get(self, path: str) -> Item | None:
        """The item at a path, or None."""
        return self._items.get(path)

    def with_labels(self, path: str, labels: tuple[str, ...]) -> Schema:
        """A schema in which an enumeration has further labels."""
        widened = dict(self._items)
        widened[path] = dataclasses.replace(widened[path], labels=widened[path].labels + labels)
        return Schema(widened.values())

    def paths(self) -> tuple[str, ...]:
        """Every path, in the order of the schema."""
        return tuple(self._items)

    def children(self, path: str) -> Mapping[str, Item]:
        """The elements that may stand in an element, by name."""
        return self._children.get(path, {})

    def attributes(self, path: str) -> Mapping[str, Item]:
        """The attributes that an element may have, by name."""
        return self._attributes.get(path, {})

    def required(self, path: str) -> Sequence[Item]:
        """The elements and attributes that an element must have."""
        return self._required.get(path, ())


SERVICE_COMMANDS: Mapping[str, str] = {
    "durability": "DurabilityService",
    "networking": "NetworkService",
    "snetworking": "SNetworkService",
    "ddsi2": "DDSI2Service",
    "ddsi2e": "DDSI2EService",
    "cmsoap": "TunerService",
    "dbmsconnect": "DbmsConnectService",
    "rnr": "RnRService",
    "nwbridge": "NetworkingBridgeService",
    "cmagent": "Agent",
}
"""Which element configures the service that a command starts."""


@functools.lru_cache(maxsize=4096)
def documented(path: str) -> str:
    """A path as the OpenSplice documentation writes it."""
    element, at, attribute = path.partition("@")
    whole = f"//{ROOT}/{element}" if element else f"//{ROOT}"
    return f"{whole}[@{attribute}]" if at else whole


@functools.cache
def engine_schema() -> Schema:
    """The schema with what the documentation has beyond it, and an ospltool node therefore takes.

    Policy durability Volatile stands in the deployment guide, 5.2.3.2, but OpenSplice itself refuses it.
    """
    return schema().with_labels("DurabilityService/NameSpaces/Policy@durability", ("Volatile",))


@functools.cache
def schema() -> Schema:
    """The schema of OpenSplice 6.9, read once."""
    text = resources.files("engine.config").joinpath("opensplice.tsv").read_text("utf-8")
    return Schema(_item(line) for line in text.splitlines() if line and not line.startswith("#"))


def _item(line: str) -> Item:
    path, kind, occurs, default, bounds, unit, flags = (line.split("\t") + [""] * 6)[:7]
    type_ = Type(kind)
    low, _, high = bounds.partition("..") if type_ is not Type.ENUM else ("", "", "")
    minimum, maximum = _occurrence(occurs)
    is_string = type_ is Type.STRING
    separator = "@" if "@" in path else "/"
    parent, _, name = path.rpartition(separator)
    return Item(
        path=path,
        type=type_,
        minimum=minimum,
        maximum=maximum,
        default=default,
        low="" if is_string else low,
        high="" if is_string else high,
        labels=tuple(bounds.split("|")) if type_ is Type.ENUM else (),
        max_length=int(high) if is_string and high else 0,
        unit=unit,
        hidden="hidden" in flags,
        commercial="commercial" in flags,
        is_attribute=separator == "@",
        name=name,
        parent=parent,
    )


def _occurrence(text: str) -> tuple[int, int | None]:
    if text in ("required", "optional"):
        return int(text == "required"), 1
    low, _, high = text.partition("..")
    return int(low), None if high == "*" else int(high)
