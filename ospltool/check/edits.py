"""Byte-exact repairs; each function returns the bytes of a file to replace, and their replacement."""

from __future__ import annotations

from engine.config import Attribute, ByteRange, Value, XmlElement
from ospltool.check.views import NodeView
from ospltool.diagnostics.model import Edit, Fix

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}


def _encoded(view: NodeView, text: str) -> bytes:
    return text.encode(view.source.encoding, "xmlcharrefreplace")


def _edit(view: NodeView, span: ByteRange, text: str) -> Edit:
    return Edit(view.path, span, _encoded(view, text))


def replace_value(view: NodeView, value: Value, text: str, *, is_safe: bool) -> Fix | None:
    """Replace a value by a text; None if it comes from variables, which are set elsewhere."""
    if value.uses:
        return None
    escaped = "".join(_ESCAPES.get(char, char) for char in text)
    return Fix(f"Replace by '{text}'", is_safe, (_edit(view, value.span, escaped),))


def replace_span(view: NodeView, span: ByteRange, text: str, title: str, *, is_safe: bool) -> Fix:
    """Replace a range by `text`, which is already XML. The title says in a line what the fix does."""
    return Fix(title, is_safe, (_edit(view, span, text),))


def rename_element(view: NodeView, node: XmlElement, name: str, *, is_safe: bool) -> Fix:
    """Give an element another name in its start tag and end tag."""
    edits = [_edit(view, node.name_span, name)]
    if not node.is_empty_tag:
        end = view.source.data.rindex(b"</", node.span.start, node.span.end) + 2
        edits.append(_edit(view, ByteRange(end, end + len(_encoded(view, node.name))), name))
    return Fix(f"Rename <{node.name}> to <{name}>", is_safe, tuple(edits))


def rename_attribute(view: NodeView, attribute: Attribute, name: str, *, is_safe: bool) -> Fix:
    """Give an attribute another name."""
    return Fix(f"Rename {attribute.name} to {name}", is_safe, (_edit(view, attribute.name_span, name),))


def remove_attribute(view: NodeView, attribute: Attribute, *, is_safe: bool) -> Fix:
    """Remove an attribute, with the blanks before it."""
    start = attribute.span.start
    data = view.source.data
    while data[start - 1 : start].isspace():
        start -= 1
    return Fix(f"Remove {attribute.name}", is_safe, (_edit(view, ByteRange(start, attribute.span.end), ""),))


def remove_range(view: NodeView, span: ByteRange, title: str, *, is_safe: bool) -> Fix:
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
    return Fix(title, is_safe, (_edit(view, ByteRange(start, end), ""),))


def remove_element(view: NodeView, node: XmlElement, *, is_safe: bool) -> Fix:
    """Remove an element with its content."""
    return remove_range(view, node.span, f"Remove <{node.name}>", is_safe=is_safe)


def insert_attribute(view: NodeView, node: XmlElement, name: str, value: str, *, is_safe: bool) -> Fix:
    """Insert an attribute with a name and a value after the last one."""
    at = node.attributes[-1].span.end if node.attributes else node.name_span.end
    escaped = "".join(_ESCAPES.get(char, char) for char in value)
    return Fix(f'Add {name}="{value}"', is_safe, (_edit(view, ByteRange(at, at), f' {name}="{escaped}"'),))
