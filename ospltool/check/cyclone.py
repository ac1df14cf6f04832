"""Settings of Cyclone DDS itself (CYCLONEDDS_URI): read as it reads them, compared with what it knows.

Cyclone DDS takes texts that are no XML. In files and in the text of the variable, anything may stand before
`<?xml`, a comment may have `--`, and what begins with `<!` ends at the next `>`. The text alone is a list: it
has several root elements, of which each may be a part of Domain, also with a shortened name; `</>` is any end
tag. A file has one root element.

The table `cyclone.tsv` has the elements and attributes that Cyclone DDS 11.0.1 and 0.10.2 accept, below
CycloneDDS/Domain, with their values as observed; a test holds it against the library of 11.0.1. `versions`
is `11`, `0.10`, `build` (only builds with TLS, TCP or security, which that of a node is not) or empty for
both. A word that only one of them takes has its version behind an @. `instead` names the setting that
replaces a deprecated one, or is `-`; the values of a deprecated one are those of the other. `occurrence` is
`many` for an element that may be repeated, `required` for an attribute that must be there, `filled` for one
that must have a value as well, and `unit` for a duration that needs a unit, as one does that may be `inf`;
`ms` and `us` are the units of a duration that has none. Durations count in seconds.

What Cyclone DDS refuses of settings that are good by themselves is in `_contradictions`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from engine.config import (
    Attribute,
    ByteRange,
    ConfigError,
    Document,
    ProblemKind,
    SourceFile,
    Value,
    XmlElement,
    parse,
)
from engine.config.problems import Problem, printable, quoted
from engine.config.reader import path_of_uri, read_bytes
from engine.config.syntax import root_name
from engine.config.values import MEMORY_UNITS, ValueFault, did_you_mean, parse_int
from ospltool.check.findings import MAX_NAMED, finding_at, hint
from ospltool.diagnostics.model import Finding

if TYPE_CHECKING:
    from engine.dds.trial import SettingsTrial

ROOT: Final = "CycloneDDS"
VERSIONS: Final = "0.10.2 and 11.0.1"
"""The releases that the table knows."""
DOMAIN: Final = "Domain"
_OLD_SECTIONS: Final = ("DDSI2E", "DDSI2")
_ALIASES: Final = {"Unsupported": "Internal"}
"""Old names of sections, which have the settings of the new ones."""
_UNITS: Final[dict[str, Mapping[str, float]]] = {
    "duration": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "hr": 3600, "day": 86400},
    "memory": MEMORY_UNITS,
}
_NUMBER: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]*)")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_VENDORS: Final = re.compile(r"(?:[1-9]?\d|1\d\d|2[0-4]\d|25[0-5])(?:\.(?:[1-9]?\d|1\d\d|2[0-4]\d|25[0-5]))")
_PAIRS: Final = re.compile(r"(?:[^=;]+=[^;]*(?:;|$))*")
_HOST: Final = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_.-]+")
_THREADS: Final = (
    *("gc", "recv", "recvMC", "recvUC", "tev", "fsm", "lease"),
    *("dq.builtins", "dq.user", "xmit.user", "debmon"),
)
# No setting has more than 20 digits; converting a text of thousands is refused by Python.
_LONGEST_NUMBER: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class CycloneItem:
    """One element or attribute: a line of `cyclone.tsv`."""

    path: str
    """Path below CycloneDDS/Domain, as in `General/Interfaces/NetworkInterface@name`."""
    type: str
    """Type of the value: duration, element (no value), enum, int, list, memory, string, or of `FORMS`."""
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
    """`many`, `required`, `filled`, `unit`, `ms` or `us` (see above); empty for an optional one."""


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


def is_part(name: str) -> bool:
    """Tell whether Cyclone DDS takes an element of this name for settings without what is around it."""
    return name.lower() == DOMAIN.lower() or bool(name and _resolved(name, tuple(table().children("")))[0])


def domains(document: Document) -> list[XmlElement]:
    """Return the Domain elements."""
    return [child for child in document.root.children if _resolved(child.name, (DOMAIN,))[0]]


Given: TypeAlias = "XmlElement | Attribute"


def settings(document: Document, *paths: str) -> list[Given]:
    """Return the elements and attributes at paths below Domain in document order, however they are written.

    Names may be shortened, old or in other case, and sections outside of a Domain, or in an old one.
    """
    wanted = set(paths) | {item.path for item in table().items.values() if item.instead in paths}
    found = [thing for path, thing in _written(document.root, None) if path in wanted]
    # Elements and what stands for them are found in two passes; messages follow the file.
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
        name, _ = _resolved(child.name, (DOMAIN, *sections, *_OLD_SECTIONS) if path is None else sections)
        if path is None and name in (DOMAIN, *_OLD_SECTIONS):
            yield from _written(child, "")
        elif name:
            below = f"{path or ''}/{_ALIASES.get(name, name)}".lstrip("/")
            yield below, child
            yield from _written(child, below)


def faults(document: Document, *, is_file: bool = True) -> Iterator[Finding]:
    """Find everything that Cyclone DDS refuses or warns of, in document order.

    Args:
        document: the settings.
        is_file: they stand in a file, and not in CYCLONEDDS_URI, where names may be shortened.
    """
    refused = {each.place.span: each for each in _shortened(document)} if is_file else {}
    yield from refused.values()
    yield from (each for each in _faults(document) if each.place.span not in refused)


def _shortened(document: Document) -> Iterator[Finding]:
    """Find the shortened names, of which Cyclone DDS knows none in a file."""
    every = [*((DOMAIN, each) for each in domains(document)), *_written(document.root, None)]
    for path, each in every:
        name = re.split("[/@]", path)[-1]
        names = (name, *(old for old, new in _ALIASES.items() if new == name))
        if each.name.lower() not in map(str.lower, names):
            message = f"in a file, Cyclone DDS does not take {quoted(each.name)} for {name}"
            advice = f"write {name}: only text in CYCLONEDDS_URI may be shortened"
            yield finding("DUR750", each, message, advice)


def _faults(document: Document) -> Iterator[Finding]:
    root = document.root
    sections = table().children("")
    yield from _stray(root)
    for attribute in root.attributes:
        if attribute.name.partition(":")[0].lower() not in ("xmlns", "xsi"):
            yield _unknown(attribute, f"<{root.name}> has no attribute {quoted(attribute.name)}", ())
    for child in root.children:
        name, _ = _resolved(child.name, (DOMAIN, *sections, *_OLD_SECTIONS))
        if not name:
            yield _unknown(child, f"<{root.name}> has no element {quoted(child.name)}", (DOMAIN, *sections))
        elif name == DOMAIN:
            yield from _element(child, table().items[""], {})
            yield from _contradictions(child)
        else:
            message = f"<{child.name}> outside of <Domain> is deprecated"
            yield finding("DUR755", child, message, "put it into <Domain>")
            if name in sections:
                yield from _element(child, _of_alias(sections[name]), {})
            elif name in _OLD_SECTIONS:
                yield from _element(child, table().items[""], {})


def subject(path: str) -> str:
    """Return a path below Domain as findings name it."""
    return f"//CycloneDDS/Domain/{path}".rstrip("/")


def finding(code: str, thing: Given | Value, message: str, advice: str = "", path: str = "") -> Finding:
    """Make a finding about a setting.

    Args:
        code: of the rule.
        thing: what is underlined.
        message: what is wrong.
        advice: what to do; may be empty.
        path: of the setting, below Domain; may be empty.
    """
    return finding_at(code, thing, message, advice, subject(path) if path else "")


def _element(node: XmlElement, item: CycloneItem, seen: dict[str, XmlElement]) -> Iterator[Finding]:
    """Find the faults of an element and all below it; `seen` has the values of this Domain by path."""
    yield from _attributes(node, item, seen)
    if item.type == "element":
        yield from _stray(node)
    elif node.value is not None:
        yield from _once(node, item, node, seen)
        yield from _value(node.value, item, is_attribute=False)
    known = table().children(item.path)
    for child in node.children:
        name, spelling = _resolved(child.name, tuple(known))
        if not name:
            yield _unknown(child, f"<{node.name}> has no element {quoted(child.name)}", _alike(child, known))
            continue
        yield from _judged(child, f"<{quoted(child.name)[1:-1]}>", known[name], spelling)
        if known[name].versions in ("", "11"):
            is_new = known[name].occurrence == "many"
            yield from _element(child, _of_alias(known[name]), {} if is_new else seen)


def _alike(child: XmlElement, known: Mapping[str, CycloneItem]) -> tuple[str, ...]:
    """Return what an unknown element may stand for: one with a text for what takes a text."""
    if child.value is None:
        return tuple(known)
    return tuple(
        path
        for name, item in known.items()
        for path in (
            [f"{name}/{below}" for below in table().children(item.path)] if item.type == "element" else [name]
        )
    )


def _of_alias(item: CycloneItem) -> CycloneItem:
    return table().items[_ALIASES.get(item.path, item.path)]


def _attributes(node: XmlElement, item: CycloneItem, seen: dict[str, XmlElement]) -> Iterator[Finding]:
    known = table().attributes(item.path)
    found = set()
    for attribute in node.attributes:
        name, spelling = _resolved(attribute.name, tuple(known))
        if not name:
            message = f"<{node.name}> has no attribute {quoted(attribute.name)}"
            yield _unknown(attribute, message, tuple(known))
            continue
        found.add(name)
        yield from _judged(attribute, quoted(attribute.name), known[name], spelling)
        yield from _once(attribute, known[name], node, seen)
        yield from _value(attribute.value, known[name], is_attribute=True)
    for name, each in known.items():
        if each.occurrence in ("required", "filled") and name not in found:
            yield finding(
                "DUR751",
                node,
                f"<{node.name}> lacks the attribute '{name}'",
                path=each.path,
            )


def _resolved(written: str, known: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name that Cyclone DDS takes a written one for, and whether that is shortened.

    It ignores case, and accepts the beginning of a name if only one begins so.
    """
    folded = written.lower()
    exact = [name for name in known if name.lower() == folded]
    begun = exact or [name for name in known if name.lower().startswith(folded)]
    return (begun[0], not exact) if len(begun) == 1 else ("", False)


def _unknown(thing: XmlElement | Attribute, message: str, known: tuple[str, ...]) -> Finding:
    begun = [name for name in known if name.lower().startswith(thing.name.lower())]
    places = _places(thing)
    if len(begun) > 1:
        advice = f"this may be {' or '.join(begun[:MAX_NAMED])}"
    elif places:  # a setting in the wrong place keeps its name; the nearest spelling is another setting
        advice = f"it belongs in {' or '.join(places[:MAX_NAMED])}"
    else:
        advice = hint(thing.name, known)
    return finding("DUR750", thing, message, advice)


def _places(thing: XmlElement | Attribute) -> list[str]:
    """Return the elements that have a setting of a name and are not old."""
    mark = "/" if isinstance(thing, XmlElement) else "@"
    split = ((item, *item.path.rpartition(mark)) for item in table().items.values() if not item.instead)
    return [
        parent or DOMAIN
        for item, parent, _, name in split
        if name.lower() == thing.name.lower() and item.versions in ("", "11")
    ]


def _judged(thing: Given, shown: str, item: CycloneItem, spelling: bool) -> Iterator[Finding]:
    """What is to be said of a name that is known."""
    name = re.split("[/@]", item.path)[-1]
    if item.versions == "0.10":
        message = f"Cyclone DDS 11 has no {shown}; 0.10 has it"
        yield finding("DUR753", thing, message, path=item.path)
    elif item.versions == "build":
        message = f"the Cyclone DDS of a node is built without {item.path.split('/')[0]}, and refuses {shown}"
        yield finding("DUR753", thing, message, path=item.path)
    elif item.versions == "11":
        yield finding("DUR754", thing, f"Cyclone DDS 0.10 has no {shown}; 11 has it", path=item.path)
    if item.instead:
        advice = "" if item.instead == "-" else f"use {item.instead}"
        effect = "is deprecated, and has no effect" if item.instead == "-" else "is deprecated"
        yield finding("DUR755", thing, f"{shown} {effect}", advice, item.path)
    elif spelling:
        advice = f"write {name}: in a file, Cyclone DDS refuses a shortened name"
        yield finding("DUR756", thing, f"{shown} is taken for {name}", advice, item.path)


def _stray(node: XmlElement) -> Iterator[Finding]:
    if node.value is not None:
        message = f"<{node.name}> has no text of its own: {quoted(node.value.raw)}"
        yield finding("DUR751", node.value, message)


def _once(
    thing: XmlElement | Attribute, item: CycloneItem, node: XmlElement, seen: dict[str, XmlElement]
) -> Iterator[Finding]:
    first = seen.setdefault(item.path, node)
    if first is not node:
        name = item.path.rpartition("/")[2].replace("@", " ")
        message = f"{name} is set twice in one Domain, first in line {first.line}"
        yield finding("DUR752", thing, message, path=item.path)


def _value(value: Value, written: CycloneItem, *, is_attribute: bool) -> Iterator[Finding]:
    """Find the faults of a text or of the value of an attribute. An empty text stands for the default."""
    successor = table().items.get(written.instead, written)
    item = written if successor.type == "element" else successor
    is_exact = is_attribute and item.type in ("enum", "list")
    text = value.text if is_exact else value.text.strip()
    if value.is_broken or item.type == "element":
        return
    if not text:
        if is_attribute and (item.type in ("enum", "int", *_UNITS) or item.occurrence == "filled"):
            message = f"{re.split('[/@]', item.path)[-1]} has no value"
            yield finding("DUR751", value, message, path=item.path)
        return
    if item.type in FORMS:
        fits, kind = FORMS[item.type]
        if text.lower() not in item.words and not fits(text):
            yield finding("DUR751", value, f"{quoted(text)} is not {kind}", path=item.path)
        return
    if item.type == "string":
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
            what = "DUR754" if other == "0.10" else "DUR753"
            message = f"Cyclone DDS {other} does not take {quoted(part)} here; {item.words[word]} does"
            yield finding(what, value, message, path=item.path)


def _numeric(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in a text, which may have a port; None for none. No resolver is asked."""
    host, _, port = text.partition(":")
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, flags=socket.AI_NUMERICHOST)
        return ipaddress.IPv4Address(found[0][4][0]) if not port or int(port) <= _LAST_PORT else None
    except (OSError, ValueError):
        # Neither an IPv4 nor an IPv6 address, so it is a name: the caller sees None.
        with contextlib.suppress(ValueError):
            return ipaddress.IPv6Address(text.strip("[]"))
    return None


def _is_multicast(text: str) -> bool:
    address = _numeric(text)
    is_specific = address in ipaddress.ip_network("232.0.0.0/8") if address else False
    return address is not None and (address.is_multicast or address == _ANY) and not is_specific


def _is_host(text: str) -> bool:
    """Whether a text is an address of one machine, or may be its name, which only a resolver can tell."""
    address = _numeric(text)
    if address is None:
        host, _, port = text.partition(":")
        return _HOST.fullmatch(host) is not None and (not port or port.isdigit())
    return address != _ANY


_ANY: Final = ipaddress.IPv4Address(0)
FORMS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "multicast": (_is_multicast, "a multicast address such as 239.255.0.1"),
    "address": (
        lambda text: _is_host(text) and not _is_multicast(text),
        "an address of one machine",
    ),
    "mask": (lambda text: isinstance(_numeric(text), ipaddress.IPv4Address), "a mask such as 255.255.255.0"),
    # Cyclone DDS does not refuse these: it ends the process.
    "peers": (
        lambda text: all(_is_host(each.partition("/")[2] or each) for each in text.split(",")),
        "an address such as 192.0.2.7, with a port or without",
    ),
    "vendors": (
        lambda text: all(map(_VENDORS.fullmatch, text.split(","))),
        "a list of vendor ids such as 1.16, without blanks",
    ),
    "pairs": (lambda text: _PAIRS.fullmatch(text) is not None, "a list such as KEY=VALUE;KEY=VALUE"),
    "thread": (lambda text: text in _THREADS, f"a thread of Cyclone DDS: {', '.join(_THREADS)}"),
}
"""Types of values that have neither words nor numbers, each with its test and its name in a message."""


def _no_word(value: Value, part: str, item: CycloneItem) -> Iterator[Finding]:
    advice = did_you_mean(part, tuple(item.words))
    message = f"{quoted(part)} is none of {', '.join(item.words)}"
    if part != part.strip():
        advice = "no blanks between the words"
    yield finding("DUR751", value, message, advice, item.path)


def _number(value: Value, text: str, item: CycloneItem) -> Iterator[Finding]:
    """Find the faults of a number, with a unit where there are units."""
    units = _UNITS.get(item.type)
    pattern = _NUMBER if units else _INTEGER
    found = pattern.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    kind = {"duration": "a duration such as 10 ms", "memory": "a size such as 64 kB"}.get(
        item.type, "a whole number"
    )
    if not found:
        other = f", nor {' or '.join(item.words)}" if item.words else ""
        yield finding("DUR751", value, f"{quoted(text)} is not {kind}{other}", path=item.path)
        return
    number, factor = float(found[1] if units else text), 1.0
    unit = found[2] if units else ""
    if units and unit:
        if unit not in units:
            advice = did_you_mean(unit, tuple(units)) or f"units are {', '.join(units)}"
            yield finding("DUR751", value, f"{quoted(unit)} is not a unit", advice, item.path)
            return
        factor = units[unit]
    elif units and number:
        advice = f"units are {', '.join(units)}"
        what = "DUR751" if "inf" in item.words or item.occurrence == "unit" else "DUR757"
        yield finding(what, value, f"{quoted(text)} has no unit", advice, item.path)
        factor = units.get(item.occurrence, factor)
    low, high = item.low or 0.0 if units else item.low, item.high
    if (low is not None and number * factor < low) or (high is not None and number * factor > high):
        yield finding(
            "DUR751",
            value,
            f"{quoted(text)} is not between {_range(item)}",
            path=item.path,
        )


_INTERFACE: Final = "General/Interfaces/NetworkInterface"
_OLD_INTERFACES: Final = ("General/NetworkInterfaceAddress", "General/PreferMulticast")
_PORTS: Final = {"Base": 7400, "DomainGain": 250, "ParticipantGain": 2}
_LAST_PORT: Final = 0xFFFF


def _contradictions(domain: XmlElement) -> Iterator[Finding]:
    """Find the settings of one Domain that Cyclone DDS refuses together, so that no participant is made."""
    given: dict[str, list[Given]] = {}
    for path, each in _written(domain, ""):
        instead = table().items[path].instead
        successor = table().items.get(instead)
        given.setdefault(instead if successor and successor.type != "element" else path, []).append(each)
    for check in (_of_interfaces, _of_transport, _of_watermarks, _of_ports, _of_partitions):
        for path, each, message in check(given):
            yield finding("DUR766", each.value or each, message, path=path)


_Written: TypeAlias = Mapping[str, list[Given]]
_Contradiction: TypeAlias = tuple[str, Given, str]


def _first(given: _Written, path: str) -> tuple[Given | None, str]:
    """Return a setting with its text; empty for the default."""
    each = next(iter(given.get(path, [])), None)
    return each, text_of(each) if each else ""


def attributes_of(node: XmlElement, path: str) -> dict[str, Attribute]:
    """Return the attributes of an element that have a value, by the names that Cyclone DDS takes them for.

    Args:
        node: the element.
        path: its path in the table.
    """
    known = tuple(table().attributes(path))
    named = ((_resolved(each.name, known)[0], each) for each in node.attributes)
    return {name: each for name, each in named if name and text_of(each)}


def _of_interfaces(given: _Written) -> Iterator[_Contradiction]:
    seen: dict[str, Attribute] = {}
    every = [each for each in given.get(_INTERFACE, []) if isinstance(each, XmlElement)]
    for node in every:
        own = attributes_of(node, _INTERFACE)
        link = next((own[name] for name in ("name", "address") if name in own), None)
        is_automatic = "autodetermine" in own and text_of(own["autodetermine"]).lower() == "true"
        if is_automatic and link:
            yield _INTERFACE, link, f"autodetermine and {link.name} exclude each other"
        elif not is_automatic and link is None:
            message = "the interface has no name, no address, and no autodetermine='true'"
            unset = [each for each in node.attributes if "$" in each.value.raw and not text_of(each)]
            if unset:
                message += f": {quoted(unset[0].value.raw)} is empty, because a variable is not set here"
            yield _INTERFACE, node, message
        elif link is not None:
            first = seen.setdefault(text_of(link), link)
            if first is not link:
                message = f"{quoted(text_of(link))} is selected twice, first in line {first.position.line}"
                yield _INTERFACE, link, message
    external, address = _first(given, "General/ExternalNetworkAddress")
    is_local = len(seen) == 1 and (next(iter(seen)) == "lo" or next(iter(seen)).startswith("127."))
    if external is not None and address.lower() not in ("", "auto") and (is_local or len(seen) > 2):
        message = "an external address needs exactly one interface that leads to other machines"
        yield "General/ExternalNetworkAddress", external, message
    for path in _OLD_INTERFACES if every else ():
        old, text = _first(given, path)
        if old is not None and text.lower() not in ("", "auto", "false"):
            yield path, old, "this and <Interfaces> exclude each other"
    assumed, text = _first(given, "Internal/AssumeMulticastCapable")
    is_pattern = text != "*" and not {"?", "*"}.isdisjoint(text)
    if assumed is not None and text and (every or not is_pattern):
        yield "Internal/AssumeMulticastCapable", assumed, "Cyclone DDS 11 refuses what this setting says"


def _of_transport(given: _Written) -> Iterator[_Contradiction]:
    transport, kind = _first(given, "General/Transport")
    version, wanted = _first(given, "General/UseIPv6")
    refused = {"udp": "true", "none": "true", "raweth": "true", "udp6": "false"}
    if transport and version and refused.get(kind.lower()) == wanted.lower():
        yield "General/UseIPv6", version, f"UseIPv6 {wanted} and Transport {kind} exclude each other"
    if transport and kind.lower() == "none" and given.get(_INTERFACE):
        yield "General/Transport", transport, "Transport none has no interfaces, and <Interfaces> names some"


def _of_watermarks(given: _Written) -> Iterator[_Contradiction]:
    paths = [f"Internal/Watermarks/{name}" for name in ("WhcLow", "WhcHighInit", "WhcHigh")]
    found = [_first(given, path) for path in paths]
    low, begin, high = (
        default if each is None or not text else size_of(each)
        for (each, text), default in zip(found, (1 << 10, 30 << 10, 500 << 10), strict=True)
    )
    if begin is None and low is not None and high is not None:
        begin = max(low, high) if low <= high else 0  # `default`
    written = next(((path, each) for path, (each, _) in zip(paths, found, strict=True) if each), None)
    if written and low is not None and high is not None and begin is not None and not low <= begin <= high:
        sizes = f"WhcLow {low} B, WhcHighInit {begin} B and WhcHigh {high} B"
        yield *written, f"{sizes} are not in ascending order"


def _of_ports(given: _Written) -> Iterator[_Contradiction]:
    """Find ports that are none. A domain of any id counts as domain 0, which has the lowest ports."""

    def number(path: str, default: int) -> int:
        text = _first(given, path)[1]
        return int(text) if _INTEGER.fullmatch(text) and len(text) <= _LONGEST_NUMBER else default

    base, domain_gain, gain = (number(f"Discovery/Ports/{name}", usual) for name, usual in _PORTS.items())
    base += domain_gain * (number("Discovery/ExternalDomainId", number("@Id", 0)) % (1 << 32))
    index = _first(given, "Discovery/ParticipantIndex")[1].lower() or "default"
    nodes = [each for each in given.get(_INTERFACE, []) if isinstance(each, XmlElement)]
    own = [attributes_of(node, _INTERFACE).get("multicast") for node in nodes]
    is_silent = _first(given, "General/AllowMulticast")[1].lower() == "false" or (
        bool(own) and all(each is not None and text_of(each).lower() == "false" for each in own)
    )
    ports: list[tuple[str, int, int]] = []
    for kind, offset in (("Meta", 0), ("Data", 1)):
        if not is_silent:
            name = f"Multicast{kind}Offset"
            ports.append((name, base + number(f"Discovery/Ports/{name}", offset), _LAST_PORT))
        name = f"Unicast{kind}Offset"
        first = base + number(f"Discovery/Ports/{name}", 10 + offset)
        if index.isdigit() or index == "auto" or (is_silent and index != "none"):
            ports.append((name, first + gain * number("Discovery/ParticipantIndex", 0), _LAST_PORT))
        if index in ("auto", "default"):
            most = number("Discovery/MaxAutoParticipantIndex", 99)
            ports.append((name, first + gain * most, (1 << 32) - 1))
    wrong = next(((name, port) for name, port, last in ports if port > last), None)
    paths = [*(path for path in given if path.startswith("Discovery/Ports/")), "Discovery/ExternalDomainId",
             "Discovery/ParticipantIndex", "Discovery/MaxAutoParticipantIndex", "@Id"]  # fmt: skip
    written = next(((path, given[path][0]) for path in paths if path in given), None)
    if wrong and written:
        yield *written, f"by these settings a port is {wrong[1]}, above {_LAST_PORT} ({wrong[0]})"


def _of_partitions(given: _Written) -> Iterator[_Contradiction]:
    above = "Partitioning/NetworkPartitions/NetworkPartition@Name"
    names: set[str] = set()
    for each in given.get(above, []):
        name = text_of(each).lower()
        if name in names:
            yield above, each, f"there are two network partitions {quoted(text_of(each))}"
        names.add(name)
    path = "Partitioning/PartitionMappings/PartitionMapping@NetworkPartition"
    for each in given.get(path, []):
        if text_of(each).lower() not in names:
            yield path, each, f"there is no network partition {quoted(text_of(each))}"


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


# What the installed Cyclone DDS says of settings. They are tried as they are, except that no log is written
# that can be written: a trial must not cut off the log of a running application.

# Each is tried in a process of its own, which takes a second.
MAX_DOMAINS: Final = 5
"""Most Domain elements of a file that are tried."""
_LOGS: Final = ("Tracing/OutputFile", "Tracing/PacketCaptureFile")
_LINE: Final = re.compile(r"\s*\((?:[^()]* )?line (\d+)\)\s*$")
_PATH: Final = re.compile(r"(?://)?CycloneDDS/Domain/?([\w/]*)(?:\[@(\w+)\])?")
_WORD: Final = re.compile(r"[^\s,]+")


def tried(document: Document, *, is_file: bool = True) -> Iterator[Finding]:
    """Try settings, for each domain that they name, and yield what Cyclone DDS says.

    `is_file` is false for the text of CYCLONEDDS_URI.
    """
    from engine.dds.trial import try_settings  # only a trial pays for this import

    said: dict[tuple[ByteRange | None, str], Finding] = {}
    with tempfile.TemporaryDirectory(prefix="ospltool-") as folder:
        # A copy has no comma in its path, at which Cyclone DDS would divide it.
        copy = Path(folder, "settings.xml")
        copy.write_bytes(document.source.data)
        given = f"file://{copy}" if is_file else document.source.data.decode("utf-8", "replace")
        for domain_id in _numbers(document):
            trial = try_settings(f"{given},{_without_logs(document)}", domain_id)
            for fault in _said(document, trial):
                said.setdefault((fault.place.span, fault.message), fault)
    # Cyclone DDS was tried once for each domain; a person reads the file from the top.
    yield from sorted(said.values(), key=lambda each: each.place.order)


def tried_of_node(document: Document, given: str, domain_id: int) -> Iterator[Finding]:
    """Try the settings that a node derives from a file of OpenSplice, and yield what Cyclone DDS says.

    Args:
        document: the file.
        given: what the node derives, like the value of CYCLONEDDS_URI.
        domain_id: the domain of the node.
    """
    from engine.dds.trial import try_settings

    yield from _said(document, try_settings(given, domain_id))


def _numbers(document: Document) -> list[int]:
    """Return the domains for which a file has settings; domain 0 stands for any."""
    found = []
    for node in domains(document):
        try:
            found.append(parse_int(next(each.text for each in node.attributes if each.name.lower() == "id")))
        except (ValueFault, StopIteration):
            found.append(0)
    known = [each for each in dict.fromkeys(found) if 0 <= each < 1 << 32]
    return known[:MAX_DOMAINS] or [0]


def _without_logs(document: Document) -> str:
    """Return settings that follow those of a file, so that logs which could be written go nowhere."""
    inner = ""
    for path in _LOGS:
        for given in settings(document, path):
            log = Path(text_of(given))
            if os.access(log.parent, os.W_OK) and not log.is_dir():
                name = path.rpartition("/")[2]
                inner = f"{inner}<{name}>/dev/null</{name}>"
                break
    return f'<CycloneDDS><Domain Id="any"><Tracing>{inner}</Tracing></Domain></CycloneDDS>'


def _said(document: Document, trial: SettingsTrial) -> Iterator[Finding]:
    from engine.dds.trial import OLD_NAMES

    is_refused = not (trial.is_accepted or trial.is_late)
    code = "DUR764" if is_refused else "DUR765"
    told = [each for each in trial.said if not OLD_NAMES.search(each)]
    for text in told:
        thing, path = _subject_of(document, text)
        message = printable(_LINE.sub("", text)).rstrip(".")
        yield finding_at(code, thing, f"Cyclone DDS says: {message}", subject=path)
    message = ""
    if trial.is_late:
        message = f"whether Cyclone DDS takes these settings is not known: a trial {trial.ended}"
    elif trial.ended:
        message = f"a process that tries these settings {trial.ended}"
    elif not trial.is_accepted and not told:
        message = "Cyclone DDS refuses these settings, and does not say why"
    if message:
        yield finding_at(code, _whole(document), message)


def _subject_of(document: Document, text: str) -> tuple[Given | Value, str]:
    """Return what a message is about, and the path of the setting; by default the Domain."""
    from engine.dds.trial import SUBJECTS

    path = next((path for words, path in SUBJECTS.items() if words in text), "")
    named = _PATH.search(text)
    if named and named[1] and not path:
        path = f"{named[1]}@{named[2]}" if named[2] else named[1]
    about = next((each for each in table().items if each.lower() == path.lower()), path)
    found: list[XmlElement | Attribute] = []
    found += settings(document, about) if about else []
    line = _LINE.search(text)
    if line:
        on_line = [each for each in _all(document) if each.position.line == int(line[1])]
        words = set(map(str.strip, re.split(r"[\s:'\[\]@]+", text)))
        found = [each for each in on_line if each.name in words] or on_line or found
    words = {each.strip(".:'\"") for each in _WORD.findall(text)}
    words |= {each.rpartition("/")[2] for each in words}  # lo/192.0.2.7 is an address of an interface
    by_value = [each for each in found or _all(document) if _values_of(each) & words]
    best = max(by_value, key=lambda each: len(text_of(each)), default=None) or next(iter(found), None)
    named_path = subject(about) if about and found else ""
    if best is None:
        return _whole(document), named_path
    if best.value is not None and not (isinstance(best, XmlElement) and best.children):
        return best.value, named_path
    return best, named_path


def _values_of(given: XmlElement | Attribute) -> set[str]:
    return set(_WORD.findall(text_of(given)))


def _all(document: Document) -> Iterator[XmlElement | Attribute]:
    for node in document.root.walk():
        yield node
        yield from node.attributes


def _whole(document: Document) -> XmlElement:
    return next(iter(domains(document)), document.root)


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_XML_COMMENT: Final = re.compile(rb"<!--(.*?)-->", re.DOTALL)
_SKIPPED: Final = re.compile(
    rb"(<!--.*?-->|<!\[CDATA\[.*?\]\]>|<!DOCTYPE[^<>]*<.*?\]\s*>)|<![^<>]*>", re.DOTALL
)
_DECLARATION: Final = re.compile(rb"<\?xml\s.*?\?>", re.DOTALL)
_NO_LINE_END: Final = re.compile(rb"[^\r\n]")
GIVEN: Final = re.compile(rb"CYCLONEDDS_URI['\"]?\s*[:=]\s*(?:[|>][+-]?\s*)?(['\"]?)\s*(?=<)")
"""The beginning of the text in a script, an environment file or YAML."""
_BEGINS_TEXT: Final = re.compile(rb"(?:[^<,\n]*,)*+\s*<")
"""Files, and the first element."""
_ESCAPED: Final = re.compile(rb'(=\s*)\\"([^"<>]*?)\\"')


def parse_file(data: bytes, path: str, environ: Mapping[str, str]) -> Document:
    """Parse a file as Cyclone DDS reads it, if its root element is that of Cyclone DDS, and else as XML.

    Args:
        data: the file.
        path: what findings call it.
        environ: for variables in it.

    Raises:
        ConfigError: it cannot be read.
    """
    if root_name(data.decode("utf-8", "replace")).lower() != ROOT.lower():
        return parse(data, path, environ)
    if data.startswith(_BYTE_ORDER_MARK):
        message = "Cyclone DDS refuses a file with a byte order mark"
        hint = "save it as UTF-8 without one"
        raise ConfigError([Problem(ProblemKind.SYNTAX, message, path, 1, 1, ByteRange(0, 3), hint=hint)])
    return parse(_as_xml(data), path, environ)


def parse_variable(data: bytes, path: str, environ: Mapping[str, str]) -> Document | None:
    """Parse the text of CYCLONEDDS_URI, maybe with the escaped quotes of a shell; None for another text.

    All parts are put under one root element. Files that it names are only opened.

    Args:
        data: the text.
        path: what findings call it.
        environ: for variables in it.

    Raises:
        ConfigError: Cyclone DDS cannot read it, or a file that it names.
    """
    from engine.dds.uri import placed_parts_of, with_named_end_tags  # only pasted text pays for this import

    root = root_name(data.decode("utf-8", "replace"))
    is_known = root.lower() == ROOT.lower() or is_part(root)
    if not is_known or not _BEGINS_TEXT.match(data):
        return None
    text = with_named_end_tags(_ESCAPED.sub(rb'\1 "\2" ', _as_xml(data)).decode("utf-8", "replace"))
    source = SourceFile(path, text.encode())
    documents = []
    for at, part in placed_parts_of(text):
        before = text[:at].encode()
        if not part.startswith("<"):
            _check_file(part, source, len(before))
        elif root_name(part):
            documents.append(parse(_NO_LINE_END.sub(b" ", before) + part.encode(), path, environ))
    children = [child for each in documents for child in _below_root(each.root)]
    first = documents[0].root
    root_element = XmlElement(
        ROOT, "", first.attributes if _is_root(first) else (), tuple(children), None,
        ByteRange(first.span.start, documents[-1].root.span.end), first.tag_span, first.name_span, source,
    )  # fmt: skip
    comments = tuple(comment for each in documents for comment in each.comments)
    problems = tuple(problem for each in documents for problem in each.problems)
    return Document(source, root_element, comments, problems)


def variable_in(data: bytes) -> bytes | None:
    """Return the value of CYCLONEDDS_URI in a script or the like, after blanks; None without one.

    It ends at the quote that closes it, and without quotes where the XML ends.
    """
    from engine.dds.uri import parts_of

    found = GIVEN.search(data)
    if not found or data.lstrip(_BYTE_ORDER_MARK + b" \t\r\n").startswith(b"<"):
        return None
    value = data[found.end() :]
    closing = re.search(rb"(?<!\\)" + found[1], value) if found[1] else None
    end = closing.start() if closing else len(parts_of(value.decode("utf-8", "replace"))[0].encode())
    return _NO_LINE_END.sub(b" ", data[: found.end()]) + value[:end]


def _check_file(name: str, source: SourceFile, offset: int) -> None:
    """Raise ConfigError if a file that is named in a text cannot be read."""
    try:
        read_bytes(path_of_uri(name))
    except ConfigError as error:
        message = f"{quoted(name)} stands for a file here, which {error.problems[0].message}"
        span = ByteRange(offset, offset + len(name.encode()))
        place = source.position(offset)
        raise ConfigError([Problem(ProblemKind.UNREADABLE, message, source.path, *place, span)]) from error


def _is_root(node: XmlElement) -> bool:
    return node.name.lower() == ROOT.lower()


def _below_root(node: XmlElement) -> tuple[XmlElement, ...]:
    """Return what a part of the text stands for below the root element."""
    if _is_root(node):
        return node.children
    if node.name.lower() == DOMAIN.lower():
        return (node,)
    return (
        XmlElement(
            DOMAIN, DOMAIN, (), (node,), None,
            node.span, node.tag_span, node.name_span, node.source,
        ),
    )  # fmt: skip


def _as_xml(data: bytes) -> bytes:
    """Return text of the same length without what Cyclone DDS takes and a parser of XML does not."""
    data = _XML_COMMENT.sub(lambda found: b"<!--" + found[1].replace(b"--", b"  ") + b"-->", data)
    data = _SKIPPED.sub(lambda found: found[1] or _NO_LINE_END.sub(b" ", found[0]), data)
    if data.startswith(b"<?xml"):
        return data
    return _DECLARATION.sub(lambda found: _NO_LINE_END.sub(b" ", found[0]), data)
