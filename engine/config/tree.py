"""The document as a tree in which every part has its place in the file."""

from __future__ import annotations

import bisect
import dataclasses
import re
from array import array
from collections.abc import Iterator

import msgspec

from engine.config.expansion import Use
from engine.config.problems import ByteRange, Position, Problem

_LINE_END = re.compile(rb"\r\n|\n|\r")


def position_by_counting(data: bytes, offset: int) -> Position:
    """Find line and column of an offset in bytes of unknown encoding; the column counts bytes."""
    before = data[:offset]
    line = 1 + before.count(b"\n") + before.count(b"\r") - before.count(b"\r\n")
    start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
    return Position(line, offset - start + 1)


class SourceFile:
    """The bytes of one file, with the line and column of each offset.

    `path` is the name in messages, `data` the bytes as read, `encoding` the one that the XML declaration
    names.
    """

    def __init__(self, path: str, data: bytes, encoding: str = "utf-8") -> None:
        self.path = path
        self.data = data
        self.encoding = encoding
        self._ascii = data.isascii()
        self._starts: array[int] | None = None

    def _line_starts(self) -> array[int]:
        if self._starts is None:
            self._starts = array("I", [0])
            self._starts.extend(found.end() for found in _LINE_END.finditer(self.data))
        return self._starts

    def position(self, offset: int) -> Position:
        """Return line and column of a byte offset; an offset beyond the end counts as the end."""
        offset = max(0, min(offset, len(self.data)))
        starts = self._line_starts()
        line = bisect.bisect_right(starts, offset)
        start = starts[line - 1]
        if self._ascii:
            return Position(line, offset - start + 1)
        before = self.data[start:offset].removeprefix(b"\xef\xbb\xbf")
        return Position(line, len(before.decode(self.encoding, "replace")) + 1)

    def line(self, number: int) -> str:
        """Return the text of a line without its end; empty for a line that does not exist."""
        starts = self._line_starts()
        if not 1 <= number <= len(starts):
            return ""
        end = starts[number] if number < len(starts) else len(self.data)
        text = self.data[starts[number - 1] : end].removeprefix(b"\xef\xbb\xbf")
        return text.decode(self.encoding, "replace").rstrip("\r\n")

    def text(self, span: ByteRange) -> str:
        """Return the characters of a range of bytes."""
        return self.data[span.start : span.end].decode(self.encoding, "replace")


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A value as written and as expanded.

    `raw` has XML entities resolved and surrounding blanks removed, but variables not expanded; `text` has
    them expanded. `span` covers the value in the file, without quotes or surrounding blanks; `path` is that
    of its element or attribute. `is_broken` marks a failed expansion; `text` is then the raw text.
    """

    raw: str
    text: str
    span: ByteRange
    path: str
    source: SourceFile = dataclasses.field(repr=False)
    uses: tuple[Use, ...] = ()
    is_broken: bool = False

    @property
    def position(self) -> Position:
        """Line and column at which the value begins, after the quote."""
        return self.source.position(self.span.start)

    @property
    def is_left_empty(self) -> bool:
        """Whether there is no text because variables are not set."""
        return not self.text.strip() and any(use.vanishes for use in self.uses)


class Attribute(msgspec.Struct, frozen=True, eq=False):
    """An attribute; `span` runs from its name to its closing quote, `name_span` covers the name."""

    name: str
    value: Value
    span: ByteRange
    name_span: ByteRange

    @property
    def position(self) -> Position:
        """Line and column at which the name begins."""
        return self.value.source.position(self.span.start)

    @property
    def text(self) -> str:
        """The expanded value."""
        return self.value.text

    @property
    def path(self) -> str:
        """Path from the root, such as `Domain/Service@name`."""
        return self.value.path


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class XmlElement:
    """An element.

    Its fields keep the order in the file; lookups by name take the first match.
    """

    name: str
    """Name of the element."""
    path: str
    """Path from the root, such as `Domain/Service/Command`; empty for the root."""
    attributes: tuple[Attribute, ...]
    """Its attributes."""
    children: tuple[XmlElement, ...]
    """Its child elements."""
    value: Value | None
    """Its text; None without text other than blanks."""
    span: ByteRange
    """Bytes of the element with its content."""
    tag_span: ByteRange
    """Bytes of its start tag."""
    name_span: ByteRange
    """Bytes of the name in the start tag."""
    source: SourceFile = dataclasses.field(repr=False)
    """The file."""

    @property
    def position(self) -> Position:
        """Line and column at which the start tag begins."""
        return self.source.position(self.span.start)

    @property
    def line(self) -> int:
        """The line on which the start tag begins, from 1."""
        return self.position.line

    @property
    def column(self) -> int:
        """The column at which the start tag begins, from 1."""
        return self.position.column

    @property
    def text(self) -> str:
        """The expanded text, without surrounding blanks; empty for an element without text."""
        return self.value.text if self.value else ""

    @property
    def is_empty_tag(self) -> bool:
        """Whether its form is `<Name/>`."""
        return self.span == self.tag_span

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute of that name."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        return None

    def named(self, name: str) -> list[XmlElement]:
        """Return the children of that name, in document order."""
        return [child for child in self.children if child.name == name]

    def find(self, path: str) -> XmlElement | None:
        """Return the first element at a relative path such as `Network/Heartbeat`, like OpenSplice."""
        found: XmlElement | None = self
        for name in path.split("/"):
            found = next((child for child in found.children if child.name == name), None) if found else None
        return found

    def find_all(self, path: str) -> list[XmlElement]:
        """Return all elements at a relative path, in document order."""
        found = [self]
        for name in path.split("/"):
            found = [child for node in found for child in node.children if child.name == name]
        return found

    def walk(self) -> Iterator[XmlElement]:
        """Return this element and all below it, in document order."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


class Comment(msgspec.Struct, frozen=True, eq=False):
    """A comment with its place."""

    text: str
    span: ByteRange
    position: Position


class Document(msgspec.Struct, frozen=True, eq=False):
    """A well-formed file; `problems` are the failed expansions."""

    source: SourceFile
    root: XmlElement
    comments: tuple[Comment, ...]
    problems: tuple[Problem, ...]

    @property
    def path(self) -> str:
        """The file, as given."""
        return self.source.path

    def values(self) -> Iterator[Value]:
        """Return all attribute values and texts, in document order."""
        for node in self.root.walk():
            yield from (attribute.value for attribute in node.attributes)
            if node.value:
                yield node.value

    def variable_span(self, value: Value, use: Use) -> ByteRange:
        """Return the bytes of a variable in the file; of the whole value if entities hide the place."""
        if self.source.text(value.span) != value.raw:
            return value.span
        start = value.span.start + len(value.raw[: use.start].encode(self.source.encoding))
        return ByteRange(start, start + len(value.raw[use.start : use.end].encode(self.source.encoding)))
