"""Comparison of a document with the schema, the first of OpenSplice's two layers of checks.

It reports everything that the OpenSplice validator refuses, all at once, with positions and hints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.config.problems import ByteRange, Position, Problem, ProblemKind, quoted
from engine.config.schema import ROOT, Item, Schema, Type, documented
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
            hint = did_you_mean(attribute.name, list(allowed)) or _known_attributes(node, list(allowed))
            subject = f"{node.path}@{attribute.name}"
            yield problem(
                document, ProblemKind.UNKNOWN_ATTRIBUTE, message, attribute.name_span, subject, hint
            )
        else:
            yield from value_problems(document, item, attribute.value, attribute.name)
    for item in known.required(node.path):
        if item.is_attribute and node.attribute(item.name) is None:
            message = f"<{node.name}> lacks the required attribute '{item.name}'"
            hint = _written_instead(item, node, allowed) or f'for example {item.name}="{item.default}"'
            yield problem(document, ProblemKind.MISSING_ATTRIBUTE, message, node.name_span, item.path, hint)


def _written_instead(item: Item, node: XmlElement, allowed: Mapping[str, Item]) -> str:
    """Name an unknown attribute that probably stands for a missing required one."""
    for attribute in node.attributes:
        if attribute.name not in allowed and did_you_mean(attribute.name, [item.name]):
            return f"there is {quoted(attribute.name)}; did you mean {item.name}?"
    return ""


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
    for beside in (f"{parent}/{name}".lstrip("/") for name in allowed):
        if child.name in known.children(beside):
            return f"it belongs in {documented(beside)}"
    similar = did_you_mean(child.name, allowed)
    if similar:
        return similar
    if child.name in known.attributes(parent):
        return f"{child.name} is an attribute here"
    service = child.path.partition("/")[0]
    places = [
        path
        for path in known.paths()
        if path.endswith(f"/{child.name}") and path.partition("/")[0] == service and "@" not in path
    ]
    return f"it belongs in {documented(places[0].rpartition('/')[0])}" if places else ""
