"""Finds what asks for protected traffic in a configuration: a node has none, and must not go on without.

An unsecured node in a domain that is to be secured would send to everyone what others encrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from engine.config.problems import ProblemKind
from engine.config.schema import documented
from engine.config.validate import problem

if TYPE_CHECKING:
    from typing import TypeAlias

    from engine.config.problems import ByteRange, Problem
    from engine.config.tree import Document, XmlElement

    Found: TypeAlias = tuple[str, ByteRange]
    """Path of a setting, and the place of its name."""

WHY: Final = (
    "asks for security, but Cyclone DDS of a node is built without DDS Security and knows no profiles of"
    " OpenSplice, so a node cannot take part in a secured domain"
)
_NAMES: Final = ("Security", "DDSSecurity")
_OPEN: Final = ("", "null", "nullprofile")
"""Profiles and ciphers that protect nothing."""


def security_problems(document: Document) -> Iterator[Problem]:
    """Find what asks for security in the domain and in its networking services that are not disabled."""
    disabled = {
        name.text
        for entry in document.root.find_all("Domain/Service")
        if (name := entry.attribute("name")) and _is(entry, "enabled", "false")
    }
    for section in document.root.children:
        name = section.attribute("name")
        find = _FINDERS.get(section.name)
        if find is None or (name and name.text in disabled):
            continue
        for subject, span in find(section):
            message = f"{documented(subject)} {WHY}"
            yield problem(document, ProblemKind.REFUSED_SETTING, message, span, subject)


def _of_any_element(section: XmlElement) -> Iterator[Found]:
    """The domain and DDSI2 have no such elements, so each of them asks for something."""
    for child in section.children:
        if child.name in _NAMES:
            yield child.path, child.name_span


def _of_network(section: XmlElement) -> Iterator[Found]:
    """OpenSplice's own network has a switch."""
    for child in section.named("Security"):
        if _is(child, "enabled", "true"):
            yield child.path, child.name_span


def _of_ddsi2e(section: XmlElement) -> Iterator[Found]:
    """A profile counts where a network partition uses it, unless its cipher is null."""
    profiles = {}
    for child in section.children:
        if child.name == "DDSSecurity" or (
            child.name == "Security" and any(each.name != "SecurityProfile" for each in child.children)
        ):
            yield child.path, child.name_span
    for profile in section.find_all("Security/SecurityProfile"):
        if name := profile.attribute("Name"):
            profiles[name.text] = profile.attribute("Cipher")
    for partition in section.find_all("Partitioning/NetworkPartitions/NetworkPartition"):
        used = partition.attribute("SecurityProfile")
        if used is None or used.text.strip().lower() in _OPEN:
            continue
        cipher = profiles.get(used.text)
        if used.text not in profiles or (cipher and cipher.value.text.strip().lower() not in _OPEN):
            yield f"{partition.path}@SecurityProfile", used.name_span


def _is(element: XmlElement, name: str, value: str) -> bool:
    attribute = element.attribute(name)
    return attribute is not None and attribute.text.strip().lower() == value


_FINDERS: Final[Mapping[str, Callable[[XmlElement], Iterator[Found]]]] = {
    "Domain": _of_any_element,
    "DDSI2Service": _of_any_element,
    "DDSI2EService": _of_ddsi2e,
    "SNetworkService": _of_network,
}
