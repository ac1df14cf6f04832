"""Elements, attributes and texts that are not in the schema and do not prevent a node from starting.

OpenSplice refuses the whole file. A node refuses only those in its own DurabilityService, because the rest of
the file may be for other programs; it reports the others at its start, because they have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.problems import ProblemKind
from engine.config.schema import documented
from engine.config.settings import Ignored, Setting, SettingOrigin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.config.problems import Problem
    from engine.config.tree import Document, XmlElement

STRANGE = frozenset({ProblemKind.UNKNOWN_ELEMENT, ProblemKind.UNKNOWN_ATTRIBUTE, ProblemKind.STRAY_TEXT})
_READ = ("Domain", "DDSI2Service", "DDSI2EService")
"""The sections beside DurabilityService that a node reads."""


def strangers(document: Document, found: Iterable[Problem]) -> list[Ignored]:
    """Return the unknown parts at the top level or in a section that a node reads.

    Args:
        document: the file.
        found: its problems from the schema check.
    """
    return [
        Ignored(
            each.subject, _reason(each), SettingOrigin(document.path, each.line, each.column), is_unknown=True
        )
        for each in found
        if each.kind in STRANGE and _is_read(each)
    ]


def _is_read(found: Problem) -> bool:
    """Tell whether a place is at the top level, or in a section that a node reads."""
    top, _, below = found.subject.removeprefix("//OpenSplice").lstrip("/").partition("/")
    section, _, attribute = top.partition("[")
    return section in _READ or (not below and not attribute) or not section


def _reason(found: Problem) -> str:
    return f"{found.message} ({found.hint})" if found.hint else found.message


def as_settings(document: Document, ignored: Iterable[Ignored]) -> Iterator[Setting]:
    """Return a setting for each unknown element and attribute, for lists of settings."""
    reasons = {(each.origin.line, each.origin.column): each for each in ignored}
    for node in document.root.walk():
        for path, text, raw, start in _named(node):
            each = reasons.get(document.source.position(start))
            if each is not None and each.path == documented(path):
                yield Setting(each.path, text, raw, each.origin, each.reason)


def _named(node: XmlElement) -> Iterator[tuple[str, str, str, int]]:
    """Return path, value, unexpanded value and offset of the name of an element and its attributes."""
    yield node.path, node.text, node.value.raw if node.value else "", node.name_span.start
    for attribute in node.attributes:
        path = f"{node.path}@{attribute.name}"
        yield path, attribute.text, attribute.value.raw, attribute.name_span.start
