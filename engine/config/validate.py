"""Comparison of a document with the schema, the first of OpenSplice's two layers of checks.

It reports everything that the OpenSplice validator refuses, all at once, with positions and hints.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.config.problems import ByteRange, ConfigError, Position, Problem, ProblemKind, quoted
from engine.config.schema import ROOT, Item, Schema, Type, documented, engine_schema
from engine.config.settings import Ignored, Setting, SettingOrigin
from engine.config.tree import Document, Value, XmlElement
from engine.config.values import ValueFault, did_you_mean, parse_value


def problem(
    document: Document,
    kind: ProblemKind,
    message: str,
    span: ByteRange,
    subject: str,
    hint: str = "",
    other: Position | None = None,
) -> Problem:
    """Make a problem at a place of a document.

    Args:
        document: the file.
        kind: the kind of problem.
        message: its description.
        span: bytes to underline.
        subject: schema path.
        hint: advice; may be empty.
        other: a second place.
    """
    line, column = document.source.position(span.start)
    return Problem(kind, message, document.path, line, column, span, documented(subject), hint, other)


OTHER_FILES: Final = {
    "CycloneDDS": "this is a configuration of Cyclone DDS itself; CYCLONEDDS_URI names it to a process",
    "dds": "these are QoS profiles (DDS for lightweight CCM), which a QosProvider of an application reads",
    "MetaData": "this describes a type, as OpenSplice keeps it in a store",
    "persistence": "this looks like a part of a store of OpenSplice",
}
"""Explanation of other XML files, by their root element."""


def schema_problems(document: Document, known: Schema) -> Iterator[Problem]:
    """Find everything that the schema does not allow, in document order.

    Content of unknown elements is not checked.
    """
    root = document.root
    if root.name != ROOT:
        message = f"the root element is <{quoted(root.name)[1:-1]}>, not <{ROOT}>"
        yield problem(
            document, ProblemKind.ROOT, message, root.name_span, "", hint=OTHER_FILES.get(root.name, "")
        )
        return
    stack = [root]
    while stack:
        node = stack.pop()
        # Most elements are leaves without attributes; these checks spare them three generators each.
        has_required = bool(known.required(node.path))
        if node.attributes or has_required:
            yield from _attribute_problems(document, known, node)
        if not _is_good_text(known, node):
            yield from _value_problems(document, known, node)
        if node.children or has_required:
            yield from _child_problems(document, known, node)
            allowed = known.children(node.path)
            stack.extend(child for child in reversed(node.children) if child.name in allowed)


def _is_good_text(known: Schema, node: XmlElement) -> bool:
    """Tell whether the text of an element needs no check: elements have none, strings any."""
    item = known.get(node.path)
    if item is None or item.type is Type.ELEMENT:
        return node.value is None
    return item.type is Type.STRING and not item.max_length and not node.children


def _attribute_problems(document: Document, known: Schema, node: XmlElement) -> Iterator[Problem]:
    allowed = known.attributes(node.path)
    for attribute in node.attributes:
        item = allowed.get(attribute.name)
        if item is None:
            message = f"<{node.name}> has no attribute {quoted(attribute.name)}"
            hint = _hint(known, node.path, attribute.name, list(allowed), is_attribute=True)
            hint = hint or _known_attributes(node, list(allowed))
            subject = f"{node.path}@{attribute.name}"
            yield problem(
                document, ProblemKind.UNKNOWN_ATTRIBUTE, message, attribute.name_span, subject, hint
            )
        else:
            yield from value_problems(document, item, attribute.value, attribute.name)
    for item in known.required(node.path):
        if item.is_attribute and node.attribute(item.name) is None:
            message = f"<{node.name}> lacks the required attribute '{item.name}'"
            hint = _written_instead(item, node, allowed) or _example(item)
            yield problem(document, ProblemKind.MISSING_ATTRIBUTE, message, node.name_span, item.path, hint)


def _written_instead(item: Item, node: XmlElement, allowed: Mapping[str, Item]) -> str:
    """Name an unknown attribute that probably stands for a missing required one."""
    for attribute in node.attributes:
        if attribute.name not in allowed and did_you_mean(attribute.name, [item.name]):
            return f"there is {quoted(attribute.name)}; did you mean {item.name}?"
    return ""


def _example(item: Item) -> str:
    """Show how a required attribute is written; the default of a flag would pass for advice."""
    if item.type is Type.BOOLEAN:
        return f'{item.name}="true" or {item.name}="false"'
    return f'for example {item.name}="{item.default}"'


def _known_attributes(node: XmlElement, allowed: list[str]) -> str:
    return f"<{node.name}> knows {', '.join(allowed)}" if allowed else ""


def _value_problems(document: Document, known: Schema, node: XmlElement) -> Iterator[Problem]:
    item = known.get(node.path)
    is_element = item is None or item.type is Type.ELEMENT
    if is_element:
        if node.value:
            message = f"<{node.name}> takes elements, not text: {quoted(node.value.raw)}"
            yield problem(document, ProblemKind.STRAY_TEXT, message, node.value.span, node.path)
        return
    assert item is not None
    if node.value and node.children:
        message = f"<{node.name}> takes a value, not child elements"
        yield problem(document, ProblemKind.STRAY_TEXT, message, node.value.span, node.path)
    elif node.value:
        yield from value_problems(document, item, node.value, node.name)
    elif item.type is not Type.STRING and not node.children:
        message = f"<{node.name}> is empty"
        hint = f"remove it to get the default, {item.default}"
        yield problem(document, ProblemKind.EMPTY_VALUE, message, node.tag_span, node.path, hint)


def value_problems(document: Document, item: Item, value: Value, name: str) -> Iterator[Problem]:
    """Check one value; the result is at most one problem.

    A failed expansion is reported elsewhere. `name` is what the message calls it.
    """
    if value.is_broken:
        return
    try:
        parse_value(item, value.text)
    except ValueFault as fault:
        origin = f" (from {quoted(value.raw)})" if value.text != value.raw else ""
        message = f"{name}: {fault}{origin}"
        yield problem(document, fault.kind, message, value.span, item.path, fault.hint)


def _child_problems(document: Document, known: Schema, node: XmlElement) -> Iterator[Problem]:
    allowed = known.children(node.path)
    first: dict[str, XmlElement] = {}
    counts: dict[str, int] = {}
    for child in node.children:
        item = allowed.get(child.name)
        if item is None:
            message = f"<{node.name}> has no element {quoted(child.name)}"
            yield problem(
                document,
                ProblemKind.UNKNOWN_ELEMENT,
                message,
                child.name_span,
                child.path,
                _element_hint(known, child),
            )
            continue
        counts[child.name] = counts.get(child.name, 0) + 1
        earlier = first.setdefault(child.name, child)
        if item.maximum is not None and counts[child.name] > item.maximum:
            message = f"<{child.name}> may occur {_times(item.maximum)} in <{node.name}>"
            hint = f"the first is in line {earlier.line}"
            yield problem(
                document,
                ProblemKind.REPEATED_ELEMENT,
                message,
                child.name_span,
                child.path,
                hint,
                earlier.position,
            )
    for item in known.required(node.path):
        if not item.is_attribute and item.minimum > counts.get(item.name, 0):
            message = f"<{node.name}> lacks the required element <{item.name}>"
            yield problem(document, ProblemKind.MISSING_ELEMENT, message, node.name_span, item.path)


def _times(count: int) -> str:
    return "only once" if count == 1 else f"at most {count} times"


def _element_hint(known: Schema, child: XmlElement) -> str:
    """Suggest what the author of an unknown element may have meant."""
    parent = child.path.rpartition("/")[0]
    allowed = list(known.children(parent))
    if child.name in known.attributes(parent):
        return f"{child.name} is an attribute here"
    return _hint(known, parent, child.name, allowed, is_attribute=False)


def _hint(known: Schema, parent: str, name: str, allowed: list[str], *, is_attribute: bool) -> str:
    """Suggest what an unknown name stands for: another case, the same name elsewhere, a similar name.

    A setting in the wrong place keeps its name, so the nearest spelling comes last: it is another setting.
    """
    if name.lower() not in map(str.lower, allowed):
        places = _places(known, parent, name, is_attribute=is_attribute)
        if places:
            shown = [documented(each) for each in places[:MAX_PLACES]]
            more = f", or {len(places) - MAX_PLACES} more" if len(places) > MAX_PLACES else ""
            return f"it belongs in {' or '.join(shown)}{more}"
    return did_you_mean(name, allowed)


def _places(known: Schema, parent: str, name: str, *, is_attribute: bool) -> list[str]:
    """Return the elements of the same service that have an element or attribute of a name, nearest first."""
    service = parent.split("/")[0]
    items = [known[path] for path in known.paths() if service in ("", path.split("/")[0])]
    found = [each.parent for each in items if each.name == name and each.is_attribute == is_attribute]
    above = parent.split("/")

    def distance(path: str) -> int:
        parts = path.split("/")
        common = sum(
            1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(parts, above, strict=False))
        )
        return len(parts) + len(above) - 2 * common

    # The nearest place first: hints beyond `MAX_PLACES` are cut off.
    return sorted(found, key=distance)


STRANGE = frozenset({ProblemKind.UNKNOWN_ELEMENT, ProblemKind.UNKNOWN_ATTRIBUTE, ProblemKind.STRAY_TEXT})
# More would fill the line; a setting with more places is a common name such as Enabled.
MAX_PLACES: Final = 3
"""Most places that a hint names for a setting that is elsewhere."""
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


MAX_EXPRESSION_CHARS = 256
"""Longest name or expression of a partition, topic, name-space or role; OpenSplice has room for 99."""

# Chosen: one comparison may cost the product of the lengths, and each pair is compared.
MAX_COMPARISON = 5_000_000
"""Largest sum, over all pairs of name-space expressions with wildcards, of the products of their lengths."""

_NAME_SPACE: Final = "DurabilityService/NameSpaces/NameSpace/"


def check_bounds(document: Document) -> None:
    """Refuse a document with too many or too long expressions.

    Raises:
        ConfigError: a bound is exceeded; it has the first place.
    """
    known = engine_schema()
    counts: Counter[str] = Counter()
    cost = _Cost()
    for node in document.root.walk():
        item = known.get(node.path)
        if item is None:
            continue
        counts[node.path] += 1
        if item.most and counts[node.path] > item.most:
            message = f"there are more than {item.most} elements <{node.name}>"
            _refuse(document, message, node.tag_span, node.path)
        if item.is_expression and node.value:
            _check_length(document, node.text, node.value.span, node.path)
        for attribute in node.attributes:
            given = known.get(f"{node.path}@{attribute.name}")
            if given is not None and given.is_expression:
                _check_length(document, attribute.text, attribute.value.span, given.path)
        if node.path.startswith(_NAME_SPACE) and not cost.is_bearable_with(node.text):
            _refuse(document, "there are too many expressions with wildcards", node.tag_span, node.path)


class _Cost:
    """The cost of comparing each expression with all before it."""

    def __init__(self) -> None:
        self.total = 0
        self.chars = 0

    def is_bearable_with(self, text: str) -> bool:
        if "*" in text or "?" in text:
            self.total += len(text) * self.chars
            self.chars += len(text)
        return self.total <= MAX_COMPARISON


def _check_length(document: Document, text: str, span: ByteRange, path: str) -> None:
    if len(text) > MAX_EXPRESSION_CHARS:
        message = (
            f"a name or expression of {len(text)} characters; at most {MAX_EXPRESSION_CHARS} are allowed"
        )
        _refuse(document, message, span, path)


def _refuse(document: Document, message: str, span: ByteRange, path: str) -> None:
    raise ConfigError([problem(document, ProblemKind.TOO_LARGE, message, span, path)])
