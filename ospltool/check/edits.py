"""Byte-exact repairs; each function returns the bytes of a file to replace, and their replacement."""

from __future__ import annotations

from collections.abc import Iterable

from engine.config import Attribute, ByteRange, Value, XmlElement
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Edit, Fix

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Return a file after edits, which do not overlap."""
    # From the end, so that the places of the other edits stay right.
    for edit in sorted(edits, key=lambda each: each.span, reverse=True):
        data = data[: edit.span.start] + edit.replacement + data[edit.span.end :]
    return data


def _encoded(view: NodeView, text: str) -> bytes:
    return text.encode(view.source.encoding, "xmlcharrefreplace")


def _edit(view: NodeView, span: ByteRange, text: str) -> Edit:
    return Edit(view.path, span, _encoded(view, text))


def replace_value(view: NodeView, value: Value, text: str) -> Fix | None:
    """Replace a value by a text; None if it comes from variables, which are set elsewhere."""
    if value.uses:
        return None
    escaped = "".join(_ESCAPES.get(char, char) for char in text)
    return Fix(f"Replace by '{text}'", (_edit(view, value.span, escaped),))


def replace_span(view: NodeView, span: ByteRange, text: str, title: str) -> Fix:
    """Replace a range by `text`, which is already XML. The title says in a line what the fix does."""
    return Fix(title, (_edit(view, span, text),))


def rename_element(view: NodeView, node: XmlElement, name: str) -> Fix:
    """Give an element another name in its start tag and end tag."""
    edits = [_edit(view, node.name_span, name)]
    if not node.is_empty_tag:
        end = view.source.data.rindex(b"</", node.span.start, node.span.end) + 2
        edits.append(_edit(view, ByteRange(end, end + len(_encoded(view, node.name))), name))
    return Fix(f"Rename <{node.name}> to <{name}>", tuple(edits))


def rename_attribute(view: NodeView, attribute: Attribute, name: str) -> Fix:
    """Give an attribute another name."""
    return Fix(f"Rename {attribute.name} to {name}", (_edit(view, attribute.name_span, name),))


def remove_attribute(view: NodeView, attribute: Attribute) -> Fix:
    """Remove an attribute, with the blanks before it."""
    start = attribute.span.start
    data = view.source.data
    while data[start - 1 : start].isspace():
        start -= 1
    return Fix(f"Remove {attribute.name}", (_edit(view, ByteRange(start, attribute.span.end), ""),))


def remove_range(view: NodeView, span: ByteRange, title: str) -> Fix:
    """Remove a range, and its lines if they have nothing else. The title says in a line what the fix does."""
    data = view.source.data
    start, end = span
    while start and data[start - 1 : start] in (b" ", b"\t"):
        start -= 1
    while data[end : end + 1] in (b" ", b"\t"):
        end += 1
    alone = (not start or data[start - 1 : start] in (b"\n", b"\r")) and data[end : end + 1] in (
        b"\n",
        b"\r",
        b"",
    )
    if not alone:
        start, end = span
    elif data[end : end + 2] == b"\r\n":
        end += 2
    elif end < len(data):
        end += 1
    return Fix(title, (_edit(view, ByteRange(start, end), ""),))


def remove_element(view: NodeView, node: XmlElement) -> Fix:
    """Remove an element with its content."""
    return remove_range(view, node.span, f"Remove <{node.name}>")
