"""The OpenSplice configuration schema: all elements and attributes.

The data are in `opensplice.tsv`, one line per element or attribute, in the order of the schema: what
OpenSplice says of it, what a node does with it (`engine.config.fates`), what it means, and what the real
OpenSplice makes of it. Paths are written below the root:
`Domain/Name`, `DurabilityService/NameSpaces/Policy@aligner`. The flag `ours` marks what OpenSplice lacks;
`expression` and `most=N` are bounds of a node.
"""

from __future__ import annotations

import enum
import functools
import pkgutil
from collections.abc import Iterable, Mapping, Sequence

import msgspec

ROOT = "OpenSplice"
_OURS = "ours"
# As in the head of opensplice.tsv; trailing empty columns are not written there.
_COLUMNS = 13
OF_SECRET = "Domain/DomainSecret"  # noqa: S105  # a path of the schema
"""The path of our own element, which OpenSplice does not have."""


class Type(enum.StrEnum):
    """The types of the schema; an `ELEMENT` contains other elements and has no value."""

    ELEMENT = "element"
    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOLEAN = "boolean"
    ENUM = "enum"
    SIZE = "size"


class Item(msgspec.Struct, frozen=True):
    """One element or attribute."""

    path: str
    """Its path below the root."""
    type: Type
    """Its type."""
    minimum: int
    """Least number of occurrences in the parent; 1 for a required attribute."""
    maximum: int | None
    """Largest number of occurrences in the parent; None for no limit."""
    default: str
    """The documented default, as text."""
    low: str
    """Lower bound of a number, included; empty for none."""
    high: str
    """Upper bound of a number, included; empty for none."""
    labels: tuple[str, ...]
    """Values of an enumeration."""
    max_length: int
    """Limit for the characters of a string; 0 for none."""
    unit: str
    """Unit of a number; may be empty."""
    hidden: bool
    """Whether it is deprecated."""
    commercial: bool
    """Whether the community edition ignores it."""
    is_expression: bool
    """Whether it is an expression, or a name that is matched with one, of which a node bounds the length."""
    most: int
    """Most elements that a node reads; 0 for no bound."""
    is_attribute: bool
    """Whether it is an attribute."""
    name: str
    """Last part of the path."""
    parent: str
    """The path before the name; empty for a child of the root."""
    meaning: str
    """What it means, in our words; may be empty."""
    opensplice: str
    """What the real OpenSplice makes of it; may be empty."""


class Schema:
    """The items of a schema."""

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
        """Return the item at a path, or None."""
        return self._items.get(path)

    def with_labels(self, path: str, labels: tuple[str, ...]) -> Schema:
        """Return a schema in which an enumeration has further labels."""
        widened = dict(self._items)
        widened[path] = msgspec.structs.replace(widened[path], labels=widened[path].labels + labels)
        return Schema(widened.values())

    def paths(self) -> tuple[str, ...]:
        """Return all paths, in the order of the schema."""
        return tuple(self._items)

    def children(self, path: str) -> Mapping[str, Item]:
        """Return the elements allowed in an element, by name."""
        return self._children.get(path, {})

    def attributes(self, path: str) -> Mapping[str, Item]:
        """Return the attributes of an element, by name."""
        return self._attributes.get(path, {})

    def required(self, path: str) -> Sequence[Item]:
        """Return the required elements and attributes of an element."""
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
"""The element that configures the service of a command."""


@functools.lru_cache(maxsize=4096)
def documented(path: str) -> str:
    """Write a path as the OpenSplice documentation does."""
    element, at, attribute = path.partition("@")
    whole = f"//{ROOT}/{element}" if element else f"//{ROOT}"
    return f"{whole}[@{attribute}]" if at else whole


@functools.cache
def engine_schema() -> Schema:
    """Return the schema with the documented values that it lacks, which an ospltool node accepts.

    Policy durability Volatile is in the deployment guide, 5.2.3.2, but OpenSplice itself refuses it. It has
    no DomainSecret.
    """
    known = Schema(_item(row) for row in rows())
    return known.with_labels("DurabilityService/NameSpaces/Policy@durability", ("Volatile",))


@functools.cache
def schema() -> Schema:
    """Return the schema of OpenSplice 6.9, read once."""
    return Schema(_item(row) for row in rows() if _OURS not in row[6])


@functools.cache
def rows() -> tuple[list[str], ...]:
    """Return the columns of the table of all settings, without its head."""
    text = (pkgutil.get_data(__package__, "opensplice.tsv") or b"").decode()
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return tuple((line.split("\t") + [""] * _COLUMNS)[:_COLUMNS] for line in lines)


def _item(row: list[str]) -> Item:
    path, kind, occurs, default, bounds, unit, flags = row[:7]
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
        is_expression="expression" in flags,
        most=next((int(flag[5:]) for flag in flags.split() if flag.startswith("most=")), 0),
        is_attribute=separator == "@",
        name=name,
        parent=parent,
        meaning=row[11],
        opensplice=row[12],
    )


def _occurrence(text: str) -> tuple[int, int | None]:
    if text in ("required", "optional"):
        return int(text == "required"), 1
    low, _, high = text.partition("..")
    return int(low), None if high == "*" else int(high)
