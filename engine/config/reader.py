"""Parsing bytes into a document: expat with bounds, without fetching or expanding entities.

Document types that declare anything, and with them entities, are refused: OpenSplice configurations have
none, and they make it dangerous to read XML from other sources. One that only names a type or a file is
skipped, as OpenSplice does: the parser does not see it, so that no reference is one to what it may declare.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from xml.parsers import expat

from engine.config.expansion import ExpansionFault, expand
from engine.config.problems import ByteRange, ConfigError, Problem, ProblemKind, quoted
from engine.config.tree import (
    Attribute,
    Comment,
    Document,
    SourceFile,
    Value,
    XmlElement,
    position_by_counting,
)

# A hundred times and more what real ones have. The reader takes a multiple of it in memory.
MAX_BYTES = 1 << 20
"""Limit for the size of a file; real configurations have a few KB."""

# As many as fit into `MAX_BYTES` at some twenty bytes each.
MAX_LINES = 50_000
"""Limit for the lines of a file."""

# Eight times what the schema needs; paths of elements are built for each level.
MAX_DEPTH = 64
"""Limit for the nesting of elements; the schema needs 8."""

# Each becomes an object with its place. A configuration of a hundred name-spaces has some hundred.
MAX_NODES = 10_000
"""Limit for the elements, attributes and comments of a file."""

MAX_NAME_CHARS = 128
"""Limit for the name of an element or attribute; the schema's longest has 37 characters."""

# 64 values of the largest size, or four times the largest file.
MAX_EXPANDED_TOTAL_CHARS = 1 << 22
"""Limit for the characters of all expansions of a file together."""

_ENCODINGS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "iso-8859-1",
    "latin-1": "iso-8859-1",
    "latin1": "iso-8859-1",
}
_DECLARATION = re.compile(rb"""^(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\sencoding\s*=\s*["']([^"'>]*)["']""")
_ATTRIBUTE = re.compile(rb"""\s+([^\s=<>/"']+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_COMMENT = re.compile(rb"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_DOCUMENT_TYPE = re.compile(
    rb"(?:\xef\xbb\xbf)?(?>\s+|<!--.*?-->|<\?.*?\?>)*+(<!DOCTYPE\s[^<>]*>)", re.DOTALL
)
_NO_LINE_END = re.compile(rb"[^\r\n]")
_BLANKS = " \t\r\n"
_BLANK_BYTES = b" \t\r\n"
_EXPAT_ENCODINGS = {"utf-8": "UTF-8", "ascii": "US-ASCII", "iso-8859-1": "ISO-8859-1"}


def read_document(uri: str, environ: Mapping[str, str]) -> Document:
    """Read a `file://` URI or a path.

    Raises:
        ConfigError: it cannot be read, is not well-formed XML, or exceeds a bound.
    """
    path = path_of_uri(uri)
    return parse(read_bytes(path), path, environ)


def path_of_uri(uri: str) -> str:
    """Return the path of a `file://` URI, with percent escapes resolved, or of a plain path.

    Raises:
        ConfigError: another scheme, another host, or no path at all.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        if not uri or "\0" in uri:
            raise _whole_file(ProblemKind.UNREADABLE, uri, "this is not a path of a file")
        return uri
    if scheme.lower() != "file":
        raise _whole_file(
            ProblemKind.UNREADABLE,
            uri,
            f"only file:// URIs and paths can be read, not '{scheme}://'",
        )
    from urllib.parse import unquote  # only URIs pay for this import

    path = unquote(rest.removeprefix("localhost") if rest.startswith("localhost/") else rest)
    if not path or "\0" in path:
        raise _whole_file(ProblemKind.UNREADABLE, uri, "the URI does not name a file")
    return path


def read_bytes(path: str) -> bytes:
    """Read a file, at most MAX_BYTES and one byte, by which `parse` recognises a larger one.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _whole_file(ProblemKind.UNREADABLE, path, f"cannot be read: {reason}") from error
    return data


def _whole_file(kind: ProblemKind, path: str, message: str) -> ConfigError:
    return ConfigError([Problem(kind, message, path, 1, 1)])


def parse(data: bytes, path: str, environ: Mapping[str, str]) -> Document:
    """Parse the data of a file; `path` is for messages only.

    Raises:
        ConfigError: the bytes are not well-formed XML, have an unknown encoding or a document type, or exceed
            a bound.
    """
    source = _decoded_source(data, path)
    return _Builder(source, environ).build()


def _decoded_source(data: bytes, path: str) -> SourceFile:
    """Find the encoding of the bytes and check them."""

    def refused(offset: int, kind: ProblemKind, message: str) -> ConfigError:
        line, column = position_by_counting(data, offset)
        return ConfigError([Problem(kind, message, path, line, column, ByteRange(offset, offset + 1))])

    if len(data) > MAX_BYTES:
        raise refused(MAX_BYTES, ProblemKind.TOO_LARGE, f"the file is larger than {MAX_BYTES} bytes")
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00<", b"<\x00")):
        raise refused(0, ProblemKind.ENCODING, "the file is UTF-16; save it as UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise refused(nul, ProblemKind.ENCODING, "the file contains a NUL byte")
    last, _ = position_by_counting(data, len(data))
    if last > MAX_LINES:
        raise refused(len(data), ProblemKind.TOO_LARGE, f"the file has more than {MAX_LINES} lines")
    declared = _DECLARATION.match(data[:512])
    name = declared.group(1).decode("ascii", "replace") if declared else "utf-8"
    encoding = _ENCODINGS.get(name.lower())
    if declared and encoding is None:
        message = f"the encoding {quoted(name)} is not supported; UTF-8, US-ASCII and ISO-8859-1 are read"
        raise refused(declared.start(1), ProblemKind.ENCODING, message)
    encoding = encoding or "utf-8"
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"byte 0x{data[error.start]:02x} is not {name.upper()}: the encoding is declared wrongly"
        raise refused(error.start, ProblemKind.ENCODING, message) from error
    return SourceFile(path, data, encoding)


def _at(source: SourceFile, offset: int, kind: ProblemKind, message: str, hint: str = "") -> ConfigError:
    line, column = source.position(offset)
    end = min(offset + 1, len(source.data))
    return ConfigError([Problem(kind, message, source.path, line, column, ByteRange(offset, end), hint=hint)])


def _without_document_type(data: bytes) -> bytes:
    """Return data of the same length without a declaration of a document type that declares nothing."""
    found = _DOCUMENT_TYPE.match(data) if b"<!DOCTYPE" in data else None
    if not found:
        return data
    return data[: found.start(1)] + _NO_LINE_END.sub(b" ", found[1]) + data[found.end(1) :]


class _Open:
    """An element whose end tag was not read yet."""

    __slots__ = ("attributes", "children", "name", "name_span", "path", "tag_span", "texts")

    def __init__(
        self,
        name: str,
        path: str,
        attributes: tuple[Attribute, ...],
        tag_span: ByteRange,
        name_span: ByteRange,
    ) -> None:
        self.name = name
        self.path = path
        self.attributes = attributes
        self.tag_span = tag_span
        self.name_span = name_span
        self.children: list[XmlElement] = []
        self.texts: list[str] = []


class _Builder:
    """Builds the tree from the events of expat; its handlers raise ConfigError."""

    def __init__(self, source: SourceFile, environ: Mapping[str, str]) -> None:
        self.source = source
        self.environ = environ
        self.open: list[_Open] = []
        self.comments: list[Comment] = []
        self.problems: list[Problem] = []
        self.root: XmlElement | None = None
        self.nodes = 0
        self.expanded = 0
        self.parser = expat.ParserCreate(_EXPAT_ENCODINGS[source.encoding])
        self.parser.ordered_attributes = True
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.CommentHandler = self._comment

    def build(self) -> Document:
        try:
            self.parser.Parse(_without_document_type(self.source.data), True)
        except expat.ExpatError as error:
            raise self._syntax_error(error) from error
        assert self.root is not None, "expat accepts no document without a root"
        return Document(self.source, self.root, tuple(self.comments), tuple(self.problems))

    def _syntax_error(self, error: expat.ExpatError) -> ConfigError:
        offset = max(self.parser.ErrorByteIndex, 0)
        if error.code == expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH] and self.open:
            top = self.open[-1]
            line = self.source.position(top.tag_span.start).line
            message = (
                f"this end tag does not close <{quoted(top.name)[1:-1]}>, which was opened in line {line}"
            )
            return _at(self.source, offset, ProblemKind.SYNTAX, message)
        if self.open and error.code == expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS]:
            top = self.open[-1]
            line = self.source.position(top.tag_span.start).line
            message = f"the file ends, but <{quoted(top.name)[1:-1]}> of line {line} is not closed"
            return _at(self.source, len(self.source.data), ProblemKind.SYNTAX, message)
        from engine.config import syntax  # only broken files pay for this import

        data, encoding = self.source.data, self.source.encoding
        before = len(data[:offset].decode(encoding, "ignore"))
        text, root = data.decode(encoding), self.root.name if self.root else ""
        fault = syntax.explained(text, before, error.code, root)
        offset = len(text[: fault.offset].encode(encoding))
        return _at(self.source, offset, ProblemKind.SYNTAX, fault.message, fault.hint)

    def _count(self, offset: int, more: int) -> None:
        self.nodes += more
        if self.nodes > MAX_NODES:
            message = f"the file has more than {MAX_NODES} elements, attributes and comments"
            raise _at(self.source, offset, ProblemKind.TOO_LARGE, message)

    def _doctype(self, *_: object) -> None:
        hint = "remove the declarations in <!DOCTYPE …>, or all of it"
        message = "document types with declarations, and entities, are refused"
        start = self.source.data.rfind(b"<!DOCTYPE", 0, self.parser.CurrentByteIndex + len(b"<!DOCTYPE"))
        raise _at(self.source, max(start, 0), ProblemKind.DTD, message, hint)

    def _start(self, name: str, flat: list[str]) -> None:
        offset = self.parser.CurrentByteIndex
        self._count(offset, 1 + len(flat) // 2)
        if len(self.open) >= MAX_DEPTH:
            raise _at(
                self.source, offset, ProblemKind.TOO_LARGE, f"elements are nested more than {MAX_DEPTH} deep"
            )
        if len(name) > MAX_NAME_CHARS or (flat and max(map(len, flat[::2])) > MAX_NAME_CHARS):
            raise _at(
                self.source,
                offset,
                ProblemKind.TOO_LARGE,
                f"a name is longer than {MAX_NAME_CHARS} characters",
            )
        if not self.open:
            path = ""
        else:
            above = self.open[-1].path
            path = f"{above}/{name}" if above else name
        size = len(name) if name.isascii() else len(name.encode(self.source.encoding))
        name_span = ByteRange(offset + 1, offset + 1 + size)
        if flat:
            attributes, end = self._attributes(path, flat, name_span.end)
        else:
            attributes, end = (), self.source.data.index(b">", name_span.end) + 1
        self.open.append(_Open(name, path, attributes, ByteRange(offset, end), name_span))

    def _attributes(self, path: str, flat: list[str], at: int) -> tuple[tuple[Attribute, ...], int]:
        """Return the attributes with their places, and the end of the start tag whose name ends at `at`."""
        data = self.source.data
        attributes: list[Attribute] = []
        for index in range(0, len(flat), 2):
            found = _ATTRIBUTE.match(data, at)
            assert found, "expat accepted an attribute that we cannot find"
            group = 2 if found.group(2) is not None else 3
            name_span = ByteRange(*found.span(1))
            subject = f"{path}@{flat[index]}"
            value = self._value(flat[index + 1], ByteRange(*found.span(group)), subject)
            span = ByteRange(name_span.start, found.end())
            attributes.append(Attribute(flat[index], value, span, name_span))
            at = found.end()
        return tuple(attributes), data.index(b">", at) + 1

    def _value(self, raw: str, span: ByteRange, subject: str) -> Value:
        if "$" not in raw and "\\" not in raw:
            return Value(raw, raw, span, subject, self.source)
        try:
            expanded = expand(raw, self.environ)
        except ExpansionFault as fault:
            self.problems.append(self._expansion_problem(fault, raw, span, subject))
            return Value(raw, raw, span, subject, self.source, is_broken=True)
        self.expanded += len(expanded.text)
        if self.expanded > MAX_EXPANDED_TOTAL_CHARS:
            message = f"all values together expand to more than {MAX_EXPANDED_TOTAL_CHARS} characters"
            raise _at(self.source, span.start, ProblemKind.TOO_LARGE, message)
        return Value(raw, expanded.text, span, subject, self.source, expanded.uses)

    def _expansion_problem(self, fault: ExpansionFault, raw: str, span: ByteRange, subject: str) -> Problem:
        place = span
        if self.source.text(span) == raw:
            start = span.start + len(raw[: fault.offset].encode(self.source.encoding))
            place = ByteRange(start, span.end)
        line, column = self.source.position(place.start)
        return Problem(ProblemKind.EXPANSION, str(fault), self.source.path, line, column, place, subject)

    def _text(self, text: str) -> None:
        self.open[-1].texts.append(text)

    def _comment(self, text: str) -> None:
        start = self.parser.CurrentByteIndex
        self._count(start, 1)
        end = self.source.data.index(b"-->", start) + 3
        self.comments.append(Comment(text, ByteRange(start, end), self.source.position(start)))

    def _end(self, name: str) -> None:
        at = self.parser.CurrentByteIndex
        element = self.open.pop()
        inside_end = at
        empty = at == element.tag_span.end and self.source.data.startswith(b"/>", at - 2)
        end = at if empty else self.source.data.index(b">", at) + 1
        node = XmlElement(
            name,
            element.path,
            element.attributes,
            tuple(element.children),
            self._content(element, inside_end),
            ByteRange(element.tag_span.start, end),
            element.tag_span,
            element.name_span,
            self.source,
        )
        if self.open:
            self.open[-1].children.append(node)
        else:
            self.root = node

    def _content(self, element: _Open, end: int) -> Value | None:
        texts = element.texts
        raw = (texts[0] if len(texts) == 1 else "".join(texts)).strip(_BLANKS) if texts else ""
        if not raw:
            return None
        start = element.tag_span.end
        if element.children:
            start, end = self._first_text(element, end)
        inside = self.source.data[start:end]
        start += len(inside) - len(inside.lstrip(_BLANK_BYTES))
        end -= len(inside) - len(inside.rstrip(_BLANK_BYTES))
        return self._value(raw, ByteRange(start, end), element.path)

    def _first_text(self, element: _Open, end: int) -> ByteRange:
        """Find the first text between the children of an element."""
        at = element.tag_span.end
        for child in (*element.children, None):
            until = child.span.start if child else end
            hidden = _COMMENT.sub(lambda found: b" " * len(found.group()), self.source.data[at:until])
            if hidden.strip(_BLANK_BYTES):
                before = len(hidden) - len(hidden.lstrip(_BLANK_BYTES))
                return ByteRange(at + before, at + len(hidden.rstrip(_BLANK_BYTES)))
            at = child.span.end if child else end
        return ByteRange(element.tag_span.end, end)
