"""Settings of Cyclone DDS itself (CYCLONEDDS_URI), compared with those that it knows.

The table `cyclone.tsv` has the elements and attributes that Cyclone DDS 11.0.1 and 0.10.2 accept, below
CycloneDDS/Domain, with their values as observed; a test holds it against the library of 11.0.1. `versions`
is `11`, `0.10`, `build` (only builds with TLS, TCP or security, which that of a node is not) or empty for
both. A word that only one of them takes has its version behind an @. `instead` names the setting that
replaces a deprecated one, or is `-`. `occurrence` is `many` for an element that may be repeated, `required`
for an attribute that must be there, and `unit` for a duration that needs a unit; one that may be `inf`
needs one, too. Durations count in seconds.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Final, TypeAlias

from engine.config import Attribute, ByteRange, Document, Value, XmlElement
from engine.config.problems import quoted
from engine.config.values import did_you_mean
from ospltool.check.findings import MAX_NAMED, ForeignFault, hint

ROOT: Final = "CycloneDDS"
VERSIONS: Final = "0.10.2 and 11.0.1"
"""The releases that the table knows."""
_DOMAIN: Final = "Domain"
_OLD_SECTIONS: Final = ("DDSI2E", "DDSI2")
_ALIASES: Final = {"Unsupported": "Internal"}
"""Old names of sections, which have the settings of the new ones."""
_UNITS: Final[dict[str, dict[str, float]]] = {
    "duration": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "hr": 3600, "day": 86400},
    "memory": {
        "B": 1,
        "kB": 1 << 10,
        "KiB": 1 << 10,
        "MB": 1 << 20,
        "MiB": 1 << 20,
        "GB": 1 << 30,
        "GiB": 1 << 30,
    },
}
_NUMBER: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]*)")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_LONGEST_NUMBER: Final = 64


class CycloneFaultKind(enum.Enum):
    """The kinds of faults, one for each rule."""

    UNKNOWN = "unknown"
    VALUE = "value"
    REMOVED = "removed"
    NEW = "new"
    DEPRECATED = "deprecated"
    SPELLING = "spelling"
    UNIT = "unit"
    REPEATED = "repeated"
    TRIED = "tried"
    REMARKED = "remarked"


@dataclasses.dataclass(frozen=True, slots=True)
class CycloneItem:
    """One element or attribute: a line of `cyclone.tsv`."""

    path: str
    """Path below CycloneDDS/Domain, as in `General/Interfaces/NetworkInterface@name`."""
    type: str
    """Type of the value: duration, element (no value), enum, int, list, memory or string."""
    low: float | None
    """Least number: in seconds, bytes, or as written for an int; None for no bound."""
    high: float | None
    """Greatest number, in the unit of `low`; None for no bound."""
    words: Mapping[str, str]
    """Words that it takes, each with the only version that takes it; empty for both versions."""
    versions: str
    """Versions that know it: `11`, `0.10`, empty for both; `build` if it depends on how they were built."""
    instead: str
    """Setting to use instead of a deprecated one, `-` if there is none; empty if it is not deprecated."""
    occurrence: str
    """`many`, `required`, `unit` (a duration needs a unit), or empty for an optional one."""


class CycloneItems:
    """The table of all settings, `items` by path."""

    def __init__(self, items: Iterable[CycloneItem]) -> None:
        self.items = {item.path: item for item in items}
        self._below: dict[tuple[str, str], dict[str, CycloneItem]] = {}
        for item in self.items.values():
            parent, mark, name = item.path.rpartition("@")
            if not mark:
                parent, mark, name = item.path.rpartition("/")
            if name:
                self._below.setdefault((parent, "@" if mark == "@" else "/"), {})[name] = item

    def children(self, path: str) -> Mapping[str, CycloneItem]:
        """Return the elements in an element, by name."""
        return self._below.get((path, "/"), {})

    def attributes(self, path: str) -> Mapping[str, CycloneItem]:
        """Return the attributes of an element, by name."""
        return self._below.get((path, "@"), {})


@functools.cache
def table() -> CycloneItems:
    """Return the table."""
    text = resources.files("ospltool.check").joinpath("cyclone.tsv").read_text("utf-8")
    return CycloneItems(_item(*line.split("\t")) for line in text.splitlines()[1:])


def _item(path: str, type_: str, values: str, versions: str, instead: str, occurrence: str) -> CycloneItem:
    limits, _, words = values.partition("|")
    low, _, high = limits.partition("..")
    named = (word.partition("@") for word in words.split(",") if word)
    return CycloneItem(
        path,
        type_,
        float(low) if low else None,
        float(high) if high else None,
        {word: version for word, _, version in named},
        versions,
        instead,
        occurrence,
    )


def is_cyclone(document: Document) -> bool:
    """Tell whether a document has settings of Cyclone DDS."""
    return document.root.name.lower() == ROOT.lower()


def domains(document: Document) -> list[XmlElement]:
    """Return the Domain elements."""
    return [child for child in document.root.children if _resolved(child.name, (_DOMAIN,))[0]]


Given: TypeAlias = "XmlElement | Attribute"


def settings(document: Document, *paths: str) -> list[Given]:
    """Return the elements and attributes at paths below Domain in document order, however they are written.

    Names may be shortened, old or in other case, and sections outside of a Domain, or in an old one.
    """
    wanted = set(paths) | {item.path for item in table().items.values() if item.instead in paths}
    found = [thing for path, thing in _written(document.root, None) if path in wanted]
    return sorted(found, key=lambda each: each.span)


def text_of(given: Given) -> str:
    """Return the value of an element or attribute, without blanks around it; empty if it has none."""
    value = given.value
    return value.text.strip() if value is not None and not value.is_broken else ""


def _written(node: XmlElement, path: str | None) -> Iterator[tuple[str, Given]]:
    """Yield the settings below an element with their paths in the table; the root has None."""
    if path is not None:
        known = tuple(table().attributes(path))
        named = ((each, _resolved(each.name, known)[0]) for each in node.attributes)
        yield from ((f"{path}@{name}", each) for each, name in named if name)
    sections = tuple(table().children(path or ""))
    for child in node.children:
        name, _ = _resolved(child.name, (_DOMAIN, *sections, *_OLD_SECTIONS) if path is None else sections)
        if path is None and name in (_DOMAIN, *_OLD_SECTIONS):
            yield from _written(child, "")
        elif name:
            below = f"{path or ''}/{_ALIASES.get(name, name)}".lstrip("/")
            yield below, child
            yield from _written(child, below)


def faults(document: Document) -> Iterator[ForeignFault]:
    """Find everything that Cyclone DDS refuses or warns of, in document order."""
    root = document.root
    sections = table().children("")
    yield from _stray(root)
    for attribute in root.attributes:
        if attribute.name.partition(":")[0].lower() not in ("xmlns", "xsi"):
            yield _unknown(attribute, f"<{root.name}> has no attribute {quoted(attribute.name)}", ())
    for child in root.children:
        name, _ = _resolved(child.name, (_DOMAIN, *sections, *_OLD_SECTIONS))
        if not name:
            yield _unknown(child, f"<{root.name}> has no element {quoted(child.name)}", (_DOMAIN, *sections))
        elif name == _DOMAIN:
            yield from _element(child, table().items[""], {})
        else:
            message = f"<{child.name}> outside of <Domain> is deprecated"
            yield _fault(CycloneFaultKind.DEPRECATED, child.name_span, message, "put it into <Domain>")
            if name in sections:
                yield from _element(child, _of_alias(sections[name]), {})
            elif name in _OLD_SECTIONS:
                yield from _element(child, table().items[""], {})


def subject(path: str) -> str:
    """Return a path below Domain as findings name it."""
    return f"//CycloneDDS/Domain/{path}".rstrip("/")


def _fault(
    kind: CycloneFaultKind, span: ByteRange, message: str, advice: str = "", path: str = ""
) -> ForeignFault:
    return ForeignFault(kind, span, message, advice, subject(path) if path else "")


def _element(node: XmlElement, item: CycloneItem, seen: dict[str, XmlElement]) -> Iterator[ForeignFault]:
    """Find the faults of an element and all below it; `seen` has the values of this Domain by path."""
    yield from _attributes(node, item, seen)
    if item.type == "element":
        yield from _stray(node)
    elif node.value is not None:
        yield from _once(node, item, node, seen)
        yield from _value(node.value, item)
    known = table().children(item.path)
    for child in node.children:
        name, spelling = _resolved(child.name, tuple(known))
        if not name:
            yield _unknown(child, f"<{node.name}> has no element {quoted(child.name)}", tuple(known))
            continue
        yield from _judged(child.name_span, f"<{quoted(child.name)[1:-1]}>", known[name], spelling)
        if known[name].versions in ("", "11"):
            is_new = known[name].occurrence == "many"
            yield from _element(child, _of_alias(known[name]), {} if is_new else seen)


def _of_alias(item: CycloneItem) -> CycloneItem:
    return table().items[_ALIASES.get(item.path, item.path)]


def _attributes(node: XmlElement, item: CycloneItem, seen: dict[str, XmlElement]) -> Iterator[ForeignFault]:
    known = table().attributes(item.path)
    found = set()
    for attribute in node.attributes:
        name, spelling = _resolved(attribute.name, tuple(known))
        if not name:
            message = f"<{node.name}> has no attribute {quoted(attribute.name)}"
            yield _unknown(attribute, message, tuple(known))
            continue
        found.add(name)
        yield from _judged(attribute.name_span, quoted(attribute.name), known[name], spelling)
        yield from _once(attribute, known[name], node, seen)
        yield from _value(attribute.value, known[name])
    for name, each in known.items():
        if each.occurrence == "required" and name not in found:
            yield _fault(
                CycloneFaultKind.VALUE,
                node.name_span,
                f"<{node.name}> lacks the attribute '{name}'",
                path=each.path,
            )


def _resolved(written: str, known: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name that Cyclone DDS takes a written one for, and whether it is written differently.

    It ignores case, and accepts the beginning of a name if only one begins so.
    """
    if written in known:
        return written, False
    folded = written.lower()
    exact = [name for name in known if name.lower() == folded]
    begun = exact or [name for name in known if name.lower().startswith(folded)]
    return (begun[0], True) if len(begun) == 1 else ("", False)


def _unknown(thing: XmlElement | Attribute, message: str, known: tuple[str, ...]) -> ForeignFault:
    begun = [name for name in known if name.lower().startswith(thing.name.lower())]
    places = _places(thing)
    if len(begun) > 1:
        advice = f"this may be {' or '.join(begun[:MAX_NAMED])}"
    elif places:  # a setting in the wrong place keeps its name; the nearest spelling is another setting
        advice = f"it belongs in {' or '.join(places[:MAX_NAMED])}"
    else:
        advice = hint(thing.name, known)
    return _fault(CycloneFaultKind.UNKNOWN, thing.name_span, message, advice)


def _places(thing: XmlElement | Attribute) -> list[str]:
    """Return the elements that have a setting of a name and are not old."""
    mark = "/" if isinstance(thing, XmlElement) else "@"
    split = ((item, *item.path.rpartition(mark)) for item in table().items.values() if not item.instead)
    return [
        parent or _DOMAIN
        for item, parent, _, name in split
        if name.lower() == thing.name.lower() and item.versions in ("", "11")
    ]


def _judged(span: ByteRange, shown: str, item: CycloneItem, spelling: bool) -> Iterator[ForeignFault]:
    """What is to be said of a name that is known."""
    name = re.split("[/@]", item.path)[-1]
    if item.versions == "0.10":
        message = f"Cyclone DDS 11 has no {shown}; 0.10 has it"
        yield _fault(CycloneFaultKind.REMOVED, span, message, path=item.path)
    elif item.versions == "build":
        message = f"the Cyclone DDS of a node is built without {item.path.split('/')[0]}, and refuses {shown}"
        yield _fault(CycloneFaultKind.REMOVED, span, message, path=item.path)
    elif item.versions == "11":
        yield _fault(
            CycloneFaultKind.NEW, span, f"Cyclone DDS 0.10 has no {shown}; 11 has it", path=item.path
        )
    if item.instead:
        advice = "" if item.instead == "-" else f"use {item.instead}"
        effect = "is deprecated, and has no effect" if item.instead == "-" else "is deprecated"
        yield _fault(CycloneFaultKind.DEPRECATED, span, f"{shown} {effect}", advice, item.path)
    elif spelling:
        yield _fault(
            CycloneFaultKind.SPELLING, span, f"{shown} is taken for {name}", f"write {name}", item.path
        )


def _stray(node: XmlElement) -> Iterator[ForeignFault]:
    if node.value is not None:
        message = f"<{node.name}> has no text of its own: {quoted(node.value.raw)}"
        yield _fault(CycloneFaultKind.VALUE, node.value.span, message)


def _once(
    thing: XmlElement | Attribute, item: CycloneItem, node: XmlElement, seen: dict[str, XmlElement]
) -> Iterator[ForeignFault]:
    first = seen.setdefault(item.path, node)
    if first is not node:
        name = item.path.rpartition("/")[2].replace("@", " ")
        message = f"{name} is set twice in one Domain, first in line {first.line}"
        yield _fault(CycloneFaultKind.REPEATED, thing.name_span, message, path=item.path)


def _value(value: Value, item: CycloneItem) -> Iterator[ForeignFault]:
    """Find the faults of a text or of the value of an attribute. An empty one stands for the default."""
    is_exact = "@" in item.path and item.type in ("enum", "list")
    text = value.text if is_exact else value.text.strip()
    if value.is_broken or not text or item.type in ("string", "element"):
        return
    parts = text.split(",") if item.type == "list" else [text]
    for part in parts:
        word = next((each for each in item.words if each.lower() == part.lower()), None)
        if word is None:
            yield from (
                _number(value, part, item) if item.type in ("int", *_UNITS) else _no_word(value, part, item)
            )
        elif item.words[word]:
            other = "0.10" if item.words[word] == "11" else "11"
            what = CycloneFaultKind.NEW if other == "0.10" else CycloneFaultKind.REMOVED
            message = f"Cyclone DDS {other} does not take {quoted(part)} here; {item.words[word]} does"
            yield _fault(what, value.span, message, path=item.path)


def _no_word(value: Value, part: str, item: CycloneItem) -> Iterator[ForeignFault]:
    advice = did_you_mean(part, tuple(item.words))
    message = f"{quoted(part)} is none of {', '.join(item.words)}"
    if part != part.strip():
        advice = "no blanks between the words"
    yield _fault(CycloneFaultKind.VALUE, value.span, message, advice, item.path)


def _number(value: Value, text: str, item: CycloneItem) -> Iterator[ForeignFault]:
    """Find the faults of a number, with a unit where there are units."""
    units = _UNITS.get(item.type)
    pattern = _NUMBER if units else _INTEGER
    found = pattern.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    kind = {"duration": "a duration such as 10 ms", "memory": "a size such as 64 kB"}.get(
        item.type, "a whole number"
    )
    if not found:
        other = f", nor {' or '.join(item.words)}" if item.words else ""
        yield _fault(
            CycloneFaultKind.VALUE, value.span, f"{quoted(text)} is not {kind}{other}", path=item.path
        )
        return
    number, factor = float(found[1] if units else text), 1.0
    unit = found[2] if units else ""
    if units and unit:
        if unit not in units:
            advice = did_you_mean(unit, tuple(units)) or f"units are {', '.join(units)}"
            yield _fault(
                CycloneFaultKind.VALUE, value.span, f"{quoted(unit)} is not a unit", advice, item.path
            )
            return
        factor = units[unit]
    elif units and number:
        advice = f"units are {', '.join(units)}"
        what = (
            CycloneFaultKind.VALUE
            if "inf" in item.words or item.occurrence == "unit"
            else CycloneFaultKind.UNIT
        )
        yield _fault(what, value.span, f"{quoted(text)} has no unit", advice, item.path)
        if item.high == 1.0:
            factor = 1e-9  # the usual unit of short durations is not the second
    low, high = item.low or 0.0 if units else item.low, item.high
    if (low is not None and number * factor < low) or (high is not None and number * factor > high):
        yield _fault(
            CycloneFaultKind.VALUE,
            value.span,
            f"{quoted(text)} is not between {_range(item)}",
            path=item.path,
        )


def size_of(given: Given) -> int | None:
    """Return the bytes in a text such as 64 kB; None if it is none."""
    found = _NUMBER.fullmatch(text_of(given)[:_LONGEST_NUMBER])
    factor = _UNITS["memory"].get(found[2] or "B") if found else None
    return int(float(found[1]) * factor) if found and factor else None


def _range(item: CycloneItem) -> str:
    low, high = item.low or 0, item.high or 0
    if item.type == "duration":
        return f"{low:g} s and {high:g} s"
    return f"{low:.0f} and {high:.0f}" + (" B" if item.type == "memory" else "")
