"""What a node does with every element and attribute of the schema.

The data are in `opensplice.tsv`. A fate applies to one path, or with `/**` to an element with all below it;
the most specific one counts. An element that only contains others needs none. A test compares the table with
the settings that the code reads, and docs/settings.md is generated from it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from engine.config.problems import Position
from engine.config.schema import Item, documented, engine_schema, rows
from engine.config.settings import Setting, SettingOrigin
from engine.config.tree import Attribute, Value, XmlElement
from engine.config.values import ValueFault, parse_value

SECTIONS = ("Domain", "DurabilityService")
"""The parts of the schema that apply to a node."""

WITHOUT_WARNING = "~"
"""As `accepted`: no value has an effect, and none causes a WARNING at the start of a node."""
_ANY = "*"
_BELOW = "/**"


class Fate(enum.StrEnum):
    """Treatment of a setting by a node."""

    WORKS = "works"
    NOT_NEEDED = "not needed here"
    REFUSED = "refused"


class SettingFate(msgspec.Struct, frozen=True):
    """The fate of settings.

    Attributes:
        path: the schema path of the line, for reports.
        fate: the treatment.
        accepted: values that describe what a node does anyway, separated by `|`; `*` for any, `~` for any
            that is reported, but not at the start; `=` and a path for the value that is set there.
        test: the test that shows that the setting works.
        reason: reason why it is not needed, or refused.
    """

    path: str
    fate: Fate
    accepted: str = ""
    test: str = ""
    reason: str = ""


class WithoutEffect(NamedTuple):
    """An element or attribute of a file that has no effect on a node, or that it refuses.

    `thing` is the element or attribute of the entry, `values` are its values that the node ignores.
    """

    entry: SettingFate
    thing: XmlElement | Attribute
    values: tuple[tuple[str, Value], ...]

    @property
    def warns(self) -> bool:
        """Whether the node reports it at its start."""
        return self.entry.accepted != WITHOUT_WARNING

    @property
    def path(self) -> str:
        """Schema path of `thing`."""
        return self.entry.path if isinstance(self.thing, XmlElement) else self.values[0][0]


def in_vain(
    thing: XmlElement | Attribute, reason: str, *values: tuple[str, Value], accepted: str = ""
) -> WithoutEffect:
    """Return a setting that others in the file make ineffective.

    Args:
        thing: its element or attribute.
        reason: why it has no effect.
        values: what the node ignores of it, at least one, with the schema paths.
        accepted: `WITHOUT_WARNING` if the node reports it itself at its start.
    """
    entry = SettingFate(values[0][0], Fate.NOT_NEEDED, accepted, reason=reason)
    return WithoutEffect(entry, thing, values)


@functools.cache
def lines() -> Mapping[str, SettingFate]:
    """Return the fates that the table states, by path; with `/**` behind it for all below."""
    return {
        path + (_BELOW if fate.endswith(_BELOW) else ""): SettingFate(
            path, Fate[fate.removesuffix(_BELOW).upper().replace("-", "_")], accepted, test, reason
        )
        for path, *_, fate, accepted, test, reason, _, _ in rows()
        if fate
    }


@functools.cache
def fates() -> Mapping[str, SettingFate]:
    """Return the entries of all paths of the schema that have one, in the order of the schema."""
    found = ((path, fate_of(path)) for path in engine_schema().paths())
    return {path: entry for path, entry in found if entry is not None}


def fate_of(path: str) -> SettingFate | None:
    """Return the most specific line for a path; None for an element that only contains others."""
    entry = lines().get(path)
    while entry is None and path:
        entry = lines().get(path + _BELOW)
        path = path.rpartition("@" if "@" in path else "/")[0]
    return entry


def without_effect(
    domain: XmlElement | None, section: XmlElement | None, service: str
) -> list[WithoutEffect]:
    """Return the settings in a node's file that the node does not follow, in document order.

    Args:
        domain: the Domain element.
        section: the DurabilityService element of the node.
        service: its name; Domain/Service elements of other services are skipped.
    """
    sections = [each for each in (domain, section) if each is not None]
    found: dict[int, WithoutEffect] = {}
    for each in sections:
        for path, value, thing, above in _values(each, service, ()):
            entry = fates().get(path)
            if entry is None or entry.fate is Fate.WORKS or _is_accepted(entry, path, value, sections):
                continue
            unit = next((node for node in above if node.path == entry.path), thing)
            earlier = found.get(id(unit))
            values = earlier.values if earlier else ()
            found[id(unit)] = WithoutEffect(entry, unit, (*values, (path, value)))
    return list(found.values())


def marked(settings: list[Setting], ignored: list[WithoutEffect]) -> tuple[Setting, ...]:
    """Mark the settings without effect, and add those that were not read for that reason."""
    reasons = {
        (documented(path), value.position): (value, each.entry.reason)
        for each in ignored
        for path, value in each.values
    }
    found = []
    for setting in settings:
        origin = setting.origin
        _, reason = reasons.pop((setting.path, Position(origin.line, origin.column)), (None, ""))
        found.append(msgspec.structs.replace(setting, ignored=reason) if reason else setting)
    unread = {path for path, _ in reasons}
    found = [each for each in found if not (each.origin.is_default and each.path in unread)]
    for (path, position), (value, reason) in reasons.items():
        found.append(
            Setting(path, value.text, value.raw, SettingOrigin(value.source.path, *position), reason)
        )
    return tuple(found)


def _values(
    node: XmlElement, service: str, above: tuple[XmlElement, ...]
) -> Iterator[tuple[str, Value, XmlElement | Attribute, tuple[XmlElement, ...]]]:
    """Return every value with its path, its element or attribute, and the elements around it."""
    if node.path == "Domain/Service" and (name := node.attribute("name")) and name.text != service:
        return
    around = (*above, node)
    for attribute in node.attributes:
        yield f"{node.path}@{attribute.name}", attribute.value, attribute, around
    if node.value:
        yield node.path, node.value, node, around
    for child in node.children:
        yield from _values(child, service, around)


def _is_accepted(entry: SettingFate, path: str, value: Value, sections: list[XmlElement]) -> bool:
    """Tell whether a value describes what the node does anyway."""
    if entry.accepted == _ANY:
        return True
    item = engine_schema()[path]
    if entry.accepted.startswith("="):
        other = entry.accepted.removeprefix("=")
        return _meant(item, value.text) == _meant(engine_schema()[other], _text_at(other, sections))
    wanted = entry.accepted.split("|") if entry.accepted else []
    return any(value.raw == each or _meant(item, value.text) == _meant(item, each) for each in wanted)


def _meant(item: Item, text: str) -> object:
    try:
        return parse_value(item, text)
    except ValueFault:
        return text


def _text_at(path: str, sections: list[XmlElement]) -> str:
    """Return the text at a path, or the default of the schema."""
    element, _, attribute = path.partition("@")
    top, _, rest = element.partition("/")
    node = next((each.find(rest) for each in sections if each.path == top), None)
    value = node.value if node else None
    if node and attribute:
        given = node.attribute(attribute)
        value = given.value if given else None
    return value.text if value else engine_schema()[path].default
